//! `--file SRC[:DEST]`: files and directories of the host for the guest's file system.

use super::admission::Named;
use super::host_file::HostFile;
use super::initramfs::{GuestPath, Initramfs, Node, PackError, Source};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Directories nest no deeper than this (a bind mount onto its own parent would never end).
const DEPTH_MAX: usize = 64;
/// Entries that one `--file` may bring in; beyond, `/` was probably not meant.
const ENTRIES_MAX: usize = 100_000;

/// Why a `--file` could not be packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("--file {0}: nothing before the `:`")]
    NoSource(String),
    #[error("--file {}: no such file or directory", .0.display())]
    Missing(PathBuf),
    #[error("--file {}: say where it goes, as in --file {}:/data", .0.display(), .0.display())]
    NoDestination(PathBuf),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is neither file, directory nor symbolic link", .0.display())]
    Kind(PathBuf),
    #[error("{} holds too much for an initramfs (over {ENTRIES_MAX} entries or {DEPTH_MAX} levels)", .0.display())]
    TooMuch(PathBuf),
    #[error("--file {} and --file {} both go to {path} in the guest", first.display(), second.display())]
    Twice {
        path: GuestPath,
        first: PathBuf,
        second: PathBuf,
    },
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Adds what each `--file` names to `tree`, and to what the user `named`.
///
/// # Errors
/// `Twice` for two of them that go to one path, where one would vanish; what cannot be read or packed.
pub(crate) fn add_all(
    tree: &mut Initramfs,
    named: &mut Named,
    arguments: &[OsString],
) -> Result<(), FileError> {
    let mut taken: BTreeMap<GuestPath, PathBuf> = BTreeMap::new();
    for argument in arguments {
        let (source, destination) = add(tree, argument)?;
        named.add(&source);
        if let Some(destination) = destination
            && let Some(other) = taken.insert(destination.clone(), source.clone())
        {
            return Err(FileError::Twice {
                path: destination,
                first: other,
                second: source,
            });
        }
    }
    Ok(())
}

/// Adds what `argument` (`SRC` or `SRC:DEST`) names; returns both, without the path of what goes into
/// the root, which all share.
fn add(tree: &mut Initramfs, argument: &OsStr) -> Result<(PathBuf, Option<GuestPath>), FileError> {
    let bytes = argument.as_bytes();
    // The last colon, since host paths with colons exist and guest paths are of the user's choice;
    // a DEST starts with a slash, so `a:b` is a file of that name.
    let colon = bytes.windows(2).rposition(|pair| pair == b":/");
    let (source, destination) = match colon {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    if source.is_empty() {
        return Err(FileError::NoSource(argument.to_string_lossy().into_owned()));
    }
    let source = Path::new(OsStr::from_bytes(source));
    // The named file itself may be a link: what it leads to is meant. Links below stay links.
    let metadata = match fs::metadata(source) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(FileError::Missing(source.to_owned()));
        }
        Err(error) => {
            return Err(FileError::Read {
                path: source.to_owned(),
                source: error,
            });
        }
    };
    let mut walk = Walk::of(source, &metadata)?;
    let destination = match destination {
        Some(b"/") if metadata.is_dir() => {
            walk.add_entries(tree, Path::new(""), None, DEPTH_MAX)?;
            return Ok((source.to_owned(), None));
        }
        Some(path) if path.ends_with(b"/") => {
            let name = source
                .file_name()
                .ok_or(FileError::NoDestination(source.to_owned()))?;
            GuestPath::parse(&[path, name.as_bytes()].concat())?
        }
        Some(path) => GuestPath::parse(path)?,
        None => default_destination(source)?,
    };
    walk.add_node(tree, Path::new(""), &destination, &metadata, DEPTH_MAX)?;
    Ok((source.to_owned(), Some(destination)))
}

/// A source keeps its path; a relative one is taken from `/`, where the program starts.
fn default_destination(source: &Path) -> Result<GuestPath, FileError> {
    if source.components().any(|part| part == Component::ParentDir) {
        return Err(FileError::NoDestination(source.to_owned()));
    }
    let absolute = Path::new("/").join(source);
    GuestPath::parse(absolute.as_os_str().as_bytes())
        .map_err(|_| FileError::NoDestination(source.to_owned()))
}

/// What one `--file` brings in.
struct Walk<'a> {
    source: &'a Path,
    /// The folder that `source` is, if it is one: files below it are opened by way of it.
    folder: Option<Arc<OwnedFd>>,
    /// Entries that may still come.
    left: usize,
}

impl<'a> Walk<'a> {
    fn of(source: &'a Path, metadata: &Metadata) -> Result<Self, FileError> {
        let open = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(source, flags, Mode::empty()).map_err(|errno| FileError::Read {
                path: source.to_owned(),
                source: errno.into(),
            })
        };
        let folder = metadata.is_dir().then(open).transpose()?;
        Ok(Self {
            source,
            folder: folder.map(Arc::new),
            left: ENTRIES_MAX,
        })
    }

    /// The path on the host of what stands at `inside`.
    fn path(&self, inside: &Path) -> PathBuf {
        if inside.as_os_str().is_empty() {
            self.source.to_owned()
        } else {
            self.source.join(inside)
        }
    }

    fn add_node(
        &mut self,
        tree: &mut Initramfs,
        inside: &Path,
        destination: &GuestPath,
        metadata: &Metadata,
        depth: usize,
    ) -> Result<(), FileError> {
        let path = self.path(inside);
        let too_much = || FileError::TooMuch(path.clone());
        self.left = self.left.checked_sub(1).ok_or_else(too_much)?;
        let failed = |error| FileError::Read {
            path: path.clone(),
            source: error,
        };
        let mode = metadata.permissions().mode();
        let kind = metadata.file_type();
        if kind.is_dir() {
            let depth = depth.checked_sub(1).ok_or_else(too_much)?;
            tree.add(destination.clone(), Node::Directory { mode })?;
            self.add_entries(tree, inside, Some(destination), depth)
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(failed)?;
            let target = target.as_os_str().as_bytes().to_vec();
            Ok(tree.add(destination.clone(), Node::Symlink { target })?)
        } else if kind.is_file() {
            let file = match &self.folder {
                Some(folder) => HostFile::below(folder, inside.to_owned(), path),
                None => HostFile::open(&path).map_err(|errno| failed(errno.into()))?,
            };
            let source = Source::Host(file);
            Ok(tree.add(destination.clone(), Node::File { mode, source })?)
        } else {
            Err(FileError::Kind(path))
        }
    }

    fn add_entries(
        &mut self,
        tree: &mut Initramfs,
        inside: &Path,
        destination: Option<&GuestPath>,
        depth: usize,
    ) -> Result<(), FileError> {
        let path = self.path(inside);
        let failed = |error| FileError::Read {
            path: path.clone(),
            source: error,
        };
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let path = match destination {
                Some(directory) => directory.join(name.as_bytes())?,
                None => GuestPath::parse(&[b"/", name.as_bytes()].concat())?,
            };
            let metadata = entry.metadata().map_err(failed)?;
            self.add_node(tree, &inside.join(&name), &path, &metadata, depth)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(tree: &Initramfs, path: &str) -> bool {
        tree.get(&GuestPath::parse(path.as_bytes()).unwrap())
            .is_some()
    }

    #[test]
    fn destinations() {
        let mut tree = Initramfs::default();
        add(&mut tree, OsStr::new("src/main.rs")).unwrap();
        add(&mut tree, OsStr::new("Cargo.toml:/etc/conf")).unwrap();
        add(&mut tree, OsStr::new("Cargo.toml:/etc/")).unwrap();
        add(&mut tree, OsStr::new("src:/all")).unwrap();
        for path in [
            "/src/main.rs",
            "/etc/conf",
            "/etc/Cargo.toml",
            "/all/qemu",
            "/all/main.rs",
        ] {
            assert!(packed(&tree, path), "{path}");
        }
    }

    #[test]
    fn no_file_takes_the_place_of_another() {
        let packed = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
            add_all(&mut Initramfs::default(), &mut Named::default(), &arguments)
        };
        packed(&["src:/", "tests:/"]).unwrap();
        packed(&["src:/all", "Cargo.toml:/all/main.rs"]).unwrap();
        for twice in [
            ["Cargo.toml:/x", "build.rs:/x"],
            ["Cargo.toml", "Cargo.toml"],
            ["Cargo.toml:/etc/", "build.rs:/etc//Cargo.toml"],
            ["src:/all", "tests:/all"],
        ] {
            let error = packed(&twice).unwrap_err();
            assert!(matches!(error, FileError::Twice { .. }), "{error}");
        }
    }

    #[test]
    fn errors_name_the_file() {
        let mut tree = Initramfs::default();
        let missing = add(&mut tree, OsStr::new("no/such:/x")).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "--file no/such: no such file or directory"
        );
        assert!(matches!(
            add(&mut tree, OsStr::new(":/x")),
            Err(FileError::NoSource(_))
        ));
        assert!(matches!(
            add(&mut tree, OsStr::new("../host")),
            Err(FileError::NoDestination(_))
        ));
        assert!(matches!(
            add(&mut tree, OsStr::new("/dev/null")),
            Err(FileError::Kind(_))
        ));
    }
}
