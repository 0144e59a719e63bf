//! The files of `/proc` about the machine as a whole.

use crate::fs::knob::Store;
use crate::fs::synthetic::Entry;
use crate::fs::text::Text;
use crate::fs::{block, dev, hostfs, mounts};
use crate::process::task;
use crate::process::uts;
use core::fmt::{Result, Write};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::arch::{cpu, cpu_count, steal};
use machine::console;
use machine::sched;
use machine::sync::Once;

/// The files about the machine in the root of `/proc`.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::file("stat", stat),
    Entry::file("uptime", uptime),
    Entry::file("loadavg", loadavg),
    Entry::file("version", version),
    Entry::file("cpuinfo", cpuinfo),
    Entry::file("filesystems", filesystems),
    Entry::file("cmdline", cmdline),
    Entry::file("devices", devices),
    Entry::file("locks", super::locks::locks),
    Entry::file("partitions", block::tables::partitions),
    Entry::file("diskstats", block::tables::diskstats),
    // There are no modules.
    Entry::file("modules", |_| Ok(())),
    Entry::trigger("sysrq-trigger", Store::Text(sysrq)),
];

/// Handles a write to `/proc/sysrq-trigger`, whose first character is a key. As on Linux, a key
/// that Linux does not have writes the keys to the kernel log. Fails with `EINVAL` for Linux's keys
/// whose work this kernel does not do.
fn sysrq(value: &str) -> core::result::Result<(), Errno> {
    const NOT_SUPPORTED: &[u8] = b"befijklmnopqrtuvwz";
    match value.bytes().next() {
        Some(key) if NOT_SUPPORTED.contains(&key) => return Err(Errno::EINVAL),
        // Shows how the host handles a crash.
        Some(b'c') => panic!("sysrq triggered crash"),
        Some(b's') => {
            // As on Linux, errors are not reported.
            let _ = hostfs::sync_all();
            block::sync_all();
        }
        Some(digit @ b'0'..=b'9') => {
            let mut levels = dev::log_levels();
            levels[0] = u32::from(digit - b'0');
            dev::set_log_levels(levels);
        }
        _ => console!("sysrq: HELP : loglevel(0-9) crash(c) sync(s)"),
    }
    Ok(())
}

/// The number of clock ticks in a second, the unit of times in `stat` (`USER_HZ`).
pub(super) const TICKS: u64 = 100;

/// Converts a time to clock ticks.
pub(super) const fn ticks(time: Nanos) -> u64 {
    time.0 / (1_000_000_000 / TICKS)
}

static BOOT_LINE: Once<&'static str> = Once::new();

/// Stores the kernel's command line for [`boot_line`]. Only the first call has an effect.
pub(super) fn set_boot_line(line: &'static str) {
    let _ = BOOT_LINE.set(line);
}

/// Returns the kernel's command line, which is empty before `/proc` is built.
pub fn boot_line() -> &'static str {
    BOOT_LINE.get().copied().unwrap_or_default()
}

fn stat(text: &mut Text) -> Result {
    let mut total = sched::CpuTimes::default();
    let all_stolen =
        (0..cpu_count()).fold(0_u64, |sum, cpu| sum.saturating_add(steal::stolen(cpu).0));
    for cpu in 0..cpu_count() {
        let times = sched::cpu_times(cpu);
        total.user = total.user.saturating_add(times.user);
        total.system = total.system.saturating_add(times.system);
        total.idle = total.idle.saturating_add(times.idle);
        total.switches += times.switches;
    }
    let mut line = |name: &dyn core::fmt::Display, times: &sched::CpuTimes, stolen: Nanos| {
        let (user, system, idle) = (ticks(times.user), ticks(times.system), ticks(times.idle));
        // user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
        let stolen = ticks(stolen);
        writeln!(text, "{name} {user} 0 {system} {idle} 0 0 0 {stolen} 0 0")
    };
    // Linux puts two spaces behind the first name.
    line(&"cpu ", &total, Nanos(all_stolen))?;
    for cpu in 0..cpu_count() {
        let times = sched::cpu_times(cpu);
        line(&format_args!("cpu{cpu}"), &times, steal::stolen(cpu))?;
    }
    writeln!(text, "intr 0")?;
    writeln!(text, "ctxt {}", total.switches)?;
    writeln!(text, "btime {}", clock::realtime_offset().0 / 1_000_000_000)?;
    writeln!(text, "processes {}", task::tasks_made())?;
    writeln!(text, "procs_running {}", sched::runnable())?;
    writeln!(text, "procs_blocked 0")?;
    writeln!(text, "softirq 0 0 0 0 0 0 0 0 0 0 0")
}

fn uptime(text: &mut Text) -> Result {
    let up = clock::now();
    let idle = (0..cpu_count()).fold(0_u64, |sum, cpu| sum + sched::cpu_times(cpu).idle.0);
    for (nanos, end) in [(up.0, ' '), (idle, '\n')] {
        let hundredths = nanos / 10_000_000;
        write!(text, "{}.{:02}{end}", hundredths / 100, hundredths % 100)?;
    }
    Ok(())
}

fn loadavg(text: &mut Text) -> Result {
    for average in sched::load::averages() {
        // Rounded to hundredths, as Linux does.
        let rounded = average + sched::load::FIXED_1 / 200;
        let whole = rounded / sched::load::FIXED_1;
        let hundredths = rounded % sched::load::FIXED_1 * 100 / sched::load::FIXED_1;
        write!(text, "{whole}.{hundredths:02} ")?;
    }
    let (tasks, _) = task::task_count();
    writeln!(
        text,
        "{}/{tasks} {}",
        sched::runnable(),
        task::last_number()
    )
}

fn version(text: &mut Text) -> Result {
    writeln!(
        text,
        "Linux version {} (ebb) {}",
        uts::RELEASE,
        uts::VERSION
    )
}

/// Reads the brand string of the CPU into `buffer`, from CPUID leaves 0x8000_0002 to 0x8000_0004.
/// Returns the string without padding.
fn brand(buffer: &mut [u8; 48]) -> &str {
    for (leaf, piece) in (0x8000_0002..).zip(buffer.chunks_exact_mut(16)) {
        let answer = cpu::cpuid(leaf, 0);
        for (word, part) in [answer.eax, answer.ebx, answer.ecx, answer.edx]
            .into_iter()
            .zip(piece.chunks_exact_mut(4))
        {
            part.copy_from_slice(&word.to_le_bytes());
        }
    }
    core::str::from_utf8(buffer)
        .unwrap_or_default()
        .trim_matches(['\0', ' '])
}

/// Names of CPUID feature bits as Linux spells them: leaf 1 edx, leaf 1 ecx, leaf 7 ebx.
const FLAGS_1_EDX: [&str; 32] = [
    "fpu", "vme", "de", "pse", "tsc", "msr", "pae", "mce", "cx8", "apic", "", "sep", "mtrr", "pge",
    "mca", "cmov", "pat", "pse36", "pn", "clflush", "", "dts", "acpi", "mmx", "fxsr", "sse",
    "sse2", "ss", "ht", "tm", "ia64", "pbe",
];
const FLAGS_1_ECX: [&str; 32] = [
    "pni",
    "pclmulqdq",
    "dtes64",
    "monitor",
    "ds_cpl",
    "vmx",
    "smx",
    "est",
    "tm2",
    "ssse3",
    "cid",
    "sdbg",
    "fma",
    "cx16",
    "xtpr",
    "pdcm",
    "",
    "pcid",
    "dca",
    "sse4_1",
    "sse4_2",
    "x2apic",
    "movbe",
    "popcnt",
    "tsc_deadline_timer",
    "aes",
    "xsave",
    "",
    "avx",
    "f16c",
    "rdrand",
    "hypervisor",
];
const FLAGS_7_EBX: [&str; 32] = [
    "fsgsbase",
    "tsc_adjust",
    "",
    "bmi1",
    "",
    "avx2",
    "",
    "smep",
    "bmi2",
    "erms",
    "invpcid",
    "",
    "",
    "",
    "",
    "",
    "avx512f",
    "avx512dq",
    "rdseed",
    "adx",
    "smap",
    "avx512ifma",
    "",
    "clflushopt",
    "clwb",
    "",
    "avx512pf",
    "avx512er",
    "avx512cd",
    "sha_ni",
    "avx512bw",
    "avx512vl",
];

fn cpuinfo(text: &mut Text) -> Result {
    let (vendor, signature) = (cpu::cpuid(0, 0), cpu::cpuid(1, 0));
    let mut name = [0; 12];
    for (word, part) in [vendor.ebx, vendor.edx, vendor.ecx]
        .into_iter()
        .zip(name.chunks_exact_mut(4))
    {
        part.copy_from_slice(&word.to_le_bytes());
    }
    let vendor_name = core::str::from_utf8(&name).unwrap_or("unknown");
    let base_family = signature.eax >> 8 & 0xf;
    let family = if base_family == 15 {
        15 + (signature.eax >> 20 & 0xff)
    } else {
        base_family
    };
    let model = (signature.eax >> 4 & 0xf) | (signature.eax >> 12 & 0xf0);
    let mut brand_buffer = [0; 48];
    let brand = brand(&mut brand_buffer);
    let khz = clock::tsc_khz();
    let seven = if vendor.eax >= 7 {
        cpu::cpuid(7, 0).ebx
    } else {
        0
    };
    for number in 0..cpu_count() {
        writeln!(text, "processor\t: {number}")?;
        writeln!(text, "vendor_id\t: {vendor_name}")?;
        writeln!(text, "cpu family\t: {family}")?;
        writeln!(text, "model\t\t: {model}")?;
        writeln!(text, "model name\t: {brand}")?;
        writeln!(text, "stepping\t: {}", signature.eax & 0xf)?;
        writeln!(text, "cpu MHz\t\t: {}.{:03}", khz / 1000, khz % 1000)?;
        writeln!(text, "physical id\t: 0")?;
        writeln!(text, "siblings\t: {}", cpu_count())?;
        writeln!(text, "core id\t\t: {number}")?;
        writeln!(text, "cpu cores\t: {}", cpu_count())?;
        writeln!(text, "apicid\t\t: {number}")?;
        writeln!(text, "fpu\t\t: yes")?;
        writeln!(text, "wp\t\t: yes")?;
        write!(text, "flags\t\t:")?;
        let words = [
            (signature.edx, &FLAGS_1_EDX),
            (signature.ecx, &FLAGS_1_ECX),
            (seven, &FLAGS_7_EBX),
        ];
        for (bits, names) in words {
            for (at, name) in names.iter().enumerate() {
                if bits & (1 << at) != 0 && !name.is_empty() {
                    write!(text, " {name}")?;
                }
            }
        }
        writeln!(text, " syscall nx lm")?;
        writeln!(text, "bogomips\t: {}.{:02}", khz / 500, khz / 5 % 100)?;
        writeln!(text, "clflush size\t: 64")?;
        writeln!(text, "cache_alignment\t: 64")?;
        writeln!(text, "address sizes\t: 40 bits physical, 48 bits virtual\n")?;
    }
    Ok(())
}

fn filesystems(text: &mut Text) -> Result {
    for name in mounts::type_names() {
        writeln!(text, "nodev\t{name}")?;
    }
    Ok(())
}

fn cmdline(text: &mut Text) -> Result {
    writeln!(text, "{}", boot_line())
}

fn devices(text: &mut Text) -> Result {
    writeln!(
        text,
        "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n  5 /dev/ptmx\n136 pts\n229 hvc\n"
    )?;
    writeln!(text, "Block devices:")?;
    writeln!(text, "{:3} virtblk", block::MAJOR)
}
