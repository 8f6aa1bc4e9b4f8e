//! Which rank this process is: from the arguments, or from the variables that a launcher sets.

use crate::arguments::Order;
use crate::failure::Failure;
use crate::launchers::VARIABLES;
use crate::output::eprintln_quietly;
use std::env;
use std::ffi::OsString;
use uringload::config::Config;
use uringload::{Error, ErrorKind};

/// The name of a missing variable.
const NO_SIZE: &str = "a variable with the number of ranks";

/// A rank, and where it was taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// The rank.
    pub rank: u64,
    /// The number of ranks.
    pub world_size: u64,
    /// The variables it was taken from, in words, unless the arguments said everything.
    pub source: Option<String>,
}

impl Ranks {
    /// Takes the ranks from the arguments, and what they leave open from the environment. If that matters, reports it
    /// on stderr.
    pub fn of(order: &Order) -> Result<Ranks, Failure> {
        let ranks = find(order, |name| env::var_os(name))?;
        if let Some(source) = &ranks.source {
            eprintln_quietly(&format!("uringload: rank {} of {} (from {source})", ranks.rank, ranks.world_size));
        }
        Ok(ranks)
    }

    /// A configuration with these ranks.
    pub fn apply(&self, config: Config) -> Config {
        Config { rank: self.rank, world_size: self.world_size, ..config }
    }
}

fn find(order: &Order, variable: impl Fn(&str) -> Option<OsString>) -> Result<Ranks, Failure> {
    let asked = Ranks { rank: order.rank.unwrap_or(0), world_size: order.world_size.unwrap_or(1), source: None };
    if order.rank.is_some() && order.world_size.is_some() {
        return Ok(asked);
    }
    // `RANK= command` leaves a variable that is set but empty.
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let known = |name: &str| set(name).map(|value| number(name, &value)).transpose();
    let (mut alone, mut incomplete) = (None, None);
    for (rank_name, size_name) in VARIABLES {
        let (rank, size) = (known(rank_name)?, size_name.map_or(Ok(None), known)?);
        if rank.is_none() && size.is_none() {
            continue;
        }
        let size_name = size_name.unwrap_or(NO_SIZE);
        let (Some(own), Some(world_size)) = (order.rank.or(rank), order.world_size.or(size)) else {
            // An error only if nothing else decides: a batch system may set half of it.
            incomplete.get_or_insert(if rank.is_some() { (rank_name, size_name) } else { (size_name, rank_name) });
            continue;
        };
        let from = match (order.rank, order.world_size) {
            (Some(_), _) => format!("--rank and {size_name}"),
            (_, Some(_)) => format!("{rank_name} and --world-size"),
            (None, None) => format!("{rank_name} and {size_name}"),
        };
        if own >= world_size {
            let what = format!("rank {own} is not below the world size {world_size} (from {from})");
            return Err(refused(what));
        }
        let ranks = Ranks { rank: own, world_size, source: (world_size > 1).then_some(from) };
        // A batch system sets one rank for a job of one task, and a launcher may then start several.
        if world_size > 1 || rank_name == VARIABLES[0].0 {
            return Ok(ranks);
        }
        alone.get_or_insert(ranks);
    }
    match (alone, incomplete) {
        (Some(ranks), _) => Ok(ranks),
        (None, Some((there, absent))) => Err(half(there, absent)),
        (None, None) => Ok(asked),
    }
}

fn number(name: &str, value: &OsString) -> Result<u64, Failure> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| refused(format!("the variable {name} is {value:?}, not a whole number from 0 on")))
}

fn half(set: &str, unset: &str) -> Failure {
    refused(format!("the variable {set} is set and {unset} is not, so the rank is unknown"))
}

fn refused(what: String) -> Failure {
    let error = Error::new(ErrorKind::InvalidArgument, what);
    Failure::Loader(error.with_remedy("give --rank and --world-size, or set both variables or none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn of(arguments: &str, variables: &[(&str, &str)]) -> Result<(u64, u64, Option<String>), String> {
        let all = format!("uringload list somewhere {arguments}");
        let Command::List(list) = Arguments::try_parse_from(all.split_whitespace()).unwrap().command else {
            panic!("list is list")
        };
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        match find(&list.source.order, variable) {
            Ok(Ranks { rank, world_size, source }) => Ok((rank, world_size, source)),
            Err(Failure::Loader(error)) => Err(error.to_string()),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn from(source: &str) -> Option<String> {
        Some(source.to_owned())
    }

    const TORCH: [(&str, &str); 2] = [("RANK", "3"), ("WORLD_SIZE", "8")];
    const SLURM: [(&str, &str); 2] = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")];
    const MPI: [(&str, &str); 2] = [("OMPI_COMM_WORLD_RANK", "4"), ("OMPI_COMM_WORLD_SIZE", "5")];

    #[test]
    fn launchers_come_in_their_order() {
        assert_eq!(of("", &[]), Ok((0, 1, None)));
        assert_eq!(of("", &[MPI, SLURM, TORCH].concat()), Ok((3, 8, from("RANK and WORLD_SIZE"))));
        assert_eq!(of("", &[MPI, SLURM].concat()), Ok((1, 2, from("SLURM_PROCID and SLURM_NTASKS"))));
        assert_eq!(of("", &MPI), Ok((4, 5, from("OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"))));
        assert_eq!(of("", &[("RANK", ""), ("WORLD_SIZE", ""), SLURM[0], SLURM[1]]).unwrap().1, 2);
        assert_eq!(of("", &[("RANK", "0"), ("WORLD_SIZE", "1")]), Ok((0, 1, None)), "one process says nothing");
        for (rank_name, size_name) in VARIABLES {
            let Some(size_name) = size_name else { continue };
            let source = from(&format!("{rank_name} and {size_name}"));
            assert_eq!(of("", &[(rank_name, "2"), (size_name, "6")]), Ok((2, 6, source)));
        }
    }

    #[test]
    fn a_job_of_one_task_does_not_hide_a_launcher_within() {
        let one = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")];
        assert_eq!(of("", &[&one[..], &MPI].concat()).unwrap().1, 5);
        assert_eq!(of("", &one), Ok((0, 1, None)));
        assert_eq!(of("", &[&[("SLURM_NTASKS", "4")][..], &MPI].concat()).unwrap().1, 5, "half of a pair");
        assert_eq!(of("--world-size 4", &[("PMIX_RANK", "3")]), Ok((3, 4, from("PMIX_RANK and --world-size"))));
    }

    #[test]
    fn arguments_come_before_variables() {
        assert_eq!(of("--rank 1 --world-size 2", &TORCH), Ok((1, 2, None)));
        assert_eq!(of("--rank 1 --world-size 2", &[("RANK", "x")]), Ok((1, 2, None)), "not looked at");
        assert_eq!(of("--rank 1", &TORCH), Ok((1, 8, from("--rank and WORLD_SIZE"))));
        assert_eq!(of("--world-size 4", &TORCH), Ok((3, 4, from("RANK and --world-size"))));
    }

    #[test]
    fn what_cannot_be_names_the_variable() {
        for (arguments, variables, told) in [
            ("", vec![("RANK", "1")], "RANK is set and WORLD_SIZE is not"),
            ("", vec![("SLURM_NTASKS", "1")], "SLURM_NTASKS is set and SLURM_PROCID is not"),
            ("", vec![("PMIX_RANK", "1")], "PMIX_RANK is set and a variable with the number of ranks is not"),
            ("", vec![("JOB_COMPLETION_INDEX", "1")], "JOB_COMPLETION_INDEX is set and WORLD_SIZE is not"),
            ("", vec![("RANK", "one"), ("WORLD_SIZE", "2")], "RANK is \"one\""),
            ("", vec![("RANK", "1"), ("WORLD_SIZE", "-2")], "WORLD_SIZE is \"-2\""),
            (
                "",
                vec![("RANK", "2"), ("WORLD_SIZE", "2")],
                "rank 2 is not below the world size 2 (from RANK and WORLD_SIZE)",
            ),
            ("", vec![("RANK", "0"), ("WORLD_SIZE", "0")], "world size 0"),
            ("--world-size 3", TORCH.to_vec(), "rank 3 is not below the world size 3 (from RANK and --world-size)"),
        ] {
            let error = of(arguments, &variables).unwrap_err();
            assert!(error.contains(told) && error.contains("--world-size"), "{told:?} is not in {error}");
        }
    }
}
