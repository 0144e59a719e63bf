//! Reclaims memory of a guest from the host. The host owns the guest's RAM and takes part in the
//! guest's allocator through the same atomic words. So it can take free pageblocks without asking
//! the guest.
//!
//! `ebb_mm::Reclaimer` selects the next blocks. This module maps the allocator's memory, punches
//! holes and waits. It also asks a guest for more memory than is free.

mod delay;
mod descriptors;
mod engine;
mod error;
mod partial_blocks;
mod pause_watcher;
mod queue;
mod ram_lock;
mod squeeze;
mod worker;

pub(crate) use engine::{FreeMemory, Reclaimed};
pub(crate) use pause_watcher::PauseWatcher;
pub(crate) use queue::{ReclaimQueue, ReclaimTargets, steps, stopped_reason};
pub(crate) use squeeze::{Wanted, deflate, squeeze};
pub(crate) use worker::serve;
