//! The folder with the sockets of a user's guests.

use crate::text::one_line;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::env;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The largest number of entries that are read from the folder. Only the user can add more, and
/// they are ignored.
const ENTRIES_MAX: usize = 4096;
const FOLDER: &str = "ebb";

/// An open folder with control sockets of guests, which only this user can enter.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// The reason why [`Folder`] cannot use a folder for sockets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error("cannot open {}", one_line(path))]
    Open { path: PathBuf, source: Errno },
    #[error("{} belongs to user {owner}, not to user {user}", one_line(path))]
    Owner {
        path: PathBuf,
        owner: u32,
        user: u32,
    },
    #[error(
        "{} is open to others (mode {mode:o}); it must have mode 700",
        one_line(path)
    )]
    Mode { path: PathBuf, mode: u32 },
}

/// Returns the possible paths of the folder, best first.
fn candidates() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let mut all = Vec::with_capacity(3);
    if let Some(runtime) = env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        let runtime = PathBuf::from(runtime);
        // The XDG specification says that relative paths are ignored.
        if runtime.is_absolute() && runtime.is_dir() {
            all.push(runtime.join(FOLDER));
        }
    }
    let runtime = PathBuf::from(format!("/run/user/{user}"));
    if runtime.is_dir() {
        all.push(runtime.join(FOLDER));
    }
    all.push(PathBuf::from(format!("/tmp/{FOLDER}-{user}")));
    all
}

impl Folder {
    /// Opens the registry folder for the socket of a new run: in `XDG_RUNTIME_DIR`, `/run/user/UID`
    /// or `/tmp`, the first that can be used. Creates it if it is missing. Fails with the error of
    /// the first path if none can be used.
    pub(crate) fn for_runs() -> Result<Self, FolderError> {
        let mut first = None;
        for path in candidates() {
            match Self::make(&path) {
                Ok(folder) => return Ok(folder),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(FolderError::Open {
            path: PathBuf::from("/tmp"),
            source: Errno::NOENT,
        }))
    }

    /// Opens and returns all existing registry folders in which runs may have registered, which may
    /// have had another environment than this process. Leaves out folders that are missing or
    /// cannot be used.
    pub(crate) fn all() -> Vec<Self> {
        let mut paths = candidates();
        paths.dedup();
        paths
            .iter()
            .filter_map(|path| Self::open(path).ok())
            .collect()
    }

    /// Opens the folder at `path`. Creates it with mode 700 if it is missing, but no parents. Fails
    /// as [`Self::open`], or if the folder cannot be created.
    pub(crate) fn make(path: &Path) -> Result<Self, FolderError> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Self::open(path),
            Err(source) => Err(FolderError::Open {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Opens the existing folder at `path`. The open folder is checked, so it cannot be exchanged
    /// after the check.
    ///
    /// # Errors
    /// `Open` if it is missing, a link or no folder, or cannot be opened; `Owner` if it belongs to
    /// another user; `Mode` if its group or others have any access.
    pub(crate) fn open(path: &Path) -> Result<Self, FolderError> {
        let fail = |source| FolderError::Open {
            path: path.to_owned(),
            source,
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
        let stat = rustix::fs::fstat(&fd).map_err(fail)?;
        let user = rustix::process::geteuid().as_raw();
        if stat.st_uid != user {
            return Err(FolderError::Owner {
                path: path.to_owned(),
                owner: stat.st_uid,
                user,
            });
        }
        if stat.st_mode & 0o077 != 0 {
            return Err(FolderError::Mode {
                path: path.to_owned(),
                mode: stat.st_mode & 0o7777,
            });
        }
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Returns the path by which the folder was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the descriptor of the folder, for system calls that take a name relative to it.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns a path of the entry `name` that is short enough for a socket address, however long
    /// the folder's own path is. It leads through the checked descriptor, so it is valid only in
    /// this process and while the folder is open. The entry need not exist.
    pub(crate) fn address_of(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()))
    }

    /// Returns the names of the sockets in the folder, sorted, also of those on which no process
    /// listens. Looks at 4096 entries at most. Returns an empty list if the folder cannot be read.
    pub(crate) fn sockets(&self) -> Vec<String> {
        let mut names: Vec<String> = match Dir::read_from(&self.fd) {
            Ok(entries) => entries
                .take(ENTRIES_MAX)
                .filter_map(Result::ok)
                .filter(|entry| matches!(entry.file_type(), FileType::Socket | FileType::Unknown))
                .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
                .collect(),
            Err(_) => Vec::new(),
        };
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::scratch::Scratch;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_new_folder_is_ours_alone() {
        let scratch = Scratch::new("folder-new");
        let folder = Folder::make(&scratch.path().join("ebb")).unwrap();
        let mode = std::fs::metadata(folder.path()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o700);
        assert!(folder.sockets().is_empty());
        assert!(Folder::make(folder.path()).is_ok(), "it may be there");
    }

    #[test]
    fn folders_that_others_can_enter_are_refused() {
        let scratch = Scratch::new("folder-open");
        let path = scratch.path().join("ebb");
        std::fs::create_dir(&path).unwrap();
        for mode in [0o755, 0o710, 0o701, 0o777] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let error = Folder::make(&path).unwrap_err();
            assert!(matches!(error, FolderError::Mode { .. }), "{error}");
            assert!(error.to_string().contains(&format!("{mode:o}")), "{error}");
        }
        let link = scratch.path().join("link");
        symlink(scratch.path(), &link).unwrap();
        let error = Folder::make(&link).unwrap_err();
        assert!(matches!(error, FolderError::Open { .. }), "{error}");
    }

    #[test]
    fn only_sockets_are_listed() {
        let scratch = Scratch::new("folder-list");
        let folder = Folder::make(&scratch.path().join("ebb")).unwrap();
        std::fs::write(folder.path().join("1.sock"), "no socket").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.address_of("2.sock")).unwrap();
        assert_eq!(folder.sockets(), ["2.sock"]);
    }
}
