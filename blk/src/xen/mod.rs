//! The Xen blkif door: front-ends in other domains, by `/dev/xen/xenbus`, `/dev/xen/gntdev` and
//! `/dev/xen/evtchn`, without Xen's libraries.
//!
//! * [`device`], [`state`]: what both ends tell each other in xenstore, and what follows from it.
//! * [`ring`], [`rings`]: shared rings, and all of a disk's as a [`crate::request::Door`].
//! * [`protocol`]: requests as bytes, in the layouts of 64-bit and 32-bit front-ends.
//! * [`front`]: the other half, for tests and the laboratory.
//! * [`payload`], [`persistent`]: granted memory, copied into pages of the pool by the hypervisor,
//!   or mapped as long as the front-end agrees.
//! * [`xenbus`], [`gntdev`], [`evtchn`]: the devices; [`store`], [`grants`]: what is asked of them.

pub mod device;
pub mod evtchn;
#[cfg(all(test, not(loom)))]
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

/// Opens a device of Xen's, by a name that an error tells.
fn open_device(path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    open(path, flags, Mode::empty()).map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("{path}: {error}"))
    })
}
