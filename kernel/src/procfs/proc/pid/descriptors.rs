//! `/proc/PID/fd` and `/proc/PID/fdinfo`.

use super::super::locks;
use super::super::subject::{Kind, Subject};
use crate::fs::file::OpenFile;
use crate::fs::flags::OpenFlags;
use crate::fs::node::{LinkTarget, NodeRef, mount_number};
use crate::fs::synthetic::{Content, LinkNode, Synthetic, Target, TextNode};
use crate::fs::table::FileTable;
use crate::fs::text::Text;
use crate::process::task::Process;
use alloc::sync::Arc;
use core::fmt::{self, Write};
use logic::errno::Errno;

/// Returns the inode number of the entry for descriptor `number` in the directory of `kind`.
pub(super) fn inode(subject: &Subject, kind: Kind, number: u64) -> u64 {
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

fn find(subject: &Subject, process: &Process, number: u32) -> Result<Found, Errno> {
    let fd = i32::try_from(number).map_err(|_| Errno::ENOENT)?;
    let files = subject.files(process).ok_or(Errno::ENOENT)?;
    let file = files.get(fd).map_err(|_| Errno::ENOENT)?;
    Ok((files, file))
}

/// Returns the entry for descriptor `number` of `process` in its directory of `kind`: a link in
/// `fd`, or a text in `fdinfo`. `process` is that of `subject`.
///
/// # Errors
/// Fails with `ENOENT` if the descriptor is not open or the thread has ended.
pub(super) fn lookup(
    fs: &Arc<Synthetic>,
    subject: &Subject,
    kind: Kind,
    process: &Process,
    number: u32,
) -> Result<NodeRef, Errno> {
    find(subject, process, number)?;
    let inode = inode(subject, kind, number.into());
    let descriptor = Descriptor {
        subject: subject.clone(),
        number,
    };
    if kind == Kind::DescriptorInfos {
        return Ok(TextNode::new(fs, inode, Arc::new(descriptor)));
    }
    Ok(LinkNode::new(fs, inode, descriptor))
}

struct Descriptor {
    subject: Subject,
    number: u32,
}

impl Descriptor {
    fn find(&self) -> Result<Found, Errno> {
        let process = self.subject.process().map_err(|_| Errno::ENOENT)?;
        find(&self.subject, &process, self.number)
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
        let mut flags = file.flags();
        let closes = i32::try_from(self.number).map(|fd| files.close_on_exec(fd));
        flags.set(OpenFlags::CLOSE_ON_EXEC, matches!(closes, Ok(Ok(true))));
        writeln!(text, "flags:\t0{:o}", flags.bits())?;
        let mount = mount_number(file.node());
        writeln!(text, "mnt_id:\t{mount}\nino:\t{}", id.inode)?;
        locks::of_descriptor(text, &files, &file)?;
        file.file().describe(text)
    }
    fn opens_for_writing(&self) -> bool {
        true
    }
    fn owner(&self) -> [u32; 2] {
        self.subject.owner(false)
    }
    fn open(&self) -> Result<Option<Arc<dyn Content>>, Errno> {
        self.subject.check_look().map(|()| None)
    }
}

impl Target for Descriptor {
    fn target(&self) -> Result<LinkTarget, Errno> {
        self.subject.check_look()?;
        let file = self.open_file()?;
        Ok(LinkTarget::Node(file.node().clone(), file.place().cloned()))
    }
    fn permissions(&self) -> u32 {
        let flags = self
            .open_file()
            .map_or(OpenFlags::empty(), |file| file.flags());
        let mut permissions = 0o100;
        if flags.readable() {
            permissions |= 0o400;
        }
        if flags.writable() {
            permissions |= 0o200;
        }
        permissions
    }
    fn owner(&self) -> [u32; 2] {
        self.subject.owner(false)
    }
    const SIZE: u64 = 64;
}
