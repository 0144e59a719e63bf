//! Ebb's own kernel as an implementation of [`Kernel`].

use super::header::Header;
use super::image::{ImageError, KernelImage};
use super::running::EbbGuest;
use super::symbols::Symbols;
use crate::archive::Alignment;
use crate::guest::kernel::{BootOptions, Kernel, Probe};
use crate::guest::running::Guest;
use crate::machine::{Dialect, KernelKind, Machine};
use crate::qemu::GuestRam;
use crate::text::{Names, Size};
use ebb_wire::boot;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The guest's time of day in a run that must not depend on the real time, in nanoseconds since
/// 1970.
const FIXED_EPOCH_NS: u128 = 1_700_000_000_000_000_000;

/// Ebb's own kernel as a [`Kernel`] that a guest can run.
#[derive(Debug)]
pub(crate) struct EbbKernel(KernelImage);

impl EbbKernel {
    /// The smallest guest memory with which Ebb's kernel boots.
    pub(crate) const MEMORY_MIN: Size = Size::mebibytes(32);

    /// Loads the kernel in the file `image`, or the embedded one if that is `None`. Fails if there
    /// is no embedded one, or the file cannot be read or is not an image of Ebb's kernel.
    pub(crate) fn load(image: Option<&Path>) -> Result<Self, ImageError> {
        KernelImage::load(image).map(Self)
    }
}

impl Kernel for EbbKernel {
    fn kind(&self) -> KernelKind {
        KernelKind::Ebb
    }

    fn release(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    fn span_bytes(&self) -> u64 {
        self.0.span_bytes
    }

    fn dialect(&self) -> Dialect {
        Dialect::Ebb
    }

    fn alignment(&self) -> Alignment {
        Alignment::Page
    }

    fn arguments(&self, options: &BootOptions) -> String {
        let epoch = if options.icount {
            FIXED_EPOCH_NS
        } else {
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |d| d.as_nanos())
        };
        let give_back = options.give_back.name();
        let mut text = format!("{}={epoch} {}={give_back}", boot::EPOCH, boot::GIVE_BACK);
        // On microvm, only the kernel, the archive and the first MiB were ever written, so the rest
        // of RAM is zero. On a PC, firmware leaves data in memory that it declares free.
        if options.machine == Machine::Microvm {
            text.push_str(&format!(" {}={}", boot::RAM, boot::ZEROED));
        }
        if options.host_pressure {
            text.push_str(&format!(" {}={}", boot::HOST_PRESSURE, boot::TOLD));
        }
        text
    }

    fn probe(&self) -> Probe {
        Probe {
            arguments: format!("{}=0", boot::EPOCH),
            memory: Size::mebibytes(64),
            timeout: Duration::from_secs(4),
        }
    }

    fn symbols(&self) -> Option<Box<dyn Names>> {
        Some(Box::new(Symbols::new(self.0.bytes.clone())))
    }

    fn guest(&self, ram: &Arc<GuestRam>, _cpus: u32, _icount: bool) -> Arc<dyn Guest> {
        let header = Header::new(Arc::clone(ram), self.0.header);
        Arc::new(EbbGuest::new(header, self.0.span_bytes))
    }

    fn shows_metadata(&self) -> bool {
        true
    }
}
