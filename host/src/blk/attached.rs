//! The disks of one `ebb run`, served by threads of this process until the guest ends.

use super::disk::{ImageArgument, found, refusal};
use super::not_watched;
use crate::failure::Failure;
use ebb_blk::image::Spec;
use ebb_blk::messages::print;
use ebb_blk::server::{Disk, Options, Server};
use rustix::fd::OwnedFd;
use std::fmt;
use std::sync::Arc;

/// The maximum number of disks of a guest: the free device slots on the board that has the fewest.
pub(crate) const DISKS_MAX: usize = 4;

/// A guest's disks and the server that serves them. Each start of the guest's VM opens new
/// connections to them.
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
    /// Opens the images that the user named. `images` is in the order of the guest's disks; the
    /// first is `/dev/vda`. If there are any, starts watching the host's memory pressure, and
    /// writes a warning to stderr if that fails. Serves nothing yet.
    ///
    /// Fails if there are more than [`DISKS_MAX`], or if an image is not found.
    pub(crate) fn new(images: &[ImageArgument]) -> Result<Self, Failure> {
        if images.len() > DISKS_MAX {
            let asked = images.len();
            return Err(Failure::Usage(format!(
                "{asked} disks are too many: a guest has up to {DISKS_MAX}"
            )));
        }
        let name = |index: usize| format!("disk{index}");
        let disk = |(index, image): (usize, &ImageArgument)| {
            Ok(Disk {
                name: name(index),
                spec: found(&image.spec)?,
                settings: image.settings.clone(),
            })
        };
        let mut server = Server::new(Options::default());
        if !images.is_empty()
            && let Err(error) = server.watch_memory()
        {
            print(format_args!("{}", not_watched(&error)));
        }
        let disks: Result<_, Failure> = images.iter().enumerate().map(disk).collect();
        Ok(Self {
            disks: disks?,
            server: Arc::new(server),
        })
    }

    /// Returns the images in the order of the disks. The location of a file or block device is
    /// `Location::Found`, with a descriptor opened with `O_PATH`. A RAM disk has no descriptor.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Spec> {
        self.disks.iter().map(|disk| &disk.spec)
    }

    /// Returns the server of the disks, or `None` if the guest has no disks.
    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        (!self.disks.is_empty()).then(|| self.server.clone())
    }

    /// Starts serving all disks to a new VM. Returns one socket per disk, in the disks' order, for
    /// QEMU to inherit. Fails if an image cannot be used; the sockets of the disks before it are
    /// closed.
    pub(crate) fn attach(&self) -> Result<Vec<OwnedFd>, Failure> {
        let attach = |disk: &Disk| match self.server.attach(disk) {
            Ok(socket) => Ok(OwnedFd::from(socket)),
            Err(error) => Err(Failure::Disk(refusal(&error, &disk.spec))),
        };
        self.disks.iter().map(attach).collect()
    }
}
