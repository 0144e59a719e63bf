//! The interface of a kernel that a guest can run.

use super::running::Guest;
use crate::archive::{Alignment, Initramfs, PackError};
use crate::machine::{Accel, Dialect, GiveBack, KernelKind, Machine};
use crate::qemu::GuestRam;
use crate::text::{Names, Size};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The limits on the attempts to boot a kernel that may hang, on a host with no other load.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct BootLimits {
    /// The maximum number of attempts.
    pub(crate) attempts: u32,
    /// The maximum host CPU time of an attempt.
    pub(crate) work: Duration,
    /// The maximum wall-clock time of an attempt.
    pub(crate) wait: Duration,
}

/// The options of a run that a kernel's command line depends on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct BootOptions {
    pub(crate) accel: Accel,
    pub(crate) machine: Machine,
    /// How the guest gives free memory back.
    pub(crate) give_back: GiveBack,
    /// Whether QEMU counts instructions.
    pub(crate) icount: bool,
    /// Whether the kernel shows its messages.
    pub(crate) verbose: bool,
    /// Whether the host informs the guest about its memory stalls (PSI).
    pub(crate) host_pressure: bool,
}

/// The optional devices of a guest, for each of which a stock kernel needs more drivers.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Extras {
    /// Whether the guest has disks.
    pub(crate) disks: bool,
    /// Whether the guest sees files of the host, as its root or as volumes.
    pub(crate) files: bool,
    /// Whether QEMU's arguments have a virtio-mem device, by which memory is plugged and unplugged.
    pub(crate) plugged: bool,
}

/// The settings of a guest that only has to show that its kernel boots on KVM.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// The guest kernel's command line.
    pub(crate) arguments: String,
    pub(crate) memory: Size,
    /// The timeout of the boot. A working KVM needs a tenth of it.
    pub(crate) timeout: Duration,
}

/// A kernel that a guest can boot, and what `ebb` must know to start and watch it.
pub(crate) trait Kernel: Debug {
    /// Returns which kernel this is, Ebb's or Linux.
    fn kind(&self) -> KernelKind;

    /// Returns the kernel's version for users.
    fn release(&self) -> &str;

    /// Returns the kernel's name and version for messages, or `None` for Ebb's own.
    fn title(&self) -> Option<String> {
        None
    }

    /// Returns the path of the file from which the kernel was read, or `None` for Ebb's own kernel.
    fn origin(&self) -> Option<&Path> {
        None
    }

    /// Returns the contents of the kernel's file, which QEMU loads.
    fn bytes(&self) -> &[u8];

    /// Returns the guest memory that the loaded kernel covers, in bytes: the image with its `.bss`,
    /// or what Linux needs until it has unpacked itself.
    fn span_bytes(&self) -> u64;

    /// Returns which kernel's variant of the board is needed, Ebb's or Linux's.
    fn dialect(&self) -> Dialect;

    /// Returns how files are aligned in the kernel's initramfs: to pages if the kernel uses their
    /// pages in place, else to words.
    fn alignment(&self) -> Alignment;

    /// Adds to the initramfs the files that the kernel's guest needs in addition to the program. By
    /// default none. Fails if a path would be both a directory and a file in `_tree`.
    fn furnish(&self, _tree: &mut Initramfs) -> Result<(), PackError> {
        Ok(())
    }

    /// Returns the beginning of the kernel's command line for `options`. The caller appends the
    /// rest.
    fn arguments(&self, options: &BootOptions) -> String;

    /// Returns the settings of the guest that tests whether this kernel boots on KVM on this host.
    fn probe(&self) -> Probe;

    /// Returns a lookup of function names for the addresses in the kernel's log. Returns `None` if
    /// the kernel writes names itself, as Linux does.
    fn symbols(&self) -> Option<Box<dyn Names>> {
        None
    }

    /// Returns the view of a running guest with this kernel, whose memory is `ram`. `cpus` is the
    /// number of its CPUs. `icount` says that QEMU counts instructions.
    fn guest(&self, ram: &Arc<GuestRam>, cpus: u32, icount: bool) -> Arc<dyn Guest>;

    /// Returns whether the kernel's guests publish the location of their allocator's metadata
    /// ([`Guest::metadata`]). By default `false`.
    fn shows_metadata(&self) -> bool {
        false
    }

    /// Returns the limits on attempts to boot the kernel in a guest with `_memory` and `_cpus`
    /// CPUs. `_icount` says that QEMU counts instructions. Returns `None`, the default, if the
    /// kernel is started only once, since its boot does not depend on luck.
    fn boot_limits(&self, _memory: Size, _cpus: u32, _icount: bool) -> Option<BootLimits> {
        None
    }
}
