//! The vhost-user-blk transport. QEMU and cloud-hypervisor connect by a Unix socket and pass the
//! guest's memory and its virtqueues. The guest and the back-end then exchange requests without
//! them.
//!
//! * [`chain`]: parses descriptor chains into requests. Data is copied before it is checked.
//! * [`queues`]: the virtqueues of a device, as a source of requests
//!   ([`crate::request::Transport`]).
//! * [`inflight`]: the log of requests under way, in memory that outlives this process.
//! * `channel`: the socket. No call blocks on the front-end.
//! * `inbox`: messages that were received and wait for their disk.
//! * `reader`: the thread that reads the sockets of busy disks.
//! * `session`: the protocol. Only types are used from the `vhost` crate. Its own handler blocks on
//!   front-ends, and for ever if a message's descriptors do not fit.
//! * [`device`]: the handlers of the protocol's messages.
//! * [`config`]: the configuration space.
//! * [`dirty`]: the log of written pages, for a front-end that migrates its guest.
//! * [`counter`]: interrupts writes to event counters that a front-end has made block.
//! * [`budget`]: limits on the guest memory that one disk, and all disks of a process, may map.
//! * [`truncated`]: handles guest memory whose file the front-end makes shorter.

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
