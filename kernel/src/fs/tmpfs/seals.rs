//! The seals of a memory file.

use super::{Body, TmpNode};
use crate::vm::Mappings;
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::general::{F_SEAL_FUTURE_WRITE, F_SEAL_SEAL, F_SEAL_WRITE};
use logic::errno::Errno;

/// `F_SEAL_*` bits of a file. They are read and changed under the lock that changes of its content
/// hold.
#[derive(Debug)]
pub(super) struct Seals(AtomicU32);

impl Seals {
    /// Returns the seals of a file that cannot be sealed. Only a memfd that asks for it can be.
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(F_SEAL_SEAL))
    }

    /// Returns the seals as bits (`F_SEAL_*`).
    pub(super) fn get(&self) -> u32 {
        // Relaxed (all): the file's lock orders the tasks that act on the seals.
        self.0.load(Ordering::Relaxed)
    }

    /// Adds seals. The caller holds the file's lock.
    ///
    /// # Errors
    /// Fails with `EPERM` if the file is sealed against more seals, and with `EBUSY` for
    /// `F_SEAL_WRITE` while a mapping may store.
    pub(super) fn add(&self, seals: u32, mappings: &Mappings) -> Result<(), Errno> {
        let old = self.get();
        if old & F_SEAL_SEAL != 0 {
            return Err(Errno::EPERM);
        }
        if seals & F_SEAL_WRITE != 0 {
            mappings.deny_stores()?;
        }
        if seals & F_SEAL_FUTURE_WRITE != 0 {
            mappings.deny_new_stores();
        }
        self.0.store(old | seals, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that the file has no seal in `any_of`.
    ///
    /// # Errors
    /// Fails with `EPERM` if the file has such a seal.
    pub(super) fn check(&self, any_of: u32) -> Result<(), Errno> {
        if self.get() & any_of == 0 {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }
}

impl TmpNode {
    fn seals_of_file(&self) -> Result<&Seals, Errno> {
        match &self.body {
            Body::Regular(regular) => Ok(regular.seals()),
            Body::Huge(huge) => Ok(huge.seals()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the seals of the file as bits (`F_SEAL_*`).
    ///
    /// # Errors
    /// Fails with `EINVAL` if this is no regular file.
    pub fn seals(&self) -> Result<u32, Errno> {
        Ok(self.seals_of_file()?.get())
    }

    /// Allows that seals are added to the file (`MFD_ALLOW_SEALING`). Does nothing if this is no
    /// regular file.
    pub fn allow_seals(&self) {
        if let Ok(seals) = self.seals_of_file() {
            seals.0.store(0, Ordering::Relaxed);
        }
    }

    /// Adds the seals in `seals` to the file (`F_ADD_SEALS`).
    ///
    /// # Errors
    /// Fails with `EPERM` if the file is sealed against more seals, and with `EBUSY` for
    /// `F_SEAL_WRITE` while a mapping may store. Fails with `EINVAL` if this is no regular file.
    pub fn add_seals(&self, seals: u32) -> Result<(), Errno> {
        match &self.body {
            Body::Regular(regular) => regular.add_seals(seals),
            Body::Huge(huge) => huge.add_seals(seals),
            _ => Err(Errno::EINVAL),
        }
    }
}
