//! Pipes with a name (FIFO) and without.

pub mod pages;
pub mod quota;
pub mod splice;

use super::anonymous::pipe_node;
use super::file::{File, OpenFile};
use super::flags::OpenFlags;
use super::io::{ByteSink, ByteSource};
use super::owner::Band;
use super::poll::{Notifier, PollMask};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use linux_raw_sys::ioctl::FIONREAD;
use logic::errno::{Errno, SysResult};
use logic::pipe::ends::{Ends, Look};
use logic::pipe::ring::Ring;
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE};
use machine::sched::{self, work};
use machine::sync::{Mutex, SpinLock};
use machine::uaccess;
use quota::{Charge, MAX_CAPACITY, Maker, PIPE_MAX_SIZE};

/// The most bytes that a write always stores in one piece, without bytes of other writers between
/// them.
pub const PIPE_BUF: usize = 4096;
/// The bytes that a new pipe holds.
const DEFAULT_CAPACITY: usize = 64 << 10;

/// A pipe.
///
/// Readiness depends on `used` and `ends`. Each is changed before [`Notifier::notify`] and read
/// after a waiter has registered, so no change is missed.
#[derive(Debug)]
pub struct Pipe {
    ring: Mutex<Ring<FrameRef>>,
    /// Bytes in the ring, as of the last change under `ring`.
    used: AtomicUsize,
    /// Bytes with a reserved place in the ring that are still to come, as of the last change under
    /// `ring`.
    reserved: AtomicUsize,
    /// Whether the ring is full of packets, as of the last change under `ring`.
    packets_full: AtomicBool,
    capacity: AtomicUsize,
    /// The free bytes with which a waiting writer continues and the pipe polls as writable. With a
    /// smaller value, every read would wake all writers of the pipe for room that the first of them
    /// takes.
    writable_room: usize,
    ends: Ends,
    notifier: Arc<Notifier>,
    /// The pages that the pipe counts for its user. `None` if the pipe counts for no user.
    charge: Mutex<Option<Charge>>,
}

/// Returns the capacity in bytes of a pipe that a program asks to hold `wanted` bytes. Returns
/// `None` if `wanted` is more than Linux accepts.
pub fn rounded_capacity(wanted: u64) -> Option<u64> {
    let most = 1 << 31;
    (wanted <= most).then(|| wanted.max(1).next_power_of_two().max(PAGE_SIZE as u64))
}

impl Pipe {
    /// Returns an empty pipe of `capacity` bytes without ends. The pipe counts as writable if it
    /// has room for a page, as on Linux. No capacity is smaller. Fails with `ENOMEM`.
    fn new(charge: Option<Charge>, capacity: usize) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self {
            ring: Mutex::new(Ring::new(capacity).map_err(|_| Errno::ENOMEM)?),
            used: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            packets_full: AtomicBool::new(false),
            capacity: AtomicUsize::new(capacity),
            writable_room: PIPE_BUF,
            ends: Ends::default(),
            notifier: Arc::new(Notifier::new()),
            charge: Mutex::new(charge),
        }))
    }

    // SeqCst, as in `ends`.
    fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }
    fn room(&self) -> usize {
        self.capacity
            .load(Ordering::SeqCst)
            .saturating_sub(self.used() + self.reserved.load(Ordering::SeqCst))
    }

    /// Returns whether waiting writers may continue and the pipe polls as writable.
    fn is_writable(&self) -> bool {
        self.room() >= self.writable_room && !self.packets_full.load(Ordering::SeqCst)
    }

    /// Returns whether the locked `ring` is writable, as [`Self::is_writable`] does.
    fn has_room(&self, ring: &Ring<FrameRef>) -> bool {
        ring.room() >= self.writable_room && !ring.is_full_of_packets()
    }

    /// Publishes a change of the locked `ring`, except of its reserved room.
    fn publish(&self, ring: &Ring<FrameRef>) {
        self.used.store(ring.len(), Ordering::SeqCst);
        let full = ring.is_full_of_packets();
        // Relaxed: changed under the lock.
        if self.packets_full.load(Ordering::Relaxed) != full {
            self.packets_full.store(full, Ordering::SeqCst);
        }
    }

    /// Moves bytes from the ring to `to`. With `packets`, ends at the end of the first packet, and
    /// drops the rest of a packet for which `to` has no room. Returns the number of bytes moved; 0
    /// if the ring is empty. Fails with the error of `to` if no byte was moved before.
    #[inline(always)]
    fn drain(&self, to: &mut dyn ByteSink, packets: bool) -> SysResult {
        let mut ring = self.ring.lock();
        let had_room = self.has_room(&ring);
        let packet = ring.packet_at(0).filter(|_| packets);
        let most = packet.as_ref().map_or(usize::MAX, |packet| packet.end);
        let mut done = 0;
        let mut result = Ok(());
        while done < most
            && let Some(run) = ring.front()
            && to.room() > 0
        {
            let count = run.length.min(to.room()).min(most - done);
            match to.put_frame(run.page, run.offset, count) {
                Ok(moved) => {
                    drop(ring.consume(moved));
                    done += moved;
                    if moved < count {
                        break;
                    }
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if let Some(packet) = packet
            && done > packet.start
            && to.room() == 0
        {
            let mut rest = packet.end - done;
            while rest > 0
                && let Some(run) = ring.front()
            {
                let count = run.length.min(rest);
                drop(ring.consume(count));
                rest -= count;
            }
        }
        self.publish(&ring);
        let has_room = self.has_room(&ring);
        drop(ring);
        if done > 0 {
            // A waiting writer joined the queue before it saw the pipe full, so it is woken.
            if has_room && !had_room {
                self.notifier.notify(PollMask::WRITABLE);
            }
            return Ok(done);
        }
        result.map(|()| 0)
    }

    /// Moves up to `count` bytes into the ring, as one packet if `packet`. Returns their number; 0
    /// if fewer than `at_least` fit, or no further packet fits. Fails with `ENOMEM` or the error of
    /// `from` if no byte was moved before.
    #[inline(always)]
    fn fill(
        &self,
        from: &mut dyn ByteSource,
        count: usize,
        at_least: usize,
        packet: bool,
    ) -> SysResult {
        let mut ring = self.ring.lock();
        if ring.room() < at_least || packet && ring.is_full_of_packets() {
            return Ok(0);
        }
        if packet {
            ring.reserve_packet().map_err(|_| Errno::ENOMEM)?;
        }
        let was_empty = ring.is_empty();
        let mut done = 0;
        let mut result = Ok(());
        while done < count && ring.room() > 0 {
            if ring.needs_page() {
                match memory::alloc_frame(Mobility::Unmovable) {
                    Ok(frame) => ring.supply(frame),
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
            let Some(run) = ring.back() else { break };
            let wanted = run.length.min(count - done);
            let moved = from.take_frame(run.page, run.offset, wanted);
            drop(ring.commit(*moved.as_ref().unwrap_or(&0)));
            match moved {
                Ok(moved) => {
                    done += moved;
                    if moved < wanted {
                        break;
                    }
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if packet && done > 0 {
            ring.add_packet(done);
        }
        self.publish(&ring);
        drop(ring);
        if done > 0 {
            if was_empty {
                self.notifier.notify(PollMask::READABLE);
            } else {
                // Waiting readers need only the first byte, but for watchers every write is an
                // edge.
                self.notifier.notify_watchers(PollMask::READABLE);
            }
            return Ok(done);
        }
        result.map(|()| 0)
    }

    /// Reads the available bytes into `to` and returns their number. Waits for the first byte
    /// unless `nonblocking`. With `packets`, reads one packet at most. Returns 0 if the pipe is
    /// empty and no writer is left.
    ///
    /// # Errors
    /// Fails with `EAGAIN` instead of waiting, with `ERESTARTSYS` if a signal is pending, and with
    /// the error of `to` if no byte was read.
    pub fn read(&self, to: &mut dyn ByteSink, nonblocking: bool, packets: bool) -> SysResult {
        if to.room() == 0 {
            return Ok(0);
        }
        let result = self.read_some(to, nonblocking, packets);
        // As on Linux, every read signals writers, regardless of its result.
        self.notifier.signal(Band::Out);
        result
    }

    #[inline]
    fn read_some(&self, to: &mut dyn ByteSink, nonblocking: bool, packets: bool) -> SysResult {
        loop {
            // Read before the ring: a writer writes first and leaves then.
            let had_writers = self.ends.has_writers();
            let moved = self.drain(to, packets)?;
            if moved > 0 || !had_writers {
                return Ok(moved);
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            self.notifier.signal(Band::Out);
            self.notifier
                .queue()
                .wait(|| self.used() > 0 || !self.ends.has_writers())?;
        }
    }

    /// Writes all bytes of `from` and returns their number. With `NONBLOCK` in `flags`, writes only
    /// the bytes that fit now. With `DIRECT`, each piece of up to [`PIPE_BUF`] bytes is a packet.
    ///
    /// # Errors
    /// If no byte was written, fails with `BROKEN_PIPE` if no reader is left, with `EAGAIN` instead
    /// of waiting, with `ERESTARTSYS` if a signal is pending, and with the error of `from`.
    fn write(&self, from: &mut dyn ByteSource, flags: OpenFlags) -> SysResult {
        let total = from.left();
        if total == 0 {
            return Ok(0);
        }
        let result = self.write_all(from, total, flags);
        // As on Linux, every write signals readers, regardless of its result.
        self.notifier.signal(Band::In);
        result
    }

    #[inline]
    fn write_all(&self, from: &mut dyn ByteSource, total: usize, flags: OpenFlags) -> SysResult {
        let (nonblocking, packets) = (flags.nonblocking(), flags.contains(OpenFlags::DIRECT));
        let mut done = 0;
        while done < total {
            if !self.ends.has_readers() {
                if done > 0 {
                    // As on Linux, the signal is sent although the call succeeds.
                    sched::current().add_work(work::BROKEN_PIPE);
                    return Ok(done);
                }
                return Err(Errno::BROKEN_PIPE);
            }
            let left = if packets {
                (total - done).min(PIPE_BUF)
            } else {
                total - done
            };
            // Small writes are done in one piece or wait. Large ones wait for a page of room, so
            // that writer and reader do not take turns for each byte.
            let at_least = if packets {
                left
            } else if total <= PIPE_BUF {
                total
            } else if nonblocking {
                1
            } else {
                left.min(PIPE_BUF)
            };
            match self.fill(from, left, at_least, packets) {
                Ok(0) => {}
                Ok(moved) => {
                    done += moved;
                    continue;
                }
                Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
            }
            if nonblocking {
                return if done > 0 {
                    Ok(done)
                } else {
                    Err(Errno::EAGAIN)
                };
            }
            self.notifier.signal(Band::In);
            let wait = self
                .notifier
                .queue()
                .wait(|| self.is_writable() || !self.ends.has_readers());
            if let Err(interrupted) = wait {
                return if done > 0 {
                    Ok(done)
                } else {
                    Err(interrupted.into())
                };
            }
        }
        Ok(done)
    }

    /// Changes the capacity (`F_SETPIPE_SZ`). Returns the new capacity in bytes.
    ///
    /// # Errors
    /// Fails with `EINVAL` for more than Linux accepts, with `EPERM` beyond a limit, with `EBUSY`
    /// for less than the pipe contains, and with `ENOMEM`.
    pub fn set_capacity(&self, wanted: u64, maker: Maker) -> SysResult {
        let capacity = rounded_capacity(wanted).ok_or(Errno::EINVAL)?;
        let grows = capacity > self.capacity.load(Ordering::SeqCst) as u64;
        let capacity = usize::try_from(capacity).map_err(|_| Errno::EINVAL)?;
        let too_large = maker.size_limited && capacity as u64 > PIPE_MAX_SIZE.get();
        if capacity > MAX_CAPACITY || grows && too_large {
            return Err(Errno::EPERM);
        }
        let mut charge = self.charge.lock();
        let mut ring = self.ring.lock();
        if ring.len() + ring.reserved() > capacity || ring.packets() > capacity / PAGE_SIZE {
            return Err(Errno::EBUSY);
        }
        let before = self.capacity.load(Ordering::SeqCst);
        if let Some(charge) = charge.as_mut() {
            charge.change(maker, capacity)?;
        }
        if ring.resize(capacity).is_err() {
            if let Some(charge) = charge.as_mut() {
                let exempt = Maker {
                    pages_limited: false,
                    ..maker
                };
                charge.change(exempt, before)?;
            }
            return Err(Errno::ENOMEM);
        }
        self.capacity.store(capacity, Ordering::SeqCst);
        self.publish(&ring);
        drop(ring);
        self.notifier.notify(PollMask::WRITABLE);
        Ok(capacity)
    }
}

/// An end of a pipe, or both ends (`O_RDWR` on a FIFO).
#[derive(Debug)]
pub struct PipeEnd {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
    /// The peers that an opener of a FIFO found. `None` for a pipe without a name.
    look: Option<Look>,
}

impl PipeEnd {
    fn new(pipe: Arc<Pipe>, flags: OpenFlags, look: Option<Look>) -> Self {
        let (reads, writes) = (flags.readable(), flags.writable());
        pipe.ends.come(reads, writes);
        Self {
            pipe,
            reads,
            writes,
            look,
        }
    }

    /// Returns whether the end has met a peer. The peer may have left.
    fn has_met(&self) -> bool {
        self.look
            .as_ref()
            .is_none_or(|look| self.pipe.ends.met(look))
    }

    /// Returns the pipe that this end belongs to.
    pub fn pipe(&self) -> &Pipe {
        &self.pipe
    }

    /// Returns the capacity in bytes (`F_GETPIPE_SZ`).
    pub fn capacity(&self) -> usize {
        self.pipe.capacity.load(Ordering::SeqCst)
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let mut gone = PollMask::empty();
        let (last_reader, last_writer) = self.pipe.ends.leave(self.reads, self.writes);
        if last_reader {
            gone |= PollMask::ERR | PollMask::WRITABLE;
        }
        if last_writer {
            gone |= PollMask::HUP | PollMask::READABLE;
        }
        if !gone.is_empty() {
            self.pipe.notifier.notify(gone);
        }
        if last_reader || last_writer {
            // Only one side is left that can get a signal.
            self.pipe.notifier.signal(Band::In);
            self.pipe.notifier.signal(Band::Out);
        }
    }
}

impl File for PipeEnd {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        self.pipe.read(to, flags.nonblocking(), true)
    }

    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, flags: OpenFlags) -> SysResult {
        self.pipe.write(from, flags)
    }

    fn poll(&self) -> PollMask {
        let mut mask = PollMask::empty();
        if self.reads {
            if self.pipe.used() > 0 {
                mask |= PollMask::READABLE;
            }
            // A FIFO is not at its end for a reader that no writer has met yet. A writer that comes
            // now counts as open before it counts as met.
            if self.has_met() && !self.pipe.ends.has_writers() {
                mask |= PollMask::HUP;
            }
        }
        if self.writes {
            if self.pipe.is_writable() {
                mask |= PollMask::WRITABLE;
            }
            if !self.pipe.ends.has_readers() {
                mask |= PollMask::ERR;
            }
        }
        mask
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.pipe.notifier.clone())
    }

    fn signals(&self) -> Result<Option<Arc<Notifier>>, Errno> {
        Ok(self.notifier())
    }

    fn ioctl(&self, command: u32, argument: u64) -> SysResult {
        if command != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let count = i32::try_from(self.pipe.used()).unwrap_or(i32::MAX);
        uaccess::copy_out(argument, &count.to_le_bytes())?;
        Ok(0)
    }
}

/// Creates a pipe of the user and group `owner`. Returns its reading end and its writing end. Both
/// are opened with `NONBLOCK` if it is in `flags`, and as on Linux only the writing end with
/// `DIRECT`.
///
/// # Errors
/// Fails with `ENFILE` if `maker` has too many pipes, and with `ENOMEM`.
pub fn pair(
    flags: OpenFlags,
    owner: [u32; 2],
    maker: Maker,
) -> Result<(Arc<OpenFile>, Arc<OpenFile>), Errno> {
    let (charge, capacity) = Charge::take(maker, DEFAULT_CAPACITY)?;
    let pipe = Pipe::new(Some(charge), capacity)?;
    let weak = Arc::downgrade(&pipe);
    let node = pipe_node(owner, move |flags| {
        let pipe = weak.upgrade().ok_or(Errno::ENXIO)?;
        Ok(Arc::new(PipeEnd::new(pipe, flags, None)))
    });
    let flags = flags & (OpenFlags::NONBLOCK | OpenFlags::DIRECT);
    let end = |flags: OpenFlags| {
        let end = Arc::new(PipeEnd::new(pipe.clone(), flags, None));
        OpenFile::new(node.clone(), end, None, flags)
    };
    Ok((
        end(flags - OpenFlags::DIRECT),
        end(flags | OpenFlags::WRITE_ONLY),
    ))
}

/// Opens a FIFO and returns the end. `current` refers to the pipe of the FIFO while an end is open.
///
/// A reader waits for a writer and the other way round. No end waits with `NONBLOCK`, or if it both
/// reads and writes.
///
/// # Errors
/// Fails with `ENXIO` if a writer with `NONBLOCK` finds no reader, with `ENOMEM`, and with the
/// error of a signal that interrupts the wait.
pub(super) fn open_fifo(
    current: &SpinLock<Weak<Pipe>>,
    flags: OpenFlags,
) -> Result<Arc<dyn File>, Errno> {
    let fresh = Pipe::new(None, DEFAULT_CAPACITY)?;
    let mut slot = current.lock();
    let pipe = slot.upgrade().unwrap_or_else(|| {
        *slot = Arc::downgrade(&fresh);
        fresh.clone()
    });
    drop(slot);
    let (reads, writes) = (flags.readable(), flags.writable());
    if writes && !reads && flags.nonblocking() && !pipe.ends.has_readers() {
        return Err(Errno::ENXIO);
    }
    let look = pipe.ends.look(reads);
    let end = PipeEnd::new(pipe.clone(), flags, Some(look));
    // Wakes the tasks that wait for a peer.
    pipe.notifier.notify(PollMask::empty());
    let both = reads && writes;
    if !both && !flags.nonblocking() {
        pipe.notifier.queue().wait(|| end.has_met())?;
    }
    Ok(Arc::new(end))
}
