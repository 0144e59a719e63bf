//! The serial port COM1: output only, polled.

use super::cpu::{inb, outb, rdtsc};
use core::sync::atomic::{AtomicBool, Ordering};

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
/// The longest wait for the transmitter before a byte is lost, in ticks of the time-stamp counter:
/// four seconds or more. A busy host can leave the reader of the port without a CPU for tens of
/// milliseconds. A missing UART reads as 0xff, so it is never waited for.
const MAX_WAIT: u64 = 20_000_000_000;

/// The reader of the port has not taken a byte for [`MAX_WAIT`]. Until it does, further bytes are
/// lost at once, so that a guest whose output is not read goes on.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Writes `bytes` to COM1. Returns when the UART has taken them, or the reader of the port is
/// stuck.
pub fn write(bytes: &[u8]) {
    for &byte in bytes {
        let is_ready = is_ready() || wait();
        // Relaxed: a hint for the next byte.
        STUCK.store(!is_ready, Ordering::Relaxed);
        if is_ready {
            // SAFETY: a UART's register; the UART does not reach memory.
            unsafe { outb(COM1, byte) };
        }
    }
}

/// Returns whether the UART can take a byte.
fn is_ready() -> bool {
    // SAFETY: a UART's register; reading it does not reach memory.
    unsafe { inb(LINE_STATUS) & TRANSMITTER_EMPTY != 0 }
}

/// Waits until the UART can take a byte. Returns `false` if it cannot in time, and at once if the
/// reader is stuck.
#[cold]
fn wait() -> bool {
    if STUCK.load(Ordering::Relaxed) {
        return false;
    }
    let start = rdtsc();
    while rdtsc().wrapping_sub(start) < MAX_WAIT {
        if is_ready() {
            return true;
        }
    }
    false
}
