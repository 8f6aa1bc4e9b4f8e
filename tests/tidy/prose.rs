//! Constructions that are German grammar in English words: in code, scripts and pages.

use super::source::{Source, is_word, word_at};

/// Each is a row of words, and a word may have several forms.
const CONSTRUCTIONS: [&str; 10] = [
    "be|been|being|is|are|was|were had",
    "nobody|somebody",
    "as far as",
    "so many|much bytes|samples|reads|of|as|more",
    "tell|tells|told of|nothing",
    "what become|becomes|became|come|comes|came of",
    "one behind the other",
    "of which there|some|none",
    "for want of",
    "lie|lies at",
];

/// Measurements, which stay as they were written; and this list with its test.
const AS_IT_IS: [&str; 2] = ["benches/results", "tests/tidy"];

/// Every place with one of the constructions, also across the lines of a comment.
pub fn plain_words(file: &Source) -> Vec<String> {
    if AS_IT_IS.iter().any(|path| file.path.to_string_lossy().starts_with(path)) {
        return Vec::new();
    }
    let places =
        |construction: &'static str| places(&file.text, construction).into_iter().map(move |at| (at, construction));
    let mut found: Vec<(usize, &str)> = CONSTRUCTIONS.into_iter().flat_map(places).collect();
    found.sort_unstable();
    found.iter().map(|(at, construction)| file.place(*at, &format!("not English: {construction}"))).collect()
}

/// Where a construction starts. With a capital, it begins a sentence: other capitals are names of the code.
fn places(text: &str, construction: &str) -> Vec<usize> {
    let parts: Vec<Vec<&str>> = construction.split(' ').map(|part| part.split('|').collect()).collect();
    let mut found = Vec::new();
    for form in &parts[0] {
        let capital = form[..1].to_ascii_uppercase() + &form[1..];
        let is_whole = |at: usize| !text[..at].bytes().last().is_some_and(is_word);
        let ends = |at: usize| goes_on(text, at + form.len(), &parts[1..]);
        found.extend(text.match_indices(form).map(|(at, _)| at).filter(|&at| is_whole(at) && ends(at)));
        let begins_a_sentence = |at: usize| {
            let mut next = text[at + form.len()..].bytes();
            next.next() == Some(b' ') && next.next().is_some_and(|byte| byte.is_ascii_lowercase())
        };
        let starts = text.match_indices(&*capital).map(|(at, _)| at);
        found.extend(starts.filter(|&at| is_whole(at) && begins_a_sentence(at) && ends(at)));
    }
    found
}

/// Whether a word ends at `at`, and `parts` follow, with nothing between them but blanks and the marks of comments.
fn goes_on(text: &str, mut at: usize, parts: &[Vec<&str>]) -> bool {
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || b"/!#*".contains(byte);
    parts.iter().all(|forms| {
        let start = at + text.as_bytes()[at..].iter().take_while(|byte| is_between(byte)).count();
        let word = word_at(text, start);
        let follows = start > at && forms.contains(&word);
        at = start + word.len();
        follows
    }) && !text.as_bytes().get(at).is_some_and(|&byte| is_word(byte))
}
