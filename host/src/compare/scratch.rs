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

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: PathBuf,
    /// The path of the experiments' program.
    pub(crate) workloads: PathBuf,
}

impl Scratch {
    /// Makes the folder, and finds the experiments' program: `given`, the embedded one, or the file
    /// next to `ebb`. Fails if the folder cannot be made or there is no program.
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

    /// Returns the path of the file `name` in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A lock that is held during a comparison, so that a second comparison notices that it is
/// disturbed.
#[derive(Debug)]
pub(crate) struct ComparisonLock {
    /// The locked file. Closing it frees the lock.
    _file: Option<File>,
    /// Whether another comparison is running.
    pub(crate) disturbed: bool,
}

impl ComparisonLock {
    /// Takes the lock, or records that another comparison has it. Fails if the lock file cannot be
    /// opened.
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
