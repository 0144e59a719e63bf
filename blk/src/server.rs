//! The disks of one process: starting, listing and stopping them.

use crate::image::{Image, OpenError, Spec};
use crate::instance::{Config, Confine, Handle, Socket};
use crate::knobs::{Knobs, Setting};
use crate::pressure::{Registry, Source, source::Watch, watch};
use crate::sandbox;
use crate::time::Clock;
use crate::vhost_user::channel::narrow;
use crate::xen::device::Front;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of disks in the list of one server. Disks that have ended count until they are
/// removed.
pub const MAX_DISKS: usize = 1000;
/// Maximum length of a disk's name in bytes, which is that of a virtio disk's serial number.
pub const MAX_NAME: usize = crate::request::ID_BYTES;
/// Time that a connection to a socket waits for a place in the listener's queue, to find out
/// whether a process listens there.
const PROBE_LIMIT: Duration = Duration::from_millis(100);

/// The name, the image and the own settings of a disk to serve.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The disk's name: 1 to [`MAX_NAME`] letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The disk's image.
    pub spec: Spec,
    /// Settings with which the disk starts in place of the server's. If a setting is given twice,
    /// the last value counts.
    pub settings: Vec<Setting>,
}

/// The reason why a disk is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The name is empty, too long, or has other characters.
    #[error("`{0}` is no name for a disk: 1 to {MAX_NAME} letters, digits, `-`, `_`, `.`")]
    Name(String),
    /// A disk of this name is served already.
    #[error("there are two disks named {0}")]
    Twice(String),
    /// The process serves [`MAX_DISKS`] disks already.
    #[error("more than {MAX_DISKS} disks")]
    TooMany,
    /// The image could not be opened.
    #[error("disk {name}: {source}")]
    Image {
        /// The disk.
        name: String,
        /// The reason.
        source: OpenError,
    },
    /// The socket could not be made.
    #[error("cannot listen at {path}: {source}")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The server is stopping.
    #[error("no disks are started any more")]
    Stopping,
    /// The thread could not be started or set up.
    #[error("cannot start disk {name}: {source}")]
    Start {
        /// The disk.
        name: String,
        /// The reason.
        source: io::Error,
    },
}

/// The options that hold for all disks of a server.
#[derive(Copy, Clone, Debug)]
pub struct Options {
    /// Whether to use io_uring if the process may.
    pub uring: bool,
    /// Whether to restrict each disk's thread to the system calls that it needs.
    pub confine: bool,
    /// Whether disks of Xen's domains are served, too, now or later. Without it, settings for them
    /// alone are refused.
    pub xen: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            uring: true,
            confine: true,
            xen: false,
        }
    }
}

/// The disks of a process, and the registry that notifies them of memory pressure. Dropping it
/// stops all disks: see [`Self::stop`].
#[derive(Debug)]
pub struct Server {
    instances: Mutex<Instances>,
    /// Settings of disks that are started later, except those that a disk has of its own.
    knobs: Knobs,
    registry: Registry,
    clock: Clock,
    options: Options,
    watch: Option<Watch>,
}

/// The disks by name.
#[derive(Debug, Default)]
struct Instances {
    handles: BTreeMap<String, Arc<Handle>>,
    /// Whether the server is stopping, so that no disk may start.
    stopping: bool,
}

impl Server {
    /// Makes a server without disks, which does not watch memory yet.
    pub fn new(options: Options) -> Self {
        Self {
            instances: Mutex::default(),
            knobs: Knobs::default(),
            registry: Registry::default(),
            clock: Clock::start(),
            options,
            watch: None,
        }
    }

    /// Starts a thread that watches for memory pressure and notifies the disks, until the server is
    /// dropped. Returns a description of its sources, for messages.
    ///
    /// # Errors
    /// Fails if the system has no source of pressure events, or refuses a thread or a descriptor.
    pub fn watch_memory(&mut self) -> io::Result<String> {
        let source = Source::find()?;
        let told = source.to_string();
        self.watch = Some(watch(source, self.registry.clone(), self.clock)?);
        Ok(told)
    }

    /// Opens the image of `disk` and serves it at a vhost-user socket that it makes at `path`, in
    /// place of one at which no process listens. Front-ends may connect one after the other.
    /// Returns the instance's handle. If the disk does not start, removes the socket.
    ///
    /// # Errors
    /// Fails if the name is not valid or in use, the server is stopping or full, or the image, the
    /// socket or the thread cannot be made. See [`ServeError`].
    pub fn listen(&self, disk: &Disk, path: &Path) -> Result<Arc<Handle>, ServeError> {
        self.check(disk)?;
        let image = named(disk, Image::open(&disk.spec))?;
        self.listen_with(disk, image, path)
    }

    /// Does the same as [`Self::listen`] for a guest that will migrate to this host. Does not lock
    /// the image, which another back-end may hold until the guest's rings start.
    ///
    /// # Errors
    /// Fails as [`Self::listen`] does, but never because the image is locked.
    pub fn listen_incoming(&self, disk: &Disk, path: &Path) -> Result<Arc<Handle>, ServeError> {
        self.check(disk)?;
        let image = named(disk, Image::open_incoming(&disk.spec))?;
        self.listen_with(disk, image, path)
    }

    /// Makes the socket at `path` and starts the disk. Removes the socket if the disk does not
    /// start.
    fn listen_with(
        &self,
        disk: &Disk,
        image: Image,
        path: &Path,
    ) -> Result<Arc<Handle>, ServeError> {
        let listener = bind(path).map_err(|source| ServeError::Socket {
            path: path.to_owned(),
            source,
        })?;
        let socket = Socket::Listener(listener);
        let started = self.start(disk, image, socket, Some(path.to_owned()));
        if started.is_err() {
            let _ = std::fs::remove_file(path);
        }
        started
    }

    /// Opens the image of `disk` and serves it to one front-end. Returns the front-end's end of the
    /// vhost-user socket. The disk ends when that is closed. Removes ended disks from the list
    /// first, so that their names can be used again.
    ///
    /// # Errors
    /// Fails if the name is not valid or in use, the server is stopping or full, or the image, the
    /// socket or the thread cannot be made. See [`ServeError`].
    pub fn attach(&self, disk: &Disk) -> Result<UnixStream, ServeError> {
        let failed = |source| ServeError::Start {
            name: disk.name.clone(),
            source,
        };
        // A disk whose front-end is gone must not keep its name from a successor.
        self.forget_ended();
        self.check(disk)?;
        let image = named(disk, Image::open(&disk.spec))?;
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        // A front-end that cannot change the socket's buffer can have few descriptors in flight.
        narrow(&theirs).map_err(failed)?;
        self.start(disk, image, Socket::Connected(ours), None)?;
        Ok(theirs)
    }

    /// Opens the image of `disk` and serves it to the Xen front-end `front`. The disk ends with its
    /// device. Returns the instance's handle.
    ///
    /// # Errors
    /// Fails if the name is not valid or in use, the server is stopping or full, the image cannot
    /// be opened, or Xen's devices or the thread fail. See [`ServeError`].
    pub fn serve_xen(&self, disk: &Disk, front: Front) -> Result<Arc<Handle>, ServeError> {
        self.check(disk)?;
        let image = named(disk, Image::open(&disk.spec))?;
        self.start(disk, image, Socket::Xen(front), None)
    }

    /// Removes disks whose thread has ended from the list, and with the last handle their sockets.
    /// Returns how many disks were removed.
    pub fn forget_ended(&self) -> usize {
        let mut instances = self.lock();
        let before = instances.handles.len();
        instances.handles.retain(|_, handle| handle.is_running());
        before - instances.handles.len()
    }

    /// Checks the name of `disk`, and whether it may start. Fails with `Name`, `Stopping`, `Twice`
    /// or `TooMany`.
    fn check(&self, disk: &Disk) -> Result<(), ServeError> {
        let letter = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let name = &disk.name;
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(letter) {
            return Err(ServeError::Name(name.clone()));
        }
        self.lock().check(name)
    }

    /// Starts the thread of a disk and adds it to the list.
    fn start(
        &self,
        disk: &Disk,
        image: Image,
        socket: Socket,
        socket_path: Option<PathBuf>,
    ) -> Result<Arc<Handle>, ServeError> {
        let name = disk.name.clone();
        let confine = Confine {
            worker: sandbox::confine_worker,
            xen_worker: sandbox::confine_xen_worker,
            reader: sandbox::confine_reader,
        };
        let config = Config {
            name: name.clone(),
            image,
            socket,
            socket_path,
            uring: self.options.uring,
            knobs: self.knobs_of(disk),
            confine: self.options.confine.then_some(confine),
        };
        let handle = Handle::start(config, &self.registry, self.clock).map_err(|source| {
            ServeError::Start {
                name: name.clone(),
                source,
            }
        })?;
        let mut instances = self.lock();
        // Another disk of this name may have started since the first check; then this instance ends
        // here.
        instances.check(&name)?;
        // A setting may have been changed for all disks since this one was made. No caller can have
        // changed one of this disk alone yet.
        handle.knobs().copy(&self.knobs_of(disk));
        handle.wake();
        let handle = Arc::new(handle);
        instances.handles.insert(name, handle.clone());
        Ok(handle)
    }

    /// Returns the settings with which `disk` starts: the server's, with the disk's own on top.
    fn knobs_of(&self, disk: &Disk) -> Knobs {
        let knobs = self.knobs.clone();
        for setting in &disk.settings {
            knobs.apply(*setting);
        }
        knobs
    }

    /// Locks the list of disks.
    fn lock(&self) -> MutexGuard<'_, Instances> {
        // No code that holds the lock can panic halfway through a change.
        self.instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all disks to stop and waits until they have ended, at most
    /// [`STOP_LIMIT`](crate::instance::STOP_LIMIT) in all. Each first finishes the requests it has
    /// taken, and its socket is removed. The disks stay in the list. No disk can start afterwards.
    pub fn stop(&self) {
        let handles = {
            let mut instances = self.lock();
            instances.stopping = true;
            instances.handles.clone()
        };
        // All are asked to stop before the first is waited for, so that they stop at the same time.
        for handle in handles.values() {
            handle.request_stop();
        }
        for handle in handles.values() {
            handle.stopped();
        }
    }

    /// Returns the handles of the disks in the list, by name. Disks whose thread has ended are
    /// among them until [`Self::forget_ended`].
    pub fn instances(&self) -> BTreeMap<String, Arc<Handle>> {
        self.lock().handles.clone()
    }

    /// Returns the settings with which disks start from now on, unless they have settings of their
    /// own. Changing one does not change running disks.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Returns whether disks of Xen's domains are served, too, now or later.
    pub(crate) fn serves_xen(&self) -> bool {
        self.options.xen
    }

    /// Returns the registry that notifies disks and other members of memory pressure.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the clock by which pressure events are dated.
    pub fn clock(&self) -> Clock {
        self.clock
    }
}

impl Instances {
    /// Checks whether a disk called `name` may be added.
    fn check(&self, name: &str) -> Result<(), ServeError> {
        if self.stopping {
            return Err(ServeError::Stopping);
        }
        if self.handles.contains_key(name) {
            return Err(ServeError::Twice(name.to_owned()));
        }
        if self.handles.len() >= MAX_DISKS {
            return Err(ServeError::TooMany);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Adds the disk's name to an error of its image.
fn named(disk: &Disk, image: Result<Image, OpenError>) -> Result<Image, ServeError> {
    image.map_err(|source| ServeError::Image {
        name: disk.name.clone(),
        source,
    })
}

/// Makes a Unix socket at `path` that only this user can connect to, and listens at it. Replaces a
/// socket at which no process listens.
///
/// # Errors
/// Fails with `AddrInUse` if a process listens there, or `path` exists and is no socket. Fails if
/// the system refuses the socket.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    let try_bind = || -> io::Result<UnixListener> {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        // The mode of the socket file is that of the socket, less the umask.
        rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, 16)?;
        Ok(socket.into())
    };
    match try_bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
            std::fs::remove_file(path)?;
            try_bind()
        }
        result => result,
    }
}

/// Returns whether `path` is a socket at which no process listens. Other files, which refuse
/// connections too, do not count.
fn is_stale(path: &Path) -> bool {
    let socket = |metadata: std::fs::Metadata| metadata.file_type().is_socket();
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    std::fs::symlink_metadata(path).is_ok_and(socket)
        && connect(path, PROBE_LIMIT).is_err_and(refused)
}

/// Connects to the Unix socket at `path`. Waits at most `limit` if the listener does not accept
/// connections and its queue of them is full. Each write to the returned stream has the same limit.
///
/// # Errors
/// Fails with `WouldBlock` after that time, and as connect(2).
pub(crate) fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let family = AddressFamily::UNIX;
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux applies the limit for sending to connect(2), too.
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::image::Location;
    use std::fs;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ebb-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_socket_takes_the_place_of_a_dead_one_and_of_nothing_else() {
        let folder = Folder::new("places");
        let dead = folder.0.join("dead");
        drop(bind(&dead).unwrap());
        let alive = bind(&dead).unwrap();
        assert!(bind(&dead).is_err(), "a server listens");
        drop(alive);
        let (file, link) = (folder.0.join("file"), folder.0.join("link"));
        fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink(&dead, &link).unwrap();
        for path in [&file, &link] {
            assert_eq!(bind(path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        assert!(link.is_symlink());
    }

    #[test]
    fn a_listener_whose_queue_is_full_is_alive_and_waited_for_in_vain() {
        let folder = Folder::new("queue");
        let path = folder.0.join("full");
        let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // The queue has place for one connection.
        rustix::net::listen(&listener, 0).unwrap();
        let _waiting = connect(&path, PROBE_LIMIT).unwrap();
        let late = connect(&path, Duration::from_millis(10)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists(), "it is not replaced");
    }

    #[test]
    fn a_disk_starts_with_its_own_settings_in_place_of_the_servers() {
        use crate::knobs::Knob;
        let server = Server::new(Options::default());
        server.knobs().set(Knob::MaxBufferPages, 7).unwrap();
        server.knobs().set(Knob::SqueezeHoldMs, 8).unwrap();
        let mut fronts = Vec::new();
        for (name, settings) in [
            ("own", &["max_buffer_pages=1", "max_buffer_pages=9"][..]),
            ("none", &[]),
        ] {
            let settings = settings.iter().map(|text| text.parse().unwrap());
            let disk = Disk {
                name: name.into(),
                spec: Spec {
                    location: Location::Ram { bytes: 512 },
                    read_only: false,
                    cached: false,
                },
                settings: settings.collect(),
            };
            fronts.push(server.attach(&disk).unwrap());
        }
        let value = |disk: &str, knob| server.instances()[disk].knobs().get(knob);
        assert_eq!(value("own", Knob::MaxBufferPages), 9);
        assert_eq!(value("own", Knob::SqueezeHoldMs), 8);
        assert_eq!(value("none", Knob::MaxBufferPages), 7);
        assert_eq!(server.knobs().get(Knob::MaxBufferPages), 7);
    }

    #[test]
    fn a_disk_that_does_not_start_leaves_no_socket() {
        let folder = Folder::new("unstarted");
        let path = folder.0.join("late.sock");
        let disk = Disk {
            name: "late".into(),
            spec: Spec {
                location: Location::Ram { bytes: 512 },
                read_only: false,
                cached: false,
            },
            settings: Vec::new(),
        };
        let server = Server::new(Options::default());
        let image = Image::open(&disk.spec).unwrap();
        server.stop();
        // The server stops while the disk is being started.
        let refused = server.listen_with(&disk, image, &path);
        assert!(matches!(refused, Err(ServeError::Stopping)));
        assert!(!path.exists());
    }
}
