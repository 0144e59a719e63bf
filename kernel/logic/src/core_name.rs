//! What a core file is called: `kernel.core_pattern` filled in.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Bytes of a pattern, its end included: Linux's bound.
pub const PATTERN_BYTES: usize = 128;

/// What a pattern may ask for.
#[derive(Copy, Clone, Debug)]
pub struct Facts<'a> {
    /// The process.
    pub pid: u32,
    /// The thread that the signal came to.
    pub tid: u32,
    /// Its real user.
    pub uid: u32,
    /// Its real group.
    pub gid: u32,
    /// `PR_GET_DUMPABLE`.
    pub dumpable: u32,
    /// The signal.
    pub signal: u32,
    /// Seconds since 1970.
    pub seconds: u64,
    /// `RLIMIT_CORE`.
    pub limit: u64,
    /// The host's name.
    pub host: &'a [u8],
    /// The thread's name.
    pub name: &'a [u8],
    /// The program's path.
    pub program: &'a [u8],
}

/// Decimal digits of a number, from the last one on.
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

    /// A text that is to be one component of a path, or part of one.
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

/// The path of a core file by a pattern. With `uses_pid` the process's number is added where the pattern does not
/// have it.
///
/// # Errors
/// There is no memory for it.
pub fn fill(pattern: &[u8], uses_pid: bool, facts: &Facts<'_>) -> Result<Vec<u8>, TryReserveError> {
    let mut name = Name(Vec::new());
    let mut has_pid = false;
    let mut rest = pattern.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            name.add(&[byte])?;
            continue;
        }
        // Nothing for what nobody knows, as on Linux.
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
