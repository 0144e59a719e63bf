//! A part of the guest's RAM that is mapped for writing, too.
//!
//! The guest writes it at the same time, so it is accessed through atomics only.

use super::ram::{GuestAddress, GuestRam};
use super::sigbus::{self, Watched};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Guest-physical memory without a hole, mapped here until this is dropped.
#[derive(Debug)]
pub(crate) struct Window {
    base: NonNull<u8>,
    len: usize,
    /// Dropped by hand, before the mapping goes.
    watched: Option<Watched>,
}

// SAFETY: the mapping belongs to this value alone until it is dropped; it hands out its address and nothing else.
unsafe impl Send for Window {}

impl Window {
    /// So many bytes from a page's first byte on.
    ///
    /// # Errors
    /// `EINVAL` if they are no whole pages of RAM that stand together in the file, and what the host says.
    pub(crate) fn new(ram: &GuestRam, address: GuestAddress, bytes: u64) -> Result<Self, Errno> {
        let offset = ram.file_offset(address, bytes).ok_or(Errno::INVAL)?;
        let len = usize::try_from(bytes).map_err(|_| Errno::INVAL)?;
        if len == 0 || !offset.is_multiple_of(4096) {
            return Err(Errno::INVAL);
        }
        // SAFETY: a new mapping at an address of the host's choice replaces nothing. Where the file's size
        // is not sealed, an access behind its end finds zeroes: see `sigbus`.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                ram.fd(),
                offset,
            )?
        };
        let base = NonNull::new(address.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let mut window = Self {
            base,
            len,
            watched: None,
        };
        window.watched = Some(sigbus::watch(base.addr().get(), len)?);
        Ok(window)
    }

    /// Where it begins here.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How long it is.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.watched = None;
        // SAFETY: the mapping was made by `new` with this length, and who got its address keeps this alive.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}
