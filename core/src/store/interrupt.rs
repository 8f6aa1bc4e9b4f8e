//! Ends a read that waits, from another thread.

use super::{Class, Failure};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ends a read that waits for its server, from another thread. Its clones end the same read.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_stopped: AtomicBool,
    sockets: Mutex<Sockets>,
}

/// The sockets that the read waits on: nearly always one, for which nothing is allocated.
#[derive(Debug, Default)]
struct Sockets {
    first: Option<Arc<TcpStream>>,
    others: Vec<Arc<TcpStream>>,
}

impl Interrupt {
    /// One that no read has yet.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Ends the read that has it, and each read that gets it until [`renew`](Interrupt::renew).
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::SeqCst);
        let sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in sockets.first.iter().chain(&sockets.others) {
            // It wakes whoever connects or receives. If it is closed already, no one waits.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Makes it good for another read.
    pub fn renew(&self) {
        self.0.is_stopped.store(false, Ordering::SeqCst);
    }

    /// Whether [`stop`](Interrupt::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::SeqCst)
    }

    /// For a store: fails if it is stopped.
    ///
    /// # Errors
    /// [`Class::Interrupted`].
    pub fn check(&self) -> Result<(), Failure> {
        if self.is_stopped() {
            return Err(Failure::new(Class::Interrupted, "the read was cancelled"));
        }
        Ok(())
    }

    /// For a store: watches the socket that a read now waits on, or none from now on, and no other. The flag is looked
    /// at behind the socket's place, and `stop` sets it in front, so one of the two sees the other.
    ///
    /// # Errors
    /// [`Class::Interrupted`] if it is stopped.
    pub fn watch(&self, socket: Option<&Arc<TcpStream>>) -> Result<(), Failure> {
        let mut sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.first = socket.cloned();
        sockets.others.clear();
        drop(sockets);
        self.check()
    }

    /// For a store: watches this socket too, where a read waits on several.
    ///
    /// # Errors
    /// [`Class::Interrupted`] if it is stopped.
    pub fn watch_also(&self, socket: &Arc<TcpStream>) -> Result<(), Failure> {
        self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner).others.push(Arc::clone(socket));
        self.check()
    }
}
