//! The kernel log on the serial console.

use super::spin::SpinGuard;
use super::stopping::STOPPING;
use super::{clock, log, percpu, serial};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};

/// The number of bytes that are written at once.
const LINE_BYTES: usize = 256;
/// The most polls of the lock before a line is written anyway: a garbled line is better than none.
const MAX_SPINS: u32 = 50_000_000;

/// Writes one line to the kernel log and the serial console, with a time stamp. The arguments are
/// those of `format!`.
#[macro_export]
macro_rules! console {
    ($($arg:tt)*) => {
        $crate::arch::console::line(::core::format_args!($($arg)*))
    };
}

/// The value of [`MAX_SPINS`] for a CPU that reports a panic: the other CPUs are halted, perhaps
/// with the lock.
const MAX_SPINS_PANICKED: u32 = 10_000;

/// The number of the CPU that writes, plus one; 0 if no CPU writes.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// A line that is being written to the serial console, the kernel log, or both.
struct Line {
    bytes: [u8; LINE_BYTES],
    len: usize,
    /// Whether the line is printed on the serial console.
    shown: bool,
    /// The locked kernel log, if the line is kept there.
    kept: Option<SpinGuard<'static, log::Lines>>,
}

/// The text of the priority in front of a kept line.
#[derive(Default)]
struct Front {
    bytes: [u8; 12],
    len: usize,
}

impl Write for Front {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let to = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl Line {
    fn flush(&mut self) {
        let bytes = &self.bytes[..self.len];
        if self.shown {
            serial::write(bytes);
        }
        if let Some(kept) = &mut self.kept {
            kept.push(bytes);
        }
        self.len = 0;
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == LINE_BYTES {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

/// The priority of the kernel's own lines: informational.
const USUAL: u32 = 6;

/// Writes `args` as one line with a time stamp to the kernel log and to the serial console.
/// [`console!`](crate::console) calls this.
pub fn line(args: fmt::Arguments<'_>) {
    message(USUAL, true, args);
}

/// Adds `args` as one line with this `priority` and a time stamp to the kernel log. If `shown` is
/// set, also prints the line on the serial console. The line is missing in the kernel log if
/// another caller holds the log's lock.
pub fn message(priority: u32, shown: bool, args: fmt::Arguments<'_>) {
    let me = percpu::cpu_id() as u32 + 1;
    let mut spins = 0;
    // Relaxed: a CPU that does not know yet waits for longer.
    let panicked = STOPPING.load(Ordering::Relaxed);
    let most = if panicked {
        MAX_SPINS_PANICKED
    } else {
        MAX_SPINS
    };
    // Acquire: partner of the Release below. A panic inside a line owns the lock already.
    while let Err(owner) = OWNER.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
        spins += 1;
        if owner == me || spins > most {
            break;
        }
        if !panicked {
            super::ipi::poll_mailbox();
        }
        core::hint::spin_loop();
    }
    let mut line = Line {
        bytes: [0; LINE_BYTES],
        len: 0,
        shown,
        kept: log::lines_now(),
    };
    if let Some(kept) = &mut line.kept {
        let mut front = Front::default();
        let _ = write!(front, "<{priority}>");
        kept.push(&front.bytes[..front.len]);
    }
    let now = clock::now().0 / 1000;
    let _ = write!(line, "[{:5}.{:06}] ", now / 1_000_000, now % 1_000_000);
    let _ = line.write_fmt(args);
    let _ = line.write_str("\n");
    line.flush();
    drop(line);
    OWNER.store(0, Ordering::Release);
}

/// Prints `args` as one line on the serial console, between two line breaks. Takes no lock, and
/// uses neither the clock nor per-CPU data, so code can call it after any bug.
pub(super) fn bare_line(args: fmt::Arguments<'_>) {
    struct Bare;
    impl Write for Bare {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            serial::write(text.as_bytes());
            Ok(())
        }
    }
    // A line that another CPU has begun may have no end.
    let _ = Bare.write_str("\n");
    let _ = Bare.write_fmt(args);
    let _ = Bare.write_str("\n");
}
