//! Gives back pages of host files that no program has used for a while.
//!
//! The host has these files too, so a page that goes costs a read, and one that stays costs the host memory for nothing.
//! A thread counts ticks while more than [`KEPT_PAGES`] such pages are here; otherwise it sleeps, and costs nothing.

use super::used::{self, Cold, KEPT_PAGES, TICKS};
use super::{hostfs, tmpfs};
use crate::vm::compaction::daemon;
use crate::vm::compaction::proactive::Reclaiming;
use core::sync::atomic::{AtomicBool, Ordering};
use machine::memory::{self, stats};
use machine::sched;

/// Starts the thread, if it is not there yet.
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
            // What the CPUs hold in reserve keeps blocks from being whole.
            memory::allocator().request_drain();
            daemon::memory_freed();
        }
        used::rest();
    }
}

/// Drops pages of files that were not used for [`TICKS`]; how many. In the tick before, mappings of a file have to ask for
/// its pages again, which tells whether they are in use.
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
