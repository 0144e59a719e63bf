//! Memory pressure of the host: a run gives what its guest does not use, as every other run does.
//!
//! Nobody has to know the others. Each gives all that is free in its guest, so whoever has most idle memory gives most, and what
//! a guest works with stays. While the pressure lasts the guest is asked for more, a step at a time; each step once, until the
//! host has been calm: dropping and compacting again and again would help nobody.

use super::delivery::spawn;
use crate::failure::Failure;
use crate::guest::Guest;
use crate::machine::GiveBack;
use crate::reclaim::{Asked, FreeMemory};
use ebb_blk::pressure::registry::Waker;
use ebb_blk::pressure::source::Watch;
use ebb_blk::pressure::{ReclaimMemory, Registry, Source, watch};
use ebb_blk::time::{Clock, Micros};
use ebb_wire::Reclaim;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// After so long without an event the next one begins with the first step again.
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
    guest: Arc<dyn Guest>,
    asked: Arc<Asked>,
    /// What the host can take without the guest.
    free_memory: Option<Arc<FreeMemory>>,
    /// How memory goes back, of a guest that does not say.
    mode: GiveBack,
    lasting: Lasting,
}

impl Idle {
    /// That of a guest that began in this `mode`.
    pub(super) fn new(
        guest: Arc<dyn Guest>,
        asked: Arc<Asked>,
        free_memory: Option<Arc<FreeMemory>>,
        mode: GiveBack,
    ) -> Self {
        let steps = asked.steps();
        Self {
            guest,
            asked,
            free_memory: free_memory.filter(|memory| memory.check().is_ok()),
            mode,
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
        if self.guest.give_back().unwrap_or(self.mode) == GiveBack::Off {
            return;
        }
        let free_memory = self.free_memory.as_ref();
        let taken = free_memory.is_some_and(|memory| memory.reclaim(u64::MAX).is_ok());
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
    /// Starts to ask the guest of `idle` for memory when `watcher` notices pressure.
    ///
    /// # Errors
    /// The host's, if it has no descriptor or thread left.
    pub(super) fn start(watcher: &Watcher, mut idle: Idle) -> Result<Self, Failure> {
        let mut registration = watcher.registry.register("guest").map_err(cannot)?;
        let waker = registration.waker();
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let thread = spawn("idle memory", move || {
            // Acquire: pairs with the Release in `drop`.
            while !stop.load(Ordering::Acquire) {
                match poll(&mut [PollFd::new(&registration, PollFlags::IN)], None) {
                    Ok(_) => drop(registration.deliver(&mut idle)),
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
