//! A POSIX message queue as a file: the operations of its descriptors other than sending and
//! receiving.

use super::queue::{Attributes, MessageQueue};
use crate::fs::file::Seeks;
use crate::fs::io::ByteSink;
use crate::fs::node::{AttributeChange, FsStats, NodeId};
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::{File, FileKind, Metadata, Node, OpenFile, OpenFlags, Timestamp};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};

/// Linux's magic number of the file system `mqueue`.
const MAGIC: u64 = 0x1980_0202;
/// The length in bytes that Linux reports for the file of a message queue.
const LENGTH: u64 = 80;

/// The file behind the descriptor of a message queue.
#[derive(Debug)]
pub(super) struct QueueFile(pub(super) Arc<MessageQueue>);

impl MessageQueue {
    /// Returns a new open file for the queue, with the flags `flags`. Checks no permissions.
    pub fn to_file(self: &Arc<Self>, flags: OpenFlags) -> Arc<OpenFile> {
        let file = Arc::new(QueueFile(self.clone()));
        OpenFile::new(self.clone(), file, None, flags)
    }

    /// Returns the message queue behind `file`.
    ///
    /// # Errors
    /// Fails with `EBADF` if `file` is no message queue.
    pub fn of(file: &OpenFile) -> Result<Arc<Self>, Errno> {
        let queue = file.file().downcast::<QueueFile>();
        queue.map(|queue| queue.0.clone()).ok_or(Errno::EBADF)
    }
}

impl File for QueueFile {
    fn read(&self, to: &mut dyn ByteSink, offset: &mut u64, _: OpenFlags) -> SysResult {
        let (bytes, notify, signal, pid) = self.0.status();
        let text =
            format!("QSIZE:{bytes:<10} NOTIFY:{notify:<5} SIGNO:{signal:<5} NOTIFY_PID:{pid:<6}\n");
        let from = usize::try_from(*offset).unwrap_or(usize::MAX);
        let rest = text.as_bytes().get(from..).unwrap_or_default();
        let count = if rest.is_empty() { 0 } else { to.put(rest)? };
        *offset += count as u64;
        let now = Timestamp::now();
        self.0.with_attributes(|attributes| {
            attributes.accessed = now;
            attributes.changed = now;
        });
        Ok(count)
    }

    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }

    fn poll(&self) -> PollMask {
        self.0.ready()
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.0.notifier.clone())
    }

    fn descriptor_closed(&self) {
        self.0.unregister();
    }
}

impl Node for MessageQueue {
    fn id(&self) -> NodeId {
        self.file_id()
    }
    fn kind(&self) -> FileKind {
        FileKind::Regular
    }
    fn metadata(&self) -> Metadata {
        let attributes = self.with_attributes(|attributes| *attributes);
        Metadata {
            id: self.file_id(),
            kind: FileKind::Regular,
            permissions: attributes.permissions,
            links: self.name().1.into(),
            uid: attributes.uid,
            gid: attributes.gid,
            rdev: 0,
            size: LENGTH,
            blocks: 0,
            accessed: attributes.accessed,
            modified: attributes.modified,
            changed: attributes.changed,
        }
    }
    fn fs_stats(&self) -> FsStats {
        FsStats {
            magic: MAGIC,
            blocks: 0,
            free_blocks: 0,
            files: 0,
            free_files: 0,
            flags: 0,
        }
    }
    fn open(self: Arc<Self>, _: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        Ok(Arc::new(QueueFile(self)))
    }
    fn set_size(&self, _: u64) -> Result<(), Errno> {
        // As on Linux this changes nothing.
        Ok(())
    }
    fn change(&self, change: &AttributeChange) -> Result<(), Errno> {
        self.with_attributes(|attributes| {
            let Attributes {
                permissions,
                uid,
                gid,
                accessed,
                modified,
                changed,
            } = attributes;
            change.check(*permissions, *uid, *gid)?;
            *permissions = change.permissions.unwrap_or(*permissions) & 0o7777;
            *uid = change.uid.unwrap_or(*uid);
            *gid = change.gid.unwrap_or(*gid);
            *accessed = change.accessed.unwrap_or(*accessed);
            *modified = change.modified.unwrap_or(*modified);
            *changed = Timestamp::now();
            Ok(())
        })
    }
    fn label(&self) -> Option<Vec<u8>> {
        let (name, has_name) = self.name();
        let mut label = Vec::from(&b"/"[..]);
        label.extend_from_slice(name);
        if !has_name {
            label.extend_from_slice(b" (deleted)");
        }
        Some(label)
    }
}
