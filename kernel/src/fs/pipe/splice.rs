//! Transfers from and to pipes that do not pass through the program. A whole page moves to another
//! pipe without a copy if its bytes begin a page there.
//!
//! A ring stays locked while its bytes go to a file, and never while bytes come from one. Bytes of
//! a file are first gathered in pages (`pages`). Room for them in the pipe is reserved before the
//! read, so no byte is lost. When two rings are locked, the ring of the pipe at the lower address
//! is locked first.

use super::pages::Pages;
use super::{PIPE_BUF, Pipe};
use crate::fs::io::{ByteSink, ByteSource, FrameSource, NO_LIMIT};
use crate::fs::owner::Band;
use crate::fs::poll::PollMask;
use core::sync::atomic::Ordering::SeqCst;
use logic::errno::{Errno, SysResult};
use logic::pipe::ring::Ring;
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE};
use machine::sync::MutexGuard;

/// What happens to the bytes in the pipe that they come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Carry {
    /// The bytes are removed (`splice`).
    Move,
    /// The bytes remain (`tee`).
    Copy,
}

type Guard<'a> = MutexGuard<'a, Ring<FrameRef>>;

/// The locked ring of a pipe that is being changed, and its state before.
struct Change<'a> {
    pipe: &'a Pipe,
    ring: Guard<'a>,
    was_empty: bool,
    had_room: bool,
}

impl<'a> Change<'a> {
    fn new(pipe: &'a Pipe, ring: Guard<'a>) -> Self {
        Self {
            was_empty: ring.is_empty(),
            had_room: pipe.has_room(&ring),
            pipe,
            ring,
        }
    }

    fn begin(pipe: &'a Pipe) -> Self {
        Self::new(pipe, pipe.ring.lock())
    }

    /// Locks the rings of two pipes.
    fn begin_both(from: &'a Pipe, to: &'a Pipe) -> (Self, Self) {
        let address = |pipe: &Pipe| core::ptr::from_ref(pipe).addr();
        if address(from) < address(to) {
            let first = Self::begin(from);
            (first, Self::begin(to))
        } else {
            let second = Self::begin(to);
            (Self::begin(from), second)
        }
    }

    /// Ends the change. Returns the notifications to send once no ring is locked any more.
    fn end(self) -> Told<'a> {
        let (pipe, ring) = (self.pipe, self.ring);
        // SeqCst, as in `ends`.
        let before = pipe.used.load(SeqCst);
        pipe.publish(&ring);
        pipe.reserved.store(ring.reserved(), SeqCst);
        Told {
            pipe,
            has_room: !self.had_room && pipe.has_room(&ring),
            first: self.was_empty && !ring.is_empty(),
            more: ring.len() > before,
            less: ring.len() < before,
        }
    }
}

struct Told<'a> {
    pipe: &'a Pipe,
    has_room: bool,
    first: bool,
    more: bool,
    less: bool,
}

impl Told<'_> {
    fn tell(self) {
        let notifier = &self.pipe.notifier;
        if self.has_room {
            notifier.notify(PollMask::WRITABLE);
        }
        if self.first {
            notifier.notify(PollMask::READABLE);
        } else if self.more {
            notifier.notify_watchers(PollMask::READABLE);
        }
        if self.more {
            notifier.signal(Band::In);
        }
        if self.less {
            notifier.signal(Band::Out);
        }
    }
}

/// Copies bytes of `from` to the end of a ring, until the ring is full or `from` is empty. Returns
/// the number of bytes copied. Fails with `ENOMEM` if no byte was copied before.
fn append(ring: &mut Ring<FrameRef>, from: &mut FrameSource<'_>) -> SysResult {
    let mut done = 0;
    while from.left() > 0 && ring.room() > 0 {
        if ring.needs_page() {
            match memory::alloc_frame(Mobility::Unmovable) {
                Ok(frame) => ring.supply(frame),
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        let Some(run) = ring.back() else { break };
        // Copies between frames never fault.
        let count = from.take_frame(run.page, run.offset, run.length)?;
        drop(ring.commit(count));
        done += count;
    }
    Ok(done)
}

/// Free space in a pipe that is kept for one transfer, so that bytes read for the pipe always fit.
/// Other writers do not get it. Dropping this releases the space.
#[derive(Debug)]
pub struct Reservation<'a> {
    pipe: &'a Pipe,
    bytes: usize,
    /// One page more than the bytes need, as they may begin within a page.
    spare: Option<FrameRef>,
}

impl<'a> Reservation<'a> {
    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Moves all bytes of `pages` into the pipe, and releases the rest of the reservation. `pages`
    /// must have no more bytes than are reserved.
    pub fn fill(mut self, pages: &mut Pages) {
        let mut change = self.release();
        let ring = &mut change.ring;
        while let Some((page, at, count)) = pages.next() {
            if at == 0 && ring.takes_page(count) {
                if let Some(page) = pages.take() {
                    drop(ring.put_page(page, count));
                }
                continue;
            }
            if ring.needs_page() {
                // There is a spare page here: each page that was copied to its end becomes the next
                // one.
                let Some(spare) = self.spare.take() else {
                    break;
                };
                ring.supply(spare);
            }
            let Some(run) = ring.back() else { break };
            let count_now = count.min(run.length);
            // Copies between frames never fault.
            let copied = FrameSource::new(page, at, count_now, NO_LIMIT)
                .take_frame(run.page, run.offset, count_now);
            let Ok(copied) = copied else { break };
            drop(ring.commit(copied));
            if copied == count {
                self.spare = pages.take();
            } else {
                pages.pass(copied);
            }
        }
        debug_assert!(pages.left() == 0);
        let told = change.end();
        told.tell();
    }

    fn release(&mut self) -> Change<'a> {
        let mut change = Change::begin(self.pipe);
        change.ring.release(core::mem::take(&mut self.bytes));
        change
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.bytes != 0 {
            let told = self.release().end();
            told.tell();
        }
    }
}

impl Pipe {
    /// Waits until the pipe contains bytes. Returns `false` if the pipe is empty and no writer is
    /// left.
    ///
    /// # Errors
    /// Fails with `EAGAIN` instead of waiting if `nonblocking`, and with `ERESTARTSYS` if a signal
    /// is pending.
    pub fn wait_for_bytes(&self, nonblocking: bool) -> Result<bool, Errno> {
        let look = || self.used() > 0 || !self.ends.has_writers();
        if !look() {
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            self.notifier.queue().wait(look)?;
        }
        Ok(self.used() > 0)
    }

    /// Waits until the pipe has room for a page.
    ///
    /// # Errors
    /// Fails with `BROKEN_PIPE` if no reader is left, with `EAGAIN` instead of waiting if
    /// `nonblocking`, and with `ERESTARTSYS`.
    fn wait_for_room(&self, nonblocking: bool) -> Result<(), Errno> {
        loop {
            if !self.ends.has_readers() {
                return Err(Errno::BROKEN_PIPE);
            }
            if self.is_writable() {
                return Ok(());
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            self.notifier
                .queue()
                .wait(|| self.is_writable() || !self.ends.has_readers())?;
        }
    }

    /// Moves the available bytes to `to`. Returns their number; 0 if there are none. Fails with the
    /// error of `to` if no byte was moved.
    pub fn drain_to(&self, to: &mut dyn ByteSink) -> SysResult {
        let moved = self.drain(to, false)?;
        if moved > 0 {
            self.notifier.signal(Band::Out);
        }
        Ok(moved)
    }

    /// Waits for room and takes the bytes of `from` that fit. Returns their number.
    ///
    /// # Errors
    /// Fails with `BROKEN_PIPE` if no reader is left, with `EAGAIN` instead of waiting if
    /// `nonblocking`, with `ERESTARTSYS` if a signal is pending, and with the error of `from`.
    pub fn take_some(&self, from: &mut dyn ByteSource, nonblocking: bool) -> SysResult {
        loop {
            self.wait_for_room(nonblocking)?;
            let count = from.left();
            let moved = self.fill(from, count, 1, false)?;
            if moved > 0 {
                self.notifier.signal(Band::In);
                return Ok(moved);
            }
            // Another writer was faster.
        }
    }

    /// Waits until a page is free in the pipe, and reserves space for `count` bytes. If the free
    /// pages hold fewer bytes, reserves these pages.
    ///
    /// # Errors
    /// Fails with `BROKEN_PIPE` if no reader is left, with `EAGAIN` instead of waiting if
    /// `nonblocking`, with `ERESTARTSYS` if a signal is pending, and with `ENOMEM`.
    pub fn reserve(&self, count: usize, nonblocking: bool) -> Result<Reservation<'_>, Errno> {
        // Bytes that were taken from a file must not have to wait for memory.
        let spare = memory::alloc_frame(Mobility::Unmovable)?;
        loop {
            self.wait_for_room(nonblocking)?;
            let mut ring = self.ring.lock();
            if ring.room() < PIPE_BUF {
                // Another writer was faster.
                continue;
            }
            let bytes = count.min(ring.room() / PAGE_SIZE * PAGE_SIZE);
            ring.reserve(bytes);
            self.reserved.store(ring.reserved(), SeqCst);
            return Ok(Reservation {
                pipe: self,
                bytes,
                spare: Some(spare),
            });
        }
    }

    /// Moves or copies up to `count` bytes to the pipe `to`, as `how` says. Waits until this pipe
    /// has bytes and `to` has room. Returns the number of bytes, or 0 if this pipe is empty and no
    /// writer is left.
    ///
    /// # Errors
    /// Fails with `BROKEN_PIPE` if no reader of `to` is left, with `EAGAIN` instead of waiting if
    /// `nonblocking`, with `ERESTARTSYS` if a signal is pending, and with `ENOMEM`.
    pub fn carry(&self, to: &Self, count: usize, how: Carry, nonblocking: bool) -> SysResult {
        loop {
            self.wait_for_bytes(nonblocking)?;
            to.wait_for_room(nonblocking)?;
            // Read before the ring, as in `read`.
            let had_writers = self.ends.has_writers();
            let (mut source, mut sink) = Change::begin_both(self, to);
            let moved = carry_between(&mut source.ring, &mut sink.ring, count, how);
            let nothing_left = source.ring.is_empty() && !had_writers;
            let (room, more) = (source.end(), sink.end());
            room.tell();
            more.tell();
            let moved = moved?;
            if moved > 0 || nothing_left {
                return Ok(moved);
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
        }
    }
}

/// Moves or copies up to `count` bytes between two rings, as `how` says. Packets stay packets, also
/// the part of one that `count` bytes end in. Returns the number of bytes. Fails with `ENOMEM` if
/// no byte was moved before.
fn carry_between(
    from: &mut Ring<FrameRef>,
    to: &mut Ring<FrameRef>,
    count: usize,
    how: Carry,
) -> SysResult {
    let mut done = 0;
    while done < count {
        let skip = if how == Carry::Copy { done } else { 0 };
        // One packet, or the bytes before the next one.
        let (length, is_packet) = match from.packet_at(skip) {
            Some(packet) if packet.start == 0 => (packet.end, true),
            Some(packet) => (packet.start, false),
            None => (usize::MAX, false),
        };
        let length = length.min(count - done);
        if is_packet {
            // A packet is not longer than the room that a waiting transfer gets.
            if to.room() < length || to.is_full_of_packets() {
                break;
            }
            match to.reserve_packet() {
                Ok(()) => {}
                Err(_) if done > 0 => break,
                Err(_) => return Err(Errno::ENOMEM),
            }
        }
        let carried = match how {
            Carry::Move => move_between(from, to, length),
            Carry::Copy => copy_between(from, to, skip, length),
        };
        let carried = match carried {
            Ok(carried) => carried,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        if is_packet && carried > 0 {
            to.add_packet(carried);
        }
        done += carried;
        if carried < length {
            break;
        }
    }
    Ok(done)
}

fn move_between(from: &mut Ring<FrameRef>, to: &mut Ring<FrameRef>, count: usize) -> SysResult {
    let mut done = 0;
    while done < count
        && let Some(run) = from.front()
        && to.room() > 0
    {
        let wanted = run.length.min(count - done);
        if run.offset == 0 && wanted == run.length && to.takes_page(wanted) {
            if let Some(page) = from.take_page() {
                drop(to.put_page(page, wanted));
            }
            done += wanted;
            continue;
        }
        let moved = append(
            to,
            &mut FrameSource::new(run.page, run.offset, wanted, NO_LIMIT),
        );
        match moved {
            Ok(0) => break,
            Ok(moved) => {
                drop(from.consume(moved));
                done += moved;
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Copies up to `count` of the bytes that follow the oldest `skip` bytes. Returns the number of
/// bytes copied. Fails with `ENOMEM` if no byte was copied before.
fn copy_between(
    from: &Ring<FrameRef>,
    to: &mut Ring<FrameRef>,
    skip: usize,
    count: usize,
) -> SysResult {
    let mut done = 0;
    while done < count
        && let Some(run) = from.run_at(skip + done)
    {
        let wanted = run.length.min(count - done);
        let copied = append(
            to,
            &mut FrameSource::new(run.page, run.offset, wanted, NO_LIMIT),
        );
        match copied {
            Ok(0) => break,
            Ok(copied) => done += copied,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
