//! `/sys`: CPUs, the memory node, the loopback interface, and the knobs that Linux has there.

mod net;

use crate::drivers::{give_back, hint};
use crate::fs::knob::Store;
use crate::fs::node::NodeRef;
use crate::fs::synthetic::{Content, Directory, Entry, Synthetic};
use crate::fs::text::Text;
use crate::fs::{block, devices};
use crate::vm::compaction;
use crate::vm::khugepaged::knobs as khugepaged;
use alloc::format;
use alloc::sync::Arc;
use core::fmt::{Result as Written, Write};
use ebb_mm::{FreeAreas, Order};
use logic::errno::Errno;
use machine::arch::cpu_count;
use machine::memory::file_block::{self, SharedPolicy};
use machine::memory::hugetlb::PageSize;
use machine::memory::{self, huge, stats, zero_block};
use machine::sync::Once;

/// Linux's magic number of sysfs.
const MAGIC: u64 = 0x6265_6572;

const ENTRIES: &[Entry] = &[
    Entry::knob(
        "module/page_reporting/parameters/page_reporting_order",
        |text| writeln!(text, "{}", give_back::order()),
        Store::parameter(0, 10, give_back::set_order),
    ),
    Entry::knob(
        "module/page_hinting/parameters/page_hinting_order",
        |text| writeln!(text, "{}", give_back::hinting_order()),
        Store::parameter(0, 10, give_back::set_hinting_order),
    ),
    Entry::knob(
        "module/page_hinting/parameters/max_fgpt_entries",
        |text| writeln!(text, "{}", hint::limit()),
        Store::parameter(1, 1000, hint::set_limit),
    ),
    Entry::knob(
        "module/page_hinting/parameters/hyperlist_threshold",
        |text| writeln!(text, "{}", hint::threshold()),
        Store::parameter(1, 256, hint::set_threshold),
    ),
    Entry::file("module/page_alloc/parameters/shuffle", |text| {
        let on = memory::allocator().is_shuffled();
        writeln!(text, "{}", if on { 'Y' } else { 'N' })
    }),
    Entry::file("devices/system/cpu/online", cpu_list),
    Entry::file("devices/system/cpu/possible", cpu_list),
    Entry::file("devices/system/cpu/present", cpu_list),
    Entry::file("devices/system/cpu/offline", |text| writeln!(text)),
    Entry::file("devices/system/cpu/kernel_max", |text| {
        writeln!(text, "{}", machine::arch::MAX_CPUS - 1)
    }),
    Entry::file("devices/system/node/online", |text| writeln!(text, "0")),
    Entry::file("devices/system/node/possible", |text| writeln!(text, "0")),
    Entry::file("devices/system/node/has_cpu", |text| writeln!(text, "0")),
    Entry::file("devices/system/node/has_memory", |text| writeln!(text, "0")),
    Entry::file("devices/system/node/has_normal_memory", |text| {
        writeln!(text, "0")
    }),
    Entry::file("devices/system/node/node0/cpulist", cpu_list),
    Entry::file("devices/system/node/node0/cpumap", |text| {
        cpu_map(text, 0..cpu_count())
    }),
    Entry::file("devices/system/node/node0/distance", |text| {
        writeln!(text, "10")
    }),
    Entry::file("devices/system/node/node0/meminfo", node_meminfo),
    Entry::file("devices/system/node/node0/vmstat", node_vmstat),
    Entry::trigger(
        "devices/system/node/node0/compact",
        Store::Event(compaction::compact_all),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/enabled",
        |text| {
            choice(
                text,
                huge::Policy::ALL.map(huge::Policy::name),
                huge::policy().name(),
            )
        },
        Store::Name(huge::set_policy),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/defrag",
        |text| {
            choice(
                text,
                huge::Defrag::ALL.map(huge::Defrag::name),
                huge::defrag().name(),
            )
        },
        Store::Name(huge::set_defrag),
    ),
    Entry::file("kernel/debug/extfrag/unusable_index", |text| {
        indices(text, 0, |areas, order| areas.unusable_index(order).into())
    }),
    Entry::file("kernel/debug/extfrag/extfrag_index", |text| {
        indices(text, 2, |areas, order| {
            areas.fragmentation_index(order).into()
        })
    }),
    Entry::knob(
        "kernel/mm/transparent_hugepage/khugepaged/defrag",
        |text| writeln!(text, "{}", khugepaged::DEFRAG.get()),
        Store::Flag(|on| khugepaged::DEFRAG.set(on.into())),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
        |text| writeln!(text, "{}", khugepaged::SCAN_SLEEP.get()),
        Store::Count(|value| khugepaged::SCAN_SLEEP.set(value)),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs",
        |text| writeln!(text, "{}", khugepaged::ALLOC_SLEEP.get()),
        Store::Count(|value| khugepaged::ALLOC_SLEEP.set(value)),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/khugepaged/pages_to_scan",
        |text| writeln!(text, "{}", khugepaged::PAGES_TO_SCAN.get()),
        Store::Count(|value| khugepaged::PAGES_TO_SCAN.set(value)),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
        |text| writeln!(text, "{}", khugepaged::MAX_NONE.get()),
        Store::Count(|value| khugepaged::MAX_NONE.set(value)),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/khugepaged/max_ptes_shared",
        |text| writeln!(text, "{}", khugepaged::MAX_SHARED.get()),
        Store::Count(|value| khugepaged::MAX_SHARED.set(value)),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/khugepaged/max_ptes_swap",
        |text| writeln!(text, "{}", khugepaged::MAX_SWAP.get()),
        Store::Count(|value| khugepaged::MAX_SWAP.set(value)),
    ),
    Entry::file(
        "kernel/mm/transparent_hugepage/khugepaged/full_scans",
        |text| writeln!(text, "{}", khugepaged::full_scans()),
    ),
    Entry::file(
        "kernel/mm/transparent_hugepage/khugepaged/pages_collapsed",
        |text| writeln!(text, "{}", khugepaged::pages_collapsed()),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/shmem_enabled",
        |text| {
            choice(
                text,
                SharedPolicy::ALL.map(SharedPolicy::name),
                file_block::SHARED.get().name(),
            )
        },
        Store::ShortName(file_block::set_shared_policy),
    ),
    Entry::knob(
        "kernel/mm/transparent_hugepage/use_zero_page",
        |text| writeln!(text, "{}", u8::from(zero_block::is_used())),
        Store::Flag(|used| {
            zero_block::set_used(used);
            Ok(())
        }),
    ),
    Entry::file("kernel/mm/transparent_hugepage/hpage_pmd_size", |text| {
        writeln!(text, "{}", Order::PAGEBLOCK.frames() * 4096)
    }),
];

/// Shows the result of `index` for each order in each zone, in thousandths: as a number with three
/// decimals and `width` columns before the point.
fn indices(text: &mut Text, width: usize, index: fn(&FreeAreas, Order) -> i64) -> Written {
    for zone in stats::zones() {
        let name = stats::zone_name(stats::zone(zone).kind);
        write!(text, "Node 0, zone {name:>8} ")?;
        let areas = stats::free_areas(zone);
        for order in stats::orders() {
            let index = index(&areas, order);
            write!(text, "{:width$}.{:03} ", index / 1000, (index % 1000).abs())?;
        }
        writeln!(text)?;
    }
    Ok(())
}

/// Writes all names, the one in effect (`holds`) in brackets.
fn choice<const N: usize>(text: &mut Text, names: [&str; N], holds: &str) -> Written {
    let names = names.map(|name| {
        if name == holds {
            format!("[{name}]")
        } else {
            name.into()
        }
    });
    writeln!(text, "{}", names.join(" "))
}

/// Builds `/sys`, to be mounted in the directory `above`. Returns its root.
pub(super) fn build(above: &NodeRef) -> NodeRef {
    let fs = Synthetic::new(devices::SYS, MAGIC, Errno::EPERM);
    let root = Directory::new(&fs, Some(Arc::downgrade(above)), b"sys");
    root.add_all(ENTRIES);
    root.add_all(crate::procfs::hugepages::SYS);
    if PageSize::Gib1.is_supported() {
        root.add_all(crate::procfs::hugepages::SYS_GIGANTIC);
    }
    // Programs look here for disks, and for control groups, which this kernel does not have.
    for place in ["block", "class/block", "dev/block", "fs/cgroup"] {
        root.subdirectory(place);
    }
    block::tables::add(&root);
    net::add(&root);
    let _ = ROOT.set(root.clone());
    root
}

static ROOT: Once<Arc<Directory>> = Once::new();

/// Adds the CPUs' directories to `/sys`. Call this when all CPUs run.
pub(super) fn add_cpus() {
    let Some(root) = ROOT.get() else { return };
    for cpu in 0..cpu_count() {
        for (name, show) in CPU_FILES {
            let path = format!("devices/system/cpu/cpu{cpu}/{name}");
            root.add(&path, Arc::new(CpuFile { cpu, show: *show }));
        }
    }
}

/// Shows all CPUs as a list of ranges.
fn cpu_list(text: &mut Text) -> Written {
    match cpu_count() {
        1 => writeln!(text, "0"),
        count => writeln!(text, "0-{}", count - 1),
    }
}

/// Shows `cpus` as a hexadecimal mask, in groups of 32 bits.
fn cpu_map(text: &mut Text, cpus: core::ops::Range<usize>) -> Written {
    let mask = cpus
        .filter(|&cpu| cpu < 64)
        .fold(0_u64, |mask, cpu| mask | 1 << cpu);
    if cpu_count() > 32 {
        writeln!(text, "{:08x},{:08x}", mask >> 32, mask & 0xffff_ffff)
    } else {
        let digits = cpu_count().div_ceil(4);
        writeln!(text, "{mask:0digits$x}")
    }
}

type ShowCpu = fn(&mut Text, usize) -> Written;

const CPU_FILES: &[(&str, ShowCpu)] = &[
    ("online", |text, _| writeln!(text, "1")),
    ("topology/core_id", |text, cpu| writeln!(text, "{cpu}")),
    ("topology/physical_package_id", |text, _| {
        writeln!(text, "0")
    }),
    ("topology/core_cpus_list", |text, cpu| {
        writeln!(text, "{cpu}")
    }),
    ("topology/thread_siblings_list", |text, cpu| {
        writeln!(text, "{cpu}")
    }),
    ("topology/thread_siblings", |text, cpu| {
        cpu_map(text, cpu..cpu + 1)
    }),
    ("topology/core_siblings_list", |text, _| cpu_list(text)),
    ("topology/core_siblings", |text, _| {
        cpu_map(text, 0..cpu_count())
    }),
    ("topology/package_cpus_list", |text, _| cpu_list(text)),
];

struct CpuFile {
    cpu: usize,
    show: ShowCpu,
}

impl Content for CpuFile {
    fn show(&self, text: &mut Text) -> Written {
        (self.show)(text, self.cpu)
    }
}

fn node_meminfo(text: &mut Text) -> Written {
    let (all, tail) = (stats::meminfo(), stats::meminfo_tail());
    let value = |wanted: &str| {
        let mut fields = all.iter().chain(&tail);
        fields
            .find(|(name, _)| *name == wanted)
            .map_or(0, |(_, value)| *value)
    };
    let used = value("MemTotal").saturating_sub(value("MemFree"));
    let lines = [
        ("MemTotal", value("MemTotal")),
        ("MemFree", value("MemFree")),
        ("MemUsed", used),
        ("Active", value("Active")),
        ("Inactive", value("Inactive")),
        ("Active(anon)", value("Active(anon)")),
        ("Inactive(anon)", value("Inactive(anon)")),
        ("Active(file)", value("Active(file)")),
        ("Inactive(file)", value("Inactive(file)")),
        ("Dirty", value("Dirty")),
        ("Writeback", value("Writeback")),
        ("FilePages", value("Cached") + value("Buffers")),
        ("Mapped", value("Mapped")),
        ("AnonPages", value("AnonPages")),
        ("Shmem", value("Shmem")),
        ("KernelStack", value("KernelStack")),
        ("PageTables", value("PageTables")),
        ("Slab", value("Slab")),
        ("Balloon", value("Balloon")),
    ];
    for (name, kib) in lines {
        let padding = 15_usize.saturating_sub(name.len());
        writeln!(text, "Node 0 {name}:{:padding$}{kib:>8} kB", "")?;
    }
    crate::procfs::hugepages::node_meminfo(text)
}

fn node_vmstat(text: &mut Text) -> Written {
    for (name, value) in stats::vmstat() {
        if name.starts_with("nr_") {
            writeln!(text, "{name} {value}")?;
        }
    }
    Ok(())
}
