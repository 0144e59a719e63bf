//! The page-frame manager of Ebb: a lock-free allocator of 4 KiB frames for kernels and VMMs, and
//! the free page reporting that gives unused frames back to the host.
//!
//! `no_std` without `alloc`: the caller hands in the metadata, which must be zero. Zero means
//! "everything free, never touched, nothing to report", so nothing is written at boot and memory
//! that is never used has metadata that is never touched.
//!
//! Start at [`Allocator`]; [`Front`] is what each CPU holds, [`Reporter`] gives memory back, and
//! [`view`] is how another address space reads the metadata.
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(
    ebb_model,
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "models use a part of the crate"
    )
)]

#[cfg(test)]
extern crate std;

mod allocator;
#[cfg(not(ebb_model))]
pub mod attach;
mod bitmap;
mod block;
mod bulk;
mod claim;
mod compaction;
mod config;
mod contents;
mod contiguous;
mod drain;
mod error;
mod estimate;
mod fragmentation;
mod frame;
mod front;
mod giant;
mod header;
mod hinting;
mod hints;
mod hub;
mod hyperlist;
mod isolate;
mod kept;
mod low_memory;
mod lowmem_reserve;
mod map;
mod metadata;
mod mobility;
#[cfg(all(test, ebb_model))]
mod model;
mod node;
mod online;
#[cfg(not(ebb_model))]
mod pieces;
mod placing;
mod range;
mod reach;
#[cfg(not(ebb_model))]
mod reclaim;
mod refill;
mod report;
mod reporting;
mod request;
mod search;
mod state;
mod stats;
mod summary;
mod sync;
#[cfg(not(ebb_model))]
mod take;
#[cfg(not(ebb_model))]
mod usage;
mod validate;
#[cfg(not(ebb_model))]
pub mod view;
mod watermark;
mod whole;
mod words;
#[cfg(feature = "x86_64")]
mod x86_64;
mod zone;

pub use allocator::{Allocator, Events};
pub use bulk::{BulkError, FreeBatch};
pub use compaction::{
    BlockPlace, COPY_PAYS_AFTER, CompactionCounters, Compactor, Compacts, Emptied, EmptyingBlock,
    EmptyingGiant, GiantPlan, GiveBack, GiveBackPoll, NoGiant, NotAProactiveness,
    PROACTIVE_INTERVAL, PROACTIVE_SHARE, PROACTIVE_SHARED_SLICE, PROACTIVE_SLICE, PROACTIVENESS,
    Plan, Proactive, ProactivePoll, QUIET, Thresholds, ZoneFragmentation,
};
pub use config::{Config, ConfigError, MAX_EXTENTS, MAX_ZONES, ZoneConfig, ZoneKind};
pub use contents::Contents;
pub use contiguous::ContiguousError;
pub use error::{AllocError, ClaimError, NotAHintLimit, NotWatermarks, OrderError};
pub use estimate::FreeEstimate;
pub use frame::{FRAME_SIZE, Frame, FrameRange, Order, PAGEBLOCK_FRAMES, PAGEBLOCK_ORDER};
pub use front::Front;
pub use hinting::{HINT_BOUND, HINT_PAUSE, HintCounts, Hinter};
pub use hints::{HINT_ENTRIES, HINT_LIMIT, HintList};
pub use hyperlist::HINT_THRESHOLD_MAX;
pub use isolate::{IsolatedBlock, PutBack};
pub use lowmem_reserve::DMA_RESERVE_RATIO;
pub use metadata::metadata_layout;
pub use mobility::Mobility;
pub use node::{MAX_NODES, NodePolicy};
pub use online::OnlineError;
pub use range::RangeError;
#[cfg(not(ebb_model))]
pub use reclaim::{Reclaimer, Step, StepEnd};
pub use report::{REQUEST_FRAMES, REQUEST_RANGES};
pub use reporting::{Poll, REPORTING_DELAY, ReportSink, Reporter};
pub use request::{Request, Reserve};
pub use stats::{FreeAreas, Stats, ZoneStats};
#[cfg(not(ebb_model))]
pub use take::{OpenGiant, TAKE_BLOCKS, TakeError};
pub use validate::Broken;
pub use watermark::{Watermarks, min_free_kbytes};
#[cfg(feature = "x86_64")]
pub use x86_64::PageFrames;

/// The example of the README, which must compile and hold.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
