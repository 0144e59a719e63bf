#![doc = include_str!("../README.md")]
//!
//! ## Types
//!
//! | item | purpose |
//! |---|---|
//! | [`Balloon`] | the driver of one device; start here |
//! | [`Options`], [`FreePages`] | the choices of the driver's owner at the start |
//! | [`Features`] | the feature bits that driver and device have agreed on |
//! | [`Work`] | the events that an interrupt, or polling, has found |
//! | [`PageSource`] | the guest's allocator as the driver sees it |
//! | [`OwnedPage`], [`Ballooned`] | a page of the guest, and one that the device has |
//! | [`Pfn`] | the number of a page |
//! | [`Progress`], [`Stop`] | the result of [`Balloon::step`] |
//! | [`Exchange`] | an exchange of pages of the balloon for others |
//! | [`ReportBatch`], [`RangeError`] | the ranges of one free page report |
//! | [`ReturnedRanges`] | the ranges of a report that the device has finished |
//! | [`Reported`], [`ReportError`], [`ReportingUnavailable`] | the result of a report |
//! | [`Stats`] | the guest's memory statistics |
//! | [`SetupError`], [`BalloonError`], [`DeviceFault`] | errors at the start and later |
#![no_std]
#![warn(missing_docs)]

mod balloon;
mod batch;
mod config;
mod dma;
mod error;
mod exchange;
mod features;
mod inflate;
mod negotiate;
mod numbering;
mod page;
mod queue;
mod report_queue;
mod reporting;
mod stats;
mod stats_queue;
mod transfer;

pub use balloon::{Balloon, Work};
pub use batch::{MAX_RANGES, RangeError, ReportBatch, ReturnedRanges};
pub use config::{FreePages, Options};
pub use error::{BalloonError, ConfigError, DeviceFault, QueueName, ResetTimeout, SetupError};
pub use exchange::Exchange;
pub use features::Features;
pub use inflate::{Progress, Stop};
pub use page::{Ballooned, OwnedPage, PAGE_SIZE, PageSource, Pfn};
pub use report_queue::{ReportError, Reported, ReportingUnavailable};
pub use stats::{STAT_TAGS, Stats};
pub use transfer::PFNS_PER_REQUEST;

pub use virtio_drivers;
