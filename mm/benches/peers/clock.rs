//! The CPU time of a thread, so that other load on the machine does not count.
#![allow(unsafe_code, reason = "asks the kernel")]

use std::time::Duration;

/// Returns the nanoseconds that this thread has run.
pub(crate) fn thread_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0, "Linux has had this clock since 2.6.12");
    let time = Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    );
    time.as_secs_f64() * 1e9
}

/// Returns the nanoseconds that this thread runs in `run`.
pub(crate) fn time(run: impl FnOnce()) -> f64 {
    let start = thread_ns();
    run();
    thread_ns() - start
}

/// Pins this thread to one CPU, if the machine has it.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: an empty set of CPUs is all zeroes.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `CPU_SET` checks its index, and the set is valid. A refusal leaves the thread
    // where the scheduler puts it, which costs precision only.
    unsafe {
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
