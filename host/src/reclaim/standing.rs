//! What the host does for a guest whose virtual CPUs stand still: it takes the guest's free memory
//! once, and says how the guest stands.
//!
//! Reports and hints need a CPU of the guest's, and so does the bell that calls the thread of the
//! mode `shared`. A guest that stands still frees nothing more, so one pass over its memory is
//! enough, and this thread sleeps until the guest goes on.

use super::engine::FreeMemory;
use super::error::ReclaimError;
use crate::guest::{Guest, Standstill};
use crate::machine::GiveBack;
use crate::qemu::{GuestRam, Vcpus};
use crate::text::Terminal;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Another attempt is made after `AGAIN` when another process had the memory.
const AGAIN: Duration = Duration::from_millis(200);

/// Follows when a guest stands still, and takes what is free in it then.
#[derive(Debug)]
pub(crate) struct Standing {
    vcpus: Arc<Vcpus>,
    ram: Arc<GuestRam>,
    guest: Arc<dyn Guest>,
    /// What the host can take by itself; `None` of guests that have no allocator for that, and of
    /// counted runs.
    free_memory: Option<Arc<FreeMemory>>,
    /// How memory goes back, of a guest that does not say.
    mode: GiveBack,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    standstill: Option<Standstill>,
    /// The mode that was set since the guest stands still, which it has not heard of yet.
    set: Option<GiveBack>,
}

impl Standing {
    /// Begins to follow a guest that began in this `mode`. Failures to take its memory are shown on
    /// `shown`. The thread ends with [`Vcpus::end`].
    ///
    /// # Errors
    /// The host's, if it has no thread left.
    pub(crate) fn start(
        vcpus: Arc<Vcpus>,
        ram: Arc<GuestRam>,
        guest: Arc<dyn Guest>,
        free_memory: Option<Arc<FreeMemory>>,
        mode: GiveBack,
        shown: Option<Arc<Terminal>>,
    ) -> io::Result<Arc<Self>> {
        let standing = Arc::new(Self {
            vcpus,
            ram,
            guest,
            free_memory,
            mode,
            state: Mutex::default(),
        });
        let own = Arc::clone(&standing);
        let thread = thread::Builder::new().name("standing".into());
        thread.spawn(move || own.follow(shown.as_deref()))?;
        Ok(standing)
    }

    /// A guest that runs, and does nothing.
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

    /// The guest's virtual CPUs.
    pub(crate) fn vcpus(&self) -> &Vcpus {
        &self.vcpus
    }

    /// How the guest stands; `None` while its CPUs run.
    pub(crate) fn standstill(&self) -> Option<Standstill> {
        self.lock().standstill
    }

    /// How memory goes back now: as it was set since the guest stands still, or as the guest says.
    pub(crate) fn give_back(&self) -> GiveBack {
        let set = self.lock().set;
        set.or_else(|| self.guest.give_back()).unwrap_or(self.mode)
    }

    /// The mode that was set and that the guest has not heard of, as it stands still.
    pub(crate) fn give_back_set(&self) -> Option<GiveBack> {
        self.lock().set
    }

    /// Notes a mode, which the guest learns when it goes on. The host keeps to it at once if the
    /// guest stands still.
    pub(crate) fn set_give_back(&self, mode: GiveBack) {
        let mut state = self.lock();
        // A guest that runs hears of it at once.
        if state.standstill.is_some() {
            state.set = Some(mode);
            self.vcpus.nudge();
        }
    }

    fn follow(&self, shown: Option<&Terminal>) {
        while let Some(by) = self.vcpus.wait_until_stopped() {
            self.guest.stand(true);
            let mut standstill = Standstill {
                by,
                resident_bytes: self.ram.resident_bytes().unwrap_or(0),
                settled: false,
            };
            self.lock().standstill = Some(standstill);
            self.vcpus.ring();
            loop {
                let nudges = self.vcpus.nudges();
                if let Some(by) = self.vcpus.look() {
                    standstill.by = by;
                }
                let taken = self.take();
                standstill.settled = !matches!(taken, Err(ReclaimError::Busy));
                self.lock().standstill = Some(standstill);
                self.vcpus.ring();
                if let (Err(error), Some(terminal)) = (&taken, shown) {
                    terminal.message(&format!(
                        "ebb: memory of a guest that stands still: {error}"
                    ));
                }
                let most = (!standstill.settled).then_some(AGAIN);
                if !self.vcpus.wait_while_stopped(nudges, most) {
                    break;
                }
            }
            *self.lock() = State::default();
            self.guest.stand(false);
            self.vcpus.ring();
        }
    }

    /// Takes what is free, if it is to go back by itself.
    fn take(&self) -> Result<(), ReclaimError> {
        match &self.free_memory {
            Some(memory) if self.give_back() != GiveBack::Off => memory.reclaim(u64::MAX).map(drop),
            _ => Ok(()),
        }
    }

    // A panic elsewhere cannot leave the state half-changed, so poison says nothing.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
