//! The archive that the guest sends. All of it is an allegation.

use super::budget::{Allowance, Budget};
use super::tree::TreeError;
use crate::text::{Size, printable};
use ebb_wire::out::{END, END_BYTES_MAX, PATH_MAX, cost};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use tar::{Archive, EntryType};

/// An entry's headers, with long names, take less.
const HEADERS_MAX: u64 = 64 << 10;
/// What the guest may send beyond the double of what is taken: it counts as the host does, so an honest one sends less.
const SLACK: u64 = 1 << 20;

/// Why nothing more was taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the guest ended before it had sent all")]
    Ended,
    #[error("the guest sent what is no archive of files ({0})")]
    Archive(String),
    #[error("the guest sent something called {0:?}")]
    Name(String),
    #[error("the guest sent {0:?}, which is neither file, folder nor symbolic link")]
    Kind(String),
    #[error("the guest sent more than {0} (--out-max)")]
    Over(Size),
    #[error(transparent)]
    Tree(TreeError),
    /// The process that reads the archive says why. It can read another one.
    #[error("{0}")]
    Told(String),
    /// That process, or `ebb`, said something odd.
    #[error("{0}")]
    Said(String),
}

/// Takes the entries of an archive; `number` is that of a destination.
pub(super) trait Taker {
    /// How many destinations there are.
    fn destinations(&self) -> usize;
    /// Makes a folder.
    fn folder(&mut self, number: usize, names: &[OsString], mode: u32) -> Result<(), Fault>;
    /// Makes a file of `size` bytes, as the archive says; returns the bytes that came.
    fn file(
        &mut self,
        number: usize,
        names: &[OsString],
        mode: u32,
        size: u64,
        content: &mut dyn Read,
    ) -> Result<u64, Fault>;
    /// Makes a symbolic link, if it leads to something within the copy.
    fn link(&mut self, number: usize, names: &[OsString], target: &[u8]) -> Result<(), Fault>;
}

/// Hands the entries that come to `taker`; returns the lines about what was not sent, once all has come.
///
/// # Errors
/// Why nothing more was taken.
pub(super) fn receive(
    stream: impl Read,
    taker: &mut impl Taker,
    most: Size,
) -> Result<String, Fault> {
    let allowance = Allowance::default();
    let mut archive = Archive::new(Budget::new(stream, &allowance));
    let mut left = most.bytes();
    let mut notes = String::new();
    allowance.set(HEADERS_MAX);
    let mut entries = archive.entries().map_err(|error| broken(&error))?;
    loop {
        allowance.set(HEADERS_MAX);
        // Without the last entry it was not all.
        let mut entry = match entries.next() {
            None => return Err(Fault::Ended),
            Some(Err(_)) if allowance.is_used_up() => {
                return Err(Fault::Archive("a name without an end".into()));
            }
            Some(Err(error)) => return Err(broken(&error)),
            Some(Ok(entry)) => entry,
        };
        let path = entry.path_bytes().into_owned();
        let size = entry.size();
        // The padding behind it belongs to the next headers.
        allowance.set(size.saturating_add(1));
        if path == END.as_bytes() {
            if size > END_BYTES_MAX || entry.header().entry_type() != EntryType::Regular {
                return Err(Fault::Archive("an end that is none".into()));
            }
            let mut bytes = Vec::new();
            entry
                .read_to_end(&mut bytes)
                .map_err(|error| broken(&error))?;
            if bytes.len() as u64 != size {
                return Err(Fault::Ended);
            }
            notes.push_str(&String::from_utf8_lossy(&bytes));
            return Ok(notes);
        }
        let shown = || printable(&String::from_utf8_lossy(&path));
        let (number, names) = parts(&path).ok_or_else(|| Fault::Name(shown()))?;
        if number >= taker.destinations() {
            return Err(Fault::Name(shown()));
        }
        left = left.checked_sub(cost(size)).ok_or(Fault::Over(most))?;
        let mode = entry.header().mode().unwrap_or(0);
        match entry.header().entry_type() {
            EntryType::Regular => {
                let bytes = taker.file(number, &names, mode, size, &mut entry)?;
                if bytes != size {
                    return Err(Fault::Ended);
                }
            }
            EntryType::Directory => taker.folder(number, &names, mode)?,
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                taker.link(number, &names, &target)?;
            }
            _ => return Err(Fault::Kind(shown())),
        }
    }
}

/// Reads what is still sent, to nowhere; false if it does not end.
pub(super) fn drain(stream: impl Read, most: Size) -> bool {
    let bound = most.bytes().saturating_mul(2).saturating_add(SLACK);
    let mut rest = stream.take(bound);
    // An error is an end, too.
    let drained = io::copy(&mut rest, &mut io::sink());
    drained.is_err() || rest.limit() > 0
}

/// The number of the tree in front of an entry's path, and the names behind that.
fn parts(path: &[u8]) -> Option<(usize, Vec<OsString>)> {
    if path.len() > PATH_MAX || path.contains(&0) {
        return None;
    }
    // Archives have a slash behind the names of folders.
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let mut parts = path.split(|byte| *byte == b'/');
    let number = parts.next()?;
    if number.is_empty() || !number.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    let names = parts.map(|name| {
        let plain = !matches!(name, b"" | b"." | b"..");
        plain.then(|| OsString::from_vec(name.to_vec()))
    });
    Some((number, names.collect::<Option<_>>()?))
}

impl Fault {
    /// What an error of the guest's stream means.
    pub(super) fn of_stream(error: &io::Error) -> Self {
        broken(error)
    }
}

fn broken(error: &io::Error) -> Fault {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        Fault::Ended
    } else {
        Fault::Archive(printable(&error.to_string()))
    }
}

impl From<TreeError> for Fault {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Read(error) => broken(&error),
            error @ TreeError::Write { .. } => Self::Tree(error),
        }
    }
}
