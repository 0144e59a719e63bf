//! The errors of taking free memory of a guest.

use ebb_mm::FrameRange;
use ebb_mm::attach::AttachError;
use rustix::io::Errno;

/// The reason why free memory of a guest cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReclaimError {
    /// The guest's kernel has no allocator that a host can take part in, or it is not ready.
    #[error("the guest's allocator does not work yet, or is none of Ebb's")]
    NoAllocator,
    /// QEMU does not make the guest's atomic instructions atomic for other processes.
    #[error(
        "QEMU emulates this guest's CPU in a way in which its instructions are not atomic for the \
         host; start the guest with --give-back shared and without --icount"
    )]
    Unsound,
    /// The RAM is reserved in the host's pool of huge pages. If it went back to the pool, another
    /// process could take it, and the guest would crash when it touched it again.
    #[error(
        "the guest's memory is reserved for it in the host's pool of huge pages: nothing of it goes back"
    )]
    Reserved,
    /// Another process or thread is taking memory of this guest.
    #[error("another thread or process is taking free memory of this guest")]
    Busy,
    /// A process that was killed has left blocks isolated. They are put back only while the guest's
    /// CPUs run.
    #[error(
        "an ebb process that was killed has left free blocks out of use; \
         they are put back while the guest runs"
    )]
    LeftOpen,
    /// The guest reports an address for its metadata that cannot be mapped.
    #[error(
        "the guest says that its allocator's words are at {address:#x}, {bytes} bytes: {errno}"
    )]
    Nowhere {
        address: u64,
        bytes: u64,
        errno: Errno,
    },
    /// The metadata is malformed.
    #[error("the guest's allocator: {0}")]
    Nonsense(AttachError),
    /// The host cannot drop a range that the guest reports as free. It may be outside of the
    /// guest's RAM.
    #[error("{0:?}, which the guest says are free, cannot be dropped: {1}")]
    Drop(FrameRange, Errno),
    /// The lock on the RAM file failed.
    #[error("the lock of the guest's memory: {0}")]
    Lock(Errno),
}
