//! Which files of the host may be packed without being named.
//!
//! A program chooses its interpreter, its libraries and the first line of a script, and a hostile
//! program chooses secrets. So a file that a program asks for is packed only if it is a program itself,
//! and only if everyone on this host may read it or the user named it or a folder above it.

use super::examiner::Examiner;
use super::format::{FormatError, Program};
use super::host_file::HostFile;
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

/// Why a file is not packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmissionError {
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

/// A program, or a library, that may be packed.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) file: HostFile,
    /// Where it stands, without links.
    pub(crate) real: PathBuf,
    pub(crate) program: Arc<Program>,
}

/// How a file is used that a program asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// An ELF file that is executed: what loads a program.
    Loader,
    /// An ELF file that is loaded.
    Library,
    /// An ELF file or a script that is executed.
    Interpreter,
}

/// Says which paths of the host the guest sees without their being packed.
pub(crate) type Shown<'a> = dyn FnMut(&Path) -> bool + 'a;

/// What the user named, without links: files and folders.
#[derive(Debug, Default)]
pub(crate) struct Named(Vec<PathBuf>);

impl Named {
    /// Adds an open file or folder, by its real path.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn add(&mut self, opened: &impl AsRawFd) -> Result<(), Errno> {
        self.0.push(real_path(opened)?);
        Ok(())
    }

    /// Adds the toolchain that the command belongs to, if it lies in one of the user's: a program of a
    /// Python environment, pyenv or nvm begins with the interpreter of that environment.
    pub(crate) fn add_toolchain_of(&mut self, command: &Path) {
        let command = command.canonicalize();
        self.0
            .extend(command.ok().and_then(|real| toolchain(&real)));
    }

    fn covers(&self, real: &Path) -> bool {
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

/// Opens a file for a use, if it may be packed for that. `Ok(None)` if there is none at `path`.
///
/// # Errors
/// Why it may not.
pub(crate) fn admit(
    path: &Path,
    purpose: Use,
    named: &Named,
    shown: &mut Shown<'_>,
    examiner: &mut Examiner,
) -> Result<Option<Admitted>, AdmissionError> {
    let Some((file, real)) = find(path)? else {
        return Ok(None);
    };
    let failed = |source| AdmissionError::Open {
        path: path.to_owned(),
        source,
    };
    let opened = file.file().map_err(failed)?;
    let stat = facts(&*opened, b"").map_err(failed)?;
    if purpose != Use::Library && stat.stx_mode & 0o111 == 0 {
        return Err(AdmissionError::NotExecutable(real));
    }
    let program = examiner.examine(&opened);
    let program = program.and_then(|program| match purpose {
        Use::Interpreter => Ok(program),
        Use::Loader | Use::Library => program.elf_only(),
    });
    let program = program.map_err(|source| AdmissionError::Format {
        path: real.clone(),
        source,
    })?;
    // Last: the error advises the user to name the file, which is bad advice for a secret.
    check(&opened, &real, named, shown)?;
    Ok(Some(Admitted {
        file,
        real,
        program: Arc::new(program),
    }))
}

/// Opens a file that loaders read, if it may be packed. `Ok(None)` if there is none at `path`.
///
/// # Errors
/// Why it may not.
pub(crate) fn open(
    path: &Path,
    named: &Named,
    shown: &mut Shown<'_>,
) -> Result<Option<(HostFile, PathBuf)>, AdmissionError> {
    let Some((file, real)) = find(path)? else {
        return Ok(None);
    };
    let opened = file.file().map_err(|source| AdmissionError::Open {
        path: path.to_owned(),
        source,
    })?;
    check(&opened, &real, named, shown)?;
    Ok(Some((file, real)))
}

/// Opens a file, and finds out where it stands without links. `Ok(None)` if there is none at `path`.
fn find(path: &Path) -> Result<Option<(HostFile, PathBuf)>, AdmissionError> {
    let failed = |source| AdmissionError::Open {
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
        return Err(AdmissionError::KernelsOwn(path.to_owned()));
    }
    Ok(Some((file, real)))
}

/// Refuses a file that the user did not name, that the guest does not see, and that not everyone may read.
fn check(
    file: &File,
    real: &Path,
    named: &Named,
    shown: &mut Shown<'_>,
) -> Result<(), AdmissionError> {
    if named.covers(real) || shown(real) {
        return Ok(());
    }
    match is_everyones(file, real) {
        Ok(true) => Ok(()),
        Ok(false) => Err(AdmissionError::Private(real.to_owned())),
        Err(source) => Err(AdmissionError::Open {
            path: real.to_owned(),
            source,
        }),
    }
}

/// The path of an open file, without links.
pub(super) fn real_path(file: &impl AsRawFd) -> Result<PathBuf, Errno> {
    let text = rustix::fs::readlinkat(CWD, own_path(file), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
}

/// Whether everyone may read a file, and search the folders that lead to it. They are looked at one in
/// the other, and what stands at the end must be this file: a name may have changed hands since.
///
/// # Errors
/// The host's, if it has no descriptor left.
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
    // A name that leads to another file by now, or to none.
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

/// The top folder of the toolchain that a program lies in: the one with `pyvenv.cfg`, or a version of
/// pyenv or nvm. `None` if it lies in none, or in one that others may change.
fn toolchain(program: &Path) -> Option<PathBuf> {
    let top = program.ancestors().skip(1).find(|folder| {
        let above = |count: usize| folder.ancestors().nth(count).unwrap_or(Path::new("/"));
        above(1).ends_with(".pyenv/versions")
            || above(1).ends_with(".nvm/versions/node")
            || folder.join(ENVIRONMENT).is_file()
    })?;
    // Where there is no mark of Python's, the folder alone says it.
    let mark = top.join(ENVIRONMENT);
    let is_trusted = is_users_own(top) && (!mark.exists() || is_users_own(&mark));
    // A folder of all users, or all of a home, is no toolchain.
    let is_deep = top.components().count() > 2 && Some(top) != home().as_deref();
    (is_trusted && is_deep).then(|| top.to_owned())
}

/// The file that marks the top folder of a Python environment.
const ENVIRONMENT: &str = "pyvenv.cfg";

/// Whether a file, and no link, belongs to the user or to root, and others may not write to it.
fn is_users_own(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    path.symlink_metadata().is_ok_and(|facts| {
        !facts.is_symlink() && [own, 0].contains(&facts.uid()) && facts.mode() & 0o022 == 0
    })
}

fn home() -> Option<PathBuf> {
    PathBuf::from(std::env::var_os("HOME")?).canonicalize().ok()
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

    fn admitted(path: &Path, named: &Named) -> Result<Option<PathBuf>, AdmissionError> {
        open(path, named, &mut |_| false).map(|found| found.map(|(_, real)| real))
    }

    #[test]
    fn files_of_everyone_are_admitted_and_private_ones_are_not() {
        let scratch = Scratch::new("modes");
        fs::create_dir(scratch.0.join("in")).unwrap();
        fs::write(scratch.0.join("in/file"), "x").unwrap();
        let file = scratch.mode("in/file", 0o644);
        let none = Named::default();
        assert_eq!(admitted(&file, &none).unwrap(), Some(file.clone()));
        assert_eq!(admitted(&scratch.0.join("no"), &none).unwrap(), None);
        scratch.mode("in/file", 0o600);
        assert!(matches!(
            admitted(&file, &none),
            Err(AdmissionError::Private(_))
        ));
        scratch.mode("in/file", 0o644);
        scratch.mode("in", 0o700);
        // By a link from elsewhere, too: where it leads counts.
        let link = scratch.0.join("link");
        symlink("in/file", &link).unwrap();
        for path in [&file, &link, &scratch.0.join("in/../link")] {
            assert!(matches!(
                admitted(path, &none),
                Err(AdmissionError::Private(real)) if real == file
            ));
        }
        let mut named = Named::default();
        named
            .add(&File::open(scratch.0.join("in")).unwrap())
            .unwrap();
        assert_eq!(admitted(&link, &named).unwrap(), Some(file));
    }

    #[test]
    fn files_of_the_kernel_are_not_admitted() {
        for path in ["/proc/self/status", "/proc/version"] {
            assert!(matches!(
                admitted(Path::new(path), &Named::default()),
                Err(AdmissionError::KernelsOwn(_))
            ));
        }
    }

    #[test]
    fn programs_alone_are_admitted_for_programs() {
        let scratch = Scratch::new("kinds");
        let mut examiner = Examiner::default();
        let mut admit = |name: &str, mode: u32, bytes: &[u8], purpose| {
            let path = scratch.0.join(name);
            fs::write(&path, bytes).unwrap();
            scratch.mode(name, mode);
            let result = admit(
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
            assert!(admit("elf", 0o755, &elf, purpose).unwrap(), "{purpose}");
            let secret = admit("secret", 0o755, b"root:x:0:0\n", purpose);
            assert!(matches!(secret, Err(AdmissionError::Format { .. })));
        }
        assert!(admit("library", 0o644, &elf, Use::Library).unwrap());
        for purpose in [Use::Loader, Use::Interpreter] {
            let plain = admit("plain", 0o644, &elf, purpose);
            assert!(matches!(plain, Err(AdmissionError::NotExecutable(_))));
        }
        let script = b"#!/bin/sh\n";
        assert!(admit("script", 0o755, script, Use::Interpreter).unwrap());
        assert!(admit("script", 0o755, script, Use::Library).is_err());
    }

    #[test]
    fn a_toolchain_is_one_of_the_user_that_others_do_not_change() {
        let scratch = Scratch::new("toolchains");
        let make = |name: &str| {
            let path = scratch.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let tool = make("home/venv/bin/tool");
        assert_eq!(toolchain(&tool), None);
        make("home/venv/pyvenv.cfg");
        assert_eq!(toolchain(&tool), Some(scratch.0.join("home/venv")));
        for others in [0o777, 0o775] {
            scratch.mode("home/venv", others);
            assert_eq!(toolchain(&tool), None);
        }
        scratch.mode("home/venv", 0o755);
        scratch.mode("home/venv/pyvenv.cfg", 0o664);
        assert_eq!(toolchain(&tool), None);
        let python = make("home/.pyenv/versions/3.11/bin/python");
        let version = scratch.0.join("home/.pyenv/versions/3.11");
        assert_eq!(toolchain(&python), Some(version));
        let node = make("home/.nvm/versions/node/v20/bin/node");
        let version = scratch.0.join("home/.nvm/versions/node/v20");
        assert_eq!(toolchain(&node), Some(version));
        assert_eq!(toolchain(Path::new("/usr/bin/env")), None);
    }
}
