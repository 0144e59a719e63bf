//! What the guest's root shows: files of the host, or of an image.

use super::image::{Config, Lending, RemoteImage, Tell};
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

/// A file of more bytes is no small one.
const SMALL: u64 = 16 << 20;

/// How many folders of a `PATH` are looked into: each costs a question to the process that reads the image.
const PATH_FOLDERS_MAX: usize = 256;

/// The bytes of a small regular file of the host's, which the guest may read.
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

/// What the guest sees below its own files.
#[derive(Debug)]
pub(crate) enum Root {
    /// Of the host.
    Host(View),
    /// Of an archive.
    Image(Arc<RemoteImage>),
}

impl Root {
    /// What answers the guest. `tell` is called if it cannot go on.
    ///
    /// # Errors
    /// If the host has no descriptor left.
    pub(in crate::run) fn source(&self, tell: Tell) -> Result<Box<dyn Answers>, Errno> {
        Ok(match self {
            Self::Host(view) => Box::new(Tree::new(view.again()?)),
            Self::Image(image) => Box::new(Lending::new(image, tell)),
        })
    }

    /// Whether it is all of a root, with a `/tmp` of its own.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Host(view) => view.is_whole(),
            Self::Image(_) => true,
        }
    }

    /// What an image says of its program.
    pub(crate) fn config(&self) -> Option<&Config> {
        match self {
            Self::Host(_) => None,
            Self::Image(image) => Some(image.config()),
        }
    }

    /// Where the program begins: where the guest sees the working folder, or where the image says; else in `/`.
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

    /// The host's file that the guest sees at a path.
    pub(crate) fn real_path_of(&mut self, path: &[u8]) -> Option<PathBuf> {
        match self {
            Self::Host(view) => view.real_path_of(path),
            Self::Image(_) => None,
        }
    }

    /// The bytes of a small file that the guest sees at a path.
    pub(crate) fn content(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Host(view) => content_of_host(view, path),
            Self::Image(image) => image.content(path),
        }
    }

    /// Whether the guest sees something at a path.
    pub(crate) fn has(&mut self, path: &[u8]) -> bool {
        match self {
            Self::Host(view) => view.real_path_of(path).is_some(),
            Self::Image(image) => image.has(path),
        }
    }

    /// Where the link leads that the guest sees at a path.
    pub(crate) fn link_at(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Host(view) => view.link_at(path),
            Self::Image(image) => image.link_at(path),
        }
    }

    /// Where an image has the program of this name, as the guest would find it.
    pub(crate) fn program_of_image(&self, name: &[u8], path: &str) -> Option<Vec<u8>> {
        let Self::Image(image) = self else {
            return None;
        };
        let places = places(name, path, &self.working_folder());
        places.into_iter().find(|place| image.has_program(place))
    }
}

/// The paths at which the guest would look for a program of this name, with this `PATH` and this working folder.
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
