//! `/proc/sys`: the knobs, and the boot line that sets them before the first program runs.

use crate::fs::socket::UNPRIVILEGED;
use crate::fs::synthetic::Entry;
use crate::fs::table::MAX_DESCRIPTORS;
use crate::fs::text::Text;
use crate::fs::{self, inotify, lookup, pipe};
use crate::process::ipc::mqueue::{self, MAX_MESSAGE_BYTES, MAX_MESSAGES};
use crate::process::ipc::shm::{self, LIMITS};
use crate::process::ipc::{MAX_OBJECTS, msg, sem};
use crate::process::task::core_dump;
use crate::process::{caller, seccomp, task, uts};
use crate::vm::compaction;
use alloc::string::String;
use core::fmt::{Result as Written, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use logic::credentials::{Capabilities, Credentials};
use logic::errno::Errno;
use logic::seccomp::{Action, Actions};
use machine::arch::random;
use machine::memory::knobs;
use machine::{memory, sync};

pub(super) const ENTRIES: &[Entry] = &[
    Entry::file("sys/kernel/ostype", |text| writeln!(text, "Linux")),
    Entry::file("sys/kernel/osrelease", |text| {
        writeln!(text, "{}", uts::RELEASE)
    }),
    Entry::file("sys/kernel/version", |text| {
        writeln!(text, "{}", uts::VERSION)
    }),
    Entry::knob("sys/kernel/hostname", hostname, set_hostname),
    Entry::knob("sys/kernel/domainname", domainname, set_domainname),
    Entry::knob(
        "sys/kernel/pid_max",
        |text| number(text, task::table::number_limit().into()),
        |value| task::table::set_number_limit(parse(value)?),
    ),
    Entry::knob("sys/kernel/printk", log_levels, set_log_levels),
    Entry::file("sys/kernel/threads-max", |text| {
        writeln!(text, "{}", task::task_count().1)
    }),
    Entry::file("sys/kernel/ngroups_max", |text| writeln!(text, "65536")),
    Entry::file("sys/kernel/cap_last_cap", |text| writeln!(text, "40")),
    Entry::file("sys/kernel/tainted", |text| writeln!(text, "0")),
    Entry::file("sys/kernel/randomize_va_space", |text| writeln!(text, "2")),
    Entry::knob("sys/kernel/core_pattern", core_pattern, set_core_pattern),
    Entry::knob(
        "sys/kernel/core_uses_pid",
        |text| number(text, core_dump::USES_PID.load(Ordering::Relaxed)),
        |value| set_limit(&core_dump::USES_PID, value, MAX_INT),
    ),
    Entry::file("sys/kernel/seccomp/actions_avail", |text| {
        action_names(text, Action::ALL.into_iter())
    }),
    Entry::knob(
        "sys/kernel/seccomp/actions_logged",
        |text| action_names(text, seccomp::noted().iter()),
        |value| {
            caller::need(Capabilities::SYS_ADMIN)?;
            seccomp::set_noted(Actions::named(value)?);
            Ok(())
        },
    ),
    Entry::file("sys/kernel/random/boot_id", boot_id),
    // As Debian has them: links in folders that are everybody's lead and count for their owners alone.
    Entry::file("sys/fs/protected_hardlinks", |text| writeln!(text, "1")),
    Entry::file("sys/fs/protected_symlinks", |text| writeln!(text, "1")),
    Entry::file("sys/kernel/random/uuid", |text| uuid(text, random_uuid())),
    Entry::file("sys/kernel/random/entropy_avail", |text| {
        writeln!(text, "256")
    }),
    Entry::file("sys/kernel/random/poolsize", |text| writeln!(text, "256")),
    Entry::knob(
        "sys/kernel/shmmax",
        |text| number(text, LIMITS.bytes.load(Ordering::Relaxed)),
        |value| set_limit(&LIMITS.bytes, value, u64::MAX),
    ),
    Entry::knob(
        "sys/kernel/shmall",
        |text| number(text, LIMITS.pages.load(Ordering::Relaxed)),
        |value| set_limit(&LIMITS.pages, value, u64::MAX),
    ),
    Entry::knob(
        "sys/kernel/shmmni",
        |text| number(text, LIMITS.segments.load(Ordering::Relaxed)),
        |value| set_limit(&LIMITS.segments, value, MAX_OBJECTS),
    ),
    Entry::knob(
        "sys/kernel/shm_rmid_forced",
        |text| number(text, LIMITS.force_removal.load(Ordering::Relaxed)),
        |value| {
            set_limit(&LIMITS.force_removal, value, 1)?;
            shm::remove_forced(None);
            Ok(())
        },
    ),
    Entry::knob(
        "sys/kernel/msgmax",
        |text| number(text, msg::LIMITS.message.load(Ordering::Relaxed)),
        |value| set_limit(&msg::LIMITS.message, value, MAX_INT),
    ),
    Entry::knob(
        "sys/kernel/msgmnb",
        |text| number(text, msg::LIMITS.queue.load(Ordering::Relaxed)),
        |value| set_limit(&msg::LIMITS.queue, value, MAX_INT),
    ),
    Entry::knob(
        "sys/kernel/msgmni",
        |text| number(text, msg::LIMITS.queues.load(Ordering::Relaxed)),
        |value| set_limit(&msg::LIMITS.queues, value, MAX_OBJECTS),
    ),
    Entry::knob(
        "sys/fs/mqueue/queues_max",
        |text| number(text, mqueue::LIMITS.queues.load(Ordering::Relaxed)),
        |value| set_limit(&mqueue::LIMITS.queues, value, MAX_INT),
    ),
    Entry::knob(
        "sys/fs/mqueue/msg_max",
        |text| number(text, mqueue::LIMITS.messages.load(Ordering::Relaxed)),
        |value| set_within(&mqueue::LIMITS.messages, value, 1, MAX_MESSAGES),
    ),
    Entry::knob(
        "sys/fs/mqueue/msgsize_max",
        |text| number(text, mqueue::LIMITS.message_bytes.load(Ordering::Relaxed)),
        |value| set_within(&mqueue::LIMITS.message_bytes, value, 128, MAX_MESSAGE_BYTES),
    ),
    Entry::knob(
        "sys/fs/mqueue/msg_default",
        |text| {
            number(
                text,
                mqueue::LIMITS.default_messages.load(Ordering::Relaxed),
            )
        },
        |value| set_within(&mqueue::LIMITS.default_messages, value, 1, MAX_MESSAGES),
    ),
    Entry::knob(
        "sys/fs/mqueue/msgsize_default",
        |text| {
            number(
                text,
                mqueue::LIMITS.default_message_bytes.load(Ordering::Relaxed),
            )
        },
        |value| {
            set_within(
                &mqueue::LIMITS.default_message_bytes,
                value,
                128,
                MAX_MESSAGE_BYTES,
            )
        },
    ),
    Entry::knob("sys/kernel/sem", semaphores, set_semaphores),
    Entry::knob(
        "sys/vm/overcommit_memory",
        |text| number(text, knobs::overcommit_memory()),
        |value| knobs::set_overcommit_memory(parse(value)?),
    ),
    Entry::knob(
        "sys/vm/overcommit_ratio",
        |text| number(text, knobs::overcommit_ratio()),
        |value| knobs::set_overcommit_ratio(parse(value)?),
    ),
    Entry::knob(
        "sys/vm/max_map_count",
        |text| number(text, knobs::max_map_count()),
        |value| knobs::set_max_map_count(parse(value)?),
    ),
    Entry::knob(
        "sys/vm/min_free_kbytes",
        |text| number(text, knobs::min_free_kbytes()),
        |value| knobs::set_min_free_kbytes(parse(value)?),
    ),
    // As on Linux, what is written does not matter.
    Entry::trigger("sys/vm/compact_memory", |_| compaction::compact_all()),
    Entry::knob(
        "sys/vm/compaction_proactiveness",
        |text| number(text, compaction::daemon::proactiveness()),
        |value| compaction::daemon::set_proactiveness(parse(value)?),
    ),
    Entry::knob(
        "sys/vm/extfrag_threshold",
        |text| number(text, compaction::knobs::extfrag_threshold()),
        |value| compaction::knobs::set_extfrag_threshold(parse(value)?),
    ),
    Entry::knob(
        "sys/vm/compact_unevictable_allowed",
        |text| number(text, compaction::knobs::unevictable_allowed().into()),
        |value| compaction::knobs::set_unevictable_allowed(parse(value)?),
    ),
    Entry::knob("sys/vm/drop_caches", |text| number(text, 0), drop_caches),
    Entry::knob(
        "sys/vm/panic_on_oom",
        |text| number(text, knobs::panic_on_oom()),
        |value| knobs::set_panic_on_oom(parse(value)?),
    ),
    Entry::knob(
        "sys/vm/swappiness",
        |text| number(text, SWAPPINESS.get()),
        |value| SWAPPINESS.set(parse(value)?),
    ),
    Entry::file("sys/vm/mmap_min_addr", |text| writeln!(text, "65536")),
    Entry::file("sys/fs/file-max", |text| writeln!(text, "{}", i64::MAX)),
    Entry::file("sys/fs/nr_open", |text| writeln!(text, "{MAX_DESCRIPTORS}")),
    Entry::knob(
        "sys/fs/inotify/max_queued_events",
        |text| number(text, inotify::LIMITS.events.load(Ordering::Relaxed)),
        |value| set_limit(&inotify::LIMITS.events, value, MAX_INT),
    ),
    Entry::knob(
        "sys/fs/inotify/max_user_instances",
        |text| number(text, inotify::LIMITS.instances.load(Ordering::Relaxed)),
        |value| set_limit(&inotify::LIMITS.instances, value, MAX_INT),
    ),
    Entry::knob(
        "sys/fs/inotify/max_user_watches",
        |text| number(text, inotify::LIMITS.watches()),
        |value| inotify::LIMITS.set_watches(parse(value)?),
    ),
    Entry::knob(
        "sys/net/ipv4/ip_unprivileged_port_start",
        |text| number(text, UNPRIVILEGED.load(Ordering::Relaxed)),
        |value| set_limit(&UNPRIVILEGED, value, u16::MAX.into()),
    ),
    // What these three keep from a pipe they keep from those without CAP_SYS_RESOURCE: here and on
    // Linux from nobody who has it.
    Entry::knob(
        "sys/fs/pipe-max-size",
        |text| number(text, PIPE_MAX_SIZE.get()),
        |value| {
            let bytes = pipe::rounded_capacity(parse(value)?).ok_or(Errno::EINVAL)?;
            PIPE_MAX_SIZE.set(bytes)
        },
    ),
    Entry::knob(
        "sys/fs/pipe-user-pages-soft",
        |text| number(text, PIPE_PAGES_SOFT.get()),
        |value| PIPE_PAGES_SOFT.set(parse(value)?),
    ),
    Entry::knob(
        "sys/fs/pipe-user-pages-hard",
        |text| number(text, PIPE_PAGES_HARD.get()),
        |value| PIPE_PAGES_HARD.set(parse(value)?),
    ),
];

/// A number that is kept for programs to set and read.
struct Kept {
    value: AtomicU64,
    most: u64,
}

impl Kept {
    const fn new(value: u64, most: u64) -> Self {
        Self {
            value: AtomicU64::new(value),
            most,
        }
    }

    /// The number.
    fn get(&self) -> u64 {
        // Relaxed: a value of its own.
        self.value.load(Ordering::Relaxed)
    }

    fn set(&self, value: u64) -> Result<(), Errno> {
        if value > self.most {
            return Err(Errno::EINVAL);
        }
        self.value.store(value, Ordering::Relaxed);
        Ok(())
    }
}

/// `vm.swappiness`: there is no swap; kept for programs that set it.
static SWAPPINESS: Kept = Kept::new(60, 200);

/// What pipes of users may have, who are all root: kept for programs that set it.
static PIPE_MAX_SIZE: Kept = Kept::new(pipe::MAX_CAPACITY as u64, 1 << 31);
static PIPE_PAGES_SOFT: Kept = Kept::new(16384, i64::MAX as u64);
static PIPE_PAGES_HARD: Kept = Kept::new(0, i64::MAX as u64);

/// `kernel.printk`: what is printed on the console, what messages without a level have, the least that
/// the first may be, and what it is at boot.
fn log_levels(text: &mut Text) -> Written {
    let [console, message, least, boot] = fs::dev::log_levels();
    writeln!(text, "{console}\t{message}\t{least}\t{boot}")
}

/// As on Linux, as many as are given.
fn set_log_levels(value: &str) -> Result<(), Errno> {
    let mut levels = fs::dev::log_levels();
    let mut words = value.split_ascii_whitespace();
    for (level, word) in levels.iter_mut().zip(&mut words) {
        *level = word.parse().map_err(|_| Errno::EINVAL)?;
    }
    if words.next().is_some() {
        return Err(Errno::EINVAL);
    }
    fs::dev::set_log_levels(levels);
    Ok(())
}

/// The most that a C `int` can be.
const MAX_INT: u64 = i32::MAX as u64;

/// The limits of semaphores, and the most that each can be, in the order of `kernel.sem`.
const SEMAPHORES: [(&AtomicU64, u64); 4] = [
    (&sem::LIMITS.of_set, MAX_INT),
    (&sem::LIMITS.all, MAX_INT),
    (&sem::LIMITS.operations, MAX_INT),
    (&sem::LIMITS.sets, MAX_OBJECTS),
];

fn semaphores(text: &mut Text) -> Written {
    let [of_set, all, operations, sets] =
        SEMAPHORES.map(|(limit, _)| limit.load(Ordering::Relaxed));
    writeln!(text, "{of_set}\t{all}\t{operations}\t{sets}")
}

/// As on Linux fewer numbers set the first ones.
fn set_semaphores(value: &str) -> Result<(), Errno> {
    let mut words = value.split_ascii_whitespace();
    let mut new = [None; SEMAPHORES.len()];
    for (new, (_, most)) in new.iter_mut().zip(SEMAPHORES) {
        let word = words.next().map(parse).transpose()?;
        if word.is_some_and(|value| value > most) {
            return Err(Errno::EINVAL);
        }
        *new = word;
    }
    if words.next().is_some() || new[0].is_none() {
        return Err(Errno::EINVAL);
    }
    for (new, (limit, _)) in new.iter().zip(SEMAPHORES) {
        if let Some(value) = new {
            limit.store(*value, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Sets a limit of System V IPC. Relaxed, as all of them: each a value of its own.
fn set_limit(limit: &AtomicU64, value: &str, most: u64) -> Result<(), Errno> {
    set_within(limit, value, 0, most)
}

/// Sets a limit that has a least value, too.
fn set_within(limit: &AtomicU64, value: &str, least: u64, most: u64) -> Result<(), Errno> {
    let value = parse(value)?;
    if !(least..=most).contains(&value) {
        return Err(Errno::EINVAL);
    }
    limit.store(value, Ordering::Relaxed);
    Ok(())
}

fn number(text: &mut Text, value: u64) -> Written {
    writeln!(text, "{value}")
}

fn parse(value: &str) -> Result<u64, Errno> {
    value.parse().map_err(|_| Errno::EINVAL)
}

fn show_name(text: &mut Text, name: &[u8]) -> Written {
    text.push(name)?;
    text.push(b"\n")
}

fn action_names(text: &mut Text, actions: impl Iterator<Item = Action>) -> Written {
    for (at, action) in actions.enumerate() {
        let between = if at == 0 { "" } else { " " };
        write!(text, "{between}{}", action.name())?;
    }
    text.push(b"\n")
}

fn core_pattern(text: &mut Text) -> Written {
    show_name(text, core_dump::pattern().bytes())
}

fn set_core_pattern(value: &str) -> Result<(), Errno> {
    core_dump::set_pattern(value.as_bytes())
}

fn hostname(text: &mut Text) -> Written {
    uts::with_host_name(|name| show_name(text, name))
}

fn set_hostname(value: &str) -> Result<(), Errno> {
    uts::set_host_name(value.as_bytes());
    Ok(())
}

fn domainname(text: &mut Text) -> Written {
    uts::with_domain_name(|name| show_name(text, name))
}

fn set_domainname(value: &str) -> Result<(), Errno> {
    uts::set_domain_name(value.as_bytes());
    Ok(())
}

/// `vm.drop_caches`: 1 page cache, 2 what is known of files, 3 both. Files in memory are no cache; clean pages of
/// disks are, and of the host's tree; what the CPUs hold in reserve is given back.
fn drop_caches(value: &str) -> Result<(), Errno> {
    match parse(value)? {
        bits @ 1..=4 => {
            if bits & 1 != 0 {
                fs::drop_pages();
            }
            if bits & 2 != 0 {
                fs::tmpfs::forget_unused();
            }
            memory::allocator().request_drain();
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}

fn random_uuid() -> u128 {
    let mut bytes = [0; 16];
    random::fill(&mut bytes);
    // Version 4, variant 1 (RFC 4122).
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    u128::from_be_bytes(bytes)
}

fn uuid(text: &mut Text, id: u128) -> Written {
    let part = |shift: u32, mask: u128| id >> shift & mask;
    writeln!(
        text,
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(96, 0xffff_ffff),
        part(80, 0xffff),
        part(64, 0xffff),
        part(48, 0xffff),
        part(0, 0xffff_ffff_ffff),
    )
}

fn boot_id(text: &mut Text) -> Written {
    static BOOT_ID: sync::Once<u128> = sync::Once::new();
    if BOOT_ID.get().is_none() {
        let _ = BOOT_ID.set(random_uuid());
    }
    uuid(text, BOOT_ID.get().copied().unwrap_or_default())
}

/// Sets the knobs of `sysctl.NAME=VALUE` words of the boot line, dots in NAME being slashes. One
/// that cannot be set is named on the console.
pub fn apply_boot_line() {
    for word in super::system::boot_line().split_ascii_whitespace() {
        let Some((name, value)) = word.strip_prefix("sysctl.").and_then(|w| w.split_once('='))
        else {
            continue;
        };
        let mut path = String::from("/proc/sys/");
        path.extend(name.chars().map(|c| if c == '.' { '/' } else { c }));
        if let Err(error) = store(&path, value) {
            machine::console!("sysctl.{name}={value}: {error}");
        }
    }
}

fn store(path: &str, value: &str) -> Result<(), Errno> {
    let root = fs::root();
    let found = lookup::resolve(
        &Credentials::root(),
        &root,
        &root,
        path.as_bytes(),
        lookup::LastLink::Keep,
    )?;
    let flags = fs::OpenFlags::WRITE_ONLY;
    let file = fs::OpenFile::open(found.existing()?, None, flags)?;
    file.write(&mut fs::io::SliceSource::new(
        value.as_bytes(),
        fs::io::NO_LIMIT,
    ))?;
    Ok(())
}
