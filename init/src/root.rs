//! The root file system with the host's files: an overlay of the packed files on the host's tree.

use crate::failure::Failure;
use crate::fuse::{self, Tree};
use crate::host_port::HostPort;
use crate::system::KERNELS_OWN;
use ebb_wire::boot::HOST_NAME;
use rustix::mount::{MountFlags, mount, mount_move};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

/// The folder in which the overlay is prepared. No packed file has this name.
const PLACE: &str = "/.ebb-root";
/// The upper layer: the packed files, and the programs' changes.
const UPPER: &str = "/.ebb-root/upper";
/// The overlay's work folder.
const WORK: &str = "/.ebb-root/work";
/// The lower layer: the host's tree.
const LOWER: &str = "/.ebb-root/lower";
/// The mounted overlay.
const WHOLE: &str = "/.ebb-root/whole";
/// With `redirect_dir`, folders of the host can be renamed. With `metacopy`, a change of a file's
/// mode, owner, time or name does not copy its contents. With `xino`, all files have one device
/// number.
const OPTIONS: &std::ffi::CStr =
    c"lowerdir=/.ebb-root/lower,upperdir=/.ebb-root/upper,workdir=/.ebb-root/work,\
redirect_dir=on,metacopy=on,xino=on";
/// The host's set-id bits and device nodes mean nothing in the guest.
const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Makes the overlay of packed files and the host's tree the root of this process and its children.
/// Fails if a folder cannot be created, a file cannot be moved, a mount fails, or the host does not
/// answer.
pub(crate) fn enter(host_port: &Arc<HostPort>) -> Result<(), Failure> {
    for path in [PLACE, UPPER, WORK, LOWER, WHOLE] {
        fs::DirBuilder::new()
            .mode(0o755)
            .create(path)
            .map_err(|error| Failure::new(format!("make {path}"), error))?;
    }
    move_packed().map_err(|error| Failure::new("set what was packed aside", error))?;
    let tree = Tree::new(host_port.clone())
        .map_err(|errno| Failure::new("ask the host for the root", errno))?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV;
    fuse::mount(tree, "fuse.host", b"host", Path::new(LOWER), flags)?;
    mount("overlay", WHOLE, "overlay", FLAGS, OPTIONS)
        .map_err(|errno| Failure::new("mount the overlay", errno))?;
    for path in KERNELS_OWN {
        let place = format!("{WHOLE}{path}");
        mount_move(path, &place)
            .map_err(|errno| Failure::new(format!("move {path} to {place}"), errno))?;
    }
    let failed = |errno| Failure::new("go to the root", errno);
    rustix::process::chdir(WHOLE).map_err(failed)?;
    mount_move(".", "/").map_err(failed)?;
    rustix::process::chroot(".").map_err(failed)?;
    rustix::process::chdir("/").map_err(failed)
}

/// Moves all packed files to the upper layer. Mount points of the kernel's file systems are created
/// there as empty folders instead. Fails if a file cannot be moved or a folder cannot be created.
fn move_packed() -> std::io::Result<()> {
    for entry in fs::read_dir("/")? {
        let path = entry?.path();
        let kernels = KERNELS_OWN.iter().any(|own| path == Path::new(own));
        if kernels || path == Path::new(PLACE) {
            continue;
        }
        if let Ok(name) = path.strip_prefix("/") {
            fs::rename(&path, Path::new(UPPER).join(name))?;
        }
    }
    for own in KERNELS_OWN {
        fs::DirBuilder::new()
            .mode(0o555)
            .create(format!("{UPPER}{own}"))?;
    }
    Ok(())
}

/// Sets the guest's host name to the one on the kernel's command line, if there is one. Fails if
/// Linux refuses the name.
pub(crate) fn set_host_name(command_line: &str) -> Result<(), Failure> {
    let Some(name) = ebb_wire::boot::value(command_line, HOST_NAME) else {
        return Ok(());
    };
    rustix::system::sethostname(name.as_bytes())
        .map_err(|errno| Failure::new(format!("call the guest {name}"), errno))
}
