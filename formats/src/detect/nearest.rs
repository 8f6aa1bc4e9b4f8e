//! What somebody who misspelt a name probably meant.

/// Least likeness, from 0 to 1, of a name that is worth a suggestion: what clap takes too.
const LIKENESS_MIN: f64 = 0.7;

/// "did you mean ...?" where one name is alike, and then all names.
pub(crate) fn nearest(given: &str, names: &[&str]) -> String {
    let best =
        names.iter().map(|name| (strsim::jaro(given, name), *name)).filter(|(likeness, _)| *likeness >= LIKENESS_MIN);
    let best = best.max_by(|one, other| one.0.total_cmp(&other.0));
    let meant = best.map_or(String::new(), |(_, name)| format!("did you mean {name:?}? "));
    format!("{meant}There are {}", names.join(", "))
}
