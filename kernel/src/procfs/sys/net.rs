//! `/sys/class/net`: the loopback interface.

use crate::fs::synthetic::{Directory, Entry};
use alloc::sync::Arc;
use core::fmt::Write;
use logic::socket::netlink::{HARDWARE, IFF_LOOPBACK, IFF_UP, MTU, QUEUE_LENGTH};
use logic::socket::packet::LOOPBACK;

/// The directory of the interface, and the one that has a link to it.
const PLACE: &str = "devices/virtual/net/lo";
const CLASS: &str = "class/net";

const ENTRIES: &[Entry] = &[
    Entry::file("addr_assign_type", |text| writeln!(text, "0")),
    Entry::file("addr_len", |text| writeln!(text, "6")),
    Entry::file("address", |text| writeln!(text, "00:00:00:00:00:00")),
    Entry::file("broadcast", |text| writeln!(text, "00:00:00:00:00:00")),
    Entry::file("carrier", |text| writeln!(text, "1")),
    Entry::file("dev_id", |text| writeln!(text, "0x0")),
    Entry::file("dormant", |text| writeln!(text, "0")),
    Entry::file("flags", |text| {
        writeln!(text, "{:#x}", IFF_UP | IFF_LOOPBACK)
    }),
    Entry::file("ifindex", |text| writeln!(text, "{LOOPBACK}")),
    Entry::file("iflink", |text| writeln!(text, "{LOOPBACK}")),
    Entry::file("link_mode", |text| writeln!(text, "0")),
    Entry::file("mtu", |text| writeln!(text, "{MTU}")),
    Entry::file("netdev_group", |text| writeln!(text, "0")),
    Entry::file("operstate", |text| writeln!(text, "unknown")),
    Entry::file("tx_queue_len", |text| writeln!(text, "{QUEUE_LENGTH}")),
    Entry::file("type", |text| writeln!(text, "{HARDWARE}")),
    Entry::file("uevent", |text| {
        writeln!(text, "INTERFACE=lo\nIFINDEX={LOOPBACK}")
    }),
];

/// Adds the loopback interface to `root`, the root of `/sys`.
pub(super) fn add(root: &Arc<Directory>) {
    root.subdirectory(PLACE).add_all(ENTRIES);
    root.subdirectory(CLASS)
        .add_link("lo", || Ok(b"../../devices/virtual/net/lo".to_vec()));
}
