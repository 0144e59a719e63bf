//! Answers questions about the host's files: attributes, listings, bytes.

use super::server;
use super::source::{Answers, Source};
use super::view::{Folder, View};
use crate::system::FolderNames;
use crate::system::opened::{self, kind_of, own_path, version_of_bytes};
use ebb_wire::root::{Answer, Attributes, Entry, FRAME, FRAMES_MAX, Frames, Question};
use rustix::fs::{CWD, FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// The most files that stay open between two questions. Most files are read by several.
const OPEN_MAX: usize = 64;

/// The host's files as one guest sees them through a [`View`]. Up to 64 files stay open between
/// questions.
#[derive(Debug)]
pub(crate) struct Tree {
    view: View,
    /// Files that were read lately, the latest first.
    open: VecDeque<Open>,
    /// The directory whose listing did not fit into one answer.
    listing: Option<Listing>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    path: Vec<u8>,
    version: u64,
    file: File,
}

#[derive(Debug)]
struct Listing {
    path: Vec<u8>,
    folder: Folder,
    names: FolderNames,
}

/// Converts the attributes of a file for the guest. `[uid, gid]` own it there.
fn facts(stat: &Statx, [uid, gid]: [u32; 2]) -> Attributes {
    Attributes {
        mode: stat.stx_mode.into(),
        uid,
        gid,
        device: u64::from(stat.stx_rdev_major) << 32 | u64::from(stat.stx_rdev_minor),
        size: stat.stx_size,
        seconds: stat.stx_mtime.tv_sec,
        nanos: stat.stx_mtime.tv_nsec,
        version: version_of_bytes(stat),
    }
}

/// Opens the file of `file` again, for reading. `file` was opened without rights to read. `more`
/// are further flags. Fails with the host's error if `ebb` may not read the file.
pub(super) fn reopen(file: &OwnedFd, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | more;
    rustix::fs::openat(CWD, own_path(file), flags, Mode::empty())
}

impl Tree {
    /// Creates a source of the files that `view` shows. No file is opened yet.
    pub(crate) fn new(view: View) -> Self {
        Self {
            view,
            open: VecDeque::new(),
            listing: None,
            buffer: vec![0; FRAMES_MAX * FRAME],
        }
    }

    /// Opens the directory at `path` to list its names.
    ///
    /// # Errors
    /// Fails with `EOVERFLOW` if it has more than `most` entries, or with a number of the host.
    fn open_listing(&mut self, path: &[u8], most: usize) -> Result<Listing, Errno> {
        let folder = self.view.open_folder(path)?;
        let mut names = FolderNames::new(reopen(&folder.file, OFlags::DIRECTORY)?)?;
        if most != usize::MAX {
            // Counted before the first entry is looked at.
            names.skip_to(most as u64)?;
            if names.peek()?.is_some() {
                return Err(Errno::OVERFLOW);
            }
            names.rewind();
        }
        Ok(Listing {
            path: path.to_vec(),
            folder,
            names,
        })
    }

    /// Puts the file at `path` first among the open ones, and opens it if necessary.
    ///
    /// # Errors
    /// Fails with `ESTALE` if its version is another one, and with `EACCES` if the guest may not
    /// read it.
    fn take_out(&mut self, path: &[u8], version: u64) -> Result<(), Errno> {
        let found = self
            .open
            .iter()
            .position(|open| open.version == version && open.path == path);
        if let Some(open) = found.and_then(|at| self.open.remove(at)) {
            self.open.push_front(open);
            return Ok(());
        }
        let (file, stat) = self.view.look(path, false)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        if !self.view.is_readable(&file, &stat)? {
            return Err(Errno::ACCESS);
        }
        if version_of_bytes(&stat) != version {
            return Err(Errno::STALE);
        }
        let file = File::from(reopen(&file, OFlags::NONBLOCK)?);
        self.open.truncate(OPEN_MAX - 1);
        self.open.push_front(Open {
            path: path.to_vec(),
            version,
            file,
        });
        Ok(())
    }
}

impl Answers for Tree {
    fn reply<'a>(
        &mut self,
        question: &Question<'_>,
        _asked: &[u8],
        ram: &File,
        frame_offset: &dyn Fn(u64) -> Option<u64>,
        buffer: &'a mut [u8],
    ) -> &'a [u8] {
        server::reply_to(self, question, ram, frame_offset, buffer)
    }
}

impl Source for Tree {
    fn look(&mut self, path: &[u8], follow: bool, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let (file, stat) = self.view.look(path, follow)?;
        let target = if kind_of(&stat) == FileType::Symlink {
            // With an empty path `readlinkat` reads the opened link itself.
            rustix::fs::readlinkat(&file, c"", Vec::new())?.into_bytes()
        } else {
            Vec::new()
        };
        let entry = Entry {
            name: b"",
            attributes: facts(&stat, self.view.owner_of(&stat)),
            target: &target,
        };
        if answer.entry(&entry) {
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
        let goes_on = |listing: &Listing| {
            from != 0 && listing.path == path && listing.names.position() == from
        };
        let mut listing = match self.listing.take().filter(goes_on) {
            Some(listing) => listing,
            None => {
                let mut listing = self.open_listing(path, most)?;
                listing.names.skip_to(from)?;
                listing
            }
        };
        loop {
            let at = listing.names.position();
            let Some(entry) = listing.names.peek()? else {
                return Ok(0);
            };
            let name = entry.file_name().to_bytes();
            // Entries that were removed by now, or may not be seen, are skipped.
            if let Ok((stat, target)) = self.view.look_in(&listing.folder, name) {
                let entry = Entry {
                    name,
                    attributes: facts(&stat, self.view.owner_of(&stat)),
                    target: &target,
                };
                match answer.entry(&entry) {
                    true => {}
                    false if at == from => return Err(Errno::OVERFLOW),
                    false => {
                        self.listing = Some(listing);
                        return Ok(at);
                    }
                }
            }
            listing.names.advance();
        }
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
        let offsets: Option<Vec<u64>> = frames.iter().map(frame_offset).collect();
        let offsets = offsets.ok_or(Errno::FAULT)?;
        self.take_out(path, version)?;
        let file = &self.open[0].file;
        let wanted = &mut self.buffer[..offsets.len() * FRAME];
        let mut len = 0;
        // Each iteration reads something or is the last one.
        while len < wanted.len() {
            let offset = from.checked_add(len as u64).ok_or(Errno::INVAL)?;
            match file.read_at(&mut wanted[len..], offset) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        // Checks again, because the file may have been removed or changed since it was opened.
        let stat = opened::facts(file, b"")?;
        if stat.stx_nlink == 0 || version_of_bytes(&stat) != version {
            self.open.pop_front();
            return Err(Errno::STALE);
        }
        if !self.view.is_readable(file, &stat)? {
            self.open.pop_front();
            return Err(Errno::ACCESS);
        }
        for (bytes, offset) in wanted[..len].chunks(FRAME).zip(offsets) {
            let written = ram.write_all_at(bytes, offset);
            written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        Ok(len as u64)
    }
}
