//! Frees the memory of descriptors (the memmap) of huge pages in the pool, and restores it when a
//! huge page leaves the pool.
//!
//! The descriptors of a pageblock fill eight pages of the memmap. All descriptors of a huge page in
//! the pool are equal. So the eight entries of each such block map one shared read-only page, and
//! their frames become ordinary memory. If all blocks under one table of the last level are such
//! blocks, that table is shared, too.
//!
//! # Protocol
//!
//! The CPU that exchanges a block's part of the memmap owns all frames of the block. No other CPU
//! writes their descriptors, which are all zero except for values that the owner wrote. Any CPU may
//! read the descriptors at any time, and finds either the old or the new ones. The old frames are
//! freed only after every CPU has flushed its translations, and the new frames are filled before
//! they are mapped.
//!
//! | | [`Exchange::share`] | [`Exchange::restore`] |
//! |---|---|---|
//! | a reader sees before | free, or the owner's values | part of a huge page |
//! | and after | part of a huge page | free |
//! | until all CPUs have flushed | either | either |
//! | then | the old frames are freed | the block may be freed, and new owners write descriptors |
//!
//! One flush serves all blocks of an [`Exchange`].
//!
//! # Restoring never fails
//!
//! If the allocator has no frame, `restore` takes the first frames of the block itself. They
//! *carry* the block's part of the memmap, and the other frames of the block are free. [`relieve`]
//! makes such a block whole once its other frames are free and the allocator has frames elsewhere.
//!
//! [`Machine`] is the interface to the hardware. The kernel implements it for the real machine,
//! tests for a simulated one whose CPUs cache translations.

mod carried;
mod exchange;
mod large;
mod machine;
mod retired;
mod shared;
mod supply;

#[cfg(all(test, ebb_model))]
mod model_tests;
#[cfg(all(test, not(ebb_model)))]
mod pool;
#[cfg(all(test, not(ebb_model)))]
mod refused_tests;
#[cfg(all(test, not(ebb_model)))]
mod replay_tests;
#[cfg(test)]
mod simulated;

pub use carried::{Carrier, TOGETHER, relieve};
pub use exchange::{Exchange, Restored};
pub use large::restore_large;
pub use machine::{Bits, MAX_PAGES, Machine};
pub use shared::Shared;
pub use supply::Supply;
