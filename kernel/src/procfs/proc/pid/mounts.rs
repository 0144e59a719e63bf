//! `/proc/PID/mounts`, `mountinfo` and `mountstats`: the mounts below the process's root
//! directory.

use crate::fs::devices;
use crate::fs::mounts::{self, Mount};
use crate::fs::node::NodeRef;
use crate::fs::text::Text;
use crate::fs::viewpoint::Viewpoint;
use crate::fs::volume::MountFlags;
use core::fmt::{Result, Write};

/// What Linux escapes in a path, and in a source.
const SPECIAL: [&[u8]; 2] = [b" \t\n", b" \t\n#"];

/// Options that Linux shows as those of the file system, and as those of the mount.
const OF_FILE_SYSTEM: &[(MountFlags, &str)] = &[
    (MountFlags::SYNCHRONOUS, ",sync"),
    (MountFlags::SYNCHRONOUS_NAMES, ",dirsync"),
];
const OF_MOUNT: &[(MountFlags, &str)] = &[
    (MountFlags::NO_SET_ID, ",nosuid"),
    (MountFlags::NO_DEVICES, ",nodev"),
    (MountFlags::NO_EXECUTION, ",noexec"),
    (MountFlags::NO_ACCESS_TIMES, ",noatime"),
    (MountFlags::NO_LISTING_TIMES, ",nodiratime"),
    (MountFlags::RELATIVE_TIMES, ",relatime"),
];

/// Calls `each` with every mount below `root`, the root directory of a process, and the path at
/// which the process sees it. Fails with the error of `each`, and if memory is short.
fn for_each(
    text: &mut Text,
    root: &NodeRef,
    mut each: impl FnMut(&mut Text, &Mount, &[u8]) -> Result,
) -> Result {
    let view = Viewpoint::of(root);
    let all = mounts::all().map_err(|error| text.fail(error))?;
    for mount in &all {
        let path = mount.path();
        if let Some(path) = view.see(&path) {
            each(text, mount, path)?;
        }
    }
    Ok(())
}

fn write_access(text: &mut Text, flags: MountFlags) -> Result {
    let read_only = flags.contains(MountFlags::READ_ONLY);
    text.write_str(if read_only { "ro" } else { "rw" })
}

fn write_flags(text: &mut Text, flags: MountFlags, names: &[(MountFlags, &str)]) -> Result {
    let mut set = names.iter().filter(|(flag, _)| flags.contains(*flag));
    set.try_for_each(|(_, name)| text.write_str(name))
}

fn write_source(text: &mut Text, mount: &Mount) -> Result {
    if mount.source().is_empty() {
        return text.write_str("none");
    }
    text.push_escaped(mount.source(), SPECIAL[1])
}

/// Writes the text of `/proc/PID/mounts` to `text`: the mounts that are visible from the root
/// directory `root`. Fails only if `text` is full or memory is short.
pub(super) fn mounts(text: &mut Text, root: &NodeRef) -> Result {
    for_each(text, root, |text, mount, path| {
        write_source(text, mount)?;
        text.write_str(" ")?;
        text.push_escaped(path, SPECIAL[0])?;
        write!(text, " {} ", mount.kind())?;
        write_access(text, mount.flags() | mount.fs_flags())?;
        write_flags(text, mount.fs_flags(), OF_FILE_SYSTEM)?;
        write_flags(text, mount.flags(), OF_MOUNT)?;
        mount.show_options(text)?;
        writeln!(text, " 0 0")
    })
}

/// Writes the text of `/proc/PID/mountinfo` to `text`, as [`mounts()`] does.
pub(super) fn mountinfo(text: &mut Text, root: &NodeRef) -> Result {
    for_each(text, root, |text, mount, path| {
        let (own, above) = (mount.number(), mount.number_above());
        let (_, minor) = devices::parts(mount.device());
        write!(text, "{own} {above} 0:{minor} ")?;
        text.push_escaped(&mount.root_path(), SPECIAL[0])?;
        text.write_str(" ")?;
        text.push_escaped(path, SPECIAL[0])?;
        text.write_str(" ")?;
        write_access(text, mount.flags())?;
        write_flags(text, mount.flags(), OF_MOUNT)?;
        write!(text, " - {} ", mount.kind())?;
        write_source(text, mount)?;
        text.write_str(" ")?;
        write_access(text, mount.fs_flags())?;
        write_flags(text, mount.fs_flags(), OF_FILE_SYSTEM)?;
        mount.show_options(text)?;
        writeln!(text)
    })
}

/// Writes the text of `/proc/PID/mountstats` to `text`, as [`mounts()`] does.
pub(super) fn mountstats(text: &mut Text, root: &NodeRef) -> Result {
    for_each(text, root, |text, mount, path| {
        text.write_str("device ")?;
        write_source(text, mount)?;
        text.write_str(" mounted on ")?;
        text.push_escaped(path, SPECIAL[0])?;
        writeln!(text, " with fstype {}", mount.kind())
    })
}
