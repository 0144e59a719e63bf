//! The kernel log on the serial console.

use super::serial;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a line that go out at once.
const LINE_BYTES: usize = 256;

/// One line of the kernel log, with a time stamp; format arguments as of `format!`.
#[macro_export]
macro_rules! console {
    ($($arg:tt)*) => {
        $crate::arch::console::line(::core::format_args!($($arg)*))
    };
}

/// 0: free; else the number of the CPU that writes, plus one.
static OWNER: AtomicU32 = AtomicU32::new(0);

struct Line {
    bytes: [u8; LINE_BYTES],
    len: usize,
}

impl Line {
    fn flush(&mut self) {
        serial::write(&self.bytes[..self.len]);
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

/// Writes one line; what [`console!`] calls.
pub fn line(args: fmt::Arguments<'_>) {
    let _ = OWNER.load(Ordering::Relaxed);
    let mut line = Line {
        bytes: [0; LINE_BYTES],
        len: 0,
    };
    let _ = line.write_fmt(args);
    let _ = line.write_str("\n");
    line.flush();
}
