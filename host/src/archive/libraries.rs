//! What a dynamic program is loaded with: its interpreter and its libraries, from where the host has them.

use super::initramfs::{GuestPath, Initramfs, Node, PackError, Source};
use lddtree::DependencyAnalyzer;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where loaders look up what is not in their own folders: glibc's, musl's.
const SEARCHED: [&str; 2] = ["/etc/ld.so.cache", "/etc/ld-musl-x86_64.path"];

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

/// Adds what `program`, a file of the host, is loaded with; what the tree has already stays.
pub(super) fn add(
    tree: &mut Initramfs,
    program: &Path,
    interpreter: &Path,
) -> Result<(), LibraryError> {
    if !interpreter.is_file() {
        return Err(LibraryError::Interpreter(interpreter.to_owned()));
    }
    // The place of the file is what `$ORIGIN` means, and is put in the place of text there.
    let real = program.canonicalize();
    if real.is_ok_and(|path| path.to_str().is_none()) {
        return Err(LibraryError::Name(program.to_owned()));
    }
    let found = DependencyAnalyzer::default()
        .analyze(program)
        .map_err(|error| LibraryError::Analysis(Box::new(error)))?;
    add_file(tree, interpreter, interpreter)?;
    // In order, so that of several that are missing it is always the same one that is told.
    let libraries: BTreeMap<_, _> = found.libraries.into_iter().collect();
    for (name, library) in libraries {
        let Some(file) = library.realpath else {
            return Err(LibraryError::Missing(name));
        };
        add_file(tree, &library.path, &file)?;
    }
    for path in SEARCHED.map(Path::new) {
        if path.is_file() {
            add_file(tree, path, path)?;
        }
    }
    Ok(())
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
