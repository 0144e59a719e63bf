//! A run's socket in the folder: made whole before it can be seen, removed at its end.

use super::folder::Folder;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, SystemTime};

/// How the name of a socket that answers ends.
const SUFFIX: &str = ".sock";
/// How it ends while nobody listens on it yet.
const UNFINISHED: &str = ".new";
/// Process numbers are unique but for containers that share the folder.
const NAMES_MAX: u32 = 16;
/// A run gets from binding to listening in microseconds; one that did not in this time is gone.
const UNFINISHED_MAX: Duration = Duration::from_secs(60);

/// A socket that this process listens on; dropping it removes it from the folder.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) listener: UnixListener,
    folder: Folder,
    name: String,
}

impl Listening {
    /// Listens on a socket that is named by this process.
    pub(super) fn new(folder: Folder) -> io::Result<Self> {
        let pid = std::process::id();
        let unfinished = format!("{pid}{UNFINISHED}");
        // Whoever had our number before us is dead, or in another container and done by now.
        remove(&folder, &unfinished)?;
        let listener = UnixListener::bind(folder.address_of(&unfinished))?;
        listener.set_nonblocking(true)?;
        for number in 1..=NAMES_MAX {
            let name = match number {
                1 => format!("{pid}{SUFFIX}"),
                _ => format!("{pid}-{number}{SUFFIX}"),
            };
            // Under its final name a socket always answers: whoever finds one that does not may
            // remove it.
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

    /// Where it is, for messages.
    pub(super) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join(&self.name)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // What cannot be removed is found to be stale by whoever lists the folder.
        let _ = remove(&self.folder, &self.name);
    }
}

/// Renames, unless the new name is taken.
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

/// Connects without waiting: a process that is stopped must not stop us.
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

/// Names of the sockets of runs; those of runs that ended without removing theirs are removed.
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

/// Connects to a run; a socket that nobody listens on is removed.
pub(super) fn reach(folder: &Folder, name: &str) -> Option<UnixStream> {
    match connect(folder, name) {
        Ok(stream) => Some(stream),
        Err(Errno::CONNREFUSED) => {
            let _ = remove(folder, name);
            None
        }
        // Gone by now, or too busy to take another connection.
        Err(_) => None,
    }
}

/// Only what looks like a name of ours is ever removed: `PID` or `PID-N`.
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
        // A folder far deeper than a socket address is long.
        let deep = scratch.path().join("x".repeat(150));
        std::fs::create_dir(&deep).unwrap();
        let folder = || Folder::make(&deep.join("ebb")).unwrap();
        let listening = Listening::new(folder()).unwrap();
        let name = format!("{}.sock", std::process::id());
        assert_eq!(names(&folder()), [name.as_str()]);
        assert!(reach(&folder(), &name).is_some());
        // Another run with our number, as in another container.
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
