//! The confined process that parses the guest's archive ([`crate::confine::Reader`]). It sends one
//! entry after another to `ebb`, which creates or refuses each.
//!
//! The constants are the kinds of messages between both.

use super::receive::{EntrySink, Fault, receive};
use crate::confine::frames::{Frame, receive as next, send};
use crate::text::Size;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;

/// Request of `ebb` to the confined archive reader: parse the archive that comes on a port. The
/// message has the port's descriptor, the most bytes to receive and the number of destinations.
pub(super) const RECEIVE: u8 = 1;
/// Message of the confined archive reader: a directory to make. It has an [`Entry`].
pub(super) const FOLDER: u8 = 2;
/// Message of the confined archive reader: a file to make. It has an [`Entry`], and messages of the
/// kind [`DATA`] follow.
pub(super) const FILE: u8 = 3;
/// Message of the confined archive reader: the next bytes of a file, at most 64 KiB. An empty
/// message ends the file.
pub(super) const DATA: u8 = 4;
/// Message of the confined archive reader: a symbolic link to make. It has an [`Entry`] with the
/// link's target.
pub(super) const LINK: u8 = 5;
/// Message of the confined archive reader: the archive is complete. It has the guest's lines about
/// files that the guest did not send.
pub(super) const DONE: u8 = 6;
/// Message of the confined archive reader: the archive is wrong, and nothing more of it is read. It
/// has the reason as text.
pub(super) const FAULT: u8 = 7;
/// Answer of `ebb` to the confined archive reader: the entry was made, or left out.
pub(super) const TAKEN: u8 = 8;

/// The most bytes of a file in one message.
const CHUNK: usize = 64 << 10;

/// An entry of the archive, as the confined process that parses the archive sends it to `ebb`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Index of the destination.
    pub(super) number: usize,
    /// The permissions.
    pub(super) mode: u32,
    /// Size of a file in bytes, according to the archive.
    pub(super) size: u64,
    /// The names that lead to the entry below its destination.
    pub(super) names: Vec<OsString>,
    /// The target of a link, otherwise empty.
    pub(super) target: Vec<u8>,
}

impl Entry {
    fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((self.number as u64).to_le_bytes());
        bytes.extend(self.mode.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        let texts = self.names.iter().map(|name| name.as_bytes());
        for text in texts.chain([&*self.target]) {
            // Paths are shorter than 64 KiB.
            bytes.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
            bytes.extend(text);
        }
        bytes
    }

    /// Parses the bytes of an entry. Returns `None` if they are cut off within a number or text, or
    /// if a name is empty, `.` or `..`, or has a slash or a zero byte. The target is not checked.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (mode, rest) = rest.split_first_chunk()?;
        let (size, mut rest) = rest.split_first_chunk()?;
        let mut names = Vec::new();
        while !rest.is_empty() {
            let (len, after) = rest.split_first_chunk()?;
            let (name, after) = after.split_at_checked(u16::from_le_bytes(*len).into())?;
            names.push(OsString::from_vec(name.to_vec()));
            rest = after;
        }
        let target = names.pop()?.into_vec();
        let is_plain = |name: &OsString| {
            let name = name.as_bytes();
            !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| b"/\0".contains(byte))
        };
        names.iter().all(is_plain).then_some(Self {
            number: usize::try_from(u64::from_le_bytes(*number)).ok()?,
            mode: u32::from_le_bytes(*mode),
            size: u64::from_le_bytes(*size),
            names,
            target,
        })
    }
}

/// Encodes the bytes of a [`RECEIVE`] message: the most bytes to receive, and the number of
/// destinations.
pub(super) fn bounds(most: Size, destinations: usize) -> Vec<u8> {
    let destinations = destinations as u64;
    [most.bytes().to_le_bytes(), destinations.to_le_bytes()].concat()
}

/// Runs in the confined process. Reads one archive for each [`RECEIVE`] message on `socket`, and
/// sends its entries. Returns when `socket` closes or any other message comes.
pub(super) fn serve(socket: &UnixStream) {
    while let Ok(frame) = next(socket) {
        let Some((port, most, destinations)) = asked(frame) else {
            return;
        };
        let mut sender = EntrySender {
            socket,
            destinations,
        };
        let sent = match receive(port, &mut sender, most) {
            Ok(notes) => send(socket, DONE, notes.as_bytes(), &[]),
            Err(fault) => send(socket, FAULT, fault.to_string().as_bytes(), &[]),
        };
        if sent.is_err() {
            return;
        }
    }
}

fn asked(mut frame: Frame) -> Option<(File, Size, usize)> {
    let port = frame.descriptors.pop().filter(|_| frame.kind == RECEIVE)?;
    let (most, rest) = frame.bytes.split_first_chunk()?;
    let (destinations, _) = rest.split_first_chunk()?;
    let destinations = usize::try_from(u64::from_le_bytes(*destinations)).ok()?;
    Some((
        File::from(port),
        Size(u64::from_le_bytes(*most)),
        destinations,
    ))
}

/// Sends the entries of an archive to `ebb`, which makes them.
struct EntrySender<'a> {
    socket: &'a UnixStream,
    destinations: usize,
}

impl EntrySender<'_> {
    fn tell(&self, kind: u8, entry: &Entry) -> io::Result<()> {
        send(self.socket, kind, &entry.write(), &[])
    }

    /// Waits until `ebb` has made the entry. Fails if `ebb` answers something else or has closed
    /// the socket.
    fn wait(&self) -> io::Result<()> {
        match next(self.socket)?.kind {
            TAKEN => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Converts an error of the socket. `ebb` has kept its own reason by then.
fn gone(error: io::Error) -> Fault {
    Fault::Said(error.to_string())
}

impl EntrySink for EntrySender<'_> {
    fn destinations(&self) -> usize {
        self.destinations
    }

    fn folder(&mut self, number: usize, names: &[OsString], mode: u32) -> Result<(), Fault> {
        let entry = entry(number, names, mode, 0, b"");
        self.tell(FOLDER, &entry).map_err(gone)?;
        self.wait().map_err(gone)
    }

    fn file(
        &mut self,
        number: usize,
        names: &[OsString],
        mode: u32,
        size: u64,
        content: &mut dyn Read,
    ) -> Result<u64, Fault> {
        self.tell(FILE, &entry(number, names, mode, size, b""))
            .map_err(gone)?;
        let mut chunk = vec![0; CHUNK];
        let mut bytes = 0;
        // Ends, because `content` is bounded.
        loop {
            let count = match content.read(&mut chunk) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Fault::of_stream(&error)),
            };
            send(self.socket, DATA, &chunk[..count], &[]).map_err(gone)?;
            bytes += count as u64;
            if count == 0 {
                break;
            }
        }
        self.wait().map_err(gone)?;
        Ok(bytes)
    }

    fn link(&mut self, number: usize, names: &[OsString], target: &[u8]) -> Result<(), Fault> {
        self.tell(LINK, &entry(number, names, 0, 0, target))
            .map_err(gone)?;
        self.wait().map_err(gone)
    }
}

fn entry(number: usize, names: &[OsString], mode: u32, size: u64, target: &[u8]) -> Entry {
    Entry {
        number,
        mode,
        size,
        names: names.to_vec(),
        target: target.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back() {
        let names: Vec<OsString> = ["a", "b c"].map(OsString::from).into();
        let written = entry(3, &names, 0o755, 9, b"../x");
        assert_eq!(Entry::read(&written.write()), Some(written));
        let whole = entry(0, &[], 0o644, 0, b"");
        assert_eq!(Entry::read(&whole.write()), Some(whole));
    }

    #[test]
    fn names_that_lead_elsewhere_are_no_entries() {
        for name in ["..", ".", "", "a/b", "/etc", "a\0"] {
            let bytes = entry(0, &[name.into()], 0, 0, b"").write();
            assert_eq!(Entry::read(&bytes), None, "{name:?}");
        }
        let bytes = entry(0, &["name".into()], 0, 0, b"").write();
        for len in 0..bytes.len() {
            // A shorter message is no entry, or an entry with fewer names.
            let cut = Entry::read(&bytes[..len]);
            assert!(cut.is_none_or(|entry| entry.names.len() <= 1));
        }
    }
}
