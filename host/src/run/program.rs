//! Which QEMU runs a guest.

use crate::machine::Machine;
use crate::system::search_path;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What distributions call the one that can do everything.
const FULL: &str = "qemu-system-x86_64";
/// One that some have besides: for KVM and the board `microvm`, with few devices and few libraries. It holds two thirds of
/// the memory that the other does.
const SMALL: &str = "qemu-system-x86_64-microvm";

/// The QEMUs for a guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Programs {
    /// For whatever the guest is.
    pub(crate) any: PathBuf,
    /// To be preferred on KVM if the guest boots on it.
    pub(crate) small: Option<PathBuf>,
}

impl Programs {
    /// `asked` is the user's own choice, which holds; else it depends on what the guest needs.
    pub(crate) fn new(asked: Option<&Path>, machine: Machine, disks: bool) -> Self {
        let small = match (asked, machine) {
            // It cannot connect a disk's back-end.
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
