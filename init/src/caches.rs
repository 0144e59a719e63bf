//! What Linux keeps of names that nobody uses.

use crate::failure::Failure;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

const DROP: &str = "/proc/sys/vm/drop_caches";
/// Names and inodes, not pages.
const NAMES: &[u8] = b"2";

/// A thread that has Linux drop them: who answers a file system's requests must not wait for that.
#[derive(Debug)]
pub(crate) struct Caches(SyncSender<()>);

impl Caches {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self, Failure> {
        let file = OpenOptions::new().write(true).open(DROP);
        let file = file.map_err(|error| Failure::new(format!("open {DROP}"), error))?;
        let (sender, wanted) = sync_channel(1);
        thread::spawn(move || {
            for () in wanted {
                // A kernel that cannot keeps them.
                let _ = file.write_all_at(NAMES, 0);
            }
        });
        Ok(Self(sender))
    }

    /// Has names be dropped soon.
    pub(crate) fn drop_names(&self) {
        // Where one is on its way another is not needed.
        let _ = self.0.try_send(());
    }
}
