//! Trees of files whose text the kernel makes when they are read, such as `/proc` and `/sys`.
//!
//! A file is an [`Entry`]: a function that shows its text, and for a knob one that stores a value.
//! A new file is one line in a table. Each read at offset 0 makes the text again, so a program may
//! keep the file open and read it repeatedly. A read further on sees the rest of the same text.

use super::directory::{Listing, OpenDirectory};
use super::file::{File, Seeks};
use super::flags::{FileKind, OpenFlags};
use super::io::{ByteSink, ByteSource};
use super::knob::{Input, MOST_BYTES, Store};
use super::node::{
    AttributeChange, DirEntry, FsStats, LinkTarget, Metadata, NewNode, Node, NodeId, NodeRef,
    Timestamp, downcast,
};
use super::poll::{Notifier, PollMask};
use super::records::{RecordFile, Records};
use super::text::{Made, Text};
use super::volume::MountFlags;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::credentials::attributes::Beginning;
use logic::errno::{Errno, SysResult};
use machine::sync::{Once, SpinLock};

/// Linux's magic number of `/proc`.
pub const PROC_MAGIC: u64 = 0x9fa0;

/// The functions that show and store the content of a file.
pub trait Content: Send + Sync {
    /// Writes the file's text to `text`. Fails if `text` fails.
    fn show(&self, text: &mut Text) -> fmt::Result;
    /// Stores the text `value` that a program wrote, without white space around it.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the text is not allowed.
    fn store(&self, _value: &str) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
    /// Stores the text that a program wrote at `offset`, which advances. Returns the number of
    /// bytes that count as written.
    ///
    /// # Errors
    /// Fails with the error of [`Self::store`].
    fn write(&self, input: Input<'_>, offset: &mut u64) -> SysResult {
        if input.length == 0 {
            return Ok(0);
        }
        self.store(input.text()?)?;
        *offset += input.length as u64;
        Ok(input.length)
    }
    /// Returns whether the file can be written.
    fn writable(&self) -> bool {
        false
    }
    /// Returns whether a task that passes the permission bits may open the file for writing, even
    /// if [`Self::store`] refuses.
    fn opens_for_writing(&self) -> bool {
        self.writable()
    }
    /// Checks that the caller may open the file with the given flags, regardless of the permission
    /// bits.
    ///
    /// # Errors
    /// Fails with the error for the program if the caller may not.
    fn admits(&self, _: OpenFlags) -> Result<(), Errno> {
        Ok(())
    }
    /// Returns the permission bits.
    fn permissions(&self) -> u32 {
        if self.writable() { 0o644 } else { 0o444 }
    }
    /// Returns the user and the group that the file belongs to.
    fn owner(&self) -> [u32; 2] {
        [0; 2]
    }
    /// Returns the content that the caller gets by opening the file, or `None` if it gets this
    /// content.
    ///
    /// # Errors
    /// Fails if the caller may not open the file, regardless of the permission bits.
    fn open(&self) -> Result<Option<Arc<dyn Content>>, Errno> {
        Ok(None)
    }
    /// Returns the records if the text is made record by record, as for a text that programs can
    /// make long. [`Self::show`] shows nothing then. Returns `None` if the text is made as a whole.
    fn records(self: Arc<Self>) -> Option<Arc<dyn Records>> {
        None
    }
    /// Returns the readiness of the open file.
    fn poll(&self) -> PollMask {
        PollMask::READABLE | PollMask::WRITABLE
    }
    /// Returns whether programs may poll the file although its readiness never changes.
    fn polls(&self) -> bool {
        false
    }
    /// Returns the notifier for changes of [`Self::poll`], or `None` if it never changes.
    fn notifier(&self) -> Option<Arc<Notifier>> {
        None
    }
}

/// A function that writes a file's text.
pub type Show = fn(&mut Text) -> fmt::Result;

/// A file in a table: its path below the root of its tree, and its functions.
#[derive(Copy, Clone, Debug)]
pub struct Entry {
    /// The path, with `/` between directories.
    pub path: &'static str,
    /// Writes the text. `None` if the knob can only be written.
    pub show: Option<Show>,
    /// Stores a new value. `None` if the file can only be read.
    pub store: Option<Store>,
    /// Whether the file cannot be opened for writing, even with capabilities.
    only_read: bool,
}

impl Entry {
    /// Returns a file that can be read.
    pub const fn file(path: &'static str, show: Show) -> Self {
        Self {
            path,
            show: Some(show),
            store: None,
            only_read: false,
        }
    }

    /// Returns a file that can be read and cannot be opened for writing, such as a table of
    /// `/proc/net`.
    pub const fn table(path: &'static str, show: Show) -> Self {
        Self {
            only_read: true,
            ..Self::file(path, show)
        }
    }

    /// Returns a knob that can be read and written.
    pub const fn knob(path: &'static str, show: Show, store: Store) -> Self {
        Self {
            path,
            show: Some(show),
            store: Some(store),
            only_read: false,
        }
    }

    /// Returns a knob that acts when it is written, and cannot be read.
    pub const fn trigger(path: &'static str, store: Store) -> Self {
        Self {
            path,
            show: None,
            store: Some(store),
            only_read: false,
        }
    }
}

impl Content for Entry {
    fn show(&self, text: &mut Text) -> fmt::Result {
        match self.show {
            Some(show) => show(text),
            None => Err(text.fail(Errno::EACCES)),
        }
    }
    fn write(&self, input: Input<'_>, offset: &mut u64) -> SysResult {
        self.store.ok_or(Errno::EIO)?.write(input, offset)
    }
    fn writable(&self) -> bool {
        self.store.is_some()
    }
    fn opens_for_writing(&self) -> bool {
        // As on Linux, the files at the top of `/proc` can be opened, but not those of `/proc/sys`
        // and `/sys`.
        self.writable() || !self.only_read && !self.path.contains('/')
    }
    fn admits(&self, flags: OpenFlags) -> Result<(), Errno> {
        // As on Linux, this concerns `/proc/sys` and `/sys`.
        if flags.readable() && self.show.is_none() && self.path.contains('/') {
            return Err(Errno::EACCES);
        }
        Ok(())
    }
    fn polls(&self) -> bool {
        true
    }
    fn permissions(&self) -> u32 {
        match (self.show.is_some(), self.store.is_some()) {
            (true, true) => 0o644,
            (false, _) => 0o200,
            (true, false) => 0o444,
        }
    }
}

/// A file system of files whose text the kernel makes.
#[derive(Debug)]
pub struct Synthetic {
    device: u64,
    magic: u64,
    /// The error for creating a file.
    refusal: Errno,
    made: Timestamp,
    next_inode: AtomicU64,
}

impl Synthetic {
    /// Returns a file system with this device number and Linux's magic number of its type. Files
    /// cannot be created in it: the error is `refusal`.
    pub fn new(device: u64, magic: u64, refusal: Errno) -> Arc<Self> {
        Arc::new(Self {
            device,
            magic,
            refusal,
            made: Timestamp::now(),
            next_inode: AtomicU64::new(1),
        })
    }

    /// Returns the identity of the node with this number.
    pub fn id(&self, inode: u64) -> NodeId {
        NodeId {
            device: self.device,
            inode,
        }
    }

    /// Returns a number for a new permanent node.
    pub fn new_inode(&self) -> u64 {
        self.next_inode.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the numbers that `statfs` reports.
    pub fn stats(&self) -> FsStats {
        FsStats {
            magic: self.magic,
            blocks: 0,
            free_blocks: 0,
            files: 0,
            free_files: 0,
            flags: MountFlags::RELATIVE_TIMES.bits(),
        }
    }

    /// Returns the attributes that `stat` reports for a node that belongs to root.
    pub fn metadata(&self, inode: u64, kind: FileKind, permissions: u32) -> Metadata {
        self.metadata_of(inode, kind, permissions, [0; 2])
    }

    /// Returns the attributes that `stat` reports for a node of the user `uid` and the group `gid`.
    pub fn metadata_of(
        &self,
        inode: u64,
        kind: FileKind,
        permissions: u32,
        [uid, gid]: [u32; 2],
    ) -> Metadata {
        Metadata {
            id: self.id(inode),
            kind,
            permissions,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            size: 0,
            blocks: 0,
            accessed: self.made,
            modified: self.made,
            changed: self.made,
        }
    }
}

/// A directory of a tree that is built once.
pub struct Directory {
    fs: Arc<Synthetic>,
    inode: u64,
    parent: Option<Weak<dyn Node>>,
    name: Box<[u8]>,
    entries: SpinLock<Vec<(Box<[u8]>, NodeRef)>>,
    /// The root of the file system that is mounted here.
    covered_by: SpinLock<Option<NodeRef>>,
    this: Weak<Self>,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory")
            .field("inode", &self.inode)
            .finish_non_exhaustive()
    }
}

impl Directory {
    /// Returns an empty directory with the name `name` in `parent`.
    pub fn new(fs: &Arc<Synthetic>, parent: Option<Weak<dyn Node>>, name: &[u8]) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            fs: fs.clone(),
            inode: fs.new_inode(),
            parent,
            name: name.into(),
            entries: SpinLock::new(Vec::new()),
            covered_by: SpinLock::new(None),
            this: this.clone(),
        })
    }

    /// Returns the node of the entry `name`, or `None` if there is no such entry.
    pub fn get(&self, name: &[u8]) -> Option<NodeRef> {
        let entries = self.entries.lock();
        entries
            .iter()
            .find(|(known, _)| **known == *name)
            .map(|(_, node)| node.clone())
    }

    /// Returns the name, kind and inode number of the entry with the index `n`, or `None` if there
    /// are fewer entries.
    pub fn nth(&self, n: usize) -> Option<(Box<[u8]>, FileKind, u64)> {
        let entries = self.entries.lock();
        entries
            .get(n)
            .map(|(name, node)| (name.clone(), node.kind(), node.id().inode))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Returns the number of entries that are directories.
    pub fn subdirectory_count(&self) -> usize {
        let entries = self.entries.lock();
        let kinds = entries.iter().map(|(_, node)| node.kind());
        kinds.filter(|kind| *kind == FileKind::Directory).count()
    }

    /// Adds `node` under `name`. Only called while the tree is built.
    pub fn insert(&self, name: &[u8], node: NodeRef) {
        self.entries.lock().push((name.into(), node));
    }

    /// Returns the directory at `path` below this one, and creates the missing directories. Only
    /// called while the tree is built, for paths of the tables.
    pub fn subdirectory(self: &Arc<Self>, path: &str) -> Arc<Self> {
        let mut here = self.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = here.subdirectories_get(name.as_bytes());
            here = found.unwrap_or_else(|| {
                let above: Weak<dyn Node> = here.this.clone();
                let made = Self::new(&here.fs, Some(above), name.as_bytes());
                here.insert(name.as_bytes(), made.clone());
                made
            });
        }
        here
    }

    fn subdirectories_get(&self, name: &[u8]) -> Option<Arc<Self>> {
        downcast(self.get(name)?)
    }

    /// Adds a file at `path` below this directory.
    pub fn add(self: &Arc<Self>, path: &str, content: Arc<dyn Content>) {
        let (directory, name) = match path.rsplit_once('/') {
            Some((directory, name)) => (self.subdirectory(directory), name),
            None => (self.clone(), path),
        };
        let node = TextNode::new(&self.fs, self.fs.new_inode(), content);
        directory.insert(name.as_bytes(), node);
    }

    /// Adds all files of a table.
    pub fn add_all(self: &Arc<Self>, entries: &'static [Entry]) {
        for entry in entries {
            self.add(entry.path, Arc::new(*entry));
        }
    }

    /// Adds a symbolic link `name` to the directory. `target` returns the path that the link leads
    /// to.
    pub fn add_link(self: &Arc<Self>, name: &str, target: fn() -> Result<Vec<u8>, Errno>) {
        let node = LinkNode::new(&self.fs, self.fs.new_inode(), target);
        self.insert(name.as_bytes(), node);
    }
}

impl Node for Directory {
    fn id(&self) -> NodeId {
        self.fs.id(self.inode)
    }
    fn kind(&self) -> FileKind {
        FileKind::Directory
    }
    fn metadata(&self) -> Metadata {
        let metadata = self.fs.metadata(self.inode, FileKind::Directory, 0o555);
        Metadata {
            links: metadata.links + u32::try_from(self.subdirectory_count()).unwrap_or(0),
            ..metadata
        }
    }
    fn fs_stats(&self) -> FsStats {
        self.fs.stats()
    }
    fn open(self: Arc<Self>, _: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        Ok(Arc::new(OpenDirectory(self)))
    }
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        self.get(name).ok_or(Errno::ENOENT)
    }
    fn create(&self, _: &[u8], _: NewNode<'_>, _: Beginning) -> Result<NodeRef, Errno> {
        Err(self.fs.refusal)
    }
    fn parent(&self) -> Option<NodeRef> {
        self.parent.as_ref()?.upgrade()
    }
    fn name(&self) -> Box<[u8]> {
        self.name.clone()
    }
    fn keeps_entries(&self) -> bool {
        true
    }
    fn covered_by(&self) -> Option<NodeRef> {
        self.covered_by.lock().clone()
    }
    fn cover(&self, top: Option<NodeRef>) -> Result<(), Errno> {
        let old = core::mem::replace(&mut *self.covered_by.lock(), top);
        drop(old);
        Ok(())
    }
}

/// The first offset of the entries in a listing. Offsets 0 and 1 are `.` and `..`.
pub const FIRST: u64 = 2;

/// Lists the entries of `directory` from `offset` on. Returns `false` once `emit` returned `false`.
pub fn list_entries(
    directory: &Directory,
    offset: &mut u64,
    emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
) -> bool {
    loop {
        let n = usize::try_from(offset.saturating_sub(FIRST)).unwrap_or(usize::MAX);
        let Some((name, kind, inode)) = directory.nth(n) else {
            return true;
        };
        if !emit(&DirEntry {
            name: &name,
            inode,
            kind,
            next: *offset + 1,
        }) {
            return false;
        }
        *offset += 1;
    }
}

impl Listing for Directory {
    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        if super::node::list_dots(self, offset, emit) {
            list_entries(self, offset, emit);
        }
        Ok(())
    }
}

/// The target of a symbolic link.
pub trait Target: Send + Sync + 'static {
    /// Returns the present target. Fails if there is none.
    fn target(&self) -> Result<LinkTarget, Errno>;
    /// Returns the permission bits.
    fn permissions(&self) -> u32 {
        0o777
    }
    /// Returns the user and the group that the link belongs to.
    fn owner(&self) -> [u32; 2] {
        [0; 2]
    }
    /// The size that `stat` reports.
    const SIZE: u64 = 0;
}

impl Target for fn() -> Result<Vec<u8>, Errno> {
    fn target(&self) -> Result<LinkTarget, Errno> {
        self().map(LinkTarget::Path)
    }
}

/// A symbolic link whose target is looked up when it is followed.
#[derive(Debug)]
pub struct LinkNode<T> {
    fs: Arc<Synthetic>,
    inode: u64,
    target: T,
}

impl<T: Target> LinkNode<T> {
    /// Returns a link to `target`.
    pub fn new(fs: &Arc<Synthetic>, inode: u64, target: T) -> Arc<Self> {
        Arc::new(Self {
            fs: fs.clone(),
            inode,
            target,
        })
    }
}

impl<T: Target> Node for LinkNode<T> {
    fn id(&self) -> NodeId {
        self.fs.id(self.inode)
    }
    fn kind(&self) -> FileKind {
        FileKind::Symlink
    }
    fn metadata(&self) -> Metadata {
        let permissions = self.target.permissions();
        let owner = self.target.owner();
        let metadata = self
            .fs
            .metadata_of(self.inode, FileKind::Symlink, permissions, owner);
        Metadata {
            size: T::SIZE,
            ..metadata
        }
    }
    fn fs_stats(&self) -> FsStats {
        self.fs.stats()
    }
    fn open(self: Arc<Self>, _: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        Err(Errno::ELOOP)
    }
    fn link_target(&self) -> Result<LinkTarget, Errno> {
        self.target.target()
    }
}

/// A file whose text the kernel makes.
pub struct TextNode {
    fs: Arc<Synthetic>,
    inode: u64,
    content: Arc<dyn Content>,
}

impl fmt::Debug for TextNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextNode")
            .field("inode", &self.inode)
            .finish_non_exhaustive()
    }
}

impl TextNode {
    /// Returns a file that shows `content`.
    pub fn new(fs: &Arc<Synthetic>, inode: u64, content: Arc<dyn Content>) -> Arc<Self> {
        Arc::new(Self {
            fs: fs.clone(),
            inode,
            content,
        })
    }
}

impl Node for TextNode {
    fn id(&self) -> NodeId {
        self.fs.id(self.inode)
    }
    fn kind(&self) -> FileKind {
        FileKind::Regular
    }
    fn metadata(&self) -> Metadata {
        self.fs.metadata_of(
            self.inode,
            FileKind::Regular,
            self.content.permissions(),
            self.content.owner(),
        )
    }
    fn fs_stats(&self) -> FsStats {
        self.fs.stats()
    }
    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        if flags.writable() && !self.content.opens_for_writing() {
            return Err(Errno::EACCES);
        }
        self.content.admits(flags)?;
        let opened = self.content.open()?;
        let content = opened.unwrap_or_else(|| self.content.clone());
        if let Some(records) = content.clone().records() {
            return Ok(Arc::new(RecordFile::new(records)));
        }
        Ok(Arc::new(TextFile {
            has_end: content.writable() || self.fs.stats().magic != PROC_MAGIC,
            content,
            shown: SpinLock::new(None),
            quiet: Once::new(),
        }))
    }
    fn change(&self, change: &AttributeChange) -> Result<(), Errno> {
        // `touch` and `chmod` succeed on a knob, and nothing is stored.
        if self.content.writable() && change.uid.is_none() && change.gid.is_none() {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }
    fn set_size(&self, _: u64) -> Result<(), Errno> {
        // `echo 1 > knob` opens the knob with `O_TRUNC`.
        if self.content.writable() {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }
}

struct TextFile {
    content: Arc<dyn Content>,
    /// The text as of the last read at offset 0.
    shown: SpinLock<Option<Arc<Made>>>,
    /// A notifier without events, for polls of a file that never changes.
    quiet: Once<Arc<Notifier>>,
    /// Whether offsets may be counted from the end. On Linux the read-only files of `/proc` have no
    /// end.
    has_end: bool,
}

impl TextFile {
    fn make(&self) -> Result<Arc<Made>, Errno> {
        let mut text = Text::new();
        let written = self.content.show(&mut text);
        let made = Arc::new(text.finish(written)?);
        let old = self.shown.lock().replace(made.clone());
        drop(old);
        Ok(made)
    }
}

impl File for TextFile {
    fn has_end(&self) -> bool {
        self.has_end
    }

    fn read(&self, to: &mut dyn ByteSink, offset: &mut u64, _: OpenFlags) -> SysResult {
        let shown = if *offset == 0 {
            None
        } else {
            self.shown.lock().clone()
        };
        let text = match shown {
            Some(text) => text,
            None => self.make()?,
        };
        let mut done = 0;
        // One turn for each chunk.
        loop {
            let rest = text.from(usize::try_from(*offset).unwrap_or(usize::MAX));
            if rest.is_empty() {
                return Ok(done);
            }
            let moved = match to.put(rest) {
                Ok(moved) => moved,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            };
            done += moved;
            *offset += moved as u64;
            if moved < rest.len() || to.room() == 0 {
                return Ok(done);
            }
            machine::sched::cond_resched();
        }
    }

    fn write(&self, from: &mut dyn ByteSource, offset: &mut u64, _: OpenFlags) -> SysResult {
        let length = from.left();
        let mut bytes = Vec::new();
        let read = length.min(MOST_BYTES);
        bytes.try_reserve_exact(read).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(read, 0);
        if read != 0 && from.take(&mut bytes)? < read {
            return Err(Errno::EFAULT);
        }
        let input = Input {
            bytes: &bytes,
            length,
        };
        self.content.write(input, offset)
    }

    fn poll(&self) -> PollMask {
        self.content.poll()
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        if let Some(notifier) = self.content.notifier() {
            return Some(notifier);
        }
        self.content.polls().then(|| match self.quiet.get() {
            Some(quiet) => quiet.clone(),
            None => {
                let fresh = Arc::new(Notifier::new());
                self.quiet.get_or_init(|| fresh).clone()
            }
        })
    }

    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }
}
