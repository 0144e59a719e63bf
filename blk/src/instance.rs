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
use crate::vhost_user::queues::{Queues, consume};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vhost::vhost_user::{BackendReqHandler, Error as ProtocolError};

/// A front-end that leaves a message unfinished is given up after this.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Rounds of requests before the front-end's messages are looked at again.
const ROUNDS: usize = 16;

/// Where the front-end comes from.
#[derive(Debug)]
pub enum Socket {
    /// It connects, goes, and may come again.
    Listener(UnixListener),
    /// It is connected; the instance ends when it goes.
    Connected(UnixStream),
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
}

#[derive(Debug)]
struct Shared {
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
            confine,
        } = config;
        let registration = registry.register(&name)?;
        let waker = registration.waker();
        let knobs = Arc::new(Knobs::default());
        let shared = Arc::new(Shared {
            knobs: knobs.clone(),
            stop: AtomicBool::new(false),
            figures: Mutex::default(),
        });
        let (ready, started) = mpsc::channel();
        let (inside, disk) = (shared.clone(), name.clone());
        let thread = thread::Builder::new()
            .name(format!("blk {name}"))
            .spawn(move || {
                let set_up = || -> io::Result<Worker> {
                    let queue = if uring {
                        Queue::new(&image)
                    } else {
                        Queue::calls()
                    };
                    let engine = Engine::new(image, &disk, knobs, queue)?;
                    if let Socket::Listener(listener) = &socket {
                        listener.set_nonblocking(true)?;
                    }
                    if let Some(confine) = confine {
                        confine()?;
                    }
                    Ok(Worker {
                        name: disk,
                        socket,
                        shared: inside,
                        clock,
                        engine,
                    })
                };
                match set_up() {
                    Ok(worker) => {
                        let _ = ready.send(Ok(worker.engine.queue().kind()));
                        worker.run(registration);
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
    fn figures(&self) -> MutexGuard<'_, Figures> {
        // A copy of numbers is never half done.
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Worker {
    name: String,
    socket: Socket,
    shared: Arc<Shared>,
    clock: Clock,
    engine: Engine<Queues>,
}

/// A connected front-end.
struct Connection {
    handler: BackendReqHandler<Mutex<Device>>,
    stream: UnixStream,
    /// A refusal was told of. One is enough: the front-end may send as many as it likes.
    complained: bool,
}

impl Connection {
    fn new(stream: UnixStream, device: &Arc<Mutex<Device>>) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
        stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
        let handler = BackendReqHandler::from_stream(stream.try_clone()?, device.clone());
        Ok(Self {
            handler,
            stream,
            complained: false,
        })
    }
}

impl Worker {
    fn run(self, mut registration: Registration) {
        let Self {
            name,
            socket,
            shared,
            clock,
            engine,
        } = self;
        // The lock satisfies the `vhost` crate; nobody else ever holds it.
        #[allow(clippy::arc_with_non_send_sync, reason = "it stays on this thread")]
        let device = Arc::new(Mutex::new(Device::new(engine)));
        let mut connection = None;
        let mut listener = None;
        match socket {
            Socket::Listener(socket) => listener = Some(socket),
            Socket::Connected(stream) => connection = Connection::new(stream, &device).ok(),
        }
        // Acquire: pairs with the Release in `request_stop`.
        while !shared.stop.load(Ordering::Acquire) {
            if connection.is_none() && listener.is_none() {
                break;
            }
            let outcome = Turn {
                name: &name,
                device: &device,
                shared: &shared,
                clock,
            }
            .run(&mut registration, &mut connection, listener.as_ref());
            if let Err(error) = outcome {
                eprintln!("ebb blk: disk {name} is lost: {error}");
                break;
            }
        }
        drop(connection);
        // What the guest was promised is finished, whoever asked us to stop.
        if let Err(error) = lock(&device).reset() {
            eprintln!("ebb blk: disk {name}: {error}");
        }
        publish(&shared, &lock(&device), false);
    }
}

fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

fn publish(shared: &Shared, device: &Device, connected: bool) {
    let (counters, pool) = (device.engine.counters(), device.engine.pool());
    *shared.figures() = Figures {
        counters,
        pool,
        connected,
    };
}

/// One time around the worker's loop: waits for something to do, and does it.
struct Turn<'a> {
    name: &'a str,
    device: &'a Arc<Mutex<Device>>,
    shared: &'a Shared,
    clock: Clock,
}

impl Turn<'_> {
    fn run(
        &self,
        registration: &mut Registration,
        connection: &mut Option<Connection>,
        listener: Option<&UnixListener>,
    ) -> io::Result<()> {
        let ready = self.serve_and_wait(registration, connection.as_ref(), listener)?;
        if ready.message
            && let Some(front) = connection
            && let Err(error) = front.handler.handle_request()
        {
            if ends(&error) {
                *connection = None;
                lock(self.device).reset()?;
            } else if !std::mem::replace(&mut front.complained, true) {
                let name = self.name;
                eprintln!("ebb blk: disk {name}: refused what its front-end asked: {error}");
            }
        }
        if ready.connect
            && connection.is_none()
            && let Some(listener) = listener
        {
            match listener.accept() {
                Ok((stream, _)) => *connection = Connection::new(stream, self.device).ok(),
                // It went again, or there is no descriptor for it: it may come back.
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(())
    }

    fn serve_and_wait(
        &self,
        registration: &mut Registration,
        connection: Option<&Connection>,
        listener: Option<&UnixListener>,
    ) -> io::Result<Ready> {
        let mut device = lock(self.device);
        let more = serve(&mut device)?;
        let now = self.clock.now();
        device.engine.shrink(now);
        publish(self.shared, &device, connection.is_some());
        let ready = wait(&device, registration, connection, listener, more, now)?;
        if ready.wake {
            registration.deliver(&mut device.engine);
            device.engine.shrink(self.clock.now());
        }
        for (virtqueue, kicked) in device.queues.queues.iter().zip(&ready.kicked) {
            if let Some(kick) = virtqueue.kick.as_ref().filter(|_| *kicked) {
                consume(kick);
            }
        }
        Ok(ready)
    }
}

/// Takes and carries out requests while there are any, a bounded while. Says whether there are
/// more.
fn serve(device: &mut Device) -> io::Result<bool> {
    device.queues.quiet();
    for _ in 0..ROUNDS {
        let accepted = device.engine.accept(&mut device.queues)?;
        let reaped = device.engine.reap(&mut device.queues)?;
        if accepted + reaped == 0 {
            break;
        }
        device.queues.announce();
    }
    // Drivers are asked to notify again before the last look, so that none is missed.
    let waiting = device.queues.listen();
    Ok(waiting && device.engine.under_way() < crate::engine::MAX_ACTIVE)
}

struct Ready {
    wake: bool,
    message: bool,
    connect: bool,
    kicked: Vec<bool>,
}

fn wait(
    device: &Device,
    registration: &Registration,
    connection: Option<&Connection>,
    listener: Option<&UnixListener>,
    more: bool,
    now: Micros,
) -> io::Result<Ready> {
    let timeout = if more {
        Some(Duration::ZERO)
    } else {
        device.engine.next_shrink(now).map(|then| now.until(then))
    };
    let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
    let queues = &device.queues.queues;
    let mut fds = Vec::with_capacity(queues.len() + 4);
    fds.push(PollFd::new(registration, PollFlags::IN));
    let front = connection.map(|front| {
        fds.push(PollFd::new(&front.stream, PollFlags::IN));
        fds.len() - 1
    });
    let door = listener.filter(|_| connection.is_none()).map(|listener| {
        fds.push(PollFd::new(listener, PollFlags::IN));
        fds.len() - 1
    });
    let io = device.engine.queue().fd();
    if let Some(io) = io {
        fds.push(PollFd::from_borrowed_fd(io, PollFlags::IN));
    }
    let first_kick = fds.len();
    let kicks: Vec<_> = queues
        .iter()
        .map(|q| q.kick.as_ref().filter(|_| q.running()))
        .collect();
    fds.extend(
        kicks
            .iter()
            .flatten()
            .map(|kick| PollFd::new(*kick, PollFlags::IN)),
    );
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let ready = |index: usize| !fds[index].revents().is_empty();
    let mut next = first_kick;
    let kicked = kicks.iter().map(|kick| {
        kick.is_some_and(|_| {
            next += 1;
            ready(next - 1)
        })
    });
    Ok(Ready {
        kicked: kicked.collect(),
        wake: ready(0),
        message: front.is_some_and(ready),
        connect: door.is_some_and(ready),
    })
}

/// Whether a front-end with which this happened cannot be talked to any more. A request that was
/// refused has been answered as such, if it wanted an answer.
fn ends(error: &ProtocolError) -> bool {
    !matches!(
        error,
        ProtocolError::InvalidParam
            | ProtocolError::InvalidOperation(_)
            | ProtocolError::ReqHandlerError(_)
            | ProtocolError::InactiveFeature(_)
            | ProtocolError::InactiveOperation(_)
    )
}
