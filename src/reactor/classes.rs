//! Classifies failed reads by what is at fault: the machine, the storage, the name, the device, or the file itself.

use std::io;
use std::time::Duration;
use uringload_core::store::{self, Failure};
use uringload_sys::cuda::CudaError;

/// What caused a read to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Interrupted, or cancelled before it began: read it again at once.
    Interrupted,
    /// The machine: it is out of descriptors, memory or other room. The file may be fine.
    Machine,
    /// The storage: a device, a server or a mount that may soon work again. It may also be one bad place of one file;
    /// only other reads can show which.
    Storage,
    /// A server that asks for fewer requests: read it again later, however often that happens.
    Throttled,
    /// Credentials that have expired: newer ones may come.
    Expired,
    /// What all objects of a place need, and lack for now: a certificate that is trusted, or the bucket.
    Place,
    /// The name: it does not lead to a file that this process may open. One file may be gone, or the whole mount.
    Name,
    /// The GPU that was the target. It does not recover while the loader lives.
    Device,
    /// The file alone.
    File,
}

impl Class {
    /// The class of an error that an open or a read ended with.
    pub(super) fn of(error: &io::Error) -> Class {
        let of_device = error.get_ref().and_then(|inner| inner.downcast_ref::<CudaError>());
        if of_device.is_some_and(CudaError::is_fatal) {
            return Class::Device;
        }
        if let Some(failure) = failure_of(error) {
            return match failure.class() {
                store::Class::Throttled => Class::Throttled,
                store::Class::Expired => Class::Expired,
                // One object may be refused, or all of them.
                store::Class::Storage | store::Class::Foreign | store::Class::Refused => Class::Storage,
                store::Class::Untrusted | store::Class::NoBucket => Class::Place,
                store::Class::Interrupted => Class::Interrupted,
                _ => Class::File,
            };
        }
        match error.raw_os_error() {
            Some(EINTR | ECANCELED) => Class::Interrupted,
            // ENOSYS: a filter refuses the call itself, whatever the file.
            Some(EAGAIN | ENOMEM | ENFILE | EMFILE | ENOSYS | ENOBUFS) => Class::Machine,
            Some(
                EIO | ENXIO | ENODEV | ESTALE | ETIMEDOUT | ENOTCONN | EHOSTDOWN | EHOSTUNREACH | ENETDOWN
                | ENETUNREACH | ENETRESET | ECONNREFUSED | ECONNRESET | ECONNABORTED | ESHUTDOWN | EPIPE | ENOLINK
                | ECOMM | EPROTO | EREMOTEIO | ENOMEDIUM | ENONET,
            ) => Class::Storage,
            Some(ENOENT | ENOTDIR | EACCES | EPERM) => Class::Name,
            _ => Class::File,
        }
    }

    /// Whether only time decides about such a read: others that end well prove nothing about it.
    pub(super) fn is_put_off(self) -> bool {
        matches!(self, Class::Throttled | Class::Expired | Class::Place)
    }

    /// Whether how long this one read has failed so decides about it, and not how long its root gives nothing.
    pub(super) fn is_of_one_read(self) -> bool {
        matches!(self, Class::Machine | Class::Name)
    }

    /// Whether a read was cancelled before it began, no matter who cancelled it.
    pub(super) fn is_taken_back(error: &io::Error) -> bool {
        error.raw_os_error() == Some(ECANCELED)
    }
}

/// How long the server of an object asks to wait; 0 if it does not.
pub(super) fn asked_pause(error: &io::Error) -> Duration {
    failure_of(error).and_then(Failure::after).unwrap_or_default()
}

/// Whether such a read will hardly go well by waiting: what answers is no server of objects, or it has given nothing so
/// far.
pub(super) fn is_hopeless(error: &io::Error, has_read: bool) -> bool {
    failure_of(error).is_some_and(|failure| match failure.class() {
        store::Class::Foreign => true,
        store::Class::Refused | store::Class::Untrusted | store::Class::NoBucket => !has_read,
        _ => false,
    })
}

fn failure_of(error: &io::Error) -> Option<&Failure> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Failure>())
}

// errno values of Linux on x86-64 and AArch64, named here because this layer makes no system calls.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const ENOTDIR: i32 = 20;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EPIPE: i32 = 32;
const ENOSYS: i32 = 38;
const ENONET: i32 = 64;
const ENOLINK: i32 = 67;
const ECOMM: i32 = 70;
const EPROTO: i32 = 71;
const ENETDOWN: i32 = 100;
const ENETUNREACH: i32 = 101;
const ENETRESET: i32 = 102;
const ECONNABORTED: i32 = 103;
const ECONNRESET: i32 = 104;
const ENOBUFS: i32 = 105;
const ENOTCONN: i32 = 107;
const ESHUTDOWN: i32 = 108;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;
const EHOSTDOWN: i32 = 112;
const EHOSTUNREACH: i32 = 113;
const ESTALE: i32 = 116;
const EREMOTEIO: i32 = 121;
const ENOMEDIUM: i32 = 123;
const ECANCELED: i32 = 125;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart() {
        let of = |errno| Class::of(&io::Error::from_raw_os_error(errno));
        assert_eq!([4, 125].map(of), [Class::Interrupted; 2]);
        assert_eq!([11, 12, 23, 24, 38].map(of), [Class::Machine; 5]);
        assert_eq!([5, 6, 19, 107, 110, 112, 116].map(of), [Class::Storage; 7]);
        assert_eq!([2, 13, 20].map(of), [Class::Name; 3]);
        // EINVAL, EISDIR, and ENODATA: a medium that cannot return what was written to it.
        assert_eq!([22, 21, 61].map(of), [Class::File; 3]);
        assert_eq!(Class::of(&io::Error::other("anything")), Class::File);
    }

    #[test]
    fn failures_of_stores_are_told_apart() {
        use store::Class as Of;
        let of = |class| Class::of(&io::Error::other(Failure::new(class, "made up")));
        assert_eq!([Of::Throttled, Of::Expired].map(of), [Class::Throttled, Class::Expired]);
        assert_eq!([Of::Storage, Of::Foreign, Of::Refused].map(of), [Class::Storage; 3]);
        assert_eq!([Of::Untrusted, Of::NoBucket].map(of), [Class::Place; 2]);
        assert_eq!(of(Of::Interrupted), Class::Interrupted);
        let hopeless = |class| {
            [true, false].map(|has_read| is_hopeless(&io::Error::other(Failure::new(class, "made up")), has_read))
        };
        assert_eq!([Of::Foreign, Of::Storage].map(hopeless), [[true; 2], [false; 2]]);
        assert_eq!([Of::Refused, Of::Untrusted, Of::NoBucket].map(hopeless), [[false, true]; 3]);
        assert_eq!([Of::Missing, Of::Changed, Of::Corrupt, Of::Unavailable, Of::Invalid].map(of), [Class::File; 5]);
    }
}
