//! Samples a running guest: the memory that it uses, and the memory of the host that it holds.

use crate::guest::{Guest, Sample, Stage};
use crate::qemu::GuestRam;
use crate::reclaim::{FreeMemory, PauseWatcher, ReclaimQueue};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Takes samples of one guest: memory used in the guest, memory of the host behind it, and memory
/// that was returned.
#[derive(Debug)]
pub(crate) struct Sampler {
    ram: Arc<GuestRam>,
    guest: Arc<dyn Guest>,
    free_memory: Option<Arc<FreeMemory>>,
    reclaim_queue: Option<Arc<ReclaimQueue>>,
    pause_watcher: Arc<PauseWatcher>,
    started: Instant,
}

impl Sampler {
    /// Creates a sampler of `guest`, whose memory is `ram`. Its times count from this call, so call
    /// it when the CPUs start. `free_memory` and `reclaim_queue` are `None` if the host takes
    /// nothing by itself or asks for nothing.
    pub(crate) fn new(
        ram: Arc<GuestRam>,
        guest: Arc<dyn Guest>,
        free_memory: Option<Arc<FreeMemory>>,
        reclaim_queue: Option<Arc<ReclaimQueue>>,
        pause_watcher: Arc<PauseWatcher>,
    ) -> Self {
        Self {
            ram,
            guest,
            free_memory,
            reclaim_queue,
            pause_watcher,
            started: Instant::now(),
        }
    }

    /// Returns the guest that is sampled.
    pub(crate) fn guest(&self) -> &dyn Guest {
        &*self.guest
    }

    /// Returns the watcher of the guest's CPUs, which knows whether they run and what stopped them.
    pub(crate) fn pause_watcher(&self) -> &PauseWatcher {
        &self.pause_watcher
    }

    /// Returns the present time and resident memory if the program runs or has exited. Returns
    /// `None` before that, and after a panic of the guest's kernel. The resident memory is 0 if the
    /// host cannot tell it.
    pub(crate) fn started(&self) -> Option<Started> {
        let runs = matches!(self.guest.stage(), Some(Stage::Running | Stage::Exited(_)));
        runs.then(|| Started {
            at: self.started.elapsed(),
            resident: self.ram.resident_bytes().unwrap_or(0),
        })
    }

    /// Takes a sample of all figures now. Figures that the guest's kernel does not report are
    /// `None`. The resident memory is 0 if the host cannot tell it.
    pub(crate) fn sample(&self) -> Sample {
        let at = self.started.elapsed();
        let reclaimed = self
            .reclaim_queue
            .as_ref()
            .map(|reclaim_queue| reclaim_queue.done());
        let reclaim_failed = self
            .reclaim_queue
            .as_ref()
            .map(|reclaim_queue| reclaim_queue.failed());
        let standstill = self.pause_watcher.standstill();
        let set = self.pause_watcher.give_back_set();
        let taken = self.free_memory.as_ref();
        let taken = taken.map(|memory| memory.sums().bytes);
        let told = self.guest.look();
        // Read last, so that memory that the other figures count as returned is gone from it. The
        // file's size is readable as long as it is open.
        let resident = self.ram.resident_bytes().unwrap_or(0);
        Sample {
            at,
            resident,
            taken,
            reclaimed,
            reclaim_failed,
            standstill,
            // A mode that was set while the CPUs were stopped counts, although the guest does not
            // know it yet.
            give_back: set.or(told.give_back),
            ..told
        }
    }
}

/// The moment at which the guest's program was first seen to run, and the resident memory then.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Started {
    /// Time since the CPUs started.
    pub(crate) at: Duration,
    /// Bytes of the guest's memory that the host held then.
    pub(crate) resident: u64,
}
