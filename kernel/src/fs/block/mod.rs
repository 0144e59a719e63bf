//! Block devices: the disks of `drivers::disk` as files.
//!
//! | file | content |
//! |---|---|
//! | `cache`, `view` | the pages of a disk that are in memory, and mappings of them |
//! | `writeback` | when dirty pages are written to the disk |
//! | `memory` | how pages are dropped if memory is short |
//! | `file`, `direct`, `ioctl` | what programs do with `/dev/vda` |
//! | `tables` | `/sys/block`, `/proc/partitions` and similar files |
//!
//! Data that a program wrote is in the cache first. It reaches the disk by the thread `kflushd`,
//! `fsync`, the last close or the end of the VM. No page is kept of a disk that is not open.

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
use alloc::sync::{Arc, Weak};
use cache::Cache;
use caches::{CACHES, caches};
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use view::View;

/// The major number that virtio disks usually have on Linux.
pub const MAJOR: u64 = 254;
/// The minor numbers of a disk: one for itself and the others for partitions, which are not
/// supported.
const MINORS: u64 = 16;

/// Returns the major and the minor number of a disk.
fn device(number: usize) -> (u64, u64) {
    (MAJOR, number as u64 * MINORS)
}

/// Creates a cache for every disk.
pub(super) fn init() {
    for disk in disk::all() {
        let Some(slot) = CACHES.get(disk.number()) else {
            continue;
        };
        let _ = slot.set(Cache::new(disk, memory::make_room));
        if let Some(cache) = slot.get() {
            let readers = View::new(cache, false);
            let owner: Weak<View> = Arc::downgrade(&readers);
            cache.let_move(owner);
            let _ = cache.readers.set(readers);
            let _ = cache.writers.set(View::new(cache, true));
        }
    }
}

/// Starts the kernel thread `kflushd`, which writes dirty pages, if there is a disk. The scheduler
/// must be set up.
pub fn start_thread() {
    writeback::start();
}

/// Creates the nodes of the disks in `directory`, which is `/dev`. Fails with the error of creating
/// one.
pub(super) fn populate(directory: &NodeRef) -> Result<(), Errno> {
    for cache in caches() {
        let (major, minor) = device(cache.disk.number());
        let name = format!("{}", cache.disk.name());
        let node = NewNode::Block(devices::number(major, minor));
        directory.create(name.as_bytes(), node, Beginning::of_root(0o660))?;
    }
    Ok(())
}

/// Opens the disk with the device number `device_number` and returns its file.
///
/// # Errors
/// Fails with `ENXIO` if there is no such disk.
pub(super) fn open(device_number: u64) -> Result<Arc<dyn File>, Errno> {
    let cache = caches().find(|cache| {
        let (major, minor) = device(cache.disk.number());
        devices::number(major, minor) == device_number
    });
    Ok(Arc::new(file::OpenDisk::new(cache.ok_or(Errno::ENXIO)?)))
}

/// Makes stable what programs changed through mappings of disks (`msync`).
///
/// # Errors
/// Fails with `EIO` if a page could not be written, and with the error of flushing a disk.
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
