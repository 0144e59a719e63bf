//! The functions of the upper half that free memory when it is short.

use crate::arch::clock::Nanos;
use ebb_mm::Frame;

/// The functions of the upper half that memory management calls, mostly when an allocation finds no
/// free memory. [`define_memory_helpers!`](crate::define_memory_helpers) makes a static of this
/// type, which the linker binds as [`HELPERS`].
#[derive(Debug)]
pub struct Helpers {
    /// Returns whether this CPU runs a thread already. Only a thread can wait.
    pub has_thread: fn() -> bool,
    /// Returns whether the running thread is being killed. Allocations of such a thread fail, so
    /// that it can end.
    pub killed: fn() -> bool,
    /// Lets other threads run.
    pub yield_now: fn(),
    /// Serves pending interrupts, and lets other threads run if they are due. Costs little if
    /// nothing is pending or due.
    pub give_way: fn(),
    /// Sleeps until the given time.
    pub sleep_until: fn(Nanos),
    /// Frees cached pages, or waits for another thread that frees some. Returns `true` if the
    /// caller should try its allocation again.
    pub shrink_caches: fn() -> bool,
    /// Frees the unused pages of huge pages on trial. Returns whether it freed any.
    pub weigh_trials: fn() -> bool,
    /// Empties a pageblock by moving its frames. Returns whether it succeeded. Even then, another
    /// CPU may allocate the block before the caller.
    pub make_block: fn() -> bool,
    /// Allocates an aligned GiB, and moves frames out of it if necessary. Returns its first frame,
    /// or `None` if no GiB can be emptied.
    pub take_gib: fn() -> Option<Frame>,
    /// Requests calls of [`hugetlb::relieve`](super::hugetlb::relieve) from time to time, until no
    /// block contains its own descriptors any more.
    pub relieve_soon: fn(),
    /// Takes up to the given number of frames back from the balloon. Returns the number taken. May
    /// sleep.
    pub deflate: fn(u32) -> u32,
    /// Calls the given closure, and counts that time as a stall of the running thread for memory.
    pub stalled: fn(&mut dyn FnMut()),
    /// Returns whether the memory of a process that has ended is still being freed.
    pub is_coming: fn() -> bool,
    /// Kills the process whose end frees most memory. The text is the reason, for a message.
    /// Returns `false` if there is no process to kill.
    pub kill: fn(&str) -> bool,
}

/// Makes `$helpers` the [`Helpers`] that memory management calls. The linker refuses a second call.
#[macro_export]
macro_rules! define_memory_helpers {
    ($helpers:expr) => {
        const _: () = {
            #[unsafe(export_name = "ebb_memory_helpers")]
            static HELPERS: $crate::memory::Helpers = $helpers;
        };
    };
}

unsafe extern "Rust" {
    /// See [`Helpers`].
    #[link_name = "ebb_memory_helpers"]
    pub(super) safe static HELPERS: Helpers;
}
