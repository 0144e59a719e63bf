//! (landing)

/// Stands in until the heap lands.
struct NoHeap;
// SAFETY: never returns memory.
unsafe impl core::alloc::GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}
#[global_allocator]
static HEAP: NoHeap = NoHeap;
