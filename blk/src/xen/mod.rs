//! The Xen blkif transport. Its front-ends are in other domains. It uses `/dev/xen/xenbus`,
//! `/dev/xen/gntdev` and `/dev/xen/evtchn`, without Xen's libraries.
//!
//! * [`device`], [`state`]: the entries and states of both ends in xenstore, and the actions they
//!   require.
//! * [`ring`], [`rings`]: one shared ring, and all rings of a disk as a source of requests
//!   ([`crate::request::Transport`]).
//! * [`protocol`]: requests as bytes, in the layouts of 64-bit and 32-bit front-ends.
//! * [`front`]: the front-end's half, for tests and the laboratory.
//! * [`payload`], [`persistent`]: granted memory, which the hypervisor copies from and to pages of
//!   the pool, or which stays mapped if the front-end agrees.
//! * [`xenbus`], [`gntdev`], [`evtchn`]: Xen's devices. [`store`] and [`grants`] are their
//!   interfaces.

pub mod device;
pub mod evtchn;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
pub(crate) mod fake;
pub mod front;
pub mod gntdev;
pub mod grants;
pub mod payload;
pub mod persistent;
pub mod protocol;
pub mod ring;
pub mod rings;
pub mod state;
pub mod store;
pub mod xenbus;

use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::OwnedFd;

/// Opens a device of Xen's. Errors name its path.
fn open_device(path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    open(path, flags, Mode::empty()).map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("{path}: {error}"))
    })
}
