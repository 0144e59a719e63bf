//! What `PROGRAM` means: a static ELF file, a script, or a command of busybox.

use super::busybox::{Busybox, BusyboxError};
use super::format::{Format, FormatError, inspect};
use super::initramfs::{GuestPath, Initramfs, Node, PackError, Source};
use crate::system::search_path;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("{} cannot run in a guest", path.display())]
    Format { path: PathBuf, source: FormatError },
    #[error("{}: no such file", .0.display())]
    NotFound(PathBuf),
    #[error("`{0}` is neither a file here, nor a command of busybox, nor in PATH")]
    UnknownCommand(String),
    #[error("`{0}` is no file here; guests share no folder with the host")]
    Volume(String),
    #[error("{script} wants the interpreter {interpreter}, which the guest has not")]
    Interpreter { script: String, interpreter: String },
    #[error("{what} needs busybox in the guest")]
    Busybox { what: String, source: BusyboxError },
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Puts what `command[0]` means into `tree` and returns the guest's argv, whose first item is the
/// path to execute.
pub(crate) fn pack(
    tree: &mut Initramfs,
    command: &[OsString],
) -> Result<Vec<OsString>, ProgramError> {
    let (name, arguments) = command
        .split_first()
        .map_or((OsStr::new(""), command), |(n, a)| (n, a));
    let (path, format) = locate(tree, name)?;
    let mut argv = Vec::new();
    match format {
        Some(Format::Script {
            interpreter,
            argument,
        }) => {
            argv.push(provide_interpreter(tree, name, &interpreter)?);
            argv.extend(argument);
        }
        Some(Format::Static) => {}
        None => pack_busybox(tree, &format!("`{}`", name.to_string_lossy()))?,
    }
    argv.push(OsString::from_vec(path.as_bytes().to_vec()));
    argv.extend(arguments.iter().cloned());
    Ok(argv)
}

/// The guest path of the program, packed; no format: a busybox applet.
fn locate(tree: &mut Initramfs, name: &OsStr) -> Result<(GuestPath, Option<Format>), ProgramError> {
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
        return Ok((path, Some(format)));
    }
    let has_slash = name.as_bytes().contains(&b'/');
    let mut file = PathBuf::from(name);
    if has_slash {
        if !file.exists() {
            return Err(not_found(name));
        }
    } else if !file.is_file() {
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
    let base = file.file_name().ok_or_else(|| unknown(name))?;
    let path = GuestPath::parse(&[b"/bin/", base.as_bytes()].concat())?;
    tree.add(path.clone(), executable(&file))?;
    Ok((path, Some(format)))
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

/// Makes the guest have what the script's first line names; returns its path there.
fn provide_interpreter(
    tree: &mut Initramfs,
    script: &OsStr,
    interpreter: &Path,
) -> Result<OsString, ProgramError> {
    if let Ok(path) = GuestPath::parse(interpreter.as_os_str().as_bytes())
        && tree.get(&path).is_some()
    {
        return Ok(interpreter.as_os_str().to_owned());
    }
    let script = script.to_string_lossy();
    let busybox = Busybox::find().map_err(|source| ProgramError::Busybox {
        what: format!("the script {script}"),
        source,
    })?;
    match interpreter.file_name() {
        Some(name) if busybox.has(name) => {
            busybox.pack(tree)?;
            Ok(Path::new("/bin").join(name).into_os_string())
        }
        _ => Err(ProgramError::Interpreter {
            script: script.into_owned(),
            interpreter: interpreter.display().to_string(),
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
