//! The folder of one comparison: the program that guests run, and what children write.

use crate::embedded;
use crate::failure::Failure;
use crate::registry::Folder;
use crate::text::one_line;
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The experiments' program, also beside the executable where it is not embedded.
const WORKLOADS: &str = "ebb-workloads";

/// A folder that goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: PathBuf,
    /// The experiments' program.
    pub(crate) workloads: PathBuf,
}

impl Scratch {
    /// Makes the folder and finds the program: `given`, the embedded one, or one beside ebb.
    pub(crate) fn new(given: Option<&Path>) -> Result<Self, Failure> {
        let directory = runtime_folder()?.join(format!("compare-{}", std::process::id()));
        // Left by a process that had this number before and was killed.
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

    fn unpack(&self) -> io::Result<()> {
        fs::write(&self.workloads, embedded::get().experiments)?;
        fs::set_permissions(&self.workloads, fs::Permissions::from_mode(0o755))
    }

    /// A file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Held while guests are compared, so that a second comparison knows that it is not alone.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The lock goes with the file.
    _file: Option<File>,
    /// Another comparison is under way.
    pub(crate) disturbed: bool,
}

impl Turn {
    /// Takes the lock, or finds it taken.
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

/// The folder of the user's guests, which nobody else can enter.
fn runtime_folder() -> Result<PathBuf, Failure> {
    match Folder::for_runs() {
        Ok(folder) => Ok(folder.path().to_owned()),
        Err(error) => Err(Failure::Usage(format!(
            "no folder for what the guests write: {error}; XDG_RUNTIME_DIR can name another"
        ))),
    }
}
