//! `/proc/PID/maps`, `smaps`, `smaps_rollup` and `numa_maps`.

use super::super::memory::meminfo_line;
use crate::fs::devices;
use crate::fs::text::Text;
use crate::fs::viewpoint::Viewpoint;
use crate::process::caller;
use crate::vm::{AddressSpace, VmaFlags, VmaInfo};
use core::fmt::{Result, Write};
use logic::errno::Errno;

/// The column at which the name of an area starts.
const NAME_COLUMN: usize = 73;

/// Writes an area's line, padded before the name by the width of the columns before it.
fn header(text: &mut Text, area: &VmaInfo, view: &Viewpoint) -> Result {
    let start = text.len();
    let flag = |flag: VmaFlags, yes: u8, no: u8| if area.flags.contains(flag) { yes } else { no };
    let (device, inode) = area
        .file
        .as_ref()
        .map_or((0, 0), |file| (file.device, file.inode));
    let (major, minor) = devices::parts(device);
    text.hex(area.start, 8, b'-')?;
    text.hex(area.end, 8, b' ')?;
    text.push(&[
        flag(VmaFlags::READ, b'r', b'-'),
        flag(VmaFlags::WRITE, b'w', b'-'),
        flag(VmaFlags::EXEC, b'x', b'-'),
        flag(VmaFlags::SHARED, b's', b'p'),
        b' ',
    ])?;
    text.hex(area.offset, 8, b' ')?;
    text.hex(major, 2, b':')?;
    text.hex(minor, 2, b' ')?;
    text.number(inode, b' ')?;
    let name = view.show(area.name());
    if !name.is_empty() {
        text.spaces(NAME_COLUMN.saturating_sub(text.len() - start))?;
        text.push_escaped(name, b"\n")?;
    }
    text.push(b"\n")
}

/// Returns the view of paths of the task that reads.
fn view() -> Viewpoint {
    Viewpoint::of(&caller::context().root())
}

/// Writes the line of `area` in `/proc/PID/maps`: addresses, permissions, file and name. Paths are
/// relative to the root of the task that reads. Fails only if `text` is full or memory is short.
pub(super) fn maps(text: &mut Text, _: &AddressSpace, area: &VmaInfo) -> Result {
    header(text, area, &view())
}

/// The resident memory of an area in KiB: private pages and shared pages, and of the private ones
/// the anonymous part and the part in huge pages.
#[derive(Copy, Clone, Default)]
struct Resident {
    private: u64,
    shared: u64,
    anonymous: u64,
    of_files: u64,
    of_shmem: u64,
    huge: u64,
    /// The pages of the pool of huge pages, which the other numbers do not include.
    pool_private: u64,
    pool_shared: u64,
    /// The part of shared memory and tmpfs that is mapped by huge pages.
    shared_huge: u64,
    locked: u64,
}

impl Resident {
    fn of(space: &AddressSpace, area: &VmaInfo) -> Self {
        let [
            anonymous,
            file,
            shmem,
            huge,
            pool_private,
            pool_shared,
            shared_huge,
        ] = space
            .resident(area.start..area.end)
            .map(|bytes| bytes >> 10);
        let (private, shared) = if area.flags.contains(VmaFlags::SHARED) {
            (anonymous, file + shmem)
        } else {
            (anonymous + file + shmem, 0)
        };
        Self {
            private,
            shared,
            anonymous,
            of_files: file,
            of_shmem: shmem,
            huge,
            pool_private,
            pool_shared,
            shared_huge,
            locked: if area.flags.contains(VmaFlags::LOCKED) {
                private + shared
            } else {
                0
            },
        }
    }

    fn add(&mut self, other: Self) {
        self.private += other.private;
        self.shared += other.shared;
        self.anonymous += other.anonymous;
        self.of_files += other.of_files;
        self.of_shmem += other.of_shmem;
        self.huge += other.huge;
        self.pool_private += other.pool_private;
        self.pool_shared += other.pool_shared;
        self.shared_huge += other.shared_huge;
        self.locked += other.locked;
    }

    /// Writes the lines of the numbers. `kinds` are lines that follow those of `Pss`.
    fn write(self, text: &mut Text, kinds: &[(&str, u64)]) -> Result {
        let rss = self.private + self.shared;
        for (name, kib) in [("Rss", rss), ("Pss", rss), ("Pss_Dirty", rss)] {
            line(text, name, kib)?;
        }
        for &(name, kib) in kinds {
            line(text, name, kib)?;
        }
        let lines = [
            ("Shared_Clean", 0),
            ("Shared_Dirty", self.shared),
            ("Private_Clean", 0),
            ("Private_Dirty", self.private),
            ("Referenced", rss),
            ("Anonymous", self.anonymous),
            ("LazyFree", 0),
            ("AnonHugePages", self.huge),
            ("ShmemPmdMapped", self.shared_huge),
            ("FilePmdMapped", 0),
            ("Shared_Hugetlb", self.pool_shared),
            ("Private_Hugetlb", self.pool_private),
            ("Swap", 0),
            ("SwapPss", 0),
            ("Locked", self.locked),
        ];
        for (name, kib) in lines {
            line(text, name, kib)?;
        }
        Ok(())
    }
}

fn line(text: &mut Text, name: &str, kib: u64) -> Result {
    meminfo_line(text, name, kib)
}

/// Writes Linux's two-letter names of an area's flags.
fn flag_names(text: &mut Text, flags: VmaFlags) -> Result {
    let names = [
        (VmaFlags::READ, "rd"),
        (VmaFlags::WRITE, "wr"),
        (VmaFlags::EXEC, "ex"),
        (VmaFlags::SHARED, "sh"),
        (VmaFlags::MAY_WRITE, "mw"),
        (VmaFlags::GROWS_DOWN, "gd"),
        (VmaFlags::LOCKED, "lo"),
        (VmaFlags::DONT_DUMP, "dd"),
        (VmaFlags::HUGETLB, "ht"),
        (VmaFlags::HUGE_PAGES, "hg"),
        (VmaFlags::NO_HUGE_PAGES, "nh"),
    ];
    text.write_str("VmFlags:")?;
    for (flag, name) in names {
        if flags.contains(flag) {
            write!(text, " {name}")?;
        }
    }
    writeln!(text, " ")
}

/// Writes the entry of `area` in `/proc/PID/smaps`: the line of [`maps`], a line for each size in
/// KiB, whether huge pages are possible, and the flags. Fails only if `text` is full or memory is
/// short.
pub(super) fn smaps(text: &mut Text, space: &AddressSpace, area: &VmaInfo) -> Result {
    header(text, area, &view())?;
    line(text, "Size", (area.end - area.start) >> 10)?;
    let page = area.page_bytes >> 10;
    line(text, "KernelPageSize", page)?;
    line(text, "MMUPageSize", page)?;
    Resident::of(space, area).write(text, &[])?;
    let eligible = area.may_have_huge_pages() && !space.declines_huge_pages();
    writeln!(text, "THPeligible:    {}", u8::from(eligible))?;
    flag_names(text, area.flags)
}

/// Writes the line of `area` in `/proc/PID/numa_maps`: the memory policy, the file, and the numbers
/// of resident pages, all of which are on node 0. Fails only if `text` is full or memory is short.
pub(super) fn numa_maps(text: &mut Text, space: &AddressSpace, area: &VmaInfo) -> Result {
    write!(text, "{:08x} ", area.start)?;
    for word in area.policy().words() {
        text.write_str(word)?;
    }
    if area.file.is_some() {
        text.write_str(" file=")?;
        text.push_escaped(area.name(), b"\n\t= ")?;
    } else if area.flags.contains(VmaFlags::HEAP) {
        text.write_str(" heap")?;
    } else if area.flags.contains(VmaFlags::STACK) {
        text.write_str(" stack")?;
    }
    let huge = area.flags.contains(VmaFlags::HUGETLB);
    if huge {
        text.write_str(" huge")?;
    }
    let resident = Resident::of(space, area);
    let pool = resident.pool_private + resident.pool_shared;
    let unit = area.page_bytes >> 10;
    let pages = if huge {
        pool
    } else {
        resident.private + resident.shared
    } / unit;
    if pages > 0 {
        let anonymous = resident.anonymous / unit;
        if anonymous > 0 {
            write!(text, " anon={anonymous} dirty={anonymous}")?;
        }
        if pages != anonymous {
            write!(text, " mapped={pages}")?;
        }
        if !huge {
            // As in /proc/meminfo, no page is active.
            text.write_str(" active=0")?;
        }
        write!(text, " N0={pages} kernelpagesize_kB={unit}")?;
    }
    writeln!(text)
}

/// Shows `/proc/PID/smaps_rollup`: the sums of all areas. Fails with `ESRCH` if `space` is `None`.
pub(super) fn smaps_rollup(text: &mut Text, space: Option<&AddressSpace>) -> Result {
    let Some(space) = space else {
        return Err(text.fail(Errno::ESRCH));
    };
    let mut sum = Resident::default();
    let mut range = None;
    space.for_each_vma(|area| {
        sum.add(Resident::of(space, area));
        let (start, _) = range.unwrap_or((area.start, area.end));
        range = Some((start, area.end));
    });
    let Some((start, end)) = range else {
        return Ok(());
    };
    let header = alloc::format!("{start:08x}-{end:08x} ---p 00000000 00:00 0 ");
    let padding = NAME_COLUMN.saturating_sub(header.len());
    writeln!(text, "{header}{:padding$}[rollup]", "")?;
    let kinds = [
        ("Pss_Anon", sum.anonymous),
        ("Pss_File", sum.of_files),
        ("Pss_Shmem", sum.of_shmem),
    ];
    sum.write(text, &kinds)
}
