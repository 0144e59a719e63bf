//! Opens regular files only, without waiting for another process.

use super::opened::{facts, kind_of, own_path};
use super::resolved_name::open_named;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opens the regular file at `path` for reading. Follows links as [`open_named`] does. Never waits
/// for the writer of a pipe and never opens a device.
///
/// # Errors
/// If the file cannot be opened; `PermissionDenied` for a link of another user in a folder that
/// others may write to; `InvalidInput` for a folder, a pipe, a socket or a device.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    regular_of(&open_named(path, OFlags::PATH)?)
}

/// Opens for reading the regular file that the descriptor `named` refers to. `named` was opened
/// with `O_PATH`.
///
/// # Errors
/// If the file cannot be opened; `InvalidInput` for a folder, a pipe, a socket or a device; `ELOOP`
/// for a link.
pub(crate) fn regular_of(named: &OwnedFd) -> io::Result<File> {
    reopen_regular(named).map_err(|errno| match errno {
        Errno::ISDIR | Errno::NXIO => {
            io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")
        }
        errno => errno.into(),
    })
}

/// Opens the regular file at `path` as [`open_regular`] does, and returns all its bytes, without a
/// limit.
///
/// # Errors
/// As [`open_regular`], or if a read fails.
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens for reading the regular file that the descriptor `named` refers to. `named` was opened
/// with `O_PATH`.
///
/// # Errors
/// `EISDIR` for a folder, `ELOOP` for a link, `ENXIO` for a pipe, a socket or a device; other
/// errors of open(2).
pub(crate) fn reopen_regular(named: &OwnedFd) -> Result<File, Errno> {
    match kind_of(&facts(named, b"")?) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR),
        FileType::Symlink => return Err(Errno::LOOP),
        _ => return Err(Errno::NXIO),
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    // Opens the same file by its descriptor, because its name could refer to another file by now.
    rustix::fs::openat(CWD, own_path(named), flags, Mode::empty()).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn pipes_and_devices_are_refused_and_links_followed() {
        let folder = std::env::temp_dir().join(format!("ebb-regular-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let pipe = folder.join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::write(folder.join("file"), "text").unwrap();
        symlink("file", folder.join("link")).unwrap();
        for path in [&pipe, &folder, Path::new("/dev/null")] {
            let error = open_regular(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        assert_eq!(read_regular(&folder.join("link")).unwrap(), b"text");
        let missing = open_regular(&folder.join("no")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&folder).unwrap();
    }
}
