//! The rings of a disk, as the source of its requests.

use super::evtchn::{Events, Port};
use super::grants::{Direction, DomainId, GrantRef, Grants, Transfer};
use super::payload::GrantedMemory;
use super::persistent::{Limits, Persistent};
use super::protocol::{self, Body, MAX_INDIRECT_SEGMENTS, SEGMENT_BYTES, Segment};
use super::ring::{OutOfStep, Ring, Sequence};
use crate::knobs::{Knob, Knobs};
use crate::request::{Incoming, Op, Range, Status, Transport};
use crate::time::{Clock, Micros};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The data needed to answer a request of a Xen front-end.
#[derive(Copy, Clone, Debug)]
pub struct Ticket {
    /// Number of the ring.
    ring: usize,
    request: Sequence,
    /// The front-end's id of the request.
    id: u64,
    /// The operation that the answer must name.
    operation: u8,
}

/// The properties of the disk that requests are checked against.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// Whether the disk is read-only.
    pub read_only: bool,
}

/// One ring and its event channel.
#[derive(Debug)]
struct Queue {
    ring: Ring,
    abi: protocol::Abi,
    port: Port,
    /// Whether the ring's indices were invalid. It stays closed until the front-end connects again.
    shut: bool,
}

/// All rings of one disk's front-end. There are none while no front-end is connected.
#[derive(Debug)]
pub struct Rings {
    domain: DomainId,
    grants: Rc<dyn Grants>,
    events: Rc<dyn Events>,
    geometry: Geometry,
    knobs: Arc<Knobs>,
    clock: Clock,
    /// The time of the current batch of requests. Without a fast clock, as in a paravirtual domain,
    /// reading the time for each request would cost a system call each.
    now: Option<Micros>,
    queues: Vec<Queue>,
    persistent: Option<Persistent>,
    /// The ring from which the next request is taken first, so that a busy ring does not starve
    /// others.
    turn: usize,
    /// Rings that were shut since the last [`Self::take_shut`].
    shut: Vec<(usize, OutOfStep)>,
}

impl Rings {
    /// Makes the rings of a disk, without a front-end. `domain` is the front-end's domain, `grants`
    /// and `events` are the interfaces to the hypervisor, and `geometry` describes the disk.
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

    /// Takes over the rings of a front-end, in the layout `abi`. `persistent` is whether the
    /// front-end agrees that grants stay mapped. Disconnects an earlier front-end. Notifies the new
    /// one on all rings.
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
        // A predecessor may have been killed between its last answer and the notification.
        for queue in &self.queues {
            self.events.notify(queue.port);
        }
    }

    /// Unbinds the event channels of all rings and unmaps all memory of the front-end. Forgets
    /// which rings were shut. No request may be under way. Does nothing if no front-end is
    /// connected.
    pub fn disconnect(&mut self) {
        for queue in self.queues.drain(..) {
            self.events.unbind(queue.port);
        }
        self.persistent = None;
        self.shut.clear();
        self.turn = 0;
    }

    /// Returns whether a front-end is connected.
    pub fn connected(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Returns whether a front-end is connected and all its rings are shut.
    pub fn all_shut(&self) -> bool {
        self.connected() && self.queues.iter().all(|queue| queue.shut)
    }

    /// Returns the numbers of the rings that were shut since the last call because of an invalid
    /// index, and the reasons.
    pub fn take_shut(&mut self) -> Vec<(usize, OutOfStep)> {
        std::mem::take(&mut self.shut)
    }

    /// Returns the number of grants that stay mapped at the moment, 0 without a front-end.
    pub fn persistent_grants(&self) -> u32 {
        self.persistent.as_ref().map_or(0, Persistent::count)
    }

    /// Unmasks the event channels that became pending, except those of rings that are shut.
    pub fn take_events(&mut self) {
        for port in self.events.pending() {
            if self.queues.iter().any(|q| q.port == port && !q.shut) {
                self.events.unmask(port);
            }
        }
    }

    /// Notifies the front-end of answers published since the last call, on rings for which it has
    /// notifications enabled.
    pub fn announce(&mut self) {
        for queue in &mut self.queues {
            if queue.ring.wants_notification() {
                self.events.notify(queue.port);
            }
        }
    }

    /// Enables notifications of new requests on all rings that are not shut. Returns whether a
    /// request waits already. Shuts rings with an invalid index: see [`Self::take_shut`].
    pub fn enable_notifications(&mut self) -> bool {
        self.now = None;
        let mut more = false;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if queue.shut {
                continue;
            }
            match queue.ring.enable_notifications() {
                Ok(waiting) => more |= waiting,
                Err(why) => {
                    queue.shut = true;
                    self.shut.push((index, why));
                }
            }
        }
        more
    }

    /// Returns the limits on mapped grants from the settings.
    fn limits(&self) -> Limits {
        let seconds = self.knobs.get(Knob::PersistentGrantUnusedSeconds);
        Limits {
            grants: self.knobs.get(Knob::MaxPersistentGrants),
            unused: Duration::from_secs(seconds.into()),
        }
    }

    /// Unmaps unused grants that exceed the limits in the settings, as [`Persistent::purge`]
    /// describes.
    pub fn purge(&mut self, now: Micros) {
        let limits = self.limits();
        if let Some(persistent) = &mut self.persistent {
            persistent.purge(limits, now);
        }
    }

    /// Returns the time at which [`Self::purge`] must be called even if no request comes. Returns
    /// `None` if no grant is mapped, or if the grants are within the limits and never expire.
    pub fn next_purge(&self) -> Option<Micros> {
        self.persistent.as_ref()?.next_purge(self.limits())
    }

    /// Unmaps all persistent grants that no request uses, at once, because of memory pressure.
    pub fn reclaim(&mut self) {
        if let Some(persistent) = &mut self.persistent {
            persistent.reclaim();
        }
    }

    /// Takes the next request of ring number `index`. Returns `None` if there is none or the ring
    /// is shut.
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

    /// Checks a request and finds its memory. Returns the status for an answer if the request is
    /// invalid.
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

    /// Copies a table of `count` segments, so that the segments that are checked are those that are
    /// used. Returns the status for an answer if the table is not granted.
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
        // SAFETY: the parser passes no more than `MAX_INDIRECT_SEGMENTS`, so `raw` is large enough.
        unsafe { grants.copy(self.domain, Direction::FromGrants, all) };
        if !transfer.done {
            return Err(Status::IoError);
        }
        Ok(protocol::segments(&raw[..bytes], count.into()))
    }

    /// Checks a read or write request and finds its memory: mapped if the limits allow, else
    /// copied.
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

impl Transport for Rings {
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

#[cfg(test)]
#[path = "rings_tests.rs"]
#[allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "small numbers of a test, which may panic"
)]
mod tests;
