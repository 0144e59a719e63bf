//! Compaction makes whole free pageblocks out of scattered free frames: it migrates the frames in
//! use of the emptiest pageblocks into the fullest.
//!
//! This module has the policy: what to empty ([`Compactor`]), when to do it in advance
//! ([`Proactive`]), and when to do it for the host ([`Consolidation`]). The caller copies the
//! frames and updates the references to them.

mod compactor;
mod consolidation;
mod counters;
mod emptying;
#[cfg(all(test, ebb_model))]
mod emptying_model;
mod gain;
mod gib;
mod proactive;
mod scan;
mod score;
mod stuck;
mod targets;

pub use compactor::{Compactor, Emptied, Plan};
pub use consolidation::{COPY_PAYS_AFTER, Consolidation, ConsolidationPoll, QUIET};
pub use counters::{CompactionCounters, Compacts};
pub use emptying::{BlockPlace, EmptyingBlock};
pub use gain::HostPlan;
pub use gib::{EmptyingGib, GibPlan, NoGib, StuckGibs};
pub use proactive::{
    NotAProactiveness, PROACTIVE_INTERVAL, PROACTIVE_LEFT_OVER, PROACTIVE_SHARED_SLICE,
    PROACTIVE_SLICE, PROACTIVENESS, Proactive, ProactivePoll, ProactiveSlice, Thresholds,
};
pub use score::ZoneFragmentation;
