//! The tree's root, and the file system of what stands in no tree.

use super::node::NodeRef;
use super::tmpfs::Tmpfs;
use alloc::sync::Arc;
use logic::errno::Errno;
use machine::memory::hugetlb::PageSize;
use machine::sync::Once;

static ROOT: Once<NodeRef> = Once::new();
static MEMFD: Once<Arc<Tmpfs>> = Once::new();
/// By the size of their pages.
static HUGE_MEMFD: Once<[Arc<Tmpfs>; PageSize::ALL.len()]> = Once::new();

/// Sets the root, and the file system of files without a name.
///
/// # Panics
/// If that was done before.
pub(super) fn set(root: NodeRef, nameless: Arc<Tmpfs>, huge: [Arc<Tmpfs>; PageSize::ALL.len()]) {
    let nameless = MEMFD.set(nameless).is_ok() && HUGE_MEMFD.set(huge).is_ok();
    assert!(ROOT.set(root).is_ok() && nameless, "files are set up twice");
}

/// The root of the tree.
pub fn root() -> NodeRef {
    match ROOT.get() {
        Some(root) => root.clone(),
        None => panic!("files are used before they are set up"),
    }
}

/// The file system of files of huge pages of a size without a name.
pub fn huge_memfd(size: PageSize) -> Result<&'static Arc<Tmpfs>, Errno> {
    let homes = HUGE_MEMFD.get().ok_or(Errno::ENOSYS)?;
    Ok(&homes[size as usize])
}

/// The file system of files without a name.
pub fn memfd() -> Result<&'static Arc<Tmpfs>, Errno> {
    MEMFD.get().ok_or(Errno::ENOSYS)
}
