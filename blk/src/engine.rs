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

use crate::arena::Arena;
use crate::image::Image;
use crate::io::{Completion, Operation, Queue, Route};
use crate::knobs::{Knob, Knobs};
use crate::pool::{Batch, Counts, MAX_POOL_PAGES, PAGE_BYTES, Pool, SHRINK_INTERVAL, Squeeze};
use crate::pressure::ReclaimMemory;
use crate::request::{
    Door, Fault, HostSlice, ID_BYTES, Incoming, Move, Op, Payload, Range, Status, Way,
};
use crate::time::Micros;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Pages that one step takes from the pool at most: 256 KiB.
pub const BOUNCE_PAGES: u32 = 64;
/// Requests under way at most; more wait at their door.
pub const MAX_ACTIVE: usize = 512;
/// Slices of one step; `UIO_MAXIOV` of Linux.
const MAX_SLICES: usize = 1024;
/// Bytes of one step in place. A request may be as large as its disk, and where a step is a system call
/// nobody looks at anything else meanwhile.
const MAX_STEP_BYTES: u64 = 16 << 20;
/// Room for slices that is kept for the next requests: so many, for so many slices each.
const MAX_SPARES: usize = 64;
const MAX_SPARE_SLICES: usize = 64;
/// Times that the kernel may say "again" to a request.
const MAX_RETRIES: u8 = 64;

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

/// What the image did not do. The request was answered with [`Status::IoError`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What was asked for.
    what: &'static str,
    /// First byte.
    offset: u64,
    /// The system's error number; 0 where the image ends before the disk.
    pub errno: i32,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            offset,
            errno,
        } = self;
        write!(f, "{what} at byte {offset} failed: ")?;
        match errno {
            0 => f.write_str("the image ends before the disk does"),
            errno => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

#[derive(Debug)]
struct Active<D: Door> {
    ticket: D::Ticket,
    op: Op,
    payload: D::Payload,
    /// Bytes that are done; for ranges, how many of them.
    done: u64,
    retries: u8,
    /// What the step under way uses. The kernel reads the slices: they must not move.
    batch: Option<Batch>,
    slices: Vec<HostSlice>,
    step_bytes: u64,
}

/// Carries out the requests of one door on one image.
#[derive(Debug)]
pub struct Engine<D: Door> {
    image: Image,
    id: [u8; ID_BYTES],
    knobs: Arc<Knobs>,
    pool: Pool<Arena>,
    squeeze: Squeeze,
    /// When the pool is looked at next.
    next_trim: Micros,
    queue: Queue,
    /// Boxed, so that a request stays where it is while the kernel works on it.
    active: Vec<Option<Box<Active<D>>>>,
    free_slots: Vec<usize>,
    /// Room for slices, of requests that are done.
    spare_slices: Vec<Vec<HostSlice>>,
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

/// What the result of a step means.
enum Verdict {
    /// So many bytes were read, and are to be handed over.
    Arrived(u64),
    /// There may be one more step.
    On,
    /// It was the last.
    Over(Status),
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
            knobs,
            pool: Pool::new(Arena::new(MAX_POOL_PAGES)?, MAX_POOL_PAGES),
            squeeze: Squeeze::default(),
            next_trim: Micros(0),
            queue,
            active: Vec::new(),
            free_slots: Vec::new(),
            spare_slices: Vec::new(),
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
        self.pool.counts()
    }

    /// Whether every write is to be on the medium when it is answered, as a driver without flush
    /// expects.
    pub fn set_write_through(&mut self, on: bool) {
        self.write_through = on;
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.active.len() - self.free_slots.len()
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
        if self.knobs.squeeze_duration().is_zero() {
            self.squeeze = Squeeze::default();
        }
        if self.squeeze.begins() {
            self.pool.shrink(0);
        } else if now >= self.next_trim {
            self.pool.trim(self.limit(now));
        } else {
            return;
        }
        self.next_trim = now + SHRINK_INTERVAL;
    }

    /// When the pool wants to be looked at again, if it is then over its limit.
    pub fn next_shrink(&self, now: Micros) -> Option<Micros> {
        (self.pool.counts().kept > self.limit(now)).then_some(self.next_trim)
    }

    /// Free pages that may be kept at `now`.
    fn limit(&self, now: Micros) -> u32 {
        if self.squeeze.active(now) {
            return 0;
        }
        self.knobs.get(Knob::MaxBufferPages)
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
        let request = Box::new(Active {
            ticket,
            op,
            payload,
            done: 0,
            retries: 0,
            batch: None,
            slices: self.spare_slices.pop().unwrap_or_default(),
            step_bytes: 0,
        });
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() - 1
        });
        self.active[slot] = Some(request);
        self.advance(door, slot)
    }

    /// Starts the next step of the request in `slot`, or answers it.
    fn advance(&mut self, door: &mut D, slot: usize) -> io::Result<()> {
        let Some(mut request) = self.active[slot].take() else {
            return Ok(());
        };
        match self.step(&mut request, slot)? {
            Step::Started => self.active[slot] = Some(request),
            Step::Starved => {
                self.active[slot] = Some(request);
                self.starved.push_back(slot);
            }
            Step::Finished(status) => self.finish(door, slot, *request, status)?,
        }
        Ok(())
    }

    fn step(&mut self, request: &mut Active<D>, slot: usize) -> io::Result<Step> {
        let operation = match &request.op {
            Op::Read(start) | Op::Write(start) => {
                let offset = start + request.done;
                if request.done == request.payload.bytes() {
                    return Ok(Step::Finished(Status::Ok));
                }
                let write = matches!(request.op, Op::Write(_));
                let route = match self.gather(request, offset) {
                    Some(route) => route,
                    None => return Ok(Step::Starved),
                };
                let slices = request.slices.as_ptr();
                let count = u32::try_from(request.slices.len()).unwrap_or(0);
                if write {
                    let durable = self.write_through;
                    Operation::Write {
                        route,
                        slices,
                        count,
                        offset,
                        durable,
                    }
                } else {
                    Operation::Read {
                        route,
                        slices,
                        count,
                        offset,
                    }
                }
            }
            Op::Flush if request.done > 0 => return Ok(Step::Finished(Status::Ok)),
            Op::Flush => Operation::Flush,
            Op::Discard(ranges) | Op::WriteZeroes(ranges) => {
                let next = usize::try_from(request.done)
                    .ok()
                    .and_then(|at| ranges.get(at));
                let Some(range) = next else {
                    return Ok(Step::Finished(Status::Ok));
                };
                let punch = range.unmap || matches!(request.op, Op::Discard(_));
                let how = if punch {
                    libc::FALLOC_FL_PUNCH_HOLE
                } else {
                    libc::FALLOC_FL_ZERO_RANGE
                };
                let mode = how | libc::FALLOC_FL_KEEP_SIZE;
                Operation::Allocate {
                    mode,
                    offset: range.offset,
                    bytes: range.bytes,
                }
            }
            Op::GetId => return Ok(Step::Finished(Status::Unsupported)),
        };
        let waits = request.batch.is_some() && matches!(request.op, Op::Write(_));
        if waits || !self.held.is_empty() {
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
        let request = self.active[slot].as_ref();
        request.is_some_and(|r| r.batch.is_some() && matches!(r.op, Op::Write(_)))
    }

    /// Copies between the pages of requests and their guests, for each as many bytes as are named.
    /// Says of each whether it was done.
    fn copy_all(&self, way: Way, wanted: &[(usize, u64)]) -> Vec<bool> {
        let requests = wanted.iter().filter_map(|(slot, bytes)| {
            let request = self.active[*slot].as_ref()?;
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
                .filter_map(|(slot, _)| Some((*slot, self.active[*slot].as_ref()?.step_bytes)))
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
                if let Some(request) = &mut self.active[slot] {
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
        match self.active[slot].take() {
            Some(request) => self.finish(door, slot, *request, status),
            None => Ok(()),
        }
    }

    /// Finds the memory for the next step: the guest's own where that works. `None` if it takes
    /// pages and none are free.
    fn gather(&mut self, request: &mut Active<D>, offset: u64) -> Option<Route> {
        let left = request.payload.bytes() - request.done;
        let direct = self.image.direct().map(|(_, alignment)| alignment);
        let aligned =
            direct.filter(|a| offset.is_multiple_of(a.offset) && left.is_multiple_of(a.offset));
        let route = if aligned.is_some() {
            Route::Direct
        } else {
            Route::Cached
        };
        if let Some(slices) = request.payload.in_place() {
            let fits = aligned.is_none_or(|a| {
                slices.iter().all(|s| {
                    (s.iov_base as usize as u64).is_multiple_of(a.memory)
                        && (s.iov_len as u64).is_multiple_of(a.offset)
                })
            });
            if fits {
                request.slices.clear();
                request.step_bytes = rest_of(slices, request.done, &mut request.slices);
                // Of a step before, which did not fit.
                if let Some(batch) = request.batch.take() {
                    self.pool.put(batch);
                }
                return Some(route);
            }
        }
        let step = left.min(u64::from(BOUNCE_PAGES) * PAGE_BYTES as u64);
        let pages = u32::try_from(step.div_ceil(PAGE_BYTES as u64)).unwrap_or(BOUNCE_PAGES);
        let batch = match request.batch.take() {
            Some(batch) if batch.pages().len() == pages as usize => batch,
            other => {
                if let Some(batch) = other {
                    self.pool.put(batch);
                }
                self.pool.take(pages)?
            }
        };
        request.slices.clear();
        let mut gathered = 0;
        for page in batch.pages() {
            let address = self.pool.backing().address(*page).as_ptr();
            let bytes = (step - gathered).min(PAGE_BYTES as u64);
            let iov_len = usize::try_from(bytes).unwrap_or(PAGE_BYTES);
            match request.slices.last_mut() {
                Some(last) if last.iov_base as usize + last.iov_len == address as usize => {
                    last.iov_len += iov_len;
                }
                _ => request.slices.push(HostSlice {
                    iov_base: address.cast(),
                    iov_len,
                }),
            }
            gathered += bytes;
        }
        request.step_bytes = step;
        request.batch = Some(batch);
        Some(route)
    }

    fn complete(&mut self, door: &mut D, completion: Completion) -> io::Result<()> {
        let slot = usize::try_from(completion.token).unwrap_or(usize::MAX);
        let taken = self.active.get_mut(slot).and_then(Option::take);
        let Some(mut request) = taken else {
            return Err(io::Error::other(
                "the kernel completed what nobody asked for",
            ));
        };
        let verdict = self.judge(&mut request, completion.result);
        if let Verdict::Over(Status::IoError) = verdict {
            self.note_failure(door, &request, completion.result);
        }
        match verdict {
            Verdict::Arrived(bytes) => {
                self.active[slot] = Some(request);
                self.arrived.push((slot, bytes));
                Ok(())
            }
            Verdict::On => {
                self.active[slot] = Some(request);
                self.advance(door, slot)
            }
            Verdict::Over(status) => self.finish(door, slot, *request, status),
        }
    }

    fn note_failure(&mut self, door: &mut D, request: &Active<D>, result: i32) {
        // Pages of the pool are always there: it is the guest's memory that is not.
        if result == -libc::EFAULT && request.batch.is_none() {
            door.lost(&request.payload);
            return;
        }
        let at = |ranges: &[Range]| {
            let range = usize::try_from(request.done)
                .ok()
                .and_then(|i| ranges.get(i));
            range.map_or(0, |range| range.offset)
        };
        let (what, offset) = match &request.op {
            Op::Read(start) => ("a read", start + request.done),
            Op::Write(start) => ("a write", start + request.done),
            Op::Flush => ("a flush", 0),
            Op::Discard(ranges) => ("a discard", at(ranges)),
            Op::WriteZeroes(ranges) => ("a write of zeroes", at(ranges)),
            Op::GetId => return,
        };
        self.failure = Some(Failure {
            what,
            offset,
            errno: result.min(0).abs(),
        });
    }

    /// Takes the result of a step into account.
    fn judge(&mut self, request: &mut Active<D>, result: i32) -> Verdict {
        match refused(request, result) {
            Some(Some(status)) => return Verdict::Over(status),
            Some(None) => return Verdict::On,
            None => request.retries = 0,
        }
        match &mut request.op {
            Op::Read(_) | Op::Write(_) => {
                let bytes = u64::try_from(result).unwrap_or(0).min(request.step_bytes);
                // The image ends before the disk does: somebody cut it.
                if bytes == 0 {
                    return Verdict::Over(Status::IoError);
                }
                if request.batch.is_some() {
                    self.counters.bounced_bytes += bytes;
                    if matches!(request.op, Op::Read(_)) {
                        return Verdict::Arrived(bytes);
                    }
                } else {
                    self.counters.in_place_bytes += bytes;
                }
                request.done += bytes;
            }
            _ => request.done += 1,
        }
        Verdict::On
    }

    fn finish(
        &mut self,
        door: &mut D,
        slot: usize,
        mut request: Active<D>,
        status: Status,
    ) -> io::Result<()> {
        self.active[slot] = None;
        self.free_slots.push(slot);
        let mut slices = std::mem::take(&mut request.slices);
        if slices.capacity() <= MAX_SPARE_SLICES && self.spare_slices.len() < MAX_SPARES {
            slices.clear();
            self.spare_slices.push(slices);
        }
        let freed = request
            .batch
            .take()
            .map(|batch| self.pool.put(batch))
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
        if (freed || self.pool.counts().in_use == 0)
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
        let duration = self.knobs.squeeze_duration();
        self.squeeze.begin(event, duration);
        self.counters.squeezes += u64::from(!duration.is_zero());
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
                if self.active.get_mut(slot).and_then(Option::take).is_some() {
                    self.free_slots.push(slot);
                }
            }
        }
    }
}

/// What to do about a result that is an error: `None` if it is none, else a status, or
/// `Some(None)` to try again.
fn refused<D: Door>(request: &mut Active<D>, result: i32) -> Option<Option<Status>> {
    let error = match result {
        0.. => return None,
        error => -error,
    };
    if matches!(error, libc::EAGAIN | libc::EINTR) && request.retries < MAX_RETRIES {
        request.retries += 1;
        return Some(None);
    }
    if error == libc::EOPNOTSUPP {
        // A file system that cannot zero in place can often punch, which reads as zeroes too.
        if let Op::WriteZeroes(ranges) = &mut request.op
            && let Some(range) = usize::try_from(request.done)
                .ok()
                .and_then(|i| ranges.get_mut(i))
            && !range.unmap
        {
            range.unmap = true;
            return Some(None);
        }
        return Some(Some(Status::Unsupported));
    }
    Some(Some(Status::IoError))
}

/// The slices without their first `skip` bytes, as many as one step takes. Returns their bytes.
fn rest_of(slices: &[HostSlice], mut skip: u64, rest: &mut Vec<HostSlice>) -> u64 {
    let mut bytes = 0;
    for slice in slices {
        if rest.len() == MAX_SLICES || bytes == MAX_STEP_BYTES {
            break;
        }
        let len = slice.iov_len as u64;
        if skip >= len {
            skip -= len;
            continue;
        }
        let cut = usize::try_from(skip).unwrap_or(0);
        skip = 0;
        let room = usize::try_from(MAX_STEP_BYTES - bytes).unwrap_or(usize::MAX);
        let iov_len = (slice.iov_len - cut).min(room);
        let iov_base = slice.iov_base.cast::<u8>().wrapping_add(cut).cast();
        rest.push(HostSlice { iov_base, iov_len });
        bytes += iov_len as u64;
    }
    bytes
}

/// The first `bytes` of the pool's pages in `slices`.
///
/// # Safety
/// The slices are of pages that one request took from the pool; while what is returned is in use,
/// the request keeps them and no operation on them is under way.
unsafe fn buffers<'a>(slices: &[HostSlice], bytes: u64) -> Vec<&'a mut [u8]> {
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    let pieces = slices.iter().map(|slice| {
        let len = slice.iov_len.min(left);
        left -= len;
        // SAFETY: mapped, and in nobody else's use, says the caller.
        unsafe { std::slice::from_raw_parts_mut(slice.iov_base.cast::<u8>(), len) }
    });
    pieces.filter(|piece| !piece.is_empty()).collect()
}

#[cfg(all(test, not(loom)))]
#[path = "engine_tests.rs"]
mod tests;
