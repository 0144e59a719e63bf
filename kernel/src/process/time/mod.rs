//! Timers, clocks, and the setting of the wall clock.

mod clock_thread;
pub mod clocks;
pub(crate) mod cpu_timers;
pub(crate) mod posix;
pub mod process_timers;
pub mod steering;
pub mod values;
pub mod wall;
