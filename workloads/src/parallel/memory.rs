//! Mappings, page faults, the heap.

use super::{Call, Watch};
use crate::Failure;
use crate::mapping::{Mapping, PAGE_BYTES, PageSize};
use crate::memory_file;
use crate::tasks::Kind;

/// Mappings of a batch.
const MAPPINGS: u64 = 16;
/// What is mapped where nothing is touched.
const MAPPED_BYTES: usize = 128 << 20;
/// What is mapped and touched in a batch.
const TOUCHED_BYTES: usize = 1 << 20;
const PAGES: u64 = (TOUCHED_BYTES / PAGE_BYTES) as u64;

pub(super) const MMAP: Call = Call {
    name: "mmap",
    kind: Kind::Threads,
    batch: MAPPINGS,
    work: |watch| {
        while watch.again() {
            for _ in 0..MAPPINGS {
                drop(Mapping::anonymous(MAPPED_BYTES, PageSize::Default)?);
            }
        }
        Ok(())
    },
};

pub(super) const MMAP_FILE: Call = Call {
    name: "mmap-file",
    kind: Kind::Threads,
    batch: MAPPINGS,
    work: |watch| {
        let file = memory_file::filled(TOUCHED_BYTES)?;
        while watch.again() {
            for _ in 0..MAPPINGS {
                drop(Mapping::of_shared_file(&file, TOUCHED_BYTES)?);
            }
        }
        Ok(())
    },
};

pub(super) const BRK: Call = Call {
    name: "brk",
    kind: Kind::Threads,
    batch: MAPPINGS,
    work: brk,
};

pub(super) const FILE_FAULT: Call = Call {
    name: "file-fault",
    kind: Kind::Threads,
    batch: PAGES,
    work: |watch| {
        let file = memory_file::filled(TOUCHED_BYTES)?;
        while watch.again() {
            Mapping::of_file(&file, TOUCHED_BYTES)?.touch();
        }
        Ok(())
    },
};

pub(super) const FAULT: Call = Call {
    name: "fault",
    kind: Kind::Threads,
    batch: PAGES,
    work: |watch| {
        while watch.again() {
            Mapping::anonymous(TOUCHED_BYTES, PageSize::Base)?.touch();
        }
        Ok(())
    },
};

/// Threads share the heap and move its end against each other, as those of will-it-scale do. Nobody
/// asks for memory meanwhile, and the last call of each thread puts the end where it was.
fn brk(watch: &mut Watch) -> Result<(), Failure> {
    let set = |end: usize| {
        // SAFETY: the end is never below where the C library left it, and what is above it is
        // nobody's.
        unsafe { libc::syscall(libc::SYS_brk, end) }
    };
    // The first of the library's pages beyond its heap: a thread that comes later may find the end
    // moved, but by less than this.
    // SAFETY: it only asks.
    let heap = unsafe { libc::sbrk(0) }.addr().next_multiple_of(PAGE_BYTES);
    while watch.again() {
        for _ in 0..MAPPINGS / 2 {
            for end in [heap + PAGE_BYTES, heap] {
                let answer = usize::try_from(set(end)).unwrap_or(0);
                if answer < heap {
                    return Err(Failure::Wrong(format!("brk({end:#x}) gave {answer:#x}")));
                }
            }
        }
    }
    Ok(())
}
