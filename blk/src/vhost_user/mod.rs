//! The vhost-user-blk door: QEMU and cloud-hypervisor connect by a Unix socket, hand over the
//! guest's memory and its virtqueues, and are out of the way from then on.
//!
//! * [`chain`]: a descriptor chain becomes a request; everything is copied before it is checked.
//! * [`queues`]: the virtqueues as a [`crate::request::Door`].
//! * [`inflight`]: which requests are under way, in memory that outlives this process.
//! * `channel`: the socket; nothing that a front-end sends, or does not, is waited for.
//! * `inbox`: messages that were received and wait for their disk.
//! * `reader`: the thread that empties the sockets of disks that are busy.
//! * `session`: the protocol. Of the `vhost` crate only the types are used: its own handler waits
//!   for front-ends, for ever where descriptors find no room.
//! * [`device`]: what the messages of the protocol do.
//! * [`config`]: the configuration space.
//! * [`dirty`]: which pages were written, for a front-end that migrates its guest.
//! * [`counter`]: a front-end that has a write to its event counter block harms itself alone.
//! * [`budget`]: guest memory that one disk, and all of a process, may map.
//! * [`truncated`]: a front-end that cuts the file of its guest's memory harms itself alone.

pub mod budget;
pub mod chain;
pub(crate) mod channel;
pub mod config;
pub mod counter;
pub mod device;
pub mod dirty;
pub(crate) mod inbox;
pub mod inflight;
pub mod queues;
pub(crate) mod reader;
pub(crate) mod session;
pub mod truncated;
