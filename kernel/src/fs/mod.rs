//! Files: the tree, open files, and the objects behind them.
//!
//! ```text
//! FileTable --fd--> OpenFile (offset, flags) --> File (reads, writes, polls)
//!                       |
//! path --lookup-->    Node (name, attributes, directory entries) --open--> File
//! ```
//! A [`Node`] is in the tree. A [`File`] is the object that one or more opens of a node made.
//! Descriptors share an [`OpenFile`]. There is one tree, whose root is in memory and is filled from
//! the initramfs. `/tmp`, `/dev`, `/proc` and `/sys` are mounted in it for good. Programs can mount
//! more ([`mounts`]).

pub mod aio;
pub mod anonymous;
mod bind;
pub mod block;
pub mod changes;
pub mod cold;
pub mod context;
pub mod covers;
pub mod dev;
pub mod devices;
pub mod directory;
pub mod epoll;
pub mod eventfd;
pub mod file;
pub mod flags;
pub mod hostfs;
pub mod initramfs;
pub mod inotify;
pub mod io;
pub mod knob;
pub mod locks;
pub mod lookup;
mod mount_point;
pub mod mounts;
pub mod node;
pub mod owner;
pub mod permission;
pub mod pipe;
pub mod poll;
pub mod records;
pub mod select;
pub mod socket;
pub mod stdio;
pub mod synthetic;
pub mod table;
pub mod text;
pub mod timerfd;
pub mod tmpfs;
mod tree;
pub mod used;
pub mod viewpoint;
pub mod volume;
pub mod walk_rules;
pub mod watch;
pub mod xattr;

pub use context::Context;
pub use file::{File, OpenFile, Place, read_exact_at};
pub use flags::{FileKind, OpenFlags};
pub use lookup::open_path;
pub use node::{Metadata, Node, NodeRef, Timestamp, list_dots};
pub use poll::PollMask;
pub use table::FileTable;
pub use tree::{huge_memfd, memfd, root};

use ebb_wire::root::TMP_PARAMETER;
use machine::arch::BootInfo;
use machine::memory::BootArchive;
use machine::memory::hugetlb::PageSize;
use tmpfs::{Limits, Tmpfs};

/// Builds the tree: the root, `/tmp`, `/dev` and the file systems of files without a name. Memory
/// and the clock must work already.
pub fn init(boot: &'static BootInfo) {
    stdio::init(boot);
    let fs = Tmpfs::permanent(devices::ROOT, Limits::half_of_ram());
    let root: NodeRef = fs.make_root(None, b"", 0o755);
    tree::set(
        root.clone(),
        Tmpfs::nameless(devices::MEMFD),
        [
            Tmpfs::huge_nameless(devices::HUGE_MEMFD, PageSize::Mib2),
            Tmpfs::huge_nameless(devices::GIGANTIC_MEMFD, PageSize::Gib1),
        ],
    );
    let (tmp, dev) = (
        Tmpfs::permanent(devices::TMP, Limits::half_of_ram()),
        Tmpfs::permanent(devices::DEV, Limits::half_of_ram()),
    );
    let tmp_top: NodeRef = tmp.make_root(Some(&root), b"tmp", 0o1777);
    let dev_top: NodeRef = dev.make_root(Some(&root), b"dev", 0o755);
    block::init();
    let mount = mounts::mount_permanent;
    let built = mounts::enter_permanent("tmpfs", b"tmpfs", root.clone(), None, Some(fs))
        .and_then(|()| dev::populate(&dev_top))
        .and_then(|()| mount("tmpfs", &root, b"tmp", tmp_top, Some(tmp)))
        .and_then(|()| mount("devtmpfs", &root, b"dev", dev_top, Some(dev)));
    if let Err(error) = built {
        panic!("the tree of files cannot be built: {error}");
    }
}

/// Unpacks the initramfs into the tree. Makes the host's files appear below the root and `/tmp` if
/// the host offers them. The directories that other modules mount in the tree must exist.
pub fn unpack(boot: &'static BootInfo) {
    if let Some(archive) = BootArchive::claim() {
        initramfs::unpack(archive, &root());
    }
    if crate::drivers::root::is_there() {
        show_below(root(), b"");
        if boot.option(TMP_PARAMETER).is_some()
            && let Some(top) = root()
                .lookup(b"tmp")
                .ok()
                .and_then(|node| node.covered_by())
        {
            show_below(top, b"tmp");
        }
    }
}

/// Makes the folder `folder` of the host appear below `top`, the root of a file system in memory.
fn show_below(top: NodeRef, folder: &[u8]) {
    if let Some(top) = node::downcast::<tmpfs::TmpNode>(top) {
        top.show_below(folder);
    }
}

/// Drops all unused pages of files that can be read again from the host or a disk.
pub fn drop_pages() {
    tmpfs::drop_clean();
    hostfs::drop_clean();
    block::drop_all();
}

/// Drops all unused pages of files that can be read again from the host or a disk, and unused
/// entries of directories that the host still has.
pub fn drop_caches() {
    drop_pages();
    tmpfs::forget_unused();
}
