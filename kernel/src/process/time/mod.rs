//! Timers, and the C library's views of time.

pub mod clocks;
pub(crate) mod cpu_timers;
pub(crate) mod posix;
pub mod process_timers;
pub mod values;
