//! Chooses the QEMU program that runs a guest.

use crate::machine::Machine;
use crate::system::search_path;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name that distributions give to the complete QEMU.
const FULL: &str = "qemu-system-x86_64";
/// A QEMU of some distributions with KVM, the machine `microvm`, few devices and few libraries. It
/// uses about a third less memory.
const SMALL: &str = "qemu-system-x86_64-microvm";

/// The QEMU programs that can run a guest: the complete one, and perhaps a smaller one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Programs {
    /// Runs every guest.
    pub(crate) any: PathBuf,
    /// Uses less memory. To be preferred on KVM if the guest boots on it. `None` if it is not
    /// installed or lacks what the guest needs.
    pub(crate) small: Option<PathBuf>,
}

impl Programs {
    /// Finds the programs for a guest on `machine`. `any` is `asked`, the user's choice, or
    /// `qemu-system-x86_64`, whose existence is not checked. `small` is the QEMU for microvm if it
    /// is in `PATH`. It is `None` with `asked`, on another machine, or if the guest has `disks`.
    pub(crate) fn new(asked: Option<&Path>, machine: Machine, disks: bool) -> Self {
        let small = match (asked, machine) {
            // The small QEMU has no vhost-user device for disks.
            (None, Machine::Microvm) if !disks => search_path(OsStr::new(SMALL)),
            _ => None,
        };
        Self {
            any: asked.unwrap_or_else(|| Path::new(FULL)).to_owned(),
            small,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_one_is_for_guests_that_it_can_run() {
        let small = |asked, machine, disks| Programs::new(asked, machine, disks).small;
        let asked = Path::new("/opt/qemu");
        assert_eq!(small(Some(asked), Machine::Microvm, false), None);
        assert_eq!(small(None, Machine::Q35, false), None);
        assert_eq!(small(None, Machine::Microvm, true), None);
        assert_eq!(
            small(None, Machine::Microvm, false),
            search_path(OsStr::new(SMALL))
        );
        assert_eq!(Programs::new(Some(asked), Machine::Q35, false).any, asked);
        assert_eq!(
            Programs::new(None, Machine::Q35, false).any,
            Path::new(FULL)
        );
    }
}
