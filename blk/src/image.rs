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

/// What tmpfs calls itself in `statfs`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Looks at the lock of an image that somebody has, and the time between them: two seconds, for
/// what a predecessor left to be done.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What was opened with `O_PATH` where the user said that an image is.
#[derive(Clone, Debug)]
pub struct Found(pub Arc<OwnedFd>);

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Found {}

/// Where an image's bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A raw file or a block device.
    Path(PathBuf),
    /// The same, found already: it is opened by its descriptor, whatever `path` leads to by now.
    Found {
        /// By which name it was found, for people.
        path: PathBuf,
        /// What stood there.
        file: Found,
    },
    /// Memory of this process, gone with it.
    Ram {
        /// How much.
        bytes: u64,
    },
}

/// How an image is to be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Where it is.
    pub location: Location,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether the host's page cache is to be used even where direct I/O works.
    pub cached: bool,
}

/// Why an image was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("cannot open {path}: {source}")]
    Open {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Neither a file nor a block device.
    #[error("{path} is neither a file nor a block device")]
    Kind {
        /// What.
        path: PathBuf,
    },
    /// Somebody else writes to it, or this was to write to what somebody reads.
    #[error("{path} is in use by another back-end")]
    InUse {
        /// What.
        path: PathBuf,
    },
    /// Smaller than a sector, or a piece of one at its end.
    #[error("{path} has {bytes} bytes; a disk is a whole number of sectors of {SECTOR_BYTES}")]
    Size {
        /// What.
        path: PathBuf,
        /// How large it is.
        bytes: u64,
    },
}

/// What direct I/O asks of addresses.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Alignment {
    /// Of memory.
    pub memory: u64,
    /// Of offsets and lengths.
    pub offset: u64,
}

/// An open image.
#[derive(Debug)]
pub struct Image {
    /// Without the page cache.
    direct: Option<(OwnedFd, Alignment)>,
    /// Through the page cache: for what direct I/O cannot take at all.
    cached: OwnedFd,
    bytes: u64,
    read_only: bool,
    /// Whether its bytes are memory: of a RAM disk, or of tmpfs.
    in_memory: bool,
    /// Logical block size that guests are told.
    block_bytes: u32,
}

impl Image {
    /// Opens what `spec` says.
    ///
    /// # Errors
    /// If it cannot be opened or is not a disk.
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

    /// Opens what `spec` says while another back-end may still write to it: the image of a guest
    /// that will migrate here. Nothing may be done with it before [`Self::lock`].
    ///
    /// # Errors
    /// If it cannot be opened or is not a disk.
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

    /// Keeps other back-ends from the image. Who does so already goes on doing it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if one has it and does not let it go for two seconds, else
    /// what `flock` says.
    pub fn lock(&self) -> io::Result<()> {
        Ok(lock(&self.cached, self.read_only)?)
    }

    /// Lets another back-end have the image, with all that was written.
    ///
    /// # Errors
    /// If it may not be on the medium, or what `flock` says. Then it is kept.
    pub fn hand_over(&self) -> io::Result<()> {
        if !self.read_only {
            fdatasync(&self.cached)?;
        }
        match flock(&self.cached, FlockOperation::NonBlockingUnlock) {
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens what stands at `place`; errors name `path`.
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
        // A FIFO without a writer must not hold us up.
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
        // The end says the size of files and block devices alike.
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if bytes == 0 || bytes % SECTOR_BYTES != 0 {
            return Err(OpenError::Size {
                path: path.to_owned(),
                bytes,
            });
        }
        let cached = OwnedFd::from(file);
        let in_memory = fstatfs(&cached).is_ok_and(|told| is_memory(kind, told.f_type));
        // There is no page cache to go around: what is in memory is copied from and to anywhere.
        let direct = if spec.cached || in_memory {
            None
        } else {
            // The inode that is open already, not whatever the path names by now.
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
        // A disk that ends inside of a block can only be told as one of sectors.
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

    /// A disk of `bytes` zeroes in memory.
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

    /// Size of the disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether writes are refused.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Whether its bytes are memory, so that nothing that is done with them has to be waited for.
    pub fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// The logical block size for guests.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The descriptor without page cache and what it asks for.
    pub fn direct(&self) -> Option<(&OwnedFd, Alignment)> {
        self.direct.as_ref().map(|(fd, alignment)| (fd, *alignment))
    }

    /// The descriptor through the page cache.
    pub fn cached(&self) -> &OwnedFd {
        &self.cached
    }
}

/// The path by which this process opens again what a descriptor has open.
fn own_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(file))
}

/// Whether the bytes of what lies in a file system are memory. A block device is somewhere else,
/// though its name usually lies in devtmpfs, which is a tmpfs to who asks.
fn is_memory(kind: FileType, file_system: rustix::fs::FsWord) -> bool {
    kind == FileType::RegularFile && file_system == TMPFS_MAGIC
}

/// Keeps other back-ends from an image that is written to.
///
/// A process that is killed can leave writes under way that the device still carries out. They
/// hold the descriptor, and so this lock, until they are done: a successor that has the lock
/// cannot be overtaken by them.
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
            // A file system without locks is served as it is.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::WOULDBLOCK)
}

/// What direct I/O on `fd` asks for: what the kernel says, else what is always enough.
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

#[cfg(all(test, not(loom)))]
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
