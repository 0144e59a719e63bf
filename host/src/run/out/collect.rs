//! Creates the files and directories that the confined reader of the guest's archive names.
//!
//! The guest may have taken over the reader. Even then it can only have `ebb` create entries below
//! the destinations, up to the limit in bytes.

use super::parser::{DATA, DONE, Entry, FAULT, FILE, FOLDER, LINK, RECEIVE, TAKEN, bounds};
use super::receive::Fault;
use super::tree::Tree;
use crate::confine::Reader;
use crate::text::{Size, printable};
use ebb_wire::out::cost;
use std::io::{self, Cursor, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Has the confined process `reader` parse the archive that comes on `port`, and creates its
/// entries in `trees`. All entries may cost at most `most` bytes. Returns lines about files that
/// were not copied, from the guest and about links that were left out. Does not rename the copies
/// to their destinations.
///
/// # Errors
/// Fails with [`Fault::Told`] if the archive is wrong. Fails with another [`Fault`] if `most` is
/// exceeded, an entry cannot be written, or `reader` ends or breaks the protocol. The reader cannot
/// be used again then.
pub(super) fn collect(
    reader: &Reader,
    port: &UnixStream,
    trees: &mut [Tree],
    most: Size,
) -> Result<String, Fault> {
    let asked = reader.send(RECEIVE, &bounds(most, trees.len()), &[port.as_fd()]);
    asked.map_err(ended)?;
    let mut left = most.bytes();
    let mut left_out = String::new();
    // Ends, because each entry takes at least a page off `left`.
    loop {
        let frame = reader.receive().map_err(ended)?;
        match frame.kind {
            FOLDER | FILE | LINK => {}
            DONE => return Ok(left_out + &String::from_utf8_lossy(&frame.bytes)),
            FAULT => {
                return Err(Fault::Told(printable(&String::from_utf8_lossy(
                    &frame.bytes,
                ))));
            }
            kind => return Err(Fault::Said(format!("its reader said {kind}"))),
        }
        let entry = Entry::read(&frame.bytes);
        let entry = entry.ok_or_else(|| Fault::Said("its reader named no entry".into()))?;
        let tree = trees.get_mut(entry.number);
        let tree = tree.ok_or_else(|| Fault::Said("its reader named no destination".into()))?;
        left = left
            .checked_sub(cost(entry.size))
            .ok_or(Fault::Over(most))?;
        match frame.kind {
            FOLDER => tree.folder(&entry.names, entry.mode)?,
            FILE => {
                let mut content = Content {
                    reader,
                    chunk: Cursor::default(),
                    left: entry.size,
                    is_over: false,
                };
                tree.file(&entry.names, entry.mode, &mut content)?;
            }
            _ => {
                if !tree.link(&entry.names, &entry.target)? {
                    let target = printable(&String::from_utf8_lossy(&entry.target));
                    let what = printable(&tree.in_guest(&entry.names).to_string_lossy());
                    let number = entry.number;
                    left_out.push_str(&format!(
                        "left-out {number} {what} (a link to {target}, outside of what is copied)\n"
                    ));
                }
            }
        }
        reader.send(TAKEN, &[], &[]).map_err(ended)?;
    }
}

fn ended(error: io::Error) -> Fault {
    Fault::Said(format!(
        "the process that reads what the guest sends ended: {error}"
    ))
}

/// The content of one file, received from the reader in messages.
struct Content<'a> {
    reader: &'a Reader,
    /// The content of the latest message.
    chunk: Cursor<Vec<u8>>,
    /// Number of bytes that the reader may still send.
    left: u64,
    is_over: bool,
}

impl Read for Content<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let is_read = self.chunk.position() == self.chunk.get_ref().len() as u64;
        if is_read && !self.is_over {
            let frame = self.reader.receive()?;
            if frame.kind == FAULT {
                let why = printable(&String::from_utf8_lossy(&frame.bytes));
                return Err(io::Error::other(why));
            }
            let len = frame.bytes.len() as u64;
            let fits = frame.kind == DATA && len <= self.left;
            self.left =
                self.left.checked_sub(len).filter(|_| fits).ok_or_else(|| {
                    io::Error::other("its reader said more of a file than there is")
                })?;
            self.is_over = frame.bytes.is_empty();
            self.chunk = Cursor::new(frame.bytes);
        }
        self.chunk.read(to)
    }
}
