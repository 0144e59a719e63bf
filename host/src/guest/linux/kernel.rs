//! Stock Linux, with the first process of its guests, as an implementation of [`Kernel`].

use super::clock::{Kilohertz, time_stamp_rate};
use super::init::{self, InitError};
use super::running::LinuxGuest;
use super::stock::{Stock, StockError};
use crate::archive::{Alignment, GuestPath, Initramfs, Node, PackError, Source};
use crate::guest::kernel::{BootLimits, BootOptions, Extras, Kernel, Probe};
use crate::guest::running::Guest;
use crate::machine::{Dialect, KernelKind};
use crate::qemu::GuestRam;
use crate::text::Size;
use ebb_wire::boot::{DEMAND, DEMAND_LIST, INIT, MODULES};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A stock Linux kernel as a [`Kernel`], with the program that is the first process of its guests.
#[derive(Debug)]
pub(crate) struct LinuxKernel {
    stock: Stock,
    init: Cow<'static, [u8]>,
}

/// The reason why a stock kernel or its first process is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinuxKernelError {
    #[error(transparent)]
    Stock(#[from] StockError),
    #[error(transparent)]
    Init(#[from] InitError),
}

impl LinuxKernel {
    /// The smallest guest memory with which a stock kernel boots. Debian's kernel needs more than
    /// half of it to unpack itself.
    pub(crate) const MEMORY_MIN: Size = Size::mebibytes(96);

    /// Loads the kernel in the file or built source tree `image`, or Debian's if that is `None`,
    /// with the modules that a guest with `extras` needs. May fetch Debian's kernel from the
    /// network. Fails if the kernel, a module or the first process cannot be found or read.
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
            // The first process loads modules in the order of their names.
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
        // mount(8) tries these types if it is given none. The kernel lists only the types that are
        // loaded.
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
            timeout: Duration::from_secs(15),
        }
    }

    fn guest(&self, ram: &Arc<GuestRam>, cpus: u32, icount: bool) -> Arc<dyn Guest> {
        Arc::new(LinuxGuest::new(cpus, ram.bytes(), icount))
    }

    fn boot_limits(&self, memory: Size, cpus: u32, icount: bool) -> Option<BootLimits> {
        Some(boot_limits(memory, cpus, icount))
    }
}

/// Returns the limits on attempts to start Linux.
///
/// On a busy host Linux can lose interrupts of the board's timers while it sets up its own, and
/// hang. Another attempt is safe then. CPU time of the host is limited, too, so that a guest which
/// gets little of it is not mistaken for one that hangs.
fn boot_limits(memory: Size, cpus: u32, icount: bool) -> BootLimits {
    // 512 GiB is the maximum for a guest.
    let gibibytes = u32::try_from(memory.bytes() >> 30).unwrap_or(512);
    let share = Duration::from_secs(1) * cpus + Duration::from_millis(250) * gibibytes;
    // Counting instructions takes several times the work; no interrupts are lost then.
    let slowness = if icount { 4 } else { 1 };
    BootLimits {
        attempts: 3,
        work: (Duration::from_secs(20) + share) * slowness,
        wait: (Duration::from_secs(90) + share) * slowness,
    }
}

/// Returns the command line of a stock kernel. `clock` is the frequency of its time-stamp counter,
/// if the guest must be told.
fn arguments(clock: Option<Kilohertz>, verbose: bool) -> String {
    // A triple fault resets every board of QEMU; `ebb` treats that as the end.
    let mut text = format!("console=ttyS0 reboot=t panic=-1 rdinit={INIT}");
    if let Some(Kilohertz(rate)) = clock {
        // On a busy host the guest's own measurement against an emulated PIT is wrong or fails.
        // Without a frequency Linux hangs.
        text.push_str(&format!(" tsc_early_khz={rate}"));
        // QEMU's counter is the same for all CPUs and has a constant frequency, which Linux cannot
        // know. With two CPUs, or after lost ticks, Linux would use ticks of 4 ms as its clock, and
        // so would the scheduler.
        text.push_str(" tsc=reliable");
        // Linux waits for ten ticks of the PIT, and panics if a busy host has not delivered them in
        // time. On KVM it leaves that out by itself.
        text.push_str(" no_timer_check");
    }
    if !verbose {
        text.push_str(" quiet");
    }
    text
}
