//! The attempts at one request. Nearly always there is one. Where nothing comes for longer than answers take, the same
//! thread asks for what is missing over a new connection, and waits for both: whichever brings the next byte goes on,
//! and the others are closed. There is one place for the bytes, and one thread that writes to it.

use crate::attempt::{Attempt, Broken, Ways};
use crate::exchange::{Asked, BUSY, ContentRange, Ends, Head, Taken};
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};
use uringload_core::store::{Class, Failure};

/// Attempts at one next byte, the first included. Second ones stall too.
const ATTEMPTS_MAX: usize = 4;
/// Attempts in all: what brings some bytes and stops again is no end, but it has one.
const ALL_MAX: usize = 8;
/// A new connection takes more rounds than an answer.
const CONNECTING: u32 = 4;
/// How long a body is looked at before it is said to drip.
const DRIP_WINDOW: Duration = Duration::from_millis(500);

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Its head, for the range without as many of its first bytes as are here already.
    pub head: &'a dyn Fn(u64) -> String,
    /// The range, of which another attempt may ask for what is missing. Nothing else is asked for twice.
    pub asked: Option<Asked>,
    /// What is written. Nothing that has a body is asked for twice.
    pub body: &'a [u8],
}

/// The attempts at one request.
pub struct Race<'a> {
    request: Request<'a>,
    ways: Ways<'a>,
    /// The one that leads is the first.
    attempts: Vec<Attempt<'a>>,
    /// How many there were since the last one that won, it included, and in all.
    made: usize,
    all: usize,
    /// When the next one may be made, if it is not the second.
    next: Instant,
    /// What the answer brings, when its head is here.
    taken: Option<Taken>,
    /// Bytes of the body that are here.
    received: u64,
    /// The part of the body by which it is seen whether it drips: since when, and its bytes.
    window: (Instant, u64),
    /// When the body began, if there was one attempt until then.
    began: Option<Instant>,
}

impl<'a> Race<'a> {
    /// `first` is an attempt at all of `request`.
    pub fn new(request: Request<'a>, ways: Ways<'a>, first: Attempt<'a>) -> Race<'a> {
        let (next, attempts) = (first.since, vec![first]);
        let window = (next, 0);
        Race { request, ways, attempts, made: 1, all: 1, next, taken: None, received: 0, window, began: None }
    }

    /// The attempt whose body comes.
    pub fn lead(&mut self) -> &mut Attempt<'a> {
        &mut self.attempts[0]
    }

    /// Ends it: the attempt that brought the body, if it is known to be at its end. The others are closed.
    pub fn into_lead(mut self) -> Option<Attempt<'a>> {
        let lead = (self.attempts.len() == 1).then(|| self.attempts.pop());
        lead.flatten().filter(Attempt::is_answered)
    }

    /// Waits for the head of an answer: the first attempt's, whatever it says, or that of another if it is good.
    pub fn head(&mut self) -> Result<Head, Broken> {
        let lead = &mut self.attempts[0];
        let sent = lead.since;
        if lead.is_sent() && lead.advance(true)? {
            return self.answered(0, sent);
        }
        loop {
            let ready = self.wait()?;
            for at in (0..self.attempts.len()).rev().filter(|&at| ready[at]) {
                let (is_last, attempt) = (self.attempts.len() == 1, &mut self.attempts[at]);
                let sent = attempt.since;
                match attempt.advance(false) {
                    Ok(false) => {}
                    Ok(true) if !attempt.is_hedge || is_last || self.is_good(at) => return self.answered(at, sent),
                    Err(broken) if is_last => return Err(broken),
                    _ => self.close(at),
                }
            }
        }
    }

    /// The attempt at this place has the head of the answer, and leads from now on.
    fn answered(&mut self, at: usize, sent: Instant) -> Result<Head, Broken> {
        self.attempts.swap(0, at);
        let now = self.attempts[0].since;
        self.window = (now, 0);
        let head = self.attempts[0].head.take().ok_or(Broken::Ended { has_begun: false, error: None })?;
        if let Some(asked) = self.request.asked.as_ref().filter(|_| is_part(&head)) {
            if self.all == 1 {
                self.ways.endpoint.learn_first_byte(now.saturating_duration_since(sent));
                self.began = Some(now);
            }
            self.taken = head.judge(asked).ok();
            // A new connection does not know yet what was measured since it was dialled.
            let patience = self.attempts[0].connection.be_patient(self.ways.patience());
            patience.map_err(|error| Broken::Ended { has_begun: true, error: Some(error) })?;
        }
        Ok(head)
    }

    /// Receives a part of the body into `into`; 0 where the peer has ended. If another attempt leads now, its head too.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<(usize, Option<Head>)> {
        let (is_alone, lead) = (self.attempts.len() == 1, &mut self.attempts[0]);
        if is_alone && lead.is_answered() {
            match lead.receive(into, true) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received.map(|bytes| (self.went_on(bytes), None)),
            }
        }
        let mut ready = [0, 1, 2, 3].map(|at| self.attempts.get(at).is_some_and(Attempt::is_answered));
        loop {
            for at in (0..self.attempts.len()).rev().filter(|&at| ready[at]) {
                match self.receive_from(at, into) {
                    Ok(0) => {}
                    Ok(bytes) => {
                        self.win(at)?;
                        let head = self.attempts[0].head.take();
                        return Ok((self.went_on(bytes), head));
                    }
                    Err(error) if self.attempts.len() == 1 => return Err(error),
                    Err(_) => self.close(at),
                }
            }
            ready = self.wait().map_err(told)?;
        }
    }

    /// What an attempt has of the body, if anything: no wait.
    fn receive_from(&mut self, at: usize, into: &mut [u8]) -> io::Result<usize> {
        let attempt = &mut self.attempts[at];
        if attempt.is_resting {
            return Ok(0);
        }
        if !attempt.is_answered() {
            if !attempt.advance(false).map_err(told)? {
                return Ok(0);
            }
            if !self.is_good(at) {
                return Err(io::Error::other("another attempt is answered by something else"));
            }
        }
        match self.attempts[at].receive(into, false) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            received => received,
        }
    }

    /// Counts bytes of the body, and looks whether they drip.
    fn went_on(&mut self, bytes: usize) -> usize {
        self.ways.endpoint.note_bytes(bytes);
        self.received += bytes as u64;
        self.window.1 += bytes as u64;
        let now = self.attempts[0].since;
        let Some(taken) = &self.taken else { return bytes };
        if self.received >= taken.bytes {
            if let Some(began) = self.began {
                self.ways.endpoint.learn_speed(self.received, now.saturating_duration_since(began));
            }
            return bytes;
        }
        let time = now.saturating_duration_since(self.window.0);
        if time >= DRIP_WINDOW {
            if self.ways.endpoint.drips(self.window.1, time) && self.may_hedge() && self.hedge(now) {
                self.attempts[0].is_resting = true;
            }
            self.window = (now, 0);
        }
        bytes
    }

    /// The attempt at this place brought the next byte: the others are closed.
    fn win(&mut self, at: usize) -> io::Result<()> {
        self.attempts.swap(0, at);
        self.attempts.truncate(1);
        let lead = &mut self.attempts[0];
        (self.made, self.next) = (1, lead.since);
        if std::mem::take(&mut lead.is_hedge) {
            self.ways.endpoint.note_won();
        }
        // From now on it is waited for alone.
        lead.connection.be_patient(self.ways.patience())?;
        self.ways.interrupt.watch(Some(lead.connection.socket())).map_err(io::Error::other)
    }

    /// Gives an attempt up, while there are others. One that rests goes on if it is the last.
    fn close(&mut self, at: usize) {
        self.attempts.remove(at);
        if let [last] = &mut self.attempts[..] {
            last.is_resting = false;
        }
    }

    /// What is missing of what was asked for, of the version that is here already.
    fn missing(&self) -> Option<Asked> {
        let asked = self.request.asked.as_ref()?;
        let expected = self.taken.as_ref().and_then(|taken| taken.version).or(asked.expected);
        Some(Asked { offset: asked.offset + self.received, bytes: asked.bytes - self.received, expected })
    }

    /// Whether the answer of this attempt is the missing part of what another one has begun: nothing may be doubted.
    fn is_good(&mut self, at: usize) -> bool {
        let Some(head) = &self.attempts[at].head else { return false };
        if BUSY.contains(&head.status) {
            // It gets no more requests for this read.
            self.all = ALL_MAX;
            self.ways.endpoint.note_throttled();
        }
        let Some(missing) = self.missing().filter(|_| is_part(head)) else { return false };
        let Ok(found) = head.judge(&missing) else { return false };
        self.taken.is_none_or(|taken| {
            found.version == taken.version && found.total == taken.total && found.bytes == taken.bytes - self.received
        })
    }

    /// Whether there may be another attempt. Where bytes are here already, it has to be known of which version.
    fn may_hedge(&self) -> bool {
        let is_known = match (&self.taken, self.attempts[0].is_answered()) {
            (Some(taken), _) => taken.version.is_some() && taken.bytes > self.received,
            (None, is_answered) => !is_answered,
        };
        self.request.asked.is_some() && self.made < ATTEMPTS_MAX && self.all < ALL_MAX && is_known
    }

    /// When there may be another attempt: the silence before each is twice as long as before the one before.
    fn due(&self) -> Option<Instant> {
        if !self.may_hedge() {
            return None;
        }
        if self.made > 1 {
            return Some(self.next);
        }
        let (patience, lead) = (self.ways.endpoint.patience(), &self.attempts[0]);
        Some(lead.since + if lead.is_sent() { patience } else { patience * CONNECTING }).max(Some(self.next))
    }

    /// Makes another attempt, if the budget has one and an address is known. None of it waits.
    fn hedge(&mut self, now: Instant) -> bool {
        let patience = self.ways.endpoint.patience();
        // If none can be made now, it is tried again.
        self.next = now + patience;
        let (host, port) = self.ways.door();
        let addresses = self.ways.addresses.known(host, port, self.attempts[0].address());
        if addresses.is_empty() || !self.ways.endpoint.may_hedge() {
            return false;
        }
        let request = (self.request.head)(self.received);
        let Ok(mut attempt) = Attempt::dial(addresses, request, self.ways) else { return false };
        attempt.is_hedge = true;
        self.attempts.push(attempt);
        self.began = None;
        self.next = now + patience * (1 << self.made);
        (self.made, self.all) = (self.made + 1, self.all + 1);
        true
    }

    /// Waits until an attempt can go on: which of them. Makes another where all were silent for too long.
    fn wait(&mut self) -> Result<[bool; ATTEMPTS_MAX], Broken> {
        loop {
            self.ways.interrupt.check()?;
            let now = Instant::now();
            self.expire(now)?;
            let mut due = self.due();
            if due.is_some_and(|due| due <= now) {
                self.hedge(now);
                due = self.due();
            }
            let awake = || self.attempts.iter().enumerate().filter(|(_, attempt)| !attempt.is_resting);
            let until = awake().map(|(_, attempt)| attempt.until).chain(due).min().unwrap_or(now);
            let left = until.saturating_duration_since(now);
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut polled: Vec<PollFd> =
                awake().map(|(_, attempt)| PollFd::new(&**attempt.connection.socket(), attempt.events())).collect();
            match poll(&mut polled, Some(&left)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Err(error) => return Err(Failure::io("the connections cannot be waited for", error.into()).into()),
                Ok(_) => {}
            }
            self.ways.interrupt.check()?;
            let mut ready = [false; ATTEMPTS_MAX];
            for ((at, _), polled) in awake().zip(&polled) {
                ready[at] = !polled.revents().is_empty();
            }
            return Ok(ready);
        }
    }

    /// Ends attempts in which nothing moved until now.
    fn expire(&mut self, now: Instant) -> Result<(), Broken> {
        for at in (0..self.attempts.len()).rev() {
            if self.attempts[at].is_resting || self.attempts[at].until > now {
                continue;
            }
            match self.attempts[at].expire() {
                Err(broken) if self.attempts.len() == 1 => return Err(broken),
                Err(_) => self.close(at),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// Whether the answer is the part that was asked for, and says which.
fn is_part(head: &Head) -> bool {
    let is_range = matches!(head.range, Some(ContentRange::Part { .. }));
    matches!(head.status, 200 | 206) && is_range && matches!(head.ends, Ends::After(_))
}

fn told(broken: Broken) -> io::Error {
    match broken {
        Broken::Bad(failure) => io::Error::other(failure),
        Broken::Ended { error: Some(error), .. } => error,
        Broken::Ended { error: None, .. } => {
            io::Error::other(Failure::new(Class::Storage, "the connection ended instead of an answer"))
        }
    }
}
