//! A program as the host has it, and how a guest runs it.

use std::path::{Path, PathBuf};

/// A program of the host.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its path on the host.
    pub(super) path: &'static str,
    /// What it needs besides its libraries; it is given the path without links.
    pub(super) files: fn(&Path) -> Vec<PathBuf>,
    /// A script of dash that calls it by `$0`; empty: it is called itself.
    pub(super) script: &'static str,
    pub(super) arguments: &'static [&'static str],
    /// What it has to print; empty: whatever it likes.
    pub(super) says: &'static str,
}

impl Program {
    /// The words of the experiments' program.
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

    /// What its guest has to be packed with: nothing where the host has not got it, which the guest tells.
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

/// The shell of scripts.
const DASH: &str = "/bin/dash";

/// A path without links, where it is on this host.
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
