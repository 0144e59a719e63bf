//! Devices.

pub mod balloon;
pub mod control;
pub mod port;
