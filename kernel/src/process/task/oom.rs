//! The OOM killer.

use super::{Process, WaitStatus, kill_group, next_process};
use crate::process::signal::Signal;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use machine::arch::clock::{self, Nanos};
use machine::arch::header;
use machine::console;
use machine::memory;
use machine::sync::SpinLock;

/// The time that a victim has to end before another is chosen.
const PATIENCE: Nanos = Nanos::from_secs(3);

static LAST_VICTIM: AtomicU32 = AtomicU32::new(0);
static LAST_KILL_NS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of frames that a process's end would free, shifted by its `oom_score_adj`.
/// Returns `None` if the process must not be killed.
fn badness(process: &Process, total_frames: u64) -> Option<i64> {
    let adjustment = i64::from(process.oom_score_adj());
    if process.pid() <= 1 || adjustment == -1000 {
        return None;
    }
    let usage = process.vm()?.usage();
    let frames = ((usage.rss() + usage.page_tables) / memory::PAGE_SIZE as u64).cast_signed();
    Some(frames + adjustment * total_frames.cast_signed() / 1000)
}

/// Returns the value of `/proc/PID/oom_score` for `process`, 0 to 2000, by the share of memory that
/// the process uses. Returns 0 if the OOM killer must not kill the process.
pub fn oom_score(process: &Process) -> u64 {
    let total = memory::allocator().managed_frames().max(1);
    let Some(points) = badness(process, total) else {
        return 0;
    };
    let score = (1000 + points * 1000 / total.cast_signed()) * 2 / 3;
    u64::try_from(score).unwrap_or(0).min(2000)
}

/// Kills the process whose end frees most memory, and names it and `reason` on the console. Kills
/// no process while an earlier victim is ending or another CPU is choosing one. Returns `false` if
/// there is no process to kill, else `true`. Holds locks only briefly, and allocates nothing.
///
/// # Panics
/// Panics if `vm.panic_on_oom` is set.
pub fn oom_kill(reason: &str) -> bool {
    static CHOOSING: SpinLock<()> = SpinLock::new(());
    // Another CPU is choosing, and its victim suffices.
    let Some(_choosing) = CHOOSING.try_lock() else {
        return true;
    };
    let now = clock::now();
    // One victim at a time: while the last victim is ending, no other is chosen.
    let last = LAST_VICTIM.load(Ordering::Relaxed);
    let last_kill = Nanos(LAST_KILL_NS.load(Ordering::Relaxed));
    if last != 0
        && now.saturating_sub(last_kill) < PATIENCE
        && super::find(last).is_some_and(|process| {
            process.oom_victim.load(Ordering::Relaxed) && process.vm().is_some()
        })
    {
        return true;
    }
    let total = memory::allocator().managed_frames();
    let mut worst: Option<(i64, Arc<Process>)> = None;
    let mut pid = 0;
    // Ends: each turn has a higher number.
    while let Some(process) = next_process(pid) {
        pid = process.pid() + 1;
        // A victim that is still there does not free its memory soon.
        if process.oom_victim.load(Ordering::Relaxed) {
            continue;
        }
        let Some(points) = badness(&process, total) else {
            continue;
        };
        // Among equals the youngest, as on Linux, which spares the parent of the process that uses
        // the memory.
        if worst.as_ref().is_none_or(|(most, _)| points >= *most) {
            worst = Some((points, process));
        }
    }
    assert!(
        memory::knobs::panic_on_oom() == 0,
        "out of memory ({reason}), and vm.panic_on_oom is set"
    );
    let Some((_, victim)) = worst else {
        console!("Out of memory and no process to kill ({reason})");
        return false;
    };
    LAST_VICTIM.store(victim.pid(), Ordering::Relaxed);
    LAST_KILL_NS.store(now.0, Ordering::Relaxed);
    kill(&victim, reason);
    true
}

fn kill(victim: &Process, reason: &str) {
    let usage = victim.vm().map(|vm| vm.usage()).unwrap_or_default();
    victim.oom_victim.store(true, Ordering::Relaxed);
    console!(
        "Out of memory: Killed process {} ({}) total-vm:{}kB, anon-rss:{}kB, file-rss:{}kB, \
         shmem-rss:{}kB, UID:{} pgtables:{}kB oom_score_adj:{} ({reason})",
        victim.pid(),
        victim.name(),
        usage.size >> 10,
        usage.rss_anon >> 10,
        usage.rss_file >> 10,
        usage.rss_shmem >> 10,
        victim.credentials().users.real,
        usage.page_tables >> 10,
        victim.oom_score_adj(),
    );
    memory::count_oom_kill();
    header::note_oom_kill(victim.pid(), usage.rss(), victim.name().padded());
    let mut group = victim.group.lock();
    kill_group(&mut group, WaitStatus::signalled(Signal::SIGKILL));
}
