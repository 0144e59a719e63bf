//! Tests of memory tables that are refused, and of memory that its file does not back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::image::{Image, Location, Spec};
use crate::io::Queue;
use crate::knobs::Knobs;
use crate::vhost_user::budget::MAX_DISK_MEMORY_BYTES;
use rustix::fs::{MemfdFlags, fstatfs, memfd_create};
use vm_memory::Bytes;

fn device() -> Device {
    let image = Image::open(&Spec {
        location: Location::Ram { bytes: 1 << 20 },
        read_only: false,
        cached: false,
    });
    let knobs = Arc::new(Knobs::default());
    Device::new(Engine::new(image.unwrap(), "disk", knobs, Queue::calls()).unwrap())
}

/// Sets a memory table with regions of these sizes, each from the beginning of `file`. Fails with
/// the reason if it is refused.
fn set(device: &mut Device, file: &File, sizes: &[u64]) -> std::result::Result<(), String> {
    let mut at = 0;
    let regions = sizes.iter().map(|bytes| {
        let region = VhostUserMemoryRegion::new(at, *bytes, at, 0);
        at += bytes;
        region
    });
    let regions: Vec<_> = regions.collect();
    let files = sizes.iter().map(|_| file.try_clone().unwrap());
    match device.set_mem_table(&regions, files.collect()) {
        Ok(()) => Ok(()),
        Err(MessageError::Refused(why) | MessageError::Disconnect(why)) => Err(why.to_string()),
    }
}

#[test]
fn guest_memory_of_one_disk_has_a_bound() {
    let file = File::from(memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(1 << 46).unwrap();
    let mut device = device();
    let half = MAX_DISK_MEMORY_BYTES / 2;
    for sizes in [&[MAX_DISK_MEMORY_BYTES + 4096][..], &[half, half, 4096]] {
        let why = set(&mut device, &file, sizes).unwrap_err();
        let (sum, limit) = (MAX_DISK_MEMORY_BYTES + 4096, MAX_DISK_MEMORY_BYTES);
        let named = why.contains(&sum.to_string()) && why.contains(&limit.to_string());
        assert!(named, "{why}");
    }
    // Each table replaces the one before.
    for _ in 0..100 {
        set(&mut device, &file, &[1 << 30, 1 << 30]).unwrap();
    }
    assert!(device.share.is_some());
    device.reset().unwrap();
    assert!(device.share.is_none());
}

#[test]
fn memory_of_huge_pages_is_whole_pages() {
    truncated::install().unwrap();
    let Ok(file) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else {
        println!("there are no huge pages here");
        return;
    };
    let file = File::from(file);
    let page = u64::try_from(fstatfs(&file).unwrap().f_bsize).unwrap();
    file.set_len(2 * page).unwrap();
    let mut device = device();
    for bytes in [4096, page - 4096, page + 4096] {
        let why = set(&mut device, &file, &[bytes]).unwrap_err();
        assert!(why.contains(&format!("pages of {page}")), "{why}");
    }
    set(&mut device, &file, &[page]).unwrap();
    // Behind the end of the file there is no page, whether or not the host has huge ones.
    file.set_len(0).unwrap();
    let memory = device.queues.memory.clone().unwrap();
    let read = memory.read_obj::<u64>(GuestAddress(page - 8));
    assert_eq!(read.unwrap(), 0);
    assert!(truncated::take_lost());
    device.reset().unwrap();
}

#[test]
fn memory_of_huge_pages_that_there_are_none_of_is_lost_and_told_of() {
    truncated::install().unwrap();
    let pool = std::fs::read_to_string("/proc/meminfo").unwrap();
    let empty = pool.lines().any(|line| {
        let (name, count) = line.split_once(':').unwrap_or_default();
        name == "HugePages_Total" && count.trim() == "0"
    });
    let file = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB);
    let (Ok(file), true) = (file, empty) else {
        println!("there are huge pages here, or no such memory");
        return;
    };
    let file = File::from(file);
    let page = u64::try_from(fstatfs(&file).unwrap().f_bsize).unwrap();
    file.set_len(page).unwrap();
    let mut device = device();
    set(&mut device, &file, &[page]).unwrap();
    let memory = device.queues.memory.clone().unwrap();
    assert!(!truncated::take_lost());
    memory.write_obj(7_u64, GuestAddress(8)).unwrap();
    assert!(truncated::take_lost());
    assert_eq!(memory.read_obj::<u64>(GuestAddress(16)).unwrap(), 0);
    device.reset().unwrap();
}
