//! Extended attributes of files in memory. All together they take at most a part of RAM, since no
//! file system counts them against its limit.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicUsize, Ordering};
use logic::errno::Errno;
use logic::xattrs::{Attribute, Refused, When, Xattrs};
use machine::memory::{self, PAGE_SIZE};

/// All extended attributes together take at most RAM divided by this number.
const SHARE: usize = 64;

/// The name of the attribute with the capabilities that a file grants a task that runs it.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The bytes of all extended attributes.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The extended attributes of a file.
#[derive(Debug, Default)]
pub struct Extended(Xattrs);

impl Drop for Extended {
    fn drop(&mut self) {
        // Relaxed, here and below: the sum orders no other access.
        BYTES.fetch_sub(self.0.bytes(), Ordering::Relaxed);
    }
}

impl Extended {
    /// Returns all attributes.
    pub fn all(&self) -> &Xattrs {
        &self.0
    }

    /// Returns the value of the attribute `name`, to be changed in place. Returns `None` if there
    /// is no such attribute.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut [u8]> {
        self.0.get_mut(name)
    }

    /// Sets the attribute `new`. `when` says whether an attribute of this name must exist, must not
    /// exist, or neither. Returns two values: an attribute that the caller drops without a lock,
    /// and the result. The attribute is the one that `new` has replaced, or `new` itself after an
    /// error. It is `None` if `new` replaced none.
    ///
    /// # Errors
    /// Fails with `EEXIST`, `ENODATA` or `ENOMEM`. Fails with `ENOSPC` if the file would have too
    /// many attributes, or all files together would use too much memory for them.
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

    /// Returns a copy for the node that replaces this one, without a check of the limit on RAM.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn copy(&self) -> Result<Self, Errno> {
        let all = self.0.copy().ok_or(Errno::ENOMEM)?;
        BYTES.fetch_add(all.bytes(), Ordering::Relaxed);
        Ok(Self(all))
    }

    /// Removes the attribute `name` and returns it. Returns `None` if there is no such attribute.
    pub fn remove(&mut self, name: &[u8]) -> Option<Attribute> {
        let gone = self.0.remove(name)?;
        BYTES.fetch_sub(gone.bytes(), Ordering::Relaxed);
        Some(gone)
    }
}

/// The place where a file keeps its extended attributes. Most files have none.
pub type Slot = Option<Box<Extended>>;
