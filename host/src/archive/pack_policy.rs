//! Decides which files of the host may be packed that the user did not name.
//!
//! A program chooses its interpreter, its libraries and the first line of a script. A hostile
//! program could choose secrets. So a file that a program asks for is packed only under two
//! conditions. It must be a program itself. And every user of this host must be able to read it, or
//! the user must have named it or a folder above it.

use super::examiner::Examiner;
use super::format::{FormatError, Program};
use super::host_file::HostFile;
use super::toolchain::toolchains_of;
use crate::system::opened::{facts, own_path};
use crate::system::refuse_kernels_own;
use crate::text::one_line;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The reason why a file that a program asks for, but the user did not name, is not packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackPolicyError {
    #[error("cannot open {}", one_line(path))]
    Open { path: PathBuf, source: Errno },
    /// The operand is the file's real path.
    #[error(
        "{path} is not for everyone to read; name it to have it packed: --file {path}",
        path = one_line(.0)
    )]
    Private(PathBuf),
    #[error("{} is one of the kernel's own files, which are not packed", one_line(.0))]
    KernelsOwn(PathBuf),
    #[error("{} is no program", one_line(path))]
    Format { path: PathBuf, source: FormatError },
    #[error("{} is not executable", one_line(.0))]
    NotExecutable(PathBuf),
}

/// An open program, library or script that may be packed, with its real path and its format.
#[derive(Clone, Debug)]
pub(crate) struct AllowedFile {
    pub(crate) file: HostFile,
    /// The path of the file without links.
    pub(crate) real: PathBuf,
    pub(crate) program: Arc<Program>,
}

/// What a program needs a file for: as its loader, a library, or the interpreter of a script.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// The loader of a program, an executable ELF file.
    Loader,
    /// A library, an ELF file.
    Library,
    /// The interpreter of a script: an executable ELF file or script.
    Interpreter,
}

/// A function that returns whether the guest sees the file of the host at a real path without
/// packing, because a folder of the host is shared with it.
pub(crate) type IsVisible<'a> = dyn FnMut(&Path) -> bool + 'a;

/// The real paths of the files and folders that the user named. These files, and all files in these
/// folders, may be packed even if other users may not read them.
#[derive(Debug, Default)]
pub(crate) struct Named(Vec<PathBuf>);

impl Named {
    /// Adds the real path of an open file or folder.
    ///
    /// # Errors
    /// If the path cannot be read from `/proc`.
    pub(crate) fn add(&mut self, opened: &impl AsRawFd) -> Result<(), Errno> {
        self.0.push(real_path(opened)?);
        Ok(())
    }

    /// Adds the folders of the toolchains that contain the program `command`, so that interpreters
    /// in them may be packed. A toolchain is for example a Python environment, or a version of
    /// pyenv or nvm. Does nothing if `command` is in none or does not exist, or if other users may
    /// change the folder.
    pub(crate) fn add_toolchains_of(&mut self, command: &Path) {
        self.0.extend(toolchains_of(command));
    }

    /// Returns whether the user named the file or folder at the real path `real`, or a folder
    /// above.
    pub(super) fn covers(&self, real: &Path) -> bool {
        self.0.iter().any(|named| real.starts_with(named))
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loader => "loader",
            Self::Library => "library",
            Self::Interpreter => "interpreter",
        })
    }
}

/// Opens the file at `path` and examines it. Returns it if it may be packed for the use `purpose`.
/// Returns `None` if there is no file.
///
/// # Errors
/// `Open` if the file cannot be opened, `KernelsOwn` on a pseudo file system of the kernel,
/// `NotExecutable` for a loader or interpreter without execute permission, `Format` if it is no
/// x86-64 program, library or script or is a script used as a loader or library. `Private` if the
/// user did not name it, the guest does not see it, and not every user of the host may read it.
pub(crate) fn open_allowed(
    path: &Path,
    purpose: Use,
    named: &Named,
    shown: &mut IsVisible<'_>,
    examiner: &mut Examiner,
) -> Result<Option<AllowedFile>, PackPolicyError> {
    let Some((file, real)) = find(path)? else {
        return Ok(None);
    };
    let failed = |source| PackPolicyError::Open {
        path: path.to_owned(),
        source,
    };
    let opened = file.file().map_err(failed)?;
    let stat = facts(&*opened, b"").map_err(failed)?;
    if purpose != Use::Library && stat.stx_mode & 0o111 == 0 {
        return Err(PackPolicyError::NotExecutable(real));
    }
    let program = examiner.examine(&opened);
    let program = program.and_then(|program| match purpose {
        Use::Interpreter => Ok(program),
        Use::Loader | Use::Library => program.elf_only(),
    });
    let program = program.map_err(|source| PackPolicyError::Format {
        path: real.clone(),
        source,
    })?;
    // This check comes last. Its error advises the user to name the file, which would be bad advice
    // for a secret that is no program.
    check(&opened, &real, named, shown)?;
    Ok(Some(AllowedFile {
        file,
        real,
        program: Arc::new(program),
    }))
}

/// Opens the file at `path`, which loaders read and which may have any format, if it may be packed.
/// Returns it with its real path. Returns `None` if there is no file.
///
/// # Errors
/// `Open` if the file cannot be opened, `KernelsOwn` on a pseudo file system of the kernel.
/// `Private` if the user did not name it, the guest does not see it, and not every user of the host
/// may read it.
pub(crate) fn open(
    path: &Path,
    named: &Named,
    shown: &mut IsVisible<'_>,
) -> Result<Option<(HostFile, PathBuf)>, PackPolicyError> {
    let Some((file, real)) = find(path)? else {
        return Ok(None);
    };
    let opened = file.file().map_err(|source| PackPolicyError::Open {
        path: path.to_owned(),
        source,
    })?;
    check(&opened, &real, named, shown)?;
    Ok(Some((file, real)))
}

/// Opens the file at `path` and returns it with its real path. Returns `None` if there is no file.
/// Fails if it cannot be opened, or is on a pseudo file system of the kernel.
fn find(path: &Path) -> Result<Option<(HostFile, PathBuf)>, PackPolicyError> {
    let failed = |source| PackPolicyError::Open {
        path: path.to_owned(),
        source,
    };
    let file = match HostFile::open(path) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let opened = file.file().map_err(failed)?;
    let real = real_path(&opened).map_err(failed)?;
    let fd = opened.try_clone().map(OwnedFd::from);
    let fd = fd.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    if refuse_kernels_own(&fd).is_err() {
        return Err(PackPolicyError::KernelsOwn(path.to_owned()));
    }
    Ok(Some((file, real)))
}

/// Fails with `Private` if the user did not name the file, the guest does not see it, and not every
/// user may read it.
fn check(
    file: &File,
    real: &Path,
    named: &Named,
    shown: &mut IsVisible<'_>,
) -> Result<(), PackPolicyError> {
    if named.covers(real) || shown(real) {
        return Ok(());
    }
    match is_everyones(file, real) {
        Ok(true) => Ok(()),
        Ok(false) => Err(PackPolicyError::Private(real.to_owned())),
        Err(source) => Err(PackPolicyError::Open {
            path: real.to_owned(),
            source,
        }),
    }
}

/// Returns the path of an open file, without links. Linux appends ` (deleted)` if the file was
/// removed. Fails if the path cannot be read from `/proc`.
pub(super) fn real_path(file: &impl AsRawFd) -> Result<PathBuf, Errno> {
    let text = rustix::fs::readlinkat(CWD, own_path(file), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
}

/// Returns whether every user may read `file` and search the folders that lead to `real`. Each
/// folder is opened relative to its parent, and the last entry must be `file`. So the result is
/// `false` if the path leads elsewhere by now.
///
/// # Errors
/// If the host cannot provide a descriptor.
fn is_everyones(file: &File, real: &Path) -> Result<bool, Errno> {
    if facts(file, b"")?.stx_mode & 0o004 == 0 {
        return Ok(false);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = rustix::fs::open("/", flags, Mode::empty())?;
    let mut parts = real.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let Some(name) = parts.next_back() else {
        return Ok(false);
    };
    // The name leads to another file by now, or to none.
    let gone = |error| {
        matches!(
            error,
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS
        )
    };
    for part in parts {
        folder = match rustix::fs::openat(&folder, part, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(error) if gone(error) => return Ok(false),
            Err(error) => return Err(error),
        };
        if rustix::fs::fstat(&folder)?.st_mode & 0o001 == 0 {
            return Ok(false);
        }
    }
    let Ok(found) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return Ok(false);
    };
    let opened = rustix::fs::fstat(file)?;
    Ok((found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("ebb-admission-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn mode(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn allowed(path: &Path, named: &Named) -> Result<Option<PathBuf>, PackPolicyError> {
        open(path, named, &mut |_| false).map(|found| found.map(|(_, real)| real))
    }

    #[test]
    fn files_of_everyone_are_admitted_and_private_ones_are_not() {
        let scratch = Scratch::new("modes");
        fs::create_dir(scratch.0.join("in")).unwrap();
        fs::write(scratch.0.join("in/file"), "x").unwrap();
        let file = scratch.mode("in/file", 0o644);
        let none = Named::default();
        assert_eq!(allowed(&file, &none).unwrap(), Some(file.clone()));
        assert_eq!(allowed(&scratch.0.join("no"), &none).unwrap(), None);
        scratch.mode("in/file", 0o600);
        assert!(matches!(
            allowed(&file, &none),
            Err(PackPolicyError::Private(_))
        ));
        scratch.mode("in/file", 0o644);
        scratch.mode("in", 0o700);
        // A link from elsewhere leads to it. The target counts.
        let link = scratch.0.join("link");
        symlink("in/file", &link).unwrap();
        for path in [&file, &link, &scratch.0.join("in/../link")] {
            assert!(matches!(
                allowed(path, &none),
                Err(PackPolicyError::Private(real)) if real == file
            ));
        }
        let mut named = Named::default();
        named
            .add(&File::open(scratch.0.join("in")).unwrap())
            .unwrap();
        assert_eq!(allowed(&link, &named).unwrap(), Some(file));
    }

    #[test]
    fn files_of_the_kernel_are_not_admitted() {
        for path in ["/proc/self/status", "/proc/version"] {
            assert!(matches!(
                allowed(Path::new(path), &Named::default()),
                Err(PackPolicyError::KernelsOwn(_))
            ));
        }
    }

    #[test]
    fn programs_alone_are_admitted_for_programs() {
        let scratch = Scratch::new("kinds");
        let mut examiner = Examiner::default();
        let mut open_allowed = |name: &str, mode: u32, bytes: &[u8], purpose| {
            let path = scratch.0.join(name);
            fs::write(&path, bytes).unwrap();
            scratch.mode(name, mode);
            let result = open_allowed(
                &path,
                purpose,
                &Named::default(),
                &mut |_| false,
                &mut examiner,
            );
            result.map(|found| found.is_some())
        };
        let elf = fs::read("/bin/true").unwrap();
        for purpose in [Use::Loader, Use::Library, Use::Interpreter] {
            assert!(
                open_allowed("elf", 0o755, &elf, purpose).unwrap(),
                "{purpose}"
            );
            let secret = open_allowed("secret", 0o755, b"root:x:0:0\n", purpose);
            assert!(matches!(secret, Err(PackPolicyError::Format { .. })));
        }
        assert!(open_allowed("library", 0o644, &elf, Use::Library).unwrap());
        for purpose in [Use::Loader, Use::Interpreter] {
            let plain = open_allowed("plain", 0o644, &elf, purpose);
            assert!(matches!(plain, Err(PackPolicyError::NotExecutable(_))));
        }
        let script = b"#!/bin/sh\n";
        assert!(open_allowed("script", 0o755, script, Use::Interpreter).unwrap());
        assert!(open_allowed("script", 0o755, script, Use::Library).is_err());
    }
}
