//! What `PROGRAM` means: an ELF file, a script, or a command of busybox.

use super::busybox::{Busybox, BusyboxError};
use super::format::{Format, FormatError, inspect};
use super::initramfs::{GuestPath, Initramfs, Node, PackError, Source};
use super::libraries::{self, LibraryError};
use crate::system::search_path;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where guests look for programs.
pub(crate) const GUEST_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Where guests mount what is their own, over what was packed and what is seen of the host.
const MOUNTED: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("{} cannot run in a guest", path.display())]
    Format { path: PathBuf, source: FormatError },
    #[error("{} cannot run in a guest", path.display())]
    Libraries { path: PathBuf, source: LibraryError },
    #[error("{}: no such file", .0.display())]
    NotFound(PathBuf),
    #[error("`{0}` is neither a file here, nor a command of busybox, nor in PATH")]
    UnknownCommand(String),
    #[error("`{0}` is no file here; a folder of the host that the guest changes is --volume {0}")]
    Volume(String),
    #[error("{script} wants the interpreter {interpreter}, which the guest has not")]
    Interpreter { script: String, interpreter: String },
    #[error("{what} needs busybox in the guest")]
    Busybox { what: String, source: BusyboxError },
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Says for a path of the guest's which file of the host's stands there without being packed.
pub(crate) type Seen<'a> = dyn FnMut(&[u8]) -> Option<PathBuf> + 'a;

/// Puts what `command[0]` means into `tree`, unless it is `seen`, and returns the guest's argv, whose first item is
/// the path to execute.
pub(crate) fn pack(
    tree: &mut Initramfs,
    command: &[OsString],
    seen: &mut Seen<'_>,
) -> Result<Vec<OsString>, ProgramError> {
    let (name, arguments) = command
        .split_first()
        .map_or((OsStr::new(""), command), |(n, a)| (n, a));
    let (path, format) = locate(tree, name, seen)?;
    let mut argv = Vec::new();
    match format {
        Some(Format::Script {
            interpreter,
            argument,
        }) => match of_env(&interpreter, argument.as_deref()) {
            Some((meant, more)) => {
                argv.push(provide_meant(tree, name, &meant, seen)?);
                argv.extend(more);
            }
            None => {
                argv.push(provide_interpreter(tree, name, &interpreter, seen)?);
                argv.extend(argument);
            }
        },
        Some(Format::Static | Format::Dynamic { .. }) => {}
        None => pack_busybox(tree, &format!("`{}`", name.to_string_lossy()))?,
    }
    argv.push(OsString::from_vec(path.as_bytes().to_vec()));
    argv.extend(arguments.iter().cloned());
    Ok(argv)
}

/// The guest path of the program, packed; no format: a busybox applet.
fn locate(
    tree: &mut Initramfs,
    name: &OsStr,
    seen: &mut Seen<'_>,
) -> Result<(GuestPath, Option<Format>), ProgramError> {
    // A path that --file has packed is meant as the guest's.
    if let Ok(path) = GuestPath::parse(name.as_bytes())
        && let Some(Node::File {
            source: Source::Host(source),
            ..
        }) = tree.get(&path)
    {
        let source = source.clone();
        let format = inspect_named(&source)?;
        tree.add(path.clone(), executable(&source))?;
        add_libraries(tree, &source, &format)?;
        return Ok((path, Some(format)));
    }
    let has_slash = name.as_bytes().contains(&b'/');
    let mut file = PathBuf::from(name);
    let is_here = !has_slash && file.is_file();
    // An absolute path is the guest's where it sees something there, a relative one the host's.
    let there = if has_slash || is_here {
        std::path::absolute(&file).ok()
    } else {
        in_path(name, |path| program_at(path, seen).is_some())
    };
    let is_host = file.is_relative() && (has_slash || is_here);
    if let Some((path, found)) = there.and_then(|path| program_at(&path, seen))
        && (!is_host || file.canonicalize().is_ok_and(|file| file == found))
    {
        return Ok((path, Some(inspect_named(&found)?)));
    }
    if has_slash {
        if !file.exists() {
            return Err(not_found(name));
        }
    } else if !is_here {
        let busybox = Busybox::find();
        if matches!(&busybox, Ok(busybox) if busybox.has(name)) {
            return Ok((
                GuestPath::parse(&[b"/bin/", name.as_bytes()].concat())?,
                None,
            ));
        }
        file = match (search_path(name), busybox) {
            (Some(file), _) => file,
            (None, Ok(_)) => return Err(unknown(name)),
            // Without busybox nobody can say whether it would have had the command.
            (None, Err(source)) => {
                let what = format!("`{}`, which is no file here,", name.to_string_lossy());
                return Err(ProgramError::Busybox { what, source });
            }
        };
    }
    let format = inspect_named(&file)?;
    let path = if matches!(format, Format::Dynamic { .. }) {
        pack_in_place(tree, &file, &format)?
    } else {
        let path = in_bin(&file)?;
        tree.add(path.clone(), executable(&file))?;
        path
    };
    Ok((path, Some(format)))
}

/// Where the guest's PATH leads to a program.
fn in_path(name: &OsStr, mut is_there: impl FnMut(&Path) -> bool) -> Option<PathBuf> {
    let mut places = GUEST_PATH
        .split(':')
        .map(|place| Path::new(place).join(name));
    places.find(|path| is_there(path))
}

/// A program that the guest sees without our packing it: its path there, and the host's file.
fn program_at(path: &Path, seen: &mut Seen<'_>) -> Option<(GuestPath, PathBuf)> {
    if MOUNTED.iter().any(|place| path.starts_with(place)) {
        return None;
    }
    let path = GuestPath::parse(path.as_os_str().as_bytes()).ok()?;
    let file = seen(path.as_bytes())?;
    let metadata = file.metadata().ok()?;
    let runs = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    runs.then_some((path, file))
}

/// Where a file of the host goes whose place does not matter.
fn in_bin(file: &Path) -> Result<GuestPath, ProgramError> {
    let base = file.file_name().unwrap_or(file.as_os_str());
    Ok(GuestPath::parse(&[b"/bin/", base.as_bytes()].concat())?)
}

/// Packs a program to where the host has it, with its libraries, some of which may be found from there; returns the path.
fn pack_in_place(
    tree: &mut Initramfs,
    file: &Path,
    format: &Format,
) -> Result<GuestPath, ProgramError> {
    let read = |source| PackError::Read {
        path: file.to_owned(),
        source,
    };
    let real = file.canonicalize().map_err(read)?;
    add_libraries(tree, file, format)?;
    if MOUNTED.iter().any(|place| real.starts_with(place)) {
        let path = in_bin(file)?;
        tree.add(path.clone(), executable(file))?;
        return Ok(path);
    }
    let real = GuestPath::parse(real.as_os_str().as_bytes())?;
    tree.add(real.clone(), executable(file))?;
    // By the name that was given, if that is another.
    let named = std::path::absolute(file).map_err(read)?;
    match GuestPath::parse(named.as_os_str().as_bytes()) {
        Ok(named) if named != real => {
            let target = real.as_bytes().to_vec();
            tree.add_missing(named.clone(), Node::Symlink { target })?;
            Ok(named)
        }
        // There is `..` in it.
        _ => Ok(real),
    }
}

/// Adds what a program is loaded with, if it is dynamic.
fn add_libraries(tree: &mut Initramfs, file: &Path, format: &Format) -> Result<(), ProgramError> {
    let Format::Dynamic { interpreter } = format else {
        return Ok(());
    };
    libraries::add(tree, file, Some(interpreter)).map_err(|source| ProgramError::Libraries {
        path: file.to_owned(),
        source,
    })
}

/// What a name with a slash in it may have been meant for.
fn not_found(name: &OsStr) -> ProgramError {
    let text = name.to_string_lossy();
    // As in `-v /srv:/data`, where `-v` is ebb's --verbose and the program comes later.
    match text.split_once(":/") {
        Some((source, _)) if Path::new(source).exists() => ProgramError::Volume(text.into_owned()),
        _ => ProgramError::NotFound(PathBuf::from(name)),
    }
}

fn unknown(name: &OsStr) -> ProgramError {
    ProgramError::UnknownCommand(name.to_string_lossy().into_owned())
}

fn executable(source: &Path) -> Node {
    Node::File {
        mode: 0o755,
        source: Source::Host(source.to_owned()),
    }
}

fn inspect_named(path: &Path) -> Result<Format, ProgramError> {
    inspect(path).map_err(|source| ProgramError::Format {
        path: path.to_owned(),
        source,
    })
}

/// What `env` would run for a script's first line, and the arguments before the script: it looks
/// for the one word after it, or with `-S` for the first of several. `None` where it is not `env`,
/// or is asked for more than that.
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
        // Quotes and escapes are rare there, and are env's own.
        Some(text) if text.iter().any(|byte| b"'\"\\$#".contains(byte)) => return None,
        Some(text) => text.split(u8::is_ascii_whitespace).collect(),
        // Linux hands everything behind the interpreter on as one word.
        None => vec![argument],
    };
    words.retain(|word| !word.is_empty());
    let (first, more) = words.split_first()?;
    let text = |word: &&[u8]| OsStr::from_bytes(word).to_owned();
    plain(first).then(|| (text(first), more.iter().map(text).collect()))
}

/// Makes the guest have what a script asks `env` for; returns its path there. A name without a
/// slash is looked for where the guest's PATH leads.
fn provide_meant(
    tree: &mut Initramfs,
    script: &OsStr,
    meant: &OsStr,
    seen: &mut Seen<'_>,
) -> Result<OsString, ProgramError> {
    if meant.as_bytes().contains(&b'/') {
        return provide_interpreter(tree, script, Path::new(meant), seen);
    }
    match in_path(meant, |path| is_there(tree, path, seen)) {
        Some(path) => Ok(path.into_os_string()),
        None => provide_interpreter(tree, script, Path::new(meant), seen),
    }
}

/// Whether the guest has a program at a path, packed or seen.
fn is_there(tree: &Initramfs, path: &Path, seen: &mut Seen<'_>) -> bool {
    let parsed = GuestPath::parse(path.as_os_str().as_bytes());
    parsed.is_ok_and(|packed| tree.get(&packed).is_some()) || program_at(path, seen).is_some()
}

/// Makes the guest have what the script's first line names; returns its path there.
fn provide_interpreter(
    tree: &mut Initramfs,
    script: &OsStr,
    interpreter: &Path,
    seen: &mut Seen<'_>,
) -> Result<OsString, ProgramError> {
    if is_there(tree, interpreter, seen) {
        return Ok(interpreter.as_os_str().to_owned());
    }
    let busybox = Busybox::find();
    if let (Ok(busybox), Some(name)) = (&busybox, interpreter.file_name())
        && busybox.has(name)
    {
        busybox.pack(tree)?;
        return Ok(Path::new("/bin").join(name).into_os_string());
    }
    let on_host = if interpreter.is_absolute() {
        Some(interpreter.to_owned()).filter(|file| file.is_file())
    } else {
        search_path(interpreter.as_os_str())
    };
    if let Some(file) = on_host {
        let format = inspect_named(&file)?;
        let path = pack_in_place(tree, &file, &format)?;
        return Ok(OsString::from_vec(path.as_bytes().to_vec()));
    }
    let script = script.to_string_lossy();
    match busybox {
        Ok(_) => Err(ProgramError::Interpreter {
            script: script.into_owned(),
            interpreter: interpreter.display().to_string(),
        }),
        Err(source) => Err(ProgramError::Busybox {
            what: format!("the script {script}"),
            source,
        }),
    }
}

/// Packs busybox because `what` needs it.
pub(crate) fn pack_busybox(tree: &mut Initramfs, what: &str) -> Result<(), ProgramError> {
    let needed = |source| ProgramError::Busybox {
        what: what.to_owned(),
        source,
    };
    Ok(Busybox::find().map_err(needed)?.pack(tree)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_is_looked_through() {
        let seen = |argument: &str| {
            let (meant, more) = of_env(Path::new("/usr/bin/env"), Some(OsStr::new(argument)))?;
            let words: Vec<_> = [meant].into_iter().chain(more).collect();
            Some(words.join(OsStr::new(" ")).into_string().unwrap())
        };
        assert_eq!(seen("sh").as_deref(), Some("sh"));
        // As Linux has it: one word, which no program is called.
        assert_eq!(seen("sh -e").as_deref(), Some("sh -e"));
        assert_eq!(seen("-S sh -e -u").as_deref(), Some("sh -e -u"));
        assert_eq!(seen("-Ssh  -e").as_deref(), Some("sh -e"));
        assert_eq!(seen("-S /opt/bin/lua").as_deref(), Some("/opt/bin/lua"));
        // env itself has to do these.
        for argument in ["-i", "-S A=1 sh", "-S -i sh", "-S sh '-e'", "-S", "A=1"] {
            assert_eq!(seen(argument), None, "{argument}");
        }
        assert_eq!(of_env(Path::new("/bin/sh"), Some(OsStr::new("-e"))), None);
        assert_eq!(of_env(Path::new("/usr/bin/env"), None), None);
    }

    #[test]
    fn what_env_runs_is_found_in_the_guest() {
        let mut tree = Initramfs::default();
        let path = GuestPath::parse(b"/usr/bin/bash").unwrap();
        tree.add(path, executable(Path::new("/bin/bash"))).unwrap();
        let found = provide_meant(&mut tree, OsStr::new("x"), OsStr::new("bash"), &mut |_| {
            None
        });
        assert_eq!(found.unwrap(), "/usr/bin/bash");
        let error = provide_meant(
            &mut tree,
            OsStr::new("x"),
            OsStr::new("no-such"),
            &mut |_| None,
        );
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("x wants the interpreter no-such") || text.contains("busybox"),
            "{text}"
        );
    }
}
