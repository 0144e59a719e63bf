//! `/proc`.

mod boot_knobs;
mod facts;
mod host_pressure;
mod ipc_knobs;
mod locks;
mod memory;
mod net;
mod net_sysctl;
mod pid;
mod pressure;
mod scheduling;
mod statistics;
mod subject;
mod sysctl;
mod system;
mod sysvipc;
mod triggers;
mod writeback_knobs;

use crate::fs::changes::{Changes, Watched};
use crate::fs::directory::{Listing, OpenDirectory};
use crate::fs::node::{DirEntry, FsStats, NewNode, NodeId};
use crate::fs::synthetic::{Directory, FIRST, Synthetic, list_entries};
use crate::fs::{self, File, FileKind, Metadata, Node, NodeRef, OpenFlags, PollMask, devices};
use crate::process::{self, TaskRef};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use machine::arch::BootInfo;
use machine::sched;

pub use boot_knobs::apply_boot_line;
pub use pid::process_of;
pub use subject::is_of_process;
pub use system::boot_line;

/// The changes of `/proc/swaps`, which never changes: swap is not supported.
static NO_CHANGES: Changes = Changes::new();

/// Linux's magic number of procfs.
const MAGIC: u64 = fs::synthetic::PROC_MAGIC;
/// The offset of the processes in a listing, behind the fixed entries: process `PID` is at
/// `PID_OFFSET + PID`.
const PID_OFFSET: u64 = 1 << 16;

/// The root of `/proc`: the fixed entries, and a directory for each process.
struct Root {
    fixed: Arc<Directory>,
    fs: Arc<Synthetic>,
    above: Weak<dyn Node>,
    this: Weak<Self>,
}

/// Builds `/proc`, to be mounted in the directory `above`. Returns its root.
pub(super) fn build(above: &NodeRef, boot: &'static BootInfo) -> NodeRef {
    system::set_boot_line(boot.cmdline);
    let fs = Synthetic::new(devices::PROC, MAGIC, Errno::ENOENT);
    let fixed = Directory::new(&fs, Some(Arc::downgrade(above)), b"proc");
    fixed.add_all(memory::ENTRIES);
    fixed.add_all(system::ENTRIES);
    fixed.add_all(sysctl::ENTRIES);
    fixed.add_all(scheduling::ENTRIES);
    fixed.add_all(facts::ENTRIES);
    fixed.add_all(ipc_knobs::ENTRIES);
    fixed.add_all(writeback_knobs::ENTRIES);
    let always = PollMask::READABLE | PollMask::WRITABLE;
    for (entry, changes) in sysctl::WATCHED {
        let watched = Watched::new(Arc::new(entry), changes, always);
        fixed.add(entry.path, Arc::new(watched));
    }
    let swaps = Watched::new(Arc::new(memory::SWAPS), &NO_CHANGES, PollMask::READABLE);
    fixed.add(memory::SWAPS.path, Arc::new(swaps));
    fixed.add_all(super::hugepages::PROC);
    fixed.add_all(sysvipc::ENTRIES);
    fixed.add_all(net_sysctl::ENTRIES);
    fixed.add_link("self", || {
        Ok(format!("{}", walker()?.process().pid()).into_bytes())
    });
    fixed.add_link("thread-self", || {
        let task = walker()?;
        Ok(format!("{}/task/{}", task.process().pid(), task.tid()).into_bytes())
    });
    host_pressure::add(&fixed, boot);
    pressure::add(&fixed, boot);
    net::build(&fs);
    fixed.add_link("net", || Ok(b"self/net".to_vec()));
    fixed.add_link("mounts", || Ok(b"self/mounts".to_vec()));
    Arc::new_cyclic(|this| Root {
        fixed,
        fs,
        above: Arc::downgrade(above),
        this: this.clone(),
    })
}

/// Returns the task that walks a path.
///
/// # Errors
/// Fails with `ENOENT` if there are no tasks yet, when the path is that of a file which the host
/// packed.
fn walker() -> Result<TaskRef, Errno> {
    if sched::started() {
        Ok(process::current())
    } else {
        Err(Errno::ENOENT)
    }
}

impl Node for Root {
    fn id(&self) -> NodeId {
        self.fixed.id()
    }
    fn kind(&self) -> FileKind {
        FileKind::Directory
    }
    fn metadata(&self) -> Metadata {
        let metadata = self.fixed.metadata();
        let processes = process::task::table::process_count();
        Metadata {
            links: metadata.links + u32::try_from(processes).unwrap_or(0),
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
        if let Some(node) = self.fixed.get(name) {
            return Ok(node);
        }
        let pid = subject::parse_number(name).ok_or(Errno::ENOENT)?;
        let root: Arc<dyn Node> = self.this.upgrade().ok_or(Errno::ENOENT)?;
        pid::directory(&self.fs, root, pid).ok_or(Errno::ENOENT)
    }
    fn create(&self, _: &[u8], _: NewNode<'_>, _: Beginning) -> Result<NodeRef, Errno> {
        // As on Linux, where the lookup of a new name fails before the creation.
        Err(Errno::ENOENT)
    }
    fn parent(&self) -> Option<NodeRef> {
        self.above.upgrade()
    }
    fn keeps_entries(&self) -> bool {
        // Unlike here, the entries of a process's directory do not keep their identity.
        true
    }
    fn name(&self) -> Box<[u8]> {
        self.fixed.name()
    }
}

impl Listing for Root {
    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        if *offset < PID_OFFSET {
            let whole =
                fs::list_dots(self, offset, emit) && list_entries(&self.fixed, offset, emit);
            if !whole {
                return Ok(());
            }
            debug_assert!(*offset <= FIRST + self.fixed.len() as u64);
            *offset = PID_OFFSET;
        }
        let from = u32::try_from(*offset - PID_OFFSET).unwrap_or(u32::MAX);
        let mut next = from;
        while let Some(process) = process::task::next_process(next) {
            let pid = process.pid();
            let name: Vec<u8> = format!("{pid}").into_bytes();
            let entry = DirEntry {
                name: &name,
                inode: u64::from(pid) << subject::PID_SHIFT,
                kind: FileKind::Directory,
                next: PID_OFFSET + u64::from(pid) + 1,
            };
            if !emit(&entry) {
                return Ok(());
            }
            *offset = entry.next;
            next = pid + 1;
        }
        Ok(())
    }
}
