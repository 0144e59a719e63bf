//! Opens and creates files at paths that the user named. A link of another user cannot redirect
//! them.

use super::opened::{facts, kind_of, own_path};
use crate::text::one_line;
use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Statx, fstatfs, openat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The largest number of links that are followed, as in the kernel.
const LINKS_MAX: usize = 40;

/// The reason why a path that the user named is not opened or created: a link or file of another
/// user, or an error of the host.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error(
        "{} is a link of another user in a folder that others may write to: it is not followed",
        one_line(.0)
    )]
    Link(PathBuf),
    #[error(
        "{} is a file of another user in a folder that others may write to: it is not written to",
        one_line(.0)
    )]
    File(PathBuf),
    #[error(transparent)]
    Host(#[from] io::Error),
}

impl From<Errno> for ResolveError {
    fn from(errno: Errno) -> Self {
        Self::Host(errno.into())
    }
}

impl From<ResolveError> for io::Error {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Host(error) => error,
            refused => Self::new(io::ErrorKind::PermissionDenied, refused),
        }
    }
}

/// The end of a path.
#[derive(Debug)]
enum PathEnd {
    /// A folder without a name in the path: `/`, `.` or `..`.
    Folder { folder: OwnedFd, is_linked: bool },
    /// A name in a folder.
    Name(ResolvedName),
}

/// The last name of a path after links were followed, and the open folder that contains it.
#[derive(Debug)]
pub(crate) struct ResolvedName {
    /// The folder, opened with `O_PATH`.
    pub(crate) folder: OwnedFd,
    /// The name in `folder`. It may not exist. It is no link, except for a link of `/proc` if
    /// `is_magic_link`.
    pub(crate) name: OsString,
    /// Whether the last name of the path was a link.
    pub(crate) is_linked: bool,
    /// Whether the name is a link that only the kernel can follow. `/proc/self/fd/1` leads to an
    /// open file, which may have no path.
    is_magic_link: bool,
}

impl ResolvedName {
    /// Resolves `path`, follows trusted links, and returns its last name with the folder that
    /// contains it. The last name need not exist.
    ///
    /// A link in a folder that others may write to is trusted if it belongs to this user or to
    /// root. If only the group may write to the folder, the link may also belong to the folder's
    /// owner. The kernel has the same rule for sticky folders (`fs.protected_symlinks`), where it
    /// is switched on.
    ///
    /// # Errors
    /// [`ResolveError::Link`] if a link is not trusted. As [`ResolveError::Host`]: `ENOENT` for an
    /// empty path or a missing folder, `ELOOP` for more than 40 links, `EISDIR` for `/`, and other
    /// errors of the system calls.
    pub(crate) fn find(path: &Path) -> Result<Self, ResolveError> {
        match walk(path, MagicLinks::Followed)? {
            PathEnd::Name(resolved) => Ok(resolved),
            PathEnd::Folder { folder, is_linked } => Self::of_folder(&folder, is_linked),
        }
    }

    /// Returns `folder` as a name in its parent folder. Fails with `EISDIR` for `/`, which has no
    /// name.
    fn of_folder(folder: &OwnedFd, is_linked: bool) -> Result<Self, ResolveError> {
        let path = real_path(folder)?;
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        Ok(Self {
            folder: open_folder(folder, b"..")?,
            name: name.to_owned(),
            is_linked,
            is_magic_link: false,
        })
    }

    /// Returns the absolute path of this name, whose folders are no links.
    ///
    /// # Errors
    /// If the path of the folder cannot be read from `/proc`.
    pub(crate) fn path(&self) -> Result<PathBuf, Errno> {
        Ok(real_path(&self.folder)?.join(&self.name))
    }
}

/// Whether links of `/proc` that only the kernel can resolve are followed. For example,
/// `/proc/self/fd/1` leads to an open file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum MagicLinks {
    Followed,
    Refused,
}

/// Resolves `path` one folder at a time and follows links as [`ResolvedName::find`] does. Fails
/// with `ELOOP` after [`LINKS_MAX`] links, or for a link of the kernel if `magic_links` refuses
/// them.
fn walk(path: &Path, magic_links: MagicLinks) -> Result<PathEnd, ResolveError> {
    let mut path = path.as_os_str().as_bytes().to_vec();
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    let mut folder = open_folder(CWD, b".")?;
    let mut names: VecDeque<Vec<u8>> = VecDeque::new();
    let (mut links, mut is_linked) = (0, false);
    loop {
        if path.starts_with(b"/") {
            folder = open_folder(CWD, b"/")?;
        }
        for name in path.rsplit(|byte| *byte == b'/') {
            names.push_front(name.to_vec());
        }
        // The loop ends with the path or with the next link.
        let name = loop {
            let Some(name) = names.pop_front() else {
                return Ok(PathEnd::Folder { folder, is_linked });
            };
            if matches!(name.as_slice(), b"" | b".") {
                continue;
            }
            let is_last = names.is_empty();
            let stat = match facts(&folder, &name) {
                Err(Errno::NOENT) if is_last => None,
                stat => Some(stat?),
            };
            match stat {
                Some(stat) if kind_of(&stat) == FileType::Symlink => break name,
                _ if is_last && name != b".." => {
                    return Ok(PathEnd::Name(ResolvedName {
                        folder,
                        name: OsString::from_vec(name),
                        is_linked,
                        is_magic_link: false,
                    }));
                }
                _ => folder = open_folder(&folder, &name)?,
            }
        };
        is_linked |= names.is_empty();
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        // The link is opened, because another link could replace it after the check.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = openat(&folder, name.as_slice(), flags, Mode::empty())?;
        if !is_trusted(&facts(&link, b"")?, &facts(&folder, b"")?) {
            return Err(ResolveError::Link(
                real_path(&folder)?.join(OsString::from_vec(name)),
            ));
        }
        let is_magic_link = fstatfs(&folder)?.f_type == PROC_SUPER_MAGIC;
        if is_magic_link && magic_links == MagicLinks::Refused {
            return Err(Errno::LOOP.into());
        }
        if is_magic_link && names.is_empty() {
            return Ok(PathEnd::Name(ResolvedName {
                folder,
                name: OsString::from_vec(name),
                is_linked,
                is_magic_link,
            }));
        }
        path = if is_magic_link {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            folder = openat(&folder, name.as_slice(), flags, Mode::empty())?;
            b".".to_vec()
        } else {
            rustix::fs::readlinkat(&link, "", Vec::new())?.into_bytes()
        };
    }
}

/// Opens the file at `path` with `flags` and `O_CLOEXEC`. Follows links as [`ResolvedName::find`]
/// does. Use it for reading or with `O_PATH`. The caller must use the descriptor and not the path
/// again.
///
/// # Errors
/// [`ResolveError::Link`] for an untrusted link of another user; `ENOENT` for an empty path;
/// `ELOOP` for more than 40 links, or if a link has replaced the file; the errors of openat(2).
pub(crate) fn open_named(path: &Path, flags: OFlags) -> Result<OwnedFd, ResolveError> {
    open_named_with(path, flags, MagicLinks::Followed)
}

/// Opens a file as [`open_named`] does. `magic_links` says whether links of `/proc` that only the
/// kernel can resolve are followed.
///
/// # Errors
/// As [`open_named`]; `ELOOP` for such a link of `/proc` if `magic_links` is `Refused`.
pub(crate) fn open_named_with(
    path: &Path,
    flags: OFlags,
    magic_links: MagicLinks,
) -> Result<OwnedFd, ResolveError> {
    let flags = flags | OFlags::CLOEXEC;
    let (file, is_magic_link) = match walk(path, magic_links)? {
        PathEnd::Folder { folder, .. } => (openat(&folder, ".", flags, Mode::empty())?, false),
        PathEnd::Name(resolved) => {
            let follow = if resolved.is_magic_link {
                OFlags::empty()
            } else {
                OFlags::NOFOLLOW
            };
            let file = openat(
                &resolved.folder,
                &resolved.name,
                flags | follow,
                Mode::empty(),
            )?;
            (file, resolved.is_magic_link)
        }
    };
    // With `O_PATH` the link itself is opened.
    if !is_magic_link && kind_of(&facts(&file, b"")?) == FileType::Symlink {
        return Err(Errno::LOOP.into());
    }
    Ok(file)
}

/// Creates the file at `path`, or truncates an existing regular file, and returns it open for
/// writing. Follows links as [`ResolvedName::find`] does. A new file has the mode 666 less the
/// umask.
///
/// # Errors
/// Those of [`ResolvedName::find`]; the errors of openat(2); `PermissionDenied` for an existing
/// file of another user in a folder that others may write to.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    create(path, Mode::from_raw_mode(0o666))
}

/// Creates or truncates a file as [`create_file`] does. A new file has the mode 600, because its
/// content may be a secret. An existing file keeps its mode.
///
/// # Errors
/// As [`create_file`].
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    create(path, Mode::from_raw_mode(0o600))
}

fn create(path: &Path, mode: Mode) -> io::Result<File> {
    let resolved = ResolvedName::find(path)?;
    let mut flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    if resolved.is_magic_link {
        let file = openat(
            &resolved.folder,
            &resolved.name,
            flags | OFlags::TRUNC,
            mode,
        )?;
        return Ok(file.into());
    }
    flags |= OFlags::NOFOLLOW;
    let folder = facts(&resolved.folder, b"")?;
    let check = |file: &Statx| {
        if is_trusted(file, &folder) {
            return Ok(());
        }
        Err(ResolveError::File(resolved.path()?))
    };
    // The check is made before the file is opened, so that a pipe of another user cannot block the
    // open.
    match facts(&resolved.folder, resolved.name.as_bytes()) {
        Ok(file) => check(&file)?,
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let file = openat(&resolved.folder, &resolved.name, flags, mode)?;
    let opened = facts(&file, b"")?;
    check(&opened)?;
    if kind_of(&opened) == FileType::RegularFile {
        rustix::fs::ftruncate(&file, 0)?;
    }
    Ok(file.into())
}

/// Returns whether `link`, a link or a file in `folder`, may be followed or written to.
fn is_trusted(link: &Statx, folder: &Statx) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let others_write = folder.stx_mode & 0o022 != 0;
    let all_write = folder.stx_mode & 0o002 != 0;
    let owner = link.stx_uid;
    !others_write || owner == own || owner == 0 || (!all_write && owner == folder.stx_uid)
}

fn open_folder(above: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

fn real_path(folder: &OwnedFd) -> Result<PathBuf, Errno> {
    let text = rustix::fs::readlinkat(CWD, own_path(folder), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("ebb-place-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("shared")).unwrap();
            fs::create_dir_all(path.join("home")).unwrap();
            fs::write(path.join("home/victim"), "precious").unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn mode(&self, mode: u32) {
            fs::set_permissions(self.0.join("shared"), Permissions::from_mode(mode)).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn links_of_others_in_folders_of_all_are_not_followed() {
        if !rustix::process::geteuid().is_root() {
            // Other users cannot create links that belong to this user.
            return;
        }
        let scratch = Scratch::new("others");
        let link = scratch.0.join("shared/link");
        let folder = scratch.0.join("shared/folder");
        symlink("../home/victim", &link).unwrap();
        symlink(scratch.0.join("home"), &folder).unwrap();
        symlink("shared/link", scratch.0.join("own")).unwrap();
        let ways = [link.clone(), folder.join("victim"), scratch.0.join("own")];
        let give = |uid| {
            for link in [&link, &folder] {
                lchown(link, Some(uid), Some(uid)).unwrap();
            }
        };
        lchown(scratch.0.join("shared"), Some(20_001), Some(20_001)).unwrap();
        for (mode, owner, is_followed) in [
            (0o1777, 20_002, false),
            (0o777, 20_002, false),
            (0o1777, 20_001, false),
            (0o775, 20_002, false),
            (0o775, 20_001, true),
            (0o755, 20_002, true),
            (0o1777, 0, true),
        ] {
            scratch.mode(mode);
            give(owner);
            for way in &ways {
                fs::write(scratch.0.join("home/victim"), "precious").unwrap();
                let made = create_file(way);
                assert_eq!(made.is_ok(), is_followed, "{mode:o} {owner} {way:?}");
                let left = fs::read(scratch.0.join("home/victim")).unwrap();
                assert_eq!(left.is_empty(), is_followed);
                let read = open_named(way, OFlags::RDONLY);
                assert_eq!(read.is_ok(), is_followed, "{mode:o} {owner} {way:?}");
                let looked = open_named(way, OFlags::PATH);
                assert_eq!(looked.is_ok(), is_followed, "{mode:o} {owner} {way:?}");
                if let Err(error) = read {
                    assert!(matches!(error, ResolveError::Link(_)), "{error}");
                }
                if let Err(error) = made {
                    let text = error.to_string();
                    let named = if *way == ways[1] { &folder } else { &link };
                    assert!(text.starts_with(&*named.to_string_lossy()), "{text}");
                    assert!(text.contains("link of another user"), "{text}");
                }
            }
        }
    }

    #[test]
    fn files_of_others_in_folders_of_all_are_not_written_to() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let scratch = Scratch::new("files");
        let path = scratch.0.join("shared/file");
        let pipe = scratch.0.join("shared/pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for (mode, owner, is_written) in [
            (0o1777, 20_002, false),
            (0o777, 20_002, false),
            (0o755, 20_002, true),
            (0o1777, 0, true),
        ] {
            fs::write(&path, "precious").unwrap();
            scratch.mode(mode);
            for path in [&path, &pipe] {
                lchown(path, Some(owner), Some(owner)).unwrap();
            }
            let made = create_private_file(&path);
            assert_eq!(made.is_ok(), is_written, "{mode:o} {owner}");
            assert_eq!(fs::read(&path).unwrap().is_empty(), is_written);
            if !is_written {
                let error = made.unwrap_err().to_string();
                assert!(error.contains("file of another user"), "{error}");
                assert!(create_file(&pipe).is_err());
            }
        }
    }

    #[test]
    fn private_files_are_for_their_user() {
        let scratch = Scratch::new("private");
        let mode = |name: &str| {
            fs::metadata(scratch.0.join(name))
                .unwrap()
                .permissions()
                .mode()
        };
        create_private_file(&scratch.0.join("home/new")).unwrap();
        assert_eq!(mode("home/new") & 0o777, 0o600);
        let before = mode("home/victim");
        create_private_file(&scratch.0.join("home/victim")).unwrap();
        assert_eq!(mode("home/victim"), before);
    }

    #[test]
    fn files_are_made_as_the_system_makes_them() {
        let scratch = Scratch::new("made");
        scratch.mode(0o1777);
        let at = |name: &str| scratch.0.join(name);
        symlink("../home/victim", at("shared/link")).unwrap();
        symlink("../home/new", at("shared/broken")).unwrap();
        symlink("loop", at("shared/loop")).unwrap();
        symlink("home/../shared/.", at("folder")).unwrap();
        for (name, real) in [
            ("shared/link", "home/victim"),
            ("shared/broken", "home/new"),
            ("shared/../home//./x", "home/x"),
            ("folder/y", "shared/y"),
        ] {
            let mut file = create_file(&at(name)).expect(name);
            file.write_all(name.as_bytes()).unwrap();
            assert_eq!(fs::read(at(real)).unwrap(), name.as_bytes());
        }
        for (name, errno) in [
            ("shared/loop", Errno::LOOP),
            ("home", Errno::ISDIR),
            ("folder", Errno::ISDIR),
            ("home/..", Errno::ISDIR),
            ("home/new/", Errno::NOTDIR),
            ("none/x", Errno::NOENT),
        ] {
            let error = create_file(&at(name)).expect_err(name);
            assert_eq!(Errno::from_io_error(&error), Some(errno), "{name}");
        }
        assert!(create_file(Path::new("")).is_err() && create_file(Path::new("/")).is_err());
        let path = ResolvedName::find(&at("folder")).unwrap().path().unwrap();
        assert_eq!(path, at("shared"));
    }

    #[test]
    fn what_is_named_is_opened_as_the_system_opens_it() {
        let scratch = Scratch::new("named");
        scratch.mode(0o1777);
        let at = |name: &str| scratch.0.join(name);
        symlink("../home/victim", at("shared/link")).unwrap();
        symlink("loop", at("shared/loop")).unwrap();
        symlink("home/../shared/.", at("folder")).unwrap();
        for name in ["shared/link", "folder/link", "home/victim"] {
            let file = File::from(open_named(&at(name), OFlags::RDONLY).expect(name));
            assert_eq!(io::read_to_string(file).unwrap(), "precious", "{name}");
        }
        for name in ["folder", "folder/", "home/..", "home/.", "/", "."] {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let folder = open_named(&at(name), flags).expect(name);
            let real = at(name).canonicalize().unwrap();
            assert_eq!(real_path(&folder).unwrap(), real, "{name}");
        }
        for (name, errno) in [
            ("shared/loop", Errno::LOOP),
            ("home/victim/", Errno::NOTDIR),
            ("home/none", Errno::NOENT),
            ("none/x", Errno::NOENT),
        ] {
            let error = io::Error::from(open_named(&at(name), OFlags::RDONLY).expect_err(name));
            assert_eq!(Errno::from_io_error(&error), Some(errno), "{name}");
        }
        assert!(open_named(Path::new(""), OFlags::PATH).is_err());
    }

    #[test]
    fn links_of_the_kernel_are_followed_unless_they_are_refused() {
        let scratch = Scratch::new("kernels");
        let victim = File::open(scratch.0.join("home/victim")).unwrap();
        let home = File::open(scratch.0.join("home")).unwrap();
        let below = format!("{}/victim", own_path(&home));
        for path in [own_path(&victim), below] {
            let path = Path::new(&path);
            let file = File::from(open_named(path, OFlags::RDONLY).unwrap());
            assert_eq!(io::read_to_string(file).unwrap(), "precious");
            let refused = open_named_with(path, OFlags::PATH, MagicLinks::Refused);
            let error = io::Error::from(refused.unwrap_err());
            assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP));
        }
    }

    #[test]
    fn what_is_open_is_written_to_by_its_number() {
        let (mut reader, writer) = io::pipe().unwrap();
        let writer = OwnedFd::from(writer);
        let mut file = create_file(Path::new(&own_path(&writer))).unwrap();
        drop(writer);
        file.write_all(b"text").unwrap();
        drop(file);
        let text = io::read_to_string(&mut reader).unwrap();
        assert_eq!(text, "text");
    }
}
