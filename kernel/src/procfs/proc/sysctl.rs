//! The knobs of `/proc/sys`, except for those that have a file of their topic.

use crate::fs::changes::Changes;
use crate::fs::knob::Store;
use crate::fs::pipe::quota::{PIPE_MAX_SIZE, PIPE_PAGES_HARD, PIPE_PAGES_SOFT};
use crate::fs::socket::UNPRIVILEGED;
use crate::fs::synthetic::Entry;
use crate::fs::table::MAX_DESCRIPTORS;
use crate::fs::text::Text;
use crate::fs::{self, aio, inotify, pipe};
use crate::process::ipc::mqueue::{self, MAX_MESSAGE_BYTES, MAX_MESSAGES};
use crate::process::ipc::shm::{self, LIMITS};
use crate::process::ipc::{MAX_OBJECTS, msg, sem};
use crate::process::task::core_dump;
use crate::process::{caller, seccomp, task, uts};
use crate::vm::compaction;
use core::fmt::{Result as Written, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use logic::credentials::Capabilities;
use logic::errno::Errno;
use logic::seccomp::{Action, Actions};
use machine::arch::random;
use machine::memory::knobs;
use machine::{memory, sync};

/// The knobs of `/proc/sys` in this file, without those in [`WATCHED`], and some files that can
/// only be read.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::file("sys/kernel/ostype", |text| writeln!(text, "Linux")),
    Entry::file("sys/kernel/osrelease", |text| {
        writeln!(text, "{}", uts::RELEASE)
    }),
    Entry::file("sys/kernel/version", |text| {
        writeln!(text, "{}", uts::VERSION)
    }),
    Entry::knob(
        "sys/kernel/pid_max",
        |text| number(text, task::table::number_limit().into()),
        Store::natural(0, i32::MAX, task::table::set_number_limit),
    ),
    Entry::knob(
        "sys/kernel/printk",
        log_levels,
        Store::Ints {
            count: 4,
            set: set_log_levels,
        },
    ),
    Entry::file("sys/kernel/threads-max", |text| {
        writeln!(text, "{}", task::task_count().1)
    }),
    Entry::file("sys/kernel/ngroups_max", |text| writeln!(text, "65536")),
    Entry::file("sys/kernel/cap_last_cap", |text| writeln!(text, "40")),
    Entry::file("sys/kernel/tainted", |text| writeln!(text, "0")),
    Entry::file("sys/kernel/randomize_va_space", |text| writeln!(text, "2")),
    Entry::knob(
        "sys/kernel/core_pattern",
        core_pattern,
        Store::Text(set_core_pattern),
    ),
    Entry::knob(
        "sys/kernel/core_uses_pid",
        |text| number(text, core_dump::USES_PID.load(Ordering::Relaxed)),
        Store::natural(0, i32::MAX, |value| keep(&core_dump::USES_PID, value)),
    ),
    Entry::file("sys/kernel/seccomp/actions_avail", |text| {
        action_names(text, Action::ALL.into_iter())
    }),
    Entry::knob(
        "sys/kernel/seccomp/actions_logged",
        |text| action_names(text, seccomp::noted().iter()),
        Store::Text(|value| {
            caller::need(Capabilities::SYS_ADMIN)?;
            seccomp::set_noted(Actions::named(value)?);
            Ok(())
        }),
    ),
    Entry::file("sys/kernel/random/boot_id", boot_id),
    // As on Debian: in directories that everyone may write, links work only for their owners.
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
        Store::long(0, u64::MAX, |value| keep(&LIMITS.bytes, value)),
    ),
    Entry::knob(
        "sys/kernel/shmall",
        |text| number(text, LIMITS.pages.load(Ordering::Relaxed)),
        Store::long(0, u64::MAX, |value| keep(&LIMITS.pages, value)),
    ),
    Entry::knob(
        "sys/kernel/shmmni",
        |text| number(text, LIMITS.segments.load(Ordering::Relaxed)),
        Store::natural(0, MOST_OBJECTS, |value| keep(&LIMITS.segments, value)),
    ),
    Entry::knob(
        "sys/kernel/shm_rmid_forced",
        |text| number(text, LIMITS.force_removal.load(Ordering::Relaxed)),
        Store::natural(0, 1, |value| {
            keep(&LIMITS.force_removal, value)?;
            shm::remove_forced(None);
            Ok(())
        }),
    ),
    Entry::knob(
        "sys/kernel/msgmax",
        |text| number(text, msg::LIMITS.message.load(Ordering::Relaxed)),
        Store::natural(0, i32::MAX, |value| keep(&msg::LIMITS.message, value)),
    ),
    Entry::knob(
        "sys/kernel/msgmnb",
        |text| number(text, msg::LIMITS.queue.load(Ordering::Relaxed)),
        Store::natural(0, i32::MAX, |value| keep(&msg::LIMITS.queue, value)),
    ),
    Entry::knob(
        "sys/kernel/msgmni",
        |text| number(text, msg::LIMITS.queues.load(Ordering::Relaxed)),
        Store::natural(0, MOST_OBJECTS, |value| keep(&msg::LIMITS.queues, value)),
    ),
    Entry::knob(
        "sys/fs/mqueue/queues_max",
        |text| number(text, mqueue::LIMITS.queues.load(Ordering::Relaxed)),
        Store::natural(0, i32::MAX, |value| keep(&mqueue::LIMITS.queues, value)),
    ),
    Entry::knob(
        "sys/fs/mqueue/msg_max",
        |text| number(text, mqueue::LIMITS.messages.load(Ordering::Relaxed)),
        Store::natural(1, MOST_MESSAGES, |value| {
            keep(&mqueue::LIMITS.messages, value)
        }),
    ),
    Entry::knob(
        "sys/fs/mqueue/msgsize_max",
        |text| number(text, mqueue::LIMITS.message_bytes.load(Ordering::Relaxed)),
        Store::natural(128, MOST_MESSAGE_BYTES, |value| {
            keep(&mqueue::LIMITS.message_bytes, value)
        }),
    ),
    Entry::knob(
        "sys/fs/mqueue/msg_default",
        |text| {
            number(
                text,
                mqueue::LIMITS.default_messages.load(Ordering::Relaxed),
            )
        },
        Store::natural(1, MOST_MESSAGES, |value| {
            keep(&mqueue::LIMITS.default_messages, value)
        }),
    ),
    Entry::knob(
        "sys/fs/mqueue/msgsize_default",
        |text| {
            number(
                text,
                mqueue::LIMITS.default_message_bytes.load(Ordering::Relaxed),
            )
        },
        Store::natural(128, MOST_MESSAGE_BYTES, |value| {
            keep(&mqueue::LIMITS.default_message_bytes, value)
        }),
    ),
    Entry::knob(
        "sys/kernel/sem",
        semaphores,
        Store::Ints {
            count: SEMAPHORES.len(),
            set: set_semaphores,
        },
    ),
    Entry::knob(
        "sys/vm/overcommit_memory",
        |text| number(text, knobs::overcommit_memory()),
        Store::natural(0, 2, knobs::set_overcommit_memory),
    ),
    Entry::knob(
        "sys/vm/overcommit_ratio",
        |text| writeln!(text, "{}", knobs::overcommit_ratio()),
        Store::int(|value| {
            knobs::set_overcommit_ratio(value);
            Ok(())
        }),
    ),
    Entry::knob(
        "sys/vm/max_map_count",
        |text| number(text, knobs::max_map_count()),
        Store::natural(0, i32::MAX, knobs::set_max_map_count),
    ),
    Entry::knob(
        "sys/vm/min_free_kbytes",
        |text| number(text, knobs::min_free_kbytes()),
        Store::natural(0, i32::MAX, knobs::set_min_free_kbytes),
    ),
    // As on Linux, any written value has the same effect.
    Entry::trigger(
        "sys/vm/compact_memory",
        Store::Event(compaction::compact_all),
    ),
    Entry::knob(
        "sys/vm/compaction_proactiveness",
        |text| number(text, compaction::daemon::proactiveness()),
        Store::natural(0, 100, compaction::daemon::set_proactiveness),
    ),
    Entry::knob(
        "sys/vm/extfrag_threshold",
        |text| number(text, compaction::knobs::extfrag_threshold()),
        Store::natural(0, 1000, compaction::knobs::set_extfrag_threshold),
    ),
    Entry::knob(
        "sys/vm/compact_unevictable_allowed",
        |text| number(text, compaction::knobs::unevictable_allowed().into()),
        Store::natural(0, 1, compaction::knobs::set_unevictable_allowed),
    ),
    Entry::trigger("sys/vm/drop_caches", Store::natural(1, 4, drop_caches)),
    Entry::knob(
        "sys/vm/file_cache_idle_seconds",
        |text| number(text, fs::used::seconds()),
        Store::natural(0, 86400, fs::used::set_seconds),
    ),
    Entry::knob(
        "sys/vm/panic_on_oom",
        |text| number(text, knobs::panic_on_oom()),
        Store::natural(0, 2, knobs::set_panic_on_oom),
    ),
    Entry::knob(
        "sys/vm/swappiness",
        |text| number(text, SWAPPINESS.load(Ordering::Relaxed)),
        Store::natural(0, 200, |value| keep(&SWAPPINESS, value)),
    ),
    Entry::file("sys/vm/mmap_min_addr", |text| writeln!(text, "65536")),
    Entry::file("sys/fs/file-max", |text| writeln!(text, "{}", i64::MAX)),
    Entry::file("sys/fs/nr_open", |text| writeln!(text, "{MAX_DESCRIPTORS}")),
    Entry::file("sys/fs/aio-nr", |text| number(text, aio::reserved())),
    Entry::knob(
        "sys/fs/aio-max-nr",
        |text| number(text, aio::LIMIT.load(Ordering::Relaxed)),
        Store::long(0, aio::MOST, |value| keep(&aio::LIMIT, value)),
    ),
    Entry::knob(
        "sys/fs/inotify/max_queued_events",
        |text| number(text, inotify::LIMITS.events.load(Ordering::Relaxed)),
        Store::long(0, MAX_INT, |value| keep(&inotify::LIMITS.events, value)),
    ),
    Entry::knob(
        "sys/fs/inotify/max_user_instances",
        |text| number(text, inotify::LIMITS.instances.load(Ordering::Relaxed)),
        Store::long(0, MAX_INT, |value| keep(&inotify::LIMITS.instances, value)),
    ),
    Entry::knob(
        "sys/fs/inotify/max_user_watches",
        |text| number(text, inotify::LIMITS.watches()),
        Store::long(0, MAX_INT, |value| inotify::LIMITS.set_watches(value)),
    ),
    Entry::knob(
        "sys/net/ipv4/ip_unprivileged_port_start",
        |text| number(text, UNPRIVILEGED.load(Ordering::Relaxed)),
        Store::natural(0, 65535, |value| keep(&UNPRIVILEGED, value)),
    ),
    Entry::knob(
        "sys/fs/pipe-max-size",
        |text| number(text, PIPE_MAX_SIZE.get()),
        Store::Unsigned(|value| {
            let bytes = pipe::rounded_capacity(value.into()).ok_or(Errno::EINVAL)?;
            PIPE_MAX_SIZE.set(bytes)
        }),
    ),
    Entry::knob(
        "sys/fs/pipe-user-pages-soft",
        |text| number(text, PIPE_PAGES_SOFT.get()),
        Store::long(0, u64::MAX, |value| PIPE_PAGES_SOFT.set(value)),
    ),
    Entry::knob(
        "sys/fs/pipe-user-pages-hard",
        |text| number(text, PIPE_PAGES_HARD.get()),
        Store::long(0, u64::MAX, |value| PIPE_PAGES_HARD.set(value)),
    ),
];

/// The knobs whose pollers are woken when the value changes, each with the changes that wake them.
pub(super) const WATCHED: [(Entry, &Changes); 2] = [
    (
        Entry::knob("sys/kernel/hostname", hostname, Store::Text(set_hostname)),
        &uts::HOST_CHANGES,
    ),
    (
        Entry::knob(
            "sys/kernel/domainname",
            domainname,
            Store::Text(set_domainname),
        ),
        &uts::DOMAIN_CHANGES,
    ),
];

/// `vm.swappiness`. There is no swap, so the value is only stored for programs to read.
static SWAPPINESS: AtomicU64 = AtomicU64::new(60);

/// Shows `kernel.printk`: the level of the console, the level of messages without one, the minimum
/// of the console's level, and its value at boot.
fn log_levels(text: &mut Text) -> Written {
    let [console, message, least, boot] = fs::dev::log_levels();
    writeln!(text, "{console}\t{message}\t{least}\t{boot}")
}

/// Sets the first numbers of `kernel.printk` to `values`. Fails with `EINVAL` if one is negative.
fn set_log_levels(values: &[i32]) -> Result<(), Errno> {
    let mut levels = fs::dev::log_levels();
    for (level, value) in levels.iter_mut().zip(values) {
        *level = u32::try_from(*value).map_err(|_| Errno::EINVAL)?;
    }
    fs::dev::set_log_levels(levels);
    Ok(())
}

/// The most that a C `int` can be.
const MAX_INT: u64 = i32::MAX as u64;
/// [`MAX_OBJECTS`], [`MAX_MESSAGES`] and [`MAX_MESSAGE_BYTES`] as a C `int`.
const MOST_OBJECTS: i32 = as_int(MAX_OBJECTS);
const MOST_MESSAGES: i32 = as_int(MAX_MESSAGES);
const MOST_MESSAGE_BYTES: i32 = as_int(MAX_MESSAGE_BYTES);

/// Returns a bound as a C `int`.
const fn as_int(bound: u64) -> i32 {
    assert!(bound <= MAX_INT);
    #[expect(clippy::cast_possible_truncation, reason = "asserted")]
    let bound = bound.cast_signed() as i32;
    bound
}

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

/// Sets the first limits of `kernel.sem` to `values`. Fails with `EINVAL`, and sets none, if a
/// value is negative or above the most.
fn set_semaphores(values: &[i32]) -> Result<(), Errno> {
    let mut new = [0; SEMAPHORES.len()];
    for ((new, value), (_, most)) in new.iter_mut().zip(values).zip(SEMAPHORES) {
        let value = u64::try_from(*value).ok();
        *new = value.filter(|value| *value <= most).ok_or(Errno::EINVAL)?;
    }
    for (new, (limit, _)) in new[..values.len()].iter().zip(SEMAPHORES) {
        limit.store(*new, Ordering::Relaxed);
    }
    Ok(())
}

/// Stores a knob's value in `place`, where the kernel reads it when needed. Never fails.
pub(super) fn keep(place: &AtomicU64, value: u64) -> Result<(), Errno> {
    // Relaxed: no other data depends on the value.
    place.store(value, Ordering::Relaxed);
    Ok(())
}

/// Writes `value` as a decimal number and a newline. Fails only if `text` is full or memory is
/// short.
pub(super) fn number(text: &mut Text, value: u64) -> Written {
    writeln!(text, "{value}")
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

/// Applies `vm.drop_caches`: 1 drops the clean cached pages of disks and of the host's tree, 2
/// drops dentries and inodes, 3 both. Files in memory are no cache. The CPUs also return the frames
/// in their caches. Never fails.
fn drop_caches(bits: u64) -> Result<(), Errno> {
    if bits & 1 != 0 {
        fs::drop_pages();
    }
    if bits & 2 != 0 {
        fs::tmpfs::forget_unused();
    }
    memory::allocator().request_drain();
    Ok(())
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
