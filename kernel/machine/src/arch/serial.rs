//! The serial port COM1: output only, polled.

use super::cpu::{inb, outb};
use core::sync::atomic::{AtomicBool, Ordering};

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
/// The most polls for the transmitter before a byte is lost: seconds. A busy host can leave the
/// reader of the port without a CPU for tens of milliseconds. A missing UART reads as 0xff, so it
/// is never waited for.
const MAX_POLLS: u32 = 4_000_000;

/// The reader of the port has not taken a byte for [`MAX_POLLS`] polls. Until it does, further
/// bytes are lost at once, so that a guest whose output is not read goes on.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Writes `bytes` to COM1. Returns when the UART has taken them, or the reader of the port is
/// stuck.
pub fn write(bytes: &[u8]) {
    for &byte in bytes {
        // Relaxed (both): a hint for the next byte.
        let polls = if STUCK.load(Ordering::Relaxed) {
            1
        } else {
            MAX_POLLS
        };
        let is_ready = (0..polls).any(|_| {
            // SAFETY: a UART's register; reading it does not reach memory.
            unsafe { inb(LINE_STATUS) & TRANSMITTER_EMPTY != 0 }
        });
        STUCK.store(!is_ready, Ordering::Relaxed);
        if is_ready {
            // SAFETY: a UART's register; the UART does not reach memory.
            unsafe { outb(COM1, byte) };
        }
    }
}
