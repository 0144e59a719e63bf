//! The files of `/proc` about memory.

use crate::drivers::hint;
use crate::fs::synthetic::Entry;
use crate::fs::text::Text;
use crate::vm::compaction;
use core::fmt::{Result, Write};
use ebb_mm::{Mobility, PAGEBLOCK_ORDER, ZoneId};
use machine::memory::stats;

/// The files about memory in the root of `/proc`.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::file("meminfo", meminfo),
    Entry::file("vmstat", vmstat),
    Entry::file("buddyinfo", buddyinfo),
    Entry::file("pagetypeinfo", pagetypeinfo),
    Entry::file("zoneinfo", zoneinfo),
];

/// The counters that `/proc/zoneinfo` shows for the node.
const PER_NODE: [&str; 13] = [
    "nr_inactive_anon",
    "nr_active_anon",
    "nr_inactive_file",
    "nr_active_file",
    "nr_anon_pages",
    "nr_mapped",
    "nr_file_pages",
    "nr_dirty",
    "nr_writeback",
    "nr_shmem",
    "nr_kernel_stack",
    "nr_page_table_pages",
    "nr_balloon_pages",
];

const MOBILITIES: [Mobility; 3] = [
    Mobility::Unmovable,
    Mobility::Movable,
    Mobility::Reclaimable,
];

fn meminfo(text: &mut Text) -> Result {
    for (name, kib) in stats::meminfo().into_iter().chain(stats::meminfo_tail()) {
        meminfo_line(text, name, kib)?;
    }
    crate::procfs::hugepages::meminfo(text)?;
    for (name, kib) in stats::direct_map() {
        meminfo_line(text, name, kib)?;
    }
    Ok(())
}

/// Writes one line of `/proc/meminfo` to `text`: `name`, a colon, `kib` and the unit `kB`. The name
/// and its colon fill 16 columns, the number the next 8. Fails only if `text` is full or memory is
/// short.
pub(super) fn meminfo_line(text: &mut Text, name: &str, kib: u64) -> Result {
    text.push(name.as_bytes())?;
    text.push(b":")?;
    text.spaces(15_usize.saturating_sub(name.len()))?;
    text.aligned(kib, 8, b' ')?;
    text.push(b"kB\n")
}

fn vmstat(text: &mut Text) -> Result {
    for (name, value) in stats::vmstat().into_iter().chain(hint::vmstat()) {
        text.push(name.as_bytes())?;
        text.push(b" ")?;
        text.number(value, b'\n')?;
    }
    let done = compaction::counters();
    for (name, value) in [
        ("compact_migrate_scanned", done.migrate_scanned),
        ("compact_free_scanned", done.free_scanned),
        ("compact_isolated", done.isolated),
        ("compact_stall", done.stall),
        ("compact_fail", done.fail),
        ("compact_success", done.success),
        ("compact_daemon_wake", done.daemon_wake),
        ("compact_daemon_run", done.daemon_run),
        (
            "compact_daemon_migrate_scanned",
            done.daemon_migrate_scanned,
        ),
        ("compact_daemon_free_scanned", done.daemon_free_scanned),
    ] {
        text.push(name.as_bytes())?;
        text.push(b" ")?;
        text.number(value, b'\n')?;
    }
    Ok(())
}

fn buddyinfo(text: &mut Text) -> Result {
    for zone in stats::zones() {
        let figures = stats::zone(zone);
        let areas = stats::free_areas(zone);
        write!(
            text,
            "Node {}, zone {:>8} ",
            figures.node,
            stats::zone_name(figures.kind)
        )?;
        for order in stats::orders() {
            write!(text, "{:>6} ", areas.count(order, None))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn pagetypeinfo(text: &mut Text) -> Result {
    writeln!(text, "Page block order: {}", PAGEBLOCK_ORDER.get())?;
    writeln!(text, "Pages per block:  {}\n", PAGEBLOCK_ORDER.frames())?;
    write!(
        text,
        "{:<43} ",
        "Free pages count per migrate type at order"
    )?;
    for order in stats::orders() {
        write!(text, "{:>6} ", order.get())?;
    }
    writeln!(text)?;
    for zone in stats::zones() {
        let figures = stats::zone(zone);
        let areas = stats::free_areas(zone);
        for mobility in MOBILITIES {
            let (name, kind) = (
                stats::mobility_name(mobility),
                stats::zone_name(figures.kind),
            );
            write!(
                text,
                "Node {:>4}, zone {kind:>8}, type {name:>12} ",
                figures.node
            )?;
            for order in stats::orders() {
                write!(text, "{:>6} ", areas.count(order, Some(mobility)))?;
            }
            writeln!(text)?;
        }
    }
    write!(text, "\n{:<23}", "Number of blocks type ")?;
    for mobility in MOBILITIES {
        write!(text, "{:>12} ", stats::mobility_name(mobility))?;
    }
    writeln!(text)?;
    for zone in stats::zones() {
        let figures = stats::zone(zone);
        write!(
            text,
            "Node {}, zone {:>8} ",
            figures.node,
            stats::zone_name(figures.kind)
        )?;
        for (at, blocks) in figures.blocks_of.into_iter().enumerate() {
            // Free blocks have no mobility here. Linux counts each block, and new ones as movable.
            let free = if at == Mobility::Movable as usize {
                figures.free_blocks
            } else {
                0
            };
            write!(text, "{:>12} ", blocks + free)?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn zoneinfo(text: &mut Text) -> Result {
    for zone in stats::zones() {
        let figures = stats::zone(zone);
        let marks = figures.watermarks;
        writeln!(
            text,
            "Node {}, zone {:>8}",
            figures.node,
            stats::zone_name(figures.kind)
        )?;
        if zone == ZoneId::FIRST {
            // The counters of the node, as on Linux with its first zone.
            writeln!(text, "  per-node stats")?;
            for (name, value) in stats::vmstat() {
                if PER_NODE.contains(&name) {
                    writeln!(text, "      {name:<12} {value}")?;
                }
            }
        }
        writeln!(text, "  pages free     {}", figures.free_frames)?;
        writeln!(text, "        boost    0")?;
        writeln!(text, "        min      {}", marks.min)?;
        writeln!(text, "        low      {}", marks.low)?;
        writeln!(text, "        high     {}", marks.high)?;
        writeln!(
            text,
            "        spanned  {}",
            figures.blocks * PAGEBLOCK_ORDER.frames()
        )?;
        writeln!(text, "        present  {}", figures.managed_frames)?;
        writeln!(text, "        managed  {}", figures.managed_frames)?;
        writeln!(text, "        cma      0")?;
        writeln!(text, "      nr_free_pages {}", figures.free_frames)?;
        writeln!(text, "      nr_isolated_free {}", figures.isolated_frames)?;
        writeln!(
            text,
            "      nr_unreported_free {}",
            figures.unreported_free_frames
        )?;
        writeln!(text, "      nr_free_pageblocks {}", figures.free_blocks)?;
    }
    Ok(())
}

/// `/proc/swaps`, which has only its heading: there is no swap.
pub(super) const SWAPS: Entry = Entry::file("swaps", swaps);

fn swaps(text: &mut Text) -> Result {
    writeln!(text, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority")
}
