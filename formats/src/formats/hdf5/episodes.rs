//! Groups of one form, such as an episode each ("data/demo_0/actions", "data/demo_1/actions"): their rows end to end.

use super::group::forms;
use super::meta::Meta;
use super::open::{Found, LeftOut, Opened, usual_rows};
use crate::dataset::FileId;
use std::collections::{BTreeMap, HashMap};
use uringload_core::{Error, ErrorKind, Result};

/// The rows of numbered groups of one form, group by group, if they differ in number or there are too many groups for
/// a column of each. `None` where no groups are of one form.
///
/// # Errors
/// `InvalidArgument` for groups of one form whose names are more than numbers, such as training and test: we do not
/// join them; and for groups that lack a dataset of the others.
pub(super) fn joined(
    meta: &Meta<'_>,
    file: FileId,
    found: &[Found],
    are_many: bool,
    left_out: &mut LeftOut,
) -> Result<Option<Vec<Opened>>> {
    let Some((one, other)) = pair(found, are_many) else { return Ok(None) };
    let parts: Vec<(&str, &str)> = one.1.split('/').zip(other.1.split('/')).collect();
    let at = parts.iter().position(|(one, other)| one != other).unwrap_or(0);
    let prefix: String = parts[..at].iter().map(|(part, _)| format!("{part}/")).collect();
    let Some(stem) = stem(parts[at].0).filter(|of_one| stem(parts[at].1).is_some_and(|of_other| of_other == *of_one))
    else {
        let what = format!(
            "groups of one form have different numbers of rows: {:?} {}, {:?} {}",
            one.1, one.0, other.1, other.0
        );
        return Err(refused(meta, what));
    };
    // By length and name, which is by number.
    let mut groups: BTreeMap<(usize, &str), Vec<(&str, &Found)>> = BTreeMap::new();
    for dataset in found {
        let inside = dataset.1.strip_prefix(&prefix).and_then(|path| path.split_once('/'));
        match inside.filter(|(group, _)| self::stem(group).is_some_and(|of_group| of_group == stem)) {
            Some((group, rest)) => groups.entry((group.len(), group)).or_default().push((rest, dataset)),
            None => left_out.others.push(dataset.1.clone()),
        }
    }
    let (mut opened, mut first): (Vec<Opened>, Option<(&str, Vec<&str>)>) = (Vec::new(), None);
    for ((_, group), datasets) in groups {
        let rows = usual_rows(datasets.iter().map(|(_, dataset)| dataset.0)).map_or(0, |(rows, _)| rows);
        let (used, others): (Vec<_>, Vec<_>) = datasets.into_iter().partition(|(_, dataset)| dataset.0 == rows);
        left_out.others.extend(others.into_iter().map(|(_, dataset)| dataset.1.clone()));
        let names: Vec<&str> = used.iter().map(|(rest, _)| *rest).collect();
        match &first {
            Some((_, of_first)) if *of_first == names => {}
            None => first = Some((group, names)),
            Some((first, of_first)) => {
                let what = format!(
                    "groups of one form have different datasets: {prefix}{first} has {}, and {prefix}{group} {}",
                    of_first.join(", "),
                    names.join(", ")
                );
                return Err(refused(meta, what));
            }
        }
        let mut of_group = Opened::new(file, format!("{prefix}{group}"));
        for (rest, (_, _, object)) in used {
            for (field, taken) in object.of.columns() {
                of_group.add(meta, format!("{prefix}*/{rest}{field}"), object, &taken)?;
            }
        }
        opened.push(of_group);
    }
    Ok(Some(opened))
}

fn refused(meta: &Meta<'_>, what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
        .with_path(meta.source.path())
        .with_remedy("open each group as a dataset, by the names of its datasets (tensors), and join these end to end")
}

/// Two datasets that differ in one group of their paths, and in their rows unless there are too many.
fn pair(found: &[Found], are_many: bool) -> Option<(&Found, &Found)> {
    let mut known: HashMap<String, &Found> = HashMap::new();
    for dataset in found {
        for form in forms(&dataset.1) {
            let one = *known.entry(form).or_insert(dataset);
            if one.1 != dataset.1 && (one.0 != dataset.0 || are_many) {
                return Some((one, dataset));
            }
        }
    }
    None
}

/// A name without its number, if it has one.
fn stem(name: &str) -> Option<String> {
    let stem: String = name.chars().filter(|letter| !letter.is_ascii_digit()).collect();
    (stem.len() < name.len()).then_some(stem)
}
