//! Where a range of keys is halved, guessed from the names that were seen: which bytes they have, and where.

/// Places of a name whose bytes are counted. Names that differ only behind that are not told apart.
const PLACES: usize = 64;

/// What the names of a listing look like.
#[derive(Debug)]
pub struct Looks {
    /// Which bytes names have at each place, and anywhere.
    seen: Vec<[bool; 256]>,
    anywhere: [bool; 256],
    /// What all of them begin with.
    common: Option<Vec<u8>>,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks { seen: Vec::new(), anywhere: [false; 256], common: None }
    }
}

impl Looks {
    pub fn note(&mut self, name: &[u8]) {
        if self.seen.len() < name.len().min(PLACES) {
            self.seen.resize(name.len().min(PLACES), [false; 256]);
        }
        for (&byte, seen) in name.iter().zip(&mut self.seen) {
            seen[usize::from(byte)] = true;
            self.anywhere[usize::from(byte)] = true;
        }
        match &mut self.common {
            Some(common) => common.truncate(alike(common, name)),
            None => self.common = Some(name.to_vec()),
        }
    }

    /// A name behind `low` and before `high`, with about as many names on each side. Nothing if they are too close.
    pub fn middle(&self, low: &[u8], high: Option<&[u8]>) -> Option<Vec<u8>> {
        let found = match high {
            None => self.behind_all(low).or_else(|| self.between(low, None)),
            Some(_) => self.between(low, high),
        };
        let is_between = |found: &Vec<u8>| found.as_slice() > low && high.is_none_or(|high| found.as_slice() < high);
        // Servers take text alone.
        found.filter(|found| is_between(found) && str::from_utf8(found).is_ok())
    }

    /// The share of the names between `start` and `end` that are behind `last`, if names that were seen tell.
    pub fn rest(&self, start: &[u8], last: &[u8], end: Option<&[u8]>) -> Option<f64> {
        let common = match end {
            Some(end) => alike(start, end),
            None => self.common.as_ref().map_or(0, Vec::len).min(alike(start, last)),
        };
        let (first, now) = (self.number(start, common), self.number(last, common));
        let all = end.map_or(1.0, |end| self.number(end, common)) - first;
        let done = now - first;
        (done > 0.0 && all > done).then(|| (all - done) / done)
    }

    /// The name behind the first `common` bytes as a number from 0 to 1, whose digits are the bytes that were seen.
    fn number(&self, name: &[u8], common: usize) -> f64 {
        let (mut number, mut scale) = (0.0, 1.0);
        for (place, &byte) in name.iter().enumerate().skip(common).take(PLACES) {
            let Some(seen) = self.seen.get(place) else { break };
            let digits = seen.iter().filter(|&&seen| seen).count() as f64;
            let before = seen[..usize::from(byte)].iter().filter(|&&seen| seen).count() as f64;
            scale /= digits + 1.0;
            number += before * scale;
        }
        number
    }

    /// What is behind every name that was seen, but not far: what they have in common, counted up.
    fn behind_all(&self, low: &[u8]) -> Option<Vec<u8>> {
        let common = self.common.as_ref().filter(|common| low.starts_with(common))?;
        let place = common.len().checked_sub(1)?;
        let next = self.bytes(place, common[place]).next().or_else(|| common[place].checked_add(1))?;
        Some([&common[..place], &[next]].concat())
    }

    fn between(&self, low: &[u8], high: Option<&[u8]>) -> Option<Vec<u8>> {
        let first = high.map_or(0, |high| alike(low, high));
        for place in first..=low.len().min(PLACES) {
            let above = low.get(place).copied();
            let below = high.filter(|_| place == first).and_then(|high| high.get(place).copied());
            let bytes: Vec<u8> = match above {
                Some(above) => self.bytes(place, above).collect(),
                None => self.seen.get(place).map(|seen| set(seen).collect()).unwrap_or_default(),
            };
            let bytes: Vec<u8> = bytes.into_iter().filter(|&byte| below.is_none_or(|below| byte < below)).collect();
            if let Some(&byte) = bytes.get(bytes.len() / 2) {
                return Some([&low[..place], &[byte]].concat());
            }
        }
        let high = high?;
        (high.len() > first + 1).then(|| high[..=first].to_vec())
    }

    /// The bytes behind `byte` that names may have at this place: those that they have there, and those of its kind
    /// that they have anywhere; without either, all that they have.
    fn bytes(&self, place: usize, byte: u8) -> impl Iterator<Item = u8> + use<> {
        let here = self.seen.get(place).copied().unwrap_or([false; 256]);
        let is_likely =
            |&other: &u8| here[usize::from(other)] || self.anywhere[usize::from(other)] && kind(other) == kind(byte);
        let behind = |bytes: &[bool; 256]| set(bytes).filter(|&other| other > byte).collect::<Vec<u8>>();
        let all = behind(&self.anywhere);
        let likely: Vec<u8> = all.iter().copied().filter(is_likely).collect();
        if likely.is_empty() { all } else { likely }.into_iter()
    }
}

fn set(bytes: &[bool; 256]) -> impl Iterator<Item = u8> {
    (0..=u8::MAX).zip(bytes).filter(|(_, seen)| **seen).map(|(byte, _)| byte)
}

fn kind(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        128.. => 3,
        _ => 4,
    }
}

fn alike(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    fn looks(names: &[&str]) -> Looks {
        let mut looks = Looks::default();
        names.iter().for_each(|name| looks.note(name.as_bytes()));
        looks
    }

    #[test]
    fn what_is_behind_all_names_is_counted_up() {
        let mut looks = looks(&["0000/000000.bin", "0000/003999.bin", "0000/001234.bin", "0000/005678.bin"]);
        assert_eq!(looks.middle(b"0000/003999.bin", None).unwrap(), b"0000/01");
        looks.note(b"0000/010000.bin");
        assert_eq!(looks.middle(b"0000/010000.bin", None).unwrap(), b"0000/1");
        let between = looks.middle(b"0000/010000.bin", Some(b"0000/1")).unwrap();
        assert_eq!(between, b"0000/06");
    }

    #[test]
    fn the_rest_is_guessed_by_what_was_seen() {
        let names: Vec<String> = (0..1000).map(|number| format!("a/{number:03}")).collect();
        let looks = looks(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let rest = looks.rest(b"a/000", b"a/249", Some(b"a/999")).unwrap();
        assert!((2.5..3.5).contains(&rest), "{rest}");
        assert_eq!(looks.rest(b"a/000", b"a/000", None), None);
    }

    #[test]
    fn a_middle_is_between() {
        let mut draws = Draws::new(41);
        for _ in 0..2000 {
            let mut looks = Looks::default();
            let mut names: Vec<Vec<u8>> = (0..20).map(|_| draws.bytes(0..=6)).collect();
            names.extend((0..20).map(|_| draws.text(1..=8).into_bytes()));
            names.sort();
            names.iter().step_by(3).for_each(|name| looks.note(name));
            let (low, high) = (&names[draws.below(0..=19)], &names[draws.below(20..=39)]);
            let high = draws.flips().then_some(&high[..]);
            if let Some(middle) = looks.middle(low, high) {
                assert!(&middle > low && high.is_none_or(|high| &middle[..] < high), "{low:?} {middle:?} {high:?}");
            }
            let _ = looks.rest(low, high.unwrap_or(low), high);
        }
    }
}
