//! The thread of one disk with a Xen front-end.

use super::shared::{Figures, Shared};
use super::stats::StatsLog;
use crate::engine::{Engine, MAX_ACTIVE};
use crate::messages::{RateLimitedLog, print};
use crate::pressure::ReclaimMemory;
use crate::pressure::registry::Registration;
use crate::time::{Clock, Micros};
use crate::xen::device::{Device, Front, InstanceState};
use crate::xen::evtchn::{Events, Evtchn};
use crate::xen::gntdev::Gntdev;
use crate::xen::grants::Grants;
use crate::xen::rings::{Geometry, Rings};
use crate::xen::store::{Store, StoreError};
use crate::xen::xenbus::Xenbus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of rounds of requests before xenstore is checked.
const ROUNDS: usize = 16;

/// The state of the thread of a disk with a Xen front-end: the device, its rings, its engine.
pub(super) struct Worker {
    name: String,
    log: RateLimitedLog,
    stats: StatsLog,
    device: Device<Xenbus>,
    engine: Engine<Rings>,
    rings: Rings,
    events: Rc<dyn Events>,
    shared: Arc<Shared>,
    clock: Clock,
    /// Whether xenstore events may be waiting to be read.
    told: bool,
    /// Whether the device is gone, so that the thread ends.
    ended: bool,
}

/// The parts that can free memory: the engine with its pool, and the rings with their mapped
/// grants. While squeezing is off, neither frees any.
struct Squeezable<'a> {
    engine: &'a mut Engine<Rings>,
    rings: &'a mut Rings,
}

impl ReclaimMemory for Squeezable<'_> {
    fn reclaim_memory(&mut self, event: Micros) {
        if self.engine.squeeze(event) {
            self.rings.reclaim();
        }
    }
}

/// Converts an error of xenstore.
fn store_failed(error: StoreError) -> io::Error {
    match error {
        StoreError::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl Worker {
    /// Opens Xen's devices and xenstore for the disk called `name` and its front-end `front`. Call
    /// this on the thread that will serve the disk, before that is restricted to few system calls.
    /// Fails if a device cannot be opened or xenstore refuses.
    pub(super) fn new(
        name: &str,
        front: Front,
        engine: Engine<Rings>,
        shared: Arc<Shared>,
        clock: Clock,
    ) -> io::Result<Self> {
        let domain = front.address.domain;
        let grants: Rc<dyn Grants> = Rc::new(Gntdev::open()?);
        let events: Rc<dyn Events> = Rc::new(Evtchn::open(domain)?);
        let image = engine.image();
        let geometry = Geometry {
            bytes: image.bytes(),
            read_only: image.read_only(),
        };
        let knobs = shared.knobs().clone();
        let rings = Rings::new(
            domain,
            grants.clone(),
            events.clone(),
            geometry,
            knobs,
            clock,
        );
        let devices = (grants, events.clone());
        let device = Device::new(Xenbus::open()?, front.address, front.path, image, devices);
        Ok(Self {
            name: name.to_owned(),
            log: RateLimitedLog::new(name, clock),
            stats: StatsLog::new(name),
            device: device.map_err(store_failed)?,
            engine,
            rings,
            events,
            shared,
            clock,
            told: true,
            ended: false,
        })
    }

    /// Returns the name of the I/O mechanism: `io_uring` or `preadv/pwritev`.
    pub(super) fn io_kind(&self) -> &'static str {
        self.engine.queue().kind()
    }

    /// Serves the disk. `registration` delivers pressure events and wakes this thread. Returns when
    /// the device is gone, when the instance must stop, or when the disk cannot be served any more.
    /// Requests that were taken are finished before. If the instance stops, the device stays
    /// connected in xenstore, and requests wait in the rings for a successor. Errors are written to
    /// stderr.
    pub(super) fn run(mut self, mut registration: Registration) {
        while !self.shared.stopping() && !self.ended {
            if let Err(error) = self.turn(&mut registration) {
                print(format_args!("disk {} is lost: {error}", self.name));
                break;
            }
        }
        if let Err(error) = self.engine.drain(&mut self.rings) {
            print(format_args!("disk {}: {error}", self.name));
        }
        self.rings.announce();
        self.rings.disconnect();
        self.shared.publish(self.figures());
    }

    /// Reads xenstore's events, serves requests, then waits. Fails if the disk cannot be served any
    /// more.
    fn turn(&mut self, registration: &mut Registration) -> io::Result<()> {
        let mut changed = false;
        if std::mem::take(&mut self.told) {
            while self.device.store.event().map_err(store_failed)?.is_some() {
                changed = true;
            }
        }
        if changed {
            let engine = &mut self.engine;
            let state = self.device.settle(&mut self.rings, |rings| {
                engine.drain(rings)?;
                rings.announce();
                Ok(())
            });
            self.ended = state.map_err(store_failed)? == InstanceState::Ended;
            // Further events may have arrived while xenstore was asked.
            self.told = true;
        }
        let more = self.serve()?;
        if let Some(failure) = self.engine.take_failure() {
            self.log.log_failure(&failure);
        }
        self.report_shut()?;
        let now = self.clock.now();
        self.engine.shrink(now);
        self.rings.purge(now);
        registration.fetched(self.engine.pool().fetched());
        let figures = self.figures();
        self.shared.publish(figures);
        // Now that pages are freed and the figures show it.
        registration.confirm();
        self.stats.look(now, self.shared.knobs(), &figures);
        if self.ended {
            return Ok(());
        }
        let more = more || self.told;
        let ready = self.wait(registration, more, now, &figures)?;
        self.told |= ready.told;
        if ready.wake {
            registration.deliver(&mut Squeezable {
                engine: &mut self.engine,
                rings: &mut self.rings,
            });
            self.engine.shrink(self.clock.now());
        }
        if ready.events {
            self.rings.take_events();
        }
        Ok(())
    }

    /// Carries out requests until there are none, for a limited number of rounds. Returns whether
    /// more work waits. Fails if the disk cannot be served any more.
    fn serve(&mut self) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            let accepted = self.engine.accept(&mut self.rings)?;
            let reaped = self.engine.reap(&mut self.rings)?;
            if accepted + reaped == 0 {
                break;
            }
            self.rings.announce();
        }
        // Notifications are enabled before the last check for requests, so that none is missed.
        let waiting = self.rings.enable_notifications();
        let more = waiting && self.engine.under_way() < MAX_ACTIVE;
        Ok(more || self.engine.has_completions())
    }

    /// Reports rings that were shut because of an error of the front-end. Closes the device if all
    /// are shut.
    fn report_shut(&mut self) -> io::Result<()> {
        let shut = self.rings.take_shut();
        for (ring, why) in &shut {
            let told = self.device.complain(&format!("ring {ring} is shut: {why}"));
            told.map_err(store_failed)?;
            self.told = true;
        }
        if !shut.is_empty() && self.rings.all_shut() {
            self.device.give_up().map_err(store_failed)?;
        }
        Ok(())
    }

    /// Returns the figures of the disk.
    fn figures(&self) -> Figures {
        Figures {
            counters: self.engine.counters(),
            pool: self.engine.pool(),
            connected: self.rings.connected(),
            persistent_grants: self.rings.persistent_grants(),
        }
    }

    /// Waits for an event, or until the pool, the grants or the log must be looked at. Does not
    /// block if `more` is set. `figures` are those of the disk now.
    fn wait(
        &self,
        registration: &Registration,
        more: bool,
        now: Micros,
        figures: &Figures,
    ) -> io::Result<Ready> {
        let next = [
            self.engine.next_shrink(now),
            self.rings.next_purge(),
            self.stats.next(figures),
        ];
        let timeout = if more {
            Some(Duration::ZERO)
        } else {
            next.into_iter().flatten().min().map(|then| now.until(then))
        };
        let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
        let mut fds = vec![
            PollFd::new(registration, PollFlags::IN),
            PollFd::new(&self.device.store, PollFlags::IN),
        ];
        let queues = [self.events.fd(), self.engine.queue().fd()];
        let queues = queues.into_iter().flatten();
        fds.extend(queues.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = |index: usize| !fds[index].revents().is_empty();
        Ok(Ready {
            wake: ready(0),
            told: ready(1),
            events: ready(2),
        })
    }
}

/// The sources of events that ended a wait.
struct Ready {
    wake: bool,
    told: bool,
    events: bool,
}
