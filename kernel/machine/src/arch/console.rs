//! The kernel log on the serial console.

use super::spin::SpinGuard;
use super::stopping::STOPPING;
use super::{clock, log, percpu, serial};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a line that go out at once.
const LINE_BYTES: usize = 256;
/// Looks at the lock before a line is written anyway: a garbled line is better than none.
const MAX_SPINS: u32 = 50_000_000;

/// One line of the kernel log, with a time stamp; format arguments as of `format!`.
#[macro_export]
macro_rules! console {
    ($($arg:tt)*) => {
        $crate::arch::console::line(::core::format_args!($($arg)*))
    };
}

/// Looks of one who reports a panic: the others are halted, maybe with the lock.
const MAX_SPINS_PANICKED: u32 = 10_000;

/// 0: free; else the number of the CPU that writes, plus one.
static OWNER: AtomicU32 = AtomicU32::new(0);

struct Line {
    bytes: [u8; LINE_BYTES],
    len: usize,
    /// Whether it is printed.
    shown: bool,
    /// Where it is kept.
    kept: Option<SpinGuard<'static, log::Lines>>,
}

/// The priority before a line that is kept.
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

/// Priority of the kernel's own lines: informational.
const USUAL: u32 = 6;

/// Writes one line; what [`console!`](crate::console) calls.
pub fn line(args: fmt::Arguments<'_>) {
    message(USUAL, true, args);
}

/// Keeps one line with its priority in the log, and prints it if `shown` is set.
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

/// Writes one line of one who can rely on nothing: no lock, no time, nothing of this CPU's.
pub(super) fn bare_line(args: fmt::Arguments<'_>) {
    struct Bare;
    impl Write for Bare {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            serial::write(text.as_bytes());
            Ok(())
        }
    }
    // The line under way may have no end.
    let _ = Bare.write_str("\n");
    let _ = Bare.write_fmt(args);
    let _ = Bare.write_str("\n");
}
