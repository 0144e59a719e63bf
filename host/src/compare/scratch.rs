//! The folder of one comparison: the program that guests run, and the files that children write.

use crate::embedded;
use crate::failure::Failure;
use crate::registry::Folder;
use crate::text::one_line;
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file name of the experiments' program, in the folder or next to the executable.
const WORKLOADS: &str = "ebb-workloads";

/// The folder of one comparison, below the folder of the user's guests. Dropping this removes the
/// folder.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: PathBuf,
    /// The path of the experiments' program.
    pub(crate) workloads: PathBuf,
}

impl Scratch {
    /// Creates the folder, after removing an old one of this process number. Finds the experiments'
    /// program: `given`, else the embedded one, which is written to the folder, else the file next
    /// to `ebb`. Fails if the folder or the program cannot be written, `given` is no file, or there
    /// is no program.
    pub(crate) fn new(given: Option<&Path>) -> Result<Self, Failure> {
        let directory = runtime_folder()?.join(format!("compare-{}", std::process::id()));
        // A process that had this number before and was killed may have left the folder.
        let _ = fs::remove_dir_all(&directory);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(|source| Failure::Write {
                path: directory.clone(),
                source,
            })?;
        let mut scratch = Self {
            workloads: directory.join(WORKLOADS),
            directory,
        };
        if let Some(path) = given {
            if !path.is_file() {
                return Err(Failure::Usage(format!(
                    "{}: no such program (--workloads, EBB_WORKLOADS)",
                    one_line(path)
                )));
            }
            path.clone_into(&mut scratch.workloads);
        } else if embedded::get().experiments.is_empty() {
            let beside = std::env::current_exe()
                .ok()
                .map(|exe| exe.with_file_name(WORKLOADS));
            scratch.workloads = beside.filter(|path| path.is_file()).ok_or_else(|| {
                Failure::Usage(
                    "this ebb was built without its experiments (EBB_SKIP_KERNEL): \
                     run `make workloads` and name the program with EBB_WORKLOADS"
                        .into(),
                )
            })?;
        } else {
            scratch.unpack().map_err(|source| Failure::Write {
                path: scratch.workloads.clone(),
                source,
            })?;
        }
        Ok(scratch)
    }

    /// Writes the embedded program to the folder.
    fn unpack(&self) -> io::Result<()> {
        fs::write(&self.workloads, embedded::get().experiments)?;
        fs::set_permissions(&self.workloads, fs::Permissions::from_mode(0o755))
    }

    /// Returns the path of the file `name` in the folder. Does not create the file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A lock of the user's comparisons, held until this is dropped. By it, a second comparison notices
/// that it is disturbed; it runs nevertheless.
#[derive(Debug)]
pub(crate) struct ComparisonLock {
    /// The locked file. Closing it frees the lock.
    _file: Option<File>,
    /// Whether another comparison is running.
    pub(crate) disturbed: bool,
}

impl ComparisonLock {
    /// Takes the lock without waiting. If it is not free, returns a value with `disturbed` that
    /// holds no lock. Fails if the lock file or its folder cannot be created or opened.
    pub(crate) fn take() -> Result<Self, Failure> {
        let path = runtime_folder()?.join("compare.lock");
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|source| Failure::Write { path, source })?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                _file: Some(file),
                disturbed: false,
            }),
            Err(_) => Ok(Self {
                _file: None,
                disturbed: true,
            }),
        }
    }
}

/// Returns the folder of the user's guests, which no other user can enter. Fails if it cannot be
/// made.
fn runtime_folder() -> Result<PathBuf, Failure> {
    match Folder::for_runs() {
        Ok(folder) => Ok(folder.path().to_owned()),
        Err(error) => Err(Failure::Usage(format!(
            "no folder for what the guests write: {error}; XDG_RUNTIME_DIR can name another"
        ))),
    }
}
