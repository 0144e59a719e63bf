//! Virtio devices: how they are found, and the queues whose buffers a device reads and writes.
//!
//! A queue here owns the memory of a buffer from the moment the device gets it until the device
//! has given it back. Devices are not trusted: a queue is not used any more if its device gives
//! back a buffer that it does not have.
//!
//! - [`found`]: the devices on the bus, each for a driver to take.
//! - [`send`]: bytes to the host. [`receive`]: bytes from it.
//! - [`requests`]: the requests of a disk, on [`data`].
//! - `hal`, `pci`: what the crate `virtio-drivers` needs from the machine.

#![allow(clippy::cast_possible_truncation, reason = "usize has 64 bits here")]

pub mod data;
pub mod found;
mod hal;
mod pci;
pub mod receive;
pub mod requests;
pub mod send;

pub use hal::Platform;
