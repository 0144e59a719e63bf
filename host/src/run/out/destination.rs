//! Finds and checks the destinations of `--out` on the host before the guest starts.

use crate::archive::GuestPath;
use crate::system::{FolderNames, ResolveError, ResolvedName};
use crate::text::one_line;
use rustix::fs::{self as sys, Access, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The checked destination on the host of one `--out` option, which copies a file or directory of
/// the guest.
#[derive(Debug)]
pub(super) struct Destination {
    /// The path in the guest.
    pub(super) guest: GuestPath,
    /// The directory on the host.
    pub(super) folder: OwnedFd,
    /// The name in that directory.
    pub(super) name: OsString,
    /// The path on the host, for messages.
    pub(super) path: PathBuf,
    /// The file that already has this name. `None` if there is none.
    there: Option<Stat>,
    /// Device and inode number of the directory.
    place: (u64, u64),
}

/// Parses all `arguments` of `--out`, and returns the destinations in their order. The directories
/// stay open. Nothing is created on the host.
///
/// # Errors
/// Returns a message if an argument is malformed, if a destination cannot be written or is neither
/// a regular file nor an empty directory, or if two destinations are the same or one lies in the
/// other.
pub(super) fn all(arguments: &[OsString]) -> Result<Vec<std::sync::Arc<Destination>>, String> {
    let mut all: Vec<std::sync::Arc<Destination>> = Vec::new();
    for argument in arguments {
        let shown = one_line(argument);
        let destination =
            Destination::new(argument).map_err(|why| format!("--out {shown}: {why}"))?;
        if let Some(other) = all.iter().find(|other| other.meets(&destination)) {
            return Err(format!(
                "--out {} and --out {} both go to {}",
                other.guest,
                destination.guest,
                one_line(&destination.path)
            ));
        }
        all.push(destination.into());
    }
    Ok(all)
}

impl Destination {
    /// Parses `GUESTPATH[:HOSTPATH]` and checks that the destination can be written.
    ///
    /// # Errors
    /// Returns a message if the argument is malformed or the destination cannot be written.
    fn new(argument: &OsStr) -> Result<Self, String> {
        let bytes = argument.as_bytes();
        // The first colon, because a guest path can be chosen without one.
        let colon = bytes.iter().position(|byte| *byte == b':');
        let (guest, host) = match colon {
            Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
            None => (bytes, None),
        };
        if guest.is_empty() {
            return Err("there is no path of the guest's".into());
        }
        // Relative paths start at the root, not in the folder in which the program starts.
        let guest = GuestPath::parse(&[b"/", guest].concat())
            .map_err(|_| "this is no path of a file or folder in the guest")?;
        let base = guest.as_bytes().rsplit(|byte| *byte == b'/').next();
        let base = OsStr::from_bytes(base.unwrap_or_default());
        let path = match host {
            None => PathBuf::from(base),
            Some(b"") => return Err("there is no path of the host's after the `:`".into()),
            Some(host) => {
                let path = Path::new(OsStr::from_bytes(host));
                // `folder/`, `.` and `..` name the directory that the copy goes into.
                match path.file_name() {
                    Some(_) if !host.ends_with(b"/") && !host.ends_with(b"/.") => path.to_owned(),
                    _ => path.join(base),
                }
            }
        };
        Self::at(guest, path)
    }

    fn at(guest: GuestPath, mut path: PathBuf) -> Result<Self, String> {
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let refuse = |errno: Errno| {
            format!(
                "cannot write to {}: {}",
                one_line(&parent),
                io::Error::from(errno)
            )
        };
        let place = ResolvedName::find(&path).map_err(|error| match error {
            ResolveError::Link(_) | ResolveError::File(_) => error.to_string(),
            ResolveError::Host(error) => format!("cannot write to {}: {error}", parent.display()),
        })?;
        let name = place.name.clone();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let folder = sys::openat(&place.folder, ".", flags, Mode::empty()).map_err(refuse)?;
        sys::accessat(
            &folder,
            ".",
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        )
        .map_err(refuse)?;
        let itself = sys::fstat(&folder).map_err(refuse)?;
        let there = match sys::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Some(there),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(refuse(errno)),
        };
        if place.is_linked {
            if there.is_none() {
                return Err(format!("{} leads nowhere", path.display()));
            }
            // The link's target is the destination.
            path = place.path().map_err(refuse)?;
        }
        match there.map(|there| FileType::from_raw_mode(there.st_mode)) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Directory) => {
                let flags = flags | OFlags::NOFOLLOW;
                let names = sys::openat(&folder, &name, flags, Mode::empty());
                let names = names.and_then(FolderNames::new);
                let is_empty = |mut names: FolderNames| Ok(names.peek()?.is_none());
                if !names.and_then(is_empty).unwrap_or(false) {
                    return Err(format!(
                        "{0} is a folder with something in it, which is not overwritten; {0}/ puts the copy into it",
                        one_line(&path)
                    ));
                }
            }
            Some(_) => return Err(format!("{} is neither file nor folder", one_line(&path))),
        }
        Ok(Self {
            guest,
            folder,
            name,
            path,
            there,
            place: (itself.st_dev, itself.st_ino),
        })
    }

    /// Returns whether both destinations are the same, or one lies in the other.
    fn meets(&self, other: &Self) -> bool {
        let holds = |one: &Self, other: &Self| {
            let there = one.there.map(|there| (there.st_dev, there.st_ino));
            there == Some(other.place)
        };
        (self.place == other.place && self.name == other.name)
            || holds(self, other)
            || holds(other, self)
    }

    /// Returns whether the host's directory that gets the copy belongs to another user than root.
    /// Returns `true` if it cannot be examined.
    pub(super) fn belongs_to_another(&self) -> bool {
        sys::fstat(&self.folder).map_or(true, |folder| folder.st_uid != 0)
    }

    /// Returns the permissions of the empty directory that the copy replaces. Returns `None` if the
    /// destination did not exist or was a file when the arguments were parsed.
    pub(super) fn permissions(&self) -> Option<Mode> {
        let there = self
            .there
            .filter(|there| FileType::from_raw_mode(there.st_mode) == FileType::Directory);
        there.map(|there| Mode::from_raw_mode(there.st_mode & 0o777))
    }

    /// Returns the temporary name of the copy in the destination's directory: `NAME.partial-PID`
    /// with the process number of `ebb`. `NAME` is cut so that there are at most 255 bytes.
    pub(super) fn partial_name(&self) -> OsString {
        const NAME_MAX: usize = 255;
        let end = format!(".partial-{}", std::process::id());
        let mut name = self.name.as_bytes().to_vec();
        name.truncate(NAME_MAX - end.len());
        name.extend_from_slice(end.as_bytes());
        OsString::from_vec(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ebb-out-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn arguments(&self, texts: &[&str]) -> Vec<OsString> {
            let place = self.0.to_str().expect("a plain path");
            texts
                .iter()
                .map(|text| text.replace('@', place).into())
                .collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn where_it_goes() {
        let scratch = Scratch::new("where");
        fs::create_dir(scratch.0.join("d")).expect("a folder");
        fs::write(scratch.0.join("f"), "old").expect("a file");
        std::os::unix::fs::symlink("f", scratch.0.join("l")).expect("a link");
        for (argument, guest, path) in [
            ("/a/b:@/x", "/a/b", "x"),
            ("a//b/:@/", "/a/b", "b"),
            ("/a/b:@/d/", "/a/b", "d/b"),
            ("/a/b:@/d/.", "/a/b", "d/b"),
            ("/a/b:@/d/..", "/a/b", "d/../b"),
            ("/a/b:@/d", "/a/b", "d"),
            ("/a/b:@/f", "/a/b", "f"),
            ("/a/b:@/l", "/a/b", "f"),
            ("/a/b:@/x:y", "/a/b", "x:y"),
        ] {
            let all = all(&scratch.arguments(&[argument])).expect(argument);
            assert_eq!(all[0].guest.to_string(), guest, "{argument}");
            let real = scratch.0.canonicalize().expect("it is there");
            let got = &all[0].path;
            assert!(
                *got == scratch.0.join(path) || *got == real.join(path),
                "{argument}: {got:?}"
            );
        }
    }

    #[test]
    fn a_link_of_another_user_in_a_folder_of_all_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            // Only root can make links that belong to other users.
            return;
        }
        use std::os::unix::fs::{PermissionsExt, lchown, symlink};
        let scratch = Scratch::new("shared");
        fs::write(scratch.0.join("victim"), "precious").expect("a file");
        let shared = scratch.0.join("shared");
        fs::create_dir(&shared).expect("a folder");
        let mode = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(&shared, mode).expect("its mode");
        symlink("../victim", shared.join("r")).expect("a link");
        let arguments = scratch.arguments(&["/r:@/shared/r"]);
        assert!(all(&arguments).is_ok());
        lchown(shared.join("r"), Some(20_002), None).expect("root may");
        let error = all(&arguments).expect_err("another's link");
        assert!(
            error.contains("/shared/r is a link of another user"),
            "{error}"
        );
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let scratch = Scratch::new("refused");
        fs::create_dir_all(scratch.0.join("full/x")).expect("folders");
        fs::create_dir(scratch.0.join("empty")).expect("a folder");
        std::os::unix::fs::symlink("none", scratch.0.join("broken")).expect("a link");
        for (arguments, part) in [
            (&["/a:@/full"][..], "something in it"),
            (&["/full:@/"], "something in it"),
            (&["/a:@/none/x"], "No such file"),
            (&["/a:@/broken"], "leads nowhere"),
            (&["/a:/dev/null"], "neither file nor folder"),
            (&[":@/x"], "no path of the guest's"),
            (&["/:@/x"], "no path of a file"),
            (&["/a/..:@/x"], "no path of a file"),
            (&["/a:"], "after the `:`"),
            (&["/a:@/x", "/b:@/./x"], "--out /a and --out /b both go to"),
            (&["/a:@/empty", "/b:@/empty/"], "both go to"),
            (&["/b:@/empty/x", "/a:@/empty"], "both go to"),
        ] {
            let error = all(&scratch.arguments(arguments)).expect_err(part);
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}
