//! The atomics that the allocator is built on: the machine's, or loom's where its model checker
//! explores their interleavings (the crate `ebb-mm-models`).

#[cfg(not(ebb_model))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
#[cfg(ebb_model)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
