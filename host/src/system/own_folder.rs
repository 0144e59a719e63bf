//! A private folder of this user, in which ebb keeps files from one run to the next.

use super::cache::cache_folder;
use super::new_file::{first_free, name};
use crate::text::one_line;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The largest file in bytes that ebb reads from the folder.
const FILE_MAX: u64 = 1 << 20;

/// An open folder that belongs to this user and that no other user may write to.
#[derive(Debug)]
pub(crate) struct OwnFolder {
    fd: OwnedFd,
    path: PathBuf,
}

/// The reason why [`OwnFolder`] cannot use a folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnFolderError {
    #[error("cannot make or open {}", one_line(path))]
    Open { path: PathBuf, source: io::Error },
    #[error("{} belongs to user {owner}, not to user {user}", one_line(path))]
    Owner {
        path: PathBuf,
        owner: u32,
        user: u32,
    },
    #[error("{} can be written by others (mode {mode:o})", one_line(path))]
    Mode { path: PathBuf, mode: u32 },
}

impl OwnFolder {
    /// Opens the user's cache folder of ebb. Creates it if it is missing. Returns `None` if neither
    /// `XDG_CACHE_HOME` nor `HOME` is an absolute path.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub(crate) fn cache() -> Result<Option<Self>, OwnFolderError> {
        cache_folder().map(|path| Self::make(&path)).transpose()
    }

    /// Opens and returns the folder at `path`. Creates it and missing parents with mode 700.
    ///
    /// # Errors
    /// `Open` if it cannot be created or opened; `Owner` if it, or the link at `path` that leads to
    /// it, belongs to another user, even if root runs ebb; `Mode` if its group or others may write
    /// to it.
    pub(crate) fn make(path: &Path) -> Result<Self, OwnFolderError> {
        let failed = |source| OwnFolderError::Open {
            path: path.to_owned(),
            source,
        };
        let user = rustix::process::geteuid().as_raw();
        let owned = |owner: u32| {
            if owner == user {
                return Ok(());
            }
            Err(OwnFolderError::Owner {
                path: path.to_owned(),
                owner,
                user,
            })
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed)?;
        owned(path.symlink_metadata().map_err(failed)?.uid())?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty());
        let fd = fd.map_err(|errno| failed(errno.into()))?;
        // The open folder is checked, so it cannot be exchanged after the check.
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed(errno.into()))?;
        owned(stat.st_uid)?;
        let mode = stat.st_mode & 0o7777;
        if mode & 0o022 != 0 {
            return Err(OwnFolderError::Mode {
                path: path.to_owned(),
                mode,
            });
        }
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file `name` in the folder for writing, to be used as a lock. Creates it with mode
    /// 600 if it is missing. Takes no lock yet.
    ///
    /// # Errors
    /// If the file cannot be opened; `ELOOP` for a link.
    pub(crate) fn open_lock(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(file.into())
    }

    /// Reads all bytes of the file `name` in the folder.
    ///
    /// # Errors
    /// If it is missing or cannot be read; `ELOOP` for a link; `FileTooLarge` for more than 1 MiB.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        // With `O_NONBLOCK`, opening a pipe does not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?);
        let mut bytes = Vec::new();
        file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes)
    }

    /// Replaces the file `target` in the folder by a new one with the content `bytes`, or creates
    /// it. Another process sees the whole old file or the whole new file. Only this user can read
    /// the new file.
    ///
    /// # Errors
    /// If the file cannot be written or renamed. The old file is then unchanged.
    pub(crate) fn replace(&self, target: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY;
        let mode = Mode::RUSR | Mode::WUSR;
        let (mut file, new) = first_free(
            || name(&format!(".{target}")),
            |new| {
                let file = rustix::fs::openat(&self.fd, new, flags | OFlags::CLOEXEC, mode)?;
                Ok((File::from(file), new.to_owned()))
            },
        )?;
        let written = file
            .write_all(bytes)
            .and_then(|()| Ok(rustix::fs::renameat(&self.fd, &new, &self.fd, target)?));
        if written.is_err() {
            let _: Result<(), Errno> = rustix::fs::unlinkat(&self.fd, &new, AtFlags::empty());
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::super::new_file::new_folder;
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch() -> PathBuf {
        new_folder(&std::env::temp_dir(), "ebb-own-folder").unwrap()
    }

    #[test]
    fn folders_are_private_and_those_of_others_refused_by_name() {
        let scratch = scratch();
        let path = scratch.join("above/ebb");
        let made = OwnFolder::make(&path).unwrap();
        assert_eq!(made.path(), path);
        for path in [&path, &scratch.join("above")] {
            assert_eq!(
                fs::metadata(path).unwrap().permissions().mode() & 0o777,
                0o700
            );
        }
        for mode in [0o720, 0o702, 0o1777] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = OwnFolder::make(&path).unwrap_err().to_string();
            assert!(
                error.contains("above/ebb can be written by others"),
                "{error}"
            );
        }
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert!(
            OwnFolder::make(&path).is_ok(),
            "others may read what is no secret"
        );
        symlink(&path, scratch.join("link")).unwrap();
        assert!(
            OwnFolder::make(&scratch.join("link")).is_ok(),
            "the link is this user's"
        );
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
            let error = OwnFolder::make(&path).unwrap_err().to_string();
            assert!(
                error.contains("belongs to user 1, not to user 0"),
                "{error}"
            );
        } else {
            let error = OwnFolder::make(Path::new("/etc")).unwrap_err().to_string();
            assert!(error.contains("/etc belongs to user 0"), "{error}");
        }
        fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn files_are_replaced_whole_and_no_link_is_followed() {
        let scratch = scratch();
        let folder = OwnFolder::make(&scratch).unwrap();
        folder.replace("a.json", b"first").unwrap();
        folder.replace("a.json", b"second").unwrap();
        assert_eq!(folder.read("a.json").unwrap(), b"second");
        let path = scratch.join("a.json");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            fs::read_dir(&scratch).unwrap().count(),
            1,
            "nothing else stays"
        );

        let victim = scratch.join("victim");
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, scratch.join("link")).unwrap();
        assert!(folder.read("link").is_err() && folder.open_lock("link").is_err());
        folder.replace("link", b"a file now").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(folder.read("link").unwrap(), b"a file now");
        fs::create_dir(scratch.join("folder")).unwrap();
        assert!(folder.replace("folder", b"x").is_err());
        assert_eq!(
            fs::read_dir(&scratch).unwrap().count(),
            4,
            "no unfinished file stays"
        );
        fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn names_cannot_be_foreseen() {
        assert_ne!(name("a"), name("a"));
    }
}
