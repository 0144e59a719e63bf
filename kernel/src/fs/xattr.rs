//! Extended attributes that files in memory have. All together they take no more than a part of RAM:
//! no limit of a file system counts them.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicUsize, Ordering};
use logic::errno::Errno;
use logic::xattrs::{Attribute, Refused, When, Xattrs};
use machine::memory::{self, PAGE_SIZE};

/// They take no more than this part of RAM.
const SHARE: usize = 64;

/// What a program may do, as a file says it of itself.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Bytes of all.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// What a file has.
#[derive(Debug, Default)]
pub struct Extended(Xattrs);

impl Drop for Extended {
    fn drop(&mut self) {
        // Relaxed, here and below: a sum of its own.
        BYTES.fetch_sub(self.0.bytes(), Ordering::Relaxed);
    }
}

impl Extended {
    /// What is there.
    pub fn all(&self) -> &Xattrs {
        &self.0
    }

    /// The value of an attribute, to be changed in its place.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut [u8]> {
        self.0.get_mut(name)
    }

    /// Sets an attribute; what comes back is to be dropped without a lock.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`, `ENOMEM`, and `ENOSPC` where there are too many or all take too much.
    pub fn set(&mut self, new: Attribute, when: When) -> (Option<Attribute>, Result<(), Errno>) {
        let bytes = new.bytes();
        let more = bytes.saturating_sub(self.0.bytes_of(&new.name));
        let managed = usize::try_from(memory::allocator().managed_frames()).unwrap_or(usize::MAX);
        let all = BYTES.load(Ordering::Relaxed).saturating_add(more);
        if more > 0 && all / PAGE_SIZE > managed / SHARE {
            return (Some(new), Err(Errno::ENOSPC));
        }
        match self.0.set(new, when) {
            Ok(old) => {
                BYTES.fetch_add(bytes, Ordering::Relaxed);
                let before = old.as_ref().map_or(0, Attribute::bytes);
                BYTES.fetch_sub(before, Ordering::Relaxed);
                (old, Ok(()))
            }
            Err((why, new)) => {
                let error = match why {
                    Refused::Exists => Errno::EEXIST,
                    Refused::Absent => Errno::ENODATA,
                    Refused::TooMany => Errno::ENOSPC,
                    Refused::NoMemory => Errno::ENOMEM,
                };
                (Some(new), Err(error))
            }
        }
    }

    /// Returns a copy for the node that takes the place of this one, however much all take.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn copy(&self) -> Result<Self, Errno> {
        let all = self.0.copy().ok_or(Errno::ENOMEM)?;
        BYTES.fetch_add(all.bytes(), Ordering::Relaxed);
        Ok(Self(all))
    }

    /// Takes an attribute away.
    pub fn remove(&mut self, name: &[u8]) -> Option<Attribute> {
        let gone = self.0.remove(name)?;
        BYTES.fetch_sub(gone.bytes(), Ordering::Relaxed);
        Some(gone)
    }
}

/// Where a file keeps its own; none, mostly.
pub type Slot = Option<Box<Extended>>;
