//! Device numbers. File systems without a device have minors of major 0, as Linux gives them.

/// A device number of `major` and `minor`, as `st_rdev` has it for small numbers.
pub const fn number(major: u64, minor: u64) -> u64 {
    major << 8 | minor
}

/// `/`.
pub const ROOT: u64 = 1;
/// `/tmp`.
pub const TMP: u64 = 2;
/// `/dev`.
pub const DEV: u64 = 3;
/// `/proc`.
pub const PROC: u64 = 4;
/// `/sys`.
pub const SYS: u64 = 5;
/// Files that are in no directory: pipes, events, timers.
pub const ANONYMOUS: u64 = 6;
/// Memory files.
pub const MEMFD: u64 = 7;
