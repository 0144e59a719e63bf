//! Block devices: the disks of `drivers::disk` as files.
//!
//! | file | what |
//! |---|---|
//! | `cache`, `view` | the pages of a disk that memory has, and mappings of them |
//! | `writeback` | when changed pages go to the disk |
//! | `memory` | how pages are given up where memory is short |
//! | `file`, `direct`, `ioctl` | what programs do with `/dev/vda` |
//! | `tables` | `/sys/block`, `/proc/partitions` and their like |
//!
//! What a program wrote is in the cache until the thread `kflushd`, `fsync`, the last close or the
//! end of the VM has it written. Of a disk that nobody has open no page is kept.

mod cache;
mod caches;
mod direct;
pub mod dirty_limits;
mod file;
mod ioctl;
mod memory;
pub mod tables;
mod view;
mod writeback;

pub use memory::{drop_all, relieve};
pub use writeback::{set_interval_centis, sync_all, sync_for_the_last_time};

use super::devices;
use super::file::File;
use super::node::{NewNode, NodeRef};
use crate::drivers::disk::{self};
use alloc::format;
use alloc::sync::Arc;
use cache::Cache;
use caches::{CACHES, caches};
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use view::View;

/// The major number of virtio disks: what Linux gives them as a rule.
pub const MAJOR: u64 = 254;
/// Minor numbers of a disk: itself and its partitions, which are not read here.
const MINORS: u64 = 16;

/// The device number of a disk.
fn device(number: usize) -> (u64, u64) {
    (MAJOR, number as u64 * MINORS)
}

/// Gives every disk its cache.
pub(super) fn init() {
    for disk in disk::all() {
        let Some(slot) = CACHES.get(disk.number()) else {
            continue;
        };
        let _ = slot.set(Cache::new(disk, memory::make_room));
        if let Some(cache) = slot.get() {
            let _ = cache.readers.set(View::new(cache, false));
            let _ = cache.writers.set(View::new(cache, true));
        }
    }
}

/// Starts the thread that writes changed pages; when tasks can be made.
pub fn start_thread() {
    writeback::start();
}

/// Fills `/dev`.
pub(super) fn populate(directory: &NodeRef) -> Result<(), Errno> {
    for cache in caches() {
        let (major, minor) = device(cache.disk.number());
        let name = format!("{}", cache.disk.name());
        let node = NewNode::Block(devices::number(major, minor));
        directory.create(name.as_bytes(), node, Beginning::of_root(0o660))?;
    }
    Ok(())
}

/// Opens the disk with this device number.
pub(super) fn open(device_number: u64) -> Result<Arc<dyn File>, Errno> {
    let cache = caches().find(|cache| {
        let (major, minor) = device(cache.disk.number());
        devices::number(major, minor) == device_number
    });
    Ok(Arc::new(file::OpenDisk::new(cache.ok_or(Errno::ENXIO)?)))
}

/// Makes stable what programs changed through mappings: `msync`.
///
/// # Errors
/// `EIO` when something could not be written.
pub fn sync_mapped() -> Result<(), Errno> {
    for cache in caches().filter(|cache| cache.is_mapped()) {
        let before = cache.write_errors();
        cache.write_back(cache::ALL);
        cache.disk.flush()?;
        if cache.write_errors() != before {
            return Err(Errno::EIO);
        }
    }
    Ok(())
}
