//! The kernel's frame allocator.

use crate::arch::once::Once;
use ebb_mm::{Allocator, Events};

static ALLOCATOR: Once<Allocator<'static>> = Once::new();

/// The receiver of notifications about free memory to report to the host.
static EVENTS: Once<&'static dyn Events> = Once::new();

/// Makes `events` the receiver of the notifications that [`report_wanted`] sends. Called once, at
/// boot.
pub(super) fn set_events(events: &'static dyn Events) {
    let _ = EVENTS.set(events);
}

/// Notifies the receiver of [`set_events`] that a pool of huge pages has free pages to report to
/// the host. The allocator sends the notifications for its own free blocks itself.
pub(super) fn report_wanted() {
    if let Some(events) = EVENTS.get() {
        events.report_requested();
    }
}

/// Returns the frame allocator.
///
/// # Panics
/// If the allocator is not set up yet.
#[inline(always)]
pub fn allocator() -> &'static Allocator<'static> {
    match ALLOCATOR.get() {
        Some(allocator) => allocator,
        None => panic!("memory is used before it is set up"),
    }
}

/// Makes `allocator` the frame allocator that [`allocator`] returns.
///
/// # Panics
/// If the allocator was set before.
pub(super) fn set(allocator: Allocator<'static>) {
    assert!(ALLOCATOR.set(allocator).is_ok(), "memory is set up twice");
}
