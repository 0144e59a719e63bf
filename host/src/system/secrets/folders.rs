//! Keeps in mind who may search the host's folders, for a short time.

use crate::system::opened::facts;
use rustix::fs::CWD;
use rustix::io::Errno;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How many folders are kept in mind.
const FOLDERS_MAX: usize = 10_000;

/// How long a folder is kept in mind: the host may change its mode.
const FRESH: Duration = Duration::from_secs(1);

/// What is known of a folder.
#[derive(Copy, Clone, Debug)]
pub(super) struct Folder {
    pub(super) owner: u32,
    /// Whether everyone may search it.
    pub(super) is_open: bool,
}

/// The folders that were looked at lately, by their real paths.
#[derive(Debug)]
pub(super) struct Folders {
    known: HashMap<Vec<u8>, Folder>,
    since: Instant,
}

impl Folders {
    pub(super) fn new() -> Self {
        Self {
            known: HashMap::new(),
            since: Instant::now(),
        }
    }

    /// Forgets all folders if the first of them was looked at [`FRESH`] ago or earlier.
    pub(super) fn refresh(&mut self) {
        if self.since.elapsed() >= FRESH {
            self.known.clear();
            self.since = Instant::now();
        }
    }

    /// Returns what is known of the folder at `path`, and looks at it if nothing is known.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn get(&mut self, path: &[u8]) -> Result<Folder, Errno> {
        if let Some(folder) = self.known.get(path) {
            return Ok(*folder);
        }
        let stat = facts(CWD, &[b"/", path].concat())?;
        let folder = Folder {
            owner: stat.stx_uid,
            is_open: stat.stx_mode & 0o001 != 0,
        };
        if self.known.len() < FOLDERS_MAX {
            self.known.insert(path.to_vec(), folder);
        }
        Ok(folder)
    }
}
