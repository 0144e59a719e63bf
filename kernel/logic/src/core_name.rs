//! The name of a core file: `kernel.core_pattern` with its fields filled in.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Size of the memory for a pattern in bytes, with the NUL at its end, as on Linux.
pub const PATTERN_BYTES: usize = 128;

/// The values that replace the fields of `kernel.core_pattern`.
#[derive(Copy, Clone, Debug)]
pub struct Facts<'a> {
    /// The process ID.
    pub pid: u32,
    /// The ID of the thread that got the signal.
    pub tid: u32,
    /// The real user ID.
    pub uid: u32,
    /// The real group ID.
    pub gid: u32,
    /// The result of `PR_GET_DUMPABLE` (`%d`).
    pub dumpable: u32,
    /// The number of the signal.
    pub signal: u32,
    /// Seconds since 1970.
    pub seconds: u64,
    /// The limit `RLIMIT_CORE` (`%c`).
    pub limit: u64,
    /// The host's name.
    pub host: &'a [u8],
    /// The thread's name.
    pub name: &'a [u8],
    /// The program's path.
    pub program: &'a [u8],
}

/// Returns the decimal digits of `number`. They are written to the end of `buffer`.
fn digits(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        let digit = (number % 10) as u8;
        buffer[at] = b'0' + digit;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}

/// A name under construction.
struct Name(Vec<u8>);

impl Name {
    fn add(&mut self, bytes: &[u8]) -> Result<(), TryReserveError> {
        self.0.try_reserve(bytes.len())?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn number(&mut self, number: u64) -> Result<(), TryReserveError> {
        self.add(digits(number, &mut [0; 20]))
    }

    /// Adds `text`, which must be one component of a path or a part of one. So each `/` becomes a
    /// `!`, and so does the first byte of `.` and of `..`. An empty text becomes a `!`. Fails with
    /// [`TryReserveError`] if memory is short.
    fn text(&mut self, text: &[u8]) -> Result<(), TryReserveError> {
        let start = self.0.len();
        self.add(text)?;
        let added = &mut self.0[start..];
        for byte in added.iter_mut().filter(|byte| **byte == b'/') {
            *byte = b'!';
        }
        if matches!(&*added, b"." | b"..") {
            added[0] = b'!';
        }
        if text.is_empty() {
            self.add(b"!")?;
        }
        Ok(())
    }
}

/// Returns the path of a core file: `pattern` with its fields replaced by the values in `facts`. If
/// `uses_pid` is set and `pattern` does not contain `%p`, a dot and the process ID are appended.
///
/// # Errors
/// [`TryReserveError`] if memory is short.
pub fn fill(pattern: &[u8], uses_pid: bool, facts: &Facts<'_>) -> Result<Vec<u8>, TryReserveError> {
    let mut name = Name(Vec::new());
    let mut has_pid = false;
    let mut rest = pattern.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            name.add(&[byte])?;
            continue;
        }
        // Unknown fields are empty, as on Linux.
        match rest.next() {
            None => break,
            Some(b'%') => name.add(b"%")?,
            Some(b'p') => {
                has_pid = true;
                name.number(facts.pid.into())?;
            }
            Some(b'P') => name.number(facts.pid.into())?,
            Some(b'i' | b'I') => name.number(facts.tid.into())?,
            Some(b'u') => name.number(facts.uid.into())?,
            Some(b'g') => name.number(facts.gid.into())?,
            Some(b'd') => name.number(facts.dumpable.into())?,
            Some(b's') => name.number(facts.signal.into())?,
            Some(b't') => name.number(facts.seconds)?,
            Some(b'c') => name.number(facts.limit)?,
            Some(b'h') => name.text(facts.host)?,
            Some(b'e') => name.text(facts.name)?,
            Some(b'f') => {
                let last = facts.program.rsplit(|&byte| byte == b'/').next();
                name.text(last.unwrap_or(facts.program))?;
            }
            Some(b'E') => name.text(facts.program)?,
            Some(_) => {}
        }
    }
    if uses_pid && !has_pid {
        name.add(b".")?;
        name.number(facts.pid.into())?;
    }
    Ok(name.0)
}
