//! Performs reclaim steps for a run's guest, one after the other, in a thread of their own. The
//! user asks for them, or the host's memory pressure.
//!
//! Where the host can take part in the guest's allocator, it takes the free memory by itself
//! (`engine`). Ebb's kernel does the other steps, each after a line on the control port. Stock
//! Linux gives memory by its balloon, over a second monitor (`squeeze`).

use super::engine::FreeMemory;
use super::pause_watcher::PauseWatcher;
use super::squeeze::{Wanted, squeeze};
use crate::guest::Guest;
use crate::machine::KernelKind;
use crate::qemu::{Balloon, BalloonError, StoppedBy};
use crate::streams::Control;
use crate::text::Terminal;
use ebb_wire::Reclaim;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The largest number of queued steps. A further request is refused.
const WAITING_MAX: usize = 16;
/// The interval at which the guest's progress is read.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time after which a step fails and the next one starts.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The parts of a run that reclaim steps use: the guest, its memory, its control port and its
/// balloon.
#[derive(Debug)]
pub(crate) struct ReclaimTargets {
    pub(crate) kernel: KernelKind,
    pub(crate) guest: Arc<dyn Guest>,
    /// The control port of the guest's kernel, if it accepts requests.
    pub(crate) control: Option<Arc<Control>>,
    /// The free memory that the host can take by itself.
    pub(crate) free_memory: Option<Arc<FreeMemory>>,
    /// The state of the virtual CPUs: running or stopped.
    pub(crate) pause_watcher: Arc<PauseWatcher>,
    /// A monitor for the balloon.
    pub(crate) monitor: UnixStream,
    /// The terminal for failures.
    pub(crate) shown: Option<Arc<Terminal>>,
}

/// Returns the reclaim steps for a guest with the kernel `kernel`, the cheapest first; none for an
/// unknown kernel. A stock Linux performs the first two through its balloon, page by page. Ebb's
/// kernel would not gain from that: it would write a descriptor for each page of completely free
/// blocks.
pub(crate) fn steps(kernel: KernelKind) -> &'static [Reclaim] {
    match kernel {
        KernelKind::Ebb => &Reclaim::ALL,
        KernelKind::Linux => &Reclaim::ALL[..2],
        KernelKind::Other => &[],
    }
}

/// Returns a text for the user that says why a guest with stopped CPUs cannot perform a reclaim
/// step, and how to resume it. `by` says how the CPUs were stopped.
pub(crate) fn stopped_reason(by: StoppedBy) -> &'static str {
    match by {
        StoppedBy::Ebb => {
            "it needs the guest's CPUs, which are paused; `ebb resume` lets them go on"
        }
        StoppedBy::Signal => {
            "it needs the guest's CPUs, and a signal has stopped QEMU; SIGCONT lets it go on"
        }
    }
}

/// The queue of reclaim steps for one guest, which a thread performs one after the other. Dropping
/// it makes the thread end without being waited for.
#[derive(Debug)]
pub(crate) struct ReclaimQueue {
    kernel: KernelKind,
    next: Mutex<u32>,
    steps: SyncSender<(u32, Reclaim)>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last finished step; 0 before the first.
    done: AtomicU32,
    /// The number of the last failed step; 0 if none failed.
    failed: AtomicU32,
    ended: AtomicBool,
}

impl ReclaimQueue {
    /// Starts the thread that performs the steps on `targets`. A step that fails is printed on the
    /// terminal in `targets`, if there is one. Fails if the host cannot create a thread.
    pub(crate) fn start(targets: ReclaimTargets) -> io::Result<Self> {
        let (steps, asked) = sync_channel(WAITING_MAX);
        let state = Arc::new(State::default());
        let kernel = targets.kernel;
        let shared = Arc::clone(&state);
        thread::Builder::new()
            .name("asked".into())
            .spawn(move || ReclaimThread::new(targets, shared).serve(&asked))?;
        Ok(Self {
            kernel,
            next: Mutex::new(0),
            steps,
            state,
        })
    }

    /// Returns whether the host performs `step` by itself, without the guest's CPUs: the step
    /// `Free` of a guest with Ebb's kernel.
    pub(crate) fn is_done_by_host(&self, step: Reclaim) -> bool {
        self.kernel == KernelKind::Ebb && step == Reclaim::Free
    }

    /// Returns the reclaim steps that this guest supports, the cheapest first.
    pub(crate) fn steps(&self) -> &'static [Reclaim] {
        steps(self.kernel)
    }

    /// Queues `step` without waiting for it, and returns its number, at least 1. The step is
    /// finished when [`Self::done`] returns this number or a later one. Does not check whether the
    /// guest supports it. Returns `None` if 16 steps are queued.
    pub(crate) fn ask(&self, step: Reclaim) -> Option<u32> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // 0 means that a guest was never asked.
        let number = next.wrapping_add(1).max(1);
        self.steps.try_send((number, step)).ok()?;
        *next = number;
        Some(number)
    }

    /// Returns the number of the last finished step, whether it succeeded or failed; 0 before the
    /// first.
    pub(crate) fn done(&self) -> u32 {
        // Acquire pairs with the thread's Release, so the effects of the step are visible.
        self.state.done.load(Ordering::Acquire)
    }

    /// Returns the number of the last failed step; 0 if none failed. Call [`Self::done`] before, so
    /// that all failures up to the number that it returned are visible.
    pub(crate) fn failed(&self) -> u32 {
        // Relaxed: it is read after `done`.
        self.state.failed.load(Ordering::Relaxed)
    }
}

impl Drop for ReclaimQueue {
    fn drop(&mut self) {
        // Relaxed: the flag publishes no other data.
        self.state.ended.store(true, Ordering::Relaxed);
    }
}

/// The state of the thread that performs the steps.
struct ReclaimThread {
    targets: ReclaimTargets,
    state: Arc<State>,
    /// The number of the last request to the guest's kernel.
    requests: u32,
    balloon: Option<Balloon>,
}

impl ReclaimThread {
    fn new(targets: ReclaimTargets, state: Arc<State>) -> Self {
        Self {
            targets,
            state,
            requests: 0,
            balloon: None,
        }
    }

    fn serve(mut self, asked: &Receiver<(u32, Reclaim)>) {
        while let Ok((number, step)) = asked.recv() {
            if let Err(why) = self.take(step) {
                // Relaxed: the Release of `done` publishes it.
                self.state.failed.store(number, Ordering::Relaxed);
                if let Some(terminal) = &self.targets.shown {
                    terminal.message(&format!("ebb: step `{}`: {why}", step.name()));
                }
            }
            self.state.done.store(number, Ordering::Release);
            // A guest with stopped CPUs is sampled rarely, so the sampler is woken.
            self.targets.pause_watcher.vcpus().signal();
        }
    }

    /// Performs a step. Returns the reason as text if it fails.
    fn take(&mut self, step: Reclaim) -> Result<(), String> {
        if self.targets.control.is_none() {
            self.check_runs()?;
            let taken = self.balloon(step == Reclaim::Free);
            return taken.map_err(|error| error.whole());
        }
        let memory = self.targets.free_memory.as_ref();
        let by_host =
            step == Reclaim::Free && memory.is_some_and(|memory| memory.reclaim(u64::MAX).is_ok());
        if by_host { Ok(()) } else { self.request(step) }
    }

    /// Fails if the guest's CPUs are stopped, with the reason as text.
    fn check_runs(&self) -> Result<(), String> {
        match self.targets.pause_watcher.vcpus().look() {
            None => Ok(()),
            Some(by) => Err(stopped_reason(by).to_owned()),
        }
    }

    /// Sends the step to the guest's kernel and waits until the kernel reports it as done. Fails if
    /// the CPUs stop, the run ends, or [`TIMEOUT`] passes.
    fn request(&mut self, step: Reclaim) -> Result<(), String> {
        let Some(control) = &self.targets.control else {
            return Err("its kernel does not listen".into());
        };
        self.check_runs()?;
        self.requests = self.requests.wrapping_add(1).max(1);
        control.reclaim(self.requests, step);
        let deadline = Instant::now() + TIMEOUT;
        while self.targets.guest.look().reclaimed != Some(self.requests) {
            if self.state.ended.load(Ordering::Relaxed) {
                return Err("it has ended".into());
            }
            self.check_runs()?;
            if Instant::now() >= deadline {
                return Err(format!(
                    "the guest has not finished this step after {} s",
                    TIMEOUT.as_secs()
                ));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn balloon(&mut self, only_free: bool) -> Result<(), BalloonError> {
        let balloon = match &mut self.balloon {
            Some(balloon) => balloon,
            empty => {
                let monitor = self.targets.monitor.try_clone().map_err(BalloonError::Io)?;
                empty.insert(Balloon::over_own(monitor)?)
            }
        };
        let wanted = Wanted {
            target: None,
            only_free,
        };
        squeeze(balloon, wanted, &self.state.ended).map(drop)
    }
}
