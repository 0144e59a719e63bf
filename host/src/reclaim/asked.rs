//! Steps that a run's guest is asked for, by hand or by the host's pressure: one after the other, in a thread of their own.

use super::engine::FreeMemory;
use super::squeeze::{Wanted, squeeze};
use super::standing::Standing;
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

/// Steps that wait at most: whoever asks for more is told to come again.
const WAITING_MAX: usize = 16;
/// How often the guest's word is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A guest that is not through by then is asked for the next step.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a guest is asked.
#[derive(Debug)]
pub(crate) struct Means {
    pub(crate) kernel: KernelKind,
    pub(crate) guest: Arc<dyn Guest>,
    /// The way to its kernel, of one that listens.
    pub(crate) control: Option<Arc<Control>>,
    /// What the host takes by its own hand.
    pub(crate) free_memory: Option<Arc<FreeMemory>>,
    /// Whether it stands still.
    pub(crate) standing: Arc<Standing>,
    /// A monitor for its balloon.
    pub(crate) monitor: UnixStream,
    /// Where failures are shown.
    pub(crate) shown: Option<Arc<Terminal>>,
}

/// The steps of a guest with this kernel, the cheapest first. A stock Linux takes them by its balloon, page by page. To Ebb's
/// kernel that would give nothing: it would write a descriptor for each page of blocks that are free as a whole.
pub(crate) fn steps(kernel: KernelKind) -> &'static [Reclaim] {
    match kernel {
        KernelKind::Ebb => &Reclaim::ALL,
        KernelKind::Linux => &Reclaim::ALL[..2],
        KernelKind::Other => &[],
    }
}

/// Why a guest that stands still cannot take part in a step.
pub(crate) fn stands_still(by: StoppedBy) -> &'static str {
    match by {
        StoppedBy::Ebb => {
            "it needs the guest's CPUs, which are paused; `ebb resume` lets them go on"
        }
        StoppedBy::Signal => {
            "it needs the guest's CPUs, and a signal has stopped QEMU; SIGCONT lets it go on"
        }
    }
}

/// Where steps are asked for. The thread ends with it.
#[derive(Debug)]
pub(crate) struct Asked {
    kernel: KernelKind,
    next: Mutex<u32>,
    steps: SyncSender<(u32, Reclaim)>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last step that is through; 0 before the first.
    done: AtomicU32,
    /// That of the last one that failed; 0 if none has.
    failed: AtomicU32,
    ended: AtomicBool,
}

impl Asked {
    /// Begins to wait for steps.
    pub(crate) fn start(means: Means) -> io::Result<Self> {
        let (steps, asked) = sync_channel(WAITING_MAX);
        let state = Arc::new(State::default());
        let kernel = means.kernel;
        let shared = Arc::clone(&state);
        thread::Builder::new()
            .name("asked".into())
            .spawn(move || Asker::new(means, shared).serve(&asked))?;
        Ok(Self {
            kernel,
            next: Mutex::new(0),
            steps,
            state,
        })
    }

    /// Whether the host takes a step by itself, and needs no CPU of the guest's for it.
    pub(crate) fn is_the_hosts(&self, step: Reclaim) -> bool {
        self.kernel == KernelKind::Ebb && step == Reclaim::Free
    }

    /// The steps that there are.
    pub(crate) fn steps(&self) -> &'static [Reclaim] {
        steps(self.kernel)
    }

    /// Asks for a step; [`Self::done`] is its number, or a later one, when it is through. `None` if too many wait already.
    pub(crate) fn ask(&self, step: Reclaim) -> Option<u32> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // 0 is what a guest shows that was never asked.
        let number = next.wrapping_add(1).max(1);
        self.steps.try_send((number, step)).ok()?;
        *next = number;
        Some(number)
    }

    /// The number of the last step that is through; 0 before the first.
    pub(crate) fn done(&self) -> u32 {
        // Acquire pairs with the Release of the thread: memory that was given back is gone.
        self.state.done.load(Ordering::Acquire)
    }

    /// The number of the last step that failed, among those up to [`Self::done`]; 0 if none has.
    pub(crate) fn failed(&self) -> u32 {
        // Relaxed: read after `done`.
        self.state.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // Relaxed: nothing else is handed over.
        self.state.ended.store(true, Ordering::Relaxed);
    }
}

/// The thread's side.
struct Asker {
    means: Means,
    state: Arc<State>,
    /// Requests to the guest's kernel so far.
    requests: u32,
    balloon: Option<Balloon>,
}

impl Asker {
    fn new(means: Means, state: Arc<State>) -> Self {
        Self {
            means,
            state,
            requests: 0,
            balloon: None,
        }
    }

    fn serve(mut self, asked: &Receiver<(u32, Reclaim)>) {
        while let Ok((number, step)) = asked.recv() {
            if let Err(why) = self.take(step) {
                // Relaxed: the Release of `done` hands it over.
                self.state.failed.store(number, Ordering::Relaxed);
                if let Some(terminal) = &self.means.shown {
                    terminal.message(&format!("ebb: step `{}`: {why}", step.name()));
                }
            }
            self.state.done.store(number, Ordering::Release);
            // A guest that stands still is looked at seldom.
            self.means.standing.vcpus().ring();
        }
    }

    /// Takes a step, or says why it could not.
    fn take(&mut self, step: Reclaim) -> Result<(), String> {
        if self.means.control.is_none() {
            self.check_runs()?;
            let taken = self.balloon(step == Reclaim::Free);
            return taken.map_err(|error| error.whole());
        }
        let memory = self.means.free_memory.as_ref();
        let by_host =
            step == Reclaim::Free && memory.is_some_and(|memory| memory.reclaim(u64::MAX).is_ok());
        if by_host { Ok(()) } else { self.request(step) }
    }

    /// Fails if the guest's CPUs stand still, and so it cannot take part.
    fn check_runs(&self) -> Result<(), String> {
        match self.means.standing.vcpus().look() {
            None => Ok(()),
            Some(by) => Err(stands_still(by).to_owned()),
        }
    }

    /// Asks the guest's kernel, and waits until it is through.
    fn request(&mut self, step: Reclaim) -> Result<(), String> {
        let Some(control) = &self.means.control else {
            return Err("its kernel does not listen".into());
        };
        self.check_runs()?;
        self.requests = self.requests.wrapping_add(1).max(1);
        control.reclaim(self.requests, step);
        let deadline = Instant::now() + PATIENCE;
        while self.means.guest.look().reclaimed != Some(self.requests) {
            if self.state.ended.load(Ordering::Relaxed) {
                return Err("it has ended".into());
            }
            self.check_runs()?;
            if Instant::now() >= deadline {
                return Err(format!(
                    "the guest is not through after {} s",
                    PATIENCE.as_secs()
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
                let monitor = self.means.monitor.try_clone().map_err(BalloonError::Io)?;
                empty.insert(Balloon::over(monitor)?)
            }
        };
        let wanted = Wanted {
            target: None,
            only_free,
        };
        squeeze(balloon, wanted, &self.state.ended).map(drop)
    }
}
