//! `/proc/PID/mounts` and `mountinfo`: the same for all, and for good.

use crate::fs::text::Text;
use core::fmt::{Result, Write};

/// Device number, mount point, type, options.
const MOUNTS: [(u64, &str, &str, &str); 5] = [
    (1, "/", "tmpfs", "rw,relatime"),
    (2, "/tmp", "tmpfs", "rw,relatime"),
    (3, "/dev", "devtmpfs", "rw,relatime"),
    (4, "/proc", "proc", "rw,relatime"),
    (5, "/sys", "sysfs", "rw,relatime"),
];

pub(super) fn mounts(text: &mut Text) -> Result {
    for (_, point, kind, options) in MOUNTS {
        writeln!(text, "{kind} {point} {kind} {options} 0 0")?;
    }
    Ok(())
}

pub(super) fn mountinfo(text: &mut Text) -> Result {
    for (device, point, kind, options) in MOUNTS {
        let above = if device == 1 { 0 } else { 1 };
        writeln!(
            text,
            "{device} {above} 0:{device} / {point} {options} - {kind} {kind} rw"
        )?;
    }
    Ok(())
}
