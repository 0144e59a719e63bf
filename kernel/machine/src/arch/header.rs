//! The page of counters that the host reads.

use super::clock;
use core::sync::atomic::{Ordering, fence};
use ebb_wire::header::{GuestHeader, NAME_BYTES, OOM_RECORDS, stage};

/// The page of counters. The host finds it through its symbol.
#[used]
#[unsafe(export_name = "ebb_guest_header")]
#[unsafe(link_section = ".data.header")]
pub static HEADER: GuestHeader = GuestHeader::new();

/// Records for the host the time of the first entry into user mode, and that the program runs.
/// Later calls do nothing.
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
        // Release: the host's Acquire of the stage sees the earlier records.
        HEADER.stage.store(stage::RUNNING, Ordering::Release);
    }
}

/// Records a process that the OOM killer kills, for the host: its `pid`, its `resident_bytes` and
/// its `name`. Only one CPU at a time may call this.
pub fn note_oom_kill(pid: u32, resident_bytes: u64, name: &[u8; NAME_BYTES]) {
    // Relaxed (here and below): one writer, and the fences order what the host reads.
    let number = HEADER.oom_kills.load(Ordering::Relaxed);
    let record = &HEADER.oom_records[number as usize % OOM_RECORDS];
    record.number.store(0, Ordering::Relaxed);
    // Release: pairs with the host's second load of the number, which so sees a change of the
    // record.
    fence(Ordering::Release);
    record.at_ns.store(clock::now().0, Ordering::Relaxed);
    record.resident.store(resident_bytes, Ordering::Relaxed);
    record.pid.store(u64::from(pid), Ordering::Relaxed);
    for (word, part) in record.name.iter().zip(name.as_chunks().0) {
        word.store(u64::from_le_bytes(*part), Ordering::Relaxed);
    }
    // Release: partner of the host's first look, an Acquire.
    record.number.store(number + 1, Ordering::Release);
    HEADER.oom_kills.store(number + 1, Ordering::Release);
}
