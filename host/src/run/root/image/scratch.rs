//! Files without a name for decompressed bytes. They vanish with the processes that hold them.

use crate::system::new_file;
use crate::text::stderr;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Progress is shown only for work that takes longer.
const SILENCE: Duration = Duration::from_secs(1);

/// Returns the directory for large temporary files: the value of `TMPDIR`, or `/var/tmp` if that is
/// not set.
pub(super) fn folder() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// Creates a file without a name in the directory `folder`, for reading and writing by this user.
/// If the file system has no such files, creates one with a name and removes that name.
///
/// # Errors
/// Fails if the host cannot create a file there.
pub(super) fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(File::from(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    // The file system has no files without a name.
    let (file, path) = new_file(folder, "ebb-image", 0o600)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Shows the progress of long decompression as a line on stderr. Dropping it wipes the line.
pub(super) struct Progress {
    next: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// Creates a display of progress, and begins to measure time. Nothing is shown in the first
    /// second, and never if `quiet` or if stderr is no terminal.
    pub(super) fn new(quiet: bool) -> Self {
        let speaks = !quiet && stderr::is_terminal();
        Self {
            next: speaks.then(|| Instant::now() + SILENCE),
            shown: false,
        }
    }

    /// Shows that `done` bytes of the layer or archive `what` are decompressed. Does nothing within
    /// 200 ms of the last line.
    pub(super) fn show(&mut self, what: &str, done: u64) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now >= next) {
            stderr::show(&format!("ebb: unpacks {what}: {} MiB", done >> 20));
            self.shown = true;
            self.next = Some(now + SILENCE / 5);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            stderr::wipe();
        }
    }
}
