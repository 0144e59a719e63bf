//! The root of the tree, and the file systems of files that are in no tree.

use super::node::NodeRef;
use super::tmpfs::Tmpfs;
use alloc::sync::Arc;
use logic::errno::Errno;
use machine::memory::hugetlb::PageSize;
use machine::sync::Once;

static ROOT: Once<NodeRef> = Once::new();
static MEMFD: Once<Arc<Tmpfs>> = Once::new();
/// The file systems of `memfd_create` with `MFD_HUGETLB`, one for each page size.
static HUGE_MEMFD: Once<[Arc<Tmpfs>; PageSize::ALL.len()]> = Once::new();

/// Sets the root and the file systems of files without a name.
///
/// # Panics
/// Panics if they were set before.
pub(super) fn set(root: NodeRef, nameless: Arc<Tmpfs>, huge: [Arc<Tmpfs>; PageSize::ALL.len()]) {
    let nameless = MEMFD.set(nameless).is_ok() && HUGE_MEMFD.set(huge).is_ok();
    assert!(ROOT.set(root).is_ok() && nameless, "files are set up twice");
}

/// Returns the root of the tree.
pub fn root() -> NodeRef {
    match ROOT.get() {
        Some(root) => root.clone(),
        None => panic!("files are used before they are set up"),
    }
}

/// Returns the file system of files without a name that have huge pages of `size`. Fails with
/// `ENOSYS` before the tree is built.
pub fn huge_memfd(size: PageSize) -> Result<&'static Arc<Tmpfs>, Errno> {
    let homes = HUGE_MEMFD.get().ok_or(Errno::ENOSYS)?;
    Ok(&homes[size as usize])
}

/// Returns the file system of files without a name. Fails with `ENOSYS` before the tree is built.
pub fn memfd() -> Result<&'static Arc<Tmpfs>, Errno> {
    MEMFD.get().ok_or(Errno::ENOSYS)
}
