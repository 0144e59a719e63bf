//! `/dev/kmsg`, through which programs write to the kernel log. Reads return nothing.

use super::super::file::File;
use super::super::flags::OpenFlags;
use super::super::io::{ByteSink, ByteSource};
use super::super::poll::PollMask;
use alloc::string::String;
use core::sync::atomic::{AtomicU32, Ordering};
use logic::errno::{Errno, SysResult};
use machine::arch::console;
use machine::sync::WaitQueue;

/// The longest record that is logged; the rest of a write is ignored.
const RECORD: usize = 256;

/// Returns the four numbers of `kernel.printk`.
pub fn log_levels() -> [u32; 4] {
    // Relaxed: the numbers are independent.
    core::array::from_fn(|i| LEVELS[i].load(Ordering::Relaxed))
}

/// Sets the four numbers of `kernel.printk`.
pub fn set_log_levels(levels: [u32; 4]) {
    for (place, level) in LEVELS.iter().zip(levels) {
        place.store(level, Ordering::Relaxed);
    }
}

/// Splits a message into its priority (`<6>`), if it has one, and the text. The lowest three bits
/// of the priority are the level, the others the facility.
fn level_of(text: &str) -> (Option<u32>, &str) {
    let numbered = text
        .strip_prefix('<')
        .and_then(|rest| rest.split_once('>'))
        .and_then(|(number, rest)| Some((number.parse::<u32>().ok()?, rest)));
    match numbered {
        Some((number, rest)) => (Some(number), rest),
        None => (None, text),
    }
}

/// `kernel.printk`. Messages with a level of the first number or more are not printed. Messages
/// without a level have the second number as their level.
static LEVELS: [AtomicU32; 4] = [
    AtomicU32::new(7),
    AtomicU32::new(4),
    AtomicU32::new(1),
    AtomicU32::new(7),
];

/// The facility of programs. Messages cannot claim facility 0, which is the kernel's.
const USER: u32 = 1;

/// The queue of tasks that wait for a line of the kernel log (`syslog(2)`).
pub static LOG_READERS: WaitQueue = WaitQueue::new();

/// The file of `/dev/kmsg`.
pub(super) struct KernelLog;

impl File for KernelLog {
    fn read(&self, _: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        if flags.nonblocking() {
            return Err(Errno::EAGAIN);
        }
        Ok(0)
    }
    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, _: OpenFlags) -> SysResult {
        let mut record = [0; RECORD];
        let taken = from.take(&mut record)?;
        let text = String::from_utf8_lossy(&record[..taken]);
        let [shown, usual, ..] = log_levels();
        let (level, text) = level_of(text.trim_end());
        let level = level.unwrap_or(usual);
        let (urgency, source) = (level & 7, (level >> 3).max(USER));
        let priority = source << 3 | urgency;
        console::message(priority, urgency < shown, format_args!("{text}"));
        LOG_READERS.wake_all();
        Ok(taken + from.skip(from.left()))
    }
    fn poll(&self) -> PollMask {
        PollMask::WRITABLE
    }
}
