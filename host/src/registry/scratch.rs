//! Temporary folders for tests.

use super::folder::Folder;
use std::path::{Path, PathBuf};

/// A temporary folder for one test. Dropping it removes the folder and its content.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the folder in the folder for temporary files. `test` and the process number make its
    /// name.
    ///
    /// # Panics
    /// If the folder exists already or cannot be created.
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("ebb-test-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Returns the path of the temporary folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Opens the folder `ebb` for sockets inside of this one. Creates it if it is missing.
    ///
    /// # Panics
    /// If it cannot be created or opened.
    pub(crate) fn folder(&self) -> Folder {
        Folder::make(&self.0.join("ebb")).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
