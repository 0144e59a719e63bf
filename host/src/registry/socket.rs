//! The socket of a run in the registry folder. It is ready before other processes can find it, and
//! removed at the end of the run.

use super::folder::Folder;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, SystemTime};

/// The suffix of a socket that answers.
const SUFFIX: &str = ".sock";
/// The suffix of a socket on which no process listens yet.
const UNFINISHED: &str = ".new";
/// The largest number of sockets per process number. Containers that share the folder can have the
/// same process numbers.
const NAMES_MAX: u32 = 16;
/// The time after which an unfinished socket is removed. A run needs microseconds from binding to
/// listening.
const UNFINISHED_MAX: Duration = Duration::from_secs(60);

/// A control socket in the registry folder on which this process listens. Dropping it removes the
/// socket from the folder.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) listener: UnixListener,
    folder: Folder,
    name: String,
}

impl Listening {
    /// Listens on a new non-blocking socket in `folder`, named by this process's number, and
    /// returns it. Replaces a socket of that name on which no process listens. Fails with
    /// `AddrInUse` if 16 names are taken, or if the socket cannot be created.
    pub(super) fn new(folder: Folder) -> io::Result<Self> {
        let pid = std::process::id();
        let unfinished = format!("{pid}{UNFINISHED}");
        // An earlier process with this number has ended, or is in another container and has
        // finished.
        remove(&folder, &unfinished)?;
        let listener = UnixListener::bind(folder.address_of(&unfinished))?;
        listener.set_nonblocking(true)?;
        for number in 1..=NAMES_MAX {
            let name = match number {
                1 => format!("{pid}{SUFFIX}"),
                _ => format!("{pid}-{number}{SUFFIX}"),
            };
            // Under its final name a socket always answers. Another process that finds it without
            // an answer may remove it.
            if rename(&folder, &unfinished, &name)? {
                return Ok(Self {
                    listener,
                    folder,
                    name,
                });
            }
            if is_stale(&folder, &name) {
                remove(&folder, &name)?;
                if rename(&folder, &unfinished, &name)? {
                    return Ok(Self {
                        listener,
                        folder,
                        name,
                    });
                }
            }
        }
        remove(&folder, &unfinished)?;
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Returns the path of the control socket, for messages.
    pub(super) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join(&self.name)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // If the socket cannot be removed, the next process that lists the folder removes it.
        let _ = remove(&self.folder, &self.name);
    }
}

/// Renames `from` to `to`. Returns `false` if `to` already exists. Fails as renameat2(2).
fn rename(folder: &Folder, from: &str, to: &str) -> io::Result<bool> {
    let at = folder.fd();
    match rustix::fs::renameat_with(at, from, at, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn remove(folder: &Folder, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(folder.fd(), name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Connects to the socket `name` in `folder` and returns the non-blocking stream. Does not wait,
/// because a stopped process must not block this one. Fails as socket(2) and connect(2): with
/// `ENOENT` if there is no socket, with `ECONNREFUSED` if no process listens, and with `EAGAIN` if
/// the backlog is full.
pub(super) fn connect(folder: &Folder, name: &str) -> Result<UnixStream, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    let address = SocketAddrUnix::new(folder.address_of(name).as_path())?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

fn is_stale(folder: &Folder, name: &str) -> bool {
    connect(folder, name).err() == Some(Errno::CONNREFUSED)
}

/// Returns the names of the control sockets of runs in `folder`, by their form alone; a run may
/// have been killed. Removes unfinished sockets that are older than a minute.
pub(super) fn live(folder: &Folder) -> Vec<String> {
    let mut names = folder.sockets();
    names.retain(|name| {
        if let Some(stem) = name.strip_suffix(UNFINISHED) {
            if is_number(stem) && age(folder, name).is_some_and(|age| age > UNFINISHED_MAX) {
                let _ = remove(folder, name);
            }
            return false;
        }
        name.strip_suffix(SUFFIX).is_some_and(is_number)
    });
    names
}

/// Connects to the run with the control socket `name`, without waiting, and returns the
/// non-blocking stream. Returns `None` if that fails. Removes the socket if no process listens on
/// it.
pub(super) fn reach(folder: &Folder, name: &str) -> Option<UnixStream> {
    match connect(folder, name) {
        Ok(stream) => Some(stream),
        Err(Errno::CONNREFUSED) => {
            let _ = remove(folder, name);
            None
        }
        // The run has ended, or its backlog is full.
        Err(_) => None,
    }
}

/// Returns whether `stem` has the form `PID` or `PID-N`. Only sockets with such names are removed.
fn is_number(stem: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (pid, number) = stem.split_once('-').unwrap_or((stem, "1"));
    digits(pid) && digits(number)
}

fn age(folder: &Folder, name: &str) -> Option<Duration> {
    let stat = rustix::fs::statat(folder.fd(), name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let changed = Duration::from_secs(u64::try_from(stat.st_ctime).ok()?);
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?
        .checked_sub(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::scratch::Scratch;

    fn names(folder: &Folder) -> Vec<String> {
        live(folder)
    }

    #[test]
    fn a_socket_is_there_while_it_is_listened_on() {
        let scratch = Scratch::new("socket-life");
        // The folder's path is much longer than a socket address.
        let deep = scratch.path().join("x".repeat(150));
        std::fs::create_dir(&deep).unwrap();
        let folder = || Folder::make(&deep.join("ebb")).unwrap();
        let listening = Listening::new(folder()).unwrap();
        let name = format!("{}.sock", std::process::id());
        assert_eq!(names(&folder()), [name.as_str()]);
        assert!(reach(&folder(), &name).is_some());
        // Another run with the same process number, as in another container.
        let other = Listening::new(folder()).unwrap();
        assert_eq!(names(&folder()).len(), 2);
        drop(other);
        drop(listening);
        assert!(folder().sockets().is_empty());
    }

    #[test]
    fn stale_sockets_are_replaced_and_removed() {
        let scratch = Scratch::new("socket-stale");
        let folder = || Folder::make(&scratch.path().join("ebb")).unwrap();
        let name = format!("{}.sock", std::process::id());
        drop(UnixListener::bind(folder().address_of(&name)).unwrap());
        drop(UnixListener::bind(folder().address_of("4000000000.sock")).unwrap());
        drop(UnixListener::bind(folder().address_of("other.sock")).unwrap());
        let listening = Listening::new(folder()).unwrap();
        assert_eq!(listening.name, name);
        assert!(reach(&folder(), "4000000000.sock").is_none());
        assert_eq!(names(&folder()), [name]);
        assert_eq!(folder().sockets().len(), 2, "what is not ours stays");
    }
}
