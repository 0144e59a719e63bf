//! `mmap`, `brk` and page faults.

use super::{Call, Watch};
use crate::Failure;
use crate::mapping::{Mapping, PAGE_BYTES, PageSize};
use crate::memory_file;
use crate::tasks::Kind;

/// Number of calls in a batch.
const MAPPINGS: u64 = 16;
/// Size of a mapping that is not touched, in bytes.
const MAPPED_BYTES: usize = 128 << 20;
/// Number of bytes that are mapped and touched in a batch.
const TOUCHED_BYTES: usize = 1 << 20;
const PAGES: u64 = (TOUCHED_BYTES / PAGE_BYTES) as u64;

/// The call `mmap`: maps 128 MiB of anonymous memory and unmaps them without touching them.
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

/// The call `mmap-file`: maps 1 MiB of a file, shared, and unmaps it without touching it.
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

/// The call `brk`: moves the end of the heap up by a page, or down again.
pub(super) const BRK: Call = Call {
    name: "brk",
    kind: Kind::Threads,
    batch: MAPPINGS,
    work: brk,
};

/// The call `file-fault`: writes to a page of a private file mapping, for the first time. Includes
/// the page's part of `mmap` and `munmap`.
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

/// The call `fault`: writes to a page of an anonymous mapping, for the first time. Includes the
/// page's part of `mmap` and `munmap`.
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

/// Moves the end of the heap up and down. Several threads do this at once, like those of
/// will-it-scale. No thread allocates memory during that time, and each thread's last call restores
/// the end.
fn brk(watch: &mut Watch) -> Result<(), Failure> {
    let set = |end: usize| {
        // SAFETY: the end is never below the one that the C library set, and the memory above that
        // is unused.
        unsafe { libc::syscall(libc::SYS_brk, end) }
    };
    // The first page beyond the library's heap. A thread that starts later may find the end moved,
    // but by less than a page.
    // SAFETY: the call with 0 only returns the end.
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
