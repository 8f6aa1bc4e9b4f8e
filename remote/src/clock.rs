//! Times as the stores write them: seconds since 1970, without a calendar of a library.

use std::time::{SystemTime, UNIX_EPOCH};

pub const DAY_SECONDS: i64 = 86_400;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Seconds since 1970 by the clock of this machine.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// `20261129T001844Z`: what SigV4 signs. Its first eight letters are the day.
pub fn compact(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(DAY_SECONDS));
    let rest = seconds.rem_euclid(DAY_SECONDS);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// `Sun, 29 Nov 2026 00:18:44 GMT`: a date of HTTP.
pub fn http(seconds: i64) -> String {
    let days = seconds.div_euclid(DAY_SECONDS);
    let (year, month, day) = civil(days);
    let rest = seconds.rem_euclid(DAY_SECONDS);
    let (weekday, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[month as usize - 1]);
    format!("{weekday}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A date of HTTP in its one form of today.
pub fn parse_http(text: &str) -> Option<i64> {
    let text = text.split_once(", ")?.1.strip_suffix(" GMT")?;
    let mut words = text.split(' ');
    let day: i64 = number(words.next()?)?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|&other| other == month)? as i64 + 1;
    let year = number(words.next()?)?;
    let time = words.next()?;
    if words.next().is_some() {
        return None;
    }
    seconds(year, month, day, time)
}

/// `2026-11-29T00:18:44.123Z`, as listings write it; parts of a second are dropped, as dates of HTTP have none.
pub fn parse_iso(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut parts = date.split('-');
    let (year, month, day) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    seconds(year, month, day, time.split('.').next()?)
}

fn seconds(year: i64, month: i64, day: i64, time: &str) -> Option<i64> {
    let mut parts = time.split(':');
    let (hour, minute, second) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    let is_time = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    if !is_time || !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1..=9999).contains(&year) {
        return None;
    }
    Some(days(year, month, day) * DAY_SECONDS + hour * 3600 + minute * 60 + second)
}

/// Up to four digits and nothing else.
fn number(text: &str) -> Option<i64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// Days since 1970 of a date, by Howard Hinnant's `days_from_civil`: years begin in March, so leap days are last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of days since 1970: the inverse of [`days`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    #[test]
    fn known_times() {
        assert_eq!(http(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(compact(1_369_353_600), "20130524T000000Z");
        assert_eq!(parse_http("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse_iso("1994-11-06T08:49:37.123Z"), Some(784_111_777));
        for text in ["", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Now 1994 08:49:37 GMT", "Sun, -6 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!((parse_http(text), parse_iso(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut draws = Draws::new(3);
        for _ in 0..2000 {
            let at = (draws.next() % 250_000_000_000) as i64;
            assert_eq!(parse_http(&http(at)), Some(at));
            let text = compact(at);
            let (d, t) = (&text[..8], &text[9..15]);
            let iso = format!("{}-{}-{}T{}:{}:{}Z", &d[..4], &d[4..6], &d[6..], &t[..2], &t[2..4], &t[4..]);
            assert_eq!(parse_iso(&iso), Some(at));
        }
    }
}
