//! The file system in memory. It serves the root, `/tmp`, `/dev`, nameless files (memfd), and
//! mounts by programs. A hugetlbfs is such a file system, too (`huge`).
//!
//! A file's pages are ordinary frames, or huge pages of the pool in a hugetlbfs. They are allocated
//! when they are first written or mapped. The pages of a copy of a host file are read from the host
//! when they are needed (`below`). Pages are freed at once by truncation, or when the last name and
//! the last open file are gone.

mod below;
mod beside;
mod blocks;
mod directory;
mod huge;
mod lists;
mod mounted;
mod regular;
mod renew;
mod seals;
mod tails;

pub(super) use below::each_cold;
pub use below::{drop_clean, forget_unused, relieve};
use huge::Huge;
pub use huge::TYPE as HUGETLBFS;
pub use mounted::TYPE;
use regular::Pace;
pub use regular::Regular;
pub use tails::trim_all;

use super::block;
use super::dev;
use super::directory::OpenDirectory;
use super::file::File;
use super::flags::{FileKind, OpenFlags};
use super::node::{
    AttributeChange, FsStats, Hold, LinkTarget, Metadata, NewNode, Node, NodeId, NodeRef,
    RenameMode, Renamed, Timestamp, downcast,
};
use super::pipe::{self, Pipe};
use super::volume::{MountFlags, Volume};
use super::watch;
use super::xattr;
use crate::vm::hugetlb::Subpool;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use below::Below;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use directory::Directory;
use lists::Lists;
use logic::credentials::attributes::Beginning;
use logic::credentials::{Credentials, Owned, Wanted};
use logic::errno::Errno;
use machine::memory::file_block::{self, SHARED, SharedPolicy, SharedPolicyCell};
use machine::memory::{self, PAGE_SIZE};
use machine::sync::{Mutex, SpinLock};

/// Linux's magic number of tmpfs.
pub const MAGIC: u64 = 0x0102_1994;

/// A file system: a tree with limits.
#[derive(Debug)]
pub struct Tmpfs {
    volume: Volume,
    next_inode: AtomicU64,
    /// The number of pages that count against `page_limit`: the frames of files in memory, and one
    /// page for each long text of a symbolic link. Huge pages count in `huge` instead.
    pages: AtomicU64,
    /// The largest value of `pages`. 0 means no limit. Pages that are read from the host and texts
    /// of the host's links may exceed it.
    page_limit: AtomicU64,
    nodes: AtomicU64,
    /// The largest number of files. 0 means no limit.
    node_limit: AtomicU64,
    /// The mode that the root directory got at the mount, which `/proc/PID/mounts` shows.
    root_mode: u32,
    root_owner: [u32; 2],
    /// The part of the pool of huge pages that the regular files share. `None` if they consist of
    /// ordinary pages.
    huge: Option<Arc<Subpool>>,
    /// The policy for huge blocks of regular files (mount option `huge=`). If `None`, the policy of
    /// `shmem_enabled` applies.
    blocks: Option<SharedPolicyCell>,
    /// Whether some directories also show entries of the host's tree.
    below: AtomicBool,
    /// Files whose inode numbers are in use as handles.
    handles: SpinLock<BTreeMap<u64, Weak<TmpNode>>>,
    /// Held while a directory moves to another directory. Only its holder changes which directories
    /// lie above which. As in Linux (`s_vfs_rename_mutex`) it blocks, because a tree may be deep.
    moving: Mutex<()>,
}

/// The limits of a [`Tmpfs`].
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// The largest number of pages. 0 means no limit.
    pages: u64,
    /// The largest number of files. 0 means no limit.
    nodes: u64,
}

impl Limits {
    /// Neither pages nor files are limited.
    pub const NONE: Self = Self { pages: 0, nodes: 0 };

    /// Returns Linux's default limits: half of the pages of RAM, and a file for each of those
    /// pages.
    pub fn half_of_ram() -> Self {
        let pages = ram_pages() / 2;
        Self {
            pages,
            nodes: pages,
        }
    }
}

/// Returns the number of pages of RAM that can be allocated.
fn ram_pages() -> u64 {
    memory::allocator().managed_frames()
}

/// Returns the number of pages that the text of a symbolic link counts for: 1 if it is long. As on
/// Linux a shorter one counts with its node.
fn text_pages(text: &[u8]) -> u64 {
    const LONG: usize = 128;
    u64::from(text.len() >= LONG)
}

/// Returns whether `used` and one more are within `limit`. 0 is no limit.
fn fits(used: u64, limit: u64) -> bool {
    limit == 0 || used < limit
}

impl Tmpfs {
    /// Creates a file system that stays mounted, with the device number `device`.
    pub fn permanent(device: u64, limits: Limits) -> Arc<Self> {
        Arc::new(Self::new(
            Volume::permanent(device),
            limits,
            mounted::DEFAULT_MODE,
            [0; 2],
        ))
    }

    fn new(volume: Volume, limits: Limits, root_mode: u32, root_owner: [u32; 2]) -> Self {
        Self {
            volume,
            next_inode: AtomicU64::new(1),
            pages: AtomicU64::new(0),
            page_limit: AtomicU64::new(limits.pages),
            nodes: AtomicU64::new(0),
            node_limit: AtomicU64::new(limits.nodes),
            root_mode,
            root_owner,
            huge: None,
            blocks: Some(SharedPolicyCell::new(SharedPolicy::Never)),
            below: AtomicBool::new(false),
            handles: SpinLock::new(BTreeMap::new()),
            moving: Mutex::new(()),
        }
    }

    /// Creates the root directory, to be mounted in `parent` as `name`. `parent` is `None` for the
    /// root of the tree, and while the place is not known.
    pub fn make_root(
        self: &Arc<Self>,
        parent: Option<&NodeRef>,
        name: &[u8],
        mode: u32,
    ) -> Arc<TmpNode> {
        let above = parent.map(Arc::downgrade);
        let body = Body::Directory(Directory::new(above, name));
        TmpNode::new(self, body, Beginning::of_root(mode))
    }

    /// Creates the file system of files without a name, with the device number `device`.
    pub fn nameless(device: u64) -> Arc<Self> {
        let volume = Volume::permanent(device);
        let mut fs = Self::new(volume, Limits::NONE, mounted::DEFAULT_MODE, [0; 2]);
        fs.blocks = None;
        Arc::new(fs)
    }

    /// Returns the policy for huge blocks of regular files.
    fn block_policy(&self) -> SharedPolicy {
        let own = self.blocks.as_ref().unwrap_or(&SHARED);
        file_block::in_effect(own.get())
    }

    /// Returns whether any file may get a huge block.
    #[inline]
    fn may_have_blocks(&self) -> bool {
        let policy = match &self.blocks {
            Some(own) => file_block::in_effect(own.get()),
            None => SHARED.get(),
        };
        !matches!(policy, SharedPolicy::Never | SharedPolicy::Deny)
    }

    /// Counts the pages of a huge block. Fails with `ENOSPC` if the limit does not allow them.
    fn charge_pages(&self, count: u64) -> Result<(), Errno> {
        // Relaxed: a count that orders nothing.
        let counted = self.pages.fetch_add(count, Ordering::Relaxed);
        let limit = self.page_limit.load(Ordering::Relaxed);
        if limit != 0 && counted + count > limit {
            self.pages.fetch_sub(count, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        memory::count_file_frames(count.cast_signed());
        Ok(())
    }

    /// Counts one page. Fails with `ENOSPC` if the limit does not allow it.
    fn charge_page(&self) -> Result<(), Errno> {
        // Relaxed: a count that orders nothing.
        let counted = self.pages.fetch_add(1, Ordering::Relaxed);
        if !fits(counted, self.page_limit.load(Ordering::Relaxed)) {
            self.pages.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        memory::count_file_frames(1);
        Ok(())
    }

    /// Counts the text of a symbolic link. Its memory is no frame, and is not counted as one. Fails
    /// with `ENOSPC` if the limit does not allow it.
    fn charge_text(&self, text: &[u8]) -> Result<(), Errno> {
        let count = text_pages(text);
        // Relaxed: a count that orders nothing.
        let counted = self.pages.fetch_add(count, Ordering::Relaxed);
        if count != 0 && !fits(counted, self.page_limit.load(Ordering::Relaxed)) {
            self.pages.fetch_sub(count, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    /// Counts one page, even if the limit does not allow it.
    fn count_page(&self) {
        self.pages.fetch_add(1, Ordering::Relaxed);
        memory::count_file_frames(1);
    }

    fn discharge_pages(&self, count: u64) {
        self.pages.fetch_sub(count, Ordering::Relaxed);
        memory::count_file_frames(-(count.cast_signed()));
    }

    /// Creates a regular file without a name. Fails with `ENOSPC` if the file system has no room
    /// for a file.
    pub fn make_nameless(self: &Arc<Self>, beginning: Beginning) -> Result<Arc<TmpNode>, Errno> {
        self.check_node_room()?;
        let node = TmpNode::new(self, self.new_content(), beginning);
        node.attributes.lock().links = 0;
        Ok(node)
    }

    fn check_node_room(&self) -> Result<(), Errno> {
        let limit = self.node_limit.load(Ordering::Relaxed);
        // Each turn makes room, or is the last.
        while !fits(self.nodes.load(Ordering::Relaxed), limit) {
            if !below::make_node_room(self) {
                return Err(Errno::ENOSPC);
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Attributes {
    permissions: u32,
    uid: u32,
    gid: u32,
    links: u32,
    /// Whether the file may get a first name (`O_TMPFILE`). A file that has lost its last name gets
    /// no other one.
    linkable: bool,
    accessed: Timestamp,
    modified: Timestamp,
    changed: Timestamp,
    extended: xattr::Slot,
}

#[derive(Debug)]
enum Body {
    Regular(Regular),
    Huge(Huge),
    Directory(Directory),
    Symlink(Box<[u8]>),
    Fifo(SpinLock<Weak<Pipe>>),
    Device { block: bool, number: u64 },
    Socket,
}

/// A file, directory, link or device of a [`Tmpfs`].
#[derive(Debug)]
pub struct TmpNode {
    fs: Arc<Tmpfs>,
    inode: u64,
    this: Weak<Self>,
    attributes: SpinLock<Attributes>,
    body: Body,
    /// Whether the node is an unmodified copy of a host file at the same place, so that it can be
    /// dropped and fetched again.
    as_below: AtomicBool,
    /// The access lists (POSIX ACLs) that the node has.
    lists: Lists,
    /// Whether a program may have the inode number in a file handle (`name_to_handle_at(2)`).
    has_handle: AtomicBool,
    /// Whether the node has file capabilities (`security.capability`). Changed with `attributes`
    /// locked.
    has_capabilities: AtomicBool,
}

impl TmpNode {
    fn new(fs: &Arc<Tmpfs>, body: Body, beginning: Beginning) -> Arc<Self> {
        fs.nodes.fetch_add(1, Ordering::Relaxed);
        let now = Timestamp::now();
        let links = if matches!(body, Body::Directory(_)) {
            2
        } else {
            1
        };
        Arc::new_cyclic(|this| Self {
            fs: fs.clone(),
            inode: fs.next_inode.fetch_add(1, Ordering::Relaxed),
            this: this.clone(),
            attributes: SpinLock::new(Attributes {
                permissions: beginning.masked(),
                uid: beginning.uid,
                gid: beginning.gid,
                links,
                linkable: false,
                accessed: now,
                modified: now,
                changed: now,
                extended: None,
            }),
            body,
            as_below: AtomicBool::new(false),
            has_capabilities: AtomicBool::new(false),
            has_handle: AtomicBool::new(false),
            lists: Lists::none(),
        })
    }

    /// Creates a node of the kind `new`, which the caller will enter in this directory as `name`.
    /// Fails with `ENOSPC` if a limit of the file system does not allow it, and with `EINVAL` for a
    /// symbolic link in a file system of huge pages.
    fn make(
        &self,
        name: &[u8],
        new: NewNode<'_>,
        beginning: Beginning,
    ) -> Result<Arc<Self>, Errno> {
        self.fs.check_node_room()?;
        let body = match new {
            NewNode::Regular => self.fs.new_content(),
            NewNode::Directory => {
                let above: Weak<dyn Node> = self.this.clone();
                let directory = Directory::new(Some(above), name);
                if self.fs.has_below() {
                    directory.set_below(Below::Nothing);
                }
                Body::Directory(directory)
            }
            // The text of a link would need an ordinary page. Linux refuses it, too.
            NewNode::Symlink(_) if self.fs.huge.is_some() => return Err(Errno::EINVAL),
            NewNode::Symlink(target) => {
                self.fs.charge_text(target)?;
                Body::Symlink(target.into())
            }
            NewNode::Fifo => Body::Fifo(SpinLock::new(Weak::new())),
            NewNode::Character(number) => Body::Device {
                block: false,
                number,
            },
            NewNode::Block(number) => Body::Device {
                block: true,
                number,
            },
            NewNode::Socket => Body::Socket,
        };
        Ok(Self::new(&self.fs, body, beginning))
    }

    /// Returns the content of a regular file. Returns `None` for another node, and for a file of
    /// huge pages.
    pub fn regular(&self) -> Option<&Regular> {
        match &self.body {
            Body::Regular(regular) => Some(regular),
            _ => None,
        }
    }

    fn directory(&self) -> Result<&Directory, Errno> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Updates the access time after a read. As with Linux's `relatime`, the time changes only if
    /// it would otherwise be older than the last change, or older than a day.
    fn touch_accessed(&self) {
        const DAY: i64 = 24 * 60 * 60;
        let flags = self.fs.volume.flags();
        if flags.intersects(MountFlags::READ_ONLY | MountFlags::NO_ACCESS_TIMES) {
            return;
        }
        let always = !flags.contains(MountFlags::RELATIVE_TIMES);
        let now = Timestamp::now();
        let mut attributes = self.attributes.lock();
        let accessed = attributes.accessed;
        if always || accessed <= attributes.modified || now.seconds - accessed.seconds >= DAY {
            attributes.accessed = now;
        }
    }

    fn touch_modified(&self) {
        self.keep();
        let now = Timestamp::now();
        let mut attributes = self.attributes.lock();
        attributes.modified = now;
        attributes.changed = now;
    }

    fn add_links(&self, change: i32) {
        self.keep();
        let now = Timestamp::now();
        let mut attributes = self.attributes.lock();
        attributes.links = attributes.links.saturating_add_signed(change);
        attributes.changed = now;
    }

    /// Counts one more name of a file.
    ///
    /// # Errors
    /// Fails with `ENOENT` if the file has lost its last name, and with `EMLINK` if it has too many
    /// names.
    fn add_name(&self) -> Result<(), Errno> {
        self.keep();
        let now = Timestamp::now();
        let mut attributes = self.attributes.lock();
        if attributes.links == 0 && !attributes.linkable {
            return Err(Errno::ENOENT);
        }
        if attributes.links >= u32::MAX / 2 {
            return Err(Errno::EMLINK);
        }
        attributes.links += 1;
        attributes.changed = now;
        Ok(())
    }

    /// Sets the access and the modification time to `time`, which an archive has for the file. Call
    /// this after the content is in place.
    pub fn set_times(&self, time: Timestamp) {
        let mut attributes = self.attributes.lock();
        attributes.accessed = time;
        attributes.modified = time;
    }
}

impl Drop for TmpNode {
    fn drop(&mut self) {
        if watch::active() {
            watch::gone(self.id());
        }
        if *self.has_handle.get_mut() {
            self.fs.handles.lock().remove(&self.inode);
        }
        match &mut self.body {
            Body::Regular(regular) => regular.free_all(&self.fs, Pace::Straight),
            // Empty unless it was the root, or lay in a tree that is gone.
            Body::Directory(directory) => directory::free_trees(directory.take_all(), |_| {}),
            Body::Symlink(text) => {
                self.fs.pages.fetch_sub(text_pages(text), Ordering::Relaxed);
            }
            _ => {}
        }
        self.fs.nodes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node for TmpNode {
    fn id(&self) -> NodeId {
        NodeId {
            device: self.fs.volume.device(),
            inode: self.inode,
        }
    }

    fn kind(&self) -> FileKind {
        match &self.body {
            Body::Regular(_) | Body::Huge(_) => FileKind::Regular,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Fifo(_) => FileKind::Fifo,
            Body::Device { block: false, .. } => FileKind::Character,
            Body::Device { block: true, .. } => FileKind::Block,
            Body::Socket => FileKind::Socket,
        }
    }

    fn metadata(&self) -> Metadata {
        let (size, pages, rdev) = match &self.body {
            Body::Regular(regular) => {
                let (size, pages) = regular.extent();
                (size, pages, 0)
            }
            Body::Huge(huge) => {
                let pages = huge.file().pages() * huge.file().page_size().frames();
                (huge.file().bytes(), pages, 0)
            }
            // As on Linux: hugetlbfs shows no size, and tmpfs one that grows with each entry.
            Body::Directory(_) if self.fs.huge.is_some() => (0, 0, 0),
            Body::Directory(directory) => (directory.len() as u64 * 20 + 40, 0, 0),
            Body::Symlink(target) => (target.len() as u64, text_pages(target), 0),
            Body::Device { number, .. } => (0, 0, *number),
            Body::Fifo(_) | Body::Socket => (0, 0, 0),
        };
        let attributes = self.attributes.lock();
        Metadata {
            id: self.id(),
            kind: self.kind(),
            permissions: attributes.permissions,
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            rdev,
            size,
            blocks: pages * (PAGE_SIZE as u64 / 512),
            accessed: attributes.accessed,
            modified: attributes.modified,
            changed: attributes.changed,
        }
    }

    fn owned(&self) -> Owned {
        let attributes = self.attributes.lock();
        Owned {
            directory: matches!(self.body, Body::Directory(_)),
            regular: matches!(self.body, Body::Regular(_) | Body::Huge(_)),
            permissions: attributes.permissions,
            uid: attributes.uid,
            gid: attributes.gid,
        }
    }

    fn fs_stats(&self) -> FsStats {
        let fs = &self.fs;
        // Relaxed (all): counts that order nothing.
        let pages = fs.page_limit.load(Ordering::Relaxed);
        let files = fs.node_limit.load(Ordering::Relaxed);
        if let Some(subpool) = &fs.huge {
            // As on Linux: all figures are 0 without a limit of pages. Without one of files, their
            // number is the largest possible.
            let room = subpool.room();
            let (blocks, free_blocks) = room.unwrap_or((0, 0));
            let (files, free_files) = match (room, files) {
                (None, _) => (0, 0),
                (_, 0) => (u64::MAX, u64::MAX),
                _ => (
                    files,
                    files.saturating_sub(fs.nodes.load(Ordering::Relaxed)),
                ),
            };
            return FsStats {
                magic: huge::MAGIC,
                blocks,
                free_blocks,
                files,
                free_files,
                flags: fs.volume.flags().bits(),
            };
        }
        FsStats {
            magic: MAGIC,
            blocks: pages,
            free_blocks: pages.saturating_sub(fs.pages.load(Ordering::Relaxed)),
            files,
            free_files: files.saturating_sub(fs.nodes.load(Ordering::Relaxed)),
            flags: fs.volume.flags().bits(),
        }
    }

    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        let has_devices = !self.fs.volume.flags().contains(MountFlags::NO_DEVICES);
        match &self.body {
            Body::Regular(_) => regular::open(self, flags),
            Body::Huge(_) => huge::open(self, flags),
            Body::Directory(_) => Ok(Arc::new(OpenDirectory(self))),
            Body::Symlink(_) => Err(Errno::ELOOP),
            Body::Fifo(current) => pipe::open_fifo(current, flags),
            Body::Device { .. } if !has_devices => Err(Errno::EACCES),
            Body::Device {
                block: false,
                number,
            } => dev::open(*number, flags),
            Body::Device {
                block: true,
                number,
            } => block::open(*number),
            Body::Socket => Err(Errno::ENXIO),
        }
    }

    fn block_size(&self) -> u32 {
        match &self.fs.huge {
            Some(subpool) => u32::try_from(subpool.size().bytes()).unwrap_or(u32::MAX),
            None => super::node::BLOCK_SIZE,
        }
    }

    fn extended(&self, look: &mut dyn FnMut(&xattr::Slot)) -> Result<(), Errno> {
        if self.fs.huge.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        look(&self.attributes.lock().extended);
        Ok(())
    }

    fn change_extended(&self, change: &mut dyn FnMut(&mut xattr::Slot)) -> Result<(), Errno> {
        if self.fs.huge.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        self.fs.volume.check_writable()?;
        self.keep();
        let mut attributes = self.attributes.lock();
        change(&mut attributes.extended);
        let all = attributes.extended.as_ref().map(|extended| extended.all());
        let has = all.is_some_and(|all| all.get(xattr::CAPABILITY).is_some());
        // Relaxed: a caller that depends on it checks again with the lock held.
        self.has_capabilities.store(has, Ordering::Relaxed);
        Ok(())
    }

    fn forget_capabilities(&self) {
        if !self.has_capabilities.load(Ordering::Relaxed) {
            return;
        }
        let mut attributes = self.attributes.lock();
        let all = attributes.extended.as_mut();
        let gone = all.and_then(|all| all.remove(xattr::CAPABILITY));
        self.has_capabilities.store(false, Ordering::Relaxed);
        drop(attributes);
        drop(gone);
    }

    fn may(&self, who: &Credentials, wanted: Wanted) -> Result<(), Errno> {
        if self.lists.has_access() {
            return self.may_by_list(who, wanted);
        }
        who.may(wanted, &self.owned())
    }

    fn set_list(
        &self,
        default: bool,
        list: Option<Box<[u8]>>,
        change: &AttributeChange,
    ) -> Result<(), Errno> {
        self.put_list(default, list, change)
    }

    fn has_lists(&self) -> bool {
        self.fs.huge.is_none() && !matches!(self.body, Body::Symlink(_))
    }

    fn check_writable(&self) -> Result<(), Errno> {
        self.fs.volume.check_writable()
    }

    fn change(&self, change: &AttributeChange) -> Result<(), Errno> {
        self.fs.volume.check_writable()?;
        self.keep();
        let mut attributes = self.attributes.lock();
        change.check(attributes.permissions, attributes.uid, attributes.gid)?;
        if let Some(permissions) = change.permissions {
            attributes.permissions = permissions & 0o7777;
            if self.lists.has_access() {
                attributes.adjust_list();
            }
        }
        if let Some(uid) = change.uid {
            attributes.uid = uid;
        }
        if let Some(gid) = change.gid {
            attributes.gid = gid;
        }
        if let Some(accessed) = change.accessed {
            attributes.accessed = accessed;
        }
        if let Some(modified) = change.modified {
            attributes.modified = modified;
        }
        attributes.changed = Timestamp::now();
        Ok(())
    }

    fn has_handles(&self) -> bool {
        self.fs.huge.is_none()
    }

    fn note_handle(&self) -> Result<(), Errno> {
        // A node with a handle must be found as long as it has a name, so it is not forgotten.
        self.keep();
        let mut handles = self.fs.handles.lock();
        handles.insert(self.inode, self.this.clone());
        // Relaxed: read when the node is dropped.
        self.has_handle.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn by_handle(&self, number: u64) -> Result<NodeRef, Errno> {
        let node = self.fs.handles.lock().get(&number).and_then(Weak::upgrade);
        Ok(node.ok_or(Errno::ESTALE)?)
    }

    fn set_size(&self, size: u64) -> Result<(), Errno> {
        self.fs.volume.check_writable()?;
        match &self.body {
            Body::Regular(_) => regular::set_size(self, size),
            Body::Huge(huge) => huge.set_size(self, size),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn link_target(&self) -> Result<LinkTarget, Errno> {
        match &self.body {
            Body::Symlink(target) => Ok(LinkTarget::Path(target.to_vec())),
            _ => Err(Errno::EINVAL),
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        let directory = self.directory()?;
        if let Some(node) = directory.get(name) {
            if self.fs.has_below() {
                return Ok(self.renewed(name, node)?);
            }
            return Ok(node);
        }
        self.fetch_entry(name)?;
        Ok(directory.get(name).ok_or(Errno::ENOENT)?)
    }

    fn create(
        &self,
        name: &[u8],
        new: NewNode<'_>,
        beginning: Beginning,
    ) -> Result<NodeRef, Errno> {
        let directory = self.directory()?;
        self.fs.volume.check_writable()?;
        self.fetch_entry(name)?;
        let node = self.make(name, new, beginning)?;
        self.bequeath(&node, beginning)?;
        directory.insert(name, node.clone())?;
        if node.kind() == FileKind::Directory {
            self.add_links(1);
        }
        self.touch_modified();
        Ok(node)
    }

    fn create_nameless(&self, beginning: Beginning, linkable: bool) -> Result<NodeRef, Errno> {
        self.fs.volume.check_writable()?;
        let node = self.fs.make_nameless(beginning)?;
        node.attributes.lock().linkable = linkable;
        self.bequeath(&node, beginning)?;
        Ok(node)
    }

    fn link(&self, name: &[u8], node: &NodeRef) -> Result<(), Errno> {
        let directory = self.directory()?;
        let node = downcast::<TmpNode>(node.clone()).ok_or(Errno::EXDEV)?;
        if !Arc::ptr_eq(&self.fs, &node.fs) {
            return Err(Errno::EXDEV);
        }
        if node.kind() == FileKind::Directory {
            return Err(Errno::EPERM);
        }
        self.fs.volume.check_writable()?;
        self.fetch_entry(name)?;
        node.add_name()?;
        if let Err(error) = directory.insert(name, node.clone()) {
            node.add_links(-1);
            return Err(error);
        }
        node.attributes.lock().linkable = false;
        self.touch_modified();
        Ok(())
    }

    fn unlink(&self, name: &[u8], meant: NodeId) -> Result<NodeRef, Errno> {
        self.fs.volume.check_writable()?;
        self.fetch_to_remove(name)?;
        let removed = self.directory()?.remove_file(name, meant)?;
        removed.add_links(-1);
        self.touch_modified();
        Ok(removed)
    }

    fn remove_directory(&self, name: &[u8], meant: NodeId) -> Result<NodeRef, Errno> {
        self.fs.volume.check_writable()?;
        self.fetch_to_remove(name)?;
        // Another directory may get the name in between. Then its entries must be fetched as well.
        let removed = loop {
            self.fetch_all_of(name)?;
            match self.directory()?.remove_directory(name, meant) {
                Err(Errno::EAGAIN) => {}
                result => break result?,
            }
        };
        removed.add_links(-2);
        self.add_links(-1);
        self.touch_modified();
        Ok(removed)
    }

    fn rename(
        &self,
        name: &[u8],
        to: &NodeRef,
        new_name: &[u8],
        how: RenameMode,
        meant: (NodeId, Option<NodeId>),
    ) -> Result<Option<Renamed>, Errno> {
        self.directory()?;
        let to = downcast::<TmpNode>(to.clone()).ok_or(Errno::EXDEV)?;
        if !Arc::ptr_eq(&self.fs, &to.fs) {
            return Err(Errno::EXDEV);
        }
        self.fs.volume.check_writable()?;
        self.settle_entry(name)?;
        to.settle_entry(new_name)?;
        if how == RenameMode::Replace {
            // As in `remove_directory`.
            loop {
                to.fetch_all_of(new_name)?;
                match directory::rename(self, name, &to, new_name, how, meant) {
                    Err(Errno::EAGAIN) => {}
                    result => return result,
                }
            }
        }
        directory::rename(self, name, &to, new_name, how, meant)
    }

    fn parent(&self) -> Option<NodeRef> {
        self.directory().ok()?.parent()
    }

    fn is_removed(&self) -> bool {
        self.directory().is_ok_and(Directory::is_removed)
    }

    fn name(&self) -> Box<[u8]> {
        self.directory().map(Directory::name).unwrap_or_default()
    }

    fn covered_by(&self) -> Option<NodeRef> {
        self.directory().ok()?.covered_by()
    }

    fn cover(&self, top: Option<NodeRef>) -> Result<(), Errno> {
        self.keep();
        self.directory()?.cover(top)
    }

    fn set_place(&self, above: Option<&NodeRef>, name: &[u8]) {
        if let Ok(directory) = self.directory() {
            directory.set_place(above.map(Arc::downgrade), name);
        }
    }

    fn keeps_entries(&self) -> bool {
        true
    }

    fn hold(&self) -> Option<Hold> {
        self.fs.volume.hold()
    }

    fn is_unmounted(&self) -> bool {
        self.fs.volume.is_gone()
    }

    fn dismantle(self: Arc<Self>) {
        directory::free_trees(core::iter::once(self), |node| {
            if let Body::Regular(regular) = &node.body {
                regular.free_all(&node.fs, Pace::Breathing);
            }
            machine::sched::cond_resched();
        });
    }

    fn forbid_writing(&self) -> Result<(), Errno> {
        self.regular().map_or(Ok(()), Regular::forbid_writing)
    }

    /// Frees the content if the node has no name, and no references but the `holders` that the
    /// caller knows. Does this in small steps, where the last drop would do it in one.
    fn release_if_last(self: Arc<Self>, holders: usize) {
        if let Body::Regular(regular) = &self.body
            && self.attributes.lock().links == 0
            && Arc::strong_count(&self) <= holders
        {
            regular.free_all(&self.fs, Pace::Breathing);
        }
    }
    fn permit_writing(&self) {
        if let Some(regular) = self.regular() {
            regular.permit_writing();
        }
    }
}
