//! A folder of the host that programs read and write. The host is asked for each name again, since
//! names are not cached.

use super::listing;
use super::message::{Attributes, DOTS, Reply, Request, TOP, Trust, UNKNOWN, can, keep, opcode};
use super::serve::FileSystem;
use crate::caches::Caches;
use crate::frames;
use crate::host_port::HostPort;
use ebb_wire::root::{Entry, Frames, entries, leading_number};
use ebb_wire::volume::{self, Attributes as HostAttributes, Opcode, change};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Number of further handles after which Linux must drop unused names. Each handle is an open file
/// on the host, and Linux keeps names until its memory is short.
const HANDLES: usize = 2048;

/// How long Linux may use the host's attributes without asking again. Names are not cached.
const SHORT: Trust = Trust {
    name: Duration::ZERO,
    attributes: Duration::from_millis(50),
};

/// `FATTR_…` of `linux/fuse.h`: the attributes to set.
mod set {
    /// `FATTR_MODE`: the permissions.
    pub(super) const MODE: u32 = 1;
    /// `FATTR_UID`: the user.
    pub(super) const UID: u32 = 1 << 1;
    /// `FATTR_GID`: the group.
    pub(super) const GID: u32 = 1 << 2;
    /// `FATTR_SIZE`: the size.
    pub(super) const SIZE: u32 = 1 << 3;
    /// `FATTR_ATIME`: the time of the last read.
    pub(super) const ACCESSED: u32 = 1 << 4;
    /// `FATTR_MTIME`: the time of the last write.
    pub(super) const MODIFIED: u32 = 1 << 5;
    /// `FATTR_ATIME_NOW`: the time of the last read, to the present.
    pub(super) const ACCESSED_NOW: u32 = 1 << 7;
    /// `FATTR_MTIME_NOW`: the time of the last write, to the present.
    pub(super) const MODIFIED_NOW: u32 = 1 << 8;
}

/// `FUSE_WRITE_CACHE`: the write comes from the page cache, for a shared mapping.
const OF_MAPPING: u32 = 1;
/// Bits of the number in [`Opcode::Open`].
const READ: u64 = 1;
const WRITE: u64 = 2;

/// A name in a listed folder.
#[derive(Debug)]
struct Name {
    name: Box<[u8]>,
    inode: u64,
    mode: u32,
}

impl Name {
    /// Returns an entry for the folder `name`, such as `.`.
    fn of_folder(name: &[u8]) -> Self {
        Self {
            name: name.into(),
            inode: UNKNOWN,
            mode: FileType::Directory.as_raw_mode(),
        }
    }
}

impl From<Entry<'_>> for Name {
    fn from(entry: Entry<'_>) -> Self {
        Self {
            name: entry.name.into(),
            inode: entry.attributes.version,
            mode: entry.attributes.mode,
        }
    }
}

/// The file system of one volume.
#[derive(Debug)]
pub(crate) struct Folder {
    host_port: Arc<HostPort>,
    /// The handle of the volume's top folder.
    top: u64,
    /// The names of open folders, by the number of the open folder.
    listings: HashMap<u64, Vec<Name>>,
    next_listing: u64,
    /// Files open for writing, by handle, and the number of times each is open.
    writers: HashMap<u64, u64>,
    /// The number of references that Linux has to the node of each handle.
    given: HashMap<u64, u64>,
    /// The number of handles at which unused names are dropped next.
    too_many: usize,
    caches: Arc<Caches>,
}

/// Converts the host's attributes. Fails with `EIO` if the mode, the user or the group exceeds 32
/// bits.
fn attributes(host_attributes: &HostAttributes) -> Result<Attributes, Errno> {
    let narrow = |number: u64| u32::try_from(number).map_err(|_| Errno::IO);
    let time = |(seconds, nanos): (i64, u64)| (seconds, u32::try_from(nanos).unwrap_or(0));
    Ok(Attributes {
        inode: host_attributes.inode,
        size: host_attributes.size,
        blocks: host_attributes.blocks,
        times: host_attributes.times.map(time),
        mode: narrow(host_attributes.mode)?,
        links: u32::try_from(host_attributes.links).unwrap_or(u32::MAX),
        uid: narrow(host_attributes.uid)?,
        gid: narrow(host_attributes.gid)?,
        device: 0,
    })
}

/// Reads the attributes at the start of an answer. Fails with `EIO` if it is too short.
fn host_attributes_of(rest: &[u8]) -> Result<HostAttributes, Errno> {
    Ok(HostAttributes::read(rest).ok_or(Errno::IO)?.0)
}

impl Folder {
    /// Asks the host for the volume `number`. Returns its file system and the host's time since
    /// 1970. `caches` drops unused names when the volume has too many handles. Fails with `EIO` if
    /// the answer is malformed, and as [`HostPort::ask`].
    pub(crate) fn new(
        host_port: Arc<HostPort>,
        number: u64,
        caches: Arc<Caches>,
    ) -> Result<(Self, Duration), Errno> {
        let request = volume::Request::new(Opcode::Top, number);
        let read = |rest: &[u8]| {
            let (host_attributes, rest) = HostAttributes::read(rest).ok_or(Errno::IO)?;
            let (nanos, _) = leading_number(rest).ok_or(Errno::IO)?;
            Ok((host_attributes.handle, Duration::from_nanos(nanos)))
        };
        let (top, time) = host_port.ask(|buffer, _| request.write(buffer), |rest, _| read(rest))?;
        let folder = Self {
            host_port,
            top,
            listings: HashMap::new(),
            next_listing: 1,
            writers: HashMap::new(),
            given: HashMap::new(),
            too_many: HANDLES,
            caches,
        };
        Ok((folder, time))
    }

    /// Asks the host and returns the result of `read` for the answer. Fails as [`HostPort::ask`]
    /// does.
    fn ask<R>(
        &self,
        request: &volume::Request<'_>,
        read: impl FnOnce(&[u8]) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.host_port
            .ask(|buffer, _| request.write(buffer), |rest, _| read(rest))
    }

    /// Asks the host for the attributes of a file. Fails as [`Self::ask`] does.
    fn host_attributes(&self, handle: u64) -> Result<HostAttributes, Errno> {
        self.ask(
            &volume::Request::new(Opcode::GetAttributes, handle),
            host_attributes_of,
        )
    }

    /// Returns the host's handle for a node. Handles begin with 1, which is the number of the root
    /// node in FUSE, so node numbers are one higher.
    fn handle(&self, node: u64) -> u64 {
        if node == TOP { self.top } else { node - 1 }
    }

    /// Sends a request that issues a handle, and writes the file's entry with it to `reply`.
    /// Returns the file's attributes. Fails as [`Self::ask`], and with `EIO` if the mode or an ID
    /// exceeds 32 bits.
    fn give(
        &mut self,
        request: &volume::Request<'_>,
        reply: &mut Reply,
    ) -> Result<HostAttributes, Errno> {
        let host_attributes = self.ask(request, host_attributes_of)?;
        *self.given.entry(host_attributes.handle).or_default() += 1;
        if self.given.len() >= self.too_many {
            self.caches.drop_names();
            // Handles in use stay, so the limit counts from the present number.
            self.too_many = self.given.len() + HANDLES;
        }
        reply.entry(
            host_attributes.handle + 1,
            &attributes(&host_attributes)?,
            SHORT,
        );
        Ok(host_attributes)
    }

    /// Returns a request about a name in a folder.
    fn named<'a>(&self, opcode: Opcode, folder: u64, name: &'a [u8]) -> volume::Request<'a> {
        volume::Request {
            name,
            ..volume::Request::new(opcode, self.handle(folder))
        }
    }

    /// Sends a request whose answer has no contents. Fails as [`Self::ask`] does.
    fn done(&self, request: &volume::Request<'_>) -> Result<(), Errno> {
        self.ask(request, |_| Ok(()))
    }

    /// Creates a file or folder with a mode, and writes its entry to `reply`. Returns its
    /// attributes. Fails as [`Self::give`] does.
    fn make(
        &mut self,
        opcode: Opcode,
        (folder, name): (u64, &[u8]),
        mode: u32,
        reply: &mut Reply,
    ) -> Result<HostAttributes, Errno> {
        let mut request = self.named(opcode, folder, name);
        request.numbers[0] = u64::from(mode & 0o7777);
        self.give(&request, reply)
    }

    /// Asks the host to open a file for the access in `flags`. If that includes writing, adds one
    /// to the file's count in `writers`. Fails as [`Self::ask`] does.
    fn open(&mut self, handle: u64, flags: u32) -> Result<(), Errno> {
        let mode = OFlags::from_bits_retain(flags) & OFlags::RWMODE;
        let (reads, writes) = (mode != OFlags::WRONLY, mode != OFlags::RDONLY);
        let mut request = volume::Request::new(Opcode::Open, handle);
        request.numbers[0] = (u64::from(reads) * READ) | (u64::from(writes) * WRITE);
        self.done(&request)?;
        if writes {
            *self.writers.entry(handle).or_default() += 1;
        }
        Ok(())
    }

    /// Answers `CREATE`: creates a file and opens it. Fails with `ESTALE` if the file exists and
    /// `O_EXCL` is not set, with `EIO` if the request is too short, and with the host's error.
    fn create(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let (flags, mode, name) = (request.u32_at(0)?, request.u32_at(4)?, request.name(16)?);
        let exclusive = OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
        let host_attributes = match self.make(Opcode::CreateFile, (request.node, name), mode, reply)
        {
            // The host created the file in the meantime. After `ESTALE` Linux looks the name up
            // again and opens the file as usual, with its permission checks.
            Err(Errno::EXIST) if !exclusive => return Err(Errno::STALE),
            made => made?,
        };
        if let Err(error) = self.open(host_attributes.handle, flags) {
            self.forget(host_attributes.handle + 1, 1);
            return Err(error);
        }
        reply.opened(host_attributes.handle, keep::CACHE);
        Ok(())
    }

    /// Answers `RELEASE`: closes the file on the host if this was the last use for writing. Fails
    /// with `EIO` if the request is too short, and with the host's error.
    fn release(&mut self, request: &Request<'_>) -> Result<(), Errno> {
        let mode = OFlags::from_bits_retain(request.u32_at(8)?) & OFlags::RWMODE;
        let handle = self.handle(request.node);
        if mode == OFlags::RDONLY {
            return Ok(());
        }
        let count = self.writers.entry(handle).or_insert(1);
        *count -= 1;
        if *count == 0 {
            self.writers.remove(&handle);
            self.done(&volume::Request::new(Opcode::Close, handle))?;
        }
        Ok(())
    }

    /// Answers `SETATTR`: changes the requested attributes and writes the resulting ones. Fails
    /// with `EPERM` if the owner or the group would change, with `EIO` if the request is too short,
    /// and with the host's error.
    fn change(&self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let handle = self.handle(request.node);
        let what = request.u32_at(0)?;
        let mut host_attributes = self.host_attributes(handle)?;
        // Owners are the host's matter. A change that keeps the owner is accepted.
        let other = |bit, at, own: u64| {
            Ok::<_, Errno>(what & bit != 0 && u64::from(request.u32_at(at)?) != own)
        };
        if other(set::UID, 76, host_attributes.uid)? || other(set::GID, 80, host_attributes.gid)? {
            return Err(Errno::PERM);
        }
        let mut change = |numbers: [u64; 5]| {
            let mut request = volume::Request::new(Opcode::SetAttributes, handle);
            request.numbers[..5].copy_from_slice(&numbers);
            host_attributes = self.ask(&request, host_attributes_of)?;
            Ok::<_, Errno>(())
        };
        if what & set::MODE != 0 {
            let mode = u64::from(request.u32_at(68)? & 0o7777);
            change([change::MODE, mode, 0, 0, 0])?;
        }
        if what & set::SIZE != 0 {
            change([change::SIZE, 0, request.u64_at(16)?, 0, 0])?;
        }
        for (bit, given, now, at, nanos_at) in [
            (change::ACCESSED, set::ACCESSED, set::ACCESSED_NOW, 32, 56),
            (change::MODIFIED, set::MODIFIED, set::MODIFIED_NOW, 40, 60),
        ] {
            let (seconds, nanos) = if what & now != 0 {
                let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Realtime);
                (tv_sec.cast_unsigned(), u64::try_from(tv_nsec).unwrap_or(0))
            } else if what & given != 0 {
                (request.u64_at(at)?, request.u32_at(nanos_at)?.into())
            } else {
                continue;
            };
            change([bit, 0, 0, seconds, nanos])?;
        }
        reply.attributes_alone(&attributes(&host_attributes)?, SHORT);
        Ok(())
    }

    /// Renames `name` to `new_name` on the host, with the `flags` of `renameat2(2)`. Fails with
    /// `EIO` if the request is too short, and with the host's error.
    fn rename(
        &self,
        request: &Request<'_>,
        flags: u32,
        [name, new_name]: [&[u8]; 2],
    ) -> Result<(), Errno> {
        let mut rename = self.named(Opcode::Rename, request.node, name);
        rename.target = new_name;
        rename.numbers[..2].copy_from_slice(&[self.handle(request.u64_at(0)?), flags.into()]);
        self.done(&rename)
    }

    /// Reads all names in a folder from the host, with `.` and `..`. Fails with `EIO` if the answer
    /// is malformed, and as [`Self::ask`].
    fn names(&self, handle: u64) -> Result<Vec<Name>, Errno> {
        let dots = DOTS.map(Name::of_folder).into();
        listing::whole(dots, |from, names| {
            let mut request = volume::Request::new(Opcode::List, handle);
            request.numbers[0] = from;
            self.ask(&request, |rest| listing::piece(rest, names))
        })
    }

    /// Answers `READDIR`: writes the names of an open folder from an index on. The names are read
    /// from the host when a listing begins. Fails with `EIO` if the request is too short, and as
    /// [`Self::names`].
    fn list(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let (listing, from, most) = (request.u64_at(0)?, request.u64_at(8)?, request.u32_at(16)?);
        let first = usize::try_from(from).map_err(|_| Errno::INVAL)?;
        let most = usize::try_from(most).map_err(|_| Errno::INVAL)?;
        if from == 0 || !self.listings.contains_key(&listing) {
            let names = self.names(self.handle(request.node))?;
            self.listings.insert(listing, names);
        }
        let names = self.listings.get(&listing).ok_or(Errno::BADF)?;
        for (at, name) in names.iter().enumerate().skip(first) {
            if !reply.name(&name.name, name.inode, name.mode, at as u64 + 1, most) {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let most = usize::try_from(request.u32_at(16)?).map_err(|_| Errno::INVAL)?;
        let mut read = volume::Request::new(Opcode::Read, self.handle(request.node));
        read.numbers[0] = request.u64_at(8)?;
        self.host_port.ask(
            |buffer, frames| {
                let mut read = read;
                read.frames = Frames::Addresses(frames.for_bytes(most));
                read.write(buffer)
            },
            |rest, frames| {
                let (_, rest) = HostAttributes::read(rest).ok_or(Errno::IO)?;
                let (count, _) = leading_number(rest).ok_or(Errno::IO)?;
                let count = usize::try_from(count).map_err(|_| Errno::IO)?;
                reply.bytes(frames.bytes(count.min(most)));
                Ok(())
            },
        )
    }

    fn write(&self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let (offset, count) = (request.u64_at(8)?, request.u32_at(16)?);
        let flags = OFlags::from_bits_retain(request.u32_at(32)?);
        let append = flags.contains(OFlags::APPEND) && request.u32_at(20)? & OF_MAPPING == 0;
        let bytes = usize::try_from(count).ok();
        let bytes = bytes.and_then(|count| request.rest(40).ok()?.get(..count));
        let bytes = bytes.ok_or(Errno::INVAL)?;
        let mut write = volume::Request::new(Opcode::Write, self.handle(request.node));
        write.numbers[..4].copy_from_slice(&[offset, 0, count.into(), append.into()]);
        let written = self.host_port.ask(
            |buffer, frames| {
                frames.fill(bytes);
                let mut write = write;
                write.frames = Frames::Addresses(frames.for_bytes(bytes.len()));
                write.write(buffer)
            },
            |rest, _| {
                let (_, rest) = HostAttributes::read(rest).ok_or(Errno::IO)?;
                let (written, _) = leading_number(rest).ok_or(Errno::IO)?;
                u32::try_from(written).map_err(|_| Errno::IO)
            },
        )?;
        reply.written(written.min(count));
        Ok(())
    }

    /// Answers `FALLOCATE`: extends the file if it is shorter. Disk space is not reserved. Fails
    /// with `EOPNOTSUPP` for other modes.
    fn allocate(&self, request: &Request<'_>) -> Result<(), Errno> {
        if request.u32_at(24)? != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let (offset, length) = (request.u64_at(8)?, request.u64_at(16)?);
        let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
        let handle = self.handle(request.node);
        if end > self.host_attributes(handle)?.size {
            let mut request = volume::Request::new(Opcode::SetAttributes, handle);
            request.numbers[..3].copy_from_slice(&[change::SIZE, 0, end]);
            self.done(&request)?;
        }
        Ok(())
    }
}

impl FileSystem for Folder {
    // Linux notices changes by the host from size and time, and drops its pages then.
    const ABILITIES: u32 = can::AUTO_INVAL_DATA;
    const WRITE_MAX: usize = frames::BYTES;

    fn answer(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let node = request.node;
        let handle = self.handle(node);
        match request.opcode {
            opcode::LOOKUP => {
                let look = self.named(Opcode::Lookup, node, request.name(0)?);
                self.give(&look, reply).map(drop)
            }
            opcode::GETATTR => {
                reply.attributes_alone(&attributes(&self.host_attributes(handle)?)?, SHORT);
                Ok(())
            }
            opcode::SETATTR => self.change(request, reply),
            opcode::READLINK => {
                let target = volume::Request::new(Opcode::ReadLink, handle);
                self.ask(&target, |rest| {
                    reply.bytes(entries(rest).next().ok_or(Errno::IO)?.target);
                    Ok(())
                })
            }
            opcode::SYMLINK => {
                let [name, target] = request.names(0)?;
                let link = self.named(Opcode::CreateSymlink, node, name);
                self.give(&volume::Request { target, ..link }, reply)
                    .map(drop)
            }
            opcode::MKNOD => {
                let mode = request.u32_at(0)?;
                // Pipes, sockets and devices would have no other end on the host.
                if FileType::from_raw_mode(mode) != FileType::RegularFile {
                    return Err(Errno::PERM);
                }
                let name = request.name(16)?;
                self.make(Opcode::CreateFile, (node, name), mode, reply)
                    .map(drop)
            }
            opcode::MKDIR => {
                let (mode, name) = (request.u32_at(0)?, request.name(8)?);
                self.make(Opcode::CreateFolder, (node, name), mode, reply)
                    .map(drop)
            }
            opcode::UNLINK => self.done(&self.named(Opcode::Unlink, node, request.name(0)?)),
            opcode::RMDIR => self.done(&self.named(Opcode::RemoveFolder, node, request.name(0)?)),
            opcode::RENAME => self.rename(request, 0, request.names(8)?),
            opcode::RENAME2 => self.rename(request, request.u32_at(8)?, request.names(16)?),
            opcode::LINK => {
                let name = request.name(8)?;
                let mut link = self.named(Opcode::CreateLink, node, name);
                link.numbers[0] = self.handle(request.u64_at(0)?);
                self.done(&link)?;
                // The lookup counts one more reference of Linux to the node.
                self.give(&self.named(Opcode::Lookup, node, name), reply)
                    .map(drop)
            }
            opcode::OPEN => {
                self.open(handle, request.u32_at(0)?)?;
                reply.opened(handle, keep::CACHE);
                Ok(())
            }
            opcode::CREATE => self.create(request, reply),
            opcode::READ => self.read(request, reply),
            opcode::WRITE => self.write(request, reply),
            opcode::RELEASE => self.release(request),
            opcode::FSYNC | opcode::FSYNCDIR => {
                self.done(&volume::Request::new(Opcode::Sync, handle))
            }
            opcode::FALLOCATE => self.allocate(request),
            opcode::OPENDIR => {
                reply.opened(self.next_listing, 0);
                self.next_listing += 1;
                Ok(())
            }
            opcode::READDIR => self.list(request, reply),
            opcode::RELEASEDIR => {
                self.listings.remove(&request.u64_at(0)?);
                Ok(())
            }
            opcode::STATFS => {
                self.ask(&volume::Request::new(Opcode::StatFs, handle), |mut rest| {
                    let mut numbers = [0; 6];
                    for number in &mut numbers {
                        (*number, rest) = leading_number(rest).ok_or(Errno::IO)?;
                    }
                    reply.room(numbers);
                    Ok(())
                })
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn forget(&mut self, node: u64, times: u64) {
        if node != TOP {
            let handle = self.handle(node);
            if let Some(given) = self.given.get_mut(&handle) {
                *given = given.saturating_sub(times);
                if *given == 0 {
                    self.given.remove(&handle);
                    self.too_many = self.too_many.min(self.given.len() + HANDLES);
                }
            }
            let mut forget = volume::Request::new(Opcode::Forget, handle);
            forget.numbers[0] = times;
            // Nothing can be done if the host no longer knows the handle.
            let _ = self.done(&forget);
        }
    }
}
