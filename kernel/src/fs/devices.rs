//! Device numbers. File systems without a device have minors of major 0, as Linux gives them.

use logic::errno::Errno;
use logic::numbers::Numbers;
use machine::sync::SpinLock;

/// Returns the device number of `major` (12 bits) and `minor` (20 bits), in the form of `st_rdev`.
pub const fn number(major: u64, minor: u64) -> u64 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Returns the major and the minor of a device number.
pub const fn parts(device: u64) -> (u64, u64) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & !0xff)
}

/// The device number of the file system at `/`.
pub const ROOT: u64 = 1;
/// The device number of the file system at `/tmp`.
pub const TMP: u64 = 2;
/// The device number of the file system at `/dev`.
pub const DEV: u64 = 3;
/// The device number of the file system at `/proc`.
pub const PROC: u64 = 4;
/// The device number of the file system at `/sys`.
pub const SYS: u64 = 5;
/// The device number of files that are in no directory: pipes, events, timers.
pub const ANONYMOUS: u64 = 6;
/// The device number of memory files (`memfd_create(2)`).
pub const MEMFD: u64 = 7;
/// The device number of memory files of huge pages of 2 MiB.
pub const HUGE_MEMFD: u64 = 8;
/// The device number of memory files of huge pages of 1 GiB.
pub const GIGANTIC_MEMFD: u64 = 9;

/// The device number of POSIX message queues.
pub const MQUEUE: u64 = 10;
/// The device number of the file system at `/dev/pts`.
pub const PTS: u64 = 11;
/// The device number of namespaces.
pub const NAMESPACES: u64 = 12;
/// The last fixed minor.
const LAST: u64 = NAMESPACES;

/// The minors behind [`LAST`] that are in use, counted from 1.
static TAKEN: SpinLock<Numbers> = SpinLock::new(Numbers::new());

/// Allocates a device number for a file system that is about to be mounted. [`give_back`] frees the
/// number.
///
/// # Errors
/// Fails with `EMFILE` if all numbers are in use.
pub(super) fn take() -> Result<u64, Errno> {
    let taken = TAKEN.lock().take().ok_or(Errno::EMFILE)?;
    Ok(number(0, LAST + u64::from(taken)))
}

/// Frees the device number `device` if [`take`] allocated it. Does nothing for a fixed number.
pub(super) fn give_back(device: u64) {
    let (_, minor) = parts(device);
    if let Some(taken) = minor.checked_sub(LAST).filter(|&taken| taken > 0) {
        // The number is below the limit of `Numbers`.
        TAKEN.lock().give_back(u32::try_from(taken).unwrap_or(0));
    }
}
