//! The thread of one disk for vhost-user: its socket, its virtqueues, its image and its pool.

use super::shared::{Figures, Shared};
use super::waiting::{Patience, Ready, Source, Waiter};
use crate::engine::Engine;
use crate::pressure::registry::Registration;
use crate::time::{Clock, Micros};
use crate::vhost_user::counter;
use crate::vhost_user::device::Device;
use crate::vhost_user::queues::Queues;
use crate::vhost_user::reader::Reader;
use crate::vhost_user::session::{Event, Session};
use crate::vhost_user::truncated;
use crate::words::{Complaints, say};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often everything is looked at where no descriptor is left to wait with.
const SHORT_INTERVAL: Duration = Duration::from_millis(1);
/// Rounds of requests before pressure and the time are looked at again.
const ROUNDS: usize = 16;
/// A disk that is never out of work looks at everything else after this.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

pub(super) struct Worker {
    pub(super) name: String,
    /// A front-end that is connected.
    pub(super) connection: Option<UnixStream>,
    /// Reads the front-end's socket while the disk is busy.
    pub(super) reader: Arc<Reader>,
    /// Where front-ends connect; without it, the instance ends with its front-end.
    pub(super) listener: Option<UnixListener>,
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
    pub(super) engine: Engine<Queues>,
    pub(super) patience: Patience,
}

impl Worker {
    /// By what it does I/O.
    pub(super) fn io_kind(&self) -> &'static str {
        self.engine.queue().kind()
    }

    /// Serves the disk until it is asked to stop, or its one front-end is gone.
    pub(super) fn run(self, registration: Registration) {
        let Self {
            name,
            connection,
            reader,
            listener,
            shared,
            clock,
            engine,
            patience,
        } = self;
        let mut device = Device::new(engine);
        let mut turns = Turns {
            complaints: Complaints::new(&name, clock),
            device: &mut device,
            shared: &shared,
            clock,
            registration,
            connection: None,
            reader,
            listener,
            waiter: None,
            patience,
            next_look: Micros(0),
        };
        if let Some(stream) = connection
            && let Err(error) = turns.begin(stream)
        {
            say(format_args!("disk {name} is lost: {error}"));
        }
        while !shared.stopping() {
            if turns.connection.is_none() && turns.listener.is_none() {
                break;
            }
            if let Err(error) = turns.take() {
                say(format_args!("disk {name} is lost: {error}"));
                break;
            }
        }
        drop(turns);
        // What the guest was promised is finished, whoever asked us to stop.
        if let Err(error) = device.reset() {
            say(format_args!("disk {name}: {error}"));
        }
        publish(&shared, &device, false);
    }
}

fn publish(shared: &Shared, device: &Device, connected: bool) {
    let (counters, pool) = (device.engine.counters(), device.engine.pool());
    shared.publish(Figures {
        counters,
        pool,
        connected,
        persistent_grants: 0,
    });
}

/// The worker's loop. Each turn carries out what there is to do and waits for more.
struct Turns<'a> {
    complaints: Complaints,
    device: &'a mut Device,
    shared: &'a Shared,
    clock: Clock,
    registration: Registration,
    connection: Option<Session>,
    reader: Arc<Reader>,
    listener: Option<UnixListener>,
    /// What is waited for; `None` since a part of it changed.
    waiter: Option<Waiter>,
    patience: Patience,
    /// When everything is looked at again, however much there is to do.
    next_look: Micros,
}

impl Turns<'_> {
    /// Begins to serve the front-end at the other end of `stream`.
    fn begin(&mut self, stream: UnixStream) -> io::Result<()> {
        let waker = self.registration.waker();
        self.connection = Some(Session::new(stream, &self.reader, Some(waker))?);
        Ok(())
    }

    fn take(&mut self) -> io::Result<()> {
        let ready = self.serve_and_wait()?;
        if truncated::take_lost() {
            self.cut_off(format_args!("it cut memory that was in use"))?;
            return Ok(());
        }
        if counter::is_held_up() {
            self.cut_off(format_args!(
                "a write to its event counter blocked until it was interrupted"
            ))?;
            return Ok(());
        }
        let now = self.clock.now();
        if let Some(front) = &mut self.connection
            && (ready.message
                || front.has_news()
                || front.deadline().is_some_and(|deadline| now >= deadline))
        {
            // It may have brought a descriptor, or taken one back; or it is waited for in another way.
            self.waiter = None;
            match front.attend(self.device, now) {
                Event::Fine => {}
                Event::Refused(what) => self.complaints.tell(format_args!("{what}")),
                Event::CutOff(why) => self.cut_off(format_args!("{why}"))?,
                Event::Gone => self.hang_up()?,
            }
        }
        if ready.connect
            && self.connection.is_none()
            && let Some(accepted) = self.listener.as_ref().map(UnixListener::accept)
        {
            self.waiter = None;
            match accepted {
                Ok((stream, _)) => {
                    if let Err(error) = self.begin(stream) {
                        self.complaints
                            .tell(format_args!("cannot serve a front-end: {error}"));
                    }
                }
                // It went again, or there is no descriptor for it: it may come back.
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(())
    }

    /// The front-end cannot be served any more.
    fn cut_off(&mut self, why: fmt::Arguments<'_>) -> io::Result<()> {
        let what = format_args!("cut its front-end off: {why}");
        self.complaints.tell(what);
        self.hang_up()
    }

    /// The front-end is gone, or is to go.
    fn hang_up(&mut self) -> io::Result<()> {
        self.waiter = None;
        self.connection = None;
        self.device.reset()?;
        // What was still answered may have met memory that is gone, too.
        truncated::take_lost();
        counter::take_held_up();
        Ok(())
    }

    fn serve_and_wait(&mut self) -> io::Result<Ready> {
        let device = &mut *self.device;
        let busy = serve(device)?;
        if let Some(failure) = device.engine.take_failure() {
            self.complaints.tell_failure(&failure);
        }
        let now = self.clock.now();
        if self.registration.is_asked() {
            self.registration.deliver(&mut device.engine);
        }
        device.engine.shrink(now);
        self.registration.fetched(device.engine.pool().fetched());
        publish(self.shared, device, self.connection.is_some());
        let (registration, shared) = (&self.registration, self.shared);
        // Only for a driver: what is under way ends by interrupts and kernel threads, and whoever
        // looks around meanwhile is on the processor that they need.
        let patient = device.engine.under_way() == 0;
        let mut news = || has_news(device) || registration.is_asked() || shared.stopping();
        let found = busy
            || if patient {
                self.patience.look(|| self.clock.now(), news)
            } else {
                news()
            };
        if found && now < self.next_look {
            return Ok(Ready::default());
        }
        // Drivers are asked to notify again before the last look, so that none is missed.
        let found = device.queues.listen() && device.engine.has_room() || found;
        if self.waiter.is_none() {
            let (connection, listener) = (self.connection.as_ref(), self.listener.as_ref());
            match waiter(device, registration, connection, listener) {
                Ok(waiter) => self.waiter = Some(waiter),
                Err(error) if short_of_descriptors(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let from = self.clock.now();
        let deadline = self.connection.as_ref().and_then(Session::deadline);
        // Memory that was cut is noticed by whoever touches it, up to here: nobody waits with that.
        let told = self.connection.as_ref().is_some_and(Session::has_news);
        let timeout = if found || told || truncated::is_lost() || counter::is_held_up() {
            Some(Duration::ZERO)
        } else {
            let next = device.engine.next_shrink(now).into_iter().chain(deadline);
            next.min().map(|then| from.until(then))
        };
        let ready = if let Some(waiter) = &self.waiter {
            waiter.wait(timeout)?
        } else {
            let (connection, listener) = (self.connection.as_ref(), self.listener.as_ref());
            wait_without(registration, connection, listener)?
        };
        let to = self.clock.now();
        self.next_look = to + LOOK_INTERVAL;
        if !found && patient {
            self.patience.slept(from, to);
        }
        if ready.wake {
            self.registration.deliver(&mut device.engine);
            device.engine.shrink(to);
        }
        Ok(ready)
    }
}

/// Takes and carries out requests while there are any, a bounded while. Says whether it stopped
/// because of that.
fn serve(device: &mut Device) -> io::Result<bool> {
    device.queues.quiet();
    for _ in 0..ROUNDS {
        let accepted = device.engine.accept(&mut device.queues)?;
        let reaped = device.engine.reap(&mut device.queues)?;
        if accepted + reaped == 0 {
            return Ok(false);
        }
        device.queues.announce();
    }
    Ok(true)
}

/// Whether there is a request to take, or a completion.
fn has_news(device: &mut Device) -> bool {
    device.engine.has_completions() || device.engine.has_room() && device.queues.has_requests()
}

fn short_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Waits a moment where others took all descriptors: `poll` needs none of its own. They may go, and
/// until then everything is looked at again and again.
fn wait_without(
    registration: &Registration,
    connection: Option<&Session>,
    listener: Option<&UnixListener>,
) -> io::Result<Ready> {
    let listener = listener.filter(|_| connection.is_none());
    let mut fds = vec![PollFd::new(registration, PollFlags::IN)];
    fds.extend(connection.map(|front| {
        let answering = front.is_answering();
        PollFd::new(
            front,
            if answering {
                PollFlags::OUT
            } else {
                PollFlags::IN
            },
        )
    }));
    fds.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
    match poll(&mut fds, Timespec::try_from(SHORT_INTERVAL).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
    Ok(Ready {
        wake: ready(0),
        message: connection.is_some() && ready(1),
        connect: listener.is_some() && ready(1),
    })
}

/// All that can end a wait.
fn waiter(
    device: &mut Device,
    registration: &Registration,
    connection: Option<&Session>,
    listener: Option<&UnixListener>,
) -> io::Result<Waiter> {
    let waiter = Waiter::new()?;
    waiter.add(registration, Source::Wake)?;
    match (connection, listener) {
        (Some(front), _) if front.is_answering() => waiter.add(front, Source::Answer)?,
        (Some(front), _) => waiter.add(front, Source::Message)?,
        (None, Some(listener)) => waiter.add(listener, Source::Connect)?,
        (None, None) => {}
    }
    if let Some(io) = device.engine.queue().fd() {
        waiter.add(io, Source::Io)?;
    }
    device
        .queues
        .each_kick(|kick| waiter.add(kick, Source::Kick).is_ok());
    Ok(waiter)
}
