//! Open folders of a volume. The host is asked for the names once, when a listing begins.

use super::super::file::{File, Seeks};
use super::super::flags::{FileKind, OpenFlags};
use super::super::io::ByteSink;
use super::super::node::{DirEntry, list_dots};
use super::node::HostNode;
use crate::drivers::volume::{self, Opcode, Request};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use machine::sync::Mutex;

/// The offset of the first name, behind `.` and `..`.
const FIRST: u64 = 2;

struct Name {
    name: Box<[u8]>,
    inode: u64,
    kind: FileKind,
}

/// An open folder.
pub(super) struct OpenDirectory {
    node: Arc<HostNode>,
    names: Mutex<Option<Vec<Name>>>,
}

impl OpenDirectory {
    /// Opens the folder `node`. The host is asked for the names at the first listing.
    pub(super) fn new(node: Arc<HostNode>) -> Self {
        Self {
            node,
            names: Mutex::new(None),
        }
    }

    fn ask(&self) -> Result<Vec<Name>, Errno> {
        let mut names = Vec::new();
        let mut from = 0;
        // Ends: `from` grows.
        loop {
            from = volume::list(self.node.handle, from, |entry| {
                names.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                names.push(Name {
                    name: entry.name.into(),
                    // In the answer to a listing, this field has the inode number.
                    inode: entry.attributes.version,
                    kind: FileKind::from_mode(entry.attributes.mode).ok_or(Errno::EIO)?,
                });
                Ok(())
            })?;
            if from == 0 {
                return Ok(names);
            }
        }
    }
}

impl File for OpenDirectory {
    fn read(&self, _: &mut dyn ByteSink, _: &mut u64, _: OpenFlags) -> SysResult {
        Err(Errno::EISDIR)
    }

    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }

    fn sync(&self) -> Result<(), Errno> {
        volume::done(&Request::new(Opcode::Sync, self.node.handle))
    }

    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let mut names = self.names.lock();
        if *offset == 0 || names.is_none() {
            *names = Some(self.ask()?);
        }
        if !list_dots(&*self.node, offset, emit) {
            return Ok(());
        }
        let first = usize::try_from(*offset - FIRST).unwrap_or(usize::MAX);
        let names = names.as_ref().and_then(|names| names.get(first..));
        for name in names.unwrap_or_default() {
            let entry = DirEntry {
                name: &name.name,
                inode: name.inode,
                kind: name.kind,
                next: *offset + 1,
            };
            if !emit(&entry) {
                break;
            }
            *offset += 1;
        }
        Ok(())
    }
}
