//! Reads and writes bytes of files in volumes, from and to frames of the guest's memory.

use super::facts::{drop_set_id, facts};
use super::handles::{Access, Volumes};
use super::quota::{growth_of_write, has_hole};
use crate::system::opened;
use ebb_wire::root::FRAME;
use ebb_wire::volume::{Attributes, Request};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The guest's memory, for copying bytes of files into its frames or out of them.
pub(super) struct Ram<'a> {
    /// The file with the memory.
    pub(super) file: &'a File,
    /// Returns the offset in `file` of the frame with a guest-physical address. Returns `None` for
    /// an address outside of the guest's memory.
    pub(super) frame_offset: &'a dyn Fn(u64) -> Option<u64>,
}

impl Ram<'_> {
    fn offsets(&self, request: &Request<'_>) -> Result<Vec<u64>, Errno> {
        let offsets: Option<Vec<_>> = request.frames.iter().map(self.frame_offset).collect();
        offsets.ok_or(Errno::FAULT)
    }
}

impl Volumes {
    /// Checks that the guest may open the file of `handle`. `access` has the bits 1 to read and 2
    /// to write. With bit 2 the file stays open for writing until [`Self::close`]. With neither
    /// bit, nothing is checked.
    ///
    /// A file that is open for writing may lack the permission to read, which is no error with bit
    /// 2.
    ///
    /// # Errors
    /// Fails with `ENFILE` if the guest has too many handles and files open for writing, or as
    /// [`Self::opened`].
    pub(super) fn check_open(&mut self, handle: u64, access: u64) -> Result<(), Errno> {
        if access & 2 != 0 {
            self.keep_writable(handle)?;
        }
        if access & 1 != 0 {
            // A file that is not readable can be open for reading and writing, if it became so
            // after a program had opened it.
            let open = self.opened(handle, Access::Read).map(drop);
            match open {
                Err(Errno::ACCESS) if access & 2 != 0 => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Reads the file of `request.handle` from the byte offset `numbers[0]` on into the frames of
    /// `request`, at most 4096 bytes each. Returns the attributes from before the read, and the
    /// number of bytes, which is smaller than asked for only at the file's end.
    ///
    /// # Errors
    /// Fails with `EFAULT` if a frame is outside of the guest's memory, as [`Self::opened`], or
    /// with an error of the host.
    pub(super) fn read(
        &mut self,
        request: &Request<'_>,
        ram: &Ram<'_>,
    ) -> Result<(Attributes, u64), Errno> {
        let offsets = ram.offsets(request)?;
        let from = request.numbers[0];
        // Read before the bytes, so that a change in between shows in the attributes that are read
        // next.
        let facts = self.facts(request.handle)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let wanted = &mut buffer[..offsets.len() * FRAME];
        let result = self
            .opened(request.handle, Access::Read)
            .and_then(|file| read_all(file, wanted, from));
        let result = result.and_then(|len| {
            for (bytes, ram_offset) in wanted[..len].chunks(FRAME).zip(&offsets) {
                ram.file
                    .write_all_at(bytes, *ram_offset)
                    .map_err(|error| errno(&error))?;
            }
            Ok(len as u64)
        });
        self.buffer = buffer;
        Ok((facts, result?))
    }

    /// Writes bytes from the frames of `request` to the file of its handle. `numbers` are the file
    /// offset, the offset of the first byte in the frames, the number of bytes, and 1 to append
    /// instead. Clears the set-user-ID and set-group-ID bits first.
    ///
    /// Returns the new attributes, the number of bytes written (it may be smaller), and the file
    /// offset of the first one.
    ///
    /// # Errors
    /// Fails with `EDQUOT` if the volume's limit does not allow all bytes, `EFAULT` if a frame is
    /// outside of the guest's memory, `EINVAL` if the bytes do not lie in the frames, `EPERM` if
    /// the bits cannot be cleared, as [`Self::opened`], or with an error of the host.
    pub(super) fn write(
        &mut self,
        request: &Request<'_>,
        ram: &Ram<'_>,
    ) -> Result<(Attributes, u64, u64), Errno> {
        let [offset, within, count, append, ..] = request.numbers;
        let offsets = ram.offsets(request)?;
        let (within, count) = match (usize::try_from(within), usize::try_from(count)) {
            (Ok(within), Ok(count)) => (within, count),
            _ => return Err(Errno::INVAL),
        };
        let end = within.checked_add(count).ok_or(Errno::INVAL)?;
        if within >= FRAME || end > offsets.len() * FRAME {
            return Err(Errno::INVAL);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = (|| {
            for (bytes, ram_offset) in buffer.chunks_mut(FRAME).zip(&offsets) {
                ram.file
                    .read_exact_at(bytes, *ram_offset)
                    .map_err(|error| errno(&error))?;
            }
            let owner = self.owner;
            let entry = self.entry(request.handle)?;
            let (device, added) = (entry.device, entry.added);
            let is_limited = self.quota(entry.volume)?.left().is_some();
            let file = self.opened(request.handle, Access::Write)?;
            // Read immediately before the write, so that changes by the host before and after it
            // show.
            let stat = rustix::fs::fstat(file)?;
            let before = facts(&stat, request.handle, device, owner);
            let bytes = &buffer[within..end];
            let from = if append == 0 { offset } else { before.size };
            let has_hole = |start, end| is_limited && has_hole(file, start, end);
            let growth = growth_of_write(&stat, added, from, bytes.len() as u64, has_hole);
            self.check_growth(request.handle, growth)?;
            let file = self.opened(request.handle, Access::Write)?;
            if !bytes.is_empty() {
                drop_set_id(file, &stat)?;
            }
            let (count, at) = if append != 0 {
                append_all(file, bytes)?
            } else {
                (write_all(file, bytes, offset)?, offset)
            };
            // Fewer bytes may be written than asked for, and other programs may have appended
            // before.
            let fills = |_, _| growth.fills_holes();
            let growth = growth_of_write(&stat, added, at, count as u64, fills);
            self.count_growth(request.handle, &stat, growth)?;
            Ok((before, count as u64, at))
        })();
        self.buffer = buffer;
        let (before, count, at) = result?;
        let mut facts = self.facts_after(request.handle, &before)?;
        let foreign =
            facts.size != before.size.max(at + count) || (append != 0 && at != before.size);
        if foreign && count > 0 {
            // Another program has changed the file at the same time, so this must not look like the
            // guest's own change.
            facts.version_before = !before.version;
        }
        Ok((facts, count, at))
    }

    /// Waits until the file or directory of `handle` is on stable storage (`fsync`).
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known, `ENXIO` if it is neither a regular file nor
    /// a directory, `EACCES` if `ebb` may not open it, or with another error of the host.
    pub(super) fn sync(&mut self, handle: u64) -> Result<(), Errno> {
        let entry = self.entry(handle)?;
        let is_folder =
            opened::kind(&rustix::fs::fstat(&entry.file)?) == rustix::fs::FileType::Directory;
        if is_folder {
            let flags = rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::DIRECTORY
                | rustix::fs::OFlags::CLOEXEC;
            let path = opened::own_path(&entry.file);
            let folder =
                rustix::fs::openat(rustix::fs::CWD, path, flags, rustix::fs::Mode::empty())?;
            return rustix::fs::fsync(folder);
        }
        let access = if entry.read_only {
            Access::Read
        } else {
            Access::Write
        };
        match self.opened(handle, access) {
            Ok(file) => rustix::fs::fsync(file),
            Err(Errno::ACCESS) => rustix::fs::fsync(self.opened(handle, Access::Read)?),
            Err(error) => Err(error),
        }
    }
}

/// Reads bytes from the offset `from` on into `wanted`. Returns their number, which is smaller at
/// the end of the file.
fn read_all(file: &File, wanted: &mut [u8], from: u64) -> Result<usize, Errno> {
    let mut len = 0;
    // Each iteration reads something or is the last one.
    while len < wanted.len() {
        let Some(offset) = from
            .checked_add(len as u64)
            .filter(|at| *at <= i64::MAX as u64)
        else {
            break;
        };
        match file.read_at(&mut wanted[len..], offset) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno(&error)),
        }
    }
    Ok(len)
}

/// Appends `bytes` at the end, wherever other programs have moved it. Returns how many bytes were
/// written, and their offset.
fn append_all(file: &File, bytes: &[u8]) -> Result<(usize, u64), Errno> {
    // With this offset the kernel uses the file's position, which then is behind the bytes written.
    const OWN: u64 = u64::MAX;
    let flags = rustix::io::ReadWriteFlags::APPEND;
    let count = rustix::io::retry_on_intr(|| {
        rustix::io::pwritev2(file, &[io::IoSlice::new(bytes)], OWN, flags)
    })?;
    let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Current(0))?;
    Ok((count, end.saturating_sub(count as u64)))
}

/// Writes `bytes` at the offset `from`. Returns how many were written. Fails only if no byte was.
fn write_all(file: &File, bytes: &[u8], from: u64) -> Result<usize, Errno> {
    let mut len = 0;
    // Each iteration writes something or is the last one.
    while len < bytes.len() {
        let offset = from
            .checked_add(len as u64)
            .filter(|at| *at <= i64::MAX as u64);
        let offset = offset.ok_or(Errno::FBIG)?;
        match file.write_at(&bytes[len..], offset) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if len == 0 => return Err(errno(&error)),
            Err(_) => break,
        }
    }
    Ok(len)
}
