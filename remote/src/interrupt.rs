//! Ends a read that waits, from another thread.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::{Class, Failure};

/// Ends a read that waits for its server, from another thread. Its clones end the same read. A read that is connecting
/// ends when that has ended, within 10 s.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_stopped: AtomicBool,
    /// The socket that the read waits on.
    socket: Mutex<Option<Arc<TcpStream>>>,
}

impl Interrupt {
    /// One that no read has yet.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Ends the read that has it, and each read that gets it until [`renew`](Interrupt::renew).
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::SeqCst);
        let socket = self.0.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = &*socket {
            // It wakes whoever receives. If it is closed already, no one waits.
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

    /// Fails if it is stopped.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.is_stopped() {
            return Err(Failure::new(Class::Interrupted, "the read was cancelled"));
        }
        Ok(())
    }

    /// Watches the socket that a read now waits on. The flag is looked at behind the socket's place, and
    /// `stop` sets it in front, so one of the two sees the other.
    pub(crate) fn watch(&self, socket: Option<&Arc<TcpStream>>) -> Result<(), Failure> {
        *self.0.socket.lock().unwrap_or_else(PoisonError::into_inner) = socket.cloned();
        self.check()
    }
}
