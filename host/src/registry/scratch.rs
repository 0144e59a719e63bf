//! Temporary folders for tests.

use super::folder::Folder;
use std::path::{Path, PathBuf};

/// A temporary folder for one test. Dropping it removes the folder and its content.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("ebb-test-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the folder for sockets inside of this one.
    pub(crate) fn folder(&self) -> Folder {
        Folder::make(&self.0.join("ebb")).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
