//! Who may pass the host's folders.

use crate::system::opened::facts;
use rustix::fs::CWD;
use rustix::io::Errno;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Folders that are kept in mind.
const FOLDERS_MAX: usize = 10_000;

/// After this time folders are looked at again, as the host may have changed their modes.
const FRESH: Duration = Duration::from_secs(1);

/// What is known of a folder.
#[derive(Copy, Clone, Debug)]
pub(super) struct Folder {
    pub(super) owner: u32,
    /// Whether everyone may search it.
    pub(super) is_open: bool,
}

/// The folders that were looked at lately, by their real paths without the slash at the beginning.
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

    /// Forgets folders that were looked at too long ago.
    pub(super) fn refresh(&mut self) {
        if self.since.elapsed() >= FRESH {
            self.known.clear();
            self.since = Instant::now();
        }
    }

    /// Returns what is known of a folder, which is at most as old as the last [`Self::refresh`] allows.
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
