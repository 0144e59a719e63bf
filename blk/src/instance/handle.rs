//! Starting an instance, and what other threads can ask of it.

use super::shared::{Figures, Shared};
use super::vhost_user::Worker;
use super::waiting::Patience;
use super::xen::Worker as XenWorker;
use crate::engine::Engine;
use crate::image::Image;
use crate::io::Queue;
use crate::knobs::Knobs;
use crate::pressure::Registry;
use crate::pressure::registry::Waker;
use crate::time::Clock;
use crate::vhost_user::reader::Reader;
use crate::vhost_user::{counter, truncated};
use crate::words::say;
use crate::xen::device::Front;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The time that a disk has to end once it is asked to: for its image to finish what is under way.
/// A request that is not finished by then is not answered, as if the power had failed.
pub const STOP_LIMIT: Duration = Duration::from_secs(30);

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

/// An instance, as other threads see it. Dropping it stops the instance.
#[derive(Debug)]
pub struct Handle {
    name: String,
    waker: Waker,
    shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
    /// When it was first asked to stop.
    stop_asked: OnceLock<Instant>,
    socket_path: Option<PathBuf>,
    io_kind: &'static str,
}

/// The thread of an instance.
#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    /// The thread has the only sender until it ends.
    ended: mpsc::Receiver<io::Result<&'static str>>,
}

impl Thread {
    /// Waits for the thread's end. Returns `false` if that did not come in time: the thread goes on
    /// by itself.
    fn join_within(self, limit: Duration) -> bool {
        let ended = self.ended.recv_timeout(limit);
        if ended.is_err_and(|why| why == mpsc::RecvTimeoutError::Timeout) {
            return false;
        }
        let _ = self.handle.join();
        true
    }
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
    /// Confines the instance's thread once it is set up.
    pub confine: Option<Confine>,
}

/// What confines the threads that serve disks.
#[derive(Copy, Clone, Debug)]
pub struct Confine {
    /// Confines the thread of a disk for vhost-user, which may lock this descriptor and no other.
    pub worker: fn(BorrowedFd<'_>) -> io::Result<()>,
    /// Confines the thread of a disk for Xen.
    pub xen_worker: fn() -> io::Result<()>,
    /// Confines the thread that reads the sockets of front-ends.
    pub reader: fn() -> io::Result<()>,
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
        counter::install()?;
        let registration = registry.register(&name)?;
        let waker = registration.waker();
        let knobs = Arc::new(knobs);
        let shared = Arc::new(Shared::new(knobs.clone()));
        let patience = Patience::new(thread::available_parallelism().map_or(1, usize::from));
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
                        patience,
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
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its knobs. After setting one, [`Self::wake`].
    pub fn knobs(&self) -> &Knobs {
        self.shared.knobs()
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
        self.shared.read()
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.thread()
            .as_ref()
            .is_some_and(|thread| !thread.handle.is_finished())
    }

    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has stopped, and removes its socket. If it has not stopped [`STOP_LIMIT`]
    /// after it was asked to, its thread is left behind, which is said on stderr.
    pub fn stopped(&self) {
        let Some(thread) = self.thread().take() else {
            return;
        };
        let asked = self.stop_asked.get_or_init(Instant::now);
        if !thread.join_within(STOP_LIMIT.saturating_sub(asked.elapsed())) {
            say(format_args!(
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

    /// Asks it to stop, without waiting.
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

/// What an instance's thread runs, by its door.
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

/// Confines the thread that has set this up.
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

#[cfg(all(test, not(loom)))]
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
        // Only so that a hang ends.
        assert!(begin(None).join_within(Duration::from_secs(120)));
    }
}
