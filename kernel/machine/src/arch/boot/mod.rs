//! Boots the first CPU: from the PVH entry to the kernel's `main`.

mod entry;
mod pvh;

use super::boot_info::BootInfo;
use super::layout::PhysRange;
use super::{clock, features, paging, percpu, traps};
use core::cell::UnsafeCell;
use pvh::Handover;

/// A static that the first CPU fills before any other CPU runs.
struct FirstCpuOnly<T>(UnsafeCell<T>);

// SAFETY: written by the first CPU alone, read by all only afterwards.
unsafe impl<T> Sync for FirstCpuOnly<T> {}

static HANDOVER: FirstCpuOnly<Handover> = FirstCpuOnly(UnsafeCell::new(Handover::empty()));
static BOOT: FirstCpuOnly<Option<BootInfo>> = FirstCpuOnly(UnsafeCell::new(None));

/// The first Rust code. Runs on the boot stack and the early page tables, and nothing is
/// initialized. `start_info` is the physical address of the PVH start info.
extern "C" fn start(start_info: u64) -> ! {
    clock::start();
    // SAFETY: first CPU, once.
    unsafe {
        percpu::install_first();
        traps::load_idt();
    }
    if let Err(missing) = features::detect() {
        panic!("this CPU lacks {missing}; give QEMU another -cpu");
    }
    // SAFETY: the early tables map the image writable one to one.
    unsafe { features::patch_smap_sites() };
    features::switch_on();
    // SAFETY: there is no other reference to it yet.
    let handover = unsafe { &mut *HANDOVER.0.get() };
    if let Err(error) = handover.read(start_info) {
        panic!("the boot loader's PVH start info at {start_info:#x} is unusable: {error:?}");
    }
    let image = paging::image();
    let ram = &handover.ram[..handover.ranges];
    let Some(home) = ram
        .iter()
        .find(|r| r.contains(image.start) && r.contains(image.end))
    else {
        panic!("the kernel at {image:x?} is not in the RAM of the memory map: {ram:x?}");
    };
    let limit = match handover.initrd {
        Some(initrd) if initrd.start >= image.end => home.end.min(initrd.start),
        Some(initrd) if initrd.end > image.start => panic!("initrd {initrd:x?} lies on the kernel"),
        _ => home.end,
    };
    let mut carver = paging::Carver::new(limit);
    // SAFETY: once, here, with the stack in the image.
    unsafe { paging::build(&mut carver, ram, handover.low_end) };
    let boot = BootInfo {
        ram,
        cmdline: core::str::from_utf8(&handover.cmdline[..handover.cmdline_len]).unwrap_or(""),
        initrd: handover.initrd,
        kernel: PhysRange {
            start: image.start,
            end: carver.taken_end(),
        },
        max_address: ram.last().map_or(0, |r| r.end),
        rsdp: (handover.rsdp != 0).then_some(handover.rsdp),
    };
    traps::init_syscall();
    // SAFETY: written once, here; shared from now on.
    let boot = unsafe { (*BOOT.0.get()).insert(boot) };
    (crate::arch::entries::ENTRIES.main)(boot)
}
