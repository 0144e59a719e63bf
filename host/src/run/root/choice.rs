//! The tree that the guest sees as its root: files of the host, or of an image.

use super::image::{Config, ImageAnswers, RemoteImage, Tell};
use super::source::Answers;
use super::tree::{Tree, reopen};
use super::view::View;
use crate::system::opened::kind_of;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file with more bytes is not read here.
const SMALL: u64 = 16 << 20;

/// The most directories of a `PATH` that are searched. Each costs a question to the process that
/// reads the image.
const PATH_FOLDERS_MAX: usize = 256;

/// Returns the bytes of the regular file at `path`. Returns `None` if the guest may not read it, or
/// if it has more than [`SMALL`] bytes.
fn content_of_host(view: &mut View, path: &[u8]) -> Option<Vec<u8>> {
    let (file, stat) = view.look(path, true).ok()?;
    if kind_of(&stat) != FileType::RegularFile || !view.is_readable(&file, &stat).ok()? {
        return None;
    }
    let file = File::from(reopen(&file, OFlags::NONBLOCK).ok()?);
    let mut bytes = Vec::new();
    file.take(SMALL + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= SMALL).then_some(bytes)
}

/// The read-only tree of `--root` that the guest sees where it has no file of its own: files of the
/// host, or of an image.
#[derive(Debug)]
pub(crate) enum Root {
    /// Files of the host.
    Host(View),
    /// Files of an image.
    Image(Arc<RemoteImage>),
}

impl Root {
    /// Creates an object that answers one guest's questions about this tree. For an image, `tell`
    /// is called with a message for the user the first time that the process that reads the image
    /// fails.
    ///
    /// # Errors
    /// Fails if the host has no descriptor left for a duplicate of the view. Cannot fail for an
    /// image.
    pub(in crate::run) fn source(&self, tell: Tell) -> Result<Box<dyn Answers>, Errno> {
        Ok(match self {
            Self::Host(view) => Box::new(Tree::new(view.try_clone()?)),
            Self::Image(image) => Box::new(ImageAnswers::new(image, tell)),
        })
    }

    /// Returns whether the tree is a complete root with a `/tmp` of its own: an image, or all of
    /// one directory.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Host(view) => view.is_whole(),
            Self::Image(_) => true,
        }
    }

    /// Returns the program that an image names, with its environment, working directory and user.
    /// Returns `None` for files of the host.
    pub(crate) fn config(&self) -> Option<&Config> {
        match self {
            Self::Host(_) => None,
            Self::Image(image) => Some(image.config()),
        }
    }

    /// Returns the guest's absolute path of the program's working directory: that of `ebb`, or for
    /// an image the one that it names. Returns `/` if the guest does not see that of `ebb`, or if
    /// the image names none.
    pub(crate) fn working_folder(&self) -> Vec<u8> {
        let seen = match self {
            Self::Host(view) => view.path_of(&std::env::current_dir().unwrap_or_default()),
            Self::Image(image) => {
                let folder = image.config().working_folder.as_ref();
                folder.map(|folder| [b"/", folder.trim_start_matches('/').as_bytes()].concat())
            }
        };
        seen.unwrap_or_else(|| b"/".to_vec())
    }

    /// Returns the host path of the file that the guest sees at `path`, which has no slash at its
    /// beginning. Symbolic links are followed. Returns `None` for an image, and if the guest sees
    /// no file there or may not read it.
    pub(crate) fn real_path_of(&mut self, path: &[u8]) -> Option<PathBuf> {
        match self {
            Self::Host(view) => view.real_path_of(path),
            Self::Image(_) => None,
        }
    }

    /// Returns the bytes of the regular file that the guest sees at `path`, which has no slash at
    /// its beginning. Symbolic links are followed. Returns `None` if there is no such file, if it
    /// has more than 16 MiB, or if it cannot or may not be read.
    pub(crate) fn content(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Host(view) => content_of_host(view, path),
            Self::Image(image) => image.content(path),
        }
    }

    /// Returns whether the guest sees a file or directory at `path`, which has no slash at its
    /// beginning. Symbolic links are followed. Returns `false` for a regular file of the host that
    /// the guest may not read, and if the process that reads an image has failed.
    pub(crate) fn has(&mut self, path: &[u8]) -> bool {
        match self {
            Self::Host(view) => view.real_path_of(path).is_some(),
            Self::Image(image) => image.has(path),
        }
    }

    /// Shows the directory `folder` of the host, a real path, in addition. Returns whether the
    /// guest sees it then. Returns `false` for an image and for a root that is one directory.
    pub(crate) fn show(&mut self, folder: &Path) -> bool {
        match self {
            Self::Host(view) => view.show(folder),
            Self::Image(_) => false,
        }
    }

    /// Returns whether [`Self::show`] has shown a directory in `/tmp`.
    pub(crate) fn shows_below_tmp(&self) -> bool {
        match self {
            Self::Host(view) => view.shows_below(b"tmp"),
            Self::Image(_) => false,
        }
    }

    /// Returns the target of the symbolic link that the guest sees at `path`, which has no slash at
    /// its beginning. Returns `None` if there is no such link, or if it cannot be read.
    pub(crate) fn link_at(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Host(view) => view.link_at(path),
            Self::Image(image) => image.link_at(path),
        }
    }

    /// Returns the absolute path of the program `name` in an image. A name without a slash is
    /// looked for in the first 256 directories of `path`, which has the format of `PATH`. A
    /// relative name with a slash starts at the image's working directory. Returns `None` if there
    /// is no such executable file, or for files of the host.
    pub(crate) fn program_of_image(&self, name: &[u8], path: &str) -> Option<Vec<u8>> {
        let Self::Image(image) = self else {
            return None;
        };
        let places = places(name, path, &self.working_folder());
        places.into_iter().find(|place| image.has_program(place))
    }
}

/// Returns the paths at which the guest would look for the program `name`.
fn places(name: &[u8], path: &str, working_folder: &[u8]) -> Vec<Vec<u8>> {
    let rooted = |folder: &[u8]| [folder, b"/", name].concat();
    let mut places = if name.starts_with(b"/") {
        vec![name.to_vec()]
    } else if name.contains(&b'/') {
        vec![rooted(working_folder)]
    } else {
        let folders = path.split(':').take(PATH_FOLDERS_MAX);
        folders.map(|folder| rooted(folder.as_bytes())).collect()
    };
    places.retain(|place| place.starts_with(b"/"));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_in_the_first_folders_of_the_path() {
        let all = |name: &str, path: &str| places(name.as_bytes(), path, b"/srv");
        assert_eq!(all("/x", "/bin"), [b"/x"]);
        assert_eq!(all("a/x", "/bin"), [b"/srv/a/x"]);
        assert_eq!(all("x", "/bin:here:/opt"), [&b"/bin/x"[..], b"/opt/x"]);
        let long = "/l:".repeat(1_000_000);
        assert_eq!(all("x", &long).len(), PATH_FOLDERS_MAX);
    }
}
