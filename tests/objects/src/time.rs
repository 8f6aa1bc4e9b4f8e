//! Times as HTTP and S3 write them, in seconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The clock of the machine.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs())
}

/// `Fri, 24 May 2013 00:00:00 GMT`.
pub fn http(seconds: u64) -> String {
    let (year, month, day) = date(seconds);
    let weekday = WEEKDAYS[(seconds / DAY_SECONDS % 7) as usize];
    let (hour, minute, second) = clock(seconds);
    format!("{weekday}, {day:02} {} {year} {hour:02}:{minute:02}:{second:02} GMT", MONTHS[month as usize - 1])
}

/// `2013-05-24T00:00:00.000Z`.
pub fn iso(seconds: u64) -> String {
    let ((year, month, day), (hour, minute, second)) = (date(seconds), clock(seconds));
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

/// The time that `20130524T000000Z` stands for.
pub fn parse(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    if text.len() != 16 || text.as_bytes()[8] != b'T' || !text.ends_with('Z') {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    // Days since 0000-03-01, with March as the first month: http://howardhinnant.github.io/date_algorithms.html
    let years = if month > 2 { year } else { year.checked_sub(1)? };
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (153 * ((month + 9) % 12) + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    Some(days * DAY_SECONDS + number(9, 11)? * 3600 + number(11, 13)? * 60 + number(13, 15)?)
}

fn clock(seconds: u64) -> (u64, u64, u64) {
    (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// Year, month and day, by the same source as [`parse`].
fn date(seconds: u64) -> (u64, u64, u64) {
    let days = seconds / DAY_SECONDS + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + u64::from(month <= 2), month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        let day = parse("20130524T000000Z").unwrap();
        assert_eq!(day, 1_369_353_600);
        assert_eq!(http(day), "Fri, 24 May 2013 00:00:00 GMT");
        assert_eq!(iso(day + 3661), "2013-05-24T01:01:01.000Z");
        assert_eq!(parse("20240229T235959Z").map(http).unwrap(), "Thu, 29 Feb 2024 23:59:59 GMT");
        for wrong in ["", "20130524T000000", "2013-05-24T00:00Z", "20130524T0000x0Z"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
