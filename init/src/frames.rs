//! Frames of the guest's memory that the host reads and writes by their addresses.

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

/// Bytes of all frames.
pub(crate) const BYTES: usize = FRAMES_MAX * FRAME;
/// Numbers of eight bytes, one a page of this process: where it is (proc(5)).
const PAGEMAP: &str = "/proc/self/pagemap";
const PRESENT: u64 = 1 << 63;
const FRAME_NUMBER: u64 = (1 << 55) - 1;

/// The frames, which stay where they are.
#[derive(Debug)]
pub(crate) struct Frames {
    start: NonNull<u8>,
    addresses: [u64; FRAMES_MAX],
    /// A page that a pipe refers to is not moved.
    _pipe: [OwnedFd; 2],
}

// SAFETY: the memory is this value's alone.
unsafe impl Send for Frames {}

impl Frames {
    /// Takes frames, for good.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::take().map_err(|error| Failure::new("have memory that stays in its place", error))
    }

    fn take() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // Shared: of private memory a fork would have one side copy a page, and so move it.
        // SAFETY: new memory, at a place that the kernel chooses.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), BYTES, access, MapFlags::SHARED) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the memory was just mapped, so long and to be written.
        unsafe { start.write_bytes(0, BYTES) };
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&writer, BYTES)?;
        let whole = IoSliceRaw::from_slice(
            // SAFETY: as above; nobody writes to it meanwhile.
            unsafe { slice::from_raw_parts(start.as_ptr(), BYTES) },
        );
        // SAFETY: what the pipe refers to is never read out of it.
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

    /// Addresses of the first frames, as many as so many bytes take.
    pub(crate) fn for_bytes(&self, count: usize) -> &[u64] {
        &self.addresses[..count.div_ceil(FRAME).min(FRAMES_MAX)]
    }

    /// The first bytes in them.
    pub(crate) fn bytes(&self, count: usize) -> &[u8] {
        // SAFETY: mapped for good. The host writes only between a question and its answer, while nobody has such a slice:
        // a question is asked of who has the frames for himself.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), count.min(BYTES)) }
    }

    /// Has them begin with these bytes, of which there is room for [`BYTES`].
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        // SAFETY: as above, and `&mut self` says that there is no other slice.
        let room = unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), BYTES) };
        let count = bytes.len().min(BYTES);
        room[..count].copy_from_slice(&bytes[..count]);
    }
}

/// Where the pages from `start` on are in the guest's memory.
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
        // The kernel says 0 to who may not know it.
        if entry & PRESENT == 0 || number == 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        *address = number * FRAME as u64;
    }
    Ok(addresses)
}
