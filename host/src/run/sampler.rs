//! Looks at a running guest: what it uses, and what it holds of the host.

use crate::guest::{Guest, Sample, Stage};
use crate::qemu::GuestRam;
use crate::reclaim::{Asked, FreeMemory, Standing};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looks at one guest, again and again.
#[derive(Debug)]
pub(crate) struct Sampler {
    ram: Arc<GuestRam>,
    guest: Arc<dyn Guest>,
    free_memory: Option<Arc<FreeMemory>>,
    asked: Option<Arc<Asked>>,
    standing: Arc<Standing>,
    started: Instant,
}

impl Sampler {
    /// A sampler of the guest in `ram`, whose CPUs start now.
    pub(crate) fn new(
        ram: Arc<GuestRam>,
        guest: Arc<dyn Guest>,
        free_memory: Option<Arc<FreeMemory>>,
        asked: Option<Arc<Asked>>,
        standing: Arc<Standing>,
    ) -> Self {
        Self {
            ram,
            guest,
            free_memory,
            asked,
            standing,
            started: Instant::now(),
        }
    }

    /// The guest that is looked at.
    pub(crate) fn guest(&self) -> &dyn Guest {
        &*self.guest
    }

    /// How the guest stands.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// This moment, if the program has started by now.
    pub(crate) fn started(&self) -> Option<Started> {
        let runs = matches!(self.guest.stage(), Some(Stage::Running | Stage::Exited(_)));
        runs.then(|| Started {
            at: self.started.elapsed(),
            resident: self.ram.resident_bytes().unwrap_or(0),
        })
    }

    /// Looks now.
    pub(crate) fn sample(&self) -> Sample {
        let at = self.started.elapsed();
        let reclaimed = self.asked.as_ref().map(|asked| asked.done());
        let reclaim_failed = self.asked.as_ref().map(|asked| asked.failed());
        let standstill = self.standing.standstill();
        let set = self.standing.give_back_set();
        let taken = self.free_memory.as_ref();
        let taken = taken.map(|memory| memory.sums().bytes);
        let told = self.guest.look();
        // After the figures of others, so that what they say to be given back is gone from it. A memfd of our own can be
        // asked for its size as long as it is open.
        let resident = self.ram.resident_bytes().unwrap_or(0);
        Sample {
            at,
            resident,
            taken,
            reclaimed,
            reclaim_failed,
            standstill,
            // What the guest has not heard of yet, the host keeps to already.
            give_back: set.or(told.give_back),
            ..told
        }
    }
}

/// The moment at which the program was first seen to run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Started {
    pub(crate) at: Duration,
    pub(crate) resident: u64,
}
