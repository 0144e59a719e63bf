//! Packs the loader and the libraries of dynamic programs. It does not run loaders. It searches the
//! folders that they would search.

use super::format::{Format, Links, Program};
use super::initramfs::{GuestPath, Node, PackError, Source};
use super::loader_paths;
use super::pack_policy::{self, AllowedFile, PackPolicyError, Use};
use super::packer::Packer;
use crate::text::one_line;
use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Files that loaders read to find libraries outside of a program's own folders.
const SEARCHED: [&str; 2] = ["/etc/ld.so.cache", loader_paths::MUSL];

/// glibc, and a library that it loads by itself when threads end.
const GLIBC: &str = "libc.so.6";
const LOADED_BY_GLIBC: &str = "libgcc_s.so.1";
/// The largest number of remarks about libraries that are not packed.
const REMARKS_MAX: usize = 10;
/// The largest number of libraries of a program.
const LIBRARIES_MAX: usize = 4096;
/// The largest number of folders that a program may name for its libraries.
const FOLDERS_MAX: usize = 256;

/// The reason why the loader or the libraries of a program cannot be packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    #[error("its interpreter {} is not on this host", one_line(.0))]
    Interpreter(PathBuf),
    #[error("its {purpose} {} may not be packed", one_line(.name))]
    Refused {
        purpose: Use,
        name: PathBuf,
        source: PackPolicyError,
    },
    #[error("its library {} is not on this host", one_line(.0))]
    Missing(String),
    #[error("it has more than {LIBRARIES_MAX} libraries")]
    TooMany,
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// The `DT_RPATH` folders that a library inherits from the files that load it, the nearest first.
#[derive(Debug)]
struct Inherited {
    folders: Vec<PathBuf>,
    above: Option<Rc<Inherited>>,
}

/// An ELF file whose libraries are to be found. `needed` has those names that no earlier file has.
struct Loading {
    needed: Vec<OsString>,
    rpath: Option<OsString>,
    runpath: Option<OsString>,
    /// The folder of the file, which replaces `$ORIGIN`.
    origin: PathBuf,
    inherited: Option<Rc<Inherited>>,
}

/// Adds to the packer's tree the loader of `program`, all libraries that it or its libraries need,
/// and the files in which loaders look libraries up. `real` is the path of `program` on the host.
///
/// # Errors
/// `Interpreter`, `Missing` or `Refused` for the first file that is not on this host or may not be
/// packed. The other files are added nevertheless. `TooMany`, for more than 4096 libraries, and
/// `Pack` end the search at once.
pub(super) fn add(
    packer: &mut Packer<'_>,
    program: &Program,
    real: &Path,
) -> Result<(), LibraryError> {
    let mut failed = None;
    let mut is_musl = false;
    if let Format::Dynamic { interpreter } = &program.format {
        let path = Path::new(interpreter);
        let name = path.file_name().unwrap_or_default();
        is_musl = name.as_bytes().starts_with(b"ld-musl");
        match packer.open_allowed(path, Use::Loader) {
            Ok(Some(loader)) => add_file(packer, path, &loader)?,
            Ok(None) => failed = Some(LibraryError::Interpreter(path.to_owned())),
            Err(source) => failed = Some(refused(Use::Loader, path, source)),
        }
    }
    let configured = loader_paths::configured(is_musl);
    let first = loader_paths::of_environment();
    let mut found: HashSet<OsString> = HashSet::new();
    let mut left = VecDeque::from([Loading::of(&program.links, real, None, &mut found)]);
    // The loop ends, because each library is handled once and their number is limited.
    while let Some(loading) = left.pop_front() {
        if found.len() > LIBRARIES_MAX {
            return Err(LibraryError::TooMany);
        }
        let inherited = loading.inherits();
        for name in &loading.needed {
            let places = loading.places(name, inherited.as_ref(), &first, &configured);
            match find(packer, &places) {
                Ok(Some((path, library))) => {
                    add_file(packer, &path, &library)?;
                    if name == GLIBC {
                        add_beside(packer, &path)?;
                    }
                    let links = &library.program.links;
                    let above = inherited.clone();
                    left.push_back(Loading::of(links, &library.real, above, &mut found));
                }
                Ok(None) => {
                    let name = name.to_string_lossy().into_owned();
                    failed = failed.or(Some(LibraryError::Missing(name)));
                }
                Err(source) => {
                    failed = failed.or(Some(refused(Use::Library, Path::new(name), source)));
                }
            }
        }
    }
    for path in SEARCHED.map(Path::new) {
        if let Ok(Some((file, _))) = packer.open(path) {
            let path = GuestPath::parse(path.as_os_str().as_bytes())?;
            let node = Node::File {
                mode: 0o644,
                source: Source::Host(file),
            };
            packer.tree.add_missing(path, node)?;
        }
    }
    failed.map_or(Ok(()), Err)
}

fn refused(purpose: Use, name: &Path, source: PackPolicyError) -> LibraryError {
    LibraryError::Refused {
        purpose,
        name: name.to_owned(),
        source,
    }
}

/// Opens the first file in `places` that is a library and may be packed, and returns it with its
/// path. Returns `None` if there is no library. Fails with the first reason if libraries exist but
/// none may be packed.
fn find(
    packer: &mut Packer<'_>,
    places: &[PathBuf],
) -> Result<Option<(PathBuf, AllowedFile)>, PackPolicyError> {
    let mut refused = None;
    for place in places {
        match packer.open_allowed(place, Use::Library) {
            Ok(Some(library)) => return Ok(Some((place.clone(), library))),
            Ok(None) => {}
            // Loaders skip a library for another machine, too.
            Err(PackPolicyError::Format { .. }) => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    refused.map_or(Ok(None), Err)
}

impl Loading {
    /// Returns the entry for the file at `real` with these `links`. Keeps only names that are not
    /// in `found`, and adds them to `found`. So all entries in the queue together have each name
    /// once.
    fn of(
        links: &Links,
        real: &Path,
        inherited: Option<Rc<Inherited>>,
        found: &mut HashSet<OsString>,
    ) -> Self {
        let new = links
            .needed
            .iter()
            .filter(|name| found.insert((*name).clone()));
        Self {
            needed: new.cloned().collect(),
            rpath: links.rpath.clone(),
            runpath: links.runpath.clone(),
            origin: real.parent().unwrap_or(Path::new("/")).to_owned(),
            inherited,
        }
    }

    /// Returns the folders that this file's libraries inherit. Returns `None` if there are none.
    fn inherits(&self) -> Option<Rc<Inherited>> {
        match (&self.runpath, &self.rpath) {
            (None, Some(rpath)) => Some(Rc::new(Inherited {
                folders: folders(rpath, &self.origin),
                above: self.inherited.clone(),
            })),
            _ => self.inherited.clone(),
        }
    }

    /// Returns the paths at which the library `name` of this file may be, in the order of the
    /// loader's search. `first` are the folders of the environment, `configured` those of the
    /// host's configuration.
    fn places(
        &self,
        name: &OsStr,
        inherited: Option<&Rc<Inherited>>,
        first: &[PathBuf],
        configured: &[PathBuf],
    ) -> Vec<PathBuf> {
        if name.as_bytes().contains(&b'/') {
            let path = PathBuf::from(name);
            return Some(path)
                .filter(|path| path.is_absolute())
                .into_iter()
                .collect();
        }
        let mut all = Vec::new();
        let runpath = self.runpath.as_ref();
        if runpath.is_none() {
            let mut next = inherited;
            while let Some(one) = next.filter(|_| all.len() < FOLDERS_MAX) {
                all.extend(one.folders.iter().cloned());
                next = one.above.as_ref();
            }
        }
        all.extend(first.iter().cloned());
        all.extend(
            runpath
                .into_iter()
                .flat_map(|path| folders(path, &self.origin)),
        );
        all.extend(configured.iter().cloned());
        all.into_iter().map(|folder| folder.join(name)).collect()
    }
}

/// Returns the real paths of the folders in `list`, a colon-separated list from an ELF file.
/// `$ORIGIN` at the start of a folder is replaced by `origin`. Relative and missing folders are
/// left out.
fn folders(list: &OsStr, origin: &Path) -> Vec<PathBuf> {
    let parts = list
        .as_bytes()
        .split(|byte| *byte == b':')
        .take(FOLDERS_MAX);
    let parts = parts.map(|part| {
        let rest = [&b"$ORIGIN"[..], b"${ORIGIN}"];
        let rest = rest.iter().find_map(|word| part.strip_prefix(*word));
        match rest {
            Some(rest) => [origin.as_os_str().as_bytes(), rest].concat(),
            None => part.to_vec(),
        }
    });
    let paths = parts.map(|part| PathBuf::from(OsString::from_vec(part)));
    let paths = paths.filter(|path| path.is_absolute());
    paths.filter_map(|path| path.canonicalize().ok()).collect()
}

/// Adds the library that glibc loads by itself, if it is in the folder of `glibc` and may be
/// packed. Fails as [`add_file`].
fn add_beside(packer: &mut Packer<'_>, glibc: &Path) -> Result<(), LibraryError> {
    let path = glibc.with_file_name(LOADED_BY_GLIBC);
    match packer.open_allowed(&path, Use::Library) {
        Ok(Some(library)) => Ok(add_file(packer, &path, &library)?),
        _ => Ok(()),
    }
}

/// Adds the loaders and libraries of the host's ELF files that are already in the tree. Leaves out
/// files that are missing or may not be packed, because a packed folder may contain programs that
/// are never run. For the first ten programs with a file that may not be packed, adds a remark to
/// `packer.remarks`.
///
/// # Errors
/// `Conflict` if a path conflicts with a packed file; `TooManyLibraries` if `ebb` cannot keep all
/// libraries open at once.
pub(super) fn add_for_files(packer: &mut Packer<'_>) -> Result<(), PackError> {
    for file in packer.tree.host_files() {
        let Ok(opened) = file.file() else { continue };
        let mut start = [0; 4];
        let read = std::os::unix::fs::FileExt::read_exact_at(&*opened, &mut start, 0);
        if read.is_err() || start != *b"\x7fELF" {
            continue;
        }
        let Ok(program) = packer.examiner.examine(&opened) else {
            continue;
        };
        let real = pack_policy::real_path(&opened).unwrap_or(file.path);
        match add(packer, &program, &real) {
            Err(LibraryError::Pack(error)) => return Err(error),
            // Perhaps no program needs it, so this is only a remark.
            Err(error @ LibraryError::Refused { .. }) if packer.remarks.len() < REMARKS_MAX => {
                let mut text = format!("{}: {error}", one_line(&real));
                let why = std::error::Error::source(&error);
                text.extend(why.map(|why| format!(": {why}")));
                packer.remarks.push(text);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds an allowed file to the tree at `path`, where the loader looks for it. Fails if `path`
/// conflicts with a packed file, or there are too many libraries.
fn add_file(packer: &mut Packer<'_>, path: &Path, allowed: &AllowedFile) -> Result<(), PackError> {
    let path = GuestPath::parse(path.as_os_str().as_bytes())?;
    let node = Node::File {
        mode: 0o755,
        source: Source::Host(allowed.file.clone()),
    };
    if packer.tree.get(&path).is_none() {
        packer.count_library()?;
    }
    packer.tree.add_missing(path, node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::examiner::Examiner;

    #[test]
    fn folders_of_a_list_are_absolute() {
        let found = folders(
            OsStr::new("$ORIGIN/../lib:rel::/usr/lib:/no/such"),
            Path::new("/usr/bin"),
        );
        assert_eq!(found, [Path::new("/usr/lib"), Path::new("/usr/lib")]);
    }

    #[test]
    fn no_more_libraries_are_held_open_than_the_limit_says() {
        let add = |left: usize| {
            let mut packer = Packer::new(Box::new(|_| None), Examiner::default());
            packer.libraries_left = left;
            let command = [OsString::from("/bin/bash")];
            packer.add_program(&command).map(drop)
        };
        add(64).unwrap();
        let error = add(1).unwrap_err();
        let text = std::error::Error::source(&error).map(ToString::to_string);
        let text = text.unwrap_or_default();
        assert!(text.contains("libraries, which ebb cannot keep"), "{text}");
    }

    #[test]
    fn a_name_is_held_once_by_all_that_wait() {
        let links = Links {
            needed: vec!["a".into(), "b".into(), "a".into()],
            ..Links::default()
        };
        let mut found = HashSet::new();
        let needed = |found: &mut HashSet<OsString>| {
            let loading = Loading::of(&links, Path::new("/usr/lib/x"), None, found);
            loading.needed.len()
        };
        assert_eq!(needed(&mut found), 2);
        assert_eq!(needed(&mut found), 0);
    }

    #[test]
    fn a_library_inherits_rpath_and_not_runpath() {
        let loading = |rpath: Option<&str>, runpath: Option<&str>| Loading {
            needed: Vec::new(),
            rpath: rpath.map(OsString::from),
            runpath: runpath.map(OsString::from),
            origin: "/".into(),
            inherited: None,
        };
        let inherits = |loading: Loading| loading.inherits().map(|one| one.folders.clone());
        let usr = Some(vec![PathBuf::from("/usr")]);
        assert_eq!(inherits(loading(Some("/usr"), None)), usr);
        assert_eq!(inherits(loading(Some("/usr"), Some("/etc"))), None);
        let places = loading(None, Some("/usr")).places(
            OsStr::new("x"),
            None,
            &["/etc".into()],
            &["/bin".into()],
        );
        assert_eq!(places, ["/etc/x", "/usr/x", "/bin/x"].map(PathBuf::from));
    }
}
