#![doc = include_str!("../README.md")]
#![no_std]
#![warn(missing_docs)]

mod balloon;
mod config;
mod dma;
mod error;
mod features;
mod inflate;
mod negotiate;
mod numbering;
mod page;
mod queue;
mod reporting;
mod stats;

pub use balloon::{Balloon, Work};
pub use config::{FreePages, Options};
pub use error::{BalloonError, ConfigError, DeviceFault, QueueName, ResetTimeout, SetupError};
pub use features::Features;
pub use inflate::{PFNS_PER_REQUEST, Progress, Stop};
pub use page::{PAGE_SIZE, PageSource, Pfn};
pub use reporting::{
    MAX_RANGES, RangeError, ReportBatch, ReportError, Reported, ReportingUnavailable,
};
pub use stats::{STAT_TAGS, Stats};

pub use virtio_drivers;
