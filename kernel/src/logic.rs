//! The parts of the kernel that need no machine, as a library of their own, so that tests on the
//! host run the very files that the kernel is built from.
#![no_std]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the kernel uses them; here only the tests do"
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        reason = "the tests' numbers are small"
    )
)]

extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

#[path = "task/elf.rs"]
mod elf;
#[path = "fs/pipe/ends.rs"]
mod ends;
#[path = "sched/heap.rs"]
mod heap;
#[path = "drivers/disk/limits.rs"]
mod limits;
#[cfg(any(test, loom))]
#[path = "vm/members.rs"]
mod members;
#[path = "fs/initramfs/newc.rs"]
mod newc;
#[path = "task/numbers.rs"]
mod numbers;
#[path = "fs/path.rs"]
mod path;
#[path = "sched/policy.rs"]
mod policy;
#[path = "fs/radix.rs"]
mod radix;
#[path = "fs/locks/ranges.rs"]
mod ranges;
#[path = "drivers/disk/request.rs"]
mod request;
#[path = "fs/pipe/ring.rs"]
mod ring;
#[path = "signal/set.rs"]
mod set;
#[path = "memory/slab.rs"]
mod slab;
#[path = "sched/state.rs"]
mod state;
#[path = "task/strings.rs"]
mod strings;
#[cfg(any(test, loom))]
#[path = "sync/model.rs"]
mod sync;
#[path = "fs/locks/table.rs"]
mod table;
#[path = "vm/vma.rs"]
mod vma;

#[cfg(test)]
#[path = "syscall/abi_doc_tests.rs"]
mod abi_doc_tests;
#[cfg(test)]
#[path = "drivers/disk/tests.rs"]
mod disk_tests;
#[cfg(test)]
#[path = "task/elf_tests.rs"]
mod elf_tests;
#[cfg(test)]
#[path = "fs/pipe/ends_tests.rs"]
mod ends_tests;
#[cfg(test)]
#[path = "sched/heap_tests.rs"]
mod heap_tests;
#[cfg(test)]
#[path = "fs/knobs_doc_tests.rs"]
mod knobs_doc_tests;
#[cfg(test)]
#[path = "fs/locks/tests.rs"]
mod lock_tests;
#[cfg(test)]
#[path = "vm/members_tests.rs"]
mod members_tests;
#[cfg(test)]
#[path = "task/numbers_tests.rs"]
mod numbers_tests;
#[cfg(test)]
#[path = "sched/policy_tests.rs"]
mod policy_tests;
#[cfg(test)]
#[path = "signal/set_tests.rs"]
mod set_tests;
#[cfg(test)]
#[path = "memory/slab_tests.rs"]
mod slab_tests;
#[cfg(test)]
#[path = "sched/state_tests.rs"]
mod state_tests;
#[cfg(test)]
#[path = "task/strings_tests.rs"]
mod strings_tests;
#[cfg(test)]
#[path = "vm/vma_tests.rs"]
mod vma_tests;
