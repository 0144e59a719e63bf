//! The thread of one disk for Xen: its device in xenstore, its rings, its image and its pool.

use super::shared::{Figures, Shared};
use crate::engine::{Engine, MAX_ACTIVE};
use crate::pressure::ReclaimMemory;
use crate::pressure::registry::Registration;
use crate::time::{Clock, Micros};
use crate::words::{Complaints, say};
use crate::xen::device::{Device, Front, Life};
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

/// Rounds of requests before xenstore is looked at again.
const ROUNDS: usize = 16;

/// The rings of a disk and what serves them.
pub(super) struct Worker {
    name: String,
    complaints: Complaints,
    device: Device<Xenbus>,
    engine: Engine<Rings>,
    rings: Rings,
    events: Rc<dyn Events>,
    shared: Arc<Shared>,
    clock: Clock,
    /// Whether xenstore may have something to tell.
    told: bool,
    ended: bool,
}

/// All that holds memory which it can give back.
struct Squeezable<'a>(&'a mut Engine<Rings>, &'a mut Rings, bool);

impl ReclaimMemory for Squeezable<'_> {
    fn reclaim_memory(&mut self, event: Micros) {
        self.0.reclaim_memory(event);
        if self.2 {
            self.1.reclaim();
        }
    }
}

fn store_failed(error: StoreError) -> io::Error {
    match error {
        StoreError::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl Worker {
    /// Opens all that the disk needs of Xen. To be called on the thread that will serve it, before
    /// that is confined.
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
            complaints: Complaints::new(name, clock),
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

    /// By what it does I/O.
    pub(super) fn io_kind(&self) -> &'static str {
        self.engine.queue().kind()
    }

    /// Serves the disk until its device is gone or it is asked to stop. If it is asked to stop, the
    /// device stays connected: requests wait in the rings for a successor.
    pub(super) fn run(mut self, mut registration: Registration) {
        while !self.shared.stopping() && !self.ended {
            if let Err(error) = self.turn(&mut registration) {
                say(format_args!("disk {} is lost: {error}", self.name));
                break;
            }
        }
        if let Err(error) = self.engine.drain(&mut self.rings) {
            say(format_args!("disk {}: {error}", self.name));
        }
        self.rings.announce();
        self.rings.disconnect();
        self.publish();
    }

    fn turn(&mut self, registration: &mut Registration) -> io::Result<()> {
        let mut changed = false;
        if std::mem::take(&mut self.told) {
            while self.device.store.event().map_err(store_failed)?.is_some() {
                changed = true;
            }
        }
        if changed {
            let engine = &mut self.engine;
            let life = self.device.settle(&mut self.rings, |rings| {
                engine.drain(rings)?;
                rings.announce();
                Ok(())
            });
            self.ended = life.map_err(store_failed)? == Life::Over;
            // More may have come in while it was asked.
            self.told = true;
        }
        let more = self.serve()?;
        if let Some(failure) = self.engine.take_failure() {
            self.complaints.tell_failure(&failure);
        }
        self.report_shut()?;
        let now = self.clock.now();
        self.engine.shrink(now);
        self.rings.purge(now);
        registration.fetched(self.engine.pool().fetched());
        self.publish();
        if self.ended {
            return Ok(());
        }
        let more = more || self.told;
        let ready = self.wait(registration, more, now)?;
        self.told |= ready.told;
        if ready.wake {
            let squeezes = !self.shared.knobs().squeeze_duration().is_zero();
            let mut all = Squeezable(&mut self.engine, &mut self.rings, squeezes);
            registration.deliver(&mut all);
            self.engine.shrink(self.clock.now());
        }
        if ready.events {
            self.rings.take_events();
        }
        Ok(())
    }

    /// Takes and carries out requests while there are any, a bounded while. Says whether there are
    /// more.
    fn serve(&mut self) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            let accepted = self.engine.accept(&mut self.rings)?;
            let reaped = self.engine.reap(&mut self.rings)?;
            if accepted + reaped == 0 {
                break;
            }
            self.rings.announce();
        }
        // Front-ends are asked to notify again before the last look, so that none is missed.
        let waiting = self.rings.listen();
        let more = waiting && self.engine.under_way() < MAX_ACTIVE;
        Ok(more || self.engine.has_completions())
    }

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

    fn publish(&self) {
        self.shared.publish(Figures {
            counters: self.engine.counters(),
            pool: self.engine.pool(),
            connected: self.rings.connected(),
            persistent_grants: self.rings.persistent_grants(),
        });
    }

    fn wait(&self, registration: &Registration, more: bool, now: Micros) -> io::Result<Ready> {
        let next = [self.engine.next_shrink(now), self.rings.next_purge()];
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

struct Ready {
    wake: bool,
    told: bool,
    events: bool,
}
