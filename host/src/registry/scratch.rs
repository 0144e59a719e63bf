//! A folder of a test's own.

use super::folder::Folder;
use std::path::{Path, PathBuf};

/// Removed with all that is in it when it is dropped.
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

    /// The folder of sockets in it.
    pub(crate) fn folder(&self) -> Folder {
        Folder::make(&self.0.join("ebb")).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
