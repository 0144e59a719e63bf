//! Trees of files whose text the kernel makes when they are read: what `/proc` and `/sys` are.
//!
//! A file is an [`Entry`]: a function that shows, and for a knob one that stores. Adding one is one
//! line in a table. The text is made anew by each read at offset 0, so that a program may keep the
//! file open and read it again; a read further on sees the rest of the same text.

use super::directory::{Listing, OpenDirectory};
use super::file::File;
use super::flags::{FileKind, OpenFlags};
use super::io::{ByteSink, ByteSource};
use super::node::{
    AttributeChange, DirEntry, FsStats, LinkTarget, Metadata, NewNode, Node, NodeId, NodeRef,
    Timestamp, downcast,
};
use super::poll::{Notifier, PollMask};
use super::text::Text;
use super::volume::MountFlags;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::credentials::attributes::Beginning;
use logic::errno::{Errno, SysResult};
use machine::sync::SpinLock;

/// The longest text that a program may write to a knob.
const MAX_STORE: usize = 4096;

/// What a file shows and stores.
pub trait Content: Send + Sync {
    /// Writes the text.
    fn show(&self, text: &mut Text) -> fmt::Result;
    /// Takes what a program wrote, without white space around it.
    fn store(&self, _value: &str) -> Result<(), Errno> {
        Err(Errno::EACCES)
    }
    /// Whether it can be written.
    fn writable(&self) -> bool {
        false
    }
    /// Permission bits.
    fn permissions(&self) -> u32 {
        if self.writable() { 0o644 } else { 0o444 }
    }
    /// User and group that it belongs to.
    fn owner(&self) -> [u32; 2] {
        [0; 2]
    }
    /// Returns what the caller, who opens it, will read: `None` if that is this content.
    ///
    /// # Errors
    /// The caller may not open it, whatever the permission bits say.
    fn open(&self) -> Result<Option<Arc<dyn Content>>, Errno> {
        Ok(None)
    }
    /// Returns what the open file is ready for.
    fn poll(&self) -> PollMask {
        PollMask::READABLE | PollMask::WRITABLE
    }
    /// Returns what tells when [`Self::poll`] changes, or `None` if it never does.
    fn notifier(&self) -> Option<Arc<Notifier>> {
        None
    }
}

/// Shows a file's text.
pub type Show = fn(&mut Text) -> fmt::Result;
/// Takes a knob's new value.
pub type Store = fn(&str) -> Result<(), Errno>;

/// A file in a table: its path below the root of its tree, and its functions.
#[derive(Copy, Clone, Debug)]
pub struct Entry {
    /// Path, with `/` between directories.
    pub path: &'static str,
    /// Makes the text; `None`: the knob can only be written.
    pub show: Option<Show>,
    /// Takes a new value; `None`: the file can only be read.
    pub store: Option<Store>,
}

impl Entry {
    /// A file to read.
    pub const fn file(path: &'static str, show: Show) -> Self {
        Self {
            path,
            show: Some(show),
            store: None,
        }
    }

    /// A knob.
    pub const fn knob(path: &'static str, show: Show, store: Store) -> Self {
        Self {
            path,
            show: Some(show),
            store: Some(store),
        }
    }

    /// A knob that does something when it is written, and cannot be read.
    pub const fn trigger(path: &'static str, store: Store) -> Self {
        Self {
            path,
            show: None,
            store: Some(store),
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
    fn store(&self, value: &str) -> Result<(), Errno> {
        self.store.ok_or(Errno::EACCES)?(value)
    }
    fn writable(&self) -> bool {
        self.store.is_some()
    }
    fn permissions(&self) -> u32 {
        match (self.show.is_some(), self.store.is_some()) {
            (true, true) => 0o644,
            (false, _) => 0o200,
            (true, false) => 0o444,
        }
    }
}

/// One such file system.
#[derive(Debug)]
pub struct Synthetic {
    device: u64,
    magic: u64,
    /// What who creates a file gets.
    refusal: Errno,
    made: Timestamp,
    next_inode: AtomicU64,
}

impl Synthetic {
    /// A file system with this device number and Linux's magic number of its type, in which nobody can
    /// create files: they get `refusal`.
    pub fn new(device: u64, magic: u64, refusal: Errno) -> Arc<Self> {
        Arc::new(Self {
            device,
            magic,
            refusal,
            made: Timestamp::now(),
            next_inode: AtomicU64::new(1),
        })
    }

    /// Identity of the node with this number.
    pub fn id(&self, inode: u64) -> NodeId {
        NodeId {
            device: self.device,
            inode,
        }
    }

    /// A number for a new permanent node.
    pub fn new_inode(&self) -> u64 {
        self.next_inode.fetch_add(1, Ordering::Relaxed)
    }

    /// What `statfs` tells.
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

    /// What `stat` tells of a node.
    pub fn metadata(&self, inode: u64, kind: FileKind, permissions: u32) -> Metadata {
        self.metadata_of(inode, kind, permissions, [0; 2])
    }

    /// The same of one that belongs to a user and a group.
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
    /// The root of what is mounted here.
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
    /// An empty directory called `name` in `parent`.
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

    /// The entry `name`.
    pub fn get(&self, name: &[u8]) -> Option<NodeRef> {
        let entries = self.entries.lock();
        entries
            .iter()
            .find(|(known, _)| **known == *name)
            .map(|(_, node)| node.clone())
    }

    /// The `n`th entry: name, kind, inode.
    pub fn nth(&self, n: usize) -> Option<(Box<[u8]>, FileKind, u64)> {
        let entries = self.entries.lock();
        entries
            .get(n)
            .map(|(name, node)| (name.clone(), node.kind(), node.id().inode))
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Enters `node` under `name`; only while the tree is built.
    pub fn insert(&self, name: &[u8], node: NodeRef) {
        self.entries.lock().push((name.into(), node));
    }

    /// The directory at `path` below this one, made where it is missing; only while the tree is
    /// built, from the tables alone.
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

    /// Enters a file at `path` below this directory.
    pub fn add(self: &Arc<Self>, path: &str, content: Arc<dyn Content>) {
        let (directory, name) = match path.rsplit_once('/') {
            Some((directory, name)) => (self.subdirectory(directory), name),
            None => (self.clone(), path),
        };
        let node = TextNode::new(&self.fs, self.fs.new_inode(), content);
        directory.insert(name.as_bytes(), node);
    }

    /// Enters all files of a table.
    pub fn add_all(self: &Arc<Self>, entries: &'static [Entry]) {
        for entry in entries {
            self.add(entry.path, Arc::new(*entry));
        }
    }

    /// Enters a symbolic link.
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
        self.fs.metadata(self.inode, FileKind::Directory, 0o555)
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
    fn covered_by(&self) -> Option<NodeRef> {
        self.covered_by.lock().clone()
    }
    fn cover(&self, top: Option<NodeRef>) -> Result<(), Errno> {
        let old = core::mem::replace(&mut *self.covered_by.lock(), top);
        drop(old);
        Ok(())
    }
}

/// Offsets 0 and 1 of a listing are `.` and `..`.
pub const FIRST: u64 = 2;

/// Lists `directory`'s entries from `offset` on; false when `emit` had enough.
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

/// Where a symbolic link leads.
pub trait Target: Send + Sync + 'static {
    /// Its target as of now.
    fn target(&self) -> Result<LinkTarget, Errno>;
    /// Permission bits.
    fn permissions(&self) -> u32 {
        0o777
    }
    /// User and group that it belongs to.
    fn owner(&self) -> [u32; 2] {
        [0; 2]
    }
    /// What `stat` tells as its size.
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
    /// A link to `target`.
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

/// A file of made text.
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
    /// A file that shows `content`.
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
        if flags.writable() && !self.content.writable() {
            return Err(Errno::EACCES);
        }
        let opened = self.content.open()?;
        let content = opened.unwrap_or_else(|| self.content.clone());
        Ok(Arc::new(TextFile {
            content,
            shown: SpinLock::new(None),
        }))
    }
    fn change(&self, change: &AttributeChange) -> Result<(), Errno> {
        // `touch` and `chmod` on a knob: nothing to keep.
        if self.content.writable() && change.uid.is_none() && change.gid.is_none() {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }
    fn set_size(&self, _: u64) -> Result<(), Errno> {
        // `echo 1 > knob` opens it with `O_TRUNC`.
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
    shown: SpinLock<Option<Arc<[u8]>>>,
}

impl TextFile {
    fn make(&self) -> Result<Arc<[u8]>, Errno> {
        let mut text = Text::new();
        let written = self.content.show(&mut text);
        let bytes: Arc<[u8]> = text.finish(written)?.into();
        let old = self.shown.lock().replace(bytes.clone());
        drop(old);
        Ok(bytes)
    }
}

impl File for TextFile {
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
        let at = usize::try_from(*offset).unwrap_or(usize::MAX);
        let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) else {
            return Ok(0);
        };
        let moved = to.put(rest)?;
        *offset += moved as u64;
        Ok(moved)
    }

    fn write(&self, from: &mut dyn ByteSource, offset: &mut u64, _: OpenFlags) -> SysResult {
        let length = from.left();
        if length == 0 {
            return Ok(0);
        }
        if length > MAX_STORE {
            return Err(Errno::EINVAL);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(length, 0);
        let taken = from.take(&mut bytes)?;
        let value = core::str::from_utf8(&bytes[..taken]).map_err(|_| Errno::EINVAL)?;
        self.content
            .store(value.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0'))?;
        *offset += taken as u64;
        Ok(taken)
    }

    fn poll(&self) -> PollMask {
        self.content.poll()
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        self.content.notifier()
    }

    fn seekable(&self) -> bool {
        true
    }
}
