//! Starts instances, and gives other threads a handle to each.

use super::shared::{Figures, Shared};
use super::vhost_user::Worker;
use super::waiting::PollTime;
use super::xen::Worker as XenWorker;
use crate::engine::Engine;
use crate::image::Image;
use crate::io::Queue;
use crate::knobs::Knobs;
use crate::messages::print;
use crate::pressure::Registry;
use crate::pressure::registry::Waker;
use crate::time::Clock;
use crate::vhost_user::reader::Reader;
use crate::vhost_user::{counter, truncated};
use crate::xen::device::Front;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum time to wait for an instance that was asked to stop, in which its image finishes the
/// operations under way. A request that is not finished by then is not answered, as after a power
/// failure.
pub const STOP_LIMIT: Duration = Duration::from_secs(30);

/// The connection between an instance and its front-end.
#[derive(Debug)]
pub enum Socket {
    /// Front-ends connect to this socket, one after the other.
    Listener(UnixListener),
    /// The front-end is connected. The instance ends when it disconnects.
    Connected(UnixStream),
    /// The front-end is in another Xen domain. The instance ends with its device.
    Xen(Front),
}

/// A handle to an instance. Dropping it asks the instance to stop, waits for its end and removes
/// its socket. The wait ends [`STOP_LIMIT`] after the first request to stop. A thread that has not
/// ended by then is left running.
#[derive(Debug)]
pub struct Handle {
    name: String,
    waker: Waker,
    shared: Arc<Shared>,
    /// `None` once [`Self::stopped`] was called.
    thread: Mutex<Option<Thread>>,
    /// Time of the first request to stop.
    stop_asked: OnceLock<Instant>,
    /// The socket to remove at the end.
    socket_path: Option<PathBuf>,
    io_kind: &'static str,
    /// Whether the front-end is in another Xen domain.
    is_of_xen: bool,
}

/// The thread of an instance.
#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    /// Disconnected when the thread ends, because the thread has the only sender.
    ended: mpsc::Receiver<io::Result<&'static str>>,
}

impl Thread {
    /// Waits until the thread has ended, at most for `limit`. Returns `false` if it has not; the
    /// thread then goes on.
    fn join_within(self, limit: Duration) -> bool {
        let ended = self.ended.recv_timeout(limit);
        if ended.is_err_and(|why| why == mpsc::RecvTimeoutError::Timeout) {
            return false;
        }
        let _ = self.handle.join();
        true
    }
}

/// The parts and settings from which [`Handle::start`] makes an instance.
#[derive(Debug)]
pub struct Config {
    /// The disk's name, which is also its serial number.
    pub name: String,
    /// The disk's image.
    pub image: Image,
    /// The connection to the front-end.
    pub socket: Socket,
    /// The path of a socket to remove at the end.
    pub socket_path: Option<PathBuf>,
    /// Whether to use io_uring if the process may.
    pub uring: bool,
    /// The initial settings.
    pub knobs: Knobs,
    /// The functions that restrict threads once they are set up. `None` means no restriction.
    pub confine: Option<Confine>,
}

/// Functions that restrict the calling thread to the system calls it needs, one for each kind of
/// thread. Each fails if the kernel refuses.
#[derive(Copy, Clone, Debug)]
pub struct Confine {
    /// For the thread of a disk with a vhost-user socket. The thread may lock only this descriptor.
    pub worker: fn(BorrowedFd<'_>) -> io::Result<()>,
    /// For the thread of a disk with a Xen front-end.
    pub xen_worker: fn() -> io::Result<()>,
    /// For the thread that reads the sockets of front-ends.
    pub reader: fn() -> io::Result<()>,
}

impl Handle {
    /// Starts the thread of an instance, registers it at `registry` for pressure events, and waits
    /// until its thread is set up. Also starts the threads and signal handlers that all instances
    /// of the process share. `clock` is the clock of the pressure events.
    ///
    /// # Errors
    /// Fails if the system refuses a thread, a signal handler, a descriptor or address space, if
    /// the Xen devices cannot be opened, or if the thread cannot be restricted. The socket's path
    /// is then not removed.
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
        counter::install()?;
        let registration = registry.register(&name)?;
        let waker = registration.waker();
        let knobs = Arc::new(knobs);
        let shared = Arc::new(Shared::new(knobs.clone()));
        let is_of_xen = matches!(socket, Socket::Xen(_));
        let poll_time = PollTime::new(thread::available_parallelism().map_or(1, usize::from));
        let (ready, started) = mpsc::channel();
        let (inside, disk) = (shared.clone(), name.clone());
        let handle = thread::Builder::new()
            .name(format!("blk {name}"))
            .spawn(move || {
                let set_up = || -> io::Result<Served> {
                    let queue = if uring {
                        Queue::new(&image)
                    } else {
                        Queue::calls()
                    };
                    let (connection, listener) = match socket {
                        Socket::Xen(front) => {
                            let engine = Engine::new(image, &disk, knobs, queue)?;
                            let worker = XenWorker::new(&disk, front, engine, inside, clock)?;
                            return confined(Served::Xen(Box::new(worker)), confine);
                        }
                        Socket::Listener(listener) => {
                            listener.set_nonblocking(true)?;
                            (None, Some(listener))
                        }
                        Socket::Connected(stream) => (Some(stream), None),
                    };
                    let worker = Worker {
                        engine: Engine::new(image, &disk, knobs, queue)?,
                        name: disk,
                        connection,
                        reader: Reader::of_process(confine.map(|confine| confine.reader))?,
                        listener,
                        shared: inside,
                        clock,
                        poll_time,
                    };
                    confined(Served::VhostUser(Box::new(worker)), confine)
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
            thread: Mutex::new(Some(Thread {
                handle,
                ended: started,
            })),
            stop_asked: OnceLock::new(),
            socket_path,
            io_kind,
            is_of_xen,
        })
    }

    /// Returns the name of the instance's disk.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the instance's settings. Call [`Self::wake`] after changing one.
    pub fn knobs(&self) -> &Knobs {
        self.shared.knobs()
    }

    /// Returns the name of the mechanism that carries out I/O on the image: `io_uring` or
    /// `preadv/pwritev`.
    pub fn io_kind(&self) -> &'static str {
        self.io_kind
    }

    /// Returns whether the front-end is in another Xen domain.
    pub fn is_of_xen(&self) -> bool {
        self.is_of_xen
    }

    /// Wakes the instance's thread, so that changed settings take effect now rather than with the
    /// next request.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Returns the figures that the instance last published, which it does after each batch of
    /// requests.
    pub fn figures(&self) -> Figures {
        self.shared.read()
    }

    /// Returns whether the instance's thread is running. Returns `false` once [`Self::stopped`] was
    /// called, even if the thread was left behind.
    pub fn is_running(&self) -> bool {
        self.thread()
            .as_ref()
            .is_some_and(|thread| !thread.handle.is_finished())
    }

    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the instance's thread has ended, and removes the instance's socket. Does not ask
    /// it to stop: see [`Self::request_stop`]. If the thread has not ended [`STOP_LIMIT`] after the
    /// first request to stop, or after this call without one, writes a message to stderr and leaves
    /// it running. A second call does nothing.
    pub fn stopped(&self) {
        let Some(thread) = self.thread().take() else {
            return;
        };
        let asked = self.stop_asked.get_or_init(Instant::now);
        if !thread.join_within(STOP_LIMIT.saturating_sub(asked.elapsed())) {
            print(format_args!(
                "disk {} did not stop within {} seconds; its thread is left behind and keeps its \
                 image until this process ends",
                self.name,
                STOP_LIMIT.as_secs()
            ));
        }
        if let Some(path) = &self.socket_path {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Asks the instance to stop and wakes its thread. Does not wait for it. The time of the first
    /// call starts [`STOP_LIMIT`].
    pub fn request_stop(&self) {
        self.stop_asked.get_or_init(Instant::now);
        self.shared.stop();
        self.wake();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.request_stop();
        self.stopped();
    }
}

/// The code that an instance's thread runs, for each transport.
enum Served {
    VhostUser(Box<Worker>),
    Xen(Box<XenWorker>),
}

impl Served {
    fn io_kind(&self) -> &'static str {
        match self {
            Self::VhostUser(worker) => worker.io_kind(),
            Self::Xen(worker) => worker.io_kind(),
        }
    }
}

/// Restricts the calling thread by `confine` and returns `served`. Fails if the kernel refuses.
fn confined(served: Served, confine: Option<Confine>) -> io::Result<Served> {
    match (&served, confine) {
        (Served::VhostUser(worker), Some(confine)) => {
            (confine.worker)(worker.engine.image().cached().as_fd())?;
        }
        (Served::Xen(_), Some(confine)) => (confine.xen_worker)()?,
        (_, None) => {}
    }
    Ok(served)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_end_is_left_behind() {
        let (hold, held) = mpsc::channel::<()>();
        let begin = |wait: Option<mpsc::Receiver<()>>| {
            let (sender, ended) = mpsc::channel();
            let handle = thread::spawn(move || {
                let _until_the_end = sender;
                let _ = wait.map(|wait| wait.recv());
            });
            Thread { handle, ended }
        };
        assert!(!begin(Some(held)).join_within(Duration::from_millis(10)));
        drop(hold);
        // The limit only ends the test if it hangs.
        assert!(begin(None).join_within(Duration::from_secs(120)));
    }
}
