//! The caches of all disks.

use super::cache::Cache;
use crate::drivers::disk::MAX_DISKS;
use machine::sync::Once;

/// One a disk, by its number.
pub(super) static CACHES: [Once<Cache>; MAX_DISKS] = [const { Once::new() }; MAX_DISKS];

/// Those there are.
pub(super) fn caches() -> impl Iterator<Item = &'static Cache> {
    CACHES.iter().filter_map(Once::get)
}
