//! Asks a store again, where nothing above does.

use super::{Class, Failure};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The first pause between two attempts, and the longest one that the server does not ask for: each is twice as long as
/// the one before.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest pause that a server is granted.
const ASKED_MAX: Duration = Duration::from_secs(30);
/// How soon a pause sees that it is over.
const STEP: Duration = Duration::from_millis(50);

/// Calls `ask` until there is an answer, or a failure that lasts. `limit` says for how long after the first attempt a
/// failure of this class is followed by another one, if at all. `watch` is called before each attempt, and several
/// times a second between them.
///
/// # Errors
/// The last failure, or that of `watch`.
pub fn again<T>(
    limit: impl Fn(Class) -> Option<Duration>,
    watch: impl Fn() -> Result<(), Failure>,
    mut ask: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (begun, mut pause) = (Instant::now(), PAUSE);
    loop {
        watch()?;
        let failure = match ask() {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let Some(limit) = limit(failure.class()) else { return Err(failure) };
        let until = Instant::now() + failure.after().unwrap_or_default().min(ASKED_MAX).max(pause);
        if until.duration_since(begun) > limit {
            return Err(failure);
        }
        while Instant::now() < until {
            watch()?;
            sleep(STEP.min(until.saturating_duration_since(Instant::now())));
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(class: Class) -> Failure {
        Failure::new(class, "made up")
    }

    /// Throttled attempts go on for a second, and no other ones.
    fn limit(class: Class) -> Option<Duration> {
        (class == Class::Throttled).then_some(Duration::from_secs(1))
    }

    #[test]
    fn what_passes_is_asked_again_and_what_lasts_is_not() {
        for (failures, class, asked) in [(2, Class::Throttled, 3), (1, Class::Missing, 1)] {
            let mut attempts = 0;
            let answer = again(
                limit,
                || Ok(()),
                || {
                    attempts += 1;
                    if attempts <= failures { Err(failure(class)) } else { Ok(attempts) }
                },
            );
            assert_eq!(attempts, asked);
            assert_eq!(answer.map_err(|failure| failure.class()), if asked == 3 { Ok(3) } else { Err(class) });
        }
    }

    #[test]
    fn it_ends_in_time() {
        let begun = Instant::now();
        let throttled = |after| move || Err::<(), _>(failure(Class::Throttled).with_after(after));
        let asked = again(limit, || Ok(()), throttled(Some(Duration::from_secs(30))));
        assert_eq!(asked.expect_err("too long").class(), Class::Throttled);
        assert!(begun.elapsed() < Duration::from_secs(10), "a pause beyond the limit is not made");
        again(limit, || Ok(()), throttled(None)).expect_err("it lasts");
        let watch = || Err(failure(Class::Interrupted));
        assert_eq!(again(limit, watch, throttled(None)).expect_err("stopped").class(), Class::Interrupted);
    }
}
