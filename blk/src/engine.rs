//! Carries requests out: in place where the image can take the guest's memory as it lies, by way
//! of pages from the pool elsewhere.
//!
//! A request is worked on in steps. In place, one step is all of it; through the pool, at most
//! [`BOUNCE_PAGES`] pages. A step that does less than it was asked to (a short read) is followed by
//! one for the rest. A request that finds no page free waits for one that gives some back.
//!
//! Bytes go between guests and pages of the pool for many requests at once: before the operations
//! of a batch start, and when some are complete. Where the hypervisor copies, each time is a system
//! call.

mod active;
mod memory;
mod slots;

pub use memory::BOUNCE_PAGES;

use crate::failure::Failure;
use crate::image::Image;
use crate::io::{Completion, Operation, Queue};
use crate::knobs::Knobs;
use crate::pool::Counts;
use crate::pressure::ReclaimMemory;
use crate::request::{Door, Fault, ID_BYTES, Incoming, Move, Op, Payload, Status, Way};
use crate::time::Micros;
use active::{Active, Next, Verdict};
use memory::{Memory, buffers};
use slots::Slots;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Requests under way at most; more wait at their door.
pub const MAX_ACTIVE: usize = 512;

/// What an instance has done since it started.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests answered.
    pub requests: u64,
    /// Of them, not with [`Status::Ok`].
    pub failed: u64,
    /// Bytes that went through pages of the pool.
    pub bounced_bytes: u64,
    /// Bytes that went from or to the guest's memory in place.
    pub in_place_bytes: u64,
    /// Pressure events that squeezed the pool.
    pub squeezes: u64,
}

/// Carries out the requests of one door on one image.
#[derive(Debug)]
pub struct Engine<D: Door> {
    image: Image,
    id: [u8; ID_BYTES],
    memory: Memory,
    queue: Queue,
    slots: Slots<D>,
    /// Requests that found no page free.
    starved: VecDeque<usize>,
    /// Steps that wait for the guests' bytes, or behind such a one: none between two calls.
    held: Vec<(usize, Operation)>,
    /// Reads whose bytes, so many, wait to be handed over: none between two calls.
    arrived: Vec<(usize, u64)>,
    counters: Counters,
    /// The last thing that the image did not do, until somebody asks.
    failure: Option<Failure>,
    /// Whether every write is to be on the medium when it is answered.
    write_through: bool,
}

/// How a step began.
enum Step {
    Started,
    Starved,
    Finished(Status),
}

impl<D: Door> Engine<D> {
    /// An engine for `image`. To be made on the thread that will run it.
    ///
    /// # Errors
    /// If there is no address space left.
    pub fn new(image: Image, name: &str, knobs: Arc<Knobs>, queue: Queue) -> io::Result<Self> {
        let mut id = [0; ID_BYTES];
        for (to, from) in id.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Ok(Self {
            image,
            id,
            memory: Memory::new(knobs)?,
            queue,
            slots: Slots::new(),
            starved: VecDeque::new(),
            held: Vec::new(),
            arrived: Vec::new(),
            counters: Counters::default(),
            failure: None,
            write_through: false,
        })
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The I/O queue, to wait for.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// What was done.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The last thing that the image did not do since this was asked.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// How the pool stands.
    pub fn pool(&self) -> Counts {
        self.memory.counts()
    }

    /// Whether every write is to be on the medium when it is answered, as a driver without flush
    /// expects.
    pub fn set_write_through(&mut self, on: bool) {
        self.write_through = on;
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.slots.in_use()
    }

    /// Whether one more can be taken.
    pub fn has_room(&self) -> bool {
        self.under_way() < MAX_ACTIVE
    }

    /// Whether [`Self::reap`] would find something.
    pub fn has_completions(&mut self) -> bool {
        self.queue.has_completions()
    }

    /// Takes requests from the door while there are any and room for them, and starts them.
    /// Returns how many.
    ///
    /// # Errors
    /// If the kernel does not take operations any more: the instance is lost.
    pub fn accept(&mut self, door: &mut D) -> io::Result<usize> {
        let mut accepted = 0;
        // One batch is no more than what can be under way, so that the worker gets to look at
        // everything else in between.
        let most = self.queue.batch().min(MAX_ACTIVE);
        while accepted < most && self.has_room() {
            let Some(Incoming { ticket, request }) = door.next_request() else {
                break;
            };
            accepted += 1;
            match request {
                Ok((op, payload)) => self.begin(door, ticket, op, payload)?,
                Err(status) => self.answer(door, ticket, status, 0),
            }
        }
        self.start_held(door)?;
        self.queue.submit(0)?;
        Ok(accepted)
    }

    /// Goes on with whatever is complete. Returns how many operations were.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub fn reap(&mut self, door: &mut D) -> io::Result<usize> {
        let mut reaped = 0;
        self.queue.collect()?;
        // As in `accept`: each may bring the next step of a long request.
        let most = self.queue.batch().min(MAX_ACTIVE);
        while reaped < most
            && let Some(completion) = self.queue.completion()
        {
            reaped += 1;
            self.complete(door, completion)?;
        }
        if reaped > 0 {
            self.hand_over(door)?;
            self.start_held(door)?;
            self.queue.submit(0)?;
        }
        Ok(reaped)
    }

    /// Waits until no request is under way.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub fn drain(&mut self, door: &mut D) -> io::Result<()> {
        while self.under_way() > 0 {
            self.queue.submit(1)?;
            self.reap(door)?;
        }
        Ok(())
    }

    /// Gives pages over the limit back to the system: of a pressure event all that are free, else
    /// those that nobody needed since the last look. To be called after each batch of requests and
    /// when [`Self::next_shrink`] says.
    pub fn shrink(&mut self, now: Micros) {
        self.memory.shrink(now);
    }

    /// When the pool wants to be looked at again, if it is then over its limit.
    pub fn next_shrink(&self, now: Micros) -> Option<Micros> {
        self.memory.next_shrink(now)
    }

    fn begin(
        &mut self,
        door: &mut D,
        ticket: D::Ticket,
        op: Op,
        payload: D::Payload,
    ) -> io::Result<()> {
        if op == Op::GetId {
            let bytes = usize::try_from(payload.bytes())
                .unwrap_or(usize::MAX)
                .min(ID_BYTES);
            let (status, written) = match payload.copy_in(0, &self.id[..bytes]) {
                Ok(()) => (Status::Ok, u32::try_from(bytes).unwrap_or(0)),
                Err(Fault) => (Status::IoError, 0),
            };
            door.filled(&payload);
            self.answer(door, ticket, status, written);
            return Ok(());
        }
        let request = Active::new(ticket, op, payload, self.slots.room());
        let slot = self.slots.add(request);
        self.advance(door, slot)
    }

    /// Starts the next step of the request in `slot`, or answers it.
    fn advance(&mut self, door: &mut D, slot: usize) -> io::Result<()> {
        let Some(mut request) = self.slots.take(slot) else {
            return Ok(());
        };
        match self.step(&mut request, slot)? {
            Step::Started => self.slots.put(slot, request),
            Step::Starved => {
                self.slots.put(slot, request);
                self.starved.push_back(slot);
            }
            Step::Finished(status) => self.finish(door, slot, *request, status)?,
        }
        Ok(())
    }

    fn step(&mut self, request: &mut Active<D>, slot: usize) -> io::Result<Step> {
        let operation = match request.next() {
            Next::Finished(status) => return Ok(Step::Finished(status)),
            Next::Plain(operation) => operation,
            Next::Move(offset) => {
                let direct = self.image.direct().map(|(_, alignment)| alignment);
                let Some(route) = self.memory.gather(request, offset, direct) else {
                    return Ok(Step::Starved);
                };
                request.transfer(route, offset, self.write_through)
            }
        };
        if request.wants_bytes() || !self.held.is_empty() {
            self.held.push((slot, operation));
        } else {
            self.push(slot, operation)?;
        }
        Ok(Step::Started)
    }

    fn push(&mut self, slot: usize, operation: Operation) -> io::Result<()> {
        // SAFETY: slices, batch and payload stay in the boxed request, which stays in its slot
        // until the completion with this token; the engine drains before it is dropped.
        unsafe { self.queue.push(&self.image, operation, slot as u64) }
    }

    /// Whether the step of the request in `slot` writes what is to be copied first.
    fn wants_bytes(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(Active::wants_bytes)
    }

    /// Copies between the pages of requests and their guests, for each as many bytes as are named.
    /// Says of each whether it was done.
    fn copy_all(&self, way: Way, wanted: &[(usize, u64)]) -> Vec<bool> {
        let requests = wanted.iter().filter_map(|(slot, bytes)| {
            let request = self.slots.get(*slot)?;
            // SAFETY: what is copied waits for an operation to start, or its operation is
            // complete; the moves end in this function.
            let local = unsafe { buffers(&request.slices, *bytes) };
            Some(Move {
                payload: &request.payload,
                at: request.done,
                local,
                done: false,
            })
        });
        let mut moves: Vec<_> = requests.collect();
        assert_eq!(moves.len(), wanted.len(), "only requests under way copy");
        D::Payload::copy_all(way, &mut moves);
        moves.iter().map(|each| each.done).collect()
    }

    /// Gets the bytes that steps wait for, and starts these.
    fn start_held(&mut self, door: &mut D) -> io::Result<()> {
        // Whoever fails gives its pages to one that starved, which may write too.
        while !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            let wanted: Vec<_> = held
                .iter()
                .filter(|(slot, _)| self.wants_bytes(*slot))
                .filter_map(|(slot, _)| Some((*slot, self.slots.get(*slot)?.step_bytes)))
                .collect();
            let mut copied = self.copy_all(Way::Out, &wanted).into_iter();
            let mut rest = held.into_iter();
            while let Some((slot, operation)) = rest.next() {
                let fine = !self.wants_bytes(slot) || copied.next() == Some(true);
                let started = if fine {
                    self.push(slot, operation)
                } else {
                    self.end(door, slot, Status::IoError)
                };
                if let Err(error) = started {
                    self.held.push((slot, operation));
                    self.held.extend(rest);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Hands the bytes of reads over, and goes on with these.
    fn hand_over(&mut self, door: &mut D) -> io::Result<()> {
        if self.arrived.is_empty() {
            return Ok(());
        }
        let arrived = std::mem::take(&mut self.arrived);
        let copied = self.copy_all(Way::In, &arrived);
        let mut rest = arrived.into_iter();
        for copied in copied {
            let Some((slot, bytes)) = rest.next() else {
                break;
            };
            let advanced = if copied {
                if let Some(request) = self.slots.get_mut(slot) {
                    request.done += bytes;
                }
                self.advance(door, slot)
            } else {
                self.end(door, slot, Status::IoError)
            };
            if let Err(error) = advanced {
                self.arrived.extend(rest);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Answers the request in `slot`.
    fn end(&mut self, door: &mut D, slot: usize, status: Status) -> io::Result<()> {
        match self.slots.take(slot) {
            Some(request) => self.finish(door, slot, *request, status),
            None => Ok(()),
        }
    }

    fn complete(&mut self, door: &mut D, completion: Completion) -> io::Result<()> {
        let slot = usize::try_from(completion.token).unwrap_or(usize::MAX);
        let Some(mut request) = self.slots.take(slot) else {
            return Err(io::Error::other(
                "the kernel completed what nobody asked for",
            ));
        };
        let verdict = request.judge(completion.result);
        if let Verdict::Over(Status::IoError) = verdict {
            self.note_failure(door, &request, completion.result);
        }
        match verdict {
            Verdict::Arrived(bytes) => {
                self.counters.bounced_bytes += bytes;
                self.slots.put(slot, request);
                self.arrived.push((slot, bytes));
                Ok(())
            }
            Verdict::On(bytes) => {
                if request.batch.is_some() {
                    self.counters.bounced_bytes += bytes;
                } else {
                    self.counters.in_place_bytes += bytes;
                }
                self.slots.put(slot, request);
                self.advance(door, slot)
            }
            Verdict::Over(status) => self.finish(door, slot, *request, status),
        }
    }

    fn note_failure(&mut self, door: &mut D, request: &Active<D>, result: i32) {
        // Pages of the pool are always there: it is the guest's memory that is not.
        if result == -libc::EFAULT && request.batch.is_none() {
            door.lost(&request.payload);
        } else if let Some(failure) = request.failure(result) {
            self.failure = Some(failure);
        }
    }

    fn finish(
        &mut self,
        door: &mut D,
        slot: usize,
        mut request: Active<D>,
        status: Status,
    ) -> io::Result<()> {
        self.slots.free(slot, std::mem::take(&mut request.slices));
        let freed = request
            .batch
            .take()
            .map(|batch| self.memory.put(batch))
            .is_some();
        let filled = match request.op {
            Op::Read(_) => {
                // Also of one that failed: who knows how far it came.
                door.filled(&request.payload);
                u32::try_from(request.done).unwrap_or(u32::MAX)
            }
            _ => 0,
        };
        self.answer(door, request.ticket, status, filled);
        // A step in place may have given pages back that one through the pool took before.
        if (freed || self.memory.counts().in_use == 0)
            && let Some(next) = self.starved.pop_front()
        {
            self.advance(door, next)?;
        }
        Ok(())
    }

    fn answer(&mut self, door: &mut D, ticket: D::Ticket, status: Status, written: u32) {
        self.counters.requests += 1;
        self.counters.failed += u64::from(status != Status::Ok);
        door.answer(ticket, status, written);
    }
}

impl<D: Door> ReclaimMemory for Engine<D> {
    fn reclaim_memory(&mut self, event: Micros) {
        self.counters.squeezes += u64::from(self.memory.squeeze(event));
    }
}

impl<D: Door> Drop for Engine<D> {
    fn drop(&mut self) {
        // The kernel may still write to pages of the pool and of the guest: they must stay
        // mapped until it is done.
        let idle = self.starved.len() + self.held.len() + self.arrived.len();
        while self.under_way() > idle {
            if self.queue.submit(1).is_err() {
                // Without a way to learn when the kernel is done, this memory may never be reused.
                std::process::abort();
            }
            while let Some(completion) = self.queue.completion() {
                let slot = usize::try_from(completion.token).unwrap_or(usize::MAX);
                if self.slots.take(slot).is_some() {
                    self.slots.free(slot, Vec::new());
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "engine_tests.rs"]
mod tests;
