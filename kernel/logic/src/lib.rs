//! The parts of the guest kernel that need no hardware: data structures, formats, arithmetic,
//! protocols. Tests on the host run the same code as the kernel.
#![no_std]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        reason = "the tests' numbers are small"
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access_list;
pub mod armed;
pub mod bpf;
pub mod by_name;
pub mod carry;
pub mod core_file;
pub mod core_name;
pub mod credentials;
pub mod disk;
pub mod elf;
pub mod errno;
pub mod events;
pub mod heap;
pub mod ipc_ids;
pub mod knob;
pub mod list;
pub mod lock;
pub mod locks;
pub mod log_ring;
pub mod members;
pub mod mempolicy;
pub mod message_queue;
pub mod mount_options;
pub mod nests;
pub mod newc;
pub mod numbers;
pub mod own;
pub mod page_poison;
pub mod path;
pub mod pipe;
pub mod priority_queue;
pub mod psi;
pub mod ptrace;
pub mod radix;
pub mod repeats;
pub mod rseq;
pub mod sched;
pub mod seccomp;
pub mod semaphores;
pub mod signal_set;
pub mod slab;
pub mod socket;
pub mod sparse;
pub mod stalls;
pub mod strings;
pub mod tty;
pub mod used_slots;
pub mod vdso;
pub mod vma;
pub mod vmemmap;
pub mod xattrs;

#[cfg(test)]
mod armed_tests;
#[cfg(test)]
mod bpf_tests;
#[cfg(test)]
mod by_name_tests;
#[cfg(test)]
mod carry_tests;
#[cfg(test)]
mod core_file_tests;
#[cfg(test)]
mod core_name_tests;
#[cfg(test)]
mod elf_tests;
#[cfg(test)]
mod events_tests;
#[cfg(test)]
mod heap_tests;
#[cfg(test)]
mod ipc_ids_tests;
#[cfg(test)]
mod list_tests;
#[cfg(test)]
mod log_ring_tests;
#[cfg(test)]
mod members_tests;
#[cfg(test)]
mod message_queue_tests;
#[cfg(test)]
mod model_locks;
#[cfg(test)]
mod mount_options_tests;
#[cfg(test)]
mod nests_tests;
#[cfg(test)]
mod numbers_tests;
#[cfg(test)]
mod ptrace_tests;
#[cfg(test)]
mod rseq_tests;
#[cfg(test)]
mod seccomp_tests;
#[cfg(test)]
mod semaphores_tests;
#[cfg(test)]
mod signal_set_tests;
#[cfg(test)]
mod slab_tests;
#[cfg(test)]
mod sparse_tests;
#[cfg(test)]
mod stalls_tests;
#[cfg(test)]
mod strings_tests;
#[cfg(test)]
mod used_slots_tests;
#[cfg(test)]
mod vdso_tests;
#[cfg(test)]
mod vma_tests;
#[cfg(test)]
mod xattrs_tests;
