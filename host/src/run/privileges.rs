//! Decides which of root's privileges a run keeps if root starts it.

use super::options::RunOptions;
use super::out::Outs;
use super::root::RootChoice;
use super::volumes::VolumeOption;
use crate::blk::Disks;
use crate::confine::{Privileges, QemuSandbox};
use crate::system::opened::own_path;
use ebb_blk::image::Location;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the privileges of root that a run needs: to read or write files of other users, and to
/// change QEMU's user. Looks at the owners of the working directory, the disks and the destinations
/// of `outs`. A file that cannot be examined counts as another user's.
pub(super) fn needed(
    options: &RunOptions,
    volumes: &[VolumeOption],
    outs: Option<&Outs>,
    disks: &Disks,
    sandbox: &QemuSandbox,
) -> Privileges {
    let shows_others = match options.root() {
        RootChoice::Nothing => false,
        // Links in the directory or image may lead to files of other users.
        RootChoice::Path(_) => true,
        RootChoice::Host => std::env::current_dir().is_ok_and(|here| is_anothers(&here)),
    };
    let disks = disks.images().map(|image| match &image.location {
        Location::Path(path) => is_anothers(path),
        Location::Found { file, .. } => is_anothers(Path::new(&own_path(&*file.0))),
        Location::Ram { .. } => false,
    });
    Privileges {
        reads: shows_others || !volumes.is_empty(),
        writes: volumes.iter().any(|volume| !volume.read_only)
            || outs.is_some_and(Outs::go_to_others)
            || disks.into_iter().any(|is_anothers| is_anothers),
        changes_user: sandbox.changes_user(),
    }
}

/// Returns whether the file at `path` belongs to another user than root. Returns `true` if it
/// cannot be looked at.
fn is_anothers(path: &Path) -> bool {
    path.metadata().map_or(true, |file| file.uid() != 0)
}
