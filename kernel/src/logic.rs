//! The parts of the kernel that need no machine, as a library of their own, so that tests on the
//! host run the very files that the kernel is built from.
#![no_std]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the kernel uses them; here only the tests do"
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[path = "fs/initramfs/newc.rs"]
mod newc;
#[path = "fs/path.rs"]
mod path;
#[path = "fs/radix.rs"]
mod radix;
#[path = "fs/pipe/ring.rs"]
mod ring;
#[path = "memory/slab.rs"]
mod slab;
#[path = "vm/vma.rs"]
mod vma;

#[cfg(test)]
#[path = "memory/slab_tests.rs"]
mod slab_tests;
#[cfg(test)]
#[path = "vm/vma_tests.rs"]
mod vma_tests;
