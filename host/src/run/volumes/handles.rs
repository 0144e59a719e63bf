//! The volumes of a guest and its handles. Each handle stands for a descriptor that was opened
//! without rights to read or write.

use super::VolumeOption;
use super::quota::{Added, Quota};
use crate::system::open_named;
use crate::system::opened::{kind, own_path};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The most files that stay open for their bytes. Most files are read or written by several
/// requests.
const OPEN_MAX: usize = 64;
/// The most handles, with files that are open for writing. Each holds memory of the host's kernel.
const MOST: u64 = 64 << 10;
/// Number of descriptors that `ebb` keeps for itself.
const KEPT: u64 = 256;

/// The identity of a file: its device, its inode number, and the index of the volume through which
/// the guest found it.
///
/// A file that two volumes show has two handles. So changes count for the volume through which they
/// are made, and closing one handle does not close the other.
type Key = (u64, u64, usize);

/// A file of a volume for which the guest has a handle.
#[derive(Debug)]
pub(super) struct HandleEntry {
    /// Opened without rights to read or write.
    pub(super) file: OwnedFd,
    key: Key,
    /// How often the guest was given the handle.
    given: u64,
    /// Whether the guest may not change the file.
    pub(super) read_only: bool,
    /// The device of its volume.
    pub(super) device: u64,
    /// The index of the volume through which the guest found it.
    pub(super) volume: usize,
    /// The pages that the guest has added at the file's end.
    pub(super) added: Added,
}

/// Whether a file of a volume is open to read its bytes or to write them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A file that is open for its bytes.
#[derive(Debug)]
struct Open {
    handle: u64,
    access: Access,
    file: File,
}

/// The directory of a volume.
#[derive(Debug)]
struct Top {
    file: OwnedFd,
    read_only: bool,
    /// Its device and inode number.
    id: (u64, u64),
    quota: Quota,
}

impl Top {
    fn new(file: OwnedFd, read_only: bool, max: Option<u64>) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(&file)?;
        Ok(Self {
            file,
            read_only,
            id: (stat.st_dev, stat.st_ino),
            quota: Quota::new(max),
        })
    }
}

/// All `--volume` directories of a guest, the handles of files that the guest has, and the files
/// that are open for them.
#[derive(Debug)]
pub(crate) struct Volumes {
    tops: Vec<Top>,
    /// The guest's user and group that own files of the user of `ebb`.
    pub(super) owner: [u32; 2],
    entries: HashMap<u64, HandleEntry>,
    handles: HashMap<Key, u64>,
    next: u64,
    most: usize,
    open: VecDeque<Open>,
    /// Files that the guest has open for writing, by handle. They stay writable even if their modes
    /// change.
    writers: HashMap<u64, File>,
    /// Directories that are being listed, the latest first.
    pub(super) listings: VecDeque<super::listing::Listing>,
    /// Space for the bytes of one request.
    pub(super) buffer: Vec<u8>,
}

impl Volumes {
    /// Opens the directories of the volumes. The result grants no handles. A guest gets them from a
    /// duplicate of [`Self::try_clone`].
    ///
    /// # Errors
    /// Stops at the first directory that cannot be opened. Returns the index of its option, and the
    /// reason.
    pub(crate) fn open(options: &[VolumeOption]) -> Result<Self, (usize, io::Error)> {
        let mut tops = Vec::new();
        for (number, option) in options.iter().enumerate() {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let top = open_named(&option.source, flags)
                .map_err(io::Error::from)
                .and_then(|file| Ok(Top::new(file, option.read_only, option.max)?));
            tops.push(top.map_err(|error| (number, error))?);
        }
        Ok(Self {
            tops,
            owner: [0; 2],
            entries: HashMap::new(),
            handles: HashMap::new(),
            next: 1,
            most: 0,
            open: VecDeque::new(),
            writers: HashMap::new(),
            listings: VecDeque::new(),
            buffer: vec![0; ebb_wire::root::FRAMES_MAX * ebb_wire::root::FRAME],
        })
    }

    /// Returns the opened directories of the volumes, in the order of the options.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &OwnedFd> {
        self.tops.iter().map(|top| &top.file)
    }

    /// Returns the host path of the file at `inside`, a path relative to the directory of the
    /// volume with the index `number`. An empty path is that directory. Symbolic links are
    /// followed. Returns `None` if there is no such volume or file, if it cannot be opened, or if
    /// the path or a link leads out of the volume.
    pub(crate) fn real_path_of(&self, number: usize, inside: &Path) -> Option<PathBuf> {
        let top = self.tops.get(number)?;
        let inside = if inside.as_os_str().is_empty() {
            Path::new(".")
        } else {
            inside
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let found = rustix::fs::openat2(&top.file, inside, flags, Mode::empty(), resolve).ok()?;
        std::fs::read_link(own_path(&found)).ok()
    }

    /// Sets `owner`, a user and a group of the guest, as the owner that the guest sees for files of
    /// the user of `ebb`. On the host nothing changes.
    pub(crate) fn give_to(&mut self, owner: [u32; 2]) {
        self.owner = owner;
    }

    /// Duplicates the volumes for a guest that has no handles yet. Their limits begin again with
    /// nothing added. Raises the limit for open descriptors of `ebb` as far as the host allows,
    /// since each handle takes one.
    ///
    /// # Errors
    /// Fails if the host has no descriptor left or cannot read a directory's attributes.
    pub(crate) fn try_clone(&self) -> Result<Self, Errno> {
        let mut tops = Vec::new();
        for top in &self.tops {
            let file = rustix::io::fcntl_dupfd_cloexec(&top.file, 3)?;
            tops.push(Top::new(file, top.read_only, top.quota.max)?);
        }
        Ok(Self {
            tops,
            owner: self.owner,
            entries: HashMap::new(),
            handles: HashMap::new(),
            next: 1,
            most: descriptors(),
            open: VecDeque::new(),
            writers: HashMap::new(),
            listings: VecDeque::new(),
            buffer: vec![0; self.buffer.len()],
        })
    }

    /// Returns the handle of the directory of the volume with the index `number`, and counts that
    /// the guest was given it once more.
    ///
    /// # Errors
    /// Fails with `ENOENT` if there is no such volume, with `ENFILE` if the guest has too many
    /// handles, or with an error of the host.
    pub(super) fn top(&mut self, number: u64) -> Result<u64, Errno> {
        let volume = usize::try_from(number).map_err(|_| Errno::NOENT)?;
        let top = self.tops.get(volume).ok_or(Errno::NOENT)?;
        let file = rustix::io::fcntl_dupfd_cloexec(&top.file, 3)?;
        let stat = rustix::fs::fstat(&file)?;
        let read_only = top.read_only;
        self.grant_handle(file, &stat, read_only, stat.st_dev, volume)
    }

    /// Returns whether `stat` has the attributes of the directory of a volume itself. The path by
    /// which the guest found it does not matter.
    pub(super) fn is_top(&self, stat: &Stat) -> bool {
        let id = (stat.st_dev, stat.st_ino);
        self.tops.iter().any(|top| top.id == id)
    }

    /// Returns the handle of `file`, whose attributes are `stat`, and counts that the guest was
    /// given it once more. If the file has a handle already, `file` is closed, and `read_only` and
    /// `device` are ignored.
    ///
    /// `volume` is the index of the volume, `device` its device, and `read_only` whether the guest
    /// may not change the file.
    ///
    /// # Errors
    /// Fails with `ENFILE` if a new handle is needed and the guest has too many.
    pub(super) fn grant_handle(
        &mut self,
        file: OwnedFd,
        stat: &Stat,
        read_only: bool,
        device: u64,
        volume: usize,
    ) -> Result<u64, Errno> {
        let key = (stat.st_dev, stat.st_ino, volume);
        if let Some(handle) = self.handles.get(&key)
            && let Some(entry) = self.entries.get_mut(handle)
        {
            entry.given += 1;
            return Ok(*handle);
        }
        self.check_room()?;
        let handle = self.next;
        self.next += 1;
        self.handles.insert(key, handle);
        self.entries.insert(
            handle,
            HandleEntry {
                file,
                key,
                given: 1,
                read_only,
                device,
                volume,
                added: Added::default(),
            },
        );
        Ok(handle)
    }

    /// Checks that the guest may have one more handle or file that is open for writing.
    ///
    /// # Errors
    /// Fails with `ENFILE` if handles and files open for writing together have reached the limit.
    pub(super) fn check_room(&self) -> Result<(), Errno> {
        if self.entries.len() + self.writers.len() >= self.most {
            return Err(Errno::NFILE);
        }
        Ok(())
    }

    /// Returns the file of `handle`.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known.
    pub(super) fn entry(&self, handle: u64) -> Result<&HandleEntry, Errno> {
        self.entries.get(&handle).ok_or(Errno::STALE)
    }

    /// Returns the file of `handle` for a change of its entry.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known.
    pub(super) fn entry_mut(&mut self, handle: u64) -> Result<&mut HandleEntry, Errno> {
        self.entries.get_mut(&handle).ok_or(Errno::STALE)
    }

    /// Returns the limit of the volume with the index `volume` and the bytes counted so far.
    ///
    /// # Errors
    /// Fails with `ESTALE` if there is no such volume.
    pub(super) fn quota(&self, volume: usize) -> Result<&Quota, Errno> {
        let top = self.tops.get(volume).ok_or(Errno::STALE)?;
        Ok(&top.quota)
    }

    /// Returns the limit of the volume with the index `volume` and the bytes counted so far, for a
    /// change.
    ///
    /// # Errors
    /// Fails with `ESTALE` if there is no such volume.
    pub(super) fn quota_mut(&mut self, volume: usize) -> Result<&mut Quota, Errno> {
        let top = self.tops.get_mut(volume).ok_or(Errno::STALE)?;
        Ok(&mut top.quota)
    }

    /// Returns the file of `handle` if the guest may change it.
    ///
    /// # Errors
    /// Fails with `EROFS` in a read-only volume, and with `ESTALE` if the handle is not known.
    pub(super) fn entry_to_change(&self, handle: u64) -> Result<&HandleEntry, Errno> {
        let entry = self.entry(handle)?;
        if entry.read_only {
            return Err(Errno::ROFS);
        }
        Ok(entry)
    }

    /// Subtracts `times` from how often the guest was given `handle`. At 0 the handle becomes
    /// invalid, all its files are closed, and its listings end. A larger `times` counts as all of
    /// them.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known.
    pub(super) fn forget(&mut self, handle: u64, times: u64) -> Result<(), Errno> {
        let entry = self.entries.get_mut(&handle).ok_or(Errno::STALE)?;
        entry.given = entry.given.saturating_sub(times);
        if entry.given == 0 {
            let key = entry.key;
            self.handles.remove(&key);
            self.entries.remove(&handle);
            self.listings.retain(|listing| listing.folder != handle);
            self.close(handle);
        }
        Ok(())
    }

    /// Closes the files that are open to read or write the bytes of `handle`. The handle stays
    /// valid. Does nothing if none is open.
    pub(super) fn close(&mut self, handle: u64) {
        self.open.retain(|open| open.handle != handle);
        self.writers.remove(&handle);
    }

    /// Opens the file of `handle` for writing, and keeps it open until [`Self::close`], even if its
    /// mode changes. Does nothing if it is kept already.
    ///
    /// # Errors
    /// Fails with `ENFILE` if the guest has too many handles and files open for writing, or as
    /// [`Self::opened`].
    pub(super) fn keep_writable(&mut self, handle: u64) -> Result<(), Errno> {
        if self.writers.contains_key(&handle) {
            return Ok(());
        }
        self.check_room()?;
        self.opened(handle, Access::Write)?;
        // `opened` has put it first.
        let open = self.open.pop_front().ok_or(Errno::IO)?;
        self.writers.insert(handle, open.file);
        Ok(())
    }

    /// Returns the regular file of `handle`, open to read or write its bytes. Opens it if needed,
    /// and closes the least recently used one if more than 64 are open. For writing the file is
    /// also readable, if its mode allows that.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the handle is not known, `EISDIR` for a directory, `ENXIO` for any
    /// other file that is not regular, `EROFS` for writing in a read-only volume, or with another
    /// error of the host such as `EACCES`.
    pub(super) fn opened(&mut self, handle: u64, access: Access) -> Result<&File, Errno> {
        let entry = match access {
            Access::Read => self.entry(handle)?,
            Access::Write => self.entry_to_change(handle)?,
        };
        if access == Access::Write
            && let Some(file) = self.writers.get(&handle)
        {
            return Ok(file);
        }
        let fits = |open: &Open| open.handle == handle && open.access == access;
        let open = match self.open.iter().position(fits) {
            Some(at) => self.open.remove(at),
            None => {
                // Opening a device or a pipe could have effects, so these are refused.
                match kind(&rustix::fs::fstat(&entry.file)?) {
                    FileType::RegularFile => {}
                    FileType::Directory => return Err(Errno::ISDIR),
                    _ => return Err(Errno::NXIO),
                }
                let mode = match access {
                    Access::Read => OFlags::RDONLY,
                    Access::Write => OFlags::RDWR,
                };
                let flags = mode | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
                let reopen =
                    |flags| rustix::fs::openat(CWD, own_path(&entry.file), flags, Mode::empty());
                let file = match reopen(flags) {
                    // A file may be writable and not readable.
                    Err(Errno::ACCESS) if access == Access::Write => {
                        reopen(OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK)?
                    }
                    other => other?,
                };
                Some(Open {
                    handle,
                    access,
                    file: File::from(file),
                })
            }
        };
        self.open.truncate(OPEN_MAX - 1);
        self.open.extend(open);
        self.open.rotate_right(1);
        self.open.front().map(|open| &open.file).ok_or(Errno::IO)
    }

    /// Returns the number of files that [`Self::keep_writable`] keeps open.
    #[cfg(test)]
    pub(super) fn writers(&self) -> usize {
        self.writers.len()
    }

    /// Adds the new `file` of `handle`, which is open for writing, to the open files. Closes the
    /// least recently used one if more than 64 are open.
    pub(super) fn keep_open(&mut self, handle: u64, file: OwnedFd) {
        self.open.truncate(OPEN_MAX - 1);
        self.open.push_front(Open {
            handle,
            access: Access::Write,
            file: File::from(file),
        });
    }
}

/// Returns the most handles that the guest may have: the host's limit for descriptors, less those
/// of `ebb`. Raises that limit first.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let limit = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let most = limit.unwrap_or(MOST).min(MOST);
    usize::try_from(most.saturating_sub(KEPT).max(64)).unwrap_or(64)
}
