//! The kernel's frame allocator.

use crate::arch::once::Once;
use ebb_mm::Allocator;

static ALLOCATOR: Once<Allocator<'static>> = Once::new();

/// The frame allocator.
///
/// # Panics
/// Before it is set up.
#[inline(always)]
pub fn allocator() -> &'static Allocator<'static> {
    match ALLOCATOR.get() {
        Some(allocator) => allocator,
        None => panic!("memory is used before it is set up"),
    }
}

/// Sets it up.
///
/// # Panics
/// If that was done before.
pub(super) fn set(allocator: Allocator<'static>) {
    assert!(ALLOCATOR.set(allocator).is_ok(), "memory is set up twice");
}
