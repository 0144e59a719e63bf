//! Takes the free memory of one guest: attaches to its allocator, and punches holes for the blocks
//! that are free.

use super::delay::ReclaimDelay;
use super::descriptors::drop_descriptors;
use super::error::ReclaimError;
use super::partial_blocks::{self, Dropped, Pass};
use super::ram_lock::RamLock;
use crate::guest::{Guest, Metadata};
use crate::machine::GiveBack;
use crate::qemu::{Backing, GuestAddress, GuestRam, Hold, Vcpus, Window};
use ebb_mm::attach::Attached;
use ebb_mm::{FRAME_SIZE, Frame, FrameRange, PAGEBLOCK_FRAMES, Reclaimer, ReportSink, StepEnd};
use rustix::io::Errno;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two reads of a counter that a killed process may have left raised, and between
/// two attempts to take the lock.
const RECOVERY_PAUSE: Duration = Duration::from_millis(1);
/// How long a thread waits for another thread that takes memory of the same guest.
const TIMEOUT: Duration = Duration::from_secs(2);
const FRAME: u64 = FRAME_SIZE as u64;

/// The amount of memory that was taken from a guest, and the time that it took.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reclaimed {
    /// The bytes that were dropped from the host's memory.
    pub(crate) bytes: u64,
    /// The number of ranges that were dropped.
    pub(crate) ranges: u64,
    /// The total time.
    pub(crate) time: Duration,
    /// The part of `time` in which the host punched holes.
    pub(crate) punching: Duration,
}

/// The sums of all [`Reclaimed`] values. Other threads may read them at any time.
#[derive(Debug, Default)]
struct Sums {
    bytes: AtomicU64,
    ranges: AtomicU64,
    time_ns: AtomicU64,
    punching_ns: AtomicU64,
}

/// The free memory of a guest, which the host can take by itself through the guest's allocator. One
/// thread of one process at a time takes it.
#[derive(Debug)]
pub(crate) struct FreeMemory {
    ram: Arc<GuestRam>,
    guest: Arc<dyn Guest>,
    /// Whether the guest's atomic instructions are atomic for the host.
    atomics_shared: bool,
    /// The guest's virtual CPUs, which may be stopped.
    vcpus: Option<Arc<Vcpus>>,
    /// The number of the last pause in which a pass over partly used blocks was completed; 0 before
    /// the first.
    emptied: AtomicU64,
    /// Locked by the thread that takes memory. The content is the lock between processes, if this
    /// process holds it.
    ram_lock: Mutex<Option<RamLock>>,
    sums: Sums,
}

impl FreeMemory {
    /// Returns the free memory of `guest` with the RAM `ram`. `atomics_shared` says whether the
    /// guest's atomic instructions are atomic for other processes. Attaches to nothing yet.
    pub(crate) fn new(ram: Arc<GuestRam>, guest: Arc<dyn Guest>, atomics_shared: bool) -> Self {
        Self {
            ram,
            guest,
            atomics_shared,
            vcpus: None,
            emptied: AtomicU64::new(0),
            ram_lock: Mutex::new(None),
            sums: Sums::default(),
        }
    }

    /// Adds the guest's virtual CPUs. While `ebb pause` has stopped them, memory can be taken even
    /// if atomic instructions are not atomic for the host.
    pub(crate) fn with_vcpus(self, vcpus: Arc<Vcpus>) -> Self {
        Self {
            vcpus: Some(vcpus),
            ..self
        }
    }

    /// Checks whether the host may take memory of this guest while it runs.
    ///
    /// # Errors
    /// [`ReclaimError::Unsound`] if the guest's atomic instructions are not atomic for the host;
    /// [`ReclaimError::Reserved`] if its RAM is in the host's pool of huge pages.
    pub(crate) fn check(&self) -> Result<(), ReclaimError> {
        if self.ram.backing() == Backing::Pool {
            return Err(ReclaimError::Reserved);
        }
        if self.atomics_shared {
            Ok(())
        } else {
            Err(ReclaimError::Unsound)
        }
    }

    /// Returns whether the guest reports the mode `shared`, in which its free memory is taken all
    /// the time. Returns `false` if it reports no mode.
    pub(super) fn is_wanted(&self) -> bool {
        self.guest.give_back() == Some(GiveBack::Shared)
    }

    /// Returns a new [`ReclaimDelay`] for the size of this guest's memory and the size of the pages
    /// in which the host keeps it.
    pub(super) fn delay(&self) -> ReclaimDelay {
        let ends = self.ram.regions().into_iter();
        let ends = ends.filter_map(|region| region.start.checked_add(region.bytes));
        let end = ends.map(|end| end.0).max().unwrap_or(0);
        ReclaimDelay::new(self.ram.backing().is_huge(), end)
    }

    /// Returns the sums of all that was taken by this process since the guest started.
    pub(crate) fn sums(&self) -> Reclaimed {
        // Relaxed (all): the values are only displayed.
        let load = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Reclaimed {
            bytes: load(&self.sums.bytes),
            ranges: load(&self.sums.ranges),
            time: Duration::from_nanos(load(&self.sums.time_ns)),
            punching: Duration::from_nanos(load(&self.sums.punching_ns)),
        }
    }

    /// Takes free memory of the guest once, in any mode, until `target` bytes are taken or no more
    /// is free. Returns the amount that was taken; the last block may exceed the target.
    ///
    /// It takes whole free pageblocks of 2 MiB for which the host holds memory. If `ebb pause` has
    /// stopped the guest, it also takes the free frames of partly used blocks, once in each pause.
    /// It uses no CPU of the guest. It stops early if the guest fails to allocate memory that is
    /// isolated, or if more was taken than the guest has, so the time is bounded for any content of
    /// the guest's memory.
    ///
    /// Fails as [`Self::with`]. Fails with [`ReclaimError::Drop`] if a range cannot be dropped, and
    /// with [`ReclaimError::Busy`] if the guest should resume before the pass over partly used
    /// blocks is complete.
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
            // Relaxed: it is protected by the mutex of the lock.
            let is_new = |still: &Hold<'_>| self.emptied.load(Ordering::Relaxed) != still.pause();
            if let Some(still) = still.filter(|still| left != 0 && is_new(still)) {
                match session.take_partial_blocks(&still, left.saturating_mul(FRAME))? {
                    Pass::Complete => self.emptied.store(still.pause(), Ordering::Relaxed),
                    Pass::Enough => {}
                    Pass::Unwanted => return Err(ReclaimError::Busy),
                }
            }
            Ok(session.taken)
        })
    }

    /// Attaches to the guest's allocator, calls `work` with the attachment, and returns its result.
    /// Holds the lock on the guest's memory during the call. The lock between processes stays with
    /// this process afterwards. Repairs what a killed previous owner of that lock left behind.
    ///
    /// # Errors
    /// `Reserved` or `Unsound` as [`Self::check`], but not `Unsound` while `ebb pause` has stopped
    /// the CPUs; `NoAllocator` or `Nonsense` if the allocator is not ready or malformed; `Nowhere`
    /// if it cannot be mapped; `LeftOpen` if only a running guest can be repaired. `Busy` if
    /// another thread holds the lock for 2 s or another process holds it; `Lock` if the lock fails;
    /// the errors of `work`.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, ReclaimError>,
    ) -> Result<T, ReclaimError> {
        // A CPU that QEMU has stopped is between two instructions, so no atomic instruction is half
        // done.
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
        let mut ram_lock = self.turn()?;
        let window =
            Window::new(&self.ram, address, bytes).map_err(|errno| ReclaimError::Nowhere {
                address: address.0,
                bytes,
                errno,
            })?;
        // SAFETY: the window is mapped for reading and writing while `attached` lives. This process
        // accesses it only through `Attached` and through the atomics of `GuestRam`.
        let attached = unsafe { Attached::new(window.base(), window.len()) };
        let attached = attached.map_err(ReclaimError::Nonsense)?;
        if ram_lock.is_none() {
            let taken = RamLock::try_lock(&self.ram)?;
            let stands = self.vcpus.as_ref().and_then(|vcpus| vcpus.look());
            // A counter that a running CPU is about to change differs from one read to the next.
            // With stopped CPUs that cannot be told from a lost change.
            if stands.is_some() && attached.is_left_open() {
                return Err(ReclaimError::LeftOpen);
            }
            *ram_lock = Some(taken);
            // The previous owner of the lock has ended, and may have been killed in the middle of
            // its work.
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

    /// Waits until no other thread of this process takes memory, and locks the mutex. Fails with
    /// [`ReclaimError::Busy`] after [`TIMEOUT`]. Returns the locked mutex.
    fn turn(&self) -> Result<MutexGuard<'_, Option<RamLock>>, ReclaimError> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.ram_lock.try_lock() {
                Ok(ram_lock) => return Ok(ram_lock),
                // A panic leaves the same state as a kill. The next owner of the lock repairs it.
                Err(TryLockError::Poisoned(poisoned)) => {
                    let mut ram_lock = poisoned.into_inner();
                    *ram_lock = None;
                    self.ram_lock.clear_poison();
                    return Ok(ram_lock);
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

/// An attachment to the guest's allocator during one call of [`FreeMemory::with`].
pub(super) struct Session<'a> {
    pub(super) attached: &'a Attached<'a>,
    /// Selects the next free blocks.
    pub(super) reclaimer: Reclaimer,
    memory: &'a FreeMemory,
    /// The amount that this session has taken.
    pub(super) taken: Reclaimed,
}

impl Session<'_> {
    /// Drops the free frames of partly used blocks until `most` bytes have been dropped. `still`
    /// keeps the CPUs stopped. Adds the amount to `taken` and to the guest's sums, also after an
    /// error. Returns how far the pass came.
    ///
    /// # Errors
    /// [`ReclaimError::Drop`] if a range cannot be dropped.
    pub(super) fn take_partial_blocks(
        &mut self,
        still: &Hold<'_>,
        most: u64,
    ) -> Result<Pass, ReclaimError> {
        let begin = Instant::now();
        let (ram, guest) = (&self.memory.ram, &*self.memory.guest);
        let Dropped { bytes, ranges, end } =
            partial_blocks::drop_free_frames(ram, guest, self.attached, still, most);
        let time = begin.elapsed();
        self.count(Reclaimed {
            bytes,
            ranges,
            time,
            punching: time,
        });
        end
    }

    /// Returns whether this session has taken more bytes than the guest has memory. The guest then
    /// frees memory as fast as it is taken, and the caller should leave the rest for the next pass.
    pub(super) fn is_over(&self) -> bool {
        self.taken.bytes > self.memory.ram.bytes()
    }

    /// Takes the next free blocks, at most `most` frames (rounded up to a block). Adds the amount
    /// to `taken` and to the guest's sums. Returns the number of frames, and how the step ended:
    /// more blocks may be free, no more is free, the guest failed to allocate isolated memory, or a
    /// block could not be dropped.
    pub(super) fn step(&mut self, most: u64) -> (u64, StepEnd<ReclaimError>) {
        self.step_where(most, &mut |_| true, |_| {})
    }

    /// Takes the next free blocks as [`Self::step`] does, but only those for whose first frame
    /// `wanted` returns `true`. After the step, calls `took` with the first frame of each dropped
    /// block.
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

    /// Adds `taken` to the sums of this session and of the guest.
    fn count(&mut self, taken: Reclaimed) {
        self.memory.add(&taken);
        self.taken.bytes = self.taken.bytes.saturating_add(taken.bytes);
        self.taken.ranges += taken.ranges;
        self.taken.time += taken.time;
        self.taken.punching += taken.punching;
    }
}

/// Punches holes in the RAM file for free memory.
struct Puncher<'a> {
    ram: &'a GuestRam,
    guest: &'a dyn Guest,
    time: Duration,
    /// The first frames of the dropped blocks.
    dropped: Vec<Frame>,
}

impl Puncher<'_> {
    /// Punches one hole and measures the time. Fails if the range is not completely RAM of the
    /// guest, or the host refuses.
    fn punch(&mut self, address: u64, bytes: u64) -> Result<(), Errno> {
        let begin = Instant::now();
        let punched = self.ram.punch(GuestAddress(address), bytes);
        self.time += begin.elapsed();
        punched
    }
}

impl ReportSink for Puncher<'_> {
    type Error = ReclaimError;

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ReclaimError> {
        let punched = ranges.iter().try_for_each(|&range| {
            // The product cannot overflow, because frame numbers are below 2^40.
            match self.punch(range.start.address(), range.frames * FRAME) {
                Ok(()) => ControlFlow::Continue(()),
                Err(errno) => ControlFlow::Break(ReclaimError::Drop(range, errno)),
            }
        });
        if let ControlFlow::Break(error) = punched {
            return Err(error);
        }
        let begin = Instant::now();
        drop_descriptors(self.ram, self.guest, ranges.iter().copied());
        self.time += begin.elapsed();
        for &range in ranges {
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
