//! Gives memory of the guest to the host while the host is under memory pressure.
//!
//! Each run reacts on its own, and needs no knowledge of other runs. Each gives all free memory of
//! its guest, so the guest with the most idle memory gives the most, and memory in use stays.
//! Guests whose CPUs are stopped give first. While the pressure lasts, the guest is asked for more
//! by one reclaim step per event. Each step is taken once until the host has been calm, because
//! repeated dropping of caches and compaction gains nothing.

use super::delivery::spawn;
use super::host_stalls::StallReporter;
use crate::failure::Failure;
use crate::machine::GiveBack;
use crate::reclaim::{FreeMemory, PauseWatcher, ReclaimQueue};
use ebb_blk::pressure::registry::Waker;
use ebb_blk::pressure::source::Watch;
use ebb_blk::pressure::{ReclaimMemory, Registry, Source, watch};
use ebb_blk::time::{Clock, Micros};
use ebb_wire::Reclaim;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A running guest gives its memory this much later than a paused one.
const AFTER_OTHERS: Duration = Duration::from_millis(20);
/// After this time without an event, the next event starts with the first step.
const CALM: Duration = Duration::from_secs(5);

/// The next reclaim step while memory pressure lasts.
#[derive(Debug)]
struct StepSequence {
    steps: &'static [Reclaim],
    last: Option<Micros>,
    taken: usize,
}

impl StepSequence {
    /// Returns the step for `event`. Returns `None` if all steps were taken since the host was last
    /// calm.
    fn step(&mut self, event: Micros) -> Option<Reclaim> {
        if self.last.is_none_or(|last| event > last + CALM) {
            self.taken = 0;
        }
        self.last = Some(event);
        let step = self.steps.get(self.taken).copied();
        self.taken += usize::from(step.is_some());
        step
    }
}

/// Gives idle memory of one guest to the host at each event of memory pressure: its free memory,
/// then one reclaim step that the guest carries out.
#[derive(Debug)]
pub(super) struct Idle {
    pause_watcher: Arc<PauseWatcher>,
    reclaim_queue: Arc<ReclaimQueue>,
    /// Takes free memory without the guest's help. `None` where the host cannot read the guest's
    /// allocator.
    free_memory: Option<Arc<FreeMemory>>,
    sequence: StepSequence,
}

impl Idle {
    /// Creates the object for one guest. `pause_watcher` knows whether its CPUs run,
    /// `reclaim_queue` runs the reclaim steps, and `free_memory` takes free memory without the
    /// guest's help, if it is not `None`.
    pub(super) fn new(
        pause_watcher: Arc<PauseWatcher>,
        reclaim_queue: Arc<ReclaimQueue>,
        free_memory: Option<Arc<FreeMemory>>,
    ) -> Self {
        let steps = reclaim_queue.steps();
        Self {
            pause_watcher,
            reclaim_queue,
            free_memory,
            sequence: StepSequence {
                steps,
                last: None,
                taken: 0,
            },
        }
    }
}

impl ReclaimMemory for Idle {
    fn reclaim_memory(&mut self, event: Micros) {
        // The user has asked for a guest that keeps its memory.
        if self.pause_watcher.give_back() == GiveBack::Off {
            return;
        }
        let stands_still = self.pause_watcher.vcpus().look().is_some();
        let taken = |memory: &Arc<FreeMemory>| memory.reclaim(u64::MAX).is_ok();
        if stands_still {
            // This costs the guest no time. The steps need its CPUs, so they wait until it runs.
            let _ = self.free_memory.as_ref().map(taken);
            return;
        }
        // Paused guests lose no time by giving memory, so they give first.
        thread::sleep(AFTER_OTHERS);
        let taken = self.free_memory.as_ref().is_some_and(taken);
        match self.sequence.step(event) {
            // The free memory has been taken above.
            Some(Reclaim::Free) if taken => {}
            // The result is not awaited. If too many requests wait already, this one is dropped.
            Some(step) => drop(self.reclaim_queue.ask(step)),
            None => {}
        }
    }
}

/// Watches the host's memory pressure in a thread until it is dropped.
///
/// Only that thread keeps the capability for pressure windows below two seconds. So it must start
/// before the other threads give up their capabilities.
#[derive(Debug)]
pub(super) struct Watcher {
    registry: Registry,
    _watch: Watch,
}

impl Watcher {
    /// Starts the thread that watches the host's memory pressure.
    ///
    /// # Errors
    /// Fails if the host shows no memory figures, or has no descriptor or thread left.
    pub(super) fn start() -> Result<Self, Failure> {
        let registry = Registry::default();
        let source = Source::find().map_err(cannot)?;
        let watch = watch(source, registry.clone(), Clock::start()).map_err(cannot)?;
        Ok(Self {
            registry,
            _watch: watch,
        })
    }
}

fn cannot(source: io::Error) -> Failure {
    Failure::Setup {
        what: "memory pressure",
        source,
    }
}

/// The thread that gives a guest's memory to the host under memory pressure. Dropping this makes
/// the thread end without being waited for: it may be taking the memory of a large guest.
#[derive(Debug)]
pub(super) struct Pressure {
    ended: Arc<AtomicBool>,
    waker: Waker,
}

impl Pressure {
    /// Starts the thread. On each event of `watcher` it sends the host's stalls by `reporter` if
    /// there is one, and then gives memory by `idle`. Between events it sends stalls as long as
    /// `reporter` asks for that.
    ///
    /// # Errors
    /// Fails if the host has no descriptor or thread left.
    pub(super) fn start(
        watcher: &Watcher,
        mut idle: Idle,
        mut reporter: Option<StallReporter>,
    ) -> Result<Self, Failure> {
        let mut registration = watcher.registry.register("guest").map_err(cannot)?;
        let waker = registration.waker();
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        spawn("idle memory", move || {
            // Acquire pairs with the Release store in `drop`.
            while !stop.load(Ordering::Acquire) {
                let wait = reporter.as_ref().and_then(StallReporter::wait);
                let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
                let mut fds = [PollFd::new(&registration, PollFlags::IN)];
                match poll(&mut fds, wait.as_ref()) {
                    Ok(0) => {
                        if let Some(reporter) = &mut reporter {
                            reporter.sample(Instant::now());
                        }
                    }
                    Ok(_) => {
                        // The stalls are sent first, because the reclaim below takes a while.
                        if let Some(reporter) = &mut reporter {
                            reporter.begin(Instant::now());
                        }
                        let _ = registration.deliver(&mut idle);
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => return,
                }
            }
        })?;
        Ok(Self { ended, waker })
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        // Release pairs with the Acquire load of the thread.
        self.ended.store(true, Ordering::Release);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::KernelKind;

    #[test]
    fn a_step_is_taken_once_until_the_host_is_calm() {
        let all = crate::reclaim::steps(KernelKind::Linux);
        let mut sequence = StepSequence {
            steps: all,
            last: None,
            taken: 0,
        };
        let second = Duration::from_secs(1);
        let mut now = Micros(7);
        let mut steps = Vec::new();
        for _ in 0..6 {
            steps.push(sequence.step(now));
            now = now + second;
        }
        assert_eq!(steps[..2], [Some(Reclaim::Free), Some(Reclaim::Cache)]);
        assert_eq!(steps[2..], [None; 4]);
        assert_eq!(sequence.step(now + CALM), Some(Reclaim::Free));
        assert_eq!(sequence.step(now + CALM + second), Some(Reclaim::Cache));
    }
}
