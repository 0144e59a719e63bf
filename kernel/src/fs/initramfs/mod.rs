//! Unpacks the initramfs into the tree.
//!
//! A file whose data starts at a page boundary gets the frames that the boot loader put the data
//! in. Nothing is copied then. All other frames of the archive are freed once it is unpacked.

use super::flags::FileKind;
use super::lookup::{LastLink, resolve};
use super::node::downcast;
use super::node::{AttributeChange, NewNode, Node, NodeRef, Timestamp};
use super::tmpfs::TmpNode;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use logic::credentials::Credentials;
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use logic::newc::{self, Member, Members};
use logic::path::PATH_MAX;
use machine::memory::{self, BootArchive, FrameRef, Mobility, PAGE_SIZE};

/// The state of unpacking an archive.
struct Unpacking {
    archive: BootArchive,
    root: NodeRef,
    who: Credentials,
    /// The first node of each file with several names, by inode number.
    linked: BTreeMap<u32, NodeRef>,
}

/// Unpacks `archive` into the tree at `root` and frees its memory. Members that cannot be unpacked
/// are reported on the console and skipped. If the archive is damaged or memory is short, the rest
/// of it is left out.
pub(super) fn unpack(archive: BootArchive, root: &NodeRef) {
    let mut unpacking = Unpacking {
        archive,
        root: root.clone(),
        who: Credentials::root(),
        linked: BTreeMap::new(),
    };
    let mut at = 0;
    // Each turn passes one member.
    while let Some(member) = unpacking.next_member(&mut at) {
        match member {
            Ok(member) if unpacking.bytes(&member.name) == b".pad" => {}
            Ok(member) => {
                if let Err(error) = unpacking.enter(&member) {
                    let name = unpacking.bytes(&member.name);
                    let name = alloc::string::String::from_utf8_lossy(name);
                    machine::console!("initramfs: {name}: {error}");
                    if error == Errno::ENOMEM || error == Errno::ENOSPC {
                        break;
                    }
                }
            }
            Err(error) => {
                machine::console!("initramfs: {error:?}, the rest is left out");
                break;
            }
        }
    }
}

impl Unpacking {
    /// Returns the first member from the offset `at` on, or why it cannot be read. Moves `at`
    /// behind it. Returns `None` at the archive's end.
    fn next_member(&self, at: &mut usize) -> Option<Result<Member, newc::Error>> {
        // Files may have taken the frame at `at`, too. Only zeros follow their data there.
        let start = self.archive.taken_end().max(*at).min(self.archive.length());
        let rest = self.bytes(&(start..self.archive.length()));
        let mut members = Members::resume(rest, start);
        let member = members.next();
        *at = members.offset();
        member
    }

    /// Returns the bytes of the archive at the offsets `range`, or none if a file has taken one of
    /// them.
    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.archive.get(range.clone()).unwrap_or_default()
    }

    fn enter(&mut self, member: &Member) -> Result<(), Errno> {
        let name = self.bytes(&member.name);
        let found = resolve(&self.who, &self.root, &self.root, name, LastLink::Keep);
        let found = match found {
            Err(Errno::ENOENT) => {
                self.make_parents(name)?;
                resolve(&self.who, &self.root, &self.root, name, LastLink::Keep)?
            }
            other => other?,
        };
        let permissions = member.mode & 0o7777;
        let kind = FileKind::from_mode(member.mode).ok_or(Errno::EINVAL)?;
        let change = AttributeChange {
            permissions: Some(permissions),
            uid: Some(member.uid),
            gid: Some(member.gid),
            ..AttributeChange::default()
        };
        if let Some(there) = &found.node {
            if kind == FileKind::Directory && there.kind() == FileKind::Directory {
                // The roots of `/proc` and `/sys` cannot be changed.
                return if downcast::<TmpNode>(there.clone()).is_some() {
                    there.change(&change)
                } else {
                    Ok(())
                };
            }
            found
                .parent
                .unlink(found.new_name(Errno::EEXIST)?, there.id())?;
        }
        let name = found.new_name(Errno::EEXIST)?;
        if kind == FileKind::Regular
            && member.links > 1
            && let Some(first) = self.linked.get(&member.inode).cloned()
        {
            found.parent.link(name, &first)?;
            return self.fill(&first, member);
        }
        if kind == FileKind::Symlink && member.data.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let device = u64::from(member.rdev.0) << 8 | u64::from(member.rdev.1);
        let new = match kind {
            FileKind::Regular => NewNode::Regular,
            FileKind::Directory => NewNode::Directory,
            FileKind::Symlink => NewNode::Symlink(self.bytes(&member.data)),
            FileKind::Fifo => NewNode::Fifo,
            FileKind::Character => NewNode::Character(device),
            FileKind::Block => NewNode::Block(device),
            FileKind::Socket => NewNode::Socket,
            FileKind::Anonymous => return Err(Errno::EINVAL),
        };
        let node = found
            .parent
            .create(name, new, Beginning::of_root(permissions))?;
        node.change(&change)?;
        if kind == FileKind::Regular {
            self.fill(&node, member)?;
            if member.links > 1 {
                self.linked.insert(member.inode, node.clone());
            }
        }
        if let Some(node) = downcast::<TmpNode>(node) {
            node.set_times(Timestamp {
                seconds: member.modified.into(),
                nanos: 0,
            });
        }
        Ok(())
    }

    /// Creates the directories that lead to `name`. Fails as a walk to a directory or its creation
    /// does.
    fn make_parents(&self, name: &[u8]) -> Result<(), Errno> {
        for (at, _) in name.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            if at == 0 {
                continue;
            }
            let found = resolve(
                &self.who,
                &self.root,
                &self.root,
                &name[..at],
                LastLink::Follow,
            )?;
            if found.node.is_none() {
                let name = found.new_name(Errno::EEXIST)?;
                found
                    .parent
                    .create(name, NewNode::Directory, Beginning::of_root(0o755))?;
            }
        }
        Ok(())
    }

    /// Sets the content of the file `node` to the data of `member`. Fails with `EEXIST` if the file
    /// is not empty, with `EXDEV` if it is not in a tmpfs, and with `ENOMEM`.
    fn fill(&mut self, node: &NodeRef, member: &Member) -> Result<(), Errno> {
        let data = member.data.clone();
        if data.is_empty() {
            return Ok(());
        }
        let node = downcast::<TmpNode>(node.clone()).ok_or(Errno::EXDEV)?;
        if Node::metadata(&*node).size > 0 {
            return Err(Errno::EEXIST);
        }
        let adoptable = if self.archive.starts_frame(data.start) {
            self.adoptable_pages(&data)
        } else {
            0
        };
        let mut frames: Vec<FrameRef> = Vec::new();
        let total = data.len().div_ceil(PAGE_SIZE);
        frames.try_reserve_exact(total).map_err(|_| Errno::ENOMEM)?;
        if adoptable > 0 {
            // Frames that the file does not take are freed with their references.
            self.archive
                .take_pages(data.start, adoptable, &mut frames)?;
        }
        for page in adoptable..total {
            let from = data.start + page * PAGE_SIZE;
            let frame = memory::alloc_zeroed(Mobility::Movable)?;
            frame.write(0, self.bytes(&(from..data.end.min(from + PAGE_SIZE))));
            frames.push(frame);
        }
        node.fill(frames.into_iter(), data.len() as u64)
    }

    /// Returns the number of leading pages of `data` that the file can take over. These are all
    /// whole pages, and the last one too if only zeros follow the data in it.
    fn adoptable_pages(&self, data: &Range<usize>) -> usize {
        let whole = data.len() / PAGE_SIZE;
        let page_end = data.start + data.len().next_multiple_of(PAGE_SIZE);
        match self.archive.get(data.end..page_end) {
            Some(tail) if tail.iter().all(|&byte| byte == 0) => data.len().div_ceil(PAGE_SIZE),
            _ => whole,
        }
    }
}
