//! The knobs of the writeback of dirty pages of disks: `vm.dirty_*`.

use super::sysctl::number;
use crate::fs::block::dirty_limits::{BACKGROUND, LEAST_BYTES, WRITERS, interval_centis};
use crate::fs::block::set_interval_centis;
use crate::fs::knob::Store;
use crate::fs::synthetic::Entry;
use core::fmt::Write;

/// The knobs of writeback in `/proc/sys/vm`.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::knob(
        "sys/vm/dirty_background_ratio",
        |text| number(text, BACKGROUND.percent()),
        Store::natural(0, 100, |value| BACKGROUND.set_percent(value)),
    ),
    Entry::knob(
        "sys/vm/dirty_background_bytes",
        |text| number(text, BACKGROUND.bytes()),
        Store::long(1, u64::MAX, |value| BACKGROUND.set_bytes(value)),
    ),
    Entry::knob(
        "sys/vm/dirty_ratio",
        |text| number(text, WRITERS.percent()),
        Store::natural(0, 100, |value| WRITERS.set_percent(value)),
    ),
    Entry::knob(
        "sys/vm/dirty_bytes",
        |text| number(text, WRITERS.bytes()),
        Store::long(LEAST_BYTES, u64::MAX, |value| WRITERS.set_bytes(value)),
    ),
    Entry::knob(
        "sys/vm/dirty_writeback_centisecs",
        |text| writeln!(text, "{}", interval_centis()),
        Store::int(|value| {
            set_interval_centis(value);
            Ok(())
        }),
    ),
];
