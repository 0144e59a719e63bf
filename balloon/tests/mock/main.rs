//! The driver against a device model that runs in the test: each queue, each combination of
//! features, and faulty devices.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and knows its numbers"
)]

mod device;
mod guest;
mod hal;
mod transport;

mod cost;
mod deflating;
mod exchanging;
mod hostile;
mod inflating;
mod model;
mod ownership;
mod reporter;
mod reporting;
mod setup;
mod statistics;
