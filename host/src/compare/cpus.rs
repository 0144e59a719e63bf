//! Restricts guests to certain CPUs of the host.
//!
//! The CPUs of a host differ in speed at any moment, since each may share a core with other work.
//! Guests that take turns are restricted to the same ones.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPU affinity of the thread that called [`Self::hold`], which its children inherit. Dropping
/// this restores the affinity of that thread; it must be dropped there.
#[derive(Debug)]
pub(crate) struct Cpus {
    before: Option<CpuSet>,
    /// The CPUs to which children are restricted; empty if they are not restricted.
    pub(crate) held: Vec<u32>,
}

impl Cpus {
    /// Restricts this thread to the last `count` of its CPUs until the result is dropped. Does
    /// nothing if `count` is `None`, if the thread has no more CPUs than that, or if the kernel
    /// refuses.
    pub(crate) fn hold(count: Option<u32>) -> Self {
        let free = Self {
            before: None,
            held: Vec::new(),
        };
        let (Some(count), Ok(before)) = (count, sched_getaffinity(None)) else {
            return free;
        };
        let held = last(&before, count);
        if u32::try_from(held.len()) != Ok(count) || before.count() <= count {
            return free;
        }
        let mut set = CpuSet::new();
        for &cpu in &held {
            set.set(cpu as usize);
        }
        if sched_setaffinity(None, &set).is_err() {
            return free;
        }
        Self {
            before: Some(before),
            held,
        }
    }
}

impl Drop for Cpus {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The kernel reported this set before. A CPU that has gone offline since is no problem.
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// Returns the last `count` CPUs of a set. The first CPUs handle most of a host's interrupts.
fn last(set: &CpuSet, count: u32) -> Vec<u32> {
    let known = u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    let mut held: Vec<u32> = (0..known)
        .rev()
        .filter(|&cpu| set.is_set(cpu as usize))
        .take(count as usize)
        .collect();
    held.reverse();
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_held_and_let_go() {
        let before = sched_getaffinity(None).expect("a thread knows its CPUs");
        if before.count() > 1 {
            let cpus = Cpus::hold(Some(1));
            assert_eq!(cpus.held.len(), 1);
            let now = sched_getaffinity(None).expect("a thread knows its CPUs");
            assert_eq!(now.count(), 1);
            assert!(now.is_set(cpus.held[0] as usize));
        }
        assert_eq!(sched_getaffinity(None).expect("as before"), before);
        for count in [None, Some(before.count()), Some(u32::MAX)] {
            assert_eq!(Cpus::hold(count).held, [0; 0]);
            assert_eq!(sched_getaffinity(None).expect("as before"), before);
        }
    }
}
