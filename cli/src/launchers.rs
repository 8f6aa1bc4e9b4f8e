//! What batch systems and launchers tell a process of its number among equals, and the part of a job that follows.

use crate::output::eprintln_quietly;
use std::env;
use std::str::FromStr;
use uringload::config::Part;
use uringload::{Error, ErrorKind, Result};

/// The variables of rank and world size, in the order in which they are tried: torchrun's, SLURM's (`srun`), those of
/// Open MPI, of MPICH and its kin (Intel MPI, Hydra), MVAPICH's, LSF's (`jsrun`) and PMIx's, which puts the number of
/// processes into its server and not into a variable. Kubernetes numbers the pods of an indexed job and does not count
/// them. The Python package reads this table as well.
pub const VARIABLES: [(&str, Option<&str>); 8] = [
    ("RANK", Some("WORLD_SIZE")),
    ("SLURM_PROCID", Some("SLURM_NTASKS")),
    ("OMPI_COMM_WORLD_RANK", Some("OMPI_COMM_WORLD_SIZE")),
    ("PMI_RANK", Some("PMI_SIZE")),
    ("MV2_COMM_WORLD_RANK", Some("MV2_COMM_WORLD_SIZE")),
    ("JSM_NAMESPACE_RANK", Some("JSM_NAMESPACE_SIZE")),
    ("PMIX_RANK", None),
    ("JOB_COMPLETION_INDEX", Some("WORLD_SIZE")),
];

/// Number of a task and of all tasks, of batch systems that start a task many times: AWS Batch (array jobs), Google's
/// Cloud Run (jobs) and Batch.
const ARRAYS: [(&str, &str); 3] = [
    ("AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE"),
    ("CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT"),
    ("BATCH_TASK_INDEX", "BATCH_TASK_COUNT"),
];

/// SLURM's arrays number their tasks from any number on, in steps (sbatch(1), `--array`).
const SLURM: [&str; 5] = [
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP",
];

/// Which part of a job is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedPart {
    /// `I/N`.
    Part(Part),
    /// `auto`: as the environment says. `auto/N`: the environment says I.
    Auto(Option<u64>),
}

impl FromStr for AskedPart {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<AskedPart, String> {
        if text == "auto" {
            return Ok(AskedPart::Auto(None));
        }
        if let Some(count) = text.strip_prefix("auto/").and_then(|count| count.parse().ok()).filter(|&count| count > 0)
        {
            return Ok(AskedPart::Auto(Some(count)));
        }
        text.parse().map(AskedPart::Part).map_err(|error| format!("{error}, or auto"))
    }
}

impl AskedPart {
    /// The part. What the environment says is told on stderr.
    ///
    /// # Errors
    /// `InvalidArgument` if no variable says it, or if two say something else.
    pub fn part(self) -> Result<Part> {
        match self {
            AskedPart::Part(part) => Ok(part),
            AskedPart::Auto(count) => {
                let (part, source) = find(count, |name| env::var(name).ok())?;
                eprintln_quietly(&format!("uringload: part {part} (from {source})"));
                Ok(part)
            }
        }
    }
}

/// The part that the variables say, and their names.
fn find(count: Option<u64>, variable: impl Fn(&str) -> Option<String>) -> Result<(Part, String)> {
    // `RANK= command` leaves a variable that is set but empty.
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let known = |name: &str| set(name).map(|value| number(name, &value)).transpose();
    let mut told = Vec::new();
    if let Some(part) = of_slurm_array(count, known)? {
        told.push((part, SLURM[0].to_owned()));
    }
    let pairs = ARRAYS.iter().map(|&(index, size)| (index, Some(size))).chain(VARIABLES);
    for (index_name, size_name) in pairs {
        let Some(index) = known(index_name)? else { continue };
        let size = size_name.map_or(Ok(None), known)?;
        // One process of one: a batch system says so of a job in which another launcher starts several.
        let Some(size) = size.filter(|&size| size > 1).or(count).or(size) else { continue };
        told.push((part_of(index, size, count, index_name)?, index_name.to_owned()));
    }
    if told.iter().any(|(part, _)| !part.is_whole()) {
        told.retain(|(part, _)| !part.is_whole());
    }
    let Some((part, source)) = told.first().cloned() else {
        return Err(refused("no variable says which part of how many this process does".into()));
    };
    match told.iter().find(|(other, _)| *other != part) {
        None => Ok((part, source)),
        Some((other, its)) => Err(refused(format!("{source} says part {part}, and {its} says {other}"))),
    }
}

/// The part that a task of a SLURM array does.
fn of_slurm_array(count: Option<u64>, known: impl Fn(&str) -> Result<Option<u64>>) -> Result<Option<Part>> {
    let [id, tasks, least, most, step] = SLURM.map(known);
    let (Some(id), Some(tasks)) = (id?, tasks?) else { return Ok(None) };
    let (least, step) = (least?.unwrap_or(0), step?.unwrap_or(1).max(1));
    let last = tasks.saturating_sub(1).saturating_mul(step).saturating_add(least);
    if most?.is_some_and(|most| most != last) {
        return Err(refused("the numbers of the array's tasks do not follow each other (sbatch --array)".into()));
    }
    part_of(id.saturating_sub(least) / step, tasks, count, SLURM[0]).map(Some)
}

fn part_of(index: u64, size: u64, count: Option<u64>, name: &str) -> Result<Part> {
    if let Some(count) = count.filter(|&count| count != size) {
        return Err(refused(format!("{name} is one of {size}, and --part says {count}")));
    }
    Part::new(index, size).ok_or_else(|| refused(format!("{name} says part {index} of {size}, counted from 0")))
}

fn number(name: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| refused(format!("the variable {name} is {value:?}, not a whole number from 0 on")))
}

fn refused(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
        .with_remedy("give --part I/N, or --part auto/N where a variable says I alone")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(asked: &str, variables: &[(&str, &str)]) -> std::result::Result<String, String> {
        let AskedPart::Auto(count) = asked.parse().unwrap() else { panic!("{asked} is auto") };
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let found = find(count, variable).map_err(|error| error.to_string());
        found.map(|(part, source)| format!("{part} {source}"))
    }

    fn slurm<'a>(
        id: &'a str,
        count: &'a str,
        min: &'a str,
        max: &'a str,
        step: &'a str,
    ) -> Vec<(&'static str, &'a str)> {
        SLURM.into_iter().zip([id, count, min, max, step]).collect()
    }

    #[test]
    fn what_is_asked_is_read() {
        assert_eq!("3/8".parse(), Ok(AskedPart::Part(Part::new(3, 8).unwrap())));
        assert_eq!("auto".parse(), Ok(AskedPart::Auto(None)));
        assert_eq!("auto/16".parse(), Ok(AskedPart::Auto(Some(16))));
        for text in ["", "auto/", "auto/0", "auto/x", "auto16", "automatic", "8/8", "AUTO"] {
            assert!(text.parse::<AskedPart>().unwrap_err().contains("0/8"), "{text}");
        }
    }

    #[test]
    fn each_batch_system_says_its_part() {
        assert_eq!(of("auto", &slurm("7", "4", "1", "10", "3")).unwrap(), "2/4 SLURM_ARRAY_TASK_ID");
        assert_eq!(of("auto", &slurm("0", "16", "0", "15", "1")).unwrap(), "0/16 SLURM_ARRAY_TASK_ID");
        let sized = VARIABLES.into_iter().filter_map(|(index, size)| Some((index, size?)));
        for (index, size) in ARRAYS.into_iter().chain(sized) {
            assert_eq!(of("auto", &[(index, "2"), (size, "6")]).unwrap(), format!("2/6 {index}"));
            assert_eq!(of("auto/6", &[(index, "2")]).unwrap(), format!("2/6 {index}"));
        }
        assert_eq!(of("auto/16", &[("JOB_COMPLETION_INDEX", "3")]).unwrap(), "3/16 JOB_COMPLETION_INDEX");
    }

    #[test]
    fn a_job_of_one_task_does_not_hide_the_array_that_it_is_of() {
        let one = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")];
        assert_eq!(
            of("auto", &[&slurm("3", "4", "0", "3", "1"), &one[..]].concat()).unwrap(),
            "3/4 SLURM_ARRAY_TASK_ID"
        );
        assert_eq!(of("auto", &one).unwrap(), "0/1 SLURM_PROCID");
        let same = [("RANK", "2"), ("WORLD_SIZE", "8"), ("JOB_COMPLETION_INDEX", "2")];
        assert_eq!(of("auto", &same).unwrap(), "2/8 RANK");
    }

    #[test]
    fn what_is_not_sure_is_refused() {
        for (asked, variables, told) in [
            ("auto", vec![], "no variable says"),
            ("auto", vec![("JOB_COMPLETION_INDEX", "3")], "no variable says"),
            ("auto", vec![("RANK", ""), ("WORLD_SIZE", "")], "no variable says"),
            ("auto/4", vec![("RANK", "4")], "RANK says part 4 of 4"),
            ("auto/4", vec![("RANK", "1"), ("WORLD_SIZE", "8")], "RANK is one of 8, and --part says 4"),
            ("auto", vec![("RANK", "x"), ("WORLD_SIZE", "8")], "RANK is \"x\""),
            ("auto", slurm("5", "3", "1", "9", "1"), "do not follow each other"),
            (
                "auto",
                [slurm("1", "4", "0", "3", "1"), vec![("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")]].concat(),
                "SLURM_ARRAY_TASK_ID says part 1/4, and SLURM_PROCID says 1/2",
            ),
        ] {
            let error = of(asked, &variables).unwrap_err();
            assert!(error.contains(told) && error.contains("--part I/N"), "{told:?} is not in {error}");
        }
    }
}
