//! The thread of one disk with a vhost-user socket.

use super::shared::{Figures, Shared};
use super::stats::StatsLog;
use super::waiting::{PollTime, Ready, Source, Waiter};
use crate::engine::Engine;
use crate::messages::{RateLimitedLog, print};
use crate::pressure::registry::Registration;
use crate::time::{Clock, Micros};
use crate::vhost_user::counter;
use crate::vhost_user::device::Device;
use crate::vhost_user::queues::Queues;
use crate::vhost_user::reader::Reader;
use crate::vhost_user::session::{Event, Session};
use crate::vhost_user::truncated;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Interval at which everything is checked if no descriptor is left for an epoll.
const SHORT_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of rounds of requests before pressure and the time are checked.
const ROUNDS: usize = 16;
/// Maximum time for which a busy disk serves requests before it checks its other descriptors.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The parts of the thread of a disk with a vhost-user socket, before its loop starts.
pub(super) struct Worker {
    pub(super) name: String,
    /// The socket of a connected front-end.
    pub(super) connection: Option<UnixStream>,
    /// Reads the front-end's socket while this thread is busy.
    pub(super) reader: Arc<Reader>,
    /// The socket to which front-ends connect. `None` if the instance ends with its front-end.
    pub(super) listener: Option<UnixListener>,
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
    pub(super) engine: Engine<Queues>,
    pub(super) poll_time: PollTime,
}

impl Worker {
    /// Returns the name of the I/O mechanism: `io_uring` or `preadv/pwritev`.
    pub(super) fn io_kind(&self) -> &'static str {
        self.engine.queue().kind()
    }

    /// Serves the disk. `registration` delivers pressure events and wakes this thread. Returns when
    /// the instance must stop, when the disk cannot be served any more, or, if there is no
    /// listener, when the front-end has disconnected. Requests that were taken are finished before.
    /// Errors are written to stderr.
    pub(super) fn run(self, registration: Registration) {
        let Self {
            name,
            connection,
            reader,
            listener,
            shared,
            clock,
            engine,
            poll_time,
        } = self;
        let mut device = Device::new(engine);
        let mut turns = Turns {
            log: RateLimitedLog::new(&name, clock),
            stats: StatsLog::new(&name),
            device: &mut device,
            shared: &shared,
            clock,
            registration,
            connection: None,
            reader,
            listener,
            waiter: None,
            poll_time,
            next_look: Micros(0),
        };
        if let Some(stream) = connection
            && let Err(error) = turns.begin(stream)
        {
            print(format_args!("disk {name} is lost: {error}"));
        }
        while !shared.stopping() {
            if turns.connection.is_none() && turns.listener.is_none() {
                break;
            }
            if let Err(error) = turns.take() {
                print(format_args!("disk {name} is lost: {error}"));
                break;
            }
        }
        drop(turns);
        // Requests that were taken are finished in any case.
        if let Err(error) = device.reset() {
            print(format_args!("disk {name}: {error}"));
        }
        shared.publish(figures(&device, false));
    }
}

/// Returns the figures of `device`, which has a front-end if `connected` is `true`.
fn figures(device: &Device, connected: bool) -> Figures {
    Figures {
        counters: device.engine.counters(),
        pool: device.engine.pool(),
        connected,
        persistent_grants: 0,
    }
}

/// The state of the thread's loop. Each turn carries out waiting work and waits for more.
struct Turns<'a> {
    log: RateLimitedLog,
    stats: StatsLog,
    device: &'a mut Device,
    shared: &'a Shared,
    clock: Clock,
    registration: Registration,
    connection: Option<Session>,
    reader: Arc<Reader>,
    listener: Option<UnixListener>,
    /// The epoll that the thread waits with. `None` after a change of the descriptors to wait for.
    waiter: Option<Waiter>,
    poll_time: PollTime,
    /// Time at which all descriptors are checked, even if requests are waiting.
    next_look: Micros,
}

impl Turns<'_> {
    /// Starts a session with the front-end at the other end of `stream`. Fails if the system
    /// refuses.
    fn begin(&mut self, stream: UnixStream) -> io::Result<()> {
        let waker = self.registration.waker();
        self.connection = Some(Session::new(stream, &self.reader, Some(waker))?);
        Ok(())
    }

    /// Carries out one turn. Fails if the disk cannot be served any more.
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
            // The message may have added or closed a descriptor, or changed the events to wait for.
            self.waiter = None;
            match front.attend(self.device, now) {
                Event::Fine => {}
                Event::Refused(what) => self.log.log(format_args!("{what}")),
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
                        self.log
                            .log(format_args!("cannot serve a front-end: {error}"));
                    }
                }
                // The front-end has closed its end, or no descriptor is left. It may connect again.
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(())
    }

    /// Closes the connection because of an error of the front-end, and reports `why` on stderr.
    fn cut_off(&mut self, why: fmt::Arguments<'_>) -> io::Result<()> {
        let what = format_args!("cut its front-end off: {why}");
        self.log.log(what);
        self.hang_up()
    }

    /// Closes the connection and resets the device, which finishes the requests under way.
    fn hang_up(&mut self) -> io::Result<()> {
        self.waiter = None;
        self.connection = None;
        self.device.reset()?;
        // The answers to these requests may have met truncated memory, too.
        truncated::take_lost();
        counter::take_held_up();
        Ok(())
    }

    /// Serves requests and pressure events, then waits. Returns the sources of events that are
    /// ready.
    fn serve_and_wait(&mut self) -> io::Result<Ready> {
        let device = &mut *self.device;
        let busy = serve(device)?;
        if let Some(failure) = device.engine.take_failure() {
            self.log.log_failure(&failure);
        }
        let now = self.clock.now();
        if self.registration.is_asked() {
            self.registration.deliver(&mut device.engine);
        }
        device.engine.shrink(now);
        self.registration.fetched(device.engine.pool().fetched());
        let figures = figures(device, self.connection.is_some());
        self.shared.publish(figures);
        // Now that pages are freed and the figures show it.
        self.registration.confirm();
        self.stats.look(now, self.shared.knobs(), &figures);
        let (registration, shared) = (&self.registration, self.shared);
        // The thread polls for a driver only. Operations under way complete by interrupts and
        // kernel threads, and a polling thread would occupy the processor that they need.
        let may_poll = device.engine.under_way() == 0;
        let mut news = || has_news(device) || registration.is_asked() || shared.stopping();
        let found = busy
            || if may_poll {
                self.poll_time.poll_until(|| self.clock.now(), news)
            } else {
                news()
            };
        if found && now < self.next_look {
            return Ok(Ready::default());
        }
        // Notifications are enabled before the last check for requests, so that none is missed.
        let found = device.queues.enable_notifications() && device.engine.has_room() || found;
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
        // Truncated memory may have been noticed until here. The front-end is then cut off without
        // waiting.
        let told = self.connection.as_ref().is_some_and(Session::has_news);
        let timeout = if found || told || truncated::is_lost() || counter::is_held_up() {
            Some(Duration::ZERO)
        } else {
            let next = [
                device.engine.next_shrink(now),
                self.stats.next(&figures),
                deadline,
            ];
            let next = next.into_iter().flatten().min();
            next.map(|then| from.until(then))
        };
        let ready = if let Some(waiter) = &self.waiter {
            waiter.wait(timeout)?
        } else {
            let (connection, listener) = (self.connection.as_ref(), self.listener.as_ref());
            wait_without(registration, connection, listener)?
        };
        let to = self.clock.now();
        self.next_look = to + LOOK_INTERVAL;
        if !found && may_poll {
            self.poll_time.adapt(from, to);
        }
        if ready.wake {
            self.registration.deliver(&mut device.engine);
            device.engine.shrink(to);
        }
        Ok(ready)
    }
}

/// Carries out requests until there are none, for a limited number of rounds. Returns whether the
/// limit ended it. Fails if the disk cannot be served any more.
fn serve(device: &mut Device) -> io::Result<bool> {
    device.queues.disable_notifications();
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

/// Returns whether a request waits that can be started, or a completion.
fn has_news(device: &mut Device) -> bool {
    device.engine.has_completions() || device.engine.has_room() && device.queues.has_requests()
}

/// Returns whether `error` means that the process or system has no descriptor left.
fn short_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Waits a millisecond if no descriptor is left for an epoll, because `poll` needs none. The caller
/// checks everything again after each wait, until other descriptors are closed.
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

/// Makes an epoll for all events of the instance. Fails if no descriptor is left.
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
