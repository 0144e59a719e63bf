//! What `--volume` says.

use crate::archive::GuestPath;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// `SRC:DST[:ro]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeOption {
    /// On the host.
    pub(crate) source: PathBuf,
    /// In the guest.
    pub(crate) destination: Vec<u8>,
    /// The guest changes nothing.
    pub(crate) read_only: bool,
}

impl VolumeOption {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let (bytes, read_only) = match (bytes.strip_suffix(b":ro"), bytes.strip_suffix(b":rw")) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            _ => (bytes, false),
        };
        // The last colon: the guest's path may be chosen without one.
        let colon = bytes.iter().rposition(|byte| *byte == b':');
        let (source, destination) = match colon {
            Some(at) if at > 0 => (&bytes[..at], &bytes[at + 1..]),
            _ => return Err("it is SRC:DST, or SRC:DST:ro".into()),
        };
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
        })
    }
}
