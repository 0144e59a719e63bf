//! Files, folders and links of a volume.

use super::super::file::File;
use super::super::flags::{FileKind, OpenFlags};
use super::super::node::{
    AttributeChange, FsStats, LinkTarget, Metadata, NewNode, Node, NodeId, NodeRef, RenameMode,
    Renamed, Timestamp, downcast,
};
use super::super::used::Used;
use super::directory::OpenDirectory;
use super::failures::Failures;
use super::file::OpenHostFile;
use super::known::{self, Given, Known};
use super::pages::Content;
use super::view::Views;
use super::{Hostfs, MAGIC, writeback};
use crate::drivers::volume::{self, Attributes, Opcode, Request, change};
use crate::vm::Name;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32};
use linux_raw_sys::general::{RENAME_EXCHANGE, RENAME_NOREPLACE};
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use machine::memory::PAGE_SIZE;
use machine::sync::{Mutex, SpinLock};

/// The place of a directory in the tree.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) parent: Above,
    pub(super) name: Box<[u8]>,
}

/// The parent of a directory.
#[derive(Clone)]
pub(super) enum Above {
    /// A directory of the same volume.
    Own(Arc<HostNode>),
    /// The directory in which the volume is mounted.
    Other(Weak<dyn Node>),
}

/// A file, folder or link of a volume.
pub(super) struct HostNode {
    pub(super) fs: Arc<Hostfs>,
    pub(super) this: Weak<Self>,
    pub(super) handle: u64,
    inode: u64,
    kind: FileKind,
    pub(super) given: Given,
    pub(super) known: SpinLock<Known>,
    /// Whether a program outside of this guest has changed the file, so that its pages are old.
    pub(super) changed: AtomicBool,
    place: SpinLock<Option<Place>>,
    covered: SpinLock<Option<NodeRef>>,
    /// Held while permissions are checked and changed. Taken before `moving`.
    changing: Mutex<()>,
    /// Held while bytes go to the host or come from it.
    pub(super) moving: Mutex<()>,
    pub(super) content: SpinLock<Content>,
    pub(super) views: Views,
    /// Makes the pages of the file known to compaction.
    pub(super) name: Name,
    /// The number of open files that may write.
    pub(super) opens: AtomicU32,
    /// Whether the host may have the file open for writing.
    pub(super) pinned: AtomicBool,
    /// Whether the file is in the list of files with dirty pages. Changed with the list's lock
    /// held.
    pub(super) listed: AtomicBool,
    /// Errors of writing.
    pub(super) failures: Failures,
    pub(super) used: Used,
}

impl HostNode {
    /// Creates the node of the file that `attributes` describes. Returns `None` if the host reports
    /// an unknown file type.
    pub(super) fn new(
        fs: &Arc<Hostfs>,
        attributes: &Attributes,
        place: Option<Place>,
    ) -> Option<Arc<Self>> {
        let kind = FileKind::from_mode(u32::try_from(attributes.mode).ok()?)?;
        let node = Arc::new_cyclic(|this: &Weak<Self>| Self {
            fs: fs.clone(),
            this: this.clone(),
            handle: attributes.handle,
            inode: attributes.inode,
            kind,
            given: Given::once(),
            known: SpinLock::new(Known::new(attributes)),
            changed: AtomicBool::new(false),
            place: SpinLock::new(place.filter(|_| kind == FileKind::Directory)),
            covered: SpinLock::new(None),
            changing: Mutex::new(()),
            moving: Mutex::new(()),
            content: SpinLock::new(Content::new()),
            views: Views::none(),
            name: Name::none(),
            opens: AtomicU32::new(0),
            pinned: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            failures: Failures::none(),
            used: Used::now(),
        });
        Some(node)
    }

    /// Sets the place of a directory. Does nothing for a node of another kind.
    pub(super) fn move_to(&self, place: Place) {
        if self.kind == FileKind::Directory {
            let old = self.place.lock().replace(place);
            drop(old);
        }
    }

    fn request(&self, opcode: Opcode) -> Request<'static> {
        Request::new(opcode, self.handle)
    }

    fn child(&self, name: &[u8]) -> Option<Place> {
        Some(Place {
            parent: Above::Own(self.this.upgrade()?),
            name: name.into(),
        })
    }

    /// Sends a request that returns the handle of a name. Returns the node of the name. Fails as
    /// [`volume::attributes`] does.
    fn have(&self, request: &Request<'_>) -> Result<Arc<Self>, Errno> {
        known::give_back();
        let place = self.child(request.name);
        let node = volume::attributes(request, |attributes| self.fs.node_of(attributes, place))?;
        node.settle();
        Ok(node)
    }

    fn look(&self, name: &[u8]) -> Result<Arc<Self>, Errno> {
        if self.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.have(&Request {
            name,
            ..self.request(Opcode::Lookup)
        })
    }

    /// Sends a request that changes the file, and takes over the attributes of the answer. Fails as
    /// [`volume::attributes`] does.
    fn change_by(&self, request: &Request<'_>) -> Result<(), Errno> {
        let result = volume::attributes(request, |attributes| {
            self.learn(attributes);
            Ok(())
        });
        self.settle();
        result
    }
}

impl Drop for HostNode {
    fn drop(&mut self) {
        self.drop_pages();
        self.fs.forget(self);
    }
}

/// Converts a time that the host reported as seconds and nanoseconds since 1970.
fn time((seconds, nanos): (i64, u64)) -> Timestamp {
    Timestamp {
        seconds,
        // Below a billion, so it fits.
        nanos: u32::try_from(nanos.min(999_999_999)).unwrap_or(0),
    }
}

/// Converts a number that the host reported to 32 bits. A larger number becomes the largest one.
fn word(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Node for HostNode {
    fn id(&self) -> NodeId {
        NodeId {
            device: self.fs.volume.device(),
            inode: self.inode,
        }
    }

    fn kind(&self) -> FileKind {
        self.kind
    }

    fn metadata(&self) -> Metadata {
        let attributes = self.attributes();
        let [accessed, modified, changed] = attributes.times.map(time);
        Metadata {
            id: self.id(),
            kind: self.kind,
            permissions: word(attributes.mode) & 0o7777,
            links: word(attributes.links),
            uid: word(attributes.uid),
            gid: word(attributes.gid),
            rdev: 0,
            size: attributes.size,
            blocks: attributes.blocks,
            accessed,
            modified,
            changed,
        }
    }

    fn fs_stats(&self) -> FsStats {
        let [size, blocks, free, _, files, free_files] =
            volume::room(self.handle).unwrap_or_default();
        let pages = |blocks: u64| {
            let bytes = u128::from(blocks) * u128::from(size);
            u64::try_from(bytes / PAGE_SIZE as u128).unwrap_or(u64::MAX)
        };
        FsStats {
            magic: MAGIC,
            blocks: pages(blocks),
            free_blocks: pages(free),
            files,
            free_files,
            flags: self.fs.volume.flags().bits(),
        }
    }

    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        match self.kind {
            FileKind::Regular => OpenHostFile::open(self, flags),
            FileKind::Directory => Ok(Arc::new(OpenDirectory::new(self))),
            FileKind::Symlink => Err(Errno::ELOOP),
            _ => Err(Errno::ENXIO),
        }
    }

    fn check_writable(&self) -> Result<(), Errno> {
        self.fs.volume.check_writable()
    }

    fn change(&self, new: &AttributeChange) -> Result<(), Errno> {
        self.check_writable()?;
        let _changing = self.changing.lock();
        let attributes = self.attributes();
        new.check(
            word(attributes.mode),
            word(attributes.uid),
            word(attributes.gid),
        )?;
        // The host decides who owns a file. Setting the owner that a file has already is no change.
        let other = |new: Option<u32>, own| new.is_some_and(|id| u64::from(id) != own);
        if other(new.uid, attributes.uid) || other(new.gid, attributes.gid) {
            return Err(Errno::EPERM);
        }
        if let Some(permissions) = new.permissions {
            let mut request = self.request(Opcode::SetAttributes);
            request.numbers[..2].copy_from_slice(&[change::MODE, permissions.into()]);
            self.change_by(&request)?;
        }
        for (bit, time) in [
            (change::ACCESSED, new.accessed),
            (change::MODIFIED, new.modified),
        ] {
            if let Some(time) = time {
                let mut request = self.request(Opcode::SetAttributes);
                let seconds = time.seconds.cast_unsigned();
                request.numbers[..5].copy_from_slice(&[bit, 0, 0, seconds, time.nanos.into()]);
                self.change_by(&request)?;
            }
        }
        Ok(())
    }

    fn set_size(&self, size: u64) -> Result<(), Errno> {
        self.check_writable()?;
        match self.kind {
            FileKind::Regular if size > i64::MAX as u64 => Err(Errno::EFBIG),
            FileKind::Regular => self.resize(size),
            FileKind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn link_target(&self) -> Result<LinkTarget, Errno> {
        if self.kind != FileKind::Symlink {
            return Err(Errno::EINVAL);
        }
        volume::target(self.handle, |target| Ok(LinkTarget::Path(target.to_vec())))
    }

    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        Ok(self.look(name)?)
    }

    fn create(
        &self,
        name: &[u8],
        new: NewNode<'_>,
        beginning: Beginning,
    ) -> Result<NodeRef, Errno> {
        if self.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        // As on Linux, an existing name is reported before a read-only volume.
        if self.check_writable().is_err() {
            return Err(match self.look(name) {
                Ok(_) => Errno::EEXIST,
                Err(_) => Errno::EROFS,
            });
        }
        let mut request = self.request(match new {
            NewNode::Regular => Opcode::CreateFile,
            NewNode::Directory => Opcode::CreateFolder,
            NewNode::Symlink(_) => Opcode::CreateSymlink,
            // These are for the guest alone: on the host no process would be at their other end.
            NewNode::Fifo | NewNode::Character(_) | NewNode::Block(_) | NewNode::Socket => {
                return Err(Errno::EPERM);
            }
        });
        request.numbers[0] = beginning.masked().into();
        let target = match new {
            NewNode::Symlink(target) => target,
            _ => b"",
        };
        let node = self.have(&Request {
            name,
            target,
            ..request
        })?;
        self.doubt();
        Ok(node)
    }

    fn link(&self, name: &[u8], node: &NodeRef) -> Result<(), Errno> {
        let node = downcast::<Self>(node.clone()).ok_or(Errno::EXDEV)?;
        if !Arc::ptr_eq(&self.fs, &node.fs) {
            return Err(Errno::EXDEV);
        }
        self.check_writable()?;
        if node.kind == FileKind::Directory {
            return Err(Errno::EPERM);
        }
        let mut request = self.request(Opcode::CreateLink);
        request.numbers[0] = node.handle;
        node.change_by(&Request { name, ..request })?;
        self.doubt();
        Ok(())
    }

    fn unlink(&self, name: &[u8], meant: NodeId) -> Result<NodeRef, Errno> {
        self.check_writable()?;
        let node = self.look(name)?;
        if node.id() != meant {
            return Err(Errno::ESTALE);
        }
        volume::done(&Request {
            name,
            ..self.request(Opcode::Unlink)
        })?;
        self.gone(&node);
        Ok(node)
    }

    fn remove_directory(&self, name: &[u8], meant: NodeId) -> Result<NodeRef, Errno> {
        self.check_writable()?;
        let node = self.look(name)?;
        if node.id() != meant {
            return Err(Errno::ESTALE);
        }
        if node.covered_by().is_some() {
            return Err(Errno::EBUSY);
        }
        volume::done(&Request {
            name,
            ..self.request(Opcode::RemoveFolder)
        })?;
        self.gone(&node);
        Ok(node)
    }

    fn rename(
        &self,
        name: &[u8],
        to: &NodeRef,
        new_name: &[u8],
        how: RenameMode,
        meant: (NodeId, Option<NodeId>),
    ) -> Result<Option<Renamed>, Errno> {
        let to = downcast::<Self>(to.clone()).ok_or(Errno::EXDEV)?;
        if !Arc::ptr_eq(&self.fs, &to.fs) {
            return Err(Errno::EXDEV);
        }
        self.check_writable()?;
        let moved = self.look(name)?;
        let other = match to.look(new_name) {
            Ok(other) => Some(other),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        if (moved.id(), other.as_ref().map(|node| node.id())) != meant {
            return Err(Errno::ESTALE);
        }
        let covered = |node: &Arc<Self>| node.covered_by().is_some();
        if covered(&moved) || other.as_ref().is_some_and(covered) {
            return Err(Errno::EBUSY);
        }
        let mut request = self.request(Opcode::Rename);
        request.numbers[0] = to.handle;
        request.numbers[1] = match how {
            RenameMode::Replace => 0,
            RenameMode::KeepExisting => RENAME_NOREPLACE.into(),
            RenameMode::Exchange => RENAME_EXCHANGE.into(),
        };
        volume::done(&Request {
            name,
            target: new_name,
            ..request
        })?;
        if other
            .as_ref()
            .is_some_and(|other| Arc::ptr_eq(other, &moved))
        {
            return Ok(None);
        }
        if let Some(place) = to.child(new_name) {
            moved.move_to(place);
        }
        moved.doubt();
        if let Some(other) = &other {
            match how {
                RenameMode::Exchange => {
                    if let Some(place) = self.child(name) {
                        other.move_to(place);
                    }
                    other.doubt();
                }
                _ => to.gone(other),
            }
        }
        self.doubt();
        to.doubt();
        Ok(Some(Renamed {
            moved,
            other: other.map(|other| other as NodeRef),
        }))
    }

    fn parent(&self) -> Option<NodeRef> {
        match &self.place.lock().as_ref()?.parent {
            Above::Own(node) => Some(node.clone()),
            Above::Other(node) => node.upgrade(),
        }
    }

    fn is_removed(&self) -> bool {
        self.kind == FileKind::Directory && self.known.lock().attributes.links == 0
    }

    fn name(&self) -> Box<[u8]> {
        let place = self.place.lock();
        place
            .as_ref()
            .map(|place| place.name.clone())
            .unwrap_or_default()
    }

    fn covered_by(&self) -> Option<NodeRef> {
        self.covered.lock().clone()
    }

    fn cover(&self, top: Option<NodeRef>) -> Result<(), Errno> {
        if self.kind != FileKind::Directory {
            return Err(Errno::EINVAL);
        }
        let old = core::mem::replace(&mut *self.covered.lock(), top);
        drop(old);
        Ok(())
    }

    fn keeps_entries(&self) -> bool {
        true
    }

    fn set_place(&self, above: Option<&NodeRef>, name: &[u8]) {
        let place = above.map(|above| Place {
            parent: Above::Other(Arc::downgrade(above)),
            name: name.into(),
        });
        let old = core::mem::replace(&mut *self.place.lock(), place);
        drop(old);
    }
}

impl HostNode {
    /// Records that `node` has lost a name in this folder: sets the link count of a folder to 0,
    /// and subtracts 1 from that of another node. Marks the attributes of this folder, and of a
    /// node that is no folder, as stale, so that the next use of them asks the host. Removes a file
    /// without a name from the list of recently opened files.
    fn gone(&self, node: &Self) {
        self.doubt();
        if node.kind == FileKind::Directory {
            node.known.lock().attributes.links = 0;
            return;
        }
        node.doubt();
        let last = {
            let mut known = node.known.lock();
            known.attributes.links = known.attributes.links.saturating_sub(1);
            known.attributes.links == 0
        };
        if last {
            // The host keeps the bytes as long as the node has the handle.
            writeback::use_no_more(node);
        }
    }
}
