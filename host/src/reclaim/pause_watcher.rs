//! Serves a guest whose virtual CPUs are stopped: takes the guest's free memory once, and publishes
//! how the guest was stopped.
//!
//! Reports and hints need a CPU of the guest, and so does the ring that wakes the thread of the
//! mode `shared`. A stopped guest frees nothing more, so one pass over its memory is enough. It is
//! made in every mode but `off`. After it this thread sleeps until the guest resumes.

use super::engine::FreeMemory;
use super::error::ReclaimError;
use crate::guest::{Guest, Stop};
use crate::machine::GiveBack;
use crate::qemu::{GuestRam, Vcpus};
use crate::text::Terminal;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The pause before another attempt if another process had the lock.
const AGAIN: Duration = Duration::from_millis(200);

/// Watches, in a thread, whether a guest's virtual CPUs are stopped, and takes the guest's free
/// memory once when they are.
#[derive(Debug)]
pub(crate) struct PauseWatcher {
    vcpus: Arc<Vcpus>,
    ram: Arc<GuestRam>,
    guest: Arc<dyn Guest>,
    /// The free memory that the host can take. `None` for guests without an allocator for that, and
    /// for runs whose instructions are counted.
    free_memory: Option<Arc<FreeMemory>>,
    /// The mode of a guest that does not report its mode.
    mode: GiveBack,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    standstill: Option<Stop>,
    /// A mode that was set while the guest was stopped. The guest has not received it yet.
    set: Option<GiveBack>,
}

impl PauseWatcher {
    /// Starts a thread that watches a guest, which was started in `mode`. If there is
    /// `free_memory`, the thread takes it when the CPUs have stopped, unless the mode is then
    /// `off`. Failures of that are printed on `shown`, if there is one. The thread ends with
    /// [`Vcpus::end`], not when the result is dropped.
    ///
    /// # Errors
    /// If the host cannot create a thread.
    pub(crate) fn start(
        vcpus: Arc<Vcpus>,
        ram: Arc<GuestRam>,
        guest: Arc<dyn Guest>,
        free_memory: Option<Arc<FreeMemory>>,
        mode: GiveBack,
        shown: Option<Arc<Terminal>>,
    ) -> io::Result<Arc<Self>> {
        let pause_watcher = Arc::new(Self {
            vcpus,
            ram,
            guest,
            free_memory,
            mode,
            state: Mutex::default(),
        });
        let own = Arc::clone(&pause_watcher);
        let thread = thread::Builder::new().name("standing".into());
        thread.spawn(move || own.follow(shown.as_deref()))?;
        Ok(pause_watcher)
    }

    /// Returns a watcher of a running guest of 4 MiB for a test. It takes no memory and prints
    /// nothing.
    #[cfg(test)]
    pub(crate) fn of_test() -> Arc<Self> {
        use crate::guest::{EbbGuest, Header};
        use crate::machine::Machine;
        use crate::qemu::GuestAddress;
        let ram = Arc::new(GuestRam::new(Machine::Microvm, 4 << 20).unwrap());
        let header = Header::new(Arc::clone(&ram), GuestAddress(0x3000));
        let guest = Arc::new(EbbGuest::new(header, 0));
        let vcpus = Arc::new(Vcpus::of_test().0);
        Self::start(vcpus, ram, guest, None, GiveBack::Off, None).unwrap()
    }

    /// Returns the virtual CPUs of the watched guest.
    pub(crate) fn vcpus(&self) -> &Vcpus {
        &self.vcpus
    }

    /// Returns how the guest was stopped, and whether its free memory has been taken since. Returns
    /// `None` while its CPUs run.
    pub(crate) fn standstill(&self) -> Option<Stop> {
        self.lock().standstill
    }

    /// Returns the mode in which free memory goes back now: the mode that was set while the guest
    /// is stopped, else the mode that the guest reports, else the mode in which it was started.
    pub(crate) fn give_back(&self) -> GiveBack {
        let set = self.lock().set;
        set.or_else(|| self.guest.give_back()).unwrap_or(self.mode)
    }

    /// Returns the mode that was set while the guest is stopped and that the guest has not
    /// received. Returns `None` if no mode was set, or once the guest runs again.
    pub(crate) fn give_back_set(&self) -> Option<GiveBack> {
        self.lock().set
    }

    /// Stores a mode for a stopped guest and wakes the watching thread, which applies it to the
    /// guest's free memory at once. The caller must send the mode to the guest, which receives it
    /// when it resumes. Does nothing for a running guest.
    pub(crate) fn set_give_back(&self, mode: GiveBack) {
        let mut state = self.lock();
        // A running guest receives the mode over its control port.
        if state.standstill.is_some() {
            state.set = Some(mode);
            self.vcpus.nudge();
        }
    }

    fn follow(&self, shown: Option<&Terminal>) {
        while let Some(by) = self.vcpus.wait_until_stopped() {
            self.guest.set_stopped(true);
            let mut standstill = Stop {
                by,
                resident_bytes: self.ram.resident_bytes().unwrap_or(0),
                settled: false,
            };
            self.lock().standstill = Some(standstill);
            self.vcpus.signal();
            loop {
                let nudges = self.vcpus.nudges();
                if let Some(by) = self.vcpus.look() {
                    standstill.by = by;
                }
                let taken = self.take();
                standstill.settled = !matches!(taken, Err(ReclaimError::Busy));
                self.lock().standstill = Some(standstill);
                self.vcpus.signal();
                if let (Err(error), Some(terminal)) = (&taken, shown) {
                    terminal.message(&format!(
                        "ebb: cannot take free memory of the paused guest: {error}"
                    ));
                }
                let most = (!standstill.settled).then_some(AGAIN);
                if !self.vcpus.wait_while_stopped(nudges, most) {
                    break;
                }
            }
            *self.lock() = State::default();
            self.guest.set_stopped(false);
            self.vcpus.signal();
        }
    }

    /// Takes the guest's free memory, unless the mode is `off`. Fails as [`FreeMemory::reclaim`].
    fn take(&self) -> Result<(), ReclaimError> {
        match &self.free_memory {
            Some(memory) if self.give_back() != GiveBack::Off => memory.reclaim(u64::MAX).map(drop),
            _ => Ok(()),
        }
    }

    // A panic elsewhere cannot leave the state half-changed, so the poison is ignored.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
