//! A kernel that a guest can have, and what it wants.

use super::running::Guest;
use crate::archive::{Alignment, Initramfs, PackError};
use crate::machine::{Accel, Dialect, GiveBack, KernelKind, Machine};
use crate::qemu::GuestRam;
use crate::text::{Names, Size};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a kernel may take to begin, and how often it may try.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Patience {
    pub(crate) attempts: u32,
    /// Time of the host's CPUs that an attempt may take.
    pub(crate) work: Duration,
    /// Time that an attempt may take.
    pub(crate) wait: Duration,
}

/// What a kernel's command line depends on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct BootOptions {
    pub(crate) accel: Accel,
    pub(crate) machine: Machine,
    pub(crate) give_back: GiveBack,
    pub(crate) icount: bool,
    pub(crate) verbose: bool,
    /// The host tells the guest of its memory stalls.
    pub(crate) host_pressure: bool,
}

/// What a guest has besides what every guest has, for which a stock kernel needs drivers.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Extras {
    /// Disks.
    pub(crate) disks: bool,
    /// The host's files: a root, or volumes.
    pub(crate) files: bool,
    /// Memory that is plugged in and out, by a virtio-mem device among QEMU's arguments.
    pub(crate) plugged: bool,
}

/// A guest on KVM that only has to show that it boots.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// Its command line.
    pub(crate) arguments: String,
    pub(crate) memory: Size,
    /// On a KVM that works it boots in a tenth of this.
    pub(crate) patience: Duration,
}

/// A kernel that can be booted and watched.
pub(crate) trait Kernel: Debug {
    /// Which one it is.
    fn kind(&self) -> KernelKind;

    /// Its version.
    fn release(&self) -> &str;

    /// How messages call it, where it is not ebb's own.
    fn title(&self) -> Option<String> {
        None
    }

    /// The file that it was found in, where it is not in this binary.
    fn origin(&self) -> Option<&Path> {
        None
    }

    /// The file that QEMU loads.
    fn bytes(&self) -> &[u8];

    /// Guest memory that it covers once loaded.
    fn span_bytes(&self) -> u64;

    /// What of the board it must have in its own way.
    fn dialect(&self) -> Dialect;

    /// How its initramfs is laid out.
    fn alignment(&self) -> Alignment;

    /// Adds what it needs beside the program.
    fn furnish(&self, _tree: &mut Initramfs) -> Result<(), PackError> {
        Ok(())
    }

    /// What its command line begins with.
    fn arguments(&self, options: &BootOptions) -> String;

    /// The guest that shows whether it boots on KVM here.
    fn probe(&self) -> Probe;

    /// Names for the addresses in its log, where it does not write names itself.
    fn symbols(&self) -> Option<Box<dyn Names>> {
        None
    }

    /// The guest that has it, with its memory in `ram`.
    fn guest(&self, ram: &Arc<GuestRam>, cpus: u32, icount: bool) -> Arc<dyn Guest>;

    /// Whether its guests tell where their allocator's metadata is ([`Guest::metadata`]).
    fn shows_metadata(&self) -> bool {
        false
    }

    /// How often it may be started until it speaks; `None`: it speaks or is broken.
    fn patience(&self, _memory: Size, _cpus: u32, _icount: bool) -> Option<Patience> {
        None
    }
}
