//! hugetlbfs: a tmpfs whose regular files consist of huge pages of the pool. They are mapped and
//! read, not written.

use super::super::file::{File, Seeks};
use super::super::flags::OpenFlags;
use super::super::io::{ByteSink, MAX_RW_COUNT};
use super::super::node::Hold;
use super::super::text::Text;
use super::super::volume::{FileSystem, FileSystemType, Made, Maker, MountFlags, Volume};
use super::seals::Seals;
use super::{Body, Limits, TmpNode, Tmpfs};
use crate::vm::PageSource;
use crate::vm::hugetlb::{HugeFile, Subpool};
use alloc::sync::Arc;
use core::fmt::{Result as Written, Write};
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{
    F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_WRITE, FALLOC_FL_KEEP_SIZE,
    FALLOC_FL_PUNCH_HOLE,
};
use logic::errno::{Errno, SysResult};
use logic::mount_options::HugetlbfsOptions;
use machine::memory::hugetlb::{self, PageSize};
use machine::memory::{FrameRef, PAGE_SIZE};
use machine::sync::Mutex;

/// Linux's magic number of hugetlbfs.
pub(super) const MAGIC: u64 = 0x9584_58f6;
/// Permissions of a root directory, unless `mode=` says otherwise.
const DEFAULT_MODE: u32 = 0o755;
/// The largest file.
const MAX_SIZE: u64 = i64::MAX as u64;

/// The type of a file system of huge pages.
pub const TYPE: FileSystemType = FileSystemType {
    name: "hugetlbfs",
    maker: Maker::Anew(make),
};

/// Returns the mount options, and the page size that they choose. Fails with `EINVAL` if an option
/// is malformed or there is no pool of that page size.
fn parse(text: &[u8]) -> Result<(HugetlbfsOptions, PageSize), Errno> {
    let size = match HugetlbfsOptions::page_bytes(text)? {
        Some(bytes) => PageSize::of_bytes(bytes).ok_or(Errno::EINVAL)?,
        None => hugetlb::default_size(),
    };
    let pool = hugetlb::counts(size).total;
    Ok((HugetlbfsOptions::parse(text, size.bytes(), pool)?, size))
}

fn make(options: &[u8], flags: MountFlags) -> Result<Made, Errno> {
    let (options, size) = parse(options)?;
    if options.files == Some(0) {
        // The root directory counts as a file.
        return Err(Errno::ENOMEM);
    }
    let mut flags = flags;
    if let Some(read_only) = options.read_only {
        flags.set(MountFlags::READ_ONLY, read_only);
    }
    let subpool = Subpool::new(size, options.pages, options.least_pages)?;
    let limits = Limits {
        pages: 0,
        nodes: options.files.unwrap_or(0),
    };
    let mode = options.mode.unwrap_or(DEFAULT_MODE);
    let owner = [options.uid.unwrap_or(0), options.gid.unwrap_or(0)];
    let mut fs = Tmpfs::new(Volume::new(flags)?, limits, mode, owner);
    fs.huge = Some(subpool);
    let fs = Arc::new(fs);
    let top = fs.make_root(None, b"", mode);
    {
        let mut attributes = top.attributes.lock();
        [attributes.uid, attributes.gid] = owner;
    }
    Ok(Made {
        fs: Arc::new(Mounted(fs)),
        top,
    })
}

/// The file system as `mount -o remount` and `/proc/mounts` see it.
struct Mounted(Arc<Tmpfs>);

impl FileSystem for Mounted {
    fn volume(&self) -> &Volume {
        &self.0.volume
    }

    /// Checks the mount options and ignores their values: as on Linux, a remount changes only the
    /// flags. Fails as [`parse`] does.
    fn reconfigure(&self, options: &[u8]) -> Result<(), Errno> {
        parse(options).map(|_| ())
    }

    fn show_options(&self, text: &mut Text) -> Written {
        let fs = &self.0;
        for (name, id) in [",uid", ",gid"].into_iter().zip(fs.root_owner) {
            if id != 0 {
                write!(text, "{name}={id}")?;
            }
        }
        if fs.root_mode != DEFAULT_MODE {
            write!(text, ",mode={:o}", fs.root_mode)?;
        }
        let nodes = fs.node_limit.load(Ordering::Relaxed);
        if nodes != 0 {
            write!(text, ",nr_inodes={nodes}")?;
        }
        if let Some(subpool) = &fs.huge {
            let bytes = subpool.size().bytes();
            write!(text, ",pagesize={}M", bytes >> 20)?;
            let (most, least) = subpool.limits();
            if let Some(most) = most {
                write!(text, ",size={}", u128::from(most) * u128::from(bytes))?;
            }
            if let Some(least) = least {
                write!(text, ",min_size={}", u128::from(least) * u128::from(bytes))?;
            }
        }
        Ok(())
    }
}

impl Tmpfs {
    /// Creates the file system of memory files without a name, with huge pages of `size`.
    pub fn huge_nameless(device: u64, size: PageSize) -> Arc<Self> {
        let limits = Limits { pages: 0, nodes: 0 };
        let mut fs = Self::new(Volume::permanent(device), limits, DEFAULT_MODE, [0; 2]);
        fs.huge = Some(Subpool::unlimited(size));
        Arc::new(fs)
    }

    /// Returns the content of a new regular file of this file system, which consists of huge pages
    /// if the file system has them.
    pub(super) fn new_content(&self) -> Body {
        match &self.huge {
            Some(subpool) => Body::Huge(Huge {
                file: Arc::new(HugeFile::in_subpool(subpool.clone())),
                changing: Mutex::new(()),
                seals: Seals::new(),
            }),
            None => Body::Regular(super::Regular::new()),
        }
    }
}

/// The content of a regular file.
#[derive(Debug)]
pub(super) struct Huge {
    file: Arc<HugeFile>,
    /// Held while a call changes the size or the pages, and while seals are added.
    changing: Mutex<()>,
    seals: Seals,
}

impl Huge {
    /// Returns the pages of the file.
    pub(super) const fn file(&self) -> &Arc<HugeFile> {
        &self.file
    }

    /// Returns the seals of the file.
    pub(super) const fn seals(&self) -> &Seals {
        &self.seals
    }

    /// Adds the seals in `seals` to the file.
    ///
    /// # Errors
    /// Fails with `EPERM` if the file is sealed against more seals, and with `EBUSY` for
    /// `F_SEAL_WRITE` while a mapping may store.
    pub(super) fn add_seals(&self, seals: u32) -> Result<(), Errno> {
        let _changing = self.changing.lock();
        self.seals.add(seals, self.file.mappings())
    }

    /// Cuts or extends the file to `size` bytes, which must be whole huge pages.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `size` is no multiple of the page size, with `EFBIG` if it is too
    /// large, and with `EPERM` if a seal forbids the change.
    pub(super) fn set_size(&self, node: &TmpNode, size: u64) -> Result<(), Errno> {
        if !size.is_multiple_of(self.file.page_size().bytes()) {
            return Err(Errno::EINVAL);
        }
        if size > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        let _changing = self.changing.lock();
        let before = self.file.bytes();
        if size < before {
            self.seals.check(F_SEAL_SHRINK)?;
        } else if size > before {
            self.seals.check(F_SEAL_GROW)?;
        }
        self.file.set_bytes(size);
        node.touch_modified();
        Ok(())
    }
}

/// Opens the file `node` of huge pages, for writing if `flags` say so. Returns the object that
/// reads it.
///
/// # Errors
/// Fails with `EROFS` if the mount is read-only and `flags` ask to write.
pub(super) fn open(node: Arc<TmpNode>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
    let writer = if flags.writable() {
        node.fs.volume.open_writer()?;
        Some(Writer(node.clone()))
    } else {
        None
    };
    Ok(Arc::new(OpenHuge {
        node,
        _writer: writer.map(Arc::new),
    }))
}

/// A writer of a file. While there is one, the file system is not made read-only.
struct Writer(Arc<TmpNode>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.fs.volume.close_writer();
    }
}

/// An open file of huge pages.
struct OpenHuge {
    node: Arc<TmpNode>,
    _writer: Option<Arc<Writer>>,
}

impl OpenHuge {
    fn huge(&self) -> Result<&Huge, Errno> {
        match &self.node.body {
            Body::Huge(huge) => Ok(huge),
            _ => Err(Errno::EINVAL),
        }
    }

    fn file(&self) -> Result<&Arc<HugeFile>, Errno> {
        Ok(self.huge()?.file())
    }
}

fn small(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl File for OpenHuge {
    fn read(&self, to: &mut dyn ByteSink, offset: &mut u64, _: OpenFlags) -> SysResult {
        const PAGE: u64 = PAGE_SIZE as u64;
        let file = self.file()?;
        let bytes = file.page_size().bytes();
        let mut done = 0;
        while to.room() > 0 && done < MAX_RW_COUNT {
            let left = file.bytes().saturating_sub(*offset);
            if left == 0 {
                break;
            }
            let in_page = small(*offset % PAGE);
            let count = (PAGE_SIZE - in_page).min(small(left)).min(to.room());
            let moved = match file.present(*offset / bytes) {
                Some(page) => {
                    let frame = page.frame().offset(*offset % bytes / PAGE);
                    to.put_frame(&FrameRef::new_reference(frame), in_page, count)
                }
                None => to.put_zeros(count),
            };
            match moved {
                Ok(moved) => {
                    done += moved;
                    *offset += moved as u64;
                    if moved < count {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            super::super::io::breathe(done);
        }
        if done > 0 {
            self.node.touch_accessed();
        }
        Ok(done)
    }

    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }

    /// Returns `offset` as the place of the next data, or the file's size as that of the next hole
    /// (`hole`). As on Linux, the whole file counts as data. Fails with `ENXIO` if `offset` is not
    /// within the file.
    fn seek_data(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let size = self.file()?.bytes();
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        Ok(if hole { size } else { offset })
    }

    fn hold(&self) -> Option<Hold> {
        Some(self.node.clone())
    }

    fn page_source(&self) -> Option<Arc<dyn PageSource>> {
        let source: Arc<dyn PageSource> = self.file().ok()?.clone();
        Some(source)
    }

    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<(), Errno> {
        let huge = self.huge()?;
        let file = huge.file();
        if mode & !(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = offset
            .checked_add(length)
            .filter(|&end| end <= MAX_SIZE)
            .ok_or(Errno::EFBIG)?;
        if mode & FALLOC_FL_PUNCH_HOLE != 0 {
            if mode & FALLOC_FL_KEEP_SIZE == 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            let _changing = huge.changing.lock();
            huge.seals.check(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)?;
            file.punch_bytes(offset..end);
            self.node.touch_modified();
            return Ok(());
        }
        let _changing = huge.changing.lock();
        if end > file.bytes() {
            huge.seals.check(F_SEAL_GROW)?;
        }
        let bytes = file.page_size().bytes();
        for index in offset / bytes..end.div_ceil(bytes) {
            file.page_or_new(index).ok_or(Errno::ENOSPC)?;
            super::super::io::breathe(small(bytes));
            if machine::sched::current().signal_pending() {
                return Err(Errno::EINTR);
            }
        }
        if mode & FALLOC_FL_KEEP_SIZE == 0 {
            file.extend(end);
        }
        self.node.touch_modified();
        Ok(())
    }
}
