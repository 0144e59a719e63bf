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
use std::path::PathBuf;
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

/// The read-only tree that the guest sees where it has no file of its own.
#[derive(Debug)]
pub(crate) enum Root {
    /// Files of the host.
    Host(View),
    /// Files of an image.
    Image(Arc<RemoteImage>),
}

impl Root {
    /// Returns the object that answers a guest's questions. `tell` is called with a message if the
    /// process that reads an image ends.
    ///
    /// # Errors
    /// Fails if the host has no descriptor left.
    pub(in crate::run) fn source(&self, tell: Tell) -> Result<Box<dyn Answers>, Errno> {
        Ok(match self {
            Self::Host(view) => Box::new(Tree::new(view.try_clone()?)),
            Self::Image(image) => Box::new(ImageAnswers::new(image, tell)),
        })
    }

    /// Returns whether the tree is a complete root, with a `/tmp` of its own.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Host(view) => view.is_whole(),
            Self::Image(_) => true,
        }
    }

    /// Returns the image's program and its settings. Returns `None` for files of the host.
    pub(crate) fn config(&self) -> Option<&Config> {
        match self {
            Self::Host(_) => None,
            Self::Image(image) => Some(image.config()),
        }
    }

    /// Returns the guest's path of the program's working directory: the user's, or the one that the
    /// image names. Returns `/` if the guest does not see it.
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

    /// Returns the host path of the file that the guest sees at `path`. Returns `None` for an
    /// image, and if the guest sees no file there or may not read it.
    pub(crate) fn real_path_of(&mut self, path: &[u8]) -> Option<PathBuf> {
        match self {
            Self::Host(view) => view.real_path_of(path),
            Self::Image(_) => None,
        }
    }

    /// Returns the bytes of the file that the guest sees at `path`. Returns `None` if there is
    /// none, or one of more than 16 MiB.
    pub(crate) fn content(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Host(view) => content_of_host(view, path),
            Self::Image(image) => image.content(path),
        }
    }

    /// Returns whether the guest sees something at `path`.
    pub(crate) fn has(&mut self, path: &[u8]) -> bool {
        match self {
            Self::Host(view) => view.real_path_of(path).is_some(),
            Self::Image(image) => image.has(path),
        }
    }

    /// Returns the target of the symbolic link that the guest sees at `path`. Returns `None` if
    /// there is no link.
    pub(crate) fn link_at(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Host(view) => view.link_at(path),
            Self::Image(image) => image.link_at(path),
        }
    }

    /// Returns the path of the program `name` in an image. `path` is the guest's `PATH`. Returns
    /// `None` if there is no such program or no image.
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
