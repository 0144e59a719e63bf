//! What helps when memory is short, and lies above.

use crate::arch::clock::Nanos;
use ebb_mm::Frame;

/// What an allocation that finds nothing may ask of the rest of the kernel. The kernel defines one,
/// bound by the linker as [`HELPERS`].
#[derive(Debug)]
pub struct Helpers {
    /// Whether a thread runs here already, which can wait.
    pub has_thread: fn() -> bool,
    /// Whether the thread that runs is being killed: it is to get its error, and go.
    pub killed: fn() -> bool,
    /// Lets other threads run.
    pub yield_now: fn(),
    /// Serves pending interrupts, and lets other threads run whose turn it is; costs little where there is nothing to do.
    pub give_way: fn(),
    /// Has the thread wait until then.
    pub sleep_until: fn(Nanos),
    /// Gives up what is cached, or waits for it; true when it may help to try again.
    pub shrink_caches: fn() -> bool,
    /// Gives back what is unused of huge pages that nobody asked for; whether there was anything.
    pub weigh_trials: fn() -> bool,
    /// Makes a pageblock free by moving what is in it; whether it did.
    pub make_block: fn() -> bool,
    /// Takes a GiB that was made by moving what is in it, if one can be had.
    pub take_gib: fn() -> Option<Frame>,
    /// Has [`hugetlb::relieve`](super::hugetlb::relieve) called by and by, until no block carries its descriptors.
    pub relieve_soon: fn(),
    /// Takes up to so many frames back from the balloon; how many came.
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
