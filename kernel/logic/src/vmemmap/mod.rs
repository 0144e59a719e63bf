//! The memmap's own memory: given up for huge pages of the pool, and brought back for what they become.
//!
//! The descriptors of a pageblock fill eight pages of the memmap. All descriptors of a huge page of the pool say the
//! same, so all eight are one read-only page that all such blocks share, and their frames are ordinary memory. Where all
//! blocks under one table of the last level are such, that table is shared, too.
//!
//! # Protocol
//!
//! Whoever exchanges a block's part of the memmap owns all frames of the block: nobody else writes their descriptors,
//! which are all zero but for what the owner wrote. Anybody may read them at any time. He finds what was there before
//! or what is there after, for the old frames are freed when every CPU has dropped its translations, and the new ones
//! are filled before they are put in.
//!
//! | | [`Exchange::share`] | [`Exchange::restore`] |
//! |---|---|---|
//! | a reader sees before | free, or what the owner wrote | part of a huge page |
//! | and after | part of a huge page | free |
//! | until all CPUs have flushed | either | either |
//! | then | the old frames are freed | the block may be freed: who gets frames of it writes their descriptors |
//!
//! One flush serves all blocks of an [`Exchange`].
//!
//! # Nothing is refused
//!
//! Where the allocator has no frame, `restore` takes the first frames of the block itself: they carry the block's
//! part of the memmap, and the others are free. [`relieve`] makes such a block whole when the others are free and
//! there are frames elsewhere.
//!
//! What a machine is to all this, [`Machine`] says: the kernel's is real, tests have a simulated one, with CPUs that
//! remember translations.

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
