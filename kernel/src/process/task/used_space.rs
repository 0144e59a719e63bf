//! Counts the tasks that use an address space, and cleans up after the last one.

use crate::fs::aio;
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use core::ops::Deref;

/// A task's use of an address space. The drop of the last use ends the space's contexts of
/// asynchronous requests (`io_setup(2)`), even if other references to the space remain. Drop it
/// only where the task may block.
pub(crate) struct UsedSpace(Arc<AddressSpace>);

impl UsedSpace {
    /// Returns the use of `space` by one more task. It counts until it is dropped.
    pub(crate) fn new(space: Arc<AddressSpace>) -> Self {
        space.add_task();
        Self(space)
    }
}

impl Deref for UsedSpace {
    type Target = Arc<AddressSpace>;
    #[inline]
    fn deref(&self) -> &Arc<AddressSpace> {
        &self.0
    }
}

impl Drop for UsedSpace {
    fn drop(&mut self) {
        if self.0.remove_task() {
            aio::end_all(&self.0);
        }
    }
}
