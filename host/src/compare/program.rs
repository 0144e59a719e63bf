//! A program of the host that runs in guests.

use std::path::{Path, PathBuf};

/// A program of the host that an experiment runs in its guests: its files, its arguments and the
/// output that it must print.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its path on the host.
    pub(super) path: &'static str,
    /// Returns the files that it needs in addition to its libraries. The argument is its path
    /// without links.
    pub(super) files: fn(&Path) -> Vec<PathBuf>,
    /// A script for dash that runs the program as `$0`. If it is empty, the program runs directly.
    pub(super) script: &'static str,
    /// The program's arguments.
    pub(super) arguments: &'static [&'static str],
    /// The output that it must print. If this is empty, any output is fine.
    pub(super) says: &'static str,
}

impl Program {
    /// Returns the arguments of the experiments' program, `ebb-workloads`, that make it run this
    /// program and check its output.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec!["program".to_owned()];
        if !self.says.is_empty() {
            words.extend(["--says".to_owned(), self.says.to_owned()]);
        }
        words.push("--".to_owned());
        let real = real_path(self.path);
        if !self.script.is_empty() && real.exists() {
            words.push(real_path(DASH).display().to_string());
            words.extend(["-c", self.script].map(str::to_owned));
        }
        words.push(real.display().to_string());
        words.extend(self.arguments.iter().map(|&word| word.to_owned()));
        words
    }

    /// Returns the files of the host that the guest is packed with, the program first. Files that
    /// do not exist are left out. Returns an empty list if the host does not have the program,
    /// which the guest then reports.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let real = real_path(self.path);
        if !real.exists() {
            return Vec::new();
        }
        let mut files = (self.files)(&real);
        files.retain(|file| file.exists());
        if !self.script.is_empty() {
            files.push(real_path(DASH));
        }
        files.insert(0, real);
        files
    }
}

/// The shell that runs scripts.
const DASH: &str = "/bin/dash";

/// Returns the path without links, or `path` itself if it does not exist on this host.
fn real_path(path: &str) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    static ABSENT: Program = Program {
        path: "/no/such/program",
        files: |_| Vec::new(),
        script: "echo",
        arguments: &["x"],
        says: "",
    };

    #[test]
    fn what_the_host_has_not_got_is_called_all_the_same() {
        assert!(ABSENT.files().is_empty());
        assert_eq!(ABSENT.words(), ["program", "--", "/no/such/program", "x"]);
    }
}
