//! Timers, and the C library's views of time.
