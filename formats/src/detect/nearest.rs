//! The name that a misspelt one probably meant.

/// Least likeness, from 0 to 1, of a name that is worth a suggestion: what clap takes too.
const LIKENESS_MIN: f64 = 0.7;

/// "did you mean ...?" where one name is alike, and then all names.
pub fn nearest(given: &str, names: &[&str]) -> String {
    let best =
        names.iter().map(|name| (strsim::jaro(given, name), *name)).filter(|(likeness, _)| *likeness >= LIKENESS_MIN);
    let best = best.max_by(|one, other| one.0.total_cmp(&other.0));
    let meant = best.map_or(String::new(), |(_, name)| format!("did you mean {name:?}? "));
    format!("{meant}There are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_has_a_nearest_one() {
        let names = ["fields", "columns", "record_bytes"];
        assert!(nearest("feilds", &names).starts_with("did you mean \"fields\"? There are fields, columns"));
        assert!(nearest("record_byte", &names).starts_with("did you mean \"record_bytes\"?"));
        assert_eq!(nearest("quux", &names), "There are fields, columns, record_bytes");
    }
}
