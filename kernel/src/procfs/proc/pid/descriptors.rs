//! `/proc/PID/fd` and `/proc/PID/fdinfo`.

use super::super::locks;
use super::super::subject::{Kind, Subject};
use crate::fs::file::{File, OpenFile};
use crate::fs::flags::{FileKind, OpenFlags};
use crate::fs::node::{FsStats, LinkTarget, Metadata, Node, NodeId, NodeRef};
use crate::fs::synthetic::{Content, Synthetic, TextNode};
use crate::fs::table::FileTable;
use crate::fs::text::Text;
use crate::process::task::Process;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use logic::errno::Errno;

/// The inode number of descriptor `number`'s entry.
pub(super) fn inode(subject: Subject, kind: Kind, number: u64) -> u64 {
    // Descriptors are below 2^20.
    let area = if kind == Kind::Descriptors {
        1 << 20
    } else {
        1 << 21
    };
    subject.inode(area | number)
}

/// An open file, and the table of descriptors in which it was found.
type Found = (Arc<FileTable>, Arc<OpenFile>);

fn find(process: &Process, number: u32) -> Result<Found, Errno> {
    let fd = i32::try_from(number).map_err(|_| Errno::ENOENT)?;
    let files = process.files().ok_or(Errno::ENOENT)?;
    let file = files.get(fd).map_err(|_| Errno::ENOENT)?;
    Ok((files, file))
}

/// The entry of descriptor `number`.
pub(super) fn lookup(
    fs: &Arc<Synthetic>,
    subject: Subject,
    kind: Kind,
    process: &Process,
    number: u32,
) -> Result<NodeRef, Errno> {
    find(process, number)?;
    let inode = inode(subject, kind, number.into());
    let descriptor = Descriptor { subject, number };
    if kind == Kind::DescriptorInfos {
        return Ok(TextNode::new(fs, inode, Arc::new(descriptor)));
    }
    Ok(Arc::new(DescriptorLink {
        fs: fs.clone(),
        descriptor,
        inode,
    }))
}

struct Descriptor {
    subject: Subject,
    number: u32,
}

impl Descriptor {
    fn find(&self) -> Result<Found, Errno> {
        let process = self.subject.process().map_err(|_| Errno::ENOENT)?;
        find(&process, self.number)
    }

    fn open_file(&self) -> Result<Arc<OpenFile>, Errno> {
        self.find().map(|(_, file)| file)
    }
}

impl Content for Descriptor {
    fn show(&self, text: &mut Text) -> fmt::Result {
        let (files, file) = match self.find() {
            Ok(found) => found,
            Err(error) => return Err(text.fail(error)),
        };
        let id = file.node().id();
        writeln!(text, "pos:\t{}", file.offset())?;
        writeln!(
            text,
            "flags:\t0{:o}",
            (file.flags() | OpenFlags::LARGE).bits()
        )?;
        writeln!(text, "mnt_id:\t{}\nino:\t{}", id.device, id.inode)?;
        locks::of_descriptor(text, &files, &file)
    }
}

struct DescriptorLink {
    fs: Arc<Synthetic>,
    descriptor: Descriptor,
    inode: u64,
}

impl Node for DescriptorLink {
    fn id(&self) -> NodeId {
        self.fs.id(self.inode)
    }
    fn kind(&self) -> FileKind {
        FileKind::Symlink
    }
    fn metadata(&self) -> Metadata {
        let flags = self
            .descriptor
            .open_file()
            .map_or(OpenFlags::empty(), |file| file.flags());
        let mut permissions = 0o100;
        if flags.readable() {
            permissions |= 0o400;
        }
        if flags.writable() {
            permissions |= 0o200;
        }
        let mut metadata = self.fs.metadata(self.inode, FileKind::Symlink, permissions);
        metadata.size = 64;
        metadata
    }
    fn fs_stats(&self) -> FsStats {
        self.fs.stats()
    }
    fn open(self: Arc<Self>, _: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        Err(Errno::ELOOP)
    }
    fn link_target(&self) -> Result<LinkTarget, Errno> {
        let file = self.descriptor.open_file()?;
        Ok(LinkTarget::Node(file.node().clone(), file.place().cloned()))
    }
    fn link_text(&self) -> Result<Vec<u8>, Errno> {
        Ok(self.descriptor.open_file()?.path())
    }
}
