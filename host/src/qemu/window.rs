//! A part of the guest's RAM that is mapped read-write.
//!
//! The guest writes this memory at the same time, so it is accessed through atomics only.

use super::ram::{GuestAddress, GuestRam};
use super::sigbus::{self, Watched};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::NonNull;

/// A read-write mapping of a contiguous range of guest-physical memory, unmapped when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Window {
    base: NonNull<u8>,
    len: usize,
    /// The protection from SIGBUS. `drop` sets this to `None` before it unmaps.
    watched: Option<Watched>,
}

// SAFETY: this value owns the mapping until it is dropped, and only hands out its address.
unsafe impl Send for Window {}

impl Window {
    /// Maps the `bytes` bytes of guest memory at the guest-physical `address` for reading and
    /// writing, and protects the mapping from SIGBUS.
    ///
    /// # Errors
    /// `EINVAL` if the range is empty, does not start at a page, is not all RAM, or is not
    /// contiguous in the file; `ENOMEM` if too many mappings are watched; and the kernel's of
    /// `mmap`.
    pub(crate) fn new(ram: &GuestRam, address: GuestAddress, bytes: u64) -> Result<Self, Errno> {
        let offset = ram.file_offset(address, bytes).ok_or(Errno::INVAL)?;
        let len = usize::try_from(bytes).map_err(|_| Errno::INVAL)?;
        if len == 0 || !offset.is_multiple_of(4096) {
            return Err(Errno::INVAL);
        }
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing. If the file
        // is truncated, the SIGBUS handler replaces the mapping with zeroes: see `sigbus`.
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

    /// Returns the address of the mapping in this process, aligned to a page. It is valid until
    /// `self` is dropped. Other threads and the guest may access the memory at the same time.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length of the mapping in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.watched = None;
        // SAFETY: `new` made the mapping with this length. Every user of its address keeps this
        // value alive.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}
