//! Takes free memory of one guest: attaches to its allocator, and drops what that says is free.

use super::error::ReclaimError;
use super::lease::Lease;
use super::pace::Pace;
use super::pieces::{self, Pass, Pieces};
use crate::guest::{Guest, Metadata};
use crate::machine::GiveBack;
use crate::qemu::{Backing, GuestAddress, GuestRam, HUGE_PAGE, Hold, Vcpus, Window};
use ebb_mm::attach::Attached;
use ebb_mm::{FRAME_SIZE, Frame, FrameRange, PAGEBLOCK_FRAMES, Reclaimer, ReportSink, StepEnd};
use ebb_wire::header::DESCRIPTOR_BYTES;
use rustix::io::Errno;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at what a host that was killed may have counted.
const RECOVERY_PAUSE: Duration = Duration::from_millis(1);
/// How long somebody waits for another thread that takes memory of the same guest.
const PATIENCE: Duration = Duration::from_secs(2);
const FRAME: u64 = FRAME_SIZE as u64;
/// The first frame that is described by the second list of descriptors.
const HIGH_FRAME: u64 = (4 << 30) / FRAME;

/// What was taken, and what it took.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reclaimed {
    /// Bytes that left the host.
    pub(crate) bytes: u64,
    /// Ranges of free memory that were dropped for them.
    pub(crate) ranges: u64,
    /// All the time.
    pub(crate) time: Duration,
    /// Of it, that of the host's own punching of holes.
    pub(crate) punching: Duration,
}

/// Sums of [`Reclaimed`], that others may read at any time.
#[derive(Debug, Default)]
struct Sums {
    bytes: AtomicU64,
    ranges: AtomicU64,
    time_ns: AtomicU64,
    punching_ns: AtomicU64,
}

/// What of the guest's memory the host takes by itself.
#[derive(Debug)]
pub(crate) struct FreeMemory {
    ram: Arc<GuestRam>,
    guest: Arc<dyn Guest>,
    /// Exchanges of the guest's are atomic for the host.
    sound: bool,
    /// The guest's virtual CPUs, which may stand still.
    vcpus: Option<Arc<Vcpus>>,
    /// The number of the last pause in which a pass over the pieces came to its end; 0 before the first.
    emptied: AtomicU64,
    /// Held by who is at it; whether this process has the guest's memory to itself.
    lease: Mutex<Option<Lease>>,
    sums: Sums,
}

impl FreeMemory {
    /// That of a guest; `sound`: what its CPUs do atomically is atomic for other processes, too.
    pub(crate) fn new(ram: Arc<GuestRam>, guest: Arc<dyn Guest>, sound: bool) -> Self {
        Self {
            ram,
            guest,
            sound,
            vcpus: None,
            emptied: AtomicU64::new(0),
            lease: Mutex::new(None),
            sums: Sums::default(),
        }
    }

    /// The same, of a guest with these virtual CPUs. While `ebb pause` has stopped them, memory can be taken of every guest.
    pub(crate) fn with_vcpus(self, vcpus: Arc<Vcpus>) -> Self {
        Self {
            vcpus: Some(vcpus),
            ..self
        }
    }

    /// Whether the host may take memory of this guest while it runs.
    ///
    /// # Errors
    /// [`ReclaimError::Unsound`] or [`ReclaimError::Reserved`] if not.
    pub(crate) fn check(&self) -> Result<(), ReclaimError> {
        if self.ram.backing() == Backing::Pool {
            return Err(ReclaimError::Reserved);
        }
        if self.sound {
            Ok(())
        } else {
            Err(ReclaimError::Unsound)
        }
    }

    /// Whether the guest wants its free memory taken all the time.
    pub(super) fn is_wanted(&self) -> bool {
        self.guest.give_back() == Some(GiveBack::Shared)
    }

    /// The pace at which its free memory is taken.
    pub(super) fn pace(&self) -> Pace {
        let ends = self.ram.regions().into_iter();
        let ends = ends.filter_map(|region| region.start.checked_add(region.bytes));
        let end = ends.map(|end| end.0).max().unwrap_or(0);
        Pace::new(self.ram.backing().is_huge(), end)
    }

    /// What was taken since the guest began.
    pub(crate) fn sums(&self) -> Reclaimed {
        // Relaxed (all): figures to look at.
        let load = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Reclaimed {
            bytes: load(&self.sums.bytes),
            ranges: load(&self.sums.ranges),
            time: Duration::from_nanos(load(&self.sums.time_ns)),
            punching: Duration::from_nanos(load(&self.sums.punching_ns)),
        }
    }

    /// Takes free memory of the guest once, in whichever mode it is, up to `target` bytes (rounded up to
    /// a block) or until there is no more; returns what was taken. That is whole free pageblocks for which the
    /// host holds memory, and of a guest that `ebb pause` has stopped also what is free of other blocks. Returns early
    /// when the guest fails to get memory meanwhile. Does not need the guest's CPUs, and is done within a pass over
    /// its memory, whatever it writes.
    pub(crate) fn reclaim(&self, target: u64) -> Result<Reclaimed, ReclaimError> {
        self.with(|session| {
            let mut left = target.div_ceil(FRAME);
            session.reclaimer.restart();
            while left != 0 {
                let (frames, end) = session.step(left);
                left = left.saturating_sub(frames);
                match end {
                    StepEnd::More => {}
                    StepEnd::Done | StepEnd::Missed => break,
                    StepEnd::Failed(error) => return Err(error),
                }
                if session.is_over() {
                    break;
                }
            }
            let still = self.vcpus.as_ref().and_then(|vcpus| vcpus.hold());
            // Relaxed: under the lock of the lease.
            let is_new = |still: &Hold<'_>| self.emptied.load(Ordering::Relaxed) != still.pause();
            if let Some(still) = still.filter(|still| left != 0 && is_new(still)) {
                match session.take_pieces(&still, left.saturating_mul(FRAME))? {
                    Pass::Complete => self.emptied.store(still.pause(), Ordering::Relaxed),
                    Pass::Enough => {}
                    Pass::Unwanted => return Err(ReclaimError::Busy),
                }
            }
            Ok(session.taken)
        })
    }

    /// Works on an attachment to the guest's allocator.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, ReclaimError>,
    ) -> Result<T, ReclaimError> {
        // A CPU that QEMU has stopped is between two instructions, so none of its exchanges is half done.
        let hold = || self.vcpus.as_ref()?.hold();
        let _hold = match self.check() {
            Ok(()) => None,
            Err(ReclaimError::Reserved) => return Err(ReclaimError::Reserved),
            Err(unsound) => Some(hold().ok_or(unsound)?),
        };
        let Metadata { address, bytes } = self.guest.metadata().ok_or(ReclaimError::NoAllocator)?;
        if bytes == 0 {
            return Err(ReclaimError::NoAllocator);
        }
        let mut lease = self.turn()?;
        let window =
            Window::new(&self.ram, address, bytes).map_err(|errno| ReclaimError::Nowhere {
                address: address.0,
                bytes,
                errno,
            })?;
        // SAFETY: the window is mapped for reading and writing while `attached` lives, and this process accesses it through
        // `Attached` alone, and through the atomics of `GuestRam`.
        let attached = unsafe { Attached::new(window.base(), window.len()) };
        let attached = attached.map_err(ReclaimError::Nonsense)?;
        if lease.is_none() {
            let taken = Lease::take(&self.ram)?;
            let stands = self.vcpus.as_ref().and_then(|vcpus| vcpus.look());
            // What a CPU is about to count differs from one look to the next only while it runs.
            if stands.is_some() && attached.is_left_open() {
                return Err(ReclaimError::LeftOpen);
            }
            *lease = Some(taken);
            // Whoever had it is gone, and may have been killed on the way.
            attached.recover(|| thread::sleep(RECOVERY_PAUSE));
        }
        let mut session = Session {
            attached: &attached,
            reclaimer: Reclaimer::new(),
            memory: self,
            taken: Reclaimed::default(),
        };
        work(&mut session)
    }

    /// Waits for whoever of this process is at it: for a pass at most, if the guest is honest.
    fn turn(&self) -> Result<MutexGuard<'_, Option<Lease>>, ReclaimError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lease.try_lock() {
                Ok(lease) => return Ok(lease),
                // What a panic leaves is what a kill leaves: the next one puts it right.
                Err(TryLockError::Poisoned(poisoned)) => {
                    let mut lease = poisoned.into_inner();
                    *lease = None;
                    self.lease.clear_poison();
                    return Ok(lease);
                }
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(ReclaimError::Busy);
                }
                Err(TryLockError::WouldBlock) => thread::sleep(RECOVERY_PAUSE),
            }
        }
    }

    fn add(&self, step: &Reclaimed) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sums.bytes.fetch_add(step.bytes, Ordering::Relaxed);
        self.sums.ranges.fetch_add(step.ranges, Ordering::Relaxed);
        self.sums
            .time_ns
            .fetch_add(nanos(step.time), Ordering::Relaxed);
        self.sums
            .punching_ns
            .fetch_add(nanos(step.punching), Ordering::Relaxed);
    }
}

/// The guest's allocator, attached to.
pub(super) struct Session<'a> {
    pub(super) attached: &'a Attached<'a>,
    pub(super) reclaimer: Reclaimer,
    memory: &'a FreeMemory,
    /// By this session.
    pub(super) taken: Reclaimed,
}

impl Session<'_> {
    /// Drops the free frames of partly used blocks until `most` bytes have left the host. `still` keeps the
    /// CPUs stopped.
    ///
    /// # Errors
    /// [`ReclaimError::Drop`] where the host fails.
    pub(super) fn take_pieces(
        &mut self,
        still: &Hold<'_>,
        most: u64,
    ) -> Result<Pass, ReclaimError> {
        let begin = Instant::now();
        let Pieces { bytes, ranges, end } =
            pieces::drop_all(&self.memory.ram, self.attached, still, most);
        let time = begin.elapsed();
        self.count(Reclaimed {
            bytes,
            ranges,
            time,
            punching: time,
        });
        end
    }

    /// Whether more was taken than there is: a guest that frees as fast as that is left for the next pass.
    pub(super) fn is_over(&self) -> bool {
        self.taken.bytes > self.memory.ram.bytes()
    }

    /// Takes what is next, `most` frames at most; how many, and whether there is more.
    pub(super) fn step(&mut self, most: u64) -> (u64, StepEnd<ReclaimError>) {
        self.step_where(most, &mut |_| true, |_| {})
    }

    /// Does the same for those blocks for which `wanted` returns `true`. Calls `took` for each dropped block.
    pub(super) fn step_where(
        &mut self,
        most: u64,
        wanted: &mut impl FnMut(Frame) -> bool,
        took: impl FnMut(Frame),
    ) -> (u64, StepEnd<ReclaimError>) {
        let begin = Instant::now();
        let mut puncher = Puncher {
            ram: &self.memory.ram,
            guest: &*self.memory.guest,
            time: Duration::ZERO,
            dropped: Vec::new(),
        };
        let step = self
            .reclaimer
            .step_where(self.attached, most, &mut puncher, wanted);
        puncher.dropped.iter().copied().for_each(took);
        let this = Reclaimed {
            bytes: step.frames.saturating_mul(FRAME),
            ranges: step.ranges,
            time: begin.elapsed(),
            punching: puncher.time,
        };
        self.count(this);
        (step.frames, step.end)
    }

    /// Adds what was taken to the sums of this session and of all.
    fn count(&mut self, taken: Reclaimed) {
        self.memory.add(&taken);
        self.taken.bytes = self.taken.bytes.saturating_add(taken.bytes);
        self.taken.ranges += taken.ranges;
        self.taken.time += taken.time;
        self.taken.punching += taken.punching;
    }
}

/// Punches holes where free memory was.
struct Puncher<'a> {
    ram: &'a GuestRam,
    guest: &'a dyn Guest,
    time: Duration,
    /// The first frames of the blocks that were dropped.
    dropped: Vec<Frame>,
}

impl Puncher<'_> {
    /// Punches one hole, if the guest was given all of it.
    fn punch(&mut self, address: u64, bytes: u64) -> Result<(), Errno> {
        let begin = Instant::now();
        let punched = self.ram.punch(GuestAddress(address), bytes);
        self.time += begin.elapsed();
        punched
    }

    /// Drops the descriptors of the frames of free blocks, which are zero.
    fn punch_descriptors(&mut self, range: FrameRange) {
        let high = range.start.number() >= HIGH_FRAME;
        let first = self.guest.descriptors()[usize::from(high)];
        let inside = range.start.number() - if high { HIGH_FRAME } else { 0 };
        if first == 0 || !range.frames.is_multiple_of(PAGEBLOCK_FRAMES) {
            return;
        }
        let address = inside
            .checked_mul(DESCRIPTOR_BYTES)
            .and_then(|bytes| first.checked_add(bytes));
        let Some(mut address) = address.filter(|address| address.is_multiple_of(FRAME)) else {
            return;
        };
        let end = address.saturating_add(range.frames * DESCRIPTOR_BYTES);
        while address < end {
            let next = end.min((address / HUGE_PAGE + 1) * HUGE_PAGE);
            // A part of a huge page would split it, and free little.
            if next - address == HUGE_PAGE || !self.ram.is_one_page(GuestAddress(address)) {
                // That the blocks are dropped and these are not costs little.
                let _ = self.punch(address, next - address);
            }
            address = next;
        }
    }
}

impl ReportSink for Puncher<'_> {
    type Error = ReclaimError;

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ReclaimError> {
        let punched = ranges.iter().try_for_each(|&range| {
            // Frames are below 2^40.
            match self.punch(range.start.address(), range.frames * FRAME) {
                Ok(()) => ControlFlow::Continue(()),
                Err(errno) => ControlFlow::Break(ReclaimError::Drop(range, errno)),
            }
        });
        if let ControlFlow::Break(error) = punched {
            return Err(error);
        }
        for &range in ranges {
            self.punch_descriptors(range);
            let blocks = range.frames / PAGEBLOCK_FRAMES;
            let first = |block| Frame::new(range.start.number() + block * PAGEBLOCK_FRAMES);
            self.dropped.extend((0..blocks).map(first));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
