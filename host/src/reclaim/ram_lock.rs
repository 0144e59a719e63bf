//! The lock for taking a guest's free memory. Only one process at a time has it, and its next owner
//! knows that the previous owner has ended.
//!
//! It is a lock on the file of the guest's RAM. The kernel releases it when the process ends for
//! any reason, but not when the process is slow or stopped. So no process puts a block back while
//! another one is about to drop it.

use super::error::ReclaimError;
use crate::qemu::GuestRam;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The held lock between processes on a guest's RAM file. Dropping it, or the end of this process,
/// releases the lock.
#[derive(Debug)]
pub(super) struct RamLock {
    _file: OwnedFd,
}

impl RamLock {
    /// Takes the lock on the RAM file of `ram` and returns it, without waiting. Fails with
    /// [`ReclaimError::Busy`] if it is held already, also by this process, and with
    /// [`ReclaimError::Lock`] if the file cannot be opened or locked.
    pub(super) fn try_lock(ram: &GuestRam) -> Result<Self, ReclaimError> {
        // The file is opened again. QEMU has inherited the open file of `ram` and would keep its
        // lock.
        let path = format!("/proc/self/fd/{}", ram.fd().as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(ReclaimError::Lock)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(ReclaimError::Busy),
            Err(errno) => Err(ReclaimError::Lock(errno)),
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
        let ram_lock = RamLock::try_lock(&ram).unwrap();
        assert!(matches!(RamLock::try_lock(&ram), Err(ReclaimError::Busy)));
        drop(ram_lock);
        assert!(RamLock::try_lock(&ram).is_ok());
    }
}
