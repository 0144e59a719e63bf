//! The rings of a disk, as a door.

use super::evtchn::{Events, Port};
use super::grants::{Direction, DomainId, GrantRef, Grants, Transfer};
use super::payload::GrantedMemory;
use super::persistent::{Limits, Persistent};
use super::protocol::{self, Body, MAX_INDIRECT_SEGMENTS, SEGMENT_BYTES, Segment};
use super::ring::{OutOfStep, Ring, Sequence};
use crate::knobs::{Knob, Knobs};
use crate::request::{Door, Incoming, Op, Range, Status};
use crate::time::{Clock, Micros};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What is needed to answer a request.
#[derive(Copy, Clone, Debug)]
pub struct Ticket {
    ring: usize,
    request: Sequence,
    id: u64,
    operation: u8,
}

/// The disk that requests are for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Its size.
    pub bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
}

#[derive(Debug)]
struct Queue {
    ring: Ring,
    abi: protocol::Abi,
    port: Port,
    /// Its indices made no sense. It stays shut until the front-end connects again.
    shut: bool,
}

/// The rings of one front-end, empty while there is none.
#[derive(Debug)]
pub struct Rings {
    domain: DomainId,
    grants: Rc<dyn Grants>,
    events: Rc<dyn Events>,
    geometry: Geometry,
    knobs: Arc<Knobs>,
    clock: Clock,
    /// The time of the batch that is being taken: where there is no fast clock, as in a
    /// paravirtual domain, one look for each request would be a system call for each.
    now: Option<Micros>,
    queues: Vec<Queue>,
    persistent: Option<Persistent>,
    /// Which ring is asked first next time, so that a busy one starves no other.
    turn: usize,
    /// Rings that were shut since somebody asked.
    shut: Vec<(usize, OutOfStep)>,
}

impl Rings {
    /// No front-end yet.
    pub fn new(
        domain: DomainId,
        grants: Rc<dyn Grants>,
        events: Rc<dyn Events>,
        geometry: Geometry,
        knobs: Arc<Knobs>,
        clock: Clock,
    ) -> Self {
        Self {
            domain,
            grants,
            events,
            geometry,
            knobs,
            clock,
            now: None,
            queues: Vec::new(),
            persistent: None,
            turn: 0,
            shut: Vec::new(),
        }
    }

    /// Takes the rings of a front-end. `persistent` is whether it agrees to grants that stay
    /// mapped.
    pub fn connect(&mut self, rings: Vec<(Ring, Port)>, abi: protocol::Abi, persistent: bool) {
        self.disconnect();
        let queue = |(ring, port)| Queue {
            ring,
            abi,
            port,
            shut: false,
        };
        self.queues = rings.into_iter().map(queue).collect();
        self.persistent = persistent.then(|| Persistent::new(self.grants.clone(), self.domain));
        // A predecessor may have died between its last answer and the notification.
        for queue in &self.queues {
            self.events.notify(queue.port);
        }
    }

    /// Gives up all that is the front-end's. Nothing of it may be under way.
    pub fn disconnect(&mut self) {
        for queue in self.queues.drain(..) {
            self.events.unbind(queue.port);
        }
        self.persistent = None;
        self.shut.clear();
        self.turn = 0;
    }

    /// Whether there is a front-end.
    pub fn connected(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Whether all rings are shut.
    pub fn all_shut(&self) -> bool {
        self.connected() && self.queues.iter().all(|queue| queue.shut)
    }

    /// Rings that were shut since the last call, by their number, and why.
    pub fn take_shut(&mut self) -> Vec<(usize, OutOfStep)> {
        std::mem::take(&mut self.shut)
    }

    /// Grants that stay mapped.
    pub fn persistent_grants(&self) -> u32 {
        self.persistent.as_ref().map_or(0, Persistent::count)
    }

    /// Ports that were notified: they may be again, but for those of rings that are shut.
    pub fn take_events(&mut self) {
        for port in self.events.pending() {
            if self.queues.iter().any(|q| q.port == port && !q.shut) {
                self.events.unmask(port);
            }
        }
    }

    /// Tells the front-end of answers where it wants to be told.
    pub fn announce(&mut self) {
        for queue in &mut self.queues {
            if queue.ring.wants_notification() {
                self.events.notify(queue.port);
            }
        }
    }

    /// Asks to be notified of new requests. Returns whether there are some already.
    pub fn listen(&mut self) -> bool {
        self.now = None;
        let mut more = false;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if queue.shut {
                continue;
            }
            match queue.ring.listen() {
                Ok(waiting) => more |= waiting,
                Err(why) => {
                    queue.shut = true;
                    self.shut.push((index, why));
                }
            }
        }
        more
    }

    fn limits(&self) -> Limits {
        let seconds = self.knobs.get(Knob::PersistentGrantUnusedSeconds);
        Limits {
            grants: self.knobs.get(Knob::MaxPersistentGrants),
            unused: Duration::from_secs(seconds.into()),
        }
    }

    /// Lets grants go that are over the limits.
    pub fn purge(&mut self, now: Micros) {
        let limits = self.limits();
        if let Some(persistent) = &mut self.persistent {
            persistent.purge(limits, now);
        }
    }

    /// When [`Self::purge`] wants to be called though nothing happens.
    pub fn next_purge(&self) -> Option<Micros> {
        self.persistent.as_ref()?.next_purge(self.limits())
    }

    /// Memory is tight: lets all grants go that no request uses.
    pub fn reclaim(&mut self) {
        if let Some(persistent) = &mut self.persistent {
            persistent.reclaim();
        }
    }

    fn take(&mut self, index: usize) -> Option<Incoming<Ticket, GrantedMemory>> {
        let queue = &mut self.queues[index];
        if queue.shut {
            return None;
        }
        let (sequence, raw) = match queue.ring.take() {
            Ok(taken) => taken?,
            Err(why) => {
                queue.shut = true;
                self.shut.push((index, why));
                return None;
            }
        };
        let request = protocol::parse(queue.abi, &raw);
        let ticket = Ticket {
            ring: index,
            request: sequence,
            id: request.id,
            operation: request.operation,
        };
        let request = request.body.and_then(|body| self.understand(body));
        Some(Incoming { ticket, request })
    }

    fn understand(&mut self, body: Body) -> Result<(Op, GrantedMemory), Status> {
        match body {
            Body::Data {
                write,
                sector,
                segments,
            } => self.data(write, sector, segments),
            Body::Indirect {
                write,
                sector,
                segments,
                table,
            } => {
                let segments = self.table(table, segments)?;
                self.data(write, sector, segments)
            }
            Body::Flush => Ok((Op::Flush, GrantedMemory::None)),
            Body::Discard { .. } if self.geometry.read_only => Err(Status::IoError),
            Body::Discard { sector, sectors } => {
                let (offset, bytes) = protocol::range(sector, sectors, self.geometry.bytes)?;
                let range = Range {
                    offset,
                    bytes,
                    unmap: true,
                };
                Ok((Op::Discard(vec![range]), GrantedMemory::None))
            }
        }
    }

    /// A copy of a table of segments, so that what is checked is what is done.
    fn table(&self, table: GrantRef, count: u16) -> Result<Vec<Segment>, Status> {
        let mut raw = [0_u8; MAX_INDIRECT_SEGMENTS as usize * SEGMENT_BYTES];
        let bytes = usize::from(count) * SEGMENT_BYTES;
        let mut transfer = Transfer {
            grant: table,
            offset: 0,
            bytes: u16::try_from(bytes).map_err(|_| Status::IoError)?,
            local: raw.as_mut_ptr(),
            done: false,
        };
        let (grants, all) = (&self.grants, std::slice::from_mut(&mut transfer));
        // SAFETY: the parser lets no more than `MAX_INDIRECT_SEGMENTS` through, so `raw` has room.
        unsafe { grants.copy(self.domain, Direction::FromGrants, all) };
        if !transfer.done {
            return Err(Status::IoError);
        }
        Ok(protocol::segments(&raw[..bytes], count.into()))
    }

    fn data(
        &mut self,
        write: bool,
        sector: u64,
        segments: Vec<Segment>,
    ) -> Result<(Op, GrantedMemory), Status> {
        let offset = protocol::extent(sector, &segments, self.geometry.bytes)?;
        if write && self.geometry.read_only {
            return Err(Status::IoError);
        }
        let op = if write {
            Op::Write(offset)
        } else {
            Op::Read(offset)
        };
        let clock = self.clock;
        let most = self.knobs.get(Knob::MaxPersistentGrants);
        let held = self.persistent.as_mut().and_then(|persistent| {
            let now = *self.now.get_or_insert_with(|| clock.now());
            let wanted: Vec<_> = segments.iter().map(|segment| segment.grant).collect();
            persistent.pages(&wanted, most, now)
        });
        let memory = match held {
            Some(held) => GrantedMemory::mapped(&segments, held),
            None => GrantedMemory::Copied {
                grants: self.grants.clone(),
                domain: self.domain,
                segments,
            },
        };
        Ok((op, memory))
    }
}

impl Door for Rings {
    type Ticket = Ticket;
    type Payload = GrantedMemory;

    fn next_request(&mut self) -> Option<Incoming<Ticket, GrantedMemory>> {
        let count = self.queues.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            if let Some(incoming) = self.take(index) {
                self.turn = (index + 1) % count;
                return Some(incoming);
            }
        }
        None
    }

    fn answer(&mut self, ticket: Ticket, status: Status, _written: u32) {
        let response = protocol::response(ticket.id, ticket.operation, status);
        let queue = &mut self.queues[ticket.ring];
        queue.ring.answer(ticket.request, response);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "rings_tests.rs"]
#[allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "small numbers of a test, which may panic"
)]
mod tests;
