//! Open files: the objects that descriptors refer to.

use super::flags::{FileKind, OpenFlags};
use super::io::{ByteSink, ByteSource, SliceSink, check_range};
use super::locks;
use super::node::{DirEntry, Hold, Metadata, NodeRef};
use super::owner::{Kind, Owner, Recipient, Sides};
use super::poll::{Notifier, PollMask};
use super::watch::{self, Events};
use crate::vm::PageSource;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use logic::errno::{Errno, SysResult};
use machine::sync::{Mutex, Once};

/// What a seek does to the offset of an open file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Seeks {
    /// The file has no offsets.
    Never,
    /// The seek sets the offset.
    Anywhere,
    /// The seek sets the offset to 0, whatever it asks for.
    ToStart,
}

/// The object behind an open file, which reads and writes. One object may serve many open files;
/// each open file has its own offset.
///
/// No method is called with a spin lock held. `read` and `write` must hold no spin lock while they
/// move bytes, because an access to user memory may fault.
pub trait File: Any + Send + Sync {
    /// Reads at `offset` and advances `offset`. Returns the number of bytes read; 0 is the end.
    /// Fails with `EINVAL` if files of this kind cannot be read, and as `read(2)`.
    fn read(&self, _to: &mut dyn ByteSink, _offset: &mut u64, _flags: OpenFlags) -> SysResult {
        Err(Errno::EINVAL)
    }
    /// Writes at `offset`, or at the end with `APPEND`, and advances `offset`. Returns the number
    /// of bytes written. Fails with `EINVAL` if files of this kind cannot be written, and as
    /// `write(2)`.
    fn write(&self, _from: &mut dyn ByteSource, _offset: &mut u64, _flags: OpenFlags) -> SysResult {
        Err(Errno::EINVAL)
    }
    /// Returns what a seek does. The answer is the same for the life of the file.
    fn seeks(&self) -> Seeks {
        Seeks::Never
    }
    /// Returns whether an offset can be counted from the end of the file (`SEEK_END`).
    fn has_end(&self) -> bool {
        true
    }
    /// Returns whether files of this kind accept `RWF_NOWAIT` for reads, or for writes if `writing`
    /// is `true`. Such a call gets the flag `NONBLOCK`.
    fn never_waits(&self, _writing: bool) -> bool {
        false
    }
    /// Returns the first offset at or behind `offset` at which data begins. If `hole` is `true`,
    /// returns the first offset at which a hole begins. The end of the file counts as a hole.
    ///
    /// # Errors
    /// Fails with `ENXIO` if `offset` is at the end or behind it, or if no data follows. Fails with
    /// `EINVAL` if files of this kind know of no holes.
    fn seek_data(&self, _offset: u64, _hole: bool) -> Result<u64, Errno> {
        Err(Errno::EINVAL)
    }
    /// Returns the file's readiness now.
    fn poll(&self) -> PollMask {
        PollMask::IN | PollMask::OUT | PollMask::RDNORM | PollMask::WRNORM
    }
    /// Returns the notifier for changes of the readiness. `None` if it never changes.
    fn notifier(&self) -> Option<Arc<Notifier>> {
        None
    }
    /// Takes note that an epoll set is about to watch an open file of this file by `notifier`,
    /// which [`Self::notifier`] returned.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    fn note_watch(&self, _notifier: &Arc<Notifier>) -> Result<(), Errno> {
        Ok(())
    }
    /// Takes the open file at the address `open_file`, which ends, out of all epoll sets. The
    /// current process need not be one that put it there.
    fn leave_sets(&self, open_file: usize) {
        if let Some(notifier) = self.notifier() {
            notifier.release(open_file);
        }
    }
    /// Returns the notifier whose events send signals (`O_ASYNC`). `None` if files of this kind
    /// never send signals.
    ///
    /// # Errors
    /// Fails with `EINVAL` if this file cannot send signals.
    fn signals(&self) -> Result<Option<Arc<Notifier>>, Errno> {
        Ok(None)
    }
    /// Returns the recipient of signals until a program names one, and the kind of the recipient.
    /// Returns `None` if the file is no terminal.
    fn usual_owner(&self) -> Option<(Kind, Arc<dyn Recipient>)> {
        None
    }
    /// Carries out a device-specific call (`ioctl(2)`). Returns the result of the call.
    ///
    /// # Errors
    /// Fails with `ENOTTY` if files of this kind have no such call.
    fn ioctl(&self, _command: u32, _argument: u64) -> SysResult {
        Err(Errno::ENOTTY)
    }
    /// Returns the pages of the file, or `None` if it cannot be mapped.
    fn page_source(&self) -> Option<Arc<dyn PageSource>> {
        None
    }
    /// Returns the pages for a shared mapping, or `None` if the file cannot be mapped. `writable`
    /// says whether the descriptor is writable.
    fn shared_page_source(&self, _writable: bool) -> Option<Arc<dyn PageSource>> {
        self.page_source()
    }
    /// Returns whether stores through a shared mapping are never allowed.
    fn maps_read_only(&self) -> bool {
        false
    }
    /// Returns an object that a mapping of the file keeps besides its pages, so that the file
    /// counts as open. Returns `None` if the pages are enough.
    fn hold(&self) -> Option<Hold> {
        None
    }
    /// Returns the length in bytes if the node does not know it, as for a block device. Returns
    /// `None` if the node's metadata has the length.
    fn size(&self) -> Option<u64> {
        None
    }
    /// Writes the data of the file to stable storage (`fsync`).
    ///
    /// # Errors
    /// Fails with the error of the device, or of an earlier write that has not been reported to
    /// this open file.
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// Handles the close of a descriptor of the file by the current process. The process may have
    /// other descriptors of the file.
    fn descriptor_closed(&self) {}
    /// Handles the last close of an open file of this file, in a task that may wait.
    fn last_close(&self) {}
    /// Returns whether a mapping of the file is anonymous memory (`/dev/zero`).
    fn maps_zeros(&self) -> bool {
        false
    }
    /// Lists a directory from `offset` on. `offset` advances with each entry for which `emit`
    /// returns `true`. Fails with `ENOTDIR` if this is no directory.
    fn list(
        &self,
        _offset: &mut u64,
        _emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        Err(Errno::ENOTDIR)
    }
    /// Writes the lines of `/proc/PID/fdinfo` that only files of this kind have.
    fn describe(&self, _text: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }
    /// Allocates or frees the bytes at `offset`, `length` in number, as Linux's mode bits in `mode`
    /// say (`fallocate(2)`).
    ///
    /// # Errors
    /// Fails with `ENODEV` if files of this kind have no memory to allocate, and as `fallocate(2)`.
    fn allocate(&self, _mode: u32, _offset: u64, _length: u64) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }
}

impl dyn File {
    /// Returns the file as a `T`, or `None` if it has another type.
    pub fn downcast<T: File>(&self) -> Option<&T> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

impl fmt::Debug for dyn File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("File")
    }
}

/// The name under which a file was opened.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory that contained the file when it was opened.
    pub parent: NodeRef,
    /// The name of the file in `parent`.
    pub name: Box<[u8]>,
}

/// An open file description, which `dup` and `fork` share.
pub struct OpenFile {
    node: NodeRef,
    file: Arc<dyn File>,
    place: Option<Place>,
    flags: AtomicU32,
    offset: AtomicU64,
    /// The result of [`File::seeks`] for `file`, which never changes.
    seeks: Seeks,
    /// Held while a call uses the shared offset, so that two writers never write to the same place.
    moving: Mutex<()>,
    /// Whether this open file is a running program, so that no task may write the file.
    forbids_writing: AtomicBool,
    /// Whether a lock that this open file owns (`F_OFD_SETLK`, `flock`) was requested. The drop
    /// then releases its locks.
    has_locks: AtomicBool,
    /// Whether the open file was added to an epoll set.
    was_in_set: AtomicBool,
    /// A use of the mount, which keeps the file system mounted. `None` if the mount counts no uses.
    hold: Option<Hold>,
    /// The recipient of the file's signals and its settings (`F_SETOWN`). Empty until a call needs
    /// them.
    owner: Once<Arc<Owner>>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.forget_owner();
        if *self.was_in_set.get_mut() {
            self.file.leave_sets(core::ptr::from_ref(self).addr());
        }
        if *self.has_locks.get_mut() {
            locks::release_description(self);
        }
        if *self.forbids_writing.get_mut() {
            self.node.permit_writing();
        }
        if watch::active() {
            self.tell(if self.flags().writable() {
                Events::CLOSE_WRITE
            } else {
                Events::CLOSE_NOWRITE
            });
        }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile")
            .field("node", &self.node)
            .field("flags", &self.flags())
            .finish()
    }
}

/// The file of an `O_PATH` descriptor, which refuses reads, writes and all other calls.
struct PathOnly;

impl File for PathOnly {
    fn read(&self, _: &mut dyn ByteSink, _: &mut u64, _: OpenFlags) -> SysResult {
        Err(Errno::EBADF)
    }
    fn write(&self, _: &mut dyn ByteSource, _: &mut u64, _: OpenFlags) -> SysResult {
        Err(Errno::EBADF)
    }
    fn poll(&self) -> PollMask {
        PollMask::NVAL
    }
    fn ioctl(&self, _: u32, _: u64) -> SysResult {
        Err(Errno::EBADF)
    }
    fn list(&self, _: &mut u64, _: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<(), Errno> {
        Err(Errno::EBADF)
    }
}

impl OpenFile {
    /// Opens `node`, which was found at `place`, and returns the open file.
    ///
    /// # Errors
    /// Fails with `EROFS` if `flags` ask to write and a bind mount is read-only, and with the
    /// errors of the node's own `open`.
    pub fn open(node: NodeRef, place: Option<Place>, flags: OpenFlags) -> Result<Arc<Self>, Errno> {
        // The hold comes first: a file that is open for writing keeps its mount from becoming
        // read-only.
        let hold = match node.inner() {
            None => node.hold(),
            Some(_) => node.hold_open(flags)?,
        };
        let file = if flags.contains(OpenFlags::PATH) {
            Arc::new(PathOnly) as Arc<dyn File>
        } else {
            node.clone().open(flags)?
        };
        Ok(Self::with_hold(node, file, place, flags, hold))
    }

    /// Returns a new open file of `node` that reads and writes through `file`. `place` is the name
    /// under which the node was found.
    pub fn new(
        node: NodeRef,
        file: Arc<dyn File>,
        place: Option<Place>,
        flags: OpenFlags,
    ) -> Arc<Self> {
        let hold = node.hold();
        Self::with_hold(node, file, place, flags, hold)
    }

    /// Returns a new open file as [`Self::new`] does, with the use `hold` of the mount instead of a
    /// new one.
    #[inline]
    pub(super) fn with_hold(
        node: NodeRef,
        file: Arc<dyn File>,
        place: Option<Place>,
        flags: OpenFlags,
        hold: Option<Hold>,
    ) -> Arc<Self> {
        let seeks = file.seeks();
        Arc::new(Self {
            node,
            file,
            place,
            flags: AtomicU32::new((flags - OpenFlags::OPENING).bits()),
            offset: AtomicU64::new(0),
            seeks,
            moving: Mutex::new(()),
            forbids_writing: AtomicBool::new(false),
            has_locks: AtomicBool::new(false),
            was_in_set: AtomicBool::new(false),
            hold,
            owner: Once::new(),
        })
    }

    /// Keeps every task from writing the file while this open file exists, since it is the program
    /// of a process.
    ///
    /// # Errors
    /// Fails with `ETXTBSY` if the file is open for writing.
    pub fn forbid_writing(&self) -> Result<(), Errno> {
        // Relaxed: exec sets this before another task knows the open file.
        if !self.forbids_writing.load(Ordering::Relaxed) {
            self.node.forbid_writing()?;
            self.forbids_writing.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Records that the open file may own locks, so that its drop releases them.
    pub(super) fn note_locks(&self) {
        // Relaxed: read when no other task has the open file any more.
        self.has_locks.store(true, Ordering::Relaxed);
    }

    /// Records that an epoll set may contain the open file, so that its drop removes it from all
    /// sets. Call this before a set watches the open file by `notifier`, the notifier of its file.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn note_set(&self, notifier: &Arc<Notifier>) -> Result<(), Errno> {
        // Relaxed, as in `note_locks`.
        self.was_in_set.store(true, Ordering::Relaxed);
        self.file.note_watch(notifier)
    }

    /// Returns the node of the open file.
    #[inline]
    pub fn node(&self) -> &NodeRef {
        &self.node
    }

    /// Returns the object that reads and writes.
    #[inline]
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Returns the name under which the file was opened, or `None` if it was opened without a path.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Returns the attributes that `stat` reports.
    pub fn metadata(&self) -> Metadata {
        self.node.metadata()
    }

    /// Returns a reference that a mapping of the file keeps as long as the mapping exists. Until it
    /// is dropped, the file counts as open, as on Linux. Returns `None` if neither the mount nor
    /// the file counts its uses.
    pub fn hold_for_mapping(&self) -> Option<Hold> {
        let uses = [self.hold.clone(), self.file.hold()];
        match uses {
            [None, None] => None,
            both => Some(Arc::new(both)),
        }
    }

    /// Returns the flags of the open file: those of the open, except for [`OpenFlags::OPENING`],
    /// with the changes of [`Self::set_flags`].
    #[inline]
    pub fn flags(&self) -> OpenFlags {
        // Relaxed: a flag orders no other access.
        OpenFlags::from_bits_truncate(self.flags.load(Ordering::Relaxed))
    }

    /// Changes the flags in `CHANGEABLE` to those of `flags` (`F_SETFL`).
    pub fn set_flags(&self, flags: OpenFlags) {
        let new = (flags & OpenFlags::CHANGEABLE).bits();
        let change = |old: u32| Some(old & !OpenFlags::CHANGEABLE.bits() | new);
        // Relaxed, as in `flags`. The closure never refuses, so the result is always `Ok`.
        let _ = self
            .flags
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Returns the recipient of the file's signals with its settings, or `None` if no call has
    /// created them.
    pub fn known_owner(&self) -> Option<&Arc<Owner>> {
        self.owner.get()
    }

    /// Returns the owner that signals go to, created if there is none.
    fn owner(&self) -> &Arc<Owner> {
        if let Some(owner) = self.owner.get() {
            return owner;
        }
        let fresh = Arc::new(Owner::default());
        self.owner.get_or_init(|| fresh)
    }

    /// Returns the recipient of the file's signals with its settings, for the caller to change.
    /// Creates them if there are none. From then on a socket also signals urgent bytes.
    ///
    /// # Errors
    /// Fails with `ENOMEM`, and with the errors of [`File::signals`].
    pub fn prepare_owner(&self) -> Result<&Arc<Owner>, Errno> {
        let owner = self.owner();
        if self.node.kind() == FileKind::Socket
            && !self.flags().contains(OpenFlags::ASYNC)
            && let Some(notifier) = self.file.signals()?
        {
            // Urgent bytes are reported with and without `O_ASYNC`.
            notifier.owners().include(owner, self.sides())?;
        }
        Ok(owner)
    }

    fn sides(&self) -> Sides {
        let one_way = self.node.kind() == FileKind::Fifo;
        Sides {
            reads: !one_way || self.flags().readable(),
            writes: !one_way || self.flags().writable(),
        }
    }

    /// Turns signals about readiness (`O_ASYNC`) on or off. `fd` is the descriptor that the signals
    /// name. `users` are the real and the effective user of the caller. Returns `false` and changes
    /// nothing if files of this kind cannot send signals.
    ///
    /// # Errors
    /// Fails with `ENOMEM`, and with the errors of [`File::signals`].
    pub fn set_async(&self, fd: i32, on: bool, users: [u32; 2]) -> Result<bool, Errno> {
        if on == self.flags().contains(OpenFlags::ASYNC) {
            return Ok(true);
        }
        let can = if on {
            self.file.signals()?
        } else {
            self.file.notifier()
        };
        let Some(notifier) = can else {
            return Ok(false);
        };
        let owner = self.owner();
        let is_socket = self.node.kind() == FileKind::Socket;
        // Relaxed, as in `flags`.
        if on {
            notifier.owners().enter(owner, self.sides(), Some(fd))?;
            self.flags
                .fetch_or(OpenFlags::ASYNC.bits(), Ordering::Relaxed);
            if let Some((kind, usual)) = self.file.usual_owner()
                && !owner.is_named()
            {
                owner.name(kind, Some(usual), users);
            }
        } else {
            if is_socket {
                notifier.owners().enter(owner, self.sides(), None)?;
            } else {
                notifier.owners().leave(owner);
            }
            self.flags
                .fetch_and(!OpenFlags::ASYNC.bits(), Ordering::Relaxed);
        }
        Ok(true)
    }

    fn forget_owner(&mut self) {
        if let Some(owner) = self.owner.get()
            && let Some(notifier) = self.file.notifier()
        {
            notifier.owners().leave(owner);
        }
    }

    /// Returns the offset of the next `read` or `write`.
    #[inline]
    pub fn offset(&self) -> u64 {
        // Relaxed: `moving` orders the calls that use the offset.
        self.offset.load(Ordering::Relaxed)
    }

    /// Returns the effect that a seek has on the offset.
    #[inline]
    pub fn seeks(&self) -> Seeks {
        self.seeks
    }

    /// Returns whether the file has offsets.
    #[inline]
    pub fn is_seekable(&self) -> bool {
        self.seeks != Seeks::Never
    }

    /// Runs `call` with the shared offset, which `call` may change. Only one such call runs at a
    /// time. If the file has no offsets, `call` gets a temporary one.
    #[inline]
    pub fn with_offset<R>(&self, call: impl FnOnce(&mut u64) -> R) -> R {
        let alone = self.is_seekable().then(|| self.moving.lock());
        let mut offset = if alone.is_some() { self.offset() } else { 0 };
        let result = call(&mut offset);
        if alone.is_some() {
            self.offset.store(offset, Ordering::Relaxed);
        }
        result
    }

    /// Reads at the shared offset. Returns the number of bytes read.
    ///
    /// # Errors
    /// Fails with `EBADF` if the file is not open for reading, and with the errors of the file.
    pub fn read(&self, to: &mut dyn ByteSink) -> SysResult {
        self.read_as(None, to, OpenFlags::empty())
    }

    /// Writes at the shared offset. Returns the number of bytes written.
    ///
    /// # Errors
    /// Fails with `EBADF` if the file is not open for writing, and with the errors of the file.
    pub fn write(&self, from: &mut dyn ByteSource) -> SysResult {
        self.write_as(None, from, OpenFlags::empty())
    }

    /// Reads at `offset` (`pread(2)`). Returns the number of bytes read.
    ///
    /// # Errors
    /// Fails with `EBADF` if the file is not open for reading, with `ESPIPE` if it has no offsets,
    /// and with the errors of the file.
    pub fn read_at(&self, offset: u64, to: &mut dyn ByteSink) -> SysResult {
        self.read_as(Some(offset), to, OpenFlags::empty())
    }

    /// Writes at `offset` (`pwrite(2)`). As on Linux it appends with `O_APPEND`, regardless of
    /// `offset`. Returns the number of bytes written.
    ///
    /// # Errors
    /// Fails with `EBADF` if the file is not open for writing, with `ESPIPE` if it has no offsets,
    /// and with the errors of the file.
    pub fn write_at(&self, offset: u64, from: &mut dyn ByteSource) -> SysResult {
        self.write_as(Some(offset), from, OpenFlags::empty())
    }

    /// Reads at `offset`, or at the shared offset if that is `None`, with `more` added to the open
    /// flags. Returns the number of bytes read.
    ///
    /// # Errors
    /// Fails with `EBADF` if the file is not open for reading, with `ESPIPE` if `offset` is given
    /// and the file has no offsets, and with `EINVAL` if the range exceeds the largest offset.
    /// Otherwise fails with the errors of the file.
    #[inline(never)]
    pub fn read_as(
        &self,
        offset: Option<u64>,
        to: &mut dyn ByteSink,
        more: OpenFlags,
    ) -> SysResult {
        let flags = self.flags();
        if !flags.readable() {
            return Err(Errno::EBADF);
        }
        let read = |offset: &mut u64| {
            check_range(*offset, to.room())?;
            self.file.read(to, offset, flags | more)
        };
        let moved = self.at_offset(offset, read);
        if watch::active() {
            self.tell_moved(&moved, Events::ACCESS);
        }
        moved
    }

    /// Writes at `offset`, or at the shared offset if that is `None`, with `more` added to the open
    /// flags. Returns the number of bytes written.
    ///
    /// # Errors
    /// Fails with `EBADF` if the file is not open for writing, with `ESPIPE` if `offset` is given
    /// and the file has no offsets, and with `EINVAL` if the range exceeds the largest offset.
    /// Otherwise fails with the errors of the file.
    #[inline(never)]
    pub fn write_as(
        &self,
        offset: Option<u64>,
        from: &mut dyn ByteSource,
        more: OpenFlags,
    ) -> SysResult {
        let flags = self.flags();
        if !flags.writable() {
            return Err(Errno::EBADF);
        }
        let write = |offset: &mut u64| {
            check_range(*offset, from.left())?;
            self.file.write(from, offset, flags | more)
        };
        let moved = self.at_offset(offset, write);
        if watch::active() {
            self.tell_moved(&moved, Events::MODIFY);
        }
        moved
    }

    #[inline]
    fn at_offset(
        &self,
        offset: Option<u64>,
        call: impl FnOnce(&mut u64) -> SysResult,
    ) -> SysResult {
        let Some(mut offset) = offset else {
            return self.with_offset(call);
        };
        if !self.is_seekable() {
            return Err(Errno::ESPIPE);
        }
        call(&mut offset)
    }

    #[cold]
    fn tell_moved(&self, moved: &SysResult, events: Events) {
        // As on Linux, reads and writes of a FIFO are no events.
        if moved.is_ok_and(|count| count > 0) && self.node.kind() != FileKind::Fifo {
            self.tell(events);
        }
    }

    /// Reports `events` to the watches (inotify) of the file and of the directory that it was
    /// opened in.
    #[inline]
    pub fn tell(&self, events: Events) {
        if watch::active() {
            self.tell_watches(events);
        }
    }

    #[cold]
    fn tell_watches(&self, events: Events) {
        if !self.flags().contains(OpenFlags::PATH) {
            let place = self.place.as_ref().map(|at| (&at.parent, &*at.name));
            watch::tell_both(&self.node, place, events, true);
        }
    }

    /// Returns whether the file is a directory.
    pub fn is_directory(&self) -> bool {
        self.node.kind() == FileKind::Directory
    }

    /// Drops the reference of a descriptor. If it is the last reference to a deleted file, the
    /// memory is freed in small steps. Without this call it would all be freed at once.
    pub fn close(self: Arc<Self>) {
        self.file.descriptor_closed();
        /// The references to the node: those of the open file, of its `File` and of this function.
        const HOLDERS: usize = 3;
        if Arc::strong_count(&self) != 1 {
            return;
        }
        self.file.last_close();
        self.node.clone().release_if_last(HOLDERS);
    }
}

/// Fills `buffer` from `position` of a regular file, for exec.
///
/// # Errors
/// Fails with `ENOEXEC` if the file ends first, and with the errors of the file.
pub fn read_exact_at(file: &OpenFile, position: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    let wanted = buffer.len();
    let mut sink = SliceSink::new(buffer);
    let mut offset = position;
    while sink.room() > 0 {
        if file.file().read(&mut sink, &mut offset, file.flags())? == 0 {
            return Err(Errno::ENOEXEC);
        }
    }
    debug_assert!(offset == position + wanted as u64);
    file.tell(Events::ACCESS);
    Ok(())
}
