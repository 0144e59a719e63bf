//! The option `--file SRC[:/DEST]`, which packs files and directories of the host.

use super::host_file::HostFile;
use super::initramfs::{GuestPath, Initramfs, Node, PackError, Source};
use super::pack_policy::Named;
use crate::system::open_named;
use crate::system::opened::{facts, kind_of, own_path};
use crate::text::one_line;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The largest depth of directories. A bind mount onto its own parent would never end.
const DEPTH_MAX: usize = 64;
/// The largest number of entries for one `--file`. With more, the user probably did not mean it, as
/// with `/`.
const ENTRIES_MAX: usize = 100_000;

/// The reason why the files of a `--file` argument cannot be packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("--file {}: nothing before the `:`", one_line(.0))]
    NoSource(String),
    #[error("--file {}: no such file or directory", one_line(.0))]
    Missing(PathBuf),
    #[error("--file {}: say where it goes, as in --file {}:/data", one_line(.0), one_line(.0))]
    NoDestination(PathBuf),
    #[error("cannot read {}", one_line(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is neither file, directory nor symbolic link", one_line(.0))]
    Kind(PathBuf),
    #[error(
        "{} holds too much for an initramfs (over {ENTRIES_MAX} entries or {DEPTH_MAX} levels)",
        one_line(.0)
    )]
    TooMuch(PathBuf),
    #[error(
        "--file {} and --file {} both go to {path} in the guest",
        one_line(first),
        one_line(second)
    )]
    Twice {
        path: GuestPath,
        first: PathBuf,
        second: PathBuf,
    },
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Adds the files of each `--file` argument (`SRC` or `SRC:DEST`) to `tree`, and the real path of
/// each source on the host to `named`.
///
/// # Errors
/// `Twice` if two arguments have the same destination. Several folders may have the destination
/// `/`. Other errors if an argument names no source, if a destination is missing or no possible
/// path in the guest, or if a file cannot be read or packed.
pub(crate) fn add_all(
    tree: &mut Initramfs,
    named: &mut Named,
    arguments: &[OsString],
) -> Result<(), FileError> {
    let mut taken: BTreeMap<GuestPath, PathBuf> = BTreeMap::new();
    for argument in arguments {
        let (source, destination) = add(tree, named, argument)?;
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

/// Adds the files of `argument` (`SRC` or `SRC:DEST`) to `tree`, and the path of `SRC` to `named`.
/// Returns the source and the destination. The destination is `None` for the root, which several
/// arguments may share. Fails if the source is missing or cannot be read or packed.
fn add(
    tree: &mut Initramfs,
    named: &mut Named,
    argument: &OsStr,
) -> Result<(PathBuf, Option<GuestPath>), FileError> {
    let bytes = argument.as_bytes();
    // The last colon counts, because host paths may contain colons and the user chooses the guest
    // path. DEST starts with a slash, so `a:b` is a file of that name.
    let colon = bytes.windows(2).rposition(|pair| pair == b":/");
    let (source, destination) = match colon {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    if source.is_empty() {
        return Err(FileError::NoSource(argument.to_string_lossy().into_owned()));
    }
    let source = Path::new(OsStr::from_bytes(source));
    let failed = |errno: Errno| FileError::Read {
        path: source.to_owned(),
        source: errno.into(),
    };
    // The named file itself may be a link, and its target is packed. Links below it stay links.
    let top = open_named(source, OFlags::PATH).map_err(io::Error::from);
    let top = match top {
        Ok(top) => top,
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
    named.add(&top).map_err(failed)?;
    let top = TypedFile::at(top).map_err(failed)?;
    let is_folder = top.kind == FileType::Directory;
    let destination = match destination {
        Some(b"/") if is_folder => {
            let mut walk = Walk::of(source, &top);
            walk.add_entries(tree, top, Path::new(""), None, DEPTH_MAX)?;
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
    let mut walk = Walk::of(source, &top);
    walk.add_node(tree, top, Path::new(""), &destination, DEPTH_MAX)?;
    Ok((source.to_owned(), Some(destination)))
}

/// Returns the destination for a `source` without one: the same path, with `/` in front of a
/// relative one, because the program starts in `/`. Fails with `NoDestination` if the path contains
/// `..`.
fn default_destination(source: &Path) -> Result<GuestPath, FileError> {
    if source.components().any(|part| part == Component::ParentDir) {
        return Err(FileError::NoDestination(source.to_owned()));
    }
    let absolute = Path::new("/").join(source);
    GuestPath::parse(absolute.as_os_str().as_bytes())
        .map_err(|_| FileError::NoDestination(source.to_owned()))
}

/// An entry of the tree, open with `O_PATH`, with its type and mode.
struct TypedFile {
    file: Arc<OwnedFd>,
    kind: FileType,
    mode: u32,
}

impl TypedFile {
    fn at(file: OwnedFd) -> Result<Self, Errno> {
        let facts = facts(&file, b"")?;
        Ok(Self {
            file: Arc::new(file),
            kind: kind_of(&facts),
            mode: u32::from(facts.stx_mode),
        })
    }
}

/// A walk over the files of one `--file`. Each folder is opened once, relative to its parent and
/// without following links. All its entries are read through that descriptor. So a tree that
/// changes during the walk cannot lead anywhere else.
struct Walk<'a> {
    source: &'a Path,
    /// The entry at `source`. If it is a folder, files below it are opened relative to it.
    top: Arc<OwnedFd>,
    is_folder: bool,
    /// The number of entries that may still be added.
    left: usize,
    /// Called with the path of each folder after it was examined and before its names are listed.
    #[cfg(test)]
    before_listing: fn(&Path),
}

impl<'a> Walk<'a> {
    fn of(source: &'a Path, top: &TypedFile) -> Self {
        Self {
            source,
            top: Arc::clone(&top.file),
            is_folder: top.kind == FileType::Directory,
            left: ENTRIES_MAX,
            #[cfg(test)]
            before_listing: |_| {},
        }
    }

    /// Returns the host path of the entry at `inside`, a path relative to the source.
    fn path(&self, inside: &Path) -> PathBuf {
        if inside.as_os_str().is_empty() {
            self.source.to_owned()
        } else {
            self.source.join(inside)
        }
    }

    /// Adds the entry `found` at `inside`, relative to the source, to `tree` as `destination`.
    /// `depth` is the number of levels that may still follow. Fails if it cannot be read, has an
    /// unsupported type, or exceeds a limit.
    fn add_node(
        &mut self,
        tree: &mut Initramfs,
        found: TypedFile,
        inside: &Path,
        destination: &GuestPath,
        depth: usize,
    ) -> Result<(), FileError> {
        let path = self.path(inside);
        let too_much = || FileError::TooMuch(path.clone());
        self.left = self.left.checked_sub(1).ok_or_else(too_much)?;
        let failed = |errno: Errno| FileError::Read {
            path: path.clone(),
            source: errno.into(),
        };
        let mode = found.mode;
        match found.kind {
            FileType::Directory => {
                let depth = depth.checked_sub(1).ok_or_else(too_much)?;
                tree.add(destination.clone(), Node::Directory { mode })?;
                self.add_entries(tree, found, inside, Some(destination), depth)
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&*found.file, "", Vec::new());
                let target = target.map_err(failed)?.into_bytes();
                Ok(tree.add(destination.clone(), Node::Symlink { target })?)
            }
            FileType::RegularFile => {
                let file = if self.is_folder {
                    HostFile::below(&self.top, inside.to_owned(), path)
                } else {
                    HostFile::of(&self.top, &path).map_err(failed)?
                };
                let source = Source::Host(file);
                Ok(tree.add(destination.clone(), Node::File { mode, source })?)
            }
            _ => Err(FileError::Kind(path)),
        }
    }

    /// Adds the entries of `folder`, which is at `inside` relative to the source. `destination` is
    /// its path in the guest, `None` for the root. Fails as [`Self::add_node`].
    fn add_entries(
        &mut self,
        tree: &mut Initramfs,
        folder: TypedFile,
        inside: &Path,
        destination: Option<&GuestPath>,
        depth: usize,
    ) -> Result<(), FileError> {
        let path = self.path(inside);
        let failed = |errno: Errno| FileError::Read {
            path: path.clone(),
            source: errno.into(),
        };
        #[cfg(test)]
        (self.before_listing)(&path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Opens the same folder again by its descriptor.
        let open = rustix::fs::openat(CWD, own_path(&*folder.file), flags, Mode::empty());
        // One descriptor per level is enough.
        drop(folder);
        let mut names = Dir::new(open.map_err(failed)?).map_err(failed)?;
        while let Some(entry) = names.next() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let path = match destination {
                Some(directory) => directory.join(name.to_bytes())?,
                None => GuestPath::parse(&[b"/", name.to_bytes()].concat())?,
            };
            let below = inside.join(OsStr::from_bytes(name.to_bytes()));
            let found = names.fd().and_then(|folder| open_in(folder, name));
            let found = found.map_err(|errno| FileError::Read {
                path: self.path(&below),
                source: errno.into(),
            })?;
            self.add_node(tree, found, &below, &path, depth)?;
        }
        Ok(())
    }
}

/// Opens the entry `name` of `folder` with `O_PATH` and reads its type and mode. Follows no link
/// and triggers no automount. Fails as openat2(2).
fn open_in(folder: BorrowedFd<'_>, name: &CStr) -> Result<TypedFile, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve)?;
    TypedFile::at(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    fn packed(tree: &Initramfs, path: &str) -> bool {
        tree.get(&GuestPath::parse(path.as_bytes()).unwrap())
            .is_some()
    }

    #[test]
    fn destinations() {
        let mut tree = Initramfs::default();
        add(&mut tree, &mut Named::default(), OsStr::new("qemu/mod.rs")).unwrap();
        add(
            &mut tree,
            &mut Named::default(),
            OsStr::new("Cargo.toml:/etc/conf"),
        )
        .unwrap();
        add(
            &mut tree,
            &mut Named::default(),
            OsStr::new("Cargo.toml:/etc/"),
        )
        .unwrap();
        add(&mut tree, &mut Named::default(), OsStr::new("run:/all")).unwrap();
        for path in [
            "/qemu/mod.rs",
            "/etc/conf",
            "/etc/Cargo.toml",
            "/all/root",
            "/all/mod.rs",
        ] {
            assert!(packed(&tree, path), "{path}");
        }
    }

    #[test]
    fn a_folder_that_becomes_a_link_meanwhile_leads_nowhere_else() {
        let name = format!("ebb-walk-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        for made in ["tree/sub/own/in", "private/project"] {
            fs::create_dir_all(folder.join(made)).unwrap();
        }
        symlink("target", folder.join("tree/sub/own/link")).unwrap();
        fs::write(folder.join("tree/sub/file"), "text").unwrap();
        let source = folder.join("tree");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let top = rustix::fs::open(&source, flags, Mode::empty()).unwrap();
        let top = TypedFile::at(top).unwrap();
        let mut walk = Walk::of(&source, &top);
        walk.before_listing = |path| {
            if path.ends_with("tree/sub") {
                fs::rename(path, path.with_file_name("moved")).unwrap();
                symlink("../private", path).unwrap();
            }
        };
        let mut tree = Initramfs::default();
        let to = GuestPath::parse(b"/t").unwrap();
        walk.add_node(&mut tree, top, Path::new(""), &to, DEPTH_MAX)
            .unwrap();
        assert!(!packed(&tree, "/t/sub/project"));
        assert!(packed(&tree, "/t/sub/own/in"));
        let link = tree.get(&GuestPath::parse(b"/t/sub/own/link").unwrap());
        let Some(Node::Symlink { target }) = link else {
            panic!("{link:?}");
        };
        assert_eq!(target, b"target");
        // The bytes of a file are read without following the link.
        let file = tree.get(&GuestPath::parse(b"/t/sub/file").unwrap());
        let Some(Node::File {
            source: Source::Host(file),
            ..
        }) = file
        else {
            panic!("{file:?}");
        };
        assert_eq!(file.file().unwrap_err(), Errno::LOOP);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_stands_in_a_folder_is_looked_at_without_following_links() {
        let name = format!("ebb-look-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("in")).unwrap();
        symlink("in", folder.join("link")).unwrap();
        let open = fs::File::open(&folder).unwrap();
        let kind = |name: &CStr| open_in(open.as_fd(), name).map(|found| found.kind);
        assert_eq!(kind(c"in"), Ok(FileType::Directory));
        assert_eq!(kind(c"link"), Ok(FileType::Symlink));
        assert_eq!(kind(c"link/.").unwrap_err(), Errno::LOOP);
        assert_eq!(kind(c"..").unwrap_err(), Errno::XDEV);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn no_file_takes_the_place_of_another() {
        let packed = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
            add_all(&mut Initramfs::default(), &mut Named::default(), &arguments)
        };
        packed(&["qemu:/", "run:/x"]).unwrap();
        packed(&["qemu:/all", "Cargo.toml:/all/mod.rs"]).unwrap();
        for twice in [
            ["Cargo.toml:/x", "lib.rs:/x"],
            ["Cargo.toml", "Cargo.toml"],
            ["Cargo.toml:/etc/", "lib.rs:/etc//Cargo.toml"],
            ["qemu:/all", "run:/all"],
        ] {
            let error = packed(&twice).unwrap_err();
            assert!(matches!(error, FileError::Twice { .. }), "{error}");
        }
    }

    #[test]
    fn errors_name_the_file() {
        let mut tree = Initramfs::default();
        let missing = add(&mut tree, &mut Named::default(), OsStr::new("no/such:/x")).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "--file no/such: no such file or directory"
        );
        assert!(matches!(
            add(&mut tree, &mut Named::default(), OsStr::new(":/x")),
            Err(FileError::NoSource(_))
        ));
        assert!(matches!(
            add(&mut tree, &mut Named::default(), OsStr::new("../src")),
            Err(FileError::NoDestination(_))
        ));
        assert!(matches!(
            add(&mut tree, &mut Named::default(), OsStr::new("/dev/null")),
            Err(FileError::Kind(_))
        ));
    }
}
