//! A stock kernel with the first process of its guests, as a kernel that guests can have.

use super::clock::{Kilohertz, time_stamp_rate};
use super::init::{self, InitError};
use super::running::LinuxGuest;
use super::stock::{Stock, StockError};
use crate::archive::{Alignment, GuestPath, Initramfs, Node, PackError, Source};
use crate::guest::kernel::{BootOptions, Extras, Kernel, Patience, Probe};
use crate::guest::running::Guest;
use crate::machine::{Dialect, KernelKind};
use crate::qemu::GuestRam;
use crate::text::Size;
use ebb_wire::boot::{DEMAND, DEMAND_LIST, INIT, MODULES};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A distribution's kernel.
#[derive(Debug)]
pub(crate) struct LinuxKernel {
    stock: Stock,
    init: Cow<'static, [u8]>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinuxKernelError {
    #[error(transparent)]
    Stock(#[from] StockError),
    #[error(transparent)]
    Init(#[from] InitError),
}

impl LinuxKernel {
    /// Debian's kernel needs more than half of this to unpack itself.
    pub(crate) const MEMORY_MIN: Size = Size::mebibytes(96);

    /// The one in the file `image`, or Debian's; with drivers for what the guest has.
    pub(crate) fn load(image: Option<&Path>, extras: Extras) -> Result<Self, LinuxKernelError> {
        let stock = Stock::find(image, extras)?;
        let init = init::load()?;
        Ok(Self { stock, init })
    }
}

impl Kernel for LinuxKernel {
    fn kind(&self) -> KernelKind {
        KernelKind::Linux
    }

    fn release(&self) -> &str {
        &self.stock.release
    }

    fn title(&self) -> Option<String> {
        Some(format!("Linux {}", self.stock.release))
    }

    fn origin(&self) -> Option<&Path> {
        Some(&self.stock.image)
    }

    fn bytes(&self) -> &[u8] {
        self.stock.bytes()
    }

    fn span_bytes(&self) -> u64 {
        self.stock.span_bytes()
    }

    fn dialect(&self) -> Dialect {
        Dialect::Linux
    }

    fn alignment(&self) -> Alignment {
        Alignment::Word
    }

    fn furnish(&self, tree: &mut Initramfs) -> Result<(), PackError> {
        let file = |mode, bytes| Node::File {
            mode,
            source: Source::Bytes(bytes),
        };
        let init = file(0o500, self.init.clone().into_owned());
        tree.add(GuestPath::parse(INIT.as_bytes())?, init)?;
        for (index, module) in self.stock.modules().iter().enumerate() {
            // Loaded in the order of their names.
            let path = format!("{MODULES}/{index:02}-{}.ko", module.name);
            let path = GuestPath::parse(path.as_bytes())?;
            tree.add(path, file(0o400, module.bytes.clone()))?;
        }
        let demand = self.stock.demand();
        if demand.list.is_empty() {
            return Ok(());
        }
        for module in &demand.modules {
            let path = format!("{DEMAND}/{}.ko", module.name);
            let path = GuestPath::parse(path.as_bytes())?;
            tree.add(path, file(0o400, module.bytes.clone()))?;
        }
        let text = |text: &str| text.as_bytes().to_vec();
        tree.add(
            GuestPath::parse(DEMAND_LIST.as_bytes())?,
            file(0o400, text(&demand.list)),
        )?;
        // What mount(8) tries where it is not told: a type that is not loaded yet is in no list of
        // the kernel's.
        tree.add_missing(
            GuestPath::parse(b"/etc/filesystems")?,
            file(0o644, text(&demand.file_systems)),
        )?;
        Ok(())
    }

    fn arguments(&self, options: &BootOptions) -> String {
        let clock = time_stamp_rate(options.accel, options.icount);
        arguments(clock, options.verbose)
    }

    fn probe(&self) -> Probe {
        Probe {
            arguments: arguments(None, false),
            memory: Size::mebibytes(256),
            patience: Duration::from_secs(15),
        }
    }

    fn guest(&self, ram: &Arc<GuestRam>, cpus: u32, icount: bool) -> Arc<dyn Guest> {
        Arc::new(LinuxGuest::new(cpus, ram.bytes(), icount))
    }

    fn patience(&self, memory: Size, cpus: u32, icount: bool) -> Option<Patience> {
        Some(patience(memory, cpus, icount))
    }
}

/// How long Linux may take to its first process. On a busy host it can lose interrupts of the
/// board's timers while it sets up its own, and hang; nothing is lost by another start then. The
/// work of the host's CPUs is counted too, so that a guest that gets little of them is not taken
/// for one that hangs.
fn patience(memory: Size, cpus: u32, icount: bool) -> Patience {
    // 512 GiB are the most that a guest has.
    let gibibytes = u32::try_from(memory.bytes() >> 30).unwrap_or(512);
    let share = Duration::from_secs(1) * cpus + Duration::from_millis(250) * gibibytes;
    // Counting takes several times the work, and knows no lost interrupts.
    let slowness = if icount { 4 } else { 1 };
    Patience {
        attempts: 3,
        work: (Duration::from_secs(20) + share) * slowness,
        wait: (Duration::from_secs(90) + share) * slowness,
    }
}

/// The command line of a stock kernel whose time-stamp counter runs at `clock`, where that is
/// known.
fn arguments(clock: Option<Kilohertz>, verbose: bool) -> String {
    // A triple fault is the restart that every board of QEMU has; ebb takes it for the end.
    let mut text = format!("console=ttyS0 reboot=t panic=-1 rdinit={INIT}");
    if let Some(Kilohertz(rate)) = clock {
        // Measured by the guest against an emulated PIT it comes out wrong, or not at all, when
        // the host is busy; and without it Linux hangs.
        text.push_str(&format!(" tsc_early_khz={rate}"));
        // QEMU's counter is one for all CPUs and keeps its rate. Linux cannot know that: with two
        // CPUs, or once it has lost ticks, it would count ticks of 4 ms for a clock, and the
        // scheduler with it.
        text.push_str(" tsc=reliable");
    }
    if !verbose {
        text.push_str(" quiet");
    }
    text
}
