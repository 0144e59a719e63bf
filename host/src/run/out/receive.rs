//! Parses the archive that the guest sends. All of its content is untrusted.

use super::budget::{Allowance, Budget};
use super::tree::TreeError;
use crate::text::{Size, printable};
use ebb_wire::out::{END, END_BYTES_MAX, PATH_MAX, cost};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use tar::{Archive, EntryType};

/// Limit for the headers of one entry, with long names.
const HEADERS_MAX: u64 = 64 << 10;
/// The guest may send this many bytes more than the double of the limit. An honest guest counts as
/// the host does, and sends less.
const SLACK: u64 = 1 << 20;

/// The reason why nothing more of the guest's archive is received.
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
    /// The reading process reports an error in the archive. It can read another archive.
    #[error("{0}")]
    Told(String),
    /// The reading process broke the protocol or ended. It cannot be used again.
    #[error("{0}")]
    Said(String),
}

/// Receives the entries of the guest's archive one after the other. `number` is the index of the
/// destination. `names` lead from there to the entry, and are empty for the copy itself.
///
/// The methods for entries fail with a [`Fault`] if no further entry can be taken.
pub(super) trait EntrySink {
    /// Returns the number of destinations, which are the `--out` options. Each `number` is less.
    fn destinations(&self) -> usize;
    /// Makes a directory with the permissions `mode`. Its parent directory must have been made.
    fn folder(&mut self, number: usize, names: &[OsString], mode: u32) -> Result<(), Fault>;
    /// Makes a regular file with the permissions `mode`, whose size is `size` bytes according to
    /// the archive. Returns the number of bytes read from `content`.
    fn file(
        &mut self,
        number: usize,
        names: &[OsString],
        mode: u32,
        size: u64,
        content: &mut dyn Read,
    ) -> Result<u64, Fault>;
    /// Makes a symbolic link to `target` if that leads to something within the copy. Another link
    /// is left out, which is no failure.
    fn link(&mut self, number: usize, names: &[OsString], target: &[u8]) -> Result<(), Fault>;
}

/// Parses the archive in `stream` and passes its entries to `sink`, until the entry that marks the
/// end. All entries may cost at most `most` bytes, each at least 4096. Returns the guest's lines
/// about files that it did not send.
///
/// # Errors
/// Fails with a [`Fault`] if the archive is malformed or ends early, has an entry with an
/// impossible path or kind, costs more than `most`, or if `sink` fails. Entries before that stay.
pub(super) fn receive(
    stream: impl Read,
    sink: &mut impl EntrySink,
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
        // An archive without the entry `END` is incomplete.
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
        // One byte more, so that the file's end can be read. The padding counts for the next
        // headers.
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
        if number >= sink.destinations() {
            return Err(Fault::Name(shown()));
        }
        left = left.checked_sub(cost(size)).ok_or(Fault::Over(most))?;
        let mode = entry.header().mode().unwrap_or(0);
        match entry.header().entry_type() {
            EntryType::Regular => {
                let bytes = sink.file(number, &names, mode, size, &mut entry)?;
                if bytes != size {
                    return Err(Fault::Ended);
                }
            }
            EntryType::Directory => sink.folder(number, &names, mode)?,
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                sink.link(number, &names, &target)?;
            }
            _ => return Err(Fault::Kind(shown())),
        }
    }
}

/// Discards the rest of `stream` until its end or an error. Returns `false`, with bytes left, if
/// the rest exceeds the double of `most` and 1 MiB.
pub(super) fn drain(stream: impl Read, most: Size) -> bool {
    let bound = most.bytes().saturating_mul(2).saturating_add(SLACK);
    let mut rest = stream.take(bound);
    // An error of the stream is an end, too.
    let drained = io::copy(&mut rest, &mut io::sink());
    drained.is_err() || rest.limit() > 0
}

/// Splits the path of an entry into the number of its destination and the names below it. Returns
/// `None` if the path is too long, has no number, or has names such as `..`.
fn parts(path: &[u8]) -> Option<(usize, Vec<OsString>)> {
    if path.len() > PATH_MAX || path.contains(&0) {
        return None;
    }
    // Archives end the names of directories with a slash.
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
    /// Converts an error of reading the guest's archive: an unexpected end to [`Fault::Ended`], and
    /// any other to [`Fault::Archive`].
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
