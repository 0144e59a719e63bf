//! The images behind disks: raw files, block devices, and RAM.

use crate::request::SECTOR_BYTES;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, MemfdFlags, Mode, OFlags, StatxFlags, fcntl_getfl,
    fcntl_setfl, fdatasync, flock, fstat, fstatfs, ioctl_blksszget, memfd_create, open, statx,
};
use rustix::io::Errno;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The file system type of tmpfs in `statfs`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Number of attempts to lock an image that another process has locked, with the pause between
/// them: two seconds, in which writes left by a killed predecessor can finish.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A descriptor opened with `O_PATH` on the path that the user gave for an image. Two values are
/// equal if they share the descriptor.
#[derive(Clone, Debug)]
pub struct Found(pub Arc<OwnedFd>);

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Found {}

/// The place of an image's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A raw file or a block device.
    Path(PathBuf),
    /// A file or block device that was opened before with `O_PATH`. It is opened through that
    /// descriptor, wherever `path` leads now.
    Found {
        /// The path by which it was found, for messages.
        path: PathBuf,
        /// The descriptor.
        file: Found,
    },
    /// Memory of this process, filled with zeroes at first.
    Ram {
        /// Size in bytes.
        bytes: u64,
    },
}

/// The place of an image and the way to open it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Where the image's bytes are.
    pub location: Location,
    /// Whether the disk is read-only.
    pub read_only: bool,
    /// Whether to use the host's page cache even if direct I/O works.
    pub cached: bool,
}

/// The reason why an image was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused to open or lock the image.
    #[error("cannot open {path}: {source}")]
    Open {
        /// The image.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path leads to neither a file nor a block device.
    #[error("{path} is neither a file nor a block device")]
    Kind {
        /// The image.
        path: PathBuf,
    },
    /// Another process has locked the image. A writer excludes all others, readers exclude writers.
    #[error("{path} is in use by another back-end")]
    InUse {
        /// The image.
        path: PathBuf,
    },
    /// The size is zero or no whole number of sectors.
    #[error("{path} has {bytes} bytes; a disk is a whole number of sectors of {SECTOR_BYTES}")]
    Size {
        /// The image.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
    },
}

/// The alignment that direct I/O requires, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Alignment {
    /// Alignment of memory addresses.
    pub memory: u64,
    /// Alignment of offsets in the image and of lengths.
    pub offset: u64,
}

/// An open image: the bytes behind one disk.
#[derive(Debug)]
pub struct Image {
    /// The descriptor for direct I/O, and the alignment it requires.
    direct: Option<(OwnedFd, Alignment)>,
    /// The descriptor that uses the page cache, for I/O that direct I/O cannot carry out.
    cached: OwnedFd,
    bytes: u64,
    read_only: bool,
    /// Whether the bytes are in memory: a RAM disk or a file on tmpfs.
    in_memory: bool,
    /// Logical block size in bytes, as reported to guests.
    block_bytes: u32,
}

impl Image {
    /// Opens and locks the image that `spec` describes. An image in RAM is made, filled with
    /// zeroes. Waits up to two seconds for the lock.
    ///
    /// # Errors
    /// Fails with [`OpenError::Open`] if the image cannot be opened or locked, [`OpenError::Kind`]
    /// if it is neither a file nor a block device, [`OpenError::Size`] if it has no bytes or no
    /// whole number of sectors, and [`OpenError::InUse`] if another process still holds the lock
    /// after two seconds.
    pub fn open(spec: &Spec) -> Result<Self, OpenError> {
        let image = Self::open_incoming(spec)?;
        if let Location::Path(path) | Location::Found { path, .. } = &spec.location {
            image.lock().map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => OpenError::InUse { path: path.clone() },
                _ => OpenError::Open {
                    path: path.clone(),
                    source,
                },
            })?;
        }
        Ok(image)
    }

    /// Opens the image that `spec` describes without locking it, because another back-end may still
    /// write to it: the guest will migrate to this host. The caller must not read or write the
    /// image before [`Self::lock`].
    ///
    /// # Errors
    /// Fails as [`Self::open`] does, but never because of the lock.
    pub fn open_incoming(spec: &Spec) -> Result<Self, OpenError> {
        match &spec.location {
            Location::Path(path) => Self::open_path(path, path, spec),
            Location::Found { path, file } => {
                let own = own_path(&file.0);
                Self::open_path(path, Path::new(&own), spec)
            }
            Location::Ram { bytes } => Self::ram(*bytes, spec.read_only),
        }
    }

    /// Locks the image against other back-ends: shared if it is read-only, else exclusive. Waits up
    /// to two seconds. Does nothing if this image holds the lock already. Succeeds without a lock
    /// if the file system has no locks.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::WouldBlock`] if another back-end still holds the lock after two
    /// seconds. Fails if `flock` fails in another way.
    pub fn lock(&self) -> io::Result<()> {
        Ok(lock(&self.cached, self.read_only)?)
    }

    /// Makes all writes durable, unless the image is read-only, and releases the lock, so that
    /// another back-end can take the image. Does not close the image.
    ///
    /// # Errors
    /// Fails if `fdatasync` or `flock` fails. The lock is then kept.
    pub fn hand_over(&self) -> io::Result<()> {
        if !self.read_only {
            fdatasync(&self.cached)?;
        }
        match flock(&self.cached, FlockOperation::NonBlockingUnlock) {
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the file or block device at `place`. Errors name `path`.
    fn open_path(path: &Path, place: &Path, spec: &Spec) -> Result<Self, OpenError> {
        let failed = |source: io::Error| OpenError::Open {
            path: path.to_owned(),
            source,
        };
        let access = if spec.read_only {
            OFlags::RDONLY
        } else {
            OFlags::RDWR
        };
        // Opening a FIFO without a writer must not block.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let cached = open(place, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
        let kind = FileType::from_raw_mode(fstat(&cached).map_err(|e| failed(e.into()))?.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return Err(OpenError::Kind {
                path: path.to_owned(),
            });
        }
        let plain = fcntl_getfl(&cached).map_err(|e| failed(e.into()))? - OFlags::NONBLOCK;
        fcntl_setfl(&cached, plain).map_err(|e| failed(e.into()))?;
        let mut file = std::fs::File::from(cached);
        // The end is the size of a file and of a block device.
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if bytes == 0 || bytes % SECTOR_BYTES != 0 {
            return Err(OpenError::Size {
                path: path.to_owned(),
                bytes,
            });
        }
        let cached = OwnedFd::from(file);
        let in_memory = fstatfs(&cached).is_ok_and(|told| is_memory(kind, told.f_type));
        // I/O in memory has no page cache to bypass, and has no alignment.
        let direct = if spec.cached || in_memory {
            None
        } else {
            // Opens the same inode again, which `place` may not lead to any more.
            let again = own_path(&cached);
            let flags = access | OFlags::CLOEXEC | OFlags::DIRECT;
            open(again, flags, Mode::empty()).ok().map(|fd| {
                let alignment = alignment(&fd, kind);
                (fd, alignment)
            })
        };
        let block_bytes = direct
            .as_ref()
            .map_or(SECTOR_BYTES, |(_, alignment)| alignment.offset);
        // A disk whose size is no multiple of the block size must be reported with blocks of one
        // sector.
        let block_bytes = if bytes % block_bytes == 0 {
            block_bytes
        } else {
            SECTOR_BYTES
        };
        Ok(Self {
            direct,
            cached,
            bytes,
            read_only: spec.read_only,
            in_memory,
            block_bytes: u32::try_from(block_bytes).unwrap_or(512),
        })
    }

    /// Makes a disk of `bytes` zeroes in memory.
    fn ram(bytes: u64, read_only: bool) -> Result<Self, OpenError> {
        let path = || PathBuf::from(format!("ram:{bytes}"));
        if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(OpenError::Size {
                path: path(),
                bytes,
            });
        }
        let make = || -> io::Result<OwnedFd> {
            let fd = memfd_create("ebb-blk-ram", MemfdFlags::CLOEXEC)?;
            rustix::fs::ftruncate(&fd, bytes)?;
            Ok(fd)
        };
        let cached = make().map_err(|source| OpenError::Open {
            path: path(),
            source,
        })?;
        Ok(Self {
            direct: None,
            cached,
            bytes,
            read_only,
            in_memory: true,
            block_bytes: 512,
        })
    }

    /// Returns the size of the disk in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the disk is read-only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns whether the image's bytes are in memory, so that no I/O on it waits for a device.
    pub fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// Returns the logical block size in bytes that is reported to guests: the alignment of direct
    /// I/O. It is 512 if there is no direct I/O, or if the size of the disk is no multiple of that
    /// alignment.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Returns the descriptor for direct I/O and the alignment it requires. Returns `None` if the
    /// image is used through the page cache alone: on request, in memory, or because the file
    /// system refuses.
    pub fn direct(&self) -> Option<(&OwnedFd, Alignment)> {
        self.direct.as_ref().map(|(fd, alignment)| (fd, *alignment))
    }

    /// Returns the descriptor that uses the page cache. Every image has it.
    pub fn cached(&self) -> &OwnedFd {
        &self.cached
    }
}

/// Returns the path by which this process can open `file` again.
fn own_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(file))
}

/// Returns whether a file of this kind, in a file system of type `file_system`, is in memory. A
/// block device is not, although its name is usually in devtmpfs, which has the type of tmpfs.
fn is_memory(kind: FileType, file_system: rustix::fs::FsWord) -> bool {
    kind == FileType::RegularFile && file_system == TMPFS_MAGIC
}

/// Locks an image against other back-ends. Fails with `WOULDBLOCK` after two seconds.
///
/// A killed process can leave writes that the device still carries out. They hold the descriptor
/// open, and so this lock, until they finish. So no such write can come after a write of the
/// successor, which has the lock.
fn lock(fd: &OwnedFd, read_only: bool) -> Result<(), Errno> {
    let how = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    for _ in 0..LOCK_TRIES {
        match flock(fd, how) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::INTR) => {}
            // Images in a file system without locks are served without a lock.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::WOULDBLOCK)
}

/// Returns the alignment that direct I/O on `fd` requires. If the kernel does not report it,
/// returns the device's sector size or the page size, which are always enough.
fn alignment(fd: &OwnedFd, kind: FileType) -> Alignment {
    const PAGE: u64 = 4096;
    let told = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    if let Some(told) = told
        && told.stx_mask & StatxFlags::DIOALIGN.bits() != 0
        && told.stx_dio_offset_align.is_power_of_two()
        && told.stx_dio_mem_align.is_power_of_two()
    {
        return Alignment {
            memory: told.stx_dio_mem_align.into(),
            offset: u64::from(told.stx_dio_offset_align).max(SECTOR_BYTES),
        };
    }
    let offset = match kind {
        FileType::BlockDevice => ioctl_blksszget(fd).map_or(PAGE, u64::from),
        _ => PAGE,
    };
    Alignment {
        memory: offset,
        offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_disk_is_refused_by_name() {
        let open = |location| {
            Image::open(&Spec {
                location,
                read_only: true,
                cached: false,
            })
        };
        let error = open(Location::Path("/nowhere/disk".into()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nowhere/disk"), "{error}");
        assert!(matches!(
            open(Location::Path("/dev/null".into())),
            Err(OpenError::Kind { .. })
        ));
        assert!(matches!(
            open(Location::Ram { bytes: 513 }),
            Err(OpenError::Size { .. })
        ));
        assert!(matches!(
            open(Location::Ram { bytes: 0 }),
            Err(OpenError::Size { .. })
        ));
    }

    #[test]
    fn a_block_device_is_no_memory_though_its_name_lies_in_devtmpfs() {
        assert!(is_memory(FileType::RegularFile, TMPFS_MAGIC));
        assert!(!is_memory(FileType::BlockDevice, TMPFS_MAGIC));
        assert!(!is_memory(FileType::RegularFile, 0xef53));
    }

    #[test]
    fn an_image_is_handed_over_to_who_waits_for_it() {
        let path = std::env::temp_dir().join(format!("ebb-blk-handed-{}", std::process::id()));
        std::fs::write(&path, vec![0; 8192]).unwrap();
        let spec = Spec {
            location: Location::Path(path.clone()),
            read_only: false,
            cached: false,
        };
        let from = Image::open(&spec).unwrap();
        let to = Image::open_incoming(&spec).unwrap();
        std::fs::remove_file(&path).unwrap();
        from.lock().unwrap();
        assert_eq!(to.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        from.hand_over().unwrap();
        to.lock().unwrap();
        assert!(from.lock().is_err());
    }

    #[test]
    fn a_file_is_opened_with_what_its_file_system_can_do() {
        let path = std::env::temp_dir().join(format!("ebb-blk-image-{}", std::process::id()));
        std::fs::write(&path, vec![0; 8192]).unwrap();
        let spec = Spec {
            location: Location::Path(path.clone()),
            read_only: false,
            cached: false,
        };
        let image = Image::open(&spec).unwrap();
        let again = Image::open(&spec).unwrap_err().to_string();
        assert!(again.contains("in use"), "{again}");
        if let Some((_, alignment)) = image.direct() {
            println!("{alignment:?}");
            assert!(alignment.offset.is_power_of_two() && alignment.memory.is_power_of_two());
        }
        assert_eq!(image.bytes(), 8192);
        drop(image);
        let cached = Image::open(&Spec {
            cached: true,
            ..spec
        })
        .unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(cached.direct().is_none());
    }
}
