//! Open files: what a descriptor leads to.

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

/// What reads and writes. One may serve many open files; the offset is theirs.
///
/// No method is called with a spin lock held, and `read`/`write` must hold none while they move
/// bytes, as user memory may fault.
pub trait File: Any + Send + Sync {
    /// Reads at `offset`, moves it on, and gives the count; 0 is the end.
    fn read(&self, _to: &mut dyn ByteSink, _offset: &mut u64, _flags: OpenFlags) -> SysResult {
        Err(Errno::EINVAL)
    }
    /// Writes at `offset` (at the end with `APPEND`), moves it on, and gives the count.
    fn write(&self, _from: &mut dyn ByteSource, _offset: &mut u64, _flags: OpenFlags) -> SysResult {
        Err(Errno::EINVAL)
    }
    /// Whether it has offsets.
    fn seekable(&self) -> bool {
        false
    }
    /// Whether an offset can be counted from its end (`SEEK_END`).
    fn has_end(&self) -> bool {
        true
    }
    /// Whether its offset is 0 wherever it is moved to.
    fn ignores_seeks(&self) -> bool {
        false
    }
    /// Whether it can be read, or written, so that nobody waits (`RWF_NOWAIT`): as with `NONBLOCK`.
    fn never_waits(&self, _writing: bool) -> bool {
        false
    }
    /// Where data (or with `hole` a hole) begins at or after `offset`; `ENXIO` beyond the end.
    fn seek_data(&self, _offset: u64, _hole: bool) -> Result<u64, Errno> {
        Err(Errno::EINVAL)
    }
    /// What it is ready for now.
    fn poll(&self) -> PollMask {
        PollMask::IN | PollMask::OUT | PollMask::RDNORM | PollMask::WRNORM
    }
    /// Who tells when that changes; `None` if it never does.
    fn notifier(&self) -> Option<Arc<Notifier>> {
        None
    }
    /// Who tells of it by signals; `None`: it is a file of which no signal tells.
    ///
    /// # Errors
    /// Nobody tells of this one.
    fn signals(&self) -> Result<Option<Arc<Notifier>>, Errno> {
        Ok(None)
    }
    /// Whom signals tell where nobody was named: of a terminal.
    fn usual_owner(&self) -> Option<(Kind, Arc<dyn Recipient>)> {
        None
    }
    /// A device-specific call.
    fn ioctl(&self, _command: u32, _argument: u64) -> SysResult {
        Err(Errno::ENOTTY)
    }
    /// Its pages, if it can be mapped.
    fn page_source(&self) -> Option<Arc<dyn PageSource>> {
        None
    }
    /// Its pages for a shared mapping, `writable` if the descriptor is.
    fn shared_page_source(&self, _writable: bool) -> Option<Arc<dyn PageSource>> {
        self.page_source()
    }
    /// Whether no mapping may ever be stored to so that others see it.
    fn maps_read_only(&self) -> bool {
        false
    }
    /// What a mapping of it keeps besides its pages, so that it counts as open.
    fn hold(&self) -> Option<Hold> {
        None
    }
    /// Its length where the node does not tell it: of a block device.
    fn size(&self) -> Option<u64> {
        None
    }
    /// Makes stable what was written (`fsync`).
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }
    /// The process that runs has closed a descriptor of it, and may have others.
    fn descriptor_closed(&self) {}
    /// An open file of it is closed for good by a task that may wait.
    fn last_close(&self) {}
    /// Whether a mapping of it is anonymous memory (`/dev/zero`).
    fn maps_zeros(&self) -> bool {
        false
    }
    /// Lists a directory from `offset` on, which moves with each entry that `emit` takes (`true`).
    fn list(
        &self,
        _offset: &mut u64,
        _emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        Err(Errno::ENOTDIR)
    }
    /// What `/proc/PID/fdinfo` says of files of this kind alone.
    fn describe(&self, _text: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }
    /// `fallocate` with Linux's mode bits.
    fn allocate(&self, _mode: u32, _offset: u64, _length: u64) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }
}

impl dyn File {
    /// The file as the kind that it is, for calls on that kind alone.
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
    /// The directory.
    pub parent: NodeRef,
    /// The name in it.
    pub name: Box<[u8]>,
}

/// An open file description: what `dup` and `fork` share.
pub struct OpenFile {
    node: NodeRef,
    file: Arc<dyn File>,
    place: Option<Place>,
    flags: AtomicU32,
    offset: AtomicU64,
    /// Held while a call uses the shared offset, so that two writers never get one place.
    moving: Mutex<()>,
    /// This open file is a running program, which nobody may write.
    forbids_writing: AtomicBool,
    /// Somebody asked for a lock that belongs to this open file.
    has_locks: AtomicBool,
    /// Keeps the file system mounted.
    hold: Option<Hold>,
    /// Whom signals tell of it, once somebody has asked.
    owner: Once<Arc<Owner>>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.forget_owner();
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

/// What an `O_PATH` descriptor leads to: nothing can be done with it.
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
    /// Opens `node`, which was found at `place`.
    pub fn open(node: NodeRef, place: Option<Place>, flags: OpenFlags) -> Result<Arc<Self>, Errno> {
        // First: what is open to be written keeps its mount from becoming read-only.
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

    /// An open file of parts that the caller made.
    pub fn new(
        node: NodeRef,
        file: Arc<dyn File>,
        place: Option<Place>,
        flags: OpenFlags,
    ) -> Arc<Self> {
        let hold = node.hold();
        Self::with_hold(node, file, place, flags, hold)
    }

    /// An open file of parts that the caller made, with the use of its mount that it has.
    #[inline]
    pub(super) fn with_hold(
        node: NodeRef,
        file: Arc<dyn File>,
        place: Option<Place>,
        flags: OpenFlags,
        hold: Option<Hold>,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            file,
            place,
            flags: AtomicU32::new((flags - OpenFlags::OPENING).bits()),
            offset: AtomicU64::new(0),
            moving: Mutex::new(()),
            forbids_writing: AtomicBool::new(false),
            has_locks: AtomicBool::new(false),
            hold,
            owner: Once::new(),
        })
    }

    /// Keeps everybody from writing the file as long as this open file lasts: it is the program of
    /// a process. `ETXTBSY` if somebody has it open for writing.
    pub fn forbid_writing(&self) -> Result<(), Errno> {
        // Relaxed: set by exec before anybody else knows the open file.
        if !self.forbids_writing.load(Ordering::Relaxed) {
            self.node.forbid_writing()?;
            self.forbids_writing.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes that locks of this open file are to be released at its end.
    pub(super) fn note_locks(&self) {
        // Relaxed: read when nobody else has the open file any more.
        self.has_locks.store(true, Ordering::Relaxed);
    }

    /// The node.
    #[inline]
    pub fn node(&self) -> &NodeRef {
        &self.node
    }

    /// What reads and writes.
    #[inline]
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The name under which it was opened.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// What `stat` tells.
    pub fn metadata(&self) -> Metadata {
        self.node.metadata()
    }

    /// What a mapping of it keeps while it exists: as on Linux the file is open until then.
    pub fn hold_for_mapping(&self) -> Option<Hold> {
        let uses = [self.hold.clone(), self.file.hold()];
        match uses {
            [None, None] => None,
            both => Some(Arc::new(both)),
        }
    }

    /// Flags.
    #[inline]
    pub fn flags(&self) -> OpenFlags {
        // Relaxed: a flag orders nothing else.
        OpenFlags::from_bits_truncate(self.flags.load(Ordering::Relaxed))
    }

    /// `F_SETFL`: takes the changeable ones of `flags`.
    pub fn set_flags(&self, flags: OpenFlags) {
        let new = (flags & OpenFlags::CHANGEABLE).bits();
        let change = |old: u32| Some(old & !OpenFlags::CHANGEABLE.bits() | new);
        // Relaxed, as in `flags`. The result is that there was one.
        let _ = self
            .flags
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Whom signals tell of it, if somebody has asked.
    pub fn known_owner(&self) -> Option<&Arc<Owner>> {
        self.owner.get()
    }

    /// Whom signals tell of it.
    fn owner(&self) -> &Arc<Owner> {
        if let Some(owner) = self.owner.get() {
            return owner;
        }
        let fresh = Arc::new(Owner::default());
        self.owner.get_or_init(|| fresh)
    }

    /// Whom signals tell of it, to be changed.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn prepare_owner(&self) -> Result<&Arc<Owner>, Errno> {
        let owner = self.owner();
        if self.node.kind() == FileKind::Socket
            && !self.flags().contains(OpenFlags::ASYNC)
            && let Some(notifier) = self.file.signals()?
        {
            // Urgent bytes are told of whether the others are or not.
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

    /// Has signals tell of it (`O_ASYNC`) to descriptor `fd`, or not; says whether files of this kind
    /// can. `users` are those of the caller.
    ///
    /// # Errors
    /// `ENOMEM`; those of [`File::signals`].
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

    /// The offset of the next `read` or `write`.
    #[inline]
    pub fn offset(&self) -> u64 {
        // Relaxed: `moving` orders its users.
        self.offset.load(Ordering::Relaxed)
    }

    /// Runs `call` with the shared offset, alone; gives files without offsets a throw-away one.
    #[inline]
    pub fn with_offset<R>(&self, call: impl FnOnce(&mut u64) -> R) -> R {
        if !self.file.seekable() {
            return call(&mut 0);
        }
        let _alone = self.moving.lock();
        let mut offset = self.offset();
        let result = call(&mut offset);
        self.offset.store(offset, Ordering::Relaxed);
        result
    }

    /// `read` at the shared offset.
    pub fn read(&self, to: &mut dyn ByteSink) -> SysResult {
        self.read_as(None, to, OpenFlags::empty())
    }

    /// `write` at the shared offset.
    pub fn write(&self, from: &mut dyn ByteSource) -> SysResult {
        self.write_as(None, from, OpenFlags::empty())
    }

    /// `pread`.
    pub fn read_at(&self, offset: u64, to: &mut dyn ByteSink) -> SysResult {
        self.read_as(Some(offset), to, OpenFlags::empty())
    }

    /// `pwrite`; like Linux it appends with `O_APPEND`, whatever the offset.
    pub fn write_at(&self, offset: u64, from: &mut dyn ByteSource) -> SysResult {
        self.write_as(Some(offset), from, OpenFlags::empty())
    }

    /// Reads at an offset, or at the shared one, as if the file had been opened with `more` flags.
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

    /// Writes likewise.
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
        if !self.file.seekable() {
            return Err(Errno::ESPIPE);
        }
        call(&mut offset)
    }

    #[cold]
    fn tell_moved(&self, moved: &SysResult, events: Events) {
        // As on Linux nobody is told of what goes through a FIFO.
        if moved.is_ok_and(|count| count > 0) && self.node.kind() != FileKind::Fifo {
            self.tell(events);
        }
    }

    /// Tells those who watch the file, or the directory that it was opened in.
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

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.node.kind() == FileKind::Directory
    }

    /// Gives a descriptor's reference up. If it is the last one to a deleted file, the memory goes
    /// in small steps; without this call all goes at once.
    pub fn close(self: Arc<Self>) {
        self.file.descriptor_closed();
        /// The node is known to the open file, to its `File` and to us.
        const HOLDERS: usize = 3;
        if Arc::strong_count(&self) != 1 {
            return;
        }
        self.file.last_close();
        self.node.clone().release_if_last(HOLDERS);
    }
}

/// Fills `buffer` from `position` of a regular file; for exec.
///
/// # Errors
/// `ENOEXEC` when the file ends before.
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
