//! Compaction: memory that is free in pieces becomes whole pageblocks again, by moving what is in use
//! in the emptiest of them into the fullest.
//!
//! Here is the policy; who moves the bytes and the references to them is the caller.

mod compactor;
mod counters;
mod emptying;
#[cfg(all(test, ebb_model))]
mod emptying_model;
mod giant;
mod give_back;
mod proactive;
mod score;
mod stuck;
mod survey;
mod targets;

pub use compactor::{Compactor, Emptied, Plan};
pub use counters::{CompactionCounters, Compacts};
pub use emptying::{BlockPlace, EmptyingBlock};
pub use giant::{EmptyingGiant, GiantPlan, NoGiant};
pub use give_back::{COPY_PAYS_AFTER, GiveBack, GiveBackPoll, QUIET};
pub use proactive::{
    NotAProactiveness, PROACTIVE_INTERVAL, PROACTIVE_SHARE, PROACTIVE_SHARED_SLICE,
    PROACTIVE_SLICE, PROACTIVENESS, Proactive, ProactivePoll, Thresholds,
};
pub use score::ZoneFragmentation;
