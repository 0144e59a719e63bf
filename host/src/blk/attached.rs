//! The disks of one `ebb run`: served by threads of this process, ended with the guest.

use super::disk::found;
use crate::failure::Failure;
use ebb_blk::image::Spec;
use ebb_blk::server::{Disk, Options, Server};
use rustix::fd::OwnedFd;
use std::fmt;
use std::sync::Arc;

/// Slots for them beside a guest's own devices, on the board that has the fewest.
pub(crate) const DISKS_MAX: usize = 4;

/// A guest's disks. Each start of its VM attaches them anew.
pub(crate) struct Disks {
    disks: Vec<Disk>,
    server: Arc<Server>,
}

impl fmt::Debug for Disks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.disks).finish()
    }
}

impl Disks {
    /// The images that the user named, in order: the first is `/dev/vda`.
    pub(crate) fn new(images: &[Spec]) -> Result<Self, Failure> {
        if images.len() > DISKS_MAX {
            let asked = images.len();
            return Err(Failure::Usage(format!(
                "{asked} disks are too many: a guest has up to {DISKS_MAX}"
            )));
        }
        let name = |index: usize| format!("disk{index}");
        let disk = |(index, spec): (usize, &Spec)| {
            Ok(Disk {
                name: name(index),
                spec: found(spec)?,
            })
        };
        let mut server = Server::new(Options::default());
        if !images.is_empty() {
            server.watch_memory().map_err(|source| Failure::Setup {
                what: "memory pressure",
                source,
            })?;
        }
        let disks: Result<_, Failure> = images.iter().enumerate().map(disk).collect();
        Ok(Self {
            disks: disks?,
            server: Arc::new(server),
        })
    }

    /// The images, found.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Spec> {
        self.disks.iter().map(|disk| &disk.spec)
    }

    /// Who can be asked about them, if there are any.
    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        (!self.disks.is_empty()).then(|| self.server.clone())
    }

    /// The front-end's ends of the disks' sockets, for a QEMU that is about to start.
    pub(crate) fn attach(&self) -> Result<Vec<OwnedFd>, Failure> {
        let attach = |disk| self.server.attach(disk).map(OwnedFd::from);
        let sockets: Result<_, _> = self.disks.iter().map(attach).collect();
        sockets.map_err(|error| Failure::Disk(error.to_string()))
    }
}
