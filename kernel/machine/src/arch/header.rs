//! The page that the host reads.

use super::clock;
use core::sync::atomic::Ordering;
use ebb_mm::shared::{GuestHeader, stage};

/// Found by the host through its symbol.
#[used]
#[unsafe(export_name = "ebb_guest_header")]
#[unsafe(link_section = ".data.header")]
pub static HEADER: GuestHeader = GuestHeader::new();

/// Notes the time of the first entry into user mode, once.
#[inline]
pub fn note_first_user() {
    // Relaxed: a hint; the exchange below decides.
    if HEADER.first_user_ns.load(Ordering::Relaxed) == 0 {
        first_user();
    }
}

#[cold]
fn first_user() {
    let now = clock::now().0.max(1);
    let first = &HEADER.first_user_ns;
    // Relaxed: the value stands for itself.
    if first
        .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
    {
        // Release: the host's Acquire of the stage sees what was noted before.
        HEADER.stage.store(stage::RUNNING, Ordering::Release);
    }
}
