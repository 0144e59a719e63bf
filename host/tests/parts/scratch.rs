//! Temporary folders that are removed when a test ends.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder, on a tmpfs if the host has one. Dropping it removes the folder.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() {
            Self::within(shm, name)
        } else {
            Self::within(&std::env::temp_dir(), name)
        }
    }

    /// Creates a temporary folder in `base`.
    pub(crate) fn within(base: &Path, name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number only has to differ from all others.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("ebb-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder of memory can be made");
        Self(path)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the path of `name` in the folder, as text.
    pub(crate) fn path(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.to_str().expect("a plain path").to_owned()
    }

    /// Writes a file in the folder and returns its path as text.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("there is room for a small file");
        path
    }

    /// Returns the names of the entries in the folder, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.0)
            .expect("it is there")
            .map(|entry| entry.expect("readable").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that fails for another reason must not panic again here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns all files in a folder by name, with their bytes and the value that `what` computes from
/// their metadata.
pub(crate) fn contents<T>(
    at: &Path,
    what: impl Fn(&Metadata) -> T,
) -> BTreeMap<String, (T, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![at.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let metadata = path.symlink_metadata().expect("it is there");
            let content = if metadata.is_file() {
                std::fs::read(&path).expect("a file")
            } else {
                Vec::new()
            };
            let name = path.strip_prefix(at).expect("it is in there");
            let name = name.to_string_lossy().into_owned();
            found.insert(name, (what(&metadata), content));
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}
