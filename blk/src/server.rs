//! Many disks in one process.

use crate::image::{Image, OpenError, Spec};
use crate::instance::{Config, Confine, Handle, Socket};
use crate::knobs::Knobs;
use crate::pressure::{Registry, Source, source::Watch, watch};
use crate::sandbox;
use crate::time::Clock;
use crate::vhost_user::channel::narrow;
use crate::xen::device::Front;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Disks of one process at most.
pub const MAX_DISKS: usize = 1000;
/// Characters of a disk's name: what its serial number can hold.
pub const MAX_NAME: usize = crate::request::ID_BYTES;

/// A disk to serve.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its name: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its image.
    pub spec: Spec,
}

/// Why a disk is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Not a name.
    #[error("`{0}` is no name for a disk: 1 to {MAX_NAME} letters, digits, `-`, `_`, `.`")]
    Name(String),
    /// Twice the same.
    #[error("there are two disks named {0}")]
    Twice(String),
    /// Too many.
    #[error("more than {MAX_DISKS} disks")]
    TooMany,
    /// Its image.
    #[error("disk {name}: {source}")]
    Image {
        /// Which.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// Its socket.
    #[error("cannot listen at {path}: {source}")]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The server was told to stop.
    #[error("no disks are started any more")]
    Stopping,
    /// Its thread.
    #[error("cannot start disk {name}: {source}")]
    Start {
        /// Which.
        name: String,
        /// Why.
        source: io::Error,
    },
}

/// How disks are served.
#[derive(Copy, Clone, Debug)]
pub struct Options {
    /// Try io_uring.
    pub uring: bool,
    /// Confine each disk's thread to the system calls that it needs.
    pub confine: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            uring: true,
            confine: true,
        }
    }
}

/// The disks of a process, and what asks them for memory.
#[derive(Debug)]
pub struct Server {
    instances: Mutex<Instances>,
    /// Knobs of disks that are still to come.
    knobs: Knobs,
    registry: Registry,
    clock: Clock,
    options: Options,
    watch: Option<Watch>,
}

/// Disks by name.
#[derive(Debug, Default)]
struct Instances {
    handles: BTreeMap<String, Arc<Handle>>,
    stopping: bool,
}

impl Server {
    /// A server without disks.
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

    /// Starts to watch the host's memory. Returns what is watched, for people.
    ///
    /// # Errors
    /// If there is nothing to watch.
    pub fn watch_memory(&mut self) -> io::Result<String> {
        let source = Source::find()?;
        let told = source.to_string();
        self.watch = Some(watch(source, self.registry.clone(), self.clock)?);
        Ok(told)
    }

    /// Serves a disk at a socket that appears at `path`.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn listen(&self, disk: &Disk, path: &Path) -> Result<Arc<Handle>, ServeError> {
        self.check(disk)?;
        let image = named(disk, Image::open(&disk.spec))?;
        self.listen_with(disk, image, path)
    }

    /// As [`Self::listen`], for a guest that will migrate here: another back-end may have the
    /// image until the guest's rings start.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn listen_incoming(&self, disk: &Disk, path: &Path) -> Result<Arc<Handle>, ServeError> {
        self.check(disk)?;
        let image = named(disk, Image::open_incoming(&disk.spec))?;
        self.listen_with(disk, image, path)
    }

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

    /// Serves a disk to the front-end at the other end of the socket that is returned. The disk
    /// ends with that.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn attach(&self, disk: &Disk) -> Result<UnixStream, ServeError> {
        let failed = |source| ServeError::Start {
            name: disk.name.clone(),
            source,
        };
        // One whose front-end is gone makes room for its successor.
        self.forget_ended();
        self.check(disk)?;
        let image = named(disk, Image::open(&disk.spec))?;
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        // A front-end that may not change that cannot have many descriptors under way.
        narrow(&theirs).map_err(failed)?;
        self.start(disk, image, Socket::Connected(ours), None)?;
        Ok(theirs)
    }

    /// Serves a disk to a front-end in another Xen domain. The disk ends with the device.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn serve_xen(&self, disk: &Disk, front: Front) -> Result<Arc<Handle>, ServeError> {
        self.check(disk)?;
        let image = named(disk, Image::open(&disk.spec))?;
        self.start(disk, image, Socket::Xen(front), None)
    }

    /// Forgets disks whose front-end is gone for good. Returns how many.
    pub fn forget_ended(&self) -> usize {
        let mut instances = self.lock();
        let before = instances.handles.len();
        instances.handles.retain(|_, handle| handle.is_running());
        before - instances.handles.len()
    }

    fn check(&self, disk: &Disk) -> Result<(), ServeError> {
        let letter = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let name = &disk.name;
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(letter) {
            return Err(ServeError::Name(name.clone()));
        }
        self.lock().check(name)
    }

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
            knobs: self.knobs.clone(),
            confine: self.options.confine.then_some(confine),
        };
        let handle = Handle::start(config, &self.registry, self.clock).map_err(|source| {
            ServeError::Start {
                name: name.clone(),
                source,
            }
        })?;
        let mut instances = self.lock();
        // Two may have come this far under one name; the second one's instance ends here.
        instances.check(&name)?;
        // One may have been set for all disks since this one began. Nobody could set its own yet.
        handle.knobs().copy(&self.knobs);
        handle.wake();
        let handle = Arc::new(handle);
        instances.handles.insert(name, handle.clone());
        Ok(handle)
    }

    fn lock(&self) -> MutexGuard<'_, Instances> {
        // Nothing that holds the lock can panic halfway through a change.
        self.instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all disks and waits for them: what was promised to guests is finished first.
    pub fn stop(&self) {
        let handles = {
            let mut instances = self.lock();
            instances.stopping = true;
            instances.handles.clone()
        };
        // All are asked before the first is waited for.
        for handle in handles.values() {
            handle.request_stop();
        }
        for handle in handles.values() {
            handle.stopped();
        }
    }

    /// The disks by name, as they are now.
    pub fn instances(&self) -> BTreeMap<String, Arc<Handle>> {
        self.lock().handles.clone()
    }

    /// The knobs that a disk begins with.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Who is asked under pressure.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The time by which events are told.
    pub fn clock(&self) -> Clock {
        self.clock
    }
}

impl Instances {
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

fn named(disk: &Disk, image: Result<Image, OpenError>) -> Result<Image, ServeError> {
    image.map_err(|source| ServeError::Image {
        name: disk.name.clone(),
        source,
    })
}

/// A listener at `path` for this user only. A socket that nobody listens at any more is replaced.
///
/// # Errors
/// If somebody listens there, or something else is there.
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

/// Whether `path` is a socket that nobody listens at. Whatever else is there belongs to somebody, and
/// says no to who connects, too.
fn is_stale(path: &Path) -> bool {
    let socket = |metadata: std::fs::Metadata| metadata.file_type().is_socket();
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    std::fs::symlink_metadata(path).is_ok_and(socket)
        && UnixStream::connect(path).is_err_and(refused)
}

#[cfg(all(test, not(loom)))]
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
        assert!(bind(&dead).is_err(), "somebody listens");
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
        };
        let server = Server::new(Options::default());
        let image = Image::open(&disk.spec).unwrap();
        server.stop();
        // As if it was stopped while the disk was being started.
        let refused = server.listen_with(&disk, image, &path);
        assert!(matches!(refused, Err(ServeError::Stopping)));
        assert!(!path.exists());
    }
}
