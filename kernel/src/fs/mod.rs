//! Files: the tree, what is open, and what stands behind it.
//!
//! ```text
//! FileTable --fd--> OpenFile (offset, flags) --> File (reads, writes, polls)
//!                       |
//! path --lookup-->    Node (name, attributes, directory entries) --open--> File
//! ```
//! A [`Node`] stands in the tree, a [`File`] is what one or more opens of it made, an [`OpenFile`]
//! is what descriptors share. There is one tree: a root in memory filled from the initramfs, and
//! `/tmp`, `/dev`, `/proc` and `/sys` mounted in it for good.

pub mod anonymous;
pub mod block;
pub mod context;
pub mod dev;
pub mod epoll;
pub mod eventfd;
pub mod file;
pub mod flags;
pub mod initramfs;
pub mod io;
pub mod locks;
pub mod lookup;
pub mod message;
pub mod node;
pub mod pipe;
pub mod poll;
pub mod select;
pub mod socket;
pub mod stdio;
pub mod synthetic;
pub mod table;
pub mod text;
pub mod timerfd;
pub mod tmpfs;

pub use context::Context;
pub use file::{File, OpenFile, Place};
pub use flags::{FileKind, OpenFlags};
pub use io::ByteSink;
pub use lookup::open_path;
pub use node::{Metadata, Node, NodeRef, Timestamp};
pub use poll::PollMask;
pub use table::FileTable;

use core::sync::atomic::{AtomicU64, Ordering};
use io::SliceSink;
use logic::errno::Errno;
use machine::arch::{BootInfo, clock};
use machine::memory::{self, PAGE_SIZE};
use machine::sync::Once;
use node::DirEntry;
use tmpfs::Tmpfs;

/// Device numbers of the file systems: minors of major 0, as Linux gives to those without a device.
pub mod devices {
    /// `/`.
    pub const ROOT: u64 = 1;
    /// `/tmp`.
    pub const TMP: u64 = 2;
    /// `/dev`.
    pub const DEV: u64 = 3;
    /// `/proc`.
    pub const PROC: u64 = 4;
    /// `/sys`.
    pub const SYS: u64 = 5;
    /// Files that are in no directory: pipes, events, timers.
    pub const ANONYMOUS: u64 = 6;
    /// Memory files.
    pub const MEMFD: u64 = 7;
}
use devices::ANONYMOUS as ANONYMOUS_DEVICE;

static ROOT: Once<NodeRef> = Once::new();
static MEMFD: Once<alloc::sync::Arc<Tmpfs>> = Once::new();
static NEXT_ANONYMOUS: AtomicU64 = AtomicU64::new(1);

/// Builds the tree. Memory and the clock must work already.
pub fn init(boot: &'static BootInfo) {
    stdio::init(boot);
    // As Linux's tmpfs: up to half of RAM each.
    let half_of_ram = memory::allocator().stats().managed_frames / 2;
    let root: NodeRef = Tmpfs::new(devices::ROOT, half_of_ram).make_root(None, b"", 0o755);
    assert!(ROOT.set(root.clone()).is_ok(), "files are set up twice");
    let _ = MEMFD.set(Tmpfs::new(devices::MEMFD, half_of_ram));
    let tmp: NodeRef = Tmpfs::new(devices::TMP, half_of_ram).make_root(Some(&root), b"tmp", 0o1777);
    block::init();
    let dev: NodeRef = Tmpfs::new(devices::DEV, half_of_ram).make_root(Some(&root), b"dev", 0o755);
    let built = dev::populate(&dev)
        .and_then(|()| mount(&root, b"tmp", tmp))
        .and_then(|()| mount(&root, b"dev", dev));
    if let Err(error) = built {
        panic!("the tree of files cannot be built: {error}");
    }
}

/// Unpacks the initramfs into the tree; the directories that others mount there exist by then.
pub fn unpack(boot: &'static BootInfo) {
    if let Some(initrd) = boot.initrd {
        initramfs::unpack(initrd, &root());
    }
}

/// Mounts the file system with root `top` at `name` in the tree's root.
///
/// # Errors
/// `EEXIST`, `ENOMEM`.
pub fn mount(root: &NodeRef, name: &[u8], top: NodeRef) -> Result<(), Errno> {
    let point = root.create(name, node::NewNode::Directory, 0o755)?;
    point.as_tmpfs().ok_or(Errno::EINVAL)?.cover(top)
}

/// The root of the tree.
pub fn root() -> NodeRef {
    match ROOT.get() {
        Some(root) => root.clone(),
        None => panic!("files are used before they are set up"),
    }
}

/// The file system of files without a name.
pub fn memfd() -> Result<&'static alloc::sync::Arc<Tmpfs>, Errno> {
    MEMFD.get().ok_or(Errno::ENOSYS)
}

fn next_anonymous_inode() -> u64 {
    // Relaxed: only the number itself matters.
    NEXT_ANONYMOUS.fetch_add(1, Ordering::Relaxed)
}

/// The wall clock's time.
pub fn now() -> Timestamp {
    const SECOND: u64 = 1_000_000_000;
    let nanos = clock::now().saturating_add(clock::realtime_offset()).0;
    Timestamp {
        seconds: (nanos / SECOND).cast_signed(),
        // A remainder below a billion fits.
        nanos: u32::try_from(nanos % SECOND).unwrap_or(0),
    }
}

/// Lets others run between two pieces of long work, once every megabyte of it; `done` counts bytes.
/// No lock may be held.
fn breathe(done: usize) {
    const EVERY: usize = 1 << 20;
    if done % EVERY < PAGE_SIZE && done >= EVERY && machine::sched::started() {
        machine::sched::cond_resched();
    }
}

/// Fills `buffer` from `position` of a regular file; for exec.
///
/// # Errors
/// `ENOEXEC` when the file ends before.
pub fn read_exact_at(file: &OpenFile, position: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    let wanted = buffer.len();
    let mut sink = SliceSink::new(buffer);
    let mut offset = position;
    while sink.room() > 0 {
        if file.file().read(&mut sink, &mut offset, file.flags())? == 0 {
            return Err(Errno::ENOEXEC);
        }
    }
    debug_assert!(offset == position + wanted as u64);
    Ok(())
}

/// Lists `.` and `..` of `node`, if `offset` has not passed them; false when `emit` had enough.
pub fn list_dots(
    node: &dyn Node,
    offset: &mut u64,
    emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
) -> bool {
    let own = node.id().inode;
    let above = node.parent().map_or(own, |parent| parent.id().inode);
    for (at, name, inode) in [(0, &b"."[..], own), (1, b"..", above)] {
        if *offset > at {
            continue;
        }
        let entry = DirEntry {
            name,
            inode,
            kind: FileKind::Directory,
            next: at + 1,
        };
        if !emit(&entry) {
            return false;
        }
        *offset = at + 1;
    }
    true
}
