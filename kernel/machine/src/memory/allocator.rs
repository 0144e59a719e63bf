//! The kernel's frame allocator.

use crate::arch::once::Once;
use ebb_mm::{Allocator, Events};

static ALLOCATOR: Once<Allocator<'static>> = Once::new();

/// What hears of memory that the host could have.
static EVENTS: Once<&'static dyn Events> = Once::new();

/// Sets it.
pub(super) fn set_events(events: &'static dyn Events) {
    // Called once, at boot.
    let _ = EVENTS.set(events);
}

/// Memory became free that the allocator does not know of.
pub(super) fn report_wanted() {
    if let Some(events) = EVENTS.get() {
        events.report_requested();
    }
}

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
