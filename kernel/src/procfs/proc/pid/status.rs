//! `/proc/PID/stat`, `status` and the other small files about a process.

use super::super::subject::Subject;
use super::super::system::ticks;
use crate::fs::text::Text;
use crate::process::ptrace;
use crate::process::seccomp::Confinement;
use crate::process::task::{self, Name, Process, Task, Usage, limits};
use crate::process::terminal;
use crate::process::{self, caller};
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use core::fmt::{Result as Written, Write};
use core::ops::Range;
use core::sync::atomic::Ordering;
use logic::credentials::Capabilities;
use logic::errno::Errno;
use logic::knob::number::{self, Base};
use machine::arch::cpu_count;
use machine::memory::PAGE_SIZE;

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes of arguments or environment that are copied at a time.
const PIECE: usize = 512;

fn state(subject: &Subject, process: &Process) -> u8 {
    match subject.tid.and_then(|tid| process.thread(tid)) {
        Some(task) => task.state_letter(),
        None => process.state_letter(),
    }
}

/// Returns the flags of the subject's thread, those of Linux's (`PF_*`) that tell of its program
/// and its end. `task` is the thread, or `None` if it has ended.
fn flags(subject: &Subject, process: &Process, task: Option<&Task>) -> u32 {
    /// The thread ends, and a core file no longer shows it.
    const EXITING: u32 = 0x4 | 0x8;
    /// The thread was made by fork or clone, and has not called exec.
    const FORK_NO_EXEC: u32 = 0x40;
    const DUMPED_CORE: u32 = 0x200;
    const SIGNALLED: u32 = 0x400;
    const KERNEL_THREAD: u32 = 0x20_0000;
    const RANDOMIZED: u32 = 0x40_0000;
    let (has_execed, zombie) = {
        let relations = process.relations.lock();
        (relations.has_execed, relations.zombie)
    };
    let mut flags = match (task, zombie) {
        (Some(task), _) if task.is_kernel() => KERNEL_THREAD,
        (Some(_), _) => 0,
        (None, Some(status)) if status.0 & 0x80 != 0 => EXITING | DUMPED_CORE | SIGNALLED,
        (None, Some(status)) if status.0 & 0x7f != 0 => EXITING | SIGNALLED,
        (None, _) => EXITING,
    };
    if !has_execed || subject.number() != process.pid() {
        flags |= FORK_NO_EXEC;
    }
    if process.randomized.load(Ordering::Relaxed) {
        flags |= RANDOMIZED;
    }
    flags
}

/// Shows `/proc/PID/stat`.
pub(super) fn stat(text: &mut Text, subject: &Subject, process: &Arc<Process>) -> Written {
    let task = subject.task(process);
    let name = task
        .as_ref()
        .map_or_else(|| process.name(), |task| task.name());
    let usage = process.usage();
    let children = process.children_usage();
    let own = match (subject.tid, &task) {
        (Some(_), Some(task)) => Usage::of_task(task),
        _ => usage,
    };
    let space = subject.space(process);
    let memory = space
        .as_ref()
        .map(|space| space.usage())
        .unwrap_or_default();
    // Only callers that may inspect the process see addresses of its memory.
    let seen = space.as_ref().filter(|_| subject.check_look().is_ok());
    let arguments = seen.map_or(0..0, |space| space.arg_range());
    let environment = seen.map_or(0..0, |space| space.env_range());
    let stack = seen.map_or(0, |space| space.stack_start());
    // As on Linux, others see 1 in place of the code's bounds.
    let hidden = u64::from(space.is_some());
    let [code, data] = seen.map_or([hidden..hidden, 0..0], |space| space.program());
    let heap = seen.map_or(0, |space| space.heap_start());
    let (ignored, caught) = process.actions().summary();
    let scheduling = task
        .as_ref()
        .map_or(*process.last_scheduling.lock(), |task| task.scheduling());
    let blocked = task.as_ref().map_or(0, |task| task.blocked().0);
    let pending = task
        .as_ref()
        .map_or(0, |task| task.signals().pending().set().0);
    let start = task
        .as_ref()
        .map_or_else(|| process.start_time(), |task| task.start_time());
    let start = if subject.tid.is_some() {
        start
    } else {
        process.start_time()
    };
    // As on Linux, only of one thread, to callers that may inspect it.
    let state = state(subject, process);
    let one = subject.tid.is_some() || process.listed_thread_count() < 2;
    let waits = one && state != b'R' && subject.check_look().is_ok();
    text.number(subject.number().into(), b' ')?;
    text.push(b"(")?;
    text.push(name.as_bytes())?;
    text.push(&[b')', b' ', state, b' '])?;
    let low = |set: u64| set & 0x7fff_ffff;
    let cpu = task.as_ref().map_or(0, |task| task.last_cpu());
    // ppid pgrp session
    for number in [process.ppid(), process.pgid(), process.session()] {
        text.number(number.into(), b' ')?;
    }
    // tty_nr tpgid flags
    let (terminal, foreground) = terminal::numbers(process);
    let flags = flags(subject, process, task.as_deref());
    write!(text, "{terminal} {foreground} {flags} ")?;
    for number in [
        // minflt cminflt majflt cmajflt
        own.minor_faults,
        children.minor_faults,
        own.major_faults,
        children.major_faults,
        // utime stime cutime cstime
        ticks(own.user),
        ticks(own.system),
        ticks(children.user),
        ticks(children.system),
    ] {
        text.number(number, b' ')?;
    }
    // priority nice
    let priority = match task
        .as_ref()
        .map_or(scheduling.priority, |task| task.priority())
    {
        0 => i64::from(20 + scheduling.nice),
        realtime => -1 - i64::from(realtime),
    };
    write!(text, "{priority} {} ", scheduling.nice)?;
    for number in [
        // num_threads itrealvalue starttime
        process.listed_thread_count() as u64,
        0,
        ticks(start),
        // vsize rss rsslim
        memory.size,
        memory.rss() / PAGE,
        process.limit(linux_raw_sys::general::RLIMIT_RSS as usize),
        // startcode endcode startstack kstkesp kstkeip
        code.start,
        code.end,
        stack,
        0,
        0,
        // signal blocked sigignore sigcatch, of the first 31 signals
        low(pending),
        low(blocked),
        low(ignored.0),
        low(caught.0),
        // wchan nswap cnswap
        u64::from(waits),
        0,
        0,
    ] {
        text.number(number, b' ')?;
    }
    // exit_signal
    let (exit_signal, zombie) = {
        let relations = process.relations.lock();
        (relations.exit_signal, relations.zombie)
    };
    if subject.number() == process.pid() {
        text.number(exit_signal.into(), b' ')?;
    } else {
        text.write_str("-1 ")?;
    }
    for number in [
        // processor rt_priority policy
        cpu as u64,
        scheduling.priority.into(),
        scheduling.policy.into(),
        // delayacct_blkio_ticks guest_time cguest_time start_data end_data start_brk
        0,
        0,
        0,
        data.start,
        data.end,
        heap,
        // arg_start arg_end env_start env_end
        arguments.start,
        arguments.end,
        environment.start,
        environment.end,
    ] {
        text.number(number, b' ')?;
    }
    // exit_code
    let status = zombie.filter(|_| subject.check_look().is_ok());
    text.number(status.map_or(0, |status| status.0.into()), b'\n')
}

fn state_name(letter: u8) -> &'static str {
    match letter {
        b'R' => "R (running)",
        b'T' => "T (stopped)",
        b't' => "t (tracing stop)",
        b'Z' => "Z (zombie)",
        b'X' => "X (dead)",
        _ => "S (sleeping)",
    }
}

/// Writes the name of a task in one line: a newline as `\n`, and a backslash twice.
fn push_name(text: &mut Text, name: &[u8]) -> Written {
    for part in name.split_inclusive(|byte| matches!(byte, b'\n' | b'\\')) {
        match part.split_last() {
            Some((b'\n', before)) => {
                text.push(before)?;
                text.push(b"\\n")?;
            }
            Some((b'\\', before)) => {
                text.push(before)?;
                text.push(b"\\\\")?;
            }
            _ => text.push(part)?,
        }
    }
    Ok(())
}

/// Shows `/proc/PID/status`.
pub(super) fn status(text: &mut Text, subject: &Subject, process: &Arc<Process>) -> Written {
    let task = subject.task(process);
    let name = task
        .as_ref()
        .map_or_else(|| process.name(), |task| task.name());
    text.write_str("Name:\t")?;
    push_name(text, name.as_bytes())?;
    text.write_str("\n")?;
    if let Some(context) = subject.fs(process) {
        writeln!(text, "Umask:\t{:04o}", context.umask())?;
    }
    writeln!(text, "State:\t{}", state_name(state(subject, process)))?;
    writeln!(
        text,
        "Tgid:\t{}\nNgid:\t0\nPid:\t{}",
        process.pid(),
        subject.number()
    )?;
    let tracer = task.as_deref().and_then(ptrace::tracer_of);
    let tracer = tracer.map_or(0, |tracer| tracer.tid());
    writeln!(text, "PPid:\t{}\nTracerPid:\t{tracer}", process.ppid())?;
    let who = task.as_ref().map_or_else(
        || process.credentials(),
        |task| task.credentials_for_others(),
    );
    for (name, ids) in [("Uid", who.users), ("Gid", who.groups)] {
        let ([real, effective, saved], file) = (ids.three(), ids.file);
        writeln!(text, "{name}:\t{real}\t{effective}\t{saved}\t{file}")?;
    }
    let slots = subject.files(process).map_or(0, |files| files.size());
    write!(text, "FDSize:\t{slots}\nGroups:\t")?;
    for (at, group) in who.supplementary.iter().enumerate() {
        let between = if at == 0 { "" } else { " " };
        write!(text, "{between}{group}")?;
    }
    text.write_str(" \n")?;
    writeln!(
        text,
        "NStgid:\t{}\nNSpid:\t{}",
        process.pid(),
        subject.number()
    )?;
    writeln!(
        text,
        "NSpgid:\t{}\nNSsid:\t{}",
        process.pgid(),
        process.session()
    )?;
    if let Some(space) = subject.space(process) {
        let usage = space.usage();
        let lines = [
            ("VmPeak", usage.peak_size),
            ("VmSize", usage.size),
            ("VmLck", usage.locked),
            ("VmPin", 0),
            ("VmHWM", usage.peak_rss),
            ("VmRSS", usage.rss()),
            ("RssAnon", usage.rss_anon),
            ("RssFile", usage.rss_file),
            ("RssShmem", usage.rss_shmem),
            ("VmData", usage.data),
            ("VmStk", usage.stack),
            ("VmExe", usage.text),
            ("VmLib", 0),
            ("VmPTE", usage.page_tables),
            ("VmSwap", 0),
            ("HugetlbPages", usage.hugetlb),
        ];
        for (name, bytes) in lines {
            writeln!(text, "{name}:\t{:>8} kB", bytes >> 10)?;
        }
        let huge = u8::from(!space.declines_huge_pages());
        writeln!(text, "CoreDumping:\t0\nTHP_enabled:\t{huge}")?;
    }
    let (ignored, caught) = process.actions().summary();
    let shared_pending = process.pending_set().0;
    let pending = task
        .as_ref()
        .map_or(0, |task| task.signals().pending().set().0);
    let blocked = task.as_ref().map_or(0, |task| task.blocked().0);
    writeln!(text, "Threads:\t{}", process.listed_thread_count())?;
    writeln!(
        text,
        "SigQ:\t{}/{}",
        process::signal::queued_of(who.users.real),
        process.limit(limits::index::SIGPENDING)
    )?;
    let sets = [
        ("SigPnd", pending),
        ("ShdPnd", shared_pending),
        ("SigBlk", blocked),
        ("SigIgn", ignored.0),
        ("SigCgt", caught.0),
        ("CapInh", who.inheritable.0),
        ("CapPrm", who.permitted.0),
        ("CapEff", who.effective.0),
        ("CapBnd", who.bounding.0),
        ("CapAmb", who.ambient.0),
    ];
    for (name, set) in sets {
        writeln!(text, "{name}:\t{set:016x}")?;
    }
    let confinement = task.as_ref().map(|task| task.confinement());
    let bound = confinement.is_some_and(Confinement::is_bound);
    let mode = confinement.map_or(0, Confinement::number);
    let filters = confinement.and_then(Confinement::filters);
    let filters = filters.map_or(0, |newest| newest.count());
    let nothing_new = u8::from(who.no_new_privileges || bound);
    writeln!(text, "NoNewPrivs:\t{nothing_new}\nSeccomp:\t{mode}")?;
    writeln!(text, "Seccomp_filters:\t{filters}")?;
    let online = if cpu_count() >= 64 {
        u64::MAX
    } else {
        (1 << cpu_count()) - 1
    };
    let allowed = task
        .as_ref()
        .map_or(online, |task| task.affinity().mask() & online);
    // As on Linux, the first word has a digit for each four of its CPUs.
    let digits = ((cpu_count() - 1) % 32 + 1).div_ceil(4);
    if cpu_count() > 32 {
        writeln!(
            text,
            "Cpus_allowed:\t{:0digits$x},{:08x}",
            allowed >> 32,
            allowed & 0xffff_ffff
        )?;
    } else {
        writeln!(text, "Cpus_allowed:\t{allowed:0digits$x}")?;
    }
    text.write_str("Cpus_allowed_list:\t")?;
    bit_list(text, allowed)?;
    writeln!(text, "\nMems_allowed:\t1\nMems_allowed_list:\t0")?;
    let (voluntary, involuntary) = task
        .as_ref()
        .map_or((0, 0), |task| task.account().switches());
    writeln!(text, "voluntary_ctxt_switches:\t{voluntary}")?;
    writeln!(text, "nonvoluntary_ctxt_switches:\t{involuntary}")
}

/// Writes the set bits as a list of ranges, such as `0-3,5`.
fn bit_list(text: &mut Text, bits: u64) -> Written {
    let mut left = bits;
    let mut separator = "";
    while left != 0 {
        let first = left.trailing_zeros();
        let run = (left >> first).trailing_ones();
        if run == 1 {
            write!(text, "{separator}{first}")?;
        } else {
            write!(text, "{separator}{first}-{}", first + run - 1)?;
        }
        separator = ",";
        let end = first + run;
        left = if end >= 64 { 0 } else { left >> end << end };
    }
    Ok(())
}

/// Shows `/proc/PID/statm`. All numbers are 0 if the thread has ended.
pub(super) fn statm(text: &mut Text, subject: &Subject, process: &Arc<Process>) -> Written {
    let space = subject.space(process);
    let usage = space.map(|space| space.usage()).unwrap_or_default();
    let pages = |bytes: u64| bytes / PAGE;
    let shared = usage.rss_file + usage.rss_shmem;
    writeln!(
        text,
        "{} {} {} {} 0 {} 0",
        pages(usage.size),
        pages(usage.rss()),
        pages(shared),
        pages(usage.text),
        pages(usage.data + usage.stack),
    )
}

/// Copies the memory in `range` to `text`, up to the first byte that cannot be read. With `title`,
/// ends behind the first NUL.
fn copy(text: &mut Text, space: &AddressSpace, range: Range<u64>, title: bool) -> Written {
    let mut at = range.start;
    while at < range.end {
        let mut piece = [0; PIECE];
        let left = usize::try_from(range.end - at).unwrap_or(PIECE);
        let piece = &mut piece[..left.min(PIECE)];
        if space.read_bytes(at, piece).is_err() {
            return Ok(());
        }
        if title && let Some(nul) = piece.iter().position(|&byte| byte == 0) {
            return text.push(&piece[..=nul]);
        }
        text.push(piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Shows `/proc/PID/cmdline`. Shows nothing if the thread has ended. As on Linux, a program that
/// has overwritten the last byte of its arguments shows a title: one string in the first page,
/// which may extend over the environment.
pub(super) fn cmdline(text: &mut Text, subject: &Subject, process: &Arc<Process>) -> Written {
    let Some(space) = subject.space(process) else {
        return Ok(());
    };
    let arguments = space.arg_range();
    let mut last = [0];
    let title = !arguments.is_empty()
        && space.read_bytes(arguments.end - 1, &mut last).is_ok()
        && last != [0];
    if !title {
        return copy(text, &space, arguments, false);
    }
    let end = space.env_range().end.min(arguments.start + PAGE);
    copy(text, &space, arguments.start..end, true)
}

/// Shows `/proc/PID/environ`. Shows nothing if `space` is `None`.
pub(super) fn environ(text: &mut Text, space: Option<&AddressSpace>) -> Written {
    let Some(space) = space else {
        return Ok(());
    };
    copy(text, space, space.env_range(), false)
}

/// Shows `/proc/PID/auxv`. Shows nothing if `space` is `None`.
pub(super) fn auxv(text: &mut Text, space: Option<&AddressSpace>) -> Written {
    let Some(space) = space else {
        return Ok(());
    };
    copy(text, space, space.aux_range(), false)
}

/// Shows `/proc/PID/personality`.
pub(super) fn personality(text: &mut Text, _: &Subject, process: &Arc<Process>) -> Written {
    writeln!(text, "{:08x}", process.personality())
}

/// Shows `/proc/PID/coredump_filter`. Shows nothing if the thread has ended.
pub(super) fn coredump_filter(
    text: &mut Text,
    subject: &Subject,
    process: &Arc<Process>,
) -> Written {
    if subject.space(process).is_none() {
        return Ok(());
    }
    writeln!(text, "{:08x}", process.core_filter.load(Ordering::Relaxed))
}

/// Sets the process's `coredump_filter`.
///
/// # Errors
/// Fails with `EINVAL` if `value` is no number, with `ERANGE` if the number does not fit 32 bits,
/// and with `ESRCH` if the thread has ended.
pub(super) fn set_coredump_filter(
    subject: &Subject,
    process: &Arc<Process>,
    value: &str,
) -> Result<(), Errno> {
    /// The kinds of memory that Linux knows.
    const KNOWN: u64 = 0x1ff;
    let filter = number::unsigned(value.as_bytes(), Base::OfPrefix, u32::MAX.into())?;
    subject.space(process).ok_or(Errno::ESRCH)?;
    // Fits: `KNOWN` has fewer bits.
    let filter = u32::try_from(filter & KNOWN).unwrap_or(0);
    process.core_filter.store(filter, Ordering::Relaxed);
    Ok(())
}

/// Checks that the caller may see and set the timer slack of the thread: the thread itself may, and
/// callers with `CAP_SYS_NICE`. Fails with `EPERM` otherwise.
fn check_timer_slack(subject: &Subject) -> Result<(), Errno> {
    if subject.number() == process::current().tid() {
        return Ok(());
    }
    caller::need(Capabilities::SYS_NICE)
}

/// Shows `/proc/PID/timerslack_ns`. Fails with `EPERM` if the caller may not see it.
pub(super) fn timer_slack(text: &mut Text, subject: &Subject, process: &Arc<Process>) -> Written {
    let task = subject.task(process);
    let slack = match check_timer_slack(subject) {
        Ok(()) => task.map_or_else(
            || process.last_timer_slack.load(Ordering::Relaxed),
            |task| task.timer_slack(),
        ),
        Err(error) => return Err(text.fail(error)),
    };
    writeln!(text, "{slack}")
}

/// Sets the thread's timer slack in nanoseconds.
///
/// # Errors
/// Fails with `EINVAL` if `value` is no number, with `ERANGE` if the number does not fit 64 bits,
/// with `EPERM` if the caller may not set it, and with `ESRCH` if the thread has ended.
pub(super) fn set_timer_slack(
    subject: &Subject,
    process: &Arc<Process>,
    value: &str,
) -> Result<(), Errno> {
    let slack = number::unsigned(value.as_bytes(), Base::Ten, u64::MAX)?;
    check_timer_slack(subject)?;
    let task = subject.task(process).ok_or(Errno::ESRCH)?;
    task.set_timer_slack(slack);
    Ok(())
}

/// Shows `/proc/PID/comm`.
pub(super) fn comm(text: &mut Text, subject: &Subject, process: &Arc<Process>) -> Written {
    let name = subject
        .task(process)
        .map_or_else(|| process.name(), |task| task.name());
    text.push(name.as_bytes())?;
    text.push(b"\n")
}

/// Sets the name of a thread of the calling process, also of its main thread after that has ended.
/// The name is the first bytes of `value`, of any kind, up to a NUL.
///
/// # Errors
/// Fails with `EINVAL` for another process's thread, and with `ESRCH` if another thread than the
/// main thread has ended.
pub(super) fn set_comm(
    subject: &Subject,
    process: &Arc<Process>,
    value: &[u8],
) -> Result<(), Errno> {
    if process.pid() != process::current().process().pid() {
        return Err(Errno::EINVAL);
    }
    match subject.task(process) {
        Some(task) => task.set_name(value),
        None if subject.number() == process.pid() => {
            *process.last_name.lock() = Name::cut(value);
        }
        None => return Err(Errno::ESRCH),
    }
    Ok(())
}

/// Shows `/proc/PID/limits`.
pub(super) fn limits(text: &mut Text, _: &Subject, process: &Arc<Process>) -> Written {
    let rows = [
        ("Max cpu time", "seconds", limits::index::CPU),
        ("Max file size", "bytes", limits::index::FSIZE),
        ("Max data size", "bytes", limits::index::DATA),
        ("Max stack size", "bytes", limits::index::STACK),
        ("Max core file size", "bytes", limits::index::CORE),
        (
            "Max resident set",
            "bytes",
            linux_raw_sys::general::RLIMIT_RSS as usize,
        ),
        ("Max processes", "processes", limits::index::NPROC),
        ("Max open files", "files", limits::index::NOFILE),
        ("Max locked memory", "bytes", limits::index::MEMLOCK),
        ("Max address space", "bytes", limits::index::AS),
        (
            "Max file locks",
            "locks",
            linux_raw_sys::general::RLIMIT_LOCKS as usize,
        ),
        ("Max pending signals", "signals", limits::index::SIGPENDING),
        ("Max msgqueue size", "bytes", limits::index::MSGQUEUE),
        ("Max nice priority", "", limits::index::NICE),
        ("Max realtime priority", "", limits::index::RTPRIO),
        (
            "Max realtime timeout",
            "us",
            linux_raw_sys::general::RLIMIT_RTTIME as usize,
        ),
    ];
    writeln!(
        text,
        "{:<25} {:<20} {:<20} {:<10}",
        "Limit", "Soft Limit", "Hard Limit", "Units"
    )?;
    let all = process.limits();
    for (name, unit, index) in rows {
        write!(text, "{name:<25} ")?;
        for value in [all.0[index].current, all.0[index].maximum] {
            if value == limits::INFINITY {
                write!(text, "{:<20} ", "unlimited")?;
            } else {
                write!(text, "{value:<20} ")?;
            }
        }
        if unit.is_empty() {
            writeln!(text)?;
        } else {
            writeln!(text, "{unit:<10}")?;
        }
    }
    Ok(())
}

/// Shows `/proc/PID/oom_score`.
pub(super) fn oom_score(text: &mut Text, _: &Subject, process: &Arc<Process>) -> Written {
    writeln!(text, "{}", task::oom_score(process))
}

/// Shows `/proc/PID/oom_score_adj`.
pub(super) fn oom_score_adj(text: &mut Text, _: &Subject, process: &Arc<Process>) -> Written {
    writeln!(text, "{}", process.oom_score_adj())
}

/// Sets the process's `oom_score_adj`.
///
/// # Errors
/// Fails with `EINVAL` if `value` is no number from -1000 to 1000, and with the errors of
/// [`Process::set_oom_score_adj`].
pub(super) fn set_oom_score_adj(
    _: &Subject,
    process: &Arc<Process>,
    value: &str,
) -> Result<(), Errno> {
    let value = number::signed(value.as_bytes(), Base::OfPrefix)?;
    if !(-1000..=1000).contains(&value) {
        return Err(Errno::EINVAL);
    }
    process.set_oom_score_adj(value, caller::can(Capabilities::SYS_RESOURCE))
}
