//! The capabilities that `ebb` keeps while a guest runs.

use ebb_blk::capabilities::keep_capabilities;
use rustix::thread::CapabilitySet;
use std::io;

/// The reasons why a run needs capabilities while its guest runs. They matter only if root runs
/// `ebb`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Privileges {
    /// The run reads files of other users: in a volume, or in a folder that is the guest's root.
    pub(crate) reads: bool,
    /// The run changes files of other users: in a volume, or at the destination of `--out`.
    pub(crate) writes: bool,
    /// QEMU has no user namespace, so `ebb` must be able to change QEMU's user and to kill QEMU.
    pub(crate) changes_user: bool,
}

impl Privileges {
    /// Returns the capabilities that these reasons need, an empty set for no reason. Does not
    /// change those of the process.
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

/// Returns the names of the capabilities in `set` as in capabilities(7), such as `CAP_FOWNER,
/// CAP_KILL`. Returns "no capabilities" for an empty set.
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

/// Permanently drops all capabilities except `wanted` for the calling thread and the threads that
/// it starts. Other threads keep theirs. Returns the capabilities that remain, which are fewer than
/// `wanted` if the thread lacked some before.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn keep(wanted: CapabilitySet) -> io::Result<CapabilitySet> {
    keep_capabilities(wanted)?;
    Ok(rustix::thread::capabilities(None)?.permitted)
}
