//! The capabilities that `ebb` keeps while a guest runs.

use ebb_blk::capabilities::keep_capabilities;
use rustix::thread::CapabilitySet;
use std::io;

/// What a run needs capabilities for. All of it counts only where root starts `ebb`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Privileges {
    /// It reads files of others: of a volume, or of a folder that is the guest's root.
    pub(crate) reads: bool,
    /// It changes files of others: of a volume, or where `--out` goes.
    pub(crate) writes: bool,
    /// QEMU cannot have a user namespace, so `ebb` needs rights to give up its user and to end it.
    pub(crate) changes_user: bool,
}

impl Privileges {
    /// The capabilities for it.
    pub(crate) fn capabilities(self) -> CapabilitySet {
        let mut set = CapabilitySet::empty();
        if self.reads {
            set |= CapabilitySet::DAC_READ_SEARCH;
        }
        if self.writes {
            set |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
        }
        if self.changes_user {
            set |= CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL;
        }
        set
    }
}

/// Names capabilities as `capabilities(7)` does: `CAP_FOWNER, CAP_KILL`; "no capabilities" for none.
pub(crate) fn names(set: CapabilitySet) -> String {
    let names: Vec<_> = set
        .iter_names()
        .map(|(name, _)| format!("CAP_{name}"))
        .collect();
    if names.is_empty() {
        "no capabilities".into()
    } else {
        names.join(", ")
    }
}

/// Gives up, for ever, all capabilities of the calling thread and of those that it starts but
/// `wanted`. Returns those that it has now.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn keep(wanted: CapabilitySet) -> io::Result<CapabilitySet> {
    keep_capabilities(wanted)?;
    Ok(rustix::thread::capabilities(None)?.permitted)
}
