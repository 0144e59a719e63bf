//! Timers, and the C library's views of time.

mod clock_thread;
pub mod clocks;
pub(crate) mod cpu_timers;
pub(crate) mod posix;
pub mod process_timers;
pub mod steering;
pub mod values;
pub mod wall;
