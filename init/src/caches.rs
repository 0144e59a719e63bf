//! [`Caches`]: makes Linux drop its unused dentries and inodes.

use crate::failure::Failure;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

const DROP: &str = "/proc/sys/vm/drop_caches";
/// The value that drops cached names (dentries) and inodes, but no pages.
const NAMES: &[u8] = b"2";

/// A thread that asks Linux to drop cached names. The thread that answers a file system's requests
/// must not wait for that itself.
#[derive(Debug)]
pub(crate) struct Caches(SyncSender<()>);

impl Caches {
    /// Starts the thread. Fails if `/proc/sys/vm/drop_caches` cannot be opened.
    pub(crate) fn start() -> Result<Self, Failure> {
        let file = OpenOptions::new().write(true).open(DROP);
        let file = file.map_err(|error| Failure::new(format!("open {DROP}"), error))?;
        let (sender, wanted) = sync_channel(1);
        thread::spawn(move || {
            for () in wanted {
                // If the kernel cannot drop them, they stay cached.
                let _ = file.write_all_at(NAMES, 0);
            }
        });
        Ok(Self(sender))
    }

    /// Asks the thread to drop unused names, and does not wait for it.
    pub(crate) fn drop_names(&self) {
        // If a request is pending already, another one is not needed.
        let _ = self.0.try_send(());
    }
}
