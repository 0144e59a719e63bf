//! Guests: the kernels that they can run, what those kernels need, and what a running guest
//! reports.
//!
//! `kernel` and `running` define the interfaces that `ebb` and `linux` implement. Only `choice`
//! knows both implementations.

mod choice;
mod ebb;
mod kernel;
mod linux;
mod oom;
mod running;
mod sample;
mod stage;

pub(crate) use choice::{KernelError, load, memory_min};
pub(crate) use ebb::ImageError;
#[cfg(test)]
pub(crate) use ebb::{EbbGuest, Header};
pub(crate) use kernel::{BootLimits, BootOptions, Extras, Kernel};
pub(crate) use linux::{
    CacheError, FormatError as LinuxFormatError, InitError, LinuxKernelError, Stock, StockError,
    load_init,
};
pub(crate) use oom::{Killed, OomKills};
pub(crate) use running::{Complaint, Guest, Metadata};
pub(crate) use sample::{HugePages, Sample, Stop};
pub(crate) use stage::{Stage, WaitStatus};
