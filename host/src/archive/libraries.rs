//! What a dynamic program is loaded with: its interpreter and its libraries, from where the host has them.

use super::format::{Format, FormatError, inspect};
use super::initramfs::{GuestPath, Initramfs, Node, PackError, Source};
use lddtree::DependencyAnalyzer;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where loaders look up what is not in their own folders: glibc's, musl's.
const SEARCHED: [&str; 2] = ["/etc/ld.so.cache", "/etc/ld-musl-x86_64.path"];

/// The C library, and what it loads by itself, where it is: for the end and the cancellation of threads.
const GLIBC: &str = "libc.so.6";
const LOADED_BY_GLIBC: &str = "libgcc_s.so.1";

/// Why a program's libraries could not be packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    #[error("its interpreter {} is not on this host", .0.display())]
    Interpreter(PathBuf),
    #[error("its library {0} is not on this host")]
    Missing(String),
    #[error("its path {} is no valid UTF-8, which the search for its libraries needs", .0.display())]
    Name(PathBuf),
    #[error("its libraries cannot be told")]
    Analysis(#[source] Box<lddtree::Error>),
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Adds what `program`, a file of the host, is loaded with; what the tree has already stays. What is missing is an error, but the
/// rest is there all the same.
pub(super) fn add(
    tree: &mut Initramfs,
    program: &Path,
    interpreter: Option<&Path>,
) -> Result<(), LibraryError> {
    let mut missing = None;
    match interpreter {
        Some(path) if path.is_file() => add_file(tree, path, path)?,
        Some(path) => missing = Some(LibraryError::Interpreter(path.to_owned())),
        None => {}
    }
    // The place of the file is what `$ORIGIN` means, and is put in the place of text there.
    let real = program.canonicalize();
    if real.is_ok_and(|path| path.to_str().is_none()) {
        return Err(LibraryError::Name(program.to_owned()));
    }
    let found = DependencyAnalyzer::default()
        .analyze(program)
        .map_err(|error| LibraryError::Analysis(Box::new(error)))?;
    // In order, so that of several that are missing it is always the same one that is told.
    let libraries: BTreeMap<_, _> = found.libraries.into_iter().collect();
    for (name, library) in libraries {
        match library.realpath {
            Some(file) => {
                add_file(tree, &library.path, &file)?;
                if name == GLIBC {
                    add_beside(tree, &library.path)?;
                }
            }
            None => missing = missing.or(Some(LibraryError::Missing(name))),
        }
    }
    for path in SEARCHED.map(Path::new) {
        if path.is_file() {
            add_file(tree, path, path)?;
        }
    }
    missing.map_or(Ok(()), Err)
}

/// Adds what glibc loads by itself.
fn add_beside(tree: &mut Initramfs, glibc: &Path) -> Result<(), LibraryError> {
    let path = glibc.with_file_name(LOADED_BY_GLIBC);
    if path.is_file() {
        add_file(tree, &path, &path)?;
    }
    Ok(())
}

/// Adds what the files of the host that are in the tree already are loaded with, as far as the host has it: of a folder with many
/// of them some may never be run.
pub(crate) fn add_for_files(tree: &mut Initramfs) -> Result<(), PackError> {
    for file in tree.host_files() {
        if !is_elf(&file) {
            continue;
        }
        let loaded = match inspect(&file) {
            Ok(Format::Dynamic { interpreter }) => add(tree, &file, Some(&interpreter)),
            // It may be a library.
            Err(FormatError::Type(_)) => add(tree, &file, None),
            _ => continue,
        };
        if let Err(LibraryError::Pack(error)) = loaded {
            return Err(error);
        }
    }
    Ok(())
}

fn is_elf(path: &Path) -> bool {
    let mut start = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\x7fELF"
}

/// A file at the path at which it is looked for.
fn add_file(tree: &mut Initramfs, path: &Path, file: &Path) -> Result<(), LibraryError> {
    let node = Node::File {
        mode: 0o755,
        source: Source::Host(file.to_owned()),
    };
    let path = GuestPath::parse(path.as_os_str().as_bytes())?;
    Ok(tree.add_missing(path, node)?)
}
