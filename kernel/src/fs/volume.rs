//! Properties of a file system that can be mounted: whether it may be written, its uses, and its
//! type.
//!
//! A file system is mounted as itself in one place at most, so Linux's flags of that mount and of
//! the file system are the same. A bind mount has its own [`Volume`] with the flags of the mount.

use super::devices;
use super::node::{Hold, NodeRef};
use super::text::Text;
use super::watch;
use alloc::sync::{Arc, Weak};
use bitflags::bitflags;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use linux_raw_sys::general as abi;
use logic::errno::Errno;
use machine::sync::Once;

bitflags! {
    /// How a file system is mounted: `MS_*` bits of `mount(2)`.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        /// Nothing in the mount can be changed.
        const READ_ONLY = abi::MS_RDONLY;
        /// Set-id bits are ignored. They have no effect in other mounts either.
        const NO_SET_ID = abi::MS_NOSUID;
        /// Device nodes in the mount cannot be opened.
        const NO_DEVICES = abi::MS_NODEV;
        /// Files in the mount cannot be executed.
        const NO_EXECUTION = abi::MS_NOEXEC;
        /// Writes are stable when they return. Memory has nothing to wait for.
        const SYNCHRONOUS = abi::MS_SYNCHRONOUS;
        /// Changes of directories are stable when they return.
        const SYNCHRONOUS_NAMES = abi::MS_DIRSYNC;
        /// Reads do not change access times.
        const NO_ACCESS_TIMES = abi::MS_NOATIME;
        /// Listings do not change the access times of directories. These never change here.
        const NO_LISTING_TIMES = abi::MS_NODIRATIME;
        /// Reads change access times only if these are old.
        const RELATIVE_TIMES = abi::MS_RELATIME;
    }
}

impl MountFlags {
    /// The flags for access times.
    pub const TIMES: Self = Self::NO_ACCESS_TIMES
        .union(Self::NO_LISTING_TIMES)
        .union(Self::RELATIVE_TIMES);
    /// The flags that each bind mount has for itself.
    pub const OF_MOUNT: Self = Self::TIMES
        .union(Self::READ_ONLY)
        .union(Self::NO_SET_ID)
        .union(Self::NO_DEVICES)
        .union(Self::NO_EXECUTION);
    /// The flags of a file system, which hold for all of its mounts.
    pub const OF_FILE_SYSTEM: Self = Self::READ_ONLY
        .union(Self::SYNCHRONOUS)
        .union(Self::SYNCHRONOUS_NAMES);
}

/// The kind of mount whose uses [`Uses`] counts.
enum Mounted {
    /// The mount of a file system.
    Itself,
    /// A bind mount, with its use of the file system that it shows, if that counts uses.
    Bind(Option<Arc<Uses>>),
}

/// The work that is left after the last use of a mount.
pub(super) enum Leftover {
    /// The tree below this root directory must be freed.
    Tree(NodeRef),
    /// This use of the file system that the bind mount showed must be ended.
    Beneath(Arc<Uses>),
    /// Nothing is left.
    Nothing,
}

/// The uses of a mounted file system or a bind mount: each use has a reference. Keeps the tree
/// while there are uses.
pub(super) struct Uses {
    top: NodeRef,
    mounted: Mounted,
    /// The number of uses that are bind mounts. These do not keep the file system from being
    /// unmounted.
    binds: AtomicUsize,
    /// Whether no use has begun since the last request to unmount it if idle.
    was_idle: AtomicBool,
}

impl Uses {
    /// Returns the uses of the file system with this root directory.
    pub(super) fn of(top: NodeRef) -> Arc<Self> {
        Arc::new(Self {
            top,
            mounted: Mounted::Itself,
            binds: AtomicUsize::new(0),
            was_idle: AtomicBool::new(false),
        })
    }

    /// Returns the uses of a bind mount of `root`, a node in the tree of its own file system.
    pub(super) fn of_bind(root: NodeRef) -> Arc<Self> {
        let beneath = root.hold().and_then(|hold| hold.downcast::<Self>().ok());
        if let Some(beneath) = &beneath {
            // Relaxed: all mounts are locked here and in `is_busy`.
            beneath.binds.fetch_add(1, Ordering::Relaxed);
        }
        Arc::new(Self {
            top: root,
            mounted: Mounted::Bind(beneath),
            binds: AtomicUsize::new(0),
            was_idle: AtomicBool::new(false),
        })
    }

    /// Returns whether there are uses other than bind mounts and the mount itself, whose reference
    /// is the caller's. A use that begins or ends during the call may or may not count.
    pub(super) fn is_busy(self: &Arc<Self>) -> bool {
        // Acquire: pairs with the Release in `drop`. A bind mount that ends subtracts itself from
        // `binds` first and drops its reference then. In between one use too many may be counted.
        let mut binds = self.binds.load(Ordering::Acquire);
        // This loop ends: bind mounts can end, but all mounts are locked, so none begins.
        loop {
            let uses = Arc::strong_count(self);
            // The count is read before `binds`.
            fence(Ordering::Acquire);
            let left = self.binds.load(Ordering::Acquire);
            if left == binds {
                return uses > 1 + binds;
            }
            // The count may lack the reference of the one that ended, but not its bind mount.
            binds = left;
        }
    }

    /// Returns whether bind mounts use the file system.
    pub(super) fn has_binds(&self) -> bool {
        self.binds.load(Ordering::Acquire) != 0
    }

    /// Ends the uses after the last one. Returns the work that is left.
    pub(super) fn end(self) -> Leftover {
        match &self.mounted {
            Mounted::Itself => Leftover::Tree(self.top.clone()),
            Mounted::Bind(Some(beneath)) => Leftover::Beneath(beneath.clone()),
            Mounted::Bind(None) => Leftover::Nothing,
        }
    }

    /// Marks the uses as idle. Returns whether they were marked before.
    pub(super) fn mark_idle(&self) -> bool {
        // Relaxed, here and in `hold`: the mark orders no other access.
        self.was_idle.swap(true, Ordering::Relaxed)
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        if let Mounted::Bind(beneath) = &self.mounted {
            if let Some(beneath) = beneath {
                // Release: pairs with the Acquire in `is_busy`. The reference is dropped later.
                beneath.binds.fetch_sub(1, Ordering::Release);
            }
            return;
        }
        // A task that used it could still begin to watch a node.
        if watch::active_after_change() {
            watch::unmounted(self.top.id().device);
        }
    }
}

/// The common part of every file system that can be mounted, and of every bind mount.
pub struct Volume {
    device: u64,
    /// Bits of [`MountFlags`].
    flags: AtomicU32,
    /// The number of files that are open for writing.
    writers: AtomicU32,
    /// The uses. Empty if the file system stays mounted for good, as no uses are counted then.
    uses: Once<Weak<Uses>>,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("device", &self.device)
            .field("flags", &self.flags())
            .finish_non_exhaustive()
    }
}

impl Volume {
    /// Returns a volume that stays mounted, with a device number from [`devices`].
    pub(super) const fn permanent(device: u64) -> Self {
        Self {
            device,
            flags: AtomicU32::new(MountFlags::RELATIVE_TIMES.bits()),
            writers: AtomicU32::new(0),
            uses: Once::new(),
        }
    }

    /// Returns a volume to be mounted, with a device number that is freed when the volume is
    /// dropped.
    ///
    /// # Errors
    /// Fails with `EMFILE` if no device number is left.
    pub(super) fn new(flags: MountFlags) -> Result<Self, Errno> {
        let volume = Self::permanent(devices::take()?);
        volume.flags.store(flags.bits(), Ordering::Relaxed);
        Ok(volume)
    }

    /// Returns the device number, which is also that of the mount (`Node::mount`).
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    /// Returns the flags of the mount.
    pub(super) fn flags(&self) -> MountFlags {
        // Relaxed: only `open_writer` depends on more than the flags themselves.
        MountFlags::from_bits_truncate(self.flags.load(Ordering::Relaxed))
    }

    /// Sets the flags of the mount to `flags`.
    ///
    /// # Errors
    /// Fails with `EBUSY` if `flags` make the mount read-only while a file is open for writing. The
    /// old flags stay then.
    pub(super) fn set_flags(&self, flags: MountFlags) -> Result<(), Errno> {
        // SeqCst, here and in `open_writer`. The task that opens a file and the task that forbids
        // writing both store before they load. So one of them sees the other.
        let before = self.flags.swap(flags.bits(), Ordering::SeqCst);
        if flags.contains(MountFlags::READ_ONLY) && self.writers.load(Ordering::SeqCst) != 0 {
            self.flags.store(before, Ordering::SeqCst);
            return Err(Errno::EBUSY);
        }
        Ok(())
    }

    /// Checks that files may change.
    ///
    /// # Errors
    /// Fails with `EROFS` if the mount is read-only.
    pub(super) fn check_writable(&self) -> Result<(), Errno> {
        if self.flags().contains(MountFlags::READ_ONLY) {
            return Err(Errno::EROFS);
        }
        Ok(())
    }

    /// Counts a file that is open for writing, until [`Self::close_writer`].
    ///
    /// # Errors
    /// Fails with `EROFS` if the mount is read-only.
    pub(super) fn open_writer(&self) -> Result<(), Errno> {
        self.writers.fetch_add(1, Ordering::SeqCst);
        if self.flags.load(Ordering::SeqCst) & MountFlags::READ_ONLY.bits() != 0 {
            self.close_writer();
            return Err(Errno::EROFS);
        }
        Ok(())
    }

    /// Ends the count of a writer that [`Self::open_writer`] began.
    pub(super) fn close_writer(&self) {
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Begins to count the uses of the volume in `uses`. The volume is about to be mounted.
    pub(super) fn count_uses(&self, uses: &Arc<Uses>) {
        // The first call counts: a file system is mounted once.
        let _ = self.uses.set(Arc::downgrade(uses));
    }

    /// Returns a use of the mount, which keeps the mount from being unmounted until it is dropped.
    /// Returns `None` if uses are not counted or the mount has ended.
    pub(super) fn hold(&self) -> Option<Hold> {
        let uses = self.uses.get()?.upgrade()?;
        uses.was_idle.store(false, Ordering::Relaxed);
        Some(uses)
    }

    /// Returns whether the file system was mounted and no use is left.
    pub(super) fn is_gone(&self) -> bool {
        let uses = self.uses.get();
        uses.is_some_and(|uses| uses.strong_count() == 0)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        devices::give_back(self.device);
    }
}

/// A file system that can be mounted, as its mount sees it.
pub trait FileSystem: Send + Sync {
    /// Returns the part with flags, device number and uses, which every file system has.
    fn volume(&self) -> &Volume;
    /// Changes the options of the file system to those in `options` (`MS_REMOUNT`).
    ///
    /// # Errors
    /// Fails with `EINVAL`. Nothing is changed then.
    fn reconfigure(&self, options: &[u8]) -> Result<(), Errno>;
    /// Writes the options of the file system for `/proc/mounts` to `text`, each with a comma before
    /// it.
    ///
    /// # Errors
    /// Fails if `text` does.
    fn show_options(&self, text: &mut Text) -> fmt::Result;
}

/// A file system and its root directory.
pub struct Made {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// Its root directory, which has no place yet.
    pub top: NodeRef,
}

/// How a file system of a type is made.
#[derive(Copy, Clone)]
pub enum Maker {
    /// Each mount makes a new file system from the options of `mount -o` and the flags.
    Anew(fn(&[u8], MountFlags) -> Result<Made, Errno>),
    /// The only file system of the type exists, and is mounted already.
    Mounted,
    /// The file system is internal to the kernel and in no tree.
    Internal,
}

/// A type of file system.
#[derive(Copy, Clone)]
pub struct FileSystemType {
    /// The name that `mount -t` takes.
    pub name: &'static str,
    /// How a file system of this type is made.
    pub maker: Maker,
}
