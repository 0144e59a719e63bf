//! `/proc/PID/mounts` and `mountinfo`: the same for all.

use crate::fs::devices;
use crate::fs::mounts::{self, Mount};
use crate::fs::text::Text;
use crate::fs::volume::MountFlags;
use alloc::sync::Arc;
use alloc::vec::Vec;
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

fn list(text: &mut Text) -> core::result::Result<Vec<Arc<Mount>>, core::fmt::Error> {
    mounts::all().map_err(|error| text.fail(error))
}

fn write_access(text: &mut Text, mount: &Mount) -> Result {
    let read_only = mount.flags().contains(MountFlags::READ_ONLY);
    text.write_str(if read_only { "ro" } else { "rw" })
}

fn write_flags(text: &mut Text, mount: &Mount, names: &[(MountFlags, &str)]) -> Result {
    let flags = mount.flags();
    let mut set = names.iter().filter(|(flag, _)| flags.contains(*flag));
    set.try_for_each(|(_, name)| text.write_str(name))
}

fn write_source(text: &mut Text, mount: &Mount) -> Result {
    if mount.source().is_empty() {
        return text.write_str("none");
    }
    text.push_escaped(mount.source(), SPECIAL[1])
}

pub(super) fn mounts(text: &mut Text) -> Result {
    for mount in &list(text)? {
        write_source(text, mount)?;
        text.write_str(" ")?;
        text.push_escaped(&mount.path(), SPECIAL[0])?;
        write!(text, " {} ", mount.kind())?;
        write_access(text, mount)?;
        write_flags(text, mount, OF_FILE_SYSTEM)?;
        write_flags(text, mount, OF_MOUNT)?;
        mount.show_options(text)?;
        writeln!(text, " 0 0")?;
    }
    Ok(())
}

pub(super) fn mountinfo(text: &mut Text) -> Result {
    for mount in &list(text)? {
        // A file system is mounted once, so the number of its device is the mount's too.
        let number = |device| devices::parts(device).1;
        let (own, above) = (number(mount.device()), number(mount.device_above()));
        write!(text, "{own} {above} 0:{own} / ")?;
        text.push_escaped(&mount.path(), SPECIAL[0])?;
        text.write_str(" ")?;
        write_access(text, mount)?;
        write_flags(text, mount, OF_MOUNT)?;
        write!(text, " - {} ", mount.kind())?;
        write_source(text, mount)?;
        text.write_str(" ")?;
        write_access(text, mount)?;
        write_flags(text, mount, OF_FILE_SYSTEM)?;
        mount.show_options(text)?;
        writeln!(text)?;
    }
    Ok(())
}
