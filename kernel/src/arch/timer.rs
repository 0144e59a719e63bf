//! This CPU's one-shot timer.

use super::clock::Nanos;

/// Sets this CPU's timer: `sched::on_timer()` runs at or soon after the deadline. `None` stops it.
/// A deadline in the past fires at once. Each call replaces the one before.
pub fn arm(deadline: Option<Nanos>) {
    let _ = deadline;
    unimplemented!()
}
