//! Files that the guest knows: a handle is an open descriptor that can do nothing but name its file.

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

/// Files that stay open, as most are read or written in several pieces.
const OPEN_MAX: usize = 64;
/// Files that a guest may know, and have open for writing, at most: each holds memory of the host's kernel.
const MOST: u64 = 64 << 10;
/// Descriptors that ebb needs for itself.
const KEPT: u64 = 256;

/// What tells a file from every other one: its device, its number there, and the volume by which
/// the guest found it. A file that two volumes show has a handle for each of them, so that what is
/// done by one counts for that one, and nothing is closed by another.
type Key = (u64, u64, usize);

/// A file that the guest knows.
#[derive(Debug)]
pub(super) struct Known {
    /// Opened for naming it.
    pub(super) file: OwnedFd,
    key: Key,
    /// How often the guest was given the handle.
    given: u64,
    pub(super) read_only: bool,
    /// The device that its volume is on.
    pub(super) device: u64,
    /// The number of the volume by which the guest found it.
    pub(super) volume: usize,
    pub(super) added: Added,
}

/// How a file is open.
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

/// The folder of a volume.
#[derive(Debug)]
struct Top {
    file: OwnedFd,
    read_only: bool,
    /// Its device, and its number there.
    place: (u64, u64),
    quota: Quota,
}

impl Top {
    fn new(file: OwnedFd, read_only: bool, max: Option<u64>) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(&file)?;
        Ok(Self {
            file,
            read_only,
            place: (stat.st_dev, stat.st_ino),
            quota: Quota::new(max),
        })
    }
}

/// All volumes of a guest, and what it knows of them.
#[derive(Debug)]
pub(crate) struct Volumes {
    tops: Vec<Top>,
    /// Whose in the guest is what belongs to whoever runs ebb: user and group.
    pub(super) owner: [u32; 2],
    known: HashMap<u64, Known>,
    handles: HashMap<Key, u64>,
    next: u64,
    most: usize,
    open: VecDeque<Open>,
    /// Files that the guest has open for writing: they stay writable, whatever becomes of their modes.
    writers: HashMap<u64, File>,
    pub(super) listings: VecDeque<super::listing::Listing>,
    pub(super) buffer: Vec<u8>,
}

impl Volumes {
    /// The folders that the options say.
    ///
    /// # Errors
    /// Which one cannot be had, and why.
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
            known: HashMap::new(),
            handles: HashMap::new(),
            next: 1,
            most: 0,
            open: VecDeque::new(),
            writers: HashMap::new(),
            listings: VecDeque::new(),
            buffer: vec![0; ebb_wire::root::FRAMES_MAX * ebb_wire::root::FRAME],
        })
    }

    /// The folders of the volumes, in the order of the options.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &OwnedFd> {
        self.tops.iter().map(|top| &top.file)
    }

    /// Returns the real path of what stands at `inside` in the volume with this number. `None` if nothing
    /// does, or if a link leads out of the volume.
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

    /// Gives what belongs to whoever runs ebb to a user and a group of the guest.
    pub(crate) fn give_to(&mut self, owner: [u32; 2]) {
        self.owner = owner;
    }

    /// The same volumes, of which a guest knows nothing yet.
    ///
    /// # Errors
    /// If the host has no descriptor left.
    pub(crate) fn again(&self) -> Result<Self, Errno> {
        let mut tops = Vec::new();
        for top in &self.tops {
            let file = rustix::io::fcntl_dupfd_cloexec(&top.file, 3)?;
            tops.push(Top::new(file, top.read_only, top.quota.max)?);
        }
        Ok(Self {
            tops,
            owner: self.owner,
            known: HashMap::new(),
            handles: HashMap::new(),
            next: 1,
            most: descriptors(),
            open: VecDeque::new(),
            writers: HashMap::new(),
            listings: VecDeque::new(),
            buffer: vec![0; self.buffer.len()],
        })
    }

    /// The folder of a volume: a handle.
    pub(super) fn top(&mut self, number: u64) -> Result<u64, Errno> {
        let volume = usize::try_from(number).map_err(|_| Errno::NOENT)?;
        let top = self.tops.get(volume).ok_or(Errno::NOENT)?;
        let file = rustix::io::fcntl_dupfd_cloexec(&top.file, 3)?;
        let stat = rustix::fs::fstat(&file)?;
        let read_only = top.read_only;
        self.give(file, &stat, read_only, stat.st_dev, volume)
    }

    /// Returns whether `stat` is of a volume's own folder, by whatever way the guest found it.
    pub(super) fn is_top(&self, stat: &Stat) -> bool {
        let place = (stat.st_dev, stat.st_ino);
        self.tops.iter().any(|top| top.place == place)
    }

    /// A handle for a file, one more time.
    pub(super) fn give(
        &mut self,
        file: OwnedFd,
        stat: &Stat,
        read_only: bool,
        device: u64,
        volume: usize,
    ) -> Result<u64, Errno> {
        let key = (stat.st_dev, stat.st_ino, volume);
        if let Some(handle) = self.handles.get(&key)
            && let Some(known) = self.known.get_mut(handle)
        {
            known.given += 1;
            return Ok(*handle);
        }
        self.check_room()?;
        let handle = self.next;
        self.next += 1;
        self.handles.insert(key, handle);
        self.known.insert(
            handle,
            Known {
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

    /// Refuses one descriptor too many.
    pub(super) fn check_room(&self) -> Result<(), Errno> {
        if self.known.len() + self.writers.len() >= self.most {
            return Err(Errno::NFILE);
        }
        Ok(())
    }

    /// The file with a handle.
    pub(super) fn known(&self, handle: u64) -> Result<&Known, Errno> {
        self.known.get(&handle).ok_or(Errno::STALE)
    }

    /// The same, of which something is noted.
    pub(super) fn known_mut(&mut self, handle: u64) -> Result<&mut Known, Errno> {
        self.known.get_mut(&handle).ok_or(Errno::STALE)
    }

    /// What may be added to a volume.
    pub(super) fn quota(&self, volume: usize) -> Result<&Quota, Errno> {
        let top = self.tops.get(volume).ok_or(Errno::STALE)?;
        Ok(&top.quota)
    }

    /// The same, of which something is noted.
    pub(super) fn quota_mut(&mut self, volume: usize) -> Result<&mut Quota, Errno> {
        let top = self.tops.get_mut(volume).ok_or(Errno::STALE)?;
        Ok(&mut top.quota)
    }

    /// The same, to be changed.
    pub(super) fn known_to_change(&self, handle: u64) -> Result<&Known, Errno> {
        let known = self.known(handle)?;
        if known.read_only {
            return Err(Errno::ROFS);
        }
        Ok(known)
    }

    /// Takes a handle back.
    pub(super) fn forget(&mut self, handle: u64, times: u64) -> Result<(), Errno> {
        let known = self.known.get_mut(&handle).ok_or(Errno::STALE)?;
        known.given = known.given.saturating_sub(times);
        if known.given == 0 {
            let key = known.key;
            self.handles.remove(&key);
            self.known.remove(&handle);
            self.listings.retain(|listing| listing.folder != handle);
            self.close(handle);
        }
        Ok(())
    }

    /// Closes what is open of a file.
    pub(super) fn close(&mut self, handle: u64) {
        self.open.retain(|open| open.handle != handle);
        self.writers.remove(&handle);
    }

    /// Has a file be open for writing until it is closed.
    pub(super) fn pin(&mut self, handle: u64) -> Result<(), Errno> {
        if self.writers.contains_key(&handle) {
            return Ok(());
        }
        self.check_room()?;
        self.opened(handle, Access::Write)?;
        // It was put in the first place.
        let open = self.open.pop_front().ok_or(Errno::IO)?;
        self.writers.insert(handle, open.file);
        Ok(())
    }

    /// A regular file, open for its bytes.
    pub(super) fn opened(&mut self, handle: u64, access: Access) -> Result<&File, Errno> {
        let known = match access {
            Access::Read => self.known(handle)?,
            Access::Write => self.known_to_change(handle)?,
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
                // Devices and pipes are not to be opened, whatever they would do.
                match kind(&rustix::fs::fstat(&known.file)?) {
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
                    |flags| rustix::fs::openat(CWD, own_path(&known.file), flags, Mode::empty());
                let file = match reopen(flags) {
                    // Who may write need not be able to read.
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

    /// How many files the guest has open for writing.
    #[cfg(test)]
    pub(super) fn writers(&self) -> usize {
        self.writers.len()
    }

    /// Notes a file that is open for writing since it was made.
    pub(super) fn keep_open(&mut self, handle: u64, file: OwnedFd) {
        self.open.truncate(OPEN_MAX - 1);
        self.open.push_front(Open {
            handle,
            access: Access::Write,
            file: File::from(file),
        });
    }
}

/// How many files the guest may know: what the host lets us have, less our own.
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
