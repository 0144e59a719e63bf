//! Virtual memory: address spaces, mappings, page faults.
//!
//! - `flags`, `backing`, `pieces`: the rights and the bytes of an area; walks over many areas. The
//!   set of areas itself is `logic::vma`, without hardware, tested on the host
//! - `entry`, `pagetable`, `leaf`, `gather`, `tlb`: what the bits of page table entries mean, huge
//!   entries, frames that are being unmapped, stale translations. The tables themselves are
//!   `machine::memory::page_tables`
//! - `space`, `zap`: address spaces, which one a CPU uses; unmapping pages in batches
//! - `map`, `protect`, `locking`, `remap`, `fork`, `stack`: the calls of the same names; stacks
//!   that grow
//! - `replacing`: mappings that replace others, as other threads see them
//! - `fault`, `serve`, `want`, `region_fault`, `thp`, `zeros`, `allowed`: page faults, those of
//!   huge pages
//! - `hugetlb`, `pool_fault`: files of the pool of huge pages; faults in their areas
//! - `collapse`, `khugepaged`: joins pages to huge pages, on request and in the background
//! - `trial`: huge pages that no program asked for; frees their unused pages
//! - `family`, `named`, `moving`, `moving_tables`: the owner of a frame, of private memory and of
//!   files; moves frames
//! - `compaction`: empties pageblocks, on request and in the background
//! - `access`, `peek`: the kernel's access to other spaces than the current program's, which
//!   `machine::uaccess` does
//! - `core_pages`, `pagemap`: the pages of a core file and of `/proc/PID/pagemap`
//! - `policy`: memory policies of areas
//! - `source`, `shared`, `pages`, `shmem_fault`: files as mappings see them, shared memory, its
//!   huge pages
//! - `mappings`: the spaces that map a file. The walk that visits each exactly once is
//!   `logic::members`
//!
//! # Changes of a range
//!
//! Many operations change the pages of an address range: faults, unmap, protect, remap, fork,
//! stacks that grow, truncation, write-back. One rule holds for all: **an operation decides and
//! acts under one hold of a lock that keeps its decision true, or checks the decision again.**
//!
//! - `AddressSpace::change` (a mutex) guards the *areas*. Code that makes, removes, moves, grows or
//!   copies areas holds it from the decision to the last page table entry, and may release `state`
//!   in between.
//! - `AddressSpace::state` (a spin lock) guards areas and entries for moments. Code that holds it
//!   alone, such as faults and files that drop pages, finds the area and changes its entries under
//!   one hold.
//! - While a child gets its pages (`State::forking`), faults wait, and so do programs that drop
//!   pages. So the child sees one moment.
//! - A range whose areas are removed, but not all of its pages, is `State::leaving`. Files unmap
//!   their pages from it too. Nothing is mapped there before the range is empty.
//! - `members` lets a file find every page table that maps it, also during forks and moves.
//!
//! Locks are taken in this order, the outermost first: a file's blocking locks, `change`, a file's
//! walk (`members`), `state` (a parent's before its child's), a file's spin locks. A page of a file
//! is requested without the last three of these. No task waits for memory with a walk held.

mod access;
mod allowed;
mod backing;
mod collapse;
pub(crate) mod compaction;
mod core_pages;
mod entry;
mod family;
mod fault;
mod flags;
mod fork;
mod gather;
pub mod hugetlb;
pub(crate) mod khugepaged;
mod leaf;
mod locking;
mod map;
mod mappings;
mod moving;
mod moving_tables;
mod named;
mod page_owner;
mod pagemap;
pub mod pages;
mod pagetable;
mod peek;
mod pieces;
mod policy;
mod pool_fault;
mod protect;
mod region_fault;
mod remap;
mod replacing;
mod serve;
pub mod shared;
mod shmem_fault;
mod source;
mod space;
mod stack;
mod thp;
mod tlb;
mod trial;
mod want;
mod zap;
mod zeros;

pub use core_pages::CoreFilter;
pub use flags::{MapFlags, Prot, VmaFlags};
pub use locking::Lock;
pub use named::{Name, is_kept, keep};
pub use page_owner::{PageOwner, relocate_in};
pub use pagemap::Shown;
pub use protect::Advice;
pub use remap::Remap;
pub use shmem_fault::new_block;
pub use source::{Attachment, Backing, Block, MappedFile, MappedName, Mappings, PageSource};
pub(crate) use space::spaces_going;
pub use space::{AddressSpace, Limits, VmaInfo};

use fault::{Access, Fault};
use linux_raw_sys::general::{BUS_ADRERR, SEGV_ACCERR, SEGV_MAPERR, SIGBUS, SIGKILL, SIGSEGV};
use machine::memory::percpu::{self, Count, Local};
use machine::sched;
use machine::uaccess;
use want::Want;

/// Serves a page fault in user mode at `address`. `error` is the CPU's error code.
///
/// # Errors
/// Fails with the signal to send to the program.
#[inline]
pub fn on_user_fault(address: u64, error: u64) -> Result<(), FaultSignal> {
    let this = percpu::this();
    count_fault(this);
    let access = Access::from_error(error);
    let served = match space::active(this) {
        Some(space) => space.fault(this, address, access),
        None => Err(Fault::NotMapped),
    };
    match served {
        Ok(()) => Ok(()),
        Err(fault) => retry(address, access, fault).map_err(FaultSignal::of),
    }
}

/// Serves the most frequent page fault of user mode: a store to a missing page of the anonymous
/// area to which this CPU stored last. `error` is the CPU's error code. Returns `false`, and has
/// changed nothing, if it is another fault: [`on_user_fault`] serves that.
#[inline]
pub fn on_user_store(address: u64, error: u64) -> bool {
    if !Access::is_store(error) {
        return false;
    }
    let this = percpu::this();
    let served = space::active(this).is_some_and(|space| space.store_hot(this, address));
    if served {
        count_fault(this);
    }
    served
}

/// Returns the version of the current space's areas if its page tables allow the access to
/// `address` that failed with the CPU's error code `error`. The version changes whenever the areas
/// change. Returns `None` if the tables do not allow the access, or there is no current space.
pub fn allows(address: u64, error: u64) -> Option<u64> {
    current_space()?.allows(address, Access::from_error(error))
}

/// Returns the space of the current task. Returns `None` for a kernel thread and at a task's end.
/// The reference is valid while the task runs and keeps its space.
pub fn current_space() -> Option<&'static AddressSpace> {
    space::active(percpu::this())
}

/// Checks the failed fault `fault` again while no change of the areas is under way. A mapping that
/// replaces another leaves a gap for a moment, which must not fail a thread's access. Fails if the
/// fault fails again.
#[cold]
fn retry(address: u64, access: Access, fault: Fault) -> Result<(), Fault> {
    let space = space::active(percpu::this()).ok_or(Fault::NotMapped)?;
    space.serve_again((address, access, Want::Mapped), fault, || {
        // The wait may have ended on another CPU.
        space.fault(percpu::this(), address, access)
    })
}

/// Counts a fault for the CPU and for the thread.
#[inline]
fn count_fault(this: &Local) {
    this.add(Count::Faults, 1);
    sched::current().account().count_fault();
}

/// Counts the fault that is being served as a major one, because it reads a device. It was counted
/// as a minor one before.
pub(crate) fn count_major_fault() {
    percpu::add(Count::MajorFaults, 1);
    sched::current().account().fault_is_major();
}

/// The signal for a fault that cannot be served: its Linux number and its `si_code`.
#[derive(Copy, Clone, Debug)]
pub struct FaultSignal {
    /// `SIGSEGV`, `SIGBUS`, or `SIGKILL` if memory is out.
    pub signal: u32,
    /// The `si_code`.
    pub code: i32,
}

impl FaultSignal {
    #[cold]
    fn of(fault: Fault) -> Self {
        let (signal, code) = match fault {
            Fault::NotMapped => (SIGSEGV, SEGV_MAPERR),
            Fault::NotAllowed => (SIGSEGV, SEGV_ACCERR),
            Fault::BeyondFile => (SIGBUS, BUS_ADRERR),
            // The task is being killed already, or nothing is left to kill but itself.
            Fault::NoMemory => (SIGKILL, 0),
        };
        Self {
            signal,
            code: code.cast_signed(),
        }
    }
}

/// Serves a page fault at `address` in kernel mode, whose instruction is at `rip`. Returns the
/// address to continue at if the instruction is in a `uaccess` routine: `rip` itself once the page
/// is mapped, else the routine's exit for failures. Returns `None` if it is elsewhere, which is a
/// bug in the kernel.
///
/// Runs on the stack of the current task and may block. So the fault must not be on an IST stack,
/// and all registers must be saved.
pub fn on_kernel_fault(address: u64, error: u64, rip: u64) -> Option<u64> {
    let fixup = uaccess::fixup(rip)?;
    let uaccess::Fixup::Serve(otherwise) = fixup else {
        return Some(fixup.address());
    };
    let this = percpu::this();
    count_fault(this);
    let access = Access::from_error(error);
    let served = match space::active(this) {
        Some(space) => space.fault_of_kernel(this, address, access),
        None => Err(Fault::NotMapped),
    };
    let served = served.or_else(|fault| retry(address, access, fault));
    Some(if served.is_ok() { rip } else { otherwise })
}
