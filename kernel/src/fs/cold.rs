//! Frees pages of host files that no program has used for a while.
//!
//! The host has these files too. A page that is freed costs a read when it is needed again; a page
//! that is kept costs the host memory. A thread counts ticks while there are more than
//! [`KEPT_PAGES`] such pages; otherwise it sleeps and costs nothing.

use super::used::{self, Cold, KEPT_PAGES, TICKS};
use super::{hostfs, tmpfs};
use crate::vm::compaction::daemon;
use crate::vm::compaction::proactive::Reclaiming;
use core::sync::atomic::{AtomicBool, Ordering};
use machine::memory::{self, stats};
use machine::sched;

/// Starts the kernel thread `kfilecold`, which frees pages of host files that no program has used
/// for a while. Does nothing if the thread was started before.
pub fn start() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if !STARTED.swap(true, Ordering::Relaxed) {
        sched::spawn_kernel("kfilecold", run);
    }
}

fn run() {
    loop {
        used::wait_for_tick();
        let reclaiming = Reclaiming::begin();
        let dropped = pass();
        drop(reclaiming);
        if dropped > 0 {
            // Frames in the per-CPU caches keep pageblocks from being free as a whole.
            memory::allocator().request_drain();
            daemon::memory_freed();
        }
        used::rest();
    }
}

/// Drops pages of files that were not used for [`TICKS`] ticks. Returns the number of dropped
/// pages. One tick before, the pages of a file are unmapped, so that a mapping that uses them
/// faults and renews the file.
fn pass() -> usize {
    let visit = &mut |file: &dyn Cold| {
        if stats::host_pages() <= KEPT_PAGES {
            return 0;
        }
        match file.age() {
            age if age >= TICKS => file.drop_unused(),
            age if age == TICKS - 1 => {
                file.unmap();
                0
            }
            _ => 0,
        }
    };
    tmpfs::each_cold(visit) + hostfs::each_cold(visit)
}
