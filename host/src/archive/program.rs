//! Resolves the argument `PROGRAM`: an ELF file, a script, or an applet of busybox.

use super::busybox::{Busybox, BusyboxError};
use super::files::{self, FileError};
use super::format::{Format, FormatError, Program};
use super::host_file::HostFile;
use super::initramfs::{GuestPath, Node, PackError, Source};
use super::libraries::{self, LibraryError};
use super::pack_policy::{self, PackPolicyError, Use};
use super::packer::Packer;
use super::shell_command::search_through_shims;
use crate::text::one_line;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Folders on which guests mount their own file systems, over packed files and files of the host.
const MOUNTED: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The reason why a guest cannot run the program that the user named.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("{} cannot run in a guest", one_line(path))]
    Format { path: PathBuf, source: FormatError },
    #[error("{} cannot run in a guest", one_line(path))]
    Libraries { path: PathBuf, source: LibraryError },
    #[error("{}: no such file", one_line(.0))]
    NotFound(PathBuf),
    #[error("`{}` is neither a file here, nor a command of busybox, nor in PATH", one_line(.0))]
    UnknownCommand(String),
    #[error(
        "`{name}` is no file here; a folder of the host that the guest changes is --volume {name}",
        name = one_line(.0)
    )]
    Volume(String),
    #[error(
        "{} wants the interpreter {}, which the guest has not",
        one_line(script),
        one_line(interpreter)
    )]
    Interpreter { script: String, interpreter: String },
    #[error(
        "{} wants the interpreter {}, which may not be packed",
        one_line(script),
        one_line(interpreter)
    )]
    Refused {
        script: String,
        interpreter: String,
        source: PackPolicyError,
    },
    #[error("{} needs busybox in the guest", one_line(what))]
    Busybox { what: String, source: BusyboxError },
    #[error(transparent)]
    Pack(#[from] PackError),
}

impl Packer<'_> {
    /// Packs the files of each `--file` argument (`SRC` or `SRC:DEST`).
    ///
    /// # Errors
    /// If an argument has no source or no possible destination, a file cannot be read or packed, or
    /// two arguments have the same destination. Several folders may have the destination `/`.
    pub(crate) fn add_files(&mut self, arguments: &[OsString]) -> Result<(), FileError> {
        files::add_all(&mut self.tree, &mut self.named, arguments)
    }

    /// Packs the loaders and libraries of all ELF files that are packed so far. Leaves out those
    /// that are missing or may not be packed, and adds a remark for some that may not.
    ///
    /// # Errors
    /// If a path conflicts with a packed file, or there are more libraries than can stay open.
    pub(crate) fn add_libraries(&mut self) -> Result<(), PackError> {
        libraries::add_for_files(self)
    }

    /// Finds the program `command[0]` and packs it with its libraries, unless the guest sees it
    /// without packing. For a script it also provides the interpreter. For an applet of busybox it
    /// packs busybox. Returns the arguments of the guest's process; the first one is the path to
    /// execute.
    ///
    /// # Errors
    /// If no such program is found, if it or its interpreter cannot run in a guest, or if a file
    /// that it needs is missing or may not be packed.
    pub(crate) fn add_program(
        &mut self,
        command: &[OsString],
    ) -> Result<Vec<OsString>, ProgramError> {
        let (name, arguments) = command
            .split_first()
            .map_or((OsStr::new(""), command), |(n, a)| (n, a));
        let (path, format) = self.locate(name)?;
        let mut argv = Vec::new();
        match format {
            Some(Format::Script {
                interpreter,
                argument,
            }) => match of_env(Path::new(&interpreter), argument.as_deref()) {
                Some((meant, more)) => {
                    argv.push(self.provide_meant(name, &meant)?);
                    argv.extend(more);
                }
                None => {
                    argv.push(self.provide_interpreter(name, Path::new(&interpreter))?);
                    argv.extend(argument);
                }
            },
            Some(Format::Static | Format::Dynamic { .. } | Format::Library) => {}
            None => self.add_busybox(&format!("`{}`", one_line(name)))?,
        }
        argv.push(OsString::from_vec(path.as_bytes().to_vec()));
        argv.extend(arguments.iter().cloned());
        Ok(argv)
    }

    /// Packs the static busybox of this host and links for its applets. `what` names, in the error,
    /// the thing that needs busybox.
    ///
    /// # Errors
    /// `Busybox` if this host has no static busybox in `PATH`; `Pack` if a path conflicts with a
    /// packed file.
    pub(crate) fn add_busybox(&mut self, what: &str) -> Result<(), ProgramError> {
        let needed = |source| ProgramError::Busybox {
            what: what.to_owned(),
            source,
        };
        let busybox = Busybox::find(&mut self.examiner).map_err(needed)?;
        Ok(busybox.pack(&mut self.tree)?)
    }

    /// Finds and packs the program `name`. Returns its path in the guest and its format. The format
    /// is `None` for an applet of busybox. Fails if it is not found or cannot run in a guest.
    fn locate(&mut self, name: &OsStr) -> Result<(GuestPath, Option<Format>), ProgramError> {
        // A path that `--file` has packed means the guest's file.
        if let Ok(path) = GuestPath::parse(name.as_bytes())
            && let Some(Node::File {
                source: Source::Host(file),
                ..
            }) = self.tree.get(&path)
        {
            let file = file.clone();
            let program = self.examine_named(&file)?;
            self.tree.add(path.clone(), executable(&file))?;
            let real = self.real_path(&file)?;
            self.add_its_libraries(&file, &program, &real)?;
            return Ok((path, Some(program.format)));
        }
        let has_slash = name.as_bytes().contains(&b'/');
        let mut path = PathBuf::from(name);
        let by_shell = (!has_slash).then(|| self.as_shell(name)).flatten();
        let places = match &by_shell {
            None if !has_slash => self.in_path(name, |own, path| own.program_at(path).is_some()),
            _ => by_shell.clone(),
        };
        if let Some(found) = places
            && let Some(seen) = self.seen_program(&found)?
        {
            return Ok(seen);
        }
        if has_slash {
            self.show_toolchains_of(&path);
        } else if let Some(found) = by_shell {
            path = found;
        } else {
            let busybox = Busybox::find(&mut self.examiner);
            if matches!(&busybox, Ok(busybox) if busybox.has(name)) {
                let applet = GuestPath::parse(&[b"/bin/", name.as_bytes()].concat())?;
                return Ok((applet, None));
            }
            // The working folder comes last, so that a folder of another user cannot decide which
            // command runs.
            let (found, shim) = search_through_shims(name);
            path = match (found.or(shim), busybox) {
                (Some(path), _) => path,
                _ if path.is_file() => path,
                (None, Ok(_)) => return Err(unknown(name)),
                // Without busybox it is unknown whether it would have the command.
                (None, Err(source)) => {
                    let what = format!("`{}`, which is no file here,", one_line(name));
                    return Err(ProgramError::Busybox { what, source });
                }
            };
        }
        // An absolute path means the guest's file if the guest sees one. A relative path means the
        // host's file.
        let absolute = std::path::absolute(&path).ok();
        let seen = absolute.as_deref().and_then(|path| self.program_at(path));
        if let Some((_, found)) = seen
            && (path.is_absolute() || path.canonicalize().is_ok_and(|path| path == found))
            && let Some(seen) = self.seen_program(absolute.as_deref().unwrap_or(&path))?
        {
            return Ok(seen);
        }
        if !path.exists() {
            return Err(not_found(name));
        }
        self.named.add_toolchains_of(&path);
        let file = open_named(&path)?;
        let program = self.examine_named(&file)?;
        let keeps_place = self.path.follows_shell();
        let place = if keeps_place || matches!(program.format, Format::Dynamic { .. }) {
            self.add_in_place(&path, &file, &program)?
        } else {
            let place = in_bin(&path)?;
            self.tree.add(place.clone(), executable(&file))?;
            place
        };
        Ok((place, Some(program.format)))
    }

    /// Returns the guest path and the format of the program at `path`, if the guest sees it without
    /// packing. Returns `None` if it does not. Fails if the file is no program.
    fn seen_program(
        &mut self,
        path: &Path,
    ) -> Result<Option<(GuestPath, Option<Format>)>, ProgramError> {
        let Some((seen, found)) = self.program_at(path) else {
            return Ok(None);
        };
        self.named.add_toolchains_of(&found);
        let program = self.examine_named(&open_named(&found)?)?;
        Ok(Some((seen, Some(program.format))))
    }

    /// Returns the guest path and the host's file for the executable file at `path`, if the guest
    /// sees it without packing. Returns `None` otherwise.
    pub(super) fn program_at(&mut self, path: &Path) -> Option<(GuestPath, PathBuf)> {
        if MOUNTED.iter().any(|place| path.starts_with(place)) {
            return None;
        }
        let path = GuestPath::parse(path.as_os_str().as_bytes()).ok()?;
        let file = (self.seen)(path.as_bytes())?;
        let metadata = file.metadata().ok()?;
        let runs = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        runs.then_some((path, file))
    }

    /// Packs a program at its path on the host, with its libraries, which may be found relative to
    /// it. Returns its path in the guest. Fails if a library may not be packed, or a path conflicts
    /// with a packed file.
    fn add_in_place(
        &mut self,
        path: &Path,
        file: &HostFile,
        program: &Program,
    ) -> Result<GuestPath, ProgramError> {
        let real = self.real_path(file)?;
        self.add_its_libraries(file, program, &real)?;
        if MOUNTED.iter().any(|place| real.starts_with(place)) {
            let place = in_bin(path)?;
            self.tree.add(place.clone(), executable(file))?;
            return Ok(place);
        }
        let real = GuestPath::parse(real.as_os_str().as_bytes())?;
        self.tree.add(real.clone(), executable(file))?;
        // The given name is packed as a link if it differs.
        let named = std::path::absolute(path).map_err(|source| PackError::Read {
            path: path.to_owned(),
            source,
        })?;
        match GuestPath::parse(named.as_os_str().as_bytes()) {
            Ok(named) if named != real => {
                let target = real.as_bytes().to_vec();
                let link = Node::Symlink { target };
                self.tree.add_missing(named.clone(), link)?;
                Ok(named)
            }
            // The name contains `..`.
            _ => Ok(real),
        }
    }

    /// Packs the loader and libraries of a dynamic program. Does nothing for other programs. Fails
    /// with `Libraries` if one is missing or may not be packed.
    fn add_its_libraries(
        &mut self,
        file: &HostFile,
        program: &Program,
        real: &Path,
    ) -> Result<(), ProgramError> {
        if !matches!(program.format, Format::Dynamic { .. }) {
            return Ok(());
        }
        libraries::add(self, program, real).map_err(|source| ProgramError::Libraries {
            path: file.path.clone(),
            source,
        })
    }

    fn real_path(&self, file: &HostFile) -> Result<PathBuf, ProgramError> {
        let read = |errno: Errno| PackError::Read {
            path: file.path.clone(),
            source: errno.into(),
        };
        let opened = file.file().map_err(read)?;
        Ok(pack_policy::real_path(&opened).map_err(read)?)
    }

    fn examine_named(&mut self, file: &HostFile) -> Result<Program, ProgramError> {
        let program = self.examine(file).and_then(Program::runnable);
        program.map_err(|source| ProgramError::Format {
            path: file.path.clone(),
            source,
        })
    }

    /// Provides the program `meant` that a script requests through `env`, and returns its path in
    /// the guest. A name without a slash is searched in the guest's `PATH`. Fails as
    /// [`Self::provide_interpreter`].
    fn provide_meant(&mut self, script: &OsStr, meant: &OsStr) -> Result<OsString, ProgramError> {
        if meant.as_bytes().contains(&b'/') {
            return self.provide_interpreter(script, Path::new(meant));
        }
        if let Some(path) = self.as_shell(meant)
            && self.is_there(&path)
        {
            return Ok(path.into_os_string());
        }
        match self.in_path(meant, Self::is_there) {
            Some(path) => Ok(path.into_os_string()),
            None => self.provide_interpreter(script, Path::new(meant)),
        }
    }

    /// Returns the first path in the guest's `PATH` with the file name `name` for which `is_there`
    /// returns `true`. Returns `None` if there is none.
    fn in_path(
        &mut self,
        name: &OsStr,
        is_there: impl Fn(&mut Self, &Path) -> bool,
    ) -> Option<PathBuf> {
        let places = self.path.places(name);
        places.into_iter().find(|path| is_there(self, path))
    }

    /// Returns whether the guest has a program at `path`, packed or seen.
    fn is_there(&mut self, path: &Path) -> bool {
        let parsed = GuestPath::parse(path.as_os_str().as_bytes());
        parsed.is_ok_and(|packed| self.tree.get(&packed).is_some())
            || self.program_at(path).is_some()
    }

    /// Provides the interpreter of a script and returns its path in the guest. Uses a file that the
    /// guest has, or packs busybox or the host's file. Fails if there is none, or if it may not be
    /// packed.
    fn provide_interpreter(
        &mut self,
        script: &OsStr,
        interpreter: &Path,
    ) -> Result<OsString, ProgramError> {
        let folder = interpreter
            .parent()
            .and_then(|folder| folder.canonicalize().ok());
        if folder.is_some_and(|folder| self.named.covers(&folder)) {
            // An environment's interpreter is a link to that of another toolchain.
            self.show_toolchains_of(interpreter);
        }
        if self.is_there(interpreter) {
            return Ok(interpreter.as_os_str().to_owned());
        }
        let busybox = Busybox::find(&mut self.examiner);
        if let (Ok(busybox), Some(name)) = (&busybox, interpreter.file_name())
            && busybox.has(name)
        {
            busybox.pack(&mut self.tree)?;
            return Ok(Path::new("/bin").join(name).into_os_string());
        }
        let on_host = if interpreter.is_absolute() {
            Some(interpreter.to_owned())
        } else {
            search_through_shims(interpreter.as_os_str()).0
        };
        if let Some(path) = on_host {
            let allowed = self.open_allowed(&path, Use::Interpreter);
            let allowed = allowed.map_err(|source| ProgramError::Refused {
                script: script.to_string_lossy().into_owned(),
                interpreter: path.display().to_string(),
                source,
            })?;
            if let Some(found) = allowed {
                let place = self.add_in_place(&path, &found.file, &found.program)?;
                return Ok(OsString::from_vec(place.as_bytes().to_vec()));
            }
        }
        let script = script.to_string_lossy();
        match busybox {
            Ok(_) => Err(ProgramError::Interpreter {
                script: script.into_owned(),
                interpreter: interpreter.display().to_string(),
            }),
            Err(source) => Err(ProgramError::Busybox {
                what: format!("the script {}", one_line(&*script)),
                source,
            }),
        }
    }
}

/// Opens the program that the user named. Fails with `Format` if it is no regular file or cannot be
/// opened.
fn open_named(path: &Path) -> Result<HostFile, ProgramError> {
    HostFile::open_named(path).map_err(|error| {
        let error = io::Error::from(error);
        ProgramError::Format {
            path: path.to_owned(),
            source: match Errno::from_io_error(&error) {
                Some(Errno::ISDIR) => FormatError::NotAFile("a directory".into()),
                Some(Errno::NXIO) => FormatError::NotAFile("a pipe, a socket or a device".into()),
                _ => error.into(),
            },
        }
    })
}

/// Returns the guest path in `/bin` for a file whose folder does not matter. Fails if the name is
/// no valid path.
fn in_bin(file: &Path) -> Result<GuestPath, ProgramError> {
    let base = file.file_name().unwrap_or(file.as_os_str());
    Ok(GuestPath::parse(&[b"/bin/", base.as_bytes()].concat())?)
}

/// Returns the error for a name with a slash that does not exist. It may be a mistaken volume
/// option.
fn not_found(name: &OsStr) -> ProgramError {
    let text = name.to_string_lossy();
    // A volume without its option, as in `ebb run /srv:/data -- sh`.
    match text.split_once(":/") {
        Some((source, _)) if Path::new(source).exists() => ProgramError::Volume(text.into_owned()),
        _ => ProgramError::NotFound(PathBuf::from(name)),
    }
}

fn unknown(name: &OsStr) -> ProgramError {
    ProgramError::UnknownCommand(name.to_string_lossy().into_owned())
}

fn executable(file: &HostFile) -> Node {
    Node::File {
        mode: 0o755,
        source: Source::Host(file.clone()),
    }
}

/// Parses a script's first line that runs `env`. Returns the program that `env` would run and the
/// arguments before the script. `env` runs its only word, or with `-S` the first of several words.
/// Returns `None` if the interpreter is not `env`, or if the line uses other features of `env`.
fn of_env(interpreter: &Path, argument: Option<&OsStr>) -> Option<(OsString, Vec<OsString>)> {
    if interpreter.file_name() != Some(OsStr::new("env")) {
        return None;
    }
    let argument = argument?.as_bytes();
    let split = argument
        .strip_prefix(b"-S")
        .or_else(|| argument.strip_prefix(b"--split-string="));
    let plain = |word: &[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
    let mut words: Vec<&[u8]> = match split {
        // Quotes and escapes are rare, and only `env` itself can parse them.
        Some(text) if text.iter().any(|byte| b"'\"\\$#".contains(byte)) => return None,
        Some(text) => text.split(u8::is_ascii_whitespace).collect(),
        // Linux passes the rest of the line as one word.
        None => vec![argument],
    };
    words.retain(|word| !word.is_empty());
    let (first, more) = words.split_first()?;
    let text = |word: &&[u8]| OsStr::from_bytes(word).to_owned();
    plain(first).then(|| (text(first), more.iter().map(text).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::examiner::Examiner;

    #[test]
    fn env_is_looked_through() {
        let seen = |argument: &str| {
            let (meant, more) = of_env(Path::new("/usr/bin/env"), Some(OsStr::new(argument)))?;
            let words: Vec<_> = [meant].into_iter().chain(more).collect();
            Some(words.join(OsStr::new(" ")).into_string().unwrap())
        };
        assert_eq!(seen("sh").as_deref(), Some("sh"));
        // Linux passes one word, which is no program's name.
        assert_eq!(seen("sh -e").as_deref(), Some("sh -e"));
        assert_eq!(seen("-S sh -e -u").as_deref(), Some("sh -e -u"));
        assert_eq!(seen("-Ssh  -e").as_deref(), Some("sh -e"));
        assert_eq!(seen("-S /opt/bin/lua").as_deref(), Some("/opt/bin/lua"));
        // `env` itself has to do these.
        for argument in ["-i", "-S A=1 sh", "-S -i sh", "-S sh '-e'", "-S", "A=1"] {
            assert_eq!(seen(argument), None, "{argument}");
        }
        assert_eq!(of_env(Path::new("/bin/sh"), Some(OsStr::new("-e"))), None);
        assert_eq!(of_env(Path::new("/usr/bin/env"), None), None);
    }

    #[test]
    fn what_env_runs_is_found_in_the_guest() {
        let mut packer = Packer::new(Box::new(|_| None), Examiner::default());
        let path = GuestPath::parse(b"/usr/bin/bash").unwrap();
        let bash = HostFile::open(Path::new("/bin/bash")).unwrap();
        packer.tree.add(path, executable(&bash)).unwrap();
        let found = packer.provide_meant(OsStr::new("x"), OsStr::new("bash"));
        assert_eq!(found.unwrap(), "/usr/bin/bash");
        let error = packer.provide_meant(OsStr::new("x"), OsStr::new("no-such"));
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("x wants the interpreter no-such") || text.contains("busybox"),
            "{text}"
        );
    }
}
