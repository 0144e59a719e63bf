//! Compaction: memory that is free in pieces becomes whole pageblocks again, by moving what is in use
//! in the emptiest of them into the fullest.
//!
//! Here is the policy; who moves the bytes and the references to them is the caller.

mod compactor;
mod counters;
mod emptying;
mod giant;
mod stuck;
mod survey;
mod targets;

pub use compactor::{Compactor, Emptied, Plan};
pub use counters::{CompactionCounters, Compacts};
pub use emptying::{BlockPlace, EmptyingBlock};
pub use giant::{EmptyingGiant, GiantPlan};
