//! Carries out requests. If direct I/O can use the guest's memory, the data is transferred in
//! place; else it is copied through pages of the pool.
//!
//! A request is carried out in steps. In place, a step is up to 16 MiB of the request. Through the
//! pool it is up to [`BOUNCE_PAGES`] pages. A short read or write is followed by a step for the
//! rest. A request for which the pool has too few free pages waits until another returns some.
//!
//! Copies between guests and pages of the pool are made for many requests at once: before the
//! operations of a batch start, and when some are complete. With grant copy, each such batch is one
//! system call.

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
use crate::request::{
    CopyDirection, CopyRequest, Fault, ID_BYTES, Incoming, Op, Payload, Status, Transport,
};
use crate::time::Micros;
use active::{Active, Next, StepResult};
use memory::{Memory, buffers};
use slots::Slots;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Maximum number of requests that one engine has under way. Others wait in their ring.
pub const MAX_ACTIVE: usize = 512;

/// Counters of an instance since its start.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Number of requests answered.
    pub requests: u64,
    /// Number of requests answered with a status other than [`Status::Ok`].
    pub failed: u64,
    /// Bytes transferred through pages of the pool.
    pub bounced_bytes: u64,
    /// Bytes transferred from or to the guest's memory in place.
    pub in_place_bytes: u64,
    /// Number of reads taken.
    pub reads: u64,
    /// Number of writes taken.
    pub writes: u64,
    /// Number of flushes taken.
    pub flushes: u64,
    /// Number of discards and of requests to write zeroes taken.
    pub discards: u64,
    /// Number of times that a request had to wait for free pages of the pool.
    pub starved: u64,
    /// Number of pressure events after which the pool freed all its free pages.
    pub squeezes: u64,
}

/// Carries out the requests that one transport delivers, on one image. Dropping it waits for the
/// operations under way, without answers to their requests, and ends the process if that fails.
#[derive(Debug)]
pub struct Engine<T: Transport> {
    image: Image,
    id: [u8; ID_BYTES],
    memory: Memory,
    queue: Queue,
    slots: Slots<T>,
    /// Slots of requests that wait for free pages of the pool.
    starved: VecDeque<usize>,
    /// Operations that wait until guest data has been copied into pages, or until an operation
    /// before them starts. Empty between calls from outside.
    held: Vec<(usize, Operation)>,
    /// Slots of reads whose data waits to be copied to the guest, with the number of bytes. Empty
    /// between calls from outside.
    arrived: Vec<(usize, u64)>,
    counters: Counters,
    /// The last failure of the image that was not taken yet.
    failure: Option<Failure>,
    /// Whether a write must be durable when it is answered.
    write_through: bool,
}

/// The result of starting a step.
enum Step {
    /// An operation was started or is held.
    Started,
    /// The pool has too few free pages.
    Starved,
    /// The request is complete.
    Finished(Status),
}

impl<T: Transport> Engine<T> {
    /// Makes an engine that carries out requests on `image` through the I/O queue `queue`. The
    /// queue must be made for this image, on the thread that will run the engine; this is not
    /// checked.
    /// `knobs` are the settings of the engine's pool. `name` is the disk's name for guests, cut to
    /// [`ID_BYTES`].
    ///
    /// # Errors
    /// Fails if the pool's address space cannot be mapped.
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

    /// Returns the image on which the engine carries out requests.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Returns the I/O queue. If it has a descriptor, the caller waits for that, then calls
    /// [`Self::reap`].
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns the counters of requests and bytes since the engine was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the most recent failure of an operation on the image since the previous call, and
    /// forgets it. Returns `None` if there was none. Operations that the file system does not
    /// support and faults of guest memory are not counted.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Returns the numbers of free pages, of pages in use, and of pages returned to the system so
    /// far.
    pub fn pool(&self) -> Counts {
        self.memory.counts()
    }

    /// Sets whether a write must be durable (`RWF_DSYNC`) before it is answered. This is needed for
    /// drivers that have no flush request. Applies to steps that start later.
    pub fn set_write_through(&mut self, on: bool) {
        self.write_through = on;
    }

    /// Returns the number of requests that were taken and are not answered yet, including those
    /// that wait for pages of the pool.
    pub fn under_way(&self) -> usize {
        self.slots.in_use()
    }

    /// Returns whether fewer than [`MAX_ACTIVE`] requests are under way, so that another can be
    /// taken.
    pub fn has_room(&self) -> bool {
        self.under_way() < MAX_ACTIVE
    }

    /// Returns whether [`Self::reap`] would find a completed operation. Does not wait.
    pub fn has_completions(&mut self) -> bool {
        self.queue.has_completions()
    }

    /// Takes waiting requests from `transport` and starts them, up to the limit of one batch and to
    /// [`MAX_ACTIVE`] under way. Malformed requests are answered at once, as are those that need no
    /// operation. Returns the number of requests taken.
    ///
    /// # Errors
    /// Fails if the kernel takes no more operations. The instance cannot go on.
    pub fn accept(&mut self, transport: &mut T) -> io::Result<usize> {
        let mut accepted = 0;
        // The batch is bounded, so that the thread gets to check its other events in between.
        let most = self.queue.batch().min(MAX_ACTIVE);
        while accepted < most && self.has_room() {
            let Some(Incoming { ticket, request }) = transport.next_request() else {
                break;
            };
            accepted += 1;
            match request {
                Ok((op, payload)) => self.begin(transport, ticket, op, payload)?,
                Err(status) => self.answer(transport, ticket, status, 0),
            }
        }
        self.start_held(transport)?;
        self.queue.submit(0)?;
        Ok(accepted)
    }

    /// Takes completed operations, up to the limit of one batch, without waiting. Answers the
    /// requests that are complete, and starts the next steps of others. Returns the number of
    /// operations taken.
    ///
    /// # Errors
    /// Fails if the kernel takes no more operations. The instance cannot go on.
    pub fn reap(&mut self, transport: &mut T) -> io::Result<usize> {
        let mut reaped = 0;
        self.queue.collect()?;
        // Bounded as in `accept`: each completion may start the next step of a long request.
        let most = self.queue.batch().min(MAX_ACTIVE);
        while reaped < most
            && let Some(completion) = self.queue.completion()
        {
            reaped += 1;
            self.complete(transport, completion)?;
        }
        if reaped > 0 {
            self.hand_over(transport)?;
            self.start_held(transport)?;
            self.queue.submit(0)?;
        }
        Ok(reaped)
    }

    /// Waits until all requests under way are complete, and answers them. Takes no further
    /// requests.
    ///
    /// # Errors
    /// Fails if the kernel takes no more operations. The instance cannot go on.
    pub fn drain(&mut self, transport: &mut T) -> io::Result<()> {
        while self.under_way() > 0 {
            self.queue.submit(1)?;
            self.reap(transport)?;
        }
        Ok(())
    }

    /// Starts a squeeze of the pool for a pressure event at `event`, whose first effect is that of
    /// the next [`Self::shrink`]. Returns `false`, and does nothing, if squeezing is off.
    pub fn squeeze(&mut self, event: Micros) -> bool {
        let squeezes = self.memory.squeeze(event);
        self.counters.squeezes += u64::from(squeezes);
        squeezes
    }

    /// Returns the free pages of the pool above `max_buffer_pages` to the system. After a pressure
    /// event, and for `buffer_squeeze_duration_ms` after it, returns all free pages. In the hold
    /// that follows, also returns those that no request needed, once every
    /// [`SHRINK_INTERVAL`](crate::pool::SHRINK_INTERVAL), or none if fewer than a quarter of the
    /// resident pages were unneeded. Call this after each batch of requests and at the time
    /// [`Self::next_shrink`].
    pub fn shrink(&mut self, now: Micros) {
        self.memory.shrink(now);
    }

    /// Returns the time at which [`Self::shrink`] should be called next. Returns `None` if no page
    /// will have to be freed unless there are requests, pressure events or changed settings.
    pub fn next_shrink(&self, now: Micros) -> Option<Micros> {
        self.memory.next_shrink(now)
    }

    /// Starts the first step of a request, or answers it.
    fn begin(
        &mut self,
        transport: &mut T,
        ticket: T::Ticket,
        op: Op,
        payload: T::Payload,
    ) -> io::Result<()> {
        match op {
            Op::Read(_) => self.counters.reads += 1,
            Op::Write(_) => self.counters.writes += 1,
            Op::Flush => self.counters.flushes += 1,
            Op::Discard(_) | Op::WriteZeroes(_) => self.counters.discards += 1,
            Op::GetId => {}
        }
        if op == Op::GetId {
            let bytes = usize::try_from(payload.bytes())
                .unwrap_or(usize::MAX)
                .min(ID_BYTES);
            let (status, written) = match payload.copy_in(0, &self.id[..bytes]) {
                Ok(()) => (Status::Ok, u32::try_from(bytes).unwrap_or(0)),
                Err(Fault) => (Status::IoError, 0),
            };
            transport.filled(&payload);
            self.answer(transport, ticket, status, written);
            return Ok(());
        }
        let request = Active::new(ticket, op, payload, self.slots.room());
        let slot = self.slots.add(request);
        self.advance(transport, slot)
    }

    /// Starts the next step of the request in `slot`, or answers it.
    fn advance(&mut self, transport: &mut T, slot: usize) -> io::Result<()> {
        let Some(mut request) = self.slots.take(slot) else {
            return Ok(());
        };
        match self.step(&mut request, slot)? {
            Step::Started => self.slots.put(slot, request),
            Step::Starved => {
                self.slots.put(slot, request);
                self.starved.push_back(slot);
                self.counters.starved += 1;
            }
            Step::Finished(status) => self.finish(transport, slot, *request, status)?,
        }
        Ok(())
    }

    /// Prepares the next step of `request`, which is in `slot`, and starts or holds its operation.
    fn step(&mut self, request: &mut Active<T>, slot: usize) -> io::Result<Step> {
        let operation = match request.next() {
            Next::Finished(status) => return Ok(Step::Finished(status)),
            Next::Plain(operation) => operation,
            Next::Transfer(offset) => {
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

    /// Passes the operation of the request in `slot` to the I/O queue.
    fn push(&mut self, slot: usize, operation: Operation) -> io::Result<()> {
        // SAFETY: slices, batch and payload are in the boxed request, which stays in its slot until
        // the completion with this token; the engine waits for all completions before it is
        // dropped.
        unsafe { self.queue.push(&self.image, operation, slot as u64) }
    }

    /// Returns whether the step of the request in `slot` writes data that must first be copied from
    /// the guest into pages of the pool.
    fn wants_bytes(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(Active::wants_bytes)
    }

    /// Copies between requests' pages and guest memory, in `direction`. `wanted` holds
    /// slots and numbers of bytes. Returns for each whether the copy succeeded.
    fn copy_all(&self, direction: CopyDirection, wanted: &[(usize, u64)]) -> Vec<bool> {
        let requests = wanted.iter().filter_map(|(slot, bytes)| {
            let request = self.slots.get(*slot)?;
            // SAFETY: the operation on these pages has not started yet or is complete, and the
            // copies end in this function.
            let local = unsafe { buffers(&request.slices, *bytes) };
            Some(CopyRequest {
                payload: &request.payload,
                at: request.done,
                local,
                done: false,
            })
        });
        let mut copies: Vec<_> = requests.collect();
        assert_eq!(copies.len(), wanted.len(), "only requests under way copy");
        T::Payload::copy_all(direction, &mut copies);
        copies.iter().map(|each| each.done).collect()
    }

    /// Copies the guest data that held operations write, and starts these operations. Requests
    /// whose copy fails are answered with an error.
    fn start_held(&mut self, transport: &mut T) -> io::Result<()> {
        // A failed request returns its pages to a starved one, which may add an operation to
        // `held`.
        while !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            let wanted: Vec<_> = held
                .iter()
                .filter(|(slot, _)| self.wants_bytes(*slot))
                .filter_map(|(slot, _)| Some((*slot, self.slots.get(*slot)?.step_bytes)))
                .collect();
            let mut copied = self.copy_all(CopyDirection::FromGuest, &wanted).into_iter();
            let mut rest = held.into_iter();
            while let Some((slot, operation)) = rest.next() {
                let fine = !self.wants_bytes(slot) || copied.next() == Some(true);
                let started = if fine {
                    self.push(slot, operation)
                } else {
                    self.end(transport, slot, Status::IoError)
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

    /// Copies the data of completed reads to the guests, and starts the next steps of these
    /// requests.
    fn hand_over(&mut self, transport: &mut T) -> io::Result<()> {
        if self.arrived.is_empty() {
            return Ok(());
        }
        let arrived = std::mem::take(&mut self.arrived);
        let copied = self.copy_all(CopyDirection::ToGuest, &arrived);
        let mut rest = arrived.into_iter();
        for copied in copied {
            let Some((slot, bytes)) = rest.next() else {
                break;
            };
            let advanced = if copied {
                if let Some(request) = self.slots.get_mut(slot) {
                    request.done += bytes;
                }
                self.advance(transport, slot)
            } else {
                self.end(transport, slot, Status::IoError)
            };
            if let Err(error) = advanced {
                self.arrived.extend(rest);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Answers the request in `slot` with `status`.
    fn end(&mut self, transport: &mut T, slot: usize, status: Status) -> io::Result<()> {
        match self.slots.take(slot) {
            Some(request) => self.finish(transport, slot, *request, status),
            None => Ok(()),
        }
    }

    /// Handles the completion of a step.
    fn complete(&mut self, transport: &mut T, completion: Completion) -> io::Result<()> {
        let slot = usize::try_from(completion.token).unwrap_or(usize::MAX);
        let Some(mut request) = self.slots.take(slot) else {
            return Err(io::Error::other(
                "the kernel completed a request that was never submitted",
            ));
        };
        let result = request.process_result(completion.result);
        if let StepResult::Done(Status::IoError) = result {
            self.note_failure(transport, &request, completion.result);
        }
        match result {
            StepResult::CopyToGuest(bytes) => {
                self.counters.bounced_bytes += bytes;
                self.slots.put(slot, request);
                self.arrived.push((slot, bytes));
                Ok(())
            }
            StepResult::Continue(bytes) => {
                if request.batch.is_some() {
                    self.counters.bounced_bytes += bytes;
                } else {
                    self.counters.in_place_bytes += bytes;
                }
                self.slots.put(slot, request);
                self.advance(transport, slot)
            }
            StepResult::Done(status) => self.finish(transport, slot, *request, status),
        }
    }

    /// Reports a failed step to `transport` if guest memory was not mapped, else keeps it as a
    /// failure of the image.
    fn note_failure(&mut self, transport: &mut T, request: &Active<T>, result: i32) {
        // Pages of the pool are always mapped, so only guest memory can cause EFAULT.
        if result == -libc::EFAULT && request.batch.is_none() {
            transport.lost(&request.payload);
        } else if let Some(failure) = request.failure(result) {
            self.failure = Some(failure);
        }
    }

    /// Frees the slot and the pages of `request`, answers it, and starts a request that waited for
    /// pages.
    fn finish(
        &mut self,
        transport: &mut T,
        slot: usize,
        mut request: Active<T>,
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
                // A failed read may have filled a part of the memory, too.
                transport.filled(&request.payload);
                u32::try_from(request.done).unwrap_or(u32::MAX)
            }
            _ => 0,
        };
        self.answer(transport, request.ticket, status, filled);
        // A request that went on in place may have returned pages of an earlier step.
        if (freed || self.memory.counts().in_use == 0)
            && let Some(next) = self.starved.pop_front()
        {
            self.advance(transport, next)?;
        }
        Ok(())
    }

    /// Counts and sends an answer.
    fn answer(&mut self, transport: &mut T, ticket: T::Ticket, status: Status, written: u32) {
        self.counters.requests += 1;
        self.counters.failed += u64::from(status != Status::Ok);
        transport.answer(ticket, status, written);
    }
}

impl<T: Transport> ReclaimMemory for Engine<T> {
    fn reclaim_memory(&mut self, event: Micros) {
        self.squeeze(event);
    }
}

impl<T: Transport> Drop for Engine<T> {
    fn drop(&mut self) {
        // The kernel may still write to pages of the pool and of the guest, so they must stay
        // mapped until all operations are complete.
        let idle = self.starved.len() + self.held.len() + self.arrived.len();
        while self.under_way() > idle {
            if self.queue.submit(1).is_err() {
                // Without completions, the memory could never be reused safely.
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

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
