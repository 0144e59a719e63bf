//! The files of `/sys` and `/proc` about disks.

use super::super::synthetic::{Content, Directory};
use super::super::text::Text;
use crate::drivers::disk::{self, Disk};
use alloc::format;
use alloc::sync::Arc;
use core::fmt::{Result as Written, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;

type Show = fn(&mut Text, &Disk) -> Written;

/// The files of `/sys/block/vda`.
const FILES: &[(&str, Show)] = &[
    ("size", |text, disk| writeln!(text, "{}", disk.sectors())),
    ("ro", |text, disk| {
        writeln!(text, "{}", u32::from(disk.limits().read_only))
    }),
    ("removable", |text, _| writeln!(text, "0")),
    ("range", |text, _| writeln!(text, "{}", super::MINORS)),
    ("alignment_offset", |text, _| writeln!(text, "0")),
    ("dev", |text, disk| {
        let (major, minor) = super::device(disk.number());
        writeln!(text, "{major}:{minor}")
    }),
    ("stat", |text, disk| stat(text, disk)),
    ("serial", serial),
    ("cache_type", |text, disk| {
        writeln!(text, "{}", cache_type(disk))
    }),
    ("queue/logical_block_size", block_bytes),
    ("queue/hw_sector_size", block_bytes),
    ("queue/physical_block_size", physical_bytes),
    ("queue/minimum_io_size", physical_bytes),
    ("queue/optimal_io_size", |text, _| writeln!(text, "0")),
    ("queue/rotational", |text, _| writeln!(text, "1")),
    ("queue/read_ahead_kb", |text, _| writeln!(text, "128")),
    ("queue/max_sectors_kb", |text, disk| {
        writeln!(text, "{}", disk.limits().segments * 4)
    }),
    ("queue/write_cache", |text, disk| {
        writeln!(text, "{}", cache_type(disk))
    }),
    ("queue/discard_granularity", |text, disk| {
        let limits = disk.limits();
        let bytes = if limits.discard_sectors == 0 {
            0
        } else {
            limits.block_bytes
        };
        writeln!(text, "{bytes}")
    }),
    ("queue/discard_max_bytes", |text, disk| {
        writeln!(text, "{}", disk.limits().discard_sectors * 512)
    }),
    ("queue/write_zeroes_max_bytes", |text, disk| {
        writeln!(text, "{}", disk.limits().zeroes_sectors * 512)
    }),
];

fn block_bytes(text: &mut Text, disk: &Disk) -> Written {
    writeln!(text, "{}", disk.limits().block_bytes)
}

fn physical_bytes(text: &mut Text, disk: &Disk) -> Written {
    writeln!(text, "{}", disk.limits().physical_block_bytes)
}

fn cache_type(disk: &Disk) -> &'static str {
    if disk.limits().flush {
        "write back"
    } else {
        "write through"
    }
}

/// Shows the name that the host gave the disk.
fn serial(text: &mut Text, disk: &Disk) -> Written {
    match disk.id() {
        Ok((id, len)) => text.push(&id[..len]),
        Err(error) => Err(text.fail(error)),
    }
}

struct DiskFile {
    disk: &'static Disk,
    show: Show,
}

impl Content for DiskFile {
    fn show(&self, text: &mut Text) -> Written {
        (self.show)(text, self.disk)
    }
    fn store(&self, _: &str) -> Result<(), Errno> {
        Err(Errno::EACCES)
    }
}

/// Creates the directories `block`, `class/block` and `dev/block` in `root`, which is `/sys`. Where
/// Linux has links, these are directories with the same files.
pub(crate) fn add(root: &Arc<Directory>) {
    for disk in disk::all() {
        let (major, minor) = super::device(disk.number());
        let places = [
            format!("block/{}", disk.name()),
            format!("class/block/{}", disk.name()),
            format!("dev/block/{major}:{minor}"),
        ];
        for place in places {
            for (name, show) in FILES {
                let file = DiskFile { disk, show: *show };
                root.add(&format!("{place}/{name}"), Arc::new(file));
            }
        }
    }
}

/// Writes the text of `/proc/partitions` to `text`.
pub(crate) fn partitions(text: &mut Text) -> Written {
    writeln!(text, "major minor  #blocks  name\n")?;
    for disk in disk::all() {
        let (major, minor) = super::device(disk.number());
        let kib = disk.sectors() / 2;
        writeln!(text, "{major:4}  {minor:7} {kib:10} {}", disk.name())?;
    }
    Ok(())
}

/// Writes the text of `/proc/diskstats` to `text`.
pub(crate) fn diskstats(text: &mut Text) -> Written {
    for disk in disk::all() {
        let (major, minor) = super::device(disk.number());
        write!(text, "{major:4} {minor:7} {} ", disk.name())?;
        stat(text, disk)?;
    }
    Ok(())
}

/// Shows the counters of a disk, in the seventeen columns of Linux. Times are always 0.
fn stat(text: &mut Text, disk: &Disk) -> Written {
    let counts = disk.counts();
    let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
    writeln!(
        text,
        "{} 0 {} 0 {} 0 {} 0 {} 0 0 {} 0 0 0 {} 0",
        value(&counts.reads),
        value(&counts.sectors_read),
        value(&counts.writes),
        value(&counts.sectors_written),
        value(&counts.under_way),
        value(&counts.discards),
        value(&counts.flushes),
    )
}
