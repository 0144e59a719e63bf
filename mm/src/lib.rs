//! The page-frame allocator of Ebb, for kernels, unikernels and VMMs.
//!
//! The crate has three parts that work on the same metadata:
//!
//! - A **lock-free allocator** of 4 KiB page frames. It allocates blocks of order 0 to 10 and whole
//!   GiBs, keeps mobilities apart by pageblock, and supports zones, NUMA nodes and watermarks.
//! - **Free page reporting and hinting**. [`Reporter`] and [`Hinter`] hand ranges of free frames to
//!   a [`ReportSink`], for example a balloon driver, so that the host can use that memory for
//!   others.
//! - The **policy of compaction**. [`Compactor`] selects the pageblocks to empty and the frames to
//!   migrate to. The caller copies the frames and updates the references to them.
//!
//! The crate is `no_std`, needs no `alloc`, and starts no thread. Functions that depend on time get
//! the time as an argument.
//!
//! # Example
//!
//! ```
//! use core::{convert::Infallible, ptr::NonNull, time::Duration};
//! use ebb_mm::{
//!     Allocator, Config, CpuCache, FrameRange, Mobility, Order, ReportSink, Reporter, Request,
//!     ZoneConfig, ZoneKind, metadata_layout,
//! };
//!
//! /// Receives the ranges of free frames. A balloon driver would pass them to the host.
//! struct Host(u64);
//!
//! impl ReportSink for Host {
//!     type Error = Infallible;
//!
//!     fn report(&mut self, ranges: &[FrameRange]) -> Result<(), Infallible> {
//!         self.0 += ranges.iter().map(|range| range.bytes()).sum::<u64>();
//!         Ok(())
//!     }
//! }
//!
//! // One zone: the memory from 1 MiB to 1 GiB.
//! let ranges = [FrameRange::inside(1 << 20, 1023 << 20)];
//! let zones = [ZoneConfig { kind: ZoneKind::Dma32, node: 0, ranges: &ranges }];
//! let config = Config::new(&zones);
//!
//! // The caller provides zeroed metadata: here from the heap, in a kernel from the memory map.
//! let layout = metadata_layout(&config)?;
//! // SAFETY: the layout is not empty.
//! let metadata = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or("no memory")?;
//! // SAFETY: the memory is zeroed, has this layout, is used for nothing else and is never freed.
//! let allocator = unsafe { Allocator::new(metadata, &config, &()) }?;
//! allocator.set_reporting_order(Some(Order::PAGEBLOCK))?;
//!
//! // Each CPU has its own cache of free frames.
//! let mut cache = CpuCache::new();
//! let page = Request::new(Order::BASE, Mobility::Movable);
//! let huge_page = Request::new(Order::PAGEBLOCK, Mobility::Movable);
//! let frame = allocator.allocate(&mut cache, page)?;
//! let huge = allocator.allocate(&mut cache, huge_page)?;
//! assert!(huge.is_aligned(Order::PAGEBLOCK));
//! allocator.free(&mut cache, frame, Order::BASE);
//! allocator.free(&mut cache, huge, Order::PAGEBLOCK);
//! allocator.drain(&mut cache);
//!
//! // A kernel thread polls the reporter. The first poll starts the delay, the second one reports.
//! let (mut reporter, mut host) = (Reporter::new(), Host(0));
//! let poll = reporter.poll(Duration::from_secs(10), &allocator, &mut host);
//! assert_eq!(poll.next, Some(Duration::from_secs(12)));
//! let poll = reporter.poll(Duration::from_secs(12), &allocator, &mut host);
//! assert_eq!(poll.next, None);
//! assert_eq!(host.0, 2 * (2 << 20)); // both pageblocks that were in use
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Main types
//!
//! | type | purpose |
//! |---|---|
//! | [`Config`], [`ZoneConfig`] | the memory to manage |
//! | [`ZoneId`] | a zone, in calls that set or return its values |
//! | [`Allocator`] | allocates and frees; shared by all CPUs |
//! | [`CpuCache`] | the cache of free frames of one CPU, an argument of each allocation and free |
//! | [`Request`] | order, mobility, zone, node and reserve of an allocation |
//! | [`Frame`], [`FrameRange`], [`Order`] | a page frame number, adjacent frames, a block size |
//! | [`Reporter`], [`Hinter`], [`ReportSink`] | give free memory back to the host |
//! | [`Compactor`], [`Proactive`], [`Consolidation`] | what to compact, and when |
//! | [`attach`], [`Reclaimer`] | the host takes free memory out of the guest's allocator itself |
//! | [`view`] | read-only access to the metadata from another address space |
//!
//! # Metadata
//!
//! The caller provides the memory for the metadata. [`metadata_layout`] returns its size and
//! alignment. It must be zero: zero means that all frames are free, were never used, and need no
//! report. So nothing but the header and the edges of ranges is written at boot, and the metadata
//! of memory that is never used stays untouched.
//!
//! All positions are offsets from the start, so a host can map the same bytes at another address.
//! Each array starts at a cache line of 64 bytes. Each box after the header has the arrays of all
//! zones, one zone after the other.
//!
//! ```text
//! offset 0 ┌───────────────────────────────────────────────────────────┐
//!          │ header, one page: magic, version, one record for each zone│
//!          ├───────────────────────────────────────────────────────────┤  bytes per GiB
//!          │ search:                                                   │
//!          │   map        search hints, 32 bits for each 64 MiB, and   │
//!          │              levels of 64 entries each above that         │     65
//!          │   GiB map    search hints, 1 bit for each GiB, and levels │    < 1
//!          │   gibs       4 bytes for each GiB: blocks in use          │      4
//!          │   summaries  8 bytes for each 64 MiB: blocks by class     │    128
//!          ├───────────────────────────────────────────────────────────┤
//!          │ pageblocks:                                               │
//!          │   states     2 bytes for each 2 MiB: frames in use, flags │   1024
//!          │   run_bounds 1 byte for each 2 MiB: limit of free runs    │    512
//!          ├───────────────────────────────────────────────────────────┤
//!          │ bits         64 bytes for each 2 MiB: 1 = frame in use    │  32768
//!          ├───────────────────────────────────────────────────────────┤
//!          │ used         1 byte for each 2 MiB: groups of 64 frames   │    512
//!          │              that were allocated before (optional)        │
//!          ├───────────────────────────────────────────────────────────┤
//!          │ touched      64 bytes for each 2 MiB: frames that the     │  32768
//!          │              host may hold memory for (optional)          │
//!          └───────────────────────────────────────────────────────────┘
//! ```
//!
//! [`Config::with_use_marks`] adds the array `used`, [`Config::with_frame_marks`] the array
//! `touched`.
//!
//! # Cargo features
//!
//! | feature | default | effect |
//! |---|---|---|
//! | `std` | off | debug builds: an undrained [`CpuCache`] panics also where panics unwind |
//! | `x86_64` | off | adds `PageFrames`: the frame allocator traits of the crate `x86_64` |
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

#[cfg(any(test, feature = "std"))]
extern crate std;

mod allocator;
#[cfg(not(ebb_model))]
pub mod attach;
mod bitmap;
mod block;
mod bulk;
mod cached_block;
mod claim;
mod compaction;
mod config;
mod contents;
mod contiguous;
mod cpu_cache;
mod drain;
mod error;
mod estimate;
mod fragmentation;
mod frame;
#[cfg(not(ebb_model))]
mod free_runs;
mod gib;
mod group_cache;
mod header;
mod hinting;
mod hints;
mod hyperlist;
mod ids;
mod isolate;
mod low_memory;
mod lowmem_reserve;
mod map;
mod metadata;
mod mobility;
#[cfg(all(test, ebb_model))]
mod model;
mod node;
mod online;
mod placing;
mod range;
#[cfg(not(ebb_model))]
mod reclaim;
mod refill;
mod report;
mod reporting;
mod request;
mod run_bound;
mod search;
mod shared;
mod shuffle;
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
#[cfg(feature = "x86_64")]
mod x86_64;
mod zone;

pub use allocator::{Allocator, Events};
pub use bulk::{BulkError, FreeBatch};
pub use compaction::{
    BlockPlace, COPY_PAYS_AFTER, CompactionCounters, Compactor, Compacts, Consolidation,
    ConsolidationPoll, Emptied, EmptyingBlock, EmptyingGib, GibPlan, HostPlan, NoGib,
    NotAProactiveness, PROACTIVE_INTERVAL, PROACTIVE_LEFT_OVER, PROACTIVE_SHARED_SLICE,
    PROACTIVE_SLICE, PROACTIVENESS, Plan, Proactive, ProactivePoll, ProactiveSlice, QUIET,
    StuckGibs, Thresholds, ZoneFragmentation,
};
pub use config::{Config, ConfigError, MAX_EXTENTS, MAX_ZONES, ZoneConfig, ZoneKind};
pub use contents::Contents;
pub use contiguous::ContiguousError;
pub use cpu_cache::CpuCache;
pub use error::{AllocError, ClaimError, NotAHintLimit, NotWatermarks, OrderError};
pub use estimate::FreeEstimate;
pub use frame::{FRAME_SIZE, Frame, FrameRange, Order, PAGEBLOCK_FRAMES, PAGEBLOCK_ORDER};
pub use hinting::{HINT_BOUND, HINT_PAUSE, HintCounts, Hinter};
pub use hints::{HINT_ENTRIES, HINT_LIMIT, HintList};
pub use hyperlist::HINT_THRESHOLD_MAX;
pub use ids::ZoneId;
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
pub use take::{OpenGib, TAKE_BLOCKS, TakeError};
pub use validate::Broken;
pub use watermark::{Watermarks, min_free_kbytes};
#[cfg(feature = "x86_64")]
pub use x86_64::PageFrames;

/// Runs the examples of the README as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
