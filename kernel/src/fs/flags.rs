//! Open flags and file kinds, with Linux's numbers.

use bitflags::bitflags;
use linux_raw_sys::general as raw;

bitflags! {
    /// The flags of `open` and `fcntl`.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// The file is open for writing only. Without this and `READ_WRITE`, it is open for reading
        /// only.
        const WRITE_ONLY = raw::O_WRONLY;
        /// The file is open for reading and writing.
        const READ_WRITE = raw::O_RDWR;
        /// The open creates the file if it does not exist.
        const CREATE = raw::O_CREAT;
        /// The open fails if the file exists. Has an effect with `CREATE` only.
        const EXCLUSIVE = raw::O_EXCL;
        /// Never become the controlling terminal.
        const NO_CTTY = raw::O_NOCTTY;
        /// Truncate the file to length 0.
        const TRUNCATE = raw::O_TRUNC;
        /// Every write goes to the end.
        const APPEND = raw::O_APPEND;
        /// Never block.
        const NONBLOCK = raw::O_NONBLOCK;
        /// Send signals when the file becomes ready.
        const ASYNC = raw::FASYNC;
        /// Integrity of data: a write to a disk is stable when the call returns.
        const DSYNC = raw::O_DSYNC;
        /// Bypass the cache between the program and a disk.
        const DIRECT = raw::O_DIRECT;
        /// Offsets have 64 bits. They always have; the flag is only shown.
        const LARGE = raw::O_LARGEFILE;
        /// Fail if the file is no directory.
        const DIRECTORY = raw::O_DIRECTORY;
        /// Fail if the last component is a symbolic link.
        const NO_FOLLOW = raw::O_NOFOLLOW;
        /// Do not change the access time.
        const NO_ATIME = raw::O_NOATIME;
        /// Close on exec: a flag of the descriptor, not of the open file.
        const CLOSE_ON_EXEC = raw::O_CLOEXEC;
        /// Integrity of file and data; includes `DSYNC`.
        const SYNC = raw::O_SYNC;
        /// A reference to the place in the tree only, without reading or writing.
        const PATH = raw::O_PATH;
        /// A file without a name, in the file system of the given directory. Includes `DIRECTORY`.
        const TEMPORARY = raw::O_TMPFILE;
    }
}

impl OpenFlags {
    /// The flags that `fcntl(F_SETFL)` may change.
    pub const CHANGEABLE: Self = Self::APPEND
        .union(Self::NONBLOCK)
        .union(Self::DIRECT)
        .union(Self::NO_ATIME);
    /// The flags that only matter while opening.
    pub const OPENING: Self = Self::CREATE
        .union(Self::EXCLUSIVE)
        .union(Self::NO_CTTY)
        .union(Self::TRUNCATE)
        .union(Self::CLOSE_ON_EXEC);

    /// Returns the flags of `bits`, as a program passed them. Bits without a meaning are ignored,
    /// as by `open`.
    pub fn from_user(bits: u64) -> Self {
        // Only the low 32 bits have a meaning.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the register's upper half is ignored"
        )]
        Self::from_bits_truncate(bits as u32)
    }

    /// The flags that an open with `PATH` accepts.
    pub const OF_PLACE: Self = Self::PATH
        .union(Self::DIRECTORY)
        .union(Self::NO_FOLLOW)
        .union(Self::CLOSE_ON_EXEC);

    /// Returns the flags that `open` stores for these: `LARGE` is added, and with `PATH` only
    /// [`Self::OF_PLACE`] remain.
    #[must_use]
    pub fn completed(self) -> Self {
        if self.contains(Self::PATH) {
            self & Self::OF_PLACE
        } else {
            self | Self::LARGE
        }
    }

    /// Returns whether reading is allowed.
    pub fn readable(self) -> bool {
        let mode = self.bits() & raw::O_ACCMODE;
        !self.contains(Self::PATH) && (mode == raw::O_RDONLY || mode == raw::O_RDWR)
    }

    /// Returns whether writing is allowed.
    pub fn writable(self) -> bool {
        let mode = self.bits() & raw::O_ACCMODE;
        !self.contains(Self::PATH) && (mode == raw::O_WRONLY || mode == raw::O_RDWR)
    }

    /// Returns whether a call fails with `EAGAIN` where it would block.
    pub fn nonblocking(self) -> bool {
        self.contains(Self::NONBLOCK)
    }
}

/// The kind of a node's file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A named pipe, or an unnamed one.
    Fifo,
    /// A character device.
    Character,
    /// A directory.
    Directory,
    /// A block device.
    Block,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
    /// A file without a kind in `st_mode`: eventfd, epoll and others.
    Anonymous,
}

impl FileKind {
    /// Returns the bits of the kind in `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => raw::S_IFIFO,
            Self::Character => raw::S_IFCHR,
            Self::Directory => raw::S_IFDIR,
            Self::Block => raw::S_IFBLK,
            Self::Regular => raw::S_IFREG,
            Self::Symlink => raw::S_IFLNK,
            Self::Socket => raw::S_IFSOCK,
            Self::Anonymous => 0,
        }
    }

    /// Returns the kind of the `st_mode` bits `mode`. `None` if they name no kind.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & raw::S_IFMT {
            raw::S_IFIFO => Self::Fifo,
            raw::S_IFCHR => Self::Character,
            raw::S_IFDIR => Self::Directory,
            raw::S_IFBLK => Self::Block,
            raw::S_IFREG => Self::Regular,
            raw::S_IFLNK => Self::Symlink,
            raw::S_IFSOCK => Self::Socket,
            _ => return None,
        })
    }

    /// Returns the kind as `getdents64` reports it (`DT_*`).
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the mode's upper four bits, at most 15"
    )]
    pub const fn dirent_type(self) -> u8 {
        (self.mode_bits() >> 12) as u8
    }
}
