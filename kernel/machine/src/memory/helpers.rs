//! What helps when memory is short, and lies above.

use crate::arch::clock::Nanos;
use ebb_mm::Frame;

/// What an allocation that finds nothing may ask of the rest of the kernel. The kernel defines one,
/// bound by the linker as [`HELPERS`].
#[derive(Debug)]
pub struct Helpers {
    /// Whether a thread runs here already, which can wait.
    pub has_thread: fn() -> bool,
    /// Returns whether the running thread is being killed: it then gets its error, and ends.
    pub killed: fn() -> bool,
    /// Lets other threads run.
    pub yield_now: fn(),
    /// Serves pending interrupts, and lets other threads run if it is their turn; costs little
    /// otherwise.
    pub give_way: fn(),
    /// Sleeps until the given time.
    pub sleep_until: fn(Nanos),
    /// Frees cached pages, or waits for another thread that does. Returns `true` if it may help to
    /// try again.
    pub shrink_caches: fn() -> bool,
    /// Frees the unused pages of huge pages on trial. Returns whether there were any.
    pub weigh_trials: fn() -> bool,
    /// Empties a pageblock by moving its frames. Returns whether it did.
    pub make_block: fn() -> bool,
    /// Empties and takes a GiB. Returns `None` if that fails.
    pub take_gib: fn() -> Option<Frame>,
    /// Requests calls of [`hugetlb::relieve`](super::hugetlb::relieve) from time to time, until no
    /// block carries its descriptors.
    pub relieve_soon: fn(),
    /// Takes up to the given number of frames back from the balloon. Returns the number taken.
    pub deflate: fn(u32) -> u32,
    /// Does something that counts as a stall for memory of the thread that runs.
    pub stalled: fn(&mut dyn FnMut()),
    /// Whether memory is on its way back from a process that ends.
    pub is_coming: fn() -> bool,
    /// Kills the process that is worth most; false: there is none. The text is the reason.
    pub kill: fn(&str) -> bool,
}

unsafe extern "Rust" {
    /// See [`Helpers`].
    #[link_name = "ebb_memory_helpers"]
    pub(super) safe static HELPERS: Helpers;
}
