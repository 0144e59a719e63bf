//! FUSE requests from Linux and replies to it, in the layout of `linux/fuse.h` version 7.31.

use rustix::io::Errno;
use std::time::Duration;

/// The major number of the FUSE version implemented here.
pub(super) const MAJOR: u32 = 7;
/// The minor number of the FUSE version implemented here.
pub(super) const MINOR: u32 = 31;

/// The kinds of requests (`enum fuse_opcode`).
pub(super) mod opcode {
    /// `FUSE_LOOKUP`: finds a name in a folder.
    pub(in crate::fuse) const LOOKUP: u32 = 1;
    /// `FUSE_FORGET`: drops references to a node, without a reply.
    pub(in crate::fuse) const FORGET: u32 = 2;
    /// `FUSE_GETATTR`: returns the attributes of a node.
    pub(in crate::fuse) const GETATTR: u32 = 3;
    /// `FUSE_SETATTR`: changes attributes of a node.
    pub(in crate::fuse) const SETATTR: u32 = 4;
    /// `FUSE_READLINK`: returns the target of a symbolic link.
    pub(in crate::fuse) const READLINK: u32 = 5;
    /// `FUSE_SYMLINK`: creates a symbolic link.
    pub(in crate::fuse) const SYMLINK: u32 = 6;
    /// `FUSE_MKNOD`: creates a file that is not opened.
    pub(in crate::fuse) const MKNOD: u32 = 8;
    /// `FUSE_MKDIR`: creates a folder.
    pub(in crate::fuse) const MKDIR: u32 = 9;
    /// `FUSE_UNLINK`: removes a name of a file.
    pub(in crate::fuse) const UNLINK: u32 = 10;
    /// `FUSE_RMDIR`: removes a folder.
    pub(in crate::fuse) const RMDIR: u32 = 11;
    /// `FUSE_RENAME`: renames a file or folder.
    pub(in crate::fuse) const RENAME: u32 = 12;
    /// `FUSE_LINK`: adds a name to a file.
    pub(in crate::fuse) const LINK: u32 = 13;
    /// `FUSE_OPEN`: opens a file.
    pub(in crate::fuse) const OPEN: u32 = 14;
    /// `FUSE_READ`: reads from a file.
    pub(in crate::fuse) const READ: u32 = 15;
    /// `FUSE_WRITE`: writes to a file.
    pub(in crate::fuse) const WRITE: u32 = 16;
    /// `FUSE_STATFS`: returns the size of the file system.
    pub(in crate::fuse) const STATFS: u32 = 17;
    /// `FUSE_RELEASE`: closes a file.
    pub(in crate::fuse) const RELEASE: u32 = 18;
    /// `FUSE_FSYNC`: makes the changes of a file stable.
    pub(in crate::fuse) const FSYNC: u32 = 20;
    /// `FUSE_INIT`: agrees on the version and the features.
    pub(in crate::fuse) const INIT: u32 = 26;
    /// `FUSE_OPENDIR`: opens a folder.
    pub(in crate::fuse) const OPENDIR: u32 = 27;
    /// `FUSE_READDIR`: lists names of a folder.
    pub(in crate::fuse) const READDIR: u32 = 28;
    /// `FUSE_RELEASEDIR`: closes a folder.
    pub(in crate::fuse) const RELEASEDIR: u32 = 29;
    /// `FUSE_FSYNCDIR`: makes the changes of a folder stable.
    pub(in crate::fuse) const FSYNCDIR: u32 = 30;
    /// `FUSE_CREATE`: creates a file and opens it.
    pub(in crate::fuse) const CREATE: u32 = 35;
    /// `FUSE_INTERRUPT`: withdraws a request.
    pub(in crate::fuse) const INTERRUPT: u32 = 36;
    /// `FUSE_DESTROY`: ends the file system.
    pub(in crate::fuse) const DESTROY: u32 = 38;
    /// `FUSE_BATCH_FORGET`: drops references to several nodes, without a reply.
    pub(in crate::fuse) const BATCH_FORGET: u32 = 42;
    /// `FUSE_FALLOCATE`: reserves space of a file.
    pub(in crate::fuse) const FALLOCATE: u32 = 43;
    /// `FUSE_READDIRPLUS`: lists names of a folder with their attributes.
    pub(in crate::fuse) const READDIRPLUS: u32 = 44;
    /// `FUSE_RENAME2`: renames with flags.
    pub(in crate::fuse) const RENAME2: u32 = 45;
}

/// Feature flags of `FUSE_INIT`.
pub(super) mod can {
    /// `FUSE_ASYNC_READ`: several reads of a file at once.
    pub(in crate::fuse) const ASYNC_READ: u32 = 1;
    /// `FUSE_BIG_WRITES`: writes of more than a page.
    pub(in crate::fuse) const BIG_WRITES: u32 = 1 << 5;
    /// `FUSE_AUTO_INVAL_DATA`: drop cached pages if size or time have changed.
    pub(in crate::fuse) const AUTO_INVAL_DATA: u32 = 1 << 12;
    /// `FUSE_DO_READDIRPLUS`: listings with attributes.
    pub(in crate::fuse) const DO_READDIRPLUS: u32 = 1 << 13;
    /// `FUSE_READDIRPLUS_AUTO`: listings with attributes only where Linux expects to use them.
    pub(in crate::fuse) const READDIRPLUS_AUTO: u32 = 1 << 14;
    /// `FUSE_PARALLEL_DIROPS`: several requests about a folder at once.
    pub(in crate::fuse) const PARALLEL_DIROPS: u32 = 1 << 18;
    /// `FUSE_MAX_PAGES`: a limit of pages in a request.
    pub(in crate::fuse) const MAX_PAGES: u32 = 1 << 22;
    /// `FUSE_CACHE_SYMLINKS`: cache the targets of symbolic links.
    pub(in crate::fuse) const CACHE_SYMLINKS: u32 = 1 << 23;
}

/// Flags of an opened file or folder (`FOPEN_…`): what Linux may keep in its caches.
pub(super) mod keep {
    /// `FOPEN_KEEP_CACHE`: the cached pages.
    pub(in crate::fuse) const CACHE: u32 = 1 << 1;
    /// `FOPEN_CACHE_DIR`: the names of a folder.
    pub(in crate::fuse) const NAMES: u32 = 1 << 3;
}

/// Size of `struct fuse_in_header` in bytes.
const HEADER: usize = 40;
/// Size of `struct fuse_out_header` in bytes.
const REPLY_HEADER: usize = 16;
/// The node number of the file system's root (`FUSE_ROOT_ID`).
pub(super) const TOP: u64 = 1;
/// The inode number that a listing reports for a name whose own number is not known.
pub(super) const UNKNOWN: u64 = u64::MAX;
/// Names that every folder has.
pub(super) const DOTS: [&[u8]; 2] = [b".", b".."];

/// A request from Linux.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Request<'a> {
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) node: u64,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads the request in `bytes`. Returns `None` if it is shorter than a header.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let whole = Self {
            opcode: 0,
            unique: 0,
            node: 0,
            body: bytes,
        };
        Some(Self {
            opcode: whole.u32_at(4).ok()?,
            unique: whole.u64_at(8).ok()?,
            node: whole.u64_at(16).ok()?,
            body: bytes.get(HEADER..)?,
        })
    }

    /// Returns the 32-bit number at byte `at` of the body. Fails with `EIO` past the end.
    pub(super) fn u32_at(&self, at: usize) -> Result<u32, Errno> {
        let bytes = self.rest(at)?.first_chunk().ok_or(Errno::IO)?;
        Ok(u32::from_ne_bytes(*bytes))
    }

    /// Returns the 64-bit number at byte `at` of the body. Fails with `EIO` past the end.
    pub(super) fn u64_at(&self, at: usize) -> Result<u64, Errno> {
        let bytes = self.rest(at)?.first_chunk().ok_or(Errno::IO)?;
        Ok(u64::from_ne_bytes(*bytes))
    }

    /// Returns the body from byte `at` on, which is empty if the body has `at` bytes. Fails with
    /// `EIO` if it has fewer.
    pub(super) fn rest(&self, at: usize) -> Result<&'a [u8], Errno> {
        self.body.get(at..).ok_or(Errno::IO)
    }

    /// Returns the NUL-terminated string at byte `at` of the body. Fails with `EIO` if it is not
    /// terminated.
    pub(super) fn name(&self, at: usize) -> Result<&'a [u8], Errno> {
        let rest = self.rest(at)?;
        let end = rest.iter().position(|byte| *byte == 0).ok_or(Errno::IO)?;
        Ok(&rest[..end])
    }

    /// Returns two successive NUL-terminated strings, the first at byte `at` of the body. Fails
    /// with `EIO` if one is not terminated.
    pub(super) fn names(&self, at: usize) -> Result<[&'a [u8]; 2], Errno> {
        let first = self.name(at)?;
        Ok([first, self.name(at + first.len() + 1)?])
    }
}

/// The attributes of a file (`struct fuse_attr`).
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Attributes {
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    /// Seconds and nanoseconds of the last read, the last write, and the last change of attributes.
    pub(super) times: [(i64, u32); 3],
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) device: u32,
}

/// How long Linux may cache a name and attributes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Trust {
    pub(super) name: Duration,
    pub(super) attributes: Duration,
}

/// A buffer in which replies to Linux are written, one after another.
#[derive(Debug)]
pub(crate) struct Reply(Vec<u8>);

impl Reply {
    /// Returns a buffer with memory for `room` bytes after the header. [`begin`](Self::begin) must
    /// be called before the first reply, too.
    pub(super) fn new(room: usize) -> Self {
        Self(Vec::with_capacity(REPLY_HEADER + room))
    }

    /// Begins the reply to the next request: drops the bytes of the last reply and leaves space for
    /// the header. Must be called before other functions write to the reply.
    pub(super) fn begin(&mut self) {
        self.0.clear();
        self.0.resize(REPLY_HEADER, 0);
    }

    /// Completes the reply to the request with the number `unique` and returns its bytes. If
    /// `result` is an error, the reply has the error and no body.
    pub(super) fn finish(&mut self, unique: u64, result: Result<(), Errno>) -> &[u8] {
        let error = match result {
            Ok(()) => 0,
            Err(errno) => {
                self.0.truncate(REPLY_HEADER);
                -errno.raw_os_error()
            }
        };
        let len = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0[4..8].copy_from_slice(&error.to_ne_bytes());
        self.0[8..16].copy_from_slice(&unique.to_ne_bytes());
        &self.0
    }

    /// Returns the number of bytes that were written after the header.
    pub(super) fn len(&self) -> usize {
        self.0.len() - REPLY_HEADER
    }

    /// Appends bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends a 32-bit number.
    pub(super) fn put_u32(&mut self, number: u32) {
        self.bytes(&number.to_ne_bytes());
    }

    /// Appends a 64-bit number.
    pub(super) fn put_u64(&mut self, number: u64) {
        self.bytes(&number.to_ne_bytes());
    }

    fn attributes(&mut self, of: &Attributes) {
        for number in [of.inode, of.size, of.blocks] {
            self.put_u64(number);
        }
        for (seconds, _) in of.times {
            self.put_u64(seconds.cast_unsigned());
        }
        for (_, nanos) in of.times {
            self.put_u32(nanos);
        }
        for number in [of.mode, of.links, of.uid, of.gid, of.device, BLOCK, 0] {
            self.put_u32(number);
        }
    }

    /// Appends a `struct fuse_entry_out`: the node of a name, its attributes, and how long to cache
    /// them.
    pub(super) fn entry(&mut self, node: u64, of: &Attributes, trust: Trust) {
        // Node numbers are never reused, so there is only one generation.
        for number in [node, 0, trust.name.as_secs(), trust.attributes.as_secs()] {
            self.put_u64(number);
        }
        self.put_u32(trust.name.subsec_nanos());
        self.put_u32(trust.attributes.subsec_nanos());
        self.attributes(of);
    }

    /// Appends a `struct fuse_attr_out`: the attributes of a node, and how long to cache them.
    pub(super) fn attributes_alone(&mut self, of: &Attributes, trust: Trust) {
        self.put_u64(trust.attributes.as_secs());
        self.put_u32(trust.attributes.subsec_nanos());
        self.put_u32(0);
        self.attributes(of);
    }

    /// Appends a `struct fuse_open_out`: the handle of the opened file or folder, and flags of
    /// [`keep`].
    pub(super) fn opened(&mut self, handle: u64, keep: u32) {
        self.put_u64(handle);
        self.put_u32(keep);
        self.put_u32(0);
    }

    /// Appends a `struct fuse_write_out`: the number of bytes written.
    pub(super) fn written(&mut self, count: u32) {
        self.put_u32(count);
        self.put_u32(0);
    }

    /// Appends a `struct fuse_statfs_out`. The argument has the block size, the numbers of all,
    /// free and available blocks, and the numbers of all and free files.
    pub(super) fn room(&mut self, [size, blocks, free, available, files, free_files]: [u64; 6]) {
        for number in [blocks, free, available, files, free_files] {
            self.put_u64(number);
        }
        let size = u32::try_from(size).unwrap_or(BLOCK);
        for number in [size, NAME_MAX, size, 0] {
            self.put_u32(number);
        }
        self.bytes(&[0; 24]);
    }

    /// Appends a `struct fuse_dirent`: a name with its inode number and the kind in `mode`, and the
    /// index `next` of the next name in the folder. Returns `false`, with nothing written, if the
    /// body would exceed `most` bytes.
    pub(super) fn name(
        &mut self,
        name: &[u8],
        inode: u64,
        mode: u32,
        next: u64,
        most: usize,
    ) -> bool {
        if self.len() + name_bytes(name) > most {
            return false;
        }
        self.put_u64(inode);
        self.put_u64(next);
        self.put_u32(u32::try_from(name.len()).unwrap_or(0));
        self.put_u32((mode & KIND) >> KIND_SHIFT);
        self.bytes(name);
        let padded = self.0.len().next_multiple_of(8);
        self.0.resize(padded, 0);
        true
    }

    /// Shortens the body to its first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(REPLY_HEADER + len);
    }
}

/// The block size reported by `stat`.
const BLOCK: u32 = 4096;
const NAME_MAX: u32 = 255;
/// The file type bits of a mode, and their shift in a directory entry.
const KIND: u32 = 0o170_000;
const KIND_SHIFT: u32 = 12;

/// Returns the size of a directory entry with this name in bytes.
fn name_bytes(name: &[u8]) -> usize {
    (24 + name.len()).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ONE: Attributes = Attributes {
        inode: 7,
        size: 5000,
        blocks: 10,
        times: [(-1, 2), (3, 4), (5, 6)],
        mode: 0o100_644,
        links: 2,
        uid: 8,
        gid: 9,
        device: 0,
    };

    fn reply(write: impl FnOnce(&mut Reply)) -> Vec<u8> {
        let mut reply = Reply::new(0);
        reply.begin();
        write(&mut reply);
        reply.finish(77, Ok(())).to_vec()
    }

    /// Compares with the sizes of the structures in `linux/fuse.h`.
    #[test]
    fn replies_are_as_long_as_linux_has_them() {
        let trust = Trust {
            name: Duration::from_secs(1),
            attributes: Duration::from_millis(50),
        };
        let entry = reply(|to| to.entry(3, &OF_ONE, trust));
        assert_eq!(entry.len(), 16 + 128);
        assert_eq!(entry[..4], 144u32.to_ne_bytes());
        assert_eq!(entry[8..16], 77u64.to_ne_bytes());
        assert_eq!(entry[16..24], 3u64.to_ne_bytes());
        assert_eq!(entry[16 + 36..16 + 40], 50_000_000u32.to_ne_bytes());
        assert_eq!(entry[16 + 100..16 + 104], 0o100_644u32.to_ne_bytes());
        let attributes = reply(|to| to.attributes_alone(&OF_ONE, trust));
        assert_eq!(attributes.len(), 16 + 104);
        assert_eq!(reply(|to| to.opened(1, 0)).len(), 16 + 16);
        assert_eq!(reply(|to| to.written(1)).len(), 16 + 8);
        assert_eq!(reply(|to| to.room([4096, 1, 2, 3, 4, 5])).len(), 16 + 80);
    }

    #[test]
    fn names_are_listed_as_far_as_there_is_room() {
        let listed = reply(|to| {
            assert!(to.name(b"one", 5, 0o040_755, 1, 64));
            assert!(to.name(b"exactly8", 6, 0o120_777, 2, 64));
            assert!(!to.name(b"x", 7, 0o100_644, 3, 95));
            assert!(to.name(b"x", 7, 0o100_644, 3, 96));
            to.truncate(64);
        });
        assert_eq!(listed.len(), 16 + 64);
        assert_eq!(listed[16 + 20..16 + 24], 4u32.to_ne_bytes());
        assert_eq!(&listed[16 + 24..16 + 32], b"one\0\0\0\0\0");
        assert_eq!(&listed[16 + 56..], b"exactly8");
    }

    #[test]
    fn an_error_has_nothing_else() {
        let mut reply = Reply::new(0);
        reply.begin();
        reply.bytes(b"half done");
        let bytes = reply.finish(1, Err(Errno::NOENT));
        assert_eq!(
            (bytes.len(), &bytes[4..8]),
            (16, &(-2i32).to_ne_bytes()[..])
        );
    }

    #[test]
    fn requests_are_read_within_their_bytes() {
        let mut bytes = vec![0; HEADER];
        bytes[4..8].copy_from_slice(&opcode::RENAME2.to_ne_bytes());
        bytes[8..16].copy_from_slice(&9u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&TOP.to_ne_bytes());
        assert!(Request::parse(&bytes[..HEADER - 1]).is_none());
        bytes.extend_from_slice(&[1; 16]);
        bytes.extend_from_slice(b"old\0new\0");
        let request = Request::parse(&bytes).expect("a request");
        assert_eq!((request.opcode, request.unique), (opcode::RENAME2, 9));
        assert_eq!(request.names(16), Ok([&b"old"[..], b"new"]));
        assert_eq!(request.name(21), Ok(&b"ew"[..]));
        for at in [25, 26, usize::MAX] {
            assert_eq!(request.name(at), Err(Errno::IO), "{at}");
        }
        assert_eq!(request.u64_at(8), Ok(0x0101_0101_0101_0101));
        assert_eq!(request.u64_at(18), Err(Errno::IO));
    }
}
