//! What a file system is that can be mounted, besides its files: whether it may be written, who uses
//! it, and what its type is.
//!
//! A file system is mounted as itself in one place at most, and Linux's flags of that mount and of
//! the file system are one. A bind mount has a [`Volume`] of its own, with the flags of the mount.

use super::devices;
use super::node::{Hold, NodeRef};
use super::text::Text;
use super::watch;
use alloc::sync::{Arc, Weak};
use bitflags::bitflags;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use linux_raw_sys::general as abi;
use logic::errno::Errno;
use machine::sync::Once;

bitflags! {
    /// How a file system is mounted: `MS_*` bits of `mount(2)`.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct MountFlags: u32 {
        /// Nothing in it changes.
        const READ_ONLY = abi::MS_RDONLY;
        /// Set-id bits mean nothing, as they do nowhere here.
        const NO_SET_ID = abi::MS_NOSUID;
        /// Device nodes in it cannot be opened.
        const NO_DEVICES = abi::MS_NODEV;
        /// Its files are not executed.
        const NO_EXECUTION = abi::MS_NOEXEC;
        /// Writes are stable when they return; memory has nothing to wait for.
        const SYNCHRONOUS = abi::MS_SYNCHRONOUS;
        /// The same of changes to directories.
        const SYNCHRONOUS_NAMES = abi::MS_DIRSYNC;
        /// Reading leaves access times alone.
        const NO_ACCESS_TIMES = abi::MS_NOATIME;
        /// The same of directories, whose access times are never changed here.
        const NO_LISTING_TIMES = abi::MS_NODIRATIME;
        /// Reading sets access times only where they are old.
        const RELATIVE_TIMES = abi::MS_RELATIME;
    }
}

impl MountFlags {
    /// Those that say how access times go.
    pub const TIMES: Self = Self::NO_ACCESS_TIMES
        .union(Self::NO_LISTING_TIMES)
        .union(Self::RELATIVE_TIMES);
    /// Those that a bind mount has itself.
    pub const OF_MOUNT: Self = Self::TIMES
        .union(Self::READ_ONLY)
        .union(Self::NO_SET_ID)
        .union(Self::NO_DEVICES)
        .union(Self::NO_EXECUTION);
    /// Those of a file system, wherever it is seen.
    pub const OF_FILE_SYSTEM: Self = Self::READ_ONLY
        .union(Self::SYNCHRONOUS)
        .union(Self::SYNCHRONOUS_NAMES);
}

/// What uses are of.
enum Mounted {
    /// A file system.
    Itself,
    /// A bind mount, with its use of the file system that it shows, if that counts uses.
    Bind(Option<Arc<Uses>>),
}

/// What is left to do when nobody uses what was mounted.
pub(super) enum Leftover {
    /// The tree below this root directory is to be freed.
    Tree(NodeRef),
    /// This was used.
    Beneath(Arc<Uses>),
    /// Nothing.
    Nothing,
}

/// Who uses a mounted file system, or a bind mount: each use has a reference. Keeps the tree, as
/// long as there are any.
pub(super) struct Uses {
    top: NodeRef,
    mounted: Mounted,
    /// How many of the uses are bind mounts: these do not keep it from being unmounted.
    binds: AtomicUsize,
    /// Nobody has begun to use it since somebody asked for it to be unmounted when idle.
    was_idle: AtomicBool,
}

impl Uses {
    /// The uses of the file system with this root directory.
    pub(super) fn of(top: NodeRef) -> Arc<Self> {
        Arc::new(Self {
            top,
            mounted: Mounted::Itself,
            binds: AtomicUsize::new(0),
            was_idle: AtomicBool::new(false),
        })
    }

    /// The uses of a bind mount of `root`, a node of the file system's own tree.
    pub(super) fn of_bind(root: NodeRef) -> Arc<Self> {
        let beneath = root.hold().and_then(|hold| hold.downcast::<Self>().ok());
        if let Some(beneath) = &beneath {
            // Relaxed: changed here with all mounts locked, as where it is read.
            beneath.binds.fetch_add(1, Ordering::Relaxed);
        }
        Arc::new(Self {
            top: root,
            mounted: Mounted::Bind(beneath),
            binds: AtomicUsize::new(0),
            was_idle: AtomicBool::new(false),
        })
    }

    /// Whether it has more uses than its mount, of which the caller has the reference, and bind
    /// mounts. What begins or ends meanwhile counts or does not.
    pub(super) fn is_busy(self: &Arc<Self>) -> bool {
        // A bind mount that ends is counted out before its reference goes: in between there may be
        // one use too many, never one too few. The two are read in that order.
        let binds = self.binds.load(Ordering::Acquire);
        Arc::strong_count(self) > 1 + binds
    }

    /// Whether bind mounts use it.
    pub(super) fn has_binds(&self) -> bool {
        self.binds.load(Ordering::Acquire) != 0
    }

    /// Ends the last use.
    pub(super) fn end(self) -> Leftover {
        match &self.mounted {
            Mounted::Itself => Leftover::Tree(self.top.clone()),
            Mounted::Bind(Some(beneath)) => Leftover::Beneath(beneath.clone()),
            Mounted::Bind(None) => Leftover::Nothing,
        }
    }

    /// Marks it as idle; whether it was so marked before.
    pub(super) fn mark_idle(&self) -> bool {
        // Relaxed (both): a mark of its own.
        self.was_idle.swap(true, Ordering::Relaxed)
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        if let Mounted::Bind(beneath) = &self.mounted {
            if let Some(beneath) = beneath {
                // Release: pairs with the Acquire in `is_busy`; the reference goes later.
                beneath.binds.fetch_sub(1, Ordering::Release);
            }
            return;
        }
        // Who had it in use could still begin to watch something.
        if watch::active_after_change() {
            watch::unmounted(self.top.id().device);
        }
    }
}

/// What every file system that can be mounted has, and every bind mount.
pub struct Volume {
    device: u64,
    /// [`MountFlags`].
    flags: AtomicU32,
    /// Files that are open for writing.
    writers: AtomicU32,
    /// Who uses it; empty for what stays mounted for good, of which nobody counts uses.
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
    /// One that stays mounted, with a device number from [`devices`].
    pub(super) const fn permanent(device: u64) -> Self {
        Self {
            device,
            flags: AtomicU32::new(MountFlags::RELATIVE_TIMES.bits()),
            writers: AtomicU32::new(0),
            uses: Once::new(),
        }
    }

    /// One to be mounted, with a device number of its own until it is gone.
    ///
    /// # Errors
    /// `EMFILE`: none is left.
    pub(super) fn new(flags: MountFlags) -> Result<Self, Errno> {
        let volume = Self::permanent(devices::take()?);
        volume.flags.store(flags.bits(), Ordering::Relaxed);
        Ok(volume)
    }

    /// Its device number, which is also that of its mount (`Node::mount`).
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    /// How it is mounted.
    pub(super) fn flags(&self) -> MountFlags {
        // Relaxed: who depends on more than the flags themselves is `open_writer`.
        MountFlags::from_bits_truncate(self.flags.load(Ordering::Relaxed))
    }

    /// Mounts it otherwise.
    ///
    /// # Errors
    /// `EBUSY`: it cannot become read-only while a file is open for writing.
    pub(super) fn set_flags(&self, flags: MountFlags) -> Result<(), Errno> {
        // SeqCst (both, and in `open_writer`): one who opens a file and one who forbids it both write
        // before they look, so one of them sees the other.
        let before = self.flags.swap(flags.bits(), Ordering::SeqCst);
        if flags.contains(MountFlags::READ_ONLY) && self.writers.load(Ordering::SeqCst) != 0 {
            self.flags.store(before, Ordering::SeqCst);
            return Err(Errno::EBUSY);
        }
        Ok(())
    }

    /// Whether files may change.
    ///
    /// # Errors
    /// `EROFS`.
    pub(super) fn check_writable(&self) -> Result<(), Errno> {
        if self.flags().contains(MountFlags::READ_ONLY) {
            return Err(Errno::EROFS);
        }
        Ok(())
    }

    /// Counts a file that is open for writing, until [`Self::close_writer`].
    ///
    /// # Errors
    /// `EROFS`.
    pub(super) fn open_writer(&self) -> Result<(), Errno> {
        self.writers.fetch_add(1, Ordering::SeqCst);
        if self.flags.load(Ordering::SeqCst) & MountFlags::READ_ONLY.bits() != 0 {
            self.close_writer();
            return Err(Errno::EROFS);
        }
        Ok(())
    }

    /// Takes [`Self::open_writer`] back.
    pub(super) fn close_writer(&self) {
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Has uses counted from here on: it is about to be mounted.
    pub(super) fn count_uses(&self, uses: &Arc<Uses>) {
        // Only once: a file system is mounted once.
        let _ = self.uses.set(Arc::downgrade(uses));
    }

    /// A use of it, which keeps it from being unmounted.
    pub(super) fn hold(&self) -> Option<Hold> {
        let uses = self.uses.get()?.upgrade()?;
        uses.was_idle.store(false, Ordering::Relaxed);
        Some(uses)
    }

    /// Whether it was mounted, and nobody uses it any more.
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

/// A file system that can be mounted, seen from its mount.
pub trait FileSystem: Send + Sync {
    /// What all have.
    fn volume(&self) -> &Volume;
    /// Takes the options of a mount that is changed (`MS_REMOUNT`).
    ///
    /// # Errors
    /// `EINVAL`, with nothing changed.
    fn reconfigure(&self, options: &[u8]) -> Result<(), Errno>;
    /// Writes its own options for `/proc/mounts`, each with a comma before it.
    fn show_options(&self, text: &mut Text) -> fmt::Result;
}

/// A file system and its root directory.
pub struct Made {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// Its root directory, which stands nowhere yet.
    pub top: NodeRef,
}

/// How a file system of a type comes to be.
#[derive(Copy, Clone)]
pub enum Maker {
    /// Each mount makes one, from the options of `mount -o` and the flags.
    Anew(fn(&[u8], MountFlags) -> Result<Made, Errno>),
    /// There is one, and it is mounted.
    Mounted,
    /// It is the kernel's own, and in no tree.
    Internal,
}

/// A type of file system.
#[derive(Copy, Clone)]
pub struct FileSystemType {
    /// As `mount -t` names it.
    pub name: &'static str,
    /// How one of it is made.
    pub maker: Maker,
}
