//! Compaction makes whole free pageblocks out of scattered free frames: it migrates the frames in
//! use of the emptiest pageblocks into the fullest.
//!
//! This module has the policy: what to empty ([`Compactor`]), when to do it in advance
//! ([`Proactive`]), and when to do it for the host ([`GiveBack`]). The caller copies the frames and
//! updates the references to them.

mod compactor;
mod counters;
mod emptying;
#[cfg(all(test, ebb_model))]
mod emptying_model;
mod gib;
mod give_back;
mod proactive;
mod scan;
mod score;
mod stuck;
mod targets;

pub use compactor::{Compactor, Emptied, Plan};
pub use counters::{CompactionCounters, Compacts};
pub use emptying::{BlockPlace, EmptyingBlock};
pub use gib::{EmptyingGib, GibPlan, NoGib};
pub use give_back::{COPY_PAYS_AFTER, GiveBack, GiveBackPoll, QUIET};
pub use proactive::{
    NotAProactiveness, PROACTIVE_INTERVAL, PROACTIVE_SHARE, PROACTIVE_SHARED_SLICE,
    PROACTIVE_SLICE, PROACTIVENESS, Proactive, ProactivePoll, Thresholds,
};
pub use score::ZoneFragmentation;
