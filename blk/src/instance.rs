//! One disk: a thread that serves its socket, its virtqueues, its image and its pool.
//!
//! Everything of an instance happens on this thread, so nothing in it needs a lock: messages of
//! the front-end, kicks, completions, pressure events. Other threads reach it by its [`Handle`]:
//! they set knobs, ask it to stop, and read the figures that it publishes.

use crate::engine::{Counters, Engine};
use crate::image::Image;
use crate::io::Queue;
use crate::knobs::Knobs;
use crate::pool::Counts;
use crate::pressure::Registry;
use crate::pressure::registry::{Registration, Waker};
use crate::time::{Clock, Micros};
use crate::vhost_user::device::Device;
use crate::vhost_user::queues::Queues;
use crate::vhost_user::session::{Event, Session};
use crate::vhost_user::truncated;
use crate::waiting::{Patience, Ready, Source, Waiter};
use crate::words::{Complaints, say};
use crate::xen::worker::{Front, Worker as XenWorker};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often everything is looked at where no descriptor is left to wait with.
const SHORT_INTERVAL: Duration = Duration::from_millis(1);
/// Rounds of requests before pressure and the time are looked at again.
const ROUNDS: usize = 16;
/// A disk that is never out of work looks at everything else after this.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Where the front-end comes from.
#[derive(Debug)]
pub enum Socket {
    /// It connects, goes, and may come again.
    Listener(UnixListener),
    /// It is connected; the instance ends when it goes.
    Connected(UnixStream),
    /// It is in another Xen domain; the instance ends when its device goes.
    Xen(Front),
}

/// The figures of an instance.
#[derive(Copy, Clone, Debug, Default)]
pub struct Figures {
    /// Requests and bytes.
    pub counters: Counters,
    /// Its pool.
    pub pool: Counts,
    /// Whether a front-end is connected.
    pub connected: bool,
    /// Grants of a Xen front-end that stay mapped.
    pub persistent_grants: u32,
}

/// What an instance's thread and its [`Handle`] share.
#[derive(Debug)]
pub(crate) struct Shared {
    knobs: Arc<Knobs>,
    stop: AtomicBool,
    figures: Mutex<Figures>,
}

/// An instance, as other threads see it. Dropping it stops the instance.
#[derive(Debug)]
pub struct Handle {
    name: String,
    waker: Waker,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    socket_path: Option<PathBuf>,
    io_kind: &'static str,
}

/// What an instance is made of.
#[derive(Debug)]
pub struct Config {
    /// Its name, also the disk's serial number.
    pub name: String,
    /// Its image.
    pub image: Image,
    /// Where its front-end comes from.
    pub socket: Socket,
    /// A path to remove at the end.
    pub socket_path: Option<PathBuf>,
    /// Whether io_uring is to be tried.
    pub uring: bool,
    /// Its knobs to begin with.
    pub knobs: Knobs,
    /// Run on the instance's thread once it is set up, to confine it.
    pub confine: Option<fn() -> io::Result<()>>,
}

impl Handle {
    /// Starts an instance.
    ///
    /// # Errors
    /// If the system has no thread, descriptor or address space left, or the thread could not be
    /// confined.
    pub fn start(config: Config, registry: &Registry, clock: Clock) -> io::Result<Self> {
        let Config {
            name,
            image,
            socket,
            socket_path,
            uring,
            knobs,
            confine,
        } = config;
        truncated::install()?;
        let registration = registry.register(&name)?;
        let waker = registration.waker();
        let knobs = Arc::new(knobs);
        let shared = Arc::new(Shared {
            knobs: knobs.clone(),
            stop: AtomicBool::new(false),
            figures: Mutex::default(),
        });
        let patience = Patience::new(thread::available_parallelism().map_or(1, usize::from));
        let (ready, started) = mpsc::channel();
        let (inside, disk) = (shared.clone(), name.clone());
        let thread = thread::Builder::new()
            .name(format!("blk {name}"))
            .spawn(move || {
                let set_up = || -> io::Result<Served> {
                    let queue = if uring {
                        Queue::new(&image)
                    } else {
                        Queue::calls()
                    };
                    if let Socket::Listener(listener) = &socket {
                        listener.set_nonblocking(true)?;
                    }
                    let served = if let Socket::Xen(front) = socket {
                        let engine = Engine::new(image, &disk, knobs, queue)?;
                        let worker = XenWorker::new(&disk, front, engine, inside, clock)?;
                        Served::Xen(Box::new(worker))
                    } else {
                        Served::VhostUser(Box::new(Worker {
                            engine: Engine::new(image, &disk, knobs, queue)?,
                            name: disk,
                            socket,
                            shared: inside,
                            clock,
                            patience,
                        }))
                    };
                    if let Some(confine) = confine {
                        confine()?;
                    }
                    Ok(served)
                };
                match set_up() {
                    Ok(served) => {
                        let _ = ready.send(Ok(served.io_kind()));
                        match served {
                            Served::VhostUser(worker) => worker.run(registration),
                            Served::Xen(worker) => worker.run(registration),
                        }
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            })?;
        let io_kind = started.recv().map_err(io::Error::other)??;
        Ok(Self {
            name,
            waker,
            shared,
            thread: Mutex::new(Some(thread)),
            socket_path,
            io_kind,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its knobs. After setting one, [`Self::wake`].
    pub fn knobs(&self) -> &Knobs {
        &self.shared.knobs
    }

    /// By what it does I/O.
    pub fn io_kind(&self) -> &'static str {
        self.io_kind
    }

    /// Has it look at its knobs now rather than after the next batch.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Its figures as of its last batch.
    pub fn figures(&self) -> Figures {
        *self.shared.figures()
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.thread()
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has stopped, and removes its socket.
    pub fn stopped(&self) {
        let Some(thread) = self.thread().take() else {
            return;
        };
        let _ = thread.join();
        if let Some(path) = &self.socket_path {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Asks it to stop, without waiting.
    pub fn request_stop(&self) {
        // Release: pairs with the Acquire in the worker's loop.
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.request_stop();
        self.stopped();
    }
}

impl Shared {
    /// The knobs.
    pub(crate) fn knobs(&self) -> &Arc<Knobs> {
        &self.knobs
    }

    /// Whether the instance is to end.
    pub(crate) fn stopping(&self) -> bool {
        // Acquire: pairs with the Release in `request_stop`.
        self.stop.load(Ordering::Acquire)
    }

    /// Tells others how the instance stands.
    pub(crate) fn publish(&self, figures: Figures) {
        *self.figures() = figures;
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        // A copy of numbers is never half done.
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an instance's thread runs, by its door.
enum Served {
    VhostUser(Box<Worker>),
    Xen(Box<XenWorker>),
}

impl Served {
    fn io_kind(&self) -> &'static str {
        match self {
            Self::VhostUser(worker) => worker.engine.queue().kind(),
            Self::Xen(worker) => worker.io_kind(),
        }
    }
}

struct Worker {
    name: String,
    socket: Socket,
    shared: Arc<Shared>,
    clock: Clock,
    engine: Engine<Queues>,
    patience: Patience,
}

impl Worker {
    fn run(self, registration: Registration) {
        let Self {
            name,
            socket,
            shared,
            clock,
            engine,
            patience,
        } = self;
        let mut device = Device::new(engine);
        let mut connection = None;
        let mut listener = None;
        match socket {
            Socket::Listener(socket) => listener = Some(socket),
            Socket::Connected(stream) => connection = Some(Session::new(stream)),
            // Has a worker of its own.
            Socket::Xen(_) => {}
        }
        let mut turns = Turns {
            complaints: Complaints::new(&name, clock),
            device: &mut device,
            shared: &shared,
            clock,
            registration,
            connection,
            listener,
            waiter: None,
            patience,
            next_look: Micros(0),
        };
        // Acquire: pairs with the Release in `request_stop`.
        while !shared.stop.load(Ordering::Acquire) {
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
    listener: Option<UnixListener>,
    /// What is waited for; `None` since a part of it changed.
    waiter: Option<Waiter>,
    patience: Patience,
    /// When everything is looked at again, however much there is to do.
    next_look: Micros,
}

impl Turns<'_> {
    fn take(&mut self) -> io::Result<()> {
        let ready = self.serve_and_wait()?;
        if truncated::take_lost() {
            self.cut_off(format_args!("it cut memory that was in use"))?;
            return Ok(());
        }
        let now = self.clock.now();
        if let Some(front) = &mut self.connection
            && (ready.message || front.deadline().is_some_and(|deadline| now >= deadline))
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
            && let Some(listener) = &self.listener
        {
            self.waiter = None;
            match listener.accept() {
                Ok((stream, _)) => self.connection = Some(Session::new(stream)),
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
        let (registration, stop) = (&self.registration, &self.shared.stop);
        // Only for a driver: what is under way ends by interrupts and kernel threads, and whoever
        // looks around meanwhile is on the processor that they need.
        let patient = device.engine.under_way() == 0;
        let mut news = || {
            // Acquire: pairs with the Release in `request_stop`.
            has_news(device) || registration.is_asked() || stop.load(Ordering::Acquire)
        };
        let found = busy
            || if patient {
                self.patience.look(self.clock, news)
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
        let timeout = if found || truncated::is_lost() {
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
