//! Who takes a guest's free memory: one process at a time, and the next knows that the one before is gone.
//!
//! It is a lock on the file of the guest's RAM. The kernel gives it free when its holder ends, however it ends; that a holder
//! is merely slow, or stopped, does not. So nobody puts a block back behind the back of one who is about to drop it.

use super::error::ReclaimError;
use crate::qemu::GuestRam;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The lock, until this is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    _file: OwnedFd,
}

impl Lease {
    /// Takes it, unless another process has it.
    pub(super) fn take(ram: &GuestRam) -> Result<Self, ReclaimError> {
        // A file of our own: what QEMU inherited is the same open file as `ram` has, and would keep the lock.
        let path = format!("/proc/self/fd/{}", ram.fd().as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(ReclaimError::Lease)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(ReclaimError::Busy),
            Err(errno) => Err(ReclaimError::Lease(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn one_has_it_until_it_goes() {
        let ram = GuestRam::new(Machine::Microvm, 1 << 20).unwrap();
        let lease = Lease::take(&ram).unwrap();
        assert!(matches!(Lease::take(&ram), Err(ReclaimError::Busy)));
        drop(lease);
        assert!(Lease::take(&ram).is_ok());
    }
}
