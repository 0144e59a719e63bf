//! The option `--root IMAGE`: a root from a tar archive. An index of the archive's entries is made
//! once, and bytes of files are read from the archive when the guest asks for them.
//!
//! | file | what |
//! |---|---|
//! | `layers` | recognizes the archive (file system, `docker save`, OCI layout), reads its layers |
//! | `index` | the index of all entries |
//! | `walk` | path resolution in the index |
//! | `nodes` | the index's nodes, with `names`, `facts`, `archives`, `table`, `growth` |
//! | `entries` | parses the entries of one archive |
//! | `config` | the image's program and its settings |
//! | `unpack` | decompresses layers and archives |
//! | `reader` | the confined process that does all of this |
//! | `remote` | the image as the rest of `ebb` sees it |
//! | `messages` | the messages between reader and `ebb` |
//! | `reader_service`, `scratch` | what `ebb` does for the reader: files for decompressed bytes |
//! | `section` | a range of bytes of a file |
//! | `error` | why an archive cannot be a root |

mod archives;
mod config;
mod entries;
mod error;
mod facts;
mod growth;
mod index;
mod layers;
mod messages;
mod names;
mod nodes;
mod reader;
mod reader_service;
mod remote;
mod scratch;
mod section;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_costs;
mod unpack;
mod walk;

pub(crate) use config::Config;
pub(crate) use remote::RemoteImage;
pub(super) use remote::{ImageAnswers, Tell};

use super::source::Source;
use ebb_wire::root::{Answer, Attributes, Entry, FRAME, Frames};
use error::ImageError;
use index::{Body, Id, Index, WalkError};
use reader_service::ReaderService;
use rustix::io::Errno;
use section::Section;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Size and time of the last change of a file: bytes, seconds, nanoseconds.
type Stamp = (i64, i64, i64);

fn stamp(file: &File) -> io::Result<Stamp> {
    let facts = rustix::fs::fstat(file)?;
    let nanos = i64::try_from(facts.st_mtime_nsec).unwrap_or(0);
    Ok((facts.st_size, facts.st_mtime, nanos))
}

/// A root from an archive, in the process that reads the archive.
#[derive(Debug)]
struct Image {
    index: Index,
    config: Config,
    archive: File,
    /// The archive's stamp when the index was made.
    stamp: Stamp,
}

impl Image {
    /// Makes the index of the archive `file`. `name` is for messages.
    ///
    /// # Errors
    /// Fails if the archive cannot be read or is no root.
    fn read(file: File, name: &str, service: &mut dyn ReaderService) -> Result<Self, ImageError> {
        let archive = file.try_clone()?;
        let stamp = stamp(&archive)?;
        let (index, config) = layers::read(Section::whole(file)?, name, service)?;
        Ok(Self {
            index,
            config,
            archive,
            stamp,
        })
    }

    /// Returns the image's program and its settings.
    fn config(&self) -> &Config {
        &self.config
    }

    fn find(&self, path: &[u8], follow: bool) -> Result<Id, Errno> {
        self.index.find(path, follow).map_err(|lost| match lost {
            WalkError::Nothing => Errno::NOENT,
            WalkError::NotADirectory => Errno::NOTDIR,
            WalkError::TooManyLinks => Errno::LOOP,
            WalkError::TooLong | WalkError::LongName => Errno::NAMETOOLONG,
        })
    }

    /// Returns whether `path` exists. Links are followed.
    fn has(&self, path: &[u8]) -> bool {
        self.find(path, true).is_ok()
    }

    /// Returns whether `path` is a regular file that may be executed. Links are followed.
    fn has_program(&self, path: &[u8]) -> bool {
        let Ok(id) = self.find(path, true) else {
            return false;
        };
        let node = self.index.node(id);
        matches!(node.body, Body::File(_)) && node.mode & 0o111 != 0
    }

    /// Returns the bytes of the file at `path`. Returns `None` if there is none, it has more than
    /// 16 MiB, or it cannot be read.
    fn content(&self, path: &[u8]) -> Option<Vec<u8>> {
        const MOST: u64 = 16 << 20;
        let id = self.find(path, true).ok()?;
        let Body::File(content) = self.index.node(id).body else {
            return None;
        };
        let length = content.len().min(MOST + 1);
        let mut bytes = vec![0; usize::try_from(length).ok().filter(|_| length <= MOST)?];
        let count = content.read_at(&mut bytes, 0).ok()?;
        bytes.truncate(count);
        Some(bytes)
    }

    /// Returns the target of the symbolic link at `path`. Returns `None` if there is no link.
    fn link_at(&self, path: &[u8]) -> Option<&[u8]> {
        match self.index.node(self.find(path, false).ok()?).body {
            Body::Link(target) => Some(target),
            _ => None,
        }
    }

    fn facts(&self, id: Id) -> Attributes {
        let node = self.index.node(id);
        let (kind, size) = match &node.body {
            Body::Folder => (0o040_000, 0),
            Body::File(content) => (0o100_000, content.len()),
            Body::Link(target) => (0o120_000, target.len() as u64),
            Body::Fifo => (0o010_000, 0),
        };
        Attributes {
            mode: kind | node.mode,
            uid: node.uid,
            gid: node.gid,
            device: 0,
            size,
            seconds: node.seconds,
            nanos: node.nanos,
            version: u64::from(id),
        }
    }

    fn entry<'a>(&'a self, name: &'a [u8], id: Id) -> Entry<'a> {
        let target: &[u8] = match self.index.node(id).body {
            Body::Link(target) => target,
            _ => b"",
        };
        Entry {
            name,
            attributes: self.facts(id),
            target,
        }
    }
}

impl Source for Arc<Image> {
    fn look(&mut self, path: &[u8], follow: bool, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let id = self.find(path, follow)?;
        if answer.entry(&self.entry(b"", id)) {
            Ok(())
        } else {
            Err(Errno::OVERFLOW)
        }
    }

    fn list(
        &mut self,
        path: &[u8],
        from: u64,
        most: usize,
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno> {
        let id = self.find(path, true)?;
        let Body::Folder = self.index.node(id).body else {
            return Err(Errno::NOTDIR);
        };
        if self.index.count(id) as usize > most {
            return Err(Errno::OVERFLOW);
        }
        let first = u32::try_from(from).map_err(|_| Errno::INVAL)?;
        for (at, name, id) in self.index.children(id, first) {
            if !answer.entry(&self.entry(name, id)) {
                if at == first {
                    return Err(Errno::OVERFLOW);
                }
                return Ok(at.into());
            }
        }
        Ok(0)
    }

    fn read(
        &mut self,
        path: &[u8],
        version: u64,
        from: u64,
        frames: &Frames<'_>,
        ram: &File,
        frame_offset: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<u64, Errno> {
        let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        // The guest may have renamed the file, so the node's number decides.
        let id = self.find(path, false)?;
        if u64::from(id) != version || stamp(&self.archive).map_err(failed)? != self.stamp {
            return Err(Errno::STALE);
        }
        let Body::File(content) = self.index.node(id).body else {
            return Err(Errno::INVAL);
        };
        let offsets: Option<Vec<u64>> = frames.iter().map(frame_offset).collect();
        let mut done = 0;
        for (at, target) in (0..).zip(offsets.ok_or(Errno::FAULT)?) {
            let mut page = [0; FRAME];
            let offset = from.checked_add(at * FRAME as u64).ok_or(Errno::INVAL)?;
            let count = content.read_at(&mut page, offset).map_err(failed)?;
            ram.write_all_at(&page[..count], target).map_err(failed)?;
            done += count as u64;
            if count < FRAME {
                break;
            }
        }
        Ok(done)
    }
}
