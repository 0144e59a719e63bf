//! Address spaces that tasks use, and what ends with the last of these tasks.

use crate::fs::aio;
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use core::ops::Deref;

/// A task's use of an address space. With the last one the contexts of asynchronous requests end,
/// even if others still look at the space. Drop it where the task may wait.
pub(crate) struct UsedSpace(Arc<AddressSpace>);

impl UsedSpace {
    /// Counts one more task that uses `space`.
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
