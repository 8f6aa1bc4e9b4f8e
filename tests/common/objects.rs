//! A store in memory, whose objects have the content of their names, and which fails as servers do: by chance, one
//! object or all of them, for a time or for ever.

use super::content::{fill, key_of, name_of};
use super::random::Random;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uringload::dataset::FileTable;
use uringload::store::{Class, Failure, Interrupt, Known, ListOptions, Listed, Page, Read, Store, Version};

/// How often it fails. Each number is a chance in 100, of each attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The answer breaks off.
    pub short: u64,
    /// It asks for fewer requests, and to wait for this long.
    pub throttled: u64,
    pub after: Option<Duration>,
    /// The connection is reset.
    pub reset: u64,
    /// It leads to a server whose certificate is not trusted.
    pub untrusted: u64,
    /// The answer takes some milliseconds.
    pub slow: u64,
    /// No answer comes until the read is interrupted.
    pub stalled: u64,
    /// Every answer is this.
    pub always: Option<Class>,
}

pub struct Objects {
    bucket: &'static str,
    objects: Mutex<HashMap<Vec<u8>, Object>>,
    faults: Mutex<Faults>,
    random: Mutex<Random>,
    reads: AtomicU64,
    stalled: AtomicU64,
}

#[derive(Clone, Copy)]
struct Object {
    size: u64,
    version: Version,
    /// What each read of it answers.
    fault: Option<Class>,
    stalls: bool,
}

impl Objects {
    pub fn new(bucket: &'static str, seed: u64) -> Arc<Objects> {
        let (random, faults) = (Mutex::new(Random::new(seed)), Mutex::default());
        let (reads, stalled) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Objects { bucket, objects: Mutex::default(), faults, random, reads, stalled })
    }

    /// Puts objects there, below `prefix`, and at the end of the table.
    pub fn put(self: &Arc<Objects>, files: &mut FileTable, prefix: &str, sizes: &[(String, u64)]) {
        files.push_store(Arc::clone(self) as Arc<dyn Store>, prefix.as_bytes());
        for (name, size) in sizes {
            let version = Version::new(Known::Etag, key_of(name.as_bytes()));
            let object = Object { size: *size, version, fault: None, stalls: false };
            self.objects.lock().unwrap().insert(format!("{prefix}{name}").into_bytes(), object);
            assert!(files.push_object(name.as_bytes(), *size, Some(version)).is_some());
        }
    }

    pub fn set(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    /// From now on reads of one object fail so; with `Changed`, because its version is another.
    pub fn spoil(&self, key: &str, class: Class) {
        let mut objects = self.objects.lock().unwrap();
        let object = objects.get_mut(key.as_bytes()).expect("an object");
        match class {
            Class::Changed => object.version = Version::new(Known::Etag, 1),
            class => object.fault = Some(class),
        }
    }

    /// From now on no read of this object is answered before it is interrupted.
    pub fn stall(&self, key: &str) {
        self.objects.lock().unwrap().get_mut(key.as_bytes()).expect("an object").stalls = true;
    }

    /// From now on the object ends here, and has the version that it had.
    pub fn shorten(&self, key: &str, size: u64) {
        self.objects.lock().unwrap().get_mut(key.as_bytes()).expect("an object").size = size;
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Reads that wait for an answer that does not come.
    pub fn stalled(&self) -> u64 {
        self.stalled.load(Ordering::Relaxed)
    }

    fn chance(&self, of_100: u64) -> bool {
        of_100 > 0 && self.random.lock().unwrap().below(100) < of_100
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.bucket)
    }
}

impl Store for Objects {
    fn shown(&self, key: &[u8]) -> PathBuf {
        format!("mem://{}/{}", self.bucket, String::from_utf8_lossy(key)).into()
    }

    fn read(
        &self,
        key: &[u8],
        offset: u64,
        into: &mut [u8],
        expected: Option<Version>,
        interrupt: &Interrupt,
    ) -> Result<Read, Failure> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        interrupt.check()?;
        let faults = *self.faults.lock().unwrap();
        let failure = |class| Failure::new(class, format!("made up: {class:?}")).with_after(faults.after);
        let object = self.objects.lock().unwrap().get(key).copied();
        let object = object.ok_or_else(|| failure(Class::Missing))?;
        if let Some(class) = faults.always.or(object.fault) {
            return Err(failure(class));
        }
        if expected.is_some_and(|expected| expected != object.version) {
            return Err(failure(Class::Changed));
        }
        if object.stalls || self.chance(faults.stalled) {
            self.stalled.fetch_add(1, Ordering::Relaxed);
            while !interrupt.is_stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.stalled.fetch_sub(1, Ordering::Relaxed);
            interrupt.check()?;
        }
        if self.chance(faults.slow) {
            std::thread::sleep(Duration::from_millis(3));
        }
        if self.chance(faults.throttled) {
            return Err(failure(Class::Throttled));
        }
        if self.chance(faults.untrusted) {
            return Err(failure(Class::Untrusted));
        }
        if self.chance(faults.reset) {
            return Err(Failure::io("made up", io::ErrorKind::ConnectionReset.into()));
        }
        let left = object.size.saturating_sub(offset).min(into.len() as u64);
        let is_short = left > 1 && self.chance(faults.short);
        let bytes = if is_short { 1 + self.random.lock().unwrap().below(left) } else { left } as usize;
        fill(key_of(name_of(&self.shown(key))), offset, &mut into[..bytes]);
        Ok(Read { bytes, version: Some(object.version), total: Some(object.size) })
    }

    fn lists(&self) -> bool {
        false
    }

    fn list(
        &self,
        _: &[u8],
        _: &ListOptions,
        _: &Interrupt,
        _: &mut dyn FnMut(Page) -> ControlFlow<()>,
    ) -> Result<Listed, Failure> {
        Err(Failure::new(Class::Unavailable, "it has no listing"))
    }
}
