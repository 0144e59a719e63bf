//! `syslog(2)`: reads the kernel log, and sets the level of messages on the console.

use super::Args;
use crate::fs::dev;
use crate::process::caller;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::arch::clock::{self, Nanos};
use machine::arch::log;
use machine::sync::SpinLock;
use machine::uaccess;

/// The actions that a caller can request (`SYSLOG_ACTION_*`).
mod action {
    /// Has no effect.
    pub(super) const CLOSE: i32 = 0;
    /// Has no effect.
    pub(super) const OPEN: i32 = 1;
    /// Reads unread lines, and waits for one.
    pub(super) const READ: i32 = 2;
    /// Reads the newest lines since the log was cleared, also those that were read before.
    pub(super) const READ_ALL: i32 = 3;
    /// Reads as [`READ_ALL`], and clears the log for later calls.
    pub(super) const READ_CLEAR: i32 = 4;
    /// Clears the log for later calls of [`READ_ALL`].
    pub(super) const CLEAR: i32 = 5;
    /// Sets the console's level to its minimum, the third number of `kernel.printk`.
    pub(super) const CONSOLE_OFF: i32 = 6;
    /// Sets the console's level back to that before [`CONSOLE_OFF`].
    pub(super) const CONSOLE_ON: i32 = 7;
    /// Sets the console's level.
    pub(super) const CONSOLE_LEVEL: i32 = 8;
    /// Returns the number of unread bytes.
    pub(super) const SIZE_UNREAD: i32 = 9;
    /// Returns the size of the log in bytes.
    pub(super) const SIZE_BUFFER: i32 = 10;
}

/// The place in the log up to which `READ` has read.
static READ_TO: AtomicU64 = AtomicU64::new(0);
/// The place in the log from which `READ_ALL` reads.
static CLEARED_TO: AtomicU64 = AtomicU64::new(0);

/// The number of bytes that are copied at a time.
const PIECE: usize = 256;

/// Copies bytes of the log to `buffer` in a program's memory. Begins at the position `from` and
/// stops at the position `end` or after `room` bytes. Returns the number of bytes and the position
/// where the copy stopped. Fails with `EFAULT` for a bad address.
fn copy(mut from: u64, end: u64, buffer: u64, room: usize) -> Result<(usize, u64), Errno> {
    let mut done = 0;
    while done < room && from < end {
        let mut piece = [0; PIECE];
        let left = usize::try_from(end - from).unwrap_or(PIECE);
        let wanted = PIECE.min(room - done).min(left);
        let count = log::lines().read(&mut from, &mut piece[..wanted]);
        if count == 0 {
            break;
        }
        uaccess::copy_out(buffer + done as u64, &piece[..count])?;
        done += count;
    }
    Ok((done, from))
}

/// Reads unread lines into `buffer`, up to `room` bytes, and waits for the first byte. Returns the
/// number of bytes. Fails with `EFAULT` for a bad address, and with `ERESTARTSYS` at a signal.
fn read(buffer: u64, room: usize) -> SysResult {
    /// The kernel's own lines wake no reader, since they may come from any context.
    const LOOK_AGAIN: Nanos = Nanos(200_000_000);
    loop {
        // Relaxed (all): two readers at once may both read a line, and neither reads beyond the
        // end.
        let from = READ_TO.load(Ordering::Relaxed);
        let end = log::lines().end();
        if from < end {
            let (count, to) = copy(from, end, buffer, room)?;
            READ_TO.store(to, Ordering::Relaxed);
            return Ok(count);
        }
        let is_more = || log::lines().end() > from;
        let deadline = clock::now().saturating_add(LOOK_AGAIN);
        dev::LOG_READERS.wait_deadline(is_more, deadline)?;
    }
}

/// Reads the newest lines that fit into `room` bytes, also read ones. If `clear` is set, later
/// calls of this function leave out these lines. Returns the number of bytes. Fails with `EFAULT`
/// for a bad address.
fn read_all(buffer: u64, room: usize, clear: bool) -> SysResult {
    let (from, end) = {
        let lines = log::lines();
        let from = CLEARED_TO.load(Ordering::Relaxed);
        (lines.newest(from, room as u64), lines.end())
    };
    let (count, _) = copy(from, end, buffer, room)?;
    if clear {
        CLEARED_TO.store(end, Ordering::Relaxed);
    }
    Ok(count)
}

/// Sets the level below which messages appear on the console to the result of `choose`, which gets
/// the four numbers of `kernel.printk`. Returns 0.
fn set_level(choose: impl FnOnce([u32; 4]) -> u32) -> SysResult {
    let mut levels = dev::log_levels();
    levels[0] = choose(levels);
    dev::set_log_levels(levels);
    Ok(0)
}

/// The level of the console before `CONSOLE_OFF`, or `None` while it is not off.
static LEVEL_BEFORE: SpinLock<Option<u32>> = SpinLock::new(None);

/// Sets the level of the console to the least one. A second call keeps the level that the first one
/// has stored. Returns 0.
fn console_off() -> SysResult {
    let mut before = LEVEL_BEFORE.lock();
    set_level(|levels| {
        before.get_or_insert(levels[0]);
        levels[2]
    })
}

/// Sets the level of the console to that before `CONSOLE_OFF`. Does nothing if the console is not
/// off. Returns 0.
fn console_on() -> SysResult {
    match LEVEL_BEFORE.lock().take() {
        None => Ok(0),
        Some(before) => set_level(|_| before),
    }
}

/// Sets the level of the console to `level`, or to the least one if that is higher. The console is
/// not off any more. Returns 0.
fn console_level(level: u32) -> SysResult {
    *LEVEL_BEFORE.lock() = None;
    set_level(|levels| level.max(levels[2]))
}

/// `syslog(2)`.
pub fn syslog(a: &Args) -> SysResult {
    // As on a Linux with `kernel.dmesg_restrict` set to 1, the default of Debian.
    if !caller::can(Capabilities::SYSLOG) {
        caller::need(Capabilities::SYS_ADMIN)?;
    }
    let (buffer, length) = (a.addr(1), a.int(2));
    match a.int(0) {
        action::CLOSE | action::OPEN => Ok(0),
        command @ (action::READ | action::READ_ALL | action::READ_CLEAR) => {
            let room = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
            if buffer == 0 {
                return Err(Errno::EINVAL);
            }
            match command {
                _ if room == 0 => Ok(0),
                action::READ => read(buffer, room),
                _ => read_all(buffer, room, command == action::READ_CLEAR),
            }
        }
        action::CLEAR => {
            CLEARED_TO.store(log::lines().end(), Ordering::Relaxed);
            Ok(0)
        }
        action::CONSOLE_OFF => console_off(),
        action::CONSOLE_ON => console_on(),
        action::CONSOLE_LEVEL if !(1..=8).contains(&length) => Err(Errno::EINVAL),
        action::CONSOLE_LEVEL => console_level(length.cast_unsigned()),
        action::SIZE_UNREAD => {
            let lines = log::lines();
            let from = lines.still(READ_TO.load(Ordering::Relaxed));
            Ok(usize::try_from(lines.end() - from).unwrap_or(usize::MAX))
        }
        action::SIZE_BUFFER => Ok(log::BYTES),
        _ => Err(Errno::EINVAL),
    }
}
