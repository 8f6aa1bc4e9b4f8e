//! Asks storage that may never answer. Questions run on threads that are never joined: a call into a dead mount cannot
//! be ended, so neither the reactor nor the thread that drops a loader may wait for it.

use crate::config::Config;
use crate::dataset::inspect::NO_ANSWER;
use crate::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Default and maximum wait. Answers take milliseconds, unless the storage is in trouble.
const MOST: Duration = Duration::from_secs(5);

/// The part of the user's timeout for reads: questions before the reads must not take longer than the reads may. At
/// least the time that a busy machine needs to start a thread.
const PART_OF_TIMEOUT: u32 = 8;
const LEAST: Duration = Duration::from_millis(100);

/// Default wait for answers that the loader cannot do without: a mount may be in progress, or a disk spinning up.
const WHOLE: Duration = Duration::from_secs(60);

/// How often new threads take over from those that are stuck.
const ROUNDS: usize = 2;

/// While this many questions are unanswered, no thread is started for more.
const UNANSWERED_MAX: usize = 8;

/// How long to wait for answers. Clones share the count of unanswered questions.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    bound: Duration,
    /// For answers that the loader cannot do without.
    whole: Duration,
    unanswered: Arc<AtomicUsize>,
}

impl Patience {
    /// For a loader with these settings.
    pub(crate) fn of(config: &Config) -> Patience {
        Patience::of_timeout(config.timeout)
    }

    /// For a loader with this timeout of reads.
    pub(crate) fn of_timeout(timeout: Option<Duration>) -> Patience {
        let bound = timeout.map_or(MOST, |timeout| (timeout / PART_OF_TIMEOUT).clamp(LEAST, MOST));
        Patience { whole: timeout.unwrap_or(WHOLE), ..Patience::new(bound) }
    }

    /// Waits this long for an answer.
    pub(crate) fn new(bound: Duration) -> Patience {
        Patience { bound, whole: bound, unanswered: Arc::default() }
    }

    /// How long to wait.
    pub(crate) fn bound(&self) -> Duration {
        self.bound
    }

    /// How long a call on the folder of a cache may take: a quarter of the timeout, and 10 s at most. A disk with much
    /// to write holds one up for seconds.
    pub(crate) fn of_cache(&self) -> Duration {
        2 * self.bound
    }

    /// The same, but no shorter than `bound`.
    pub(crate) fn at_least(&self, bound: Duration) -> Patience {
        Patience { bound: self.bound.max(bound), ..self.clone() }
    }

    /// The same for answers that the loader cannot do without: the whole timeout.
    pub(crate) fn whole(&self) -> Patience {
        self.at_least(self.whole)
    }

    /// Whether an earlier question has no answer yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    /// Whether so many questions are unanswered that no more are asked.
    pub(crate) fn is_over(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) >= UNANSWERED_MAX
    }

    /// The error for a path that did not answer in time.
    pub(crate) fn over(&self, path: &Path) -> Error {
        Error::new(ErrorKind::Timeout, format!("it did not answer within {:?}", self.bound))
            .with_path(path)
            .with_remedy(NO_ANSWER)
    }

    /// The answers to questions 0 to `count`, from up to `threads` threads; `None` for each that did not come in time.
    /// An unanswered question does not delay others. Waits for at most three times [`bound`](Patience::bound) after the
    /// last answer.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        count: usize,
        threads: usize,
        question: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Vec<Option<T>> {
        let mut answers: Vec<Option<T>> = (0..count).map(|_| None).collect();
        if self.is_over() {
            return answers;
        }
        let (question, next) = (Arc::new(question), Arc::new(AtomicUsize::new(0)));
        let (tell, told) = channel();
        let mut missing = count;
        for _ in 0..=ROUNDS {
            let starts = (0..threads.min(missing)).take_while(|_| !self.is_over());
            let started = starts.filter(|_| self.start(&question, &next, count, &tell)).count();
            if started == 0 && next.load(Ordering::Relaxed) == 0 {
                // The system has no thread left. Most storage answers.
                return (0..count).map(|number| Some(question(number))).collect();
            }
            while missing > 0 {
                match told.recv_timeout(self.bound) {
                    Ok((number, answer)) => {
                        answers[number] = Some(answer);
                        missing -= 1;
                    }
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            if missing == 0 || next.load(Ordering::Relaxed) >= count {
                break;
            }
        }
        answers
    }

    /// The first answer that is not `None`, asking one after the other.
    pub(crate) fn first_of<T: Send + 'static>(
        &self,
        count: usize,
        question: impl Fn(usize) -> Option<T> + Send + Sync + 'static,
    ) -> Option<T> {
        let is_found = AtomicBool::new(false);
        let question = move |number| {
            let given = if is_found.load(Ordering::Relaxed) { None } else { question(number) };
            is_found.fetch_or(given.is_some(), Ordering::Relaxed);
            given
        };
        self.ask(count, 1, question).into_iter().flatten().flatten().next()
    }

    /// The answer to one question.
    pub(crate) fn ask_one<T: Send + 'static>(&self, question: impl Fn() -> T + Send + Sync + 'static) -> Option<T> {
        self.ask(1, 1, move |_| question()).pop().flatten()
    }

    /// Starts a thread for the questions that were not asked yet. Returns whether it started.
    fn start<T: Send + 'static>(
        &self,
        question: &Arc<impl Fn(usize) -> T + Send + Sync + 'static>,
        next: &Arc<AtomicUsize>,
        count: usize,
        tell: &Sender<(usize, T)>,
    ) -> bool {
        let (unanswered, tell) = (Arc::clone(&self.unanswered), tell.clone());
        let (question, next) = (Arc::clone(question), Arc::clone(next));
        let work = move || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let asked = Asked::new(&unanswered);
                let answer = question(number);
                drop(asked);
                if tell.send((number, answer)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("uringload-ask".into()).spawn(work).is_ok()
    }
}

/// An unanswered question. It stops counting when it is answered, or its thread has panicked.
struct Asked<'a>(&'a AtomicUsize);

impl Asked<'_> {
    fn new(unanswered: &AtomicUsize) -> Asked<'_> {
        unanswered.fetch_add(1, Ordering::Relaxed);
        Asked(unanswered)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};
    use std::time::Instant;

    #[test]
    fn all_answers_come_in_their_places() {
        let patience = Patience::new(Duration::from_secs(60));
        assert_eq!(
            patience.ask(100, 3, |number| number * 2),
            (0..100).map(|number| Some(number * 2)).collect::<Vec<_>>()
        );
        assert!(patience.ask(0, 3, |number| number).is_empty());
        assert_eq!(patience.ask_one(|| 7), Some(7));
    }

    #[test]
    fn what_is_not_answered_holds_up_nothing_else() {
        let patience = Patience::new(Duration::from_millis(250));
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let held = Arc::clone(&gate);
        let question = move |number: usize| {
            if number % 40 == 5 {
                let open = held.0.lock().unwrap();
                drop(held.1.wait_while(open, |open| !*open).unwrap());
            }
            number
        };
        for threads in [1, 2] {
            let answers = patience.ask(60, threads, question.clone());
            let missing: Vec<usize> = (0..60).filter(|&number| answers[number].is_none()).collect();
            assert_eq!(missing, [5, 45], "{threads} threads");
        }
        assert_eq!(patience.unanswered.load(Ordering::Relaxed), 4);
        let start = Instant::now();
        // Each pass leaves more behind, until there are too many.
        let asked = (0..20).take_while(|_| patience.ask(60, 1, question.clone())[0].is_some()).count();
        assert_eq!(asked, 2);
        assert_eq!(patience.ask_one(|| 1), None);
        assert!(start.elapsed() < Duration::from_secs(30));
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        while patience.unanswered.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(patience.ask_one(|| 1), Some(1), "the storage answers again");
    }
}
