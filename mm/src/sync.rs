//! The atomic types that the allocator uses: those of `core`, or loom's in the crate
//! `ebb-mm-models`, where loom explores their interleavings.

#[cfg(not(ebb_model))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
#[cfg(ebb_model)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
