//! The caches of all disks.

use super::cache::Cache;
use crate::drivers::disk::MAX_DISKS;
use machine::sync::Once;

/// The cache of each disk, by the number of the disk.
pub(super) static CACHES: [Once<Cache>; MAX_DISKS] = [const { Once::new() }; MAX_DISKS];

/// Returns the caches that exist.
pub(super) fn caches() -> impl Iterator<Item = &'static Cache> {
    CACHES.iter().filter_map(Once::get)
}
