//! The vhost-user-blk door: QEMU and cloud-hypervisor connect by a Unix socket, hand over the
//! guest's memory and its virtqueues, and are out of the way from then on.
//!
//! * [`chain`]: a descriptor chain becomes a request; everything is copied before it is checked.
//! * [`queues`]: the virtqueues as a [`crate::request::Door`].
//! * [`inflight`]: which requests are under way, in memory that outlives this process.
//! * [`device`]: the protocol. The `vhost` crate reads its messages; `vhost-user-backend` on top
//!   of it is not used, for it knows no in-flight memory and polls without a timeout.
//! * [`config`]: the configuration space.
//! * [`dirty`]: which pages were written, for a front-end that migrates its guest.
//! * [`truncated`]: a front-end that cuts the file of its guest's memory harms itself alone.

pub mod chain;
pub mod config;
pub mod device;
pub mod dirty;
pub mod inflight;
pub mod queues;
pub mod truncated;
