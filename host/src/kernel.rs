//! The kernels that a guest can have, and what each of them wants.

use crate::cli::{KernelChoice, Machine, RunOptions};
use crate::failure::Failure;
use crate::guest::{EbbGuest, Guest};
use crate::header::Header;
use crate::image::KernelImage;
use crate::initramfs::{Alignment, Initramfs};
use crate::linux::{self, LinuxGuest, Stock};
use crate::qemu::{Accel, Dialect};
use crate::ram::GuestRam;
use crate::registry::{KernelKind, Mapper};
use crate::size::Size;
use crate::stream;
use crate::symbols::Symbols;
use ebb_wire::boot;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What the clock says in a run that must not depend on when it happens.
const FIXED_EPOCH_NS: u128 = 1_700_000_000_000_000_000;

/// A kernel that can be booted and watched.
#[derive(Debug)]
pub(crate) enum Kernel {
    /// The one of this repository.
    Ebb(KernelImage),
    /// A distribution's.
    Linux(Stock),
}

/// The least memory with which such a kernel boots.
pub(crate) fn memory_min(choice: &KernelChoice) -> Size {
    match choice {
        KernelChoice::Ebb => Size::mebibytes(32),
        KernelChoice::Linux(_) => linux::MEMORY_MIN,
    }
}

/// How long a kernel may take to begin, and how often it may try.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Patience {
    pub(crate) attempts: u32,
    /// Time of the host's CPUs that an attempt may take.
    pub(crate) work: Duration,
    /// Time that an attempt may take.
    pub(crate) wait: Duration,
}

impl Kernel {
    /// The kernel that was asked for.
    pub(crate) fn load(options: &RunOptions) -> Result<Self, Failure> {
        match &options.kernel {
            KernelChoice::Ebb => Ok(Self::Ebb(KernelImage::load(
                options.kernel_image.as_deref(),
            )?)),
            KernelChoice::Linux(image) => Ok(Self::Linux(Stock::find(
                image.as_deref(),
                !options.disks.is_empty(),
            )?)),
        }
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ebb(_) => "ebb",
            Self::Linux(_) => "linux",
        }
    }

    /// How messages call it, where it is not ebb's own.
    pub(crate) fn title(&self) -> Option<String> {
        match self {
            Self::Ebb(_) => None,
            Self::Linux(stock) => Some(format!("Linux {}", stock.release)),
        }
    }

    /// The file that it was found in, where it is not in this binary.
    pub(crate) fn origin(&self) -> Option<&Path> {
        match self {
            Self::Ebb(_) => None,
            Self::Linux(stock) => Some(&stock.image),
        }
    }

    /// Which one of these it is.
    pub(crate) fn release(&self) -> &str {
        match self {
            Self::Ebb(_) => env!("CARGO_PKG_VERSION"),
            Self::Linux(stock) => &stock.release,
        }
    }

    /// The file that QEMU loads.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Ebb(image) => &image.bytes,
            Self::Linux(stock) => stock.bytes(),
        }
    }

    /// Guest memory that it covers once loaded.
    pub(crate) fn span_bytes(&self) -> u64 {
        match self {
            Self::Ebb(image) => image.span_bytes,
            Self::Linux(stock) => stock.span_bytes(),
        }
    }

    /// What of the board it must have in its own way.
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Ebb(_) => Dialect::Ebb,
            Self::Linux(_) => Dialect::Linux,
        }
    }

    /// How its initramfs is laid out.
    pub(crate) fn alignment(&self) -> Alignment {
        match self {
            Self::Ebb(_) => Alignment::Page,
            Self::Linux(_) => Alignment::Word,
        }
    }

    /// Adds what it needs beside the program.
    pub(crate) fn furnish(&self, tree: &mut Initramfs) -> Result<(), Failure> {
        match self {
            Self::Ebb(_) => Ok(()),
            Self::Linux(stock) => stock.furnish(tree),
        }
    }

    /// Its command line.
    pub(crate) fn arguments(&self, options: &RunOptions, accel: Accel) -> String {
        let mut text = match self {
            Self::Ebb(_) => {
                let epoch = if options.icount {
                    FIXED_EPOCH_NS
                } else {
                    SystemTime::now()
                        .duration_since(SystemTime::UNIX_EPOCH)
                        .map_or(0, |d| d.as_nanos())
                };
                let give_back = options.give_back.name();
                // Nothing but the kernel, the archive and the first MiB was ever written. On a PC,
                // firmware leaves things in memory that it says is free.
                let ram = match options.machine {
                    Machine::Microvm => format!(" {}={}", boot::RAM, boot::ZEROED),
                    Machine::Q35 => String::new(),
                };
                format!(
                    "{}={epoch} {}={give_back}{ram}",
                    boot::EPOCH,
                    boot::GIVE_BACK
                )
            }
            Self::Linux(_) => {
                let clock = linux::time_stamp_rate(accel, options.icount);
                linux::arguments(clock, options.verbose)
            }
        };
        if stream::outputs_are_one() {
            // Two ports have no order between them.
            text.push_str(&format!(" {}={}", boot::STDERR, boot::STDOUT));
        }
        if stream::input_is_empty() {
            text.push_str(&format!(" {}={}", boot::STDIN, boot::EMPTY));
        }
        if let Some(order) = options.reporting_order {
            text.push_str(&format!(" page_reporting.page_reporting_order={order}"));
        }
        for sysctl in &options.sysctl {
            text.push_str(&format!(" sysctl.{}={}", sysctl.name, sysctl.value));
        }
        for more in &options.append {
            text.push(' ');
            text.push_str(more);
        }
        text
    }

    /// The command line of a guest on KVM that only has to show that it boots.
    pub(crate) fn probe_arguments(&self) -> String {
        match self {
            Self::Ebb(_) => format!("{}=0", boot::EPOCH),
            Self::Linux(_) => linux::arguments(None, false),
        }
    }

    /// The memory of such a guest.
    pub(crate) fn probe_memory(&self) -> Size {
        match self {
            Self::Ebb(_) => Size::mebibytes(64),
            Self::Linux(_) => Size::mebibytes(256),
        }
    }

    /// On a KVM that works it boots in a tenth of this.
    pub(crate) fn probe_patience(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Ebb(_) => 4,
            Self::Linux(_) => 15,
        })
    }

    /// Names for the addresses in its log, where it does not write names itself.
    pub(crate) fn symbols(&self) -> Option<Symbols> {
        match self {
            Self::Ebb(image) => Some(Symbols::new(image.bytes.clone())),
            Self::Linux(_) => None,
        }
    }

    /// The guest that has it, with its memory in `ram`.
    pub(crate) fn guest(&self, ram: &Arc<GuestRam>, cpus: u32, icount: bool) -> Arc<dyn Guest> {
        match self {
            Self::Ebb(image) => Arc::new(EbbGuest::new(
                Header::new(Arc::clone(ram), image.header),
                image.span_bytes,
            )),
            Self::Linux(_) => Arc::new(LinuxGuest::new(cpus, ram.bytes(), icount)),
        }
    }

    /// What draws the map of its memory, where it can be drawn from outside.
    pub(crate) fn mapper(&self, ram: &Arc<GuestRam>) -> Option<Mapper> {
        match self {
            Self::Ebb(image) => {
                let header = Header::new(Arc::clone(ram), image.header);
                Some(Mapper::new(Arc::clone(ram), header))
            }
            Self::Linux(_) => None,
        }
    }

    /// What `ebb top` takes it for.
    pub(crate) fn kind(&self) -> KernelKind {
        match self {
            Self::Ebb(_) => KernelKind::Ebb,
            Self::Linux(_) => KernelKind::Linux,
        }
    }

    /// How often it may be started until it speaks; `None`: it speaks or is broken.
    pub(crate) fn patience(&self, memory: Size, cpus: u32, icount: bool) -> Option<Patience> {
        match self {
            Self::Ebb(_) => None,
            Self::Linux(_) => Some(linux::patience(memory, cpus, icount)),
        }
    }
}
