//! Memory pressure of the host: a run gives what its guest does not use, as every other run does.
//!
//! Nobody has to know the others. Each gives all that is free in its guest, so whoever has most idle memory gives most, and what
//! a guest works with stays. Guests that stand still give first. While the pressure lasts the guest is asked for more, a step at a time; each step once, until the
//! host has been calm: dropping and compacting again and again would help nobody.

use super::delivery::spawn;
use super::host_stalls::Telling;
use crate::failure::Failure;
use crate::machine::GiveBack;
use crate::reclaim::{Asked, FreeMemory, Standing};
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
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How much later a running guest gives memory than a paused one.
const AFTER_OTHERS: Duration = Duration::from_millis(20);
/// After this time without an event the next event begins with the first step again.
const CALM: Duration = Duration::from_secs(5);

/// Which step is next while pressure lasts.
#[derive(Debug)]
struct Lasting {
    steps: &'static [Reclaim],
    last: Option<Micros>,
    taken: usize,
}

impl Lasting {
    /// The step that an event calls for, if there is one left.
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

/// What a run can give.
#[derive(Debug)]
pub(super) struct Idle {
    standing: Arc<Standing>,
    asked: Arc<Asked>,
    /// What the host can take without the guest.
    free_memory: Option<Arc<FreeMemory>>,
    lasting: Lasting,
}

impl Idle {
    /// That of a guest that stands so.
    pub(super) fn new(
        standing: Arc<Standing>,
        asked: Arc<Asked>,
        free_memory: Option<Arc<FreeMemory>>,
    ) -> Self {
        let steps = asked.steps();
        Self {
            standing,
            asked,
            free_memory,
            lasting: Lasting {
                steps,
                last: None,
                taken: 0,
            },
        }
    }
}

impl ReclaimMemory for Idle {
    fn reclaim_memory(&mut self, event: Micros) {
        // Who wants memory to stay has said so.
        if self.standing.give_back() == GiveBack::Off {
            return;
        }
        let stands_still = self.standing.vcpus().look().is_some();
        let taken = |memory: &Arc<FreeMemory>| memory.reclaim(u64::MAX).is_ok();
        if stands_still {
            // It costs no guest anything. The steps are for later, when it runs.
            let _ = self.free_memory.as_ref().map(taken);
            return;
        }
        // A guest that stands still misses nothing of what it gives, so one that runs lets it give first.
        thread::sleep(AFTER_OTHERS);
        let taken = self.free_memory.as_ref().is_some_and(taken);
        match self.lasting.step(event) {
            // It is here already.
            Some(Reclaim::Free) if taken => {}
            // Nobody waits for it; where too much is asked for already, it is one step less.
            Some(step) => drop(self.asked.ask(step)),
            None => {}
        }
    }
}

/// Watches the host's memory until this is dropped. Its thread alone keeps the capability for windows
/// shorter than two seconds, so it starts before the others give theirs up.
#[derive(Debug)]
pub(super) struct Watcher {
    registry: Registry,
    _watch: Watch,
}

impl Watcher {
    /// Starts to watch.
    ///
    /// # Errors
    /// The host's, if it has no descriptor or thread left.
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

/// Asks a guest for memory under pressure, until this is dropped.
#[derive(Debug)]
pub(super) struct Pressure {
    ended: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Pressure {
    /// Starts to ask the guest of `idle` for memory when `watcher` notices pressure, and to tell it of
    /// the host's stalls then by `telling`, if there is one.
    ///
    /// # Errors
    /// The host's, if it has no descriptor or thread left.
    pub(super) fn start(
        watcher: &Watcher,
        mut idle: Idle,
        mut telling: Option<Telling>,
    ) -> Result<Self, Failure> {
        let mut registration = watcher.registry.register("guest").map_err(cannot)?;
        let waker = registration.waker();
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let thread = spawn("idle memory", move || {
            // Acquire: pairs with the Release in `drop`.
            while !stop.load(Ordering::Acquire) {
                let wait = telling.as_ref().and_then(Telling::wait);
                let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
                let mut fds = [PollFd::new(&registration, PollFlags::IN)];
                match poll(&mut fds, wait.as_ref()) {
                    Ok(0) => {
                        if let Some(telling) = &mut telling {
                            telling.sample(Instant::now());
                        }
                    }
                    Ok(_) => {
                        // First: what it has to say is about now, and the work below takes a while.
                        if let Some(telling) = &mut telling {
                            telling.begin(Instant::now());
                        }
                        let _ = registration.deliver(&mut idle);
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => return,
                }
            }
        })?;
        Ok(Self {
            ended,
            waker,
            thread: Some(thread),
        })
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        // Release: pairs with the Acquire above.
        self.ended.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::KernelKind;

    #[test]
    fn a_step_is_taken_once_until_the_host_is_calm() {
        let all = crate::reclaim::steps(KernelKind::Linux);
        let mut lasting = Lasting {
            steps: all,
            last: None,
            taken: 0,
        };
        let second = Duration::from_secs(1);
        let mut now = Micros(7);
        let mut steps = Vec::new();
        for _ in 0..6 {
            steps.push(lasting.step(now));
            now = now + second;
        }
        assert_eq!(steps[..2], [Some(Reclaim::Free), Some(Reclaim::Cache)]);
        assert_eq!(steps[2..], [None; 4]);
        assert_eq!(lasting.step(now + CALM), Some(Reclaim::Free));
        assert_eq!(lasting.step(now + CALM + second), Some(Reclaim::Cache));
    }
}
