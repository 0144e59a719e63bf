//! Parses the argument of `--volume`.

use crate::archive::GuestPath;
use crate::text::{Size, one_line};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The parsed argument of one `--volume` option, `SRC:DST[:ro|:max=SIZE]`: a directory of the host
/// that the guest reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeOption {
    /// The directory on the host.
    pub(crate) source: PathBuf,
    /// The path in the guest, with a slash at its beginning.
    pub(crate) destination: Vec<u8>,
    /// Whether the guest may not change anything.
    pub(crate) read_only: bool,
    /// The most bytes that the guest may add. `None` for no limit.
    pub(crate) max: Option<u64>,
}

impl VolumeOption {
    /// Parses `text`, the argument of one `--volume` option. `ro`, `rw` and `max=SIZE` may follow
    /// in any order. Does not look at the host's files.
    ///
    /// # Errors
    /// Returns a message if `SRC` or `DST` is missing, `DST` is no valid path, `SIZE` is malformed,
    /// an access word or `max` comes twice, or `ro` has a `max`. Also refuses a `DST` of the
    /// guest's own: `/tmp` itself, and `/proc`, `/sys`, `/dev`, `/.ebb` and paths below them.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, String> {
        let mut bytes = text.as_bytes();
        let (mut access, mut max) = (None, None);
        // From the right, because a guest path can be chosen without a colon, and a host path
        // cannot.
        let (source, destination) = loop {
            let colon = bytes.iter().rposition(|byte| *byte == b':');
            let (rest, last) = match colon {
                Some(at) if at > 0 => (&bytes[..at], &bytes[at + 1..]),
                _ => return Err("it is SRC:DST, with :ro or :max=SIZE behind it if wanted".into()),
            };
            let is_new = match (last, last.strip_prefix(b"max=")) {
                (b"ro" | b"rw", _) => access.replace(last == b"ro").is_none(),
                (_, Some(size)) => {
                    let size = String::from_utf8_lossy(size);
                    let size: Size = size
                        .parse()
                        .map_err(|why| format!("max={}: {why}", one_line(&*size)))?;
                    max.replace(size.bytes()).is_none()
                }
                _ => break (rest, last),
            };
            if !is_new {
                return Err(format!(
                    "{} is one option too many after DST: give ro or rw once, max=SIZE once",
                    one_line(OsStr::from_bytes(last))
                ));
            }
            bytes = rest;
        };
        let read_only = access.unwrap_or(false);
        if read_only && max.is_some() {
            return Err(":ro and :max=SIZE do not go together: nothing is written with ro".into());
        }
        let path = GuestPath::parse(destination).map_err(|error| error.to_string())?;
        let own = |place: &[u8]| {
            let rest = path.as_bytes().strip_prefix(place);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        for place in [&b"/proc"[..], b"/sys", b"/dev", b"/.ebb"] {
            if own(place) {
                let place = String::from_utf8_lossy(place);
                return Err(format!("{place} is the guest's own"));
            }
        }
        if path.as_bytes() == b"/tmp" {
            return Err("/tmp is the guest's own; take a folder in it".into());
        }
        Ok(Self {
            source: OsString::from(OsStr::from_bytes(source)).into(),
            destination: path.as_bytes().to_vec(),
            read_only,
            max,
        })
    }
}
