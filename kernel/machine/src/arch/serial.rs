//! The serial port COM1: output only, polled.

use super::cpu::{inb, outb};

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
/// The most polls for the transmitter before a byte is sent anyway. A missing UART reads as 0xff.
const MAX_POLLS: u32 = 100_000;

/// Writes `bytes` to COM1. Returns when the UART has taken them.
pub fn write(bytes: &[u8]) {
    for &byte in bytes {
        // SAFETY: COM1's registers; a UART does not reach memory.
        unsafe {
            let mut polls = 0;
            while inb(LINE_STATUS) & TRANSMITTER_EMPTY == 0 && polls < MAX_POLLS {
                polls += 1;
            }
            outb(COM1, byte);
        }
    }
}
