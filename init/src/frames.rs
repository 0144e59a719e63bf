//! [`Frames`]: page frames of the guest that the host reads and writes by their physical addresses.

use crate::failure::Failure;
use ebb_wire::root::{FRAME, FRAMES_MAX};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, vmsplice};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::slice;

/// Size of all frames in bytes.
pub(crate) const BYTES: usize = FRAMES_MAX * FRAME;
/// A file with one 64-bit entry for each page of this process, with its frame number (proc(5)).
const PAGEMAP: &str = "/proc/self/pagemap";
const PRESENT: u64 = 1 << 63;
const FRAME_NUMBER: u64 = (1 << 55) - 1;

/// [`FRAMES_MAX`] page frames that stay at their physical addresses.
#[derive(Debug)]
pub(crate) struct Frames {
    start: NonNull<u8>,
    addresses: [u64; FRAMES_MAX],
    /// A pipe that refers to the pages: the kernel does not migrate them then.
    _pipe: [OwnedFd; 2],
}

// SAFETY: this value alone owns the memory.
unsafe impl Send for Frames {}

impl Frames {
    /// Allocates [`FRAMES_MAX`] page frames filled with zeros, pins them, and reads their physical
    /// addresses. The frames are never freed. Fails if the memory cannot be mapped and pinned, or
    /// if this process may not see physical addresses.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::take().map_err(|error| Failure::new("have memory that stays in its place", error))
    }

    fn take() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // Shared, since a fork would make one side copy a private page, and so move it.
        // SAFETY: this is a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), BYTES, access, MapFlags::SHARED) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the memory was just mapped with this length and write access.
        unsafe { start.write_bytes(0, BYTES) };
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&writer, BYTES)?;
        let whole = IoSliceRaw::from_slice(
            // SAFETY: the memory was just mapped with this length, and no code writes to it here.
            unsafe { slice::from_raw_parts(start.as_ptr(), BYTES) },
        );
        // SAFETY: the pages that the pipe refers to are never read from it.
        let referred = unsafe { vmsplice(&writer, &[whole], SpliceFlags::NONBLOCK) }?;
        if referred != BYTES {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(Self {
            addresses: addresses(start)?,
            start,
            _pipe: [reader, writer],
        })
    }

    /// Returns the physical addresses of the frames that hold the first `count` bytes. Returns the
    /// addresses of all frames if `count` is larger than [`BYTES`].
    pub(crate) fn for_bytes(&self, count: usize) -> &[u64] {
        &self.addresses[..count.div_ceil(FRAME).min(FRAMES_MAX)]
    }

    /// Returns the first `count` bytes of the frames, [`BYTES`] at most.
    pub(crate) fn bytes(&self, count: usize) -> &[u8] {
        // SAFETY: the memory stays mapped. The host writes to it only between a question and its
        // answer. `HostPort` has the frames behind its lock, so no such slice exists during that
        // time.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), count.min(BYTES)) }
    }

    /// Copies `bytes` to the start of the frames. Bytes beyond [`BYTES`] are ignored.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        // SAFETY: the memory stays mapped, and `&mut self` guarantees that there is no other slice.
        let room = unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), BYTES) };
        let count = bytes.len().min(BYTES);
        room[..count].copy_from_slice(&bytes[..count]);
    }
}

/// Returns the physical addresses of the pages from `start` on. Fails if this process may not see
/// them.
fn addresses(start: NonNull<u8>) -> io::Result<[u64; FRAMES_MAX]> {
    let mut entries = [0; FRAMES_MAX * 8];
    let page = start.as_ptr().addr() / FRAME;
    File::open(PAGEMAP)?.read_exact_at(&mut entries, page as u64 * 8)?;
    let mut addresses = [0; FRAMES_MAX];
    for (address, entry) in addresses.iter_mut().zip(entries.chunks_exact(8)) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(entry);
        let entry = u64::from_ne_bytes(bytes);
        let number = entry & FRAME_NUMBER;
        // The kernel shows frame number 0 to processes without the privilege.
        if entry & PRESENT == 0 || number == 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        *address = number * FRAME as u64;
    }
    Ok(addresses)
}
