//! Why free memory of a guest cannot be taken.

use ebb_mm::FrameRange;
use ebb_mm::attach::AttachError;
use rustix::io::Errno;

/// Why free memory of a guest cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReclaimError {
    /// Its kernel has no allocator that a host can take part in, or not yet.
    #[error("the guest's allocator does not work yet, or is none of Ebb's")]
    NoAllocator,
    /// QEMU does not make the guest's atomic instructions atomic for others.
    #[error(
        "QEMU runs this guest's CPU alone, and its exchanges of words are not atomic for the host; \
         start it with --give-back shared, without --icount"
    )]
    Unsound,
    /// What it lets go another could take from the pool, and it would end when it touched that again.
    #[error(
        "the guest's memory is reserved for it in the host's pool of huge pages: nothing of it goes back"
    )]
    Reserved,
    /// Another takes the guest's memory.
    #[error("another is taking this guest's memory")]
    Busy,
    /// What a host before left out is put back only while the guest's CPUs run.
    #[error("an ebb that ended early left some of it out, which is put right while the guest runs")]
    LeftOpen,
    /// Where it says that its metadata is.
    #[error(
        "the guest says that its allocator's words are at {address:#x}, {bytes} bytes: {errno}"
    )]
    Nowhere {
        address: u64,
        bytes: u64,
        errno: Errno,
    },
    /// What stands there.
    #[error("the guest's allocator: {0}")]
    Nonsense(AttachError),
    /// What it says is free is not its to give, or could not be dropped.
    #[error("{0:?}, which the guest says are free, cannot be dropped: {1}")]
    Drop(FrameRange, Errno),
    /// The lock that says who is at it.
    #[error("the lock of the guest's memory: {0}")]
    Lease(Errno),
}
