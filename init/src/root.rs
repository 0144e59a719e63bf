//! The host's files below the guest's own: an overlay whose lower side is the host's tree, and whose upper one what was packed.

use crate::desk::Desk;
use crate::failure::Failure;
use crate::fuse::{self, Tree};
use crate::system::KERNELS_OWN;
use ebb_wire::boot::HOST_NAME;
use rustix::mount::{MountFlags, mount, mount_move};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

/// Where it is put together: nothing that is packed has this name.
const PLACE: &str = "/.ebb-root";
/// What was packed, and what programs change.
const UPPER: &str = "/.ebb-root/upper";
/// For the overlay itself.
const WORK: &str = "/.ebb-root/work";
/// The host's.
const LOWER: &str = "/.ebb-root/lower";
/// Both.
const WHOLE: &str = "/.ebb-root/whole";
/// With `redirect_dir` folders of the host's can be renamed, and with `metacopy` another mode, owner, time or name of a file copies
/// none of its bytes. `xino` has all files be of one device.
const OPTIONS: &std::ffi::CStr =
    c"lowerdir=/.ebb-root/lower,upperdir=/.ebb-root/upper,workdir=/.ebb-root/work,\
redirect_dir=on,metacopy=on,xino=on";
/// Neither the host's set-id bits nor its device nodes mean anything in the guest.
const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Has this process, and with it all others, see the host's tree below its root.
pub(crate) fn enter(desk: &Arc<Desk>) -> Result<(), Failure> {
    for path in [PLACE, UPPER, WORK, LOWER, WHOLE] {
        fs::DirBuilder::new()
            .mode(0o755)
            .create(path)
            .map_err(|error| Failure::new(format!("make {path}"), error))?;
    }
    move_packed().map_err(|error| Failure::new("set what was packed aside", error))?;
    let tree = Tree::new(desk.clone())
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

/// Moves all that is in the first file system, but for what others are mounted on, of which there is a folder.
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

/// Calls the guest what the kernel's command line says, if it does.
pub(crate) fn set_host_name(command_line: &str) -> Result<(), Failure> {
    let Some(name) = ebb_wire::boot::value(command_line, HOST_NAME) else {
        return Ok(());
    };
    rustix::system::sethostname(name.as_bytes())
        .map_err(|errno| Failure::new(format!("call the guest {name}"), errno))
}
