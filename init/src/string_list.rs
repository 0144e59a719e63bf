//! Reads lists of strings that ebb packed.

use crate::failure::Failure;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

/// Returns the strings of the file at `path`, each ended by a NUL. Fails if the file cannot be read
/// or its last string is not ended.
pub(crate) fn read(path: &'static str) -> Result<Vec<OsString>, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::new(format!("read {path}"), error))?;
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = bytes.strip_suffix(b"\0").ok_or(Failure::List(path))?;
    let words = bytes.split(|byte| *byte == 0);
    Ok(words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect())
}
