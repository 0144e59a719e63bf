//! Finds the program that the user's shell would run, and shows to the guest the toolchains that it
//! needs.

use super::examiner::Examiner;
use super::format::{Format, Program};
use super::host_file::HostFile;
use super::packer::Packer;
use super::shims::{self, Found, Settings};
use super::toolchain::{is_users_own, toolchain_behind, toolchains_of, toolchains_of_folder};
use crate::system::search_path_all;
use crate::text::one_line;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Packer<'_> {
    /// Returns the host's path of the program that the user's shell would run for `name`, which has
    /// no slash. Where the shell would run a version manager's shim, returns the program that the
    /// shim would run. Shows the program's toolchain to the guest. Returns `None` if the shell
    /// would find nothing, or if the guest does not follow the shell's `PATH`. If links lead to the
    /// program's folder and the guest sees only the folder itself, the path has no such links.
    ///
    /// If it is not known what a shim would run, takes the next program in `PATH` and adds a
    /// remark.
    pub(super) fn as_shell(&mut self, name: &OsStr) -> Option<PathBuf> {
        if !self.path.follows_shell() {
            return None;
        }
        let (found, unknown) = search_through_shims(name);
        if let (Some(shim), Some(found)) = (&unknown, &found) {
            self.remarks.push(format!(
                "{} runs here, and not {}: which program that runs depends on settings that the \
                 guest does not see; give the path of another program to run that",
                one_line(found),
                one_line(shim)
            ));
        }
        let found = found.or(unknown)?;
        if self.program_at(&found).is_none() {
            self.show_toolchains_of(&found);
            self.show_toolchain_of_interpreter(&found);
            return Some(self.by_seen_folder(found));
        }
        Some(found)
    }

    /// Returns the path of the program `found` by the real path of its folder, if the guest sees
    /// the program only there. Returns `found` otherwise.
    fn by_seen_folder(&mut self, found: PathBuf) -> PathBuf {
        if self.program_at(&found).is_some() {
            return found;
        }
        let real = with_real_folder(&found).filter(|real| self.program_at(real).is_some());
        real.unwrap_or(found)
    }

    /// Shows to the guest the toolchains that the folders of the user's `PATH` lead to, so that
    /// programs in the guest find the same commands. In the guest's `PATH`, a folder of shims is
    /// replaced by the folder of the programs that they run, and a folder that links lead to by its
    /// real path. A folder that the guest sees already stays, and if `python` there is a link, the
    /// toolchain that it leads to is shown. Does nothing if the guest does not follow the shell's
    /// `PATH`.
    pub(crate) fn show_toolchains_in_path(&mut self) {
        if !self.path.follows_shell() {
            return;
        }
        let here = std::env::current_dir().unwrap_or_default();
        let settings = Settings {
            here: &here,
            variable: &|name| std::env::var_os(name),
        };
        for folder in self.path.folders().to_vec() {
            if self.sees_folder(&folder) {
                if let Some(toolchain) = toolchain_behind(&folder.join("python")) {
                    (self.show)(&toolchain);
                }
                continue;
            }
            let programs = shims::folder_behind(&folder, &settings);
            let programs = programs.unwrap_or_else(|| folder.clone());
            if !programs.is_dir() {
                continue;
            }
            for toolchain in toolchains_of_folder(&programs) {
                (self.show)(&toolchain);
            }
            let real = match self.sees_folder(&programs) {
                true => None,
                false => programs.canonicalize().ok(),
            };
            // A colon in a name would make two folders of it.
            let real = real.filter(|real| !real.as_os_str().as_bytes().contains(&b':'));
            let real = real.filter(|real| self.sees_folder(real));
            self.path.replace(&folder, &real.unwrap_or(programs));
        }
    }

    /// Returns whether the guest sees a folder at `path` without packing.
    fn sees_folder(&mut self, path: &Path) -> bool {
        (self.seen)(path.as_os_str().as_bytes()).is_some_and(|seen| seen.is_dir())
    }

    /// Shows to the guest the toolchains that contain the program `path` of the host.
    pub(super) fn show_toolchains_of(&mut self, path: &Path) {
        for folder in toolchains_of(path) {
            (self.show)(&folder);
        }
    }

    /// Shows to the guest the toolchain of the interpreter of the script at `path`, which is in the
    /// user's `PATH`. Does nothing for other programs, and if other users may change the script.
    pub(super) fn show_toolchain_of_interpreter(&mut self, path: &Path) {
        if !path.canonicalize().is_ok_and(|real| is_users_own(&real)) {
            return;
        }
        let Ok(file) = HostFile::open_named(path) else {
            return;
        };
        if let Ok(Program {
            format: Format::Script { interpreter, .. },
            ..
        }) = self.examine(&file)
        {
            self.show_toolchains_of(Path::new(&interpreter));
        }
    }
}

/// Returns `path` with the real path of its folder. The file itself may be a link. Returns `None`
/// if there is no such folder.
fn with_real_folder(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?.canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

/// Returns whether the program `command[0]` of this host needs other files of the host when it
/// runs: whether it is a script, or has libraries. Returns `false` for a static program, for a
/// program that is not found or cannot be examined, and for a command of busybox that the host
/// lacks.
pub(crate) fn needs_host_files(command: &[OsString]) -> bool {
    let Some(name) = command.first() else {
        return false;
    };
    let path = match name.as_bytes().contains(&b'/') {
        true => Some(PathBuf::from(name)),
        false => search_through_shims(name).0,
    };
    let Some(file) = path.and_then(|path| HostFile::open_named(&path).ok()) else {
        return false;
    };
    let examined = file
        .file()
        .ok()
        .map(|file| Examiner::default().examine(&file));
    examined.is_some_and(|program| program.is_ok_and(|program| program.format != Format::Static))
}

/// Searches the host's `PATH` for the command `name`, which has no slash. Returns the first
/// program, or the program that a shim before it runs. Returns also the first shim whose program is
/// not known, if it comes before.
pub(super) fn search_through_shims(name: &OsStr) -> (Option<PathBuf>, Option<PathBuf>) {
    let here = std::env::current_dir().unwrap_or_default();
    let settings = Settings {
        here: &here,
        variable: &|name| std::env::var_os(name),
    };
    let mut unknown: Option<PathBuf> = None;
    for path in search_path_all(name) {
        match shims::examine(&path, &settings) {
            Found::Program => return (Some(path), unknown),
            Found::Runs(program) => return (Some(program), unknown),
            Found::PassedOn => {}
            Found::Unknown => {
                unknown.get_or_insert(path);
            }
        }
    }
    (None, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::command_path::CommandPath;
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("ebb-shell-command-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn write(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        }

        /// Returns the guest's `PATH`, and the folders that are shown, if `folder` is the user's
        /// `PATH` and the guest sees `seen`.
        fn path_of(&self, folder: &str, seen: &str) -> (OsString, Vec<PathBuf>) {
            let shown = RefCell::new(vec![self.0.join(seen)]);
            let is_seen = |path: &[u8]| {
                let path = Path::new(OsStr::from_bytes(path));
                let shown = shown.borrow();
                let real = shown.iter().any(|shown| path.starts_with(shown));
                real.then(|| path.to_owned())
            };
            let mut packer = Packer::new(Box::new(is_seen), Examiner::default());
            packer.show = Box::new(|folder| {
                shown.borrow_mut().push(folder.to_owned());
                true
            });
            packer.path = CommandPath::of_test_shell(self.0.join(folder).as_os_str());
            packer.show_toolchains_in_path();
            let path = packer.path.value(|_| true);
            drop(packer);
            (path, shown.into_inner().split_off(1))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_in_path_that_links_lead_to_is_found_by_its_real_path() {
        let scratch = Scratch::new("linked");
        scratch.write(".sdkman/candidates/java/21/bin/java");
        symlink("21", scratch.0.join(".sdkman/candidates/java/current")).unwrap();
        let (path, shown) = scratch.path_of(".sdkman/candidates/java/current/bin", "none");
        let version = scratch.0.join(".sdkman/candidates/java/21");
        assert_eq!(path, version.join("bin"));
        assert_eq!(shown, [version]);
    }

    #[test]
    fn the_interpreter_of_an_environment_that_the_guest_sees_is_shown() {
        let scratch = Scratch::new("seen");
        let python = scratch.write(".pyenv/versions/3.11/bin/python");
        scratch.write("job/.venv/pyvenv.cfg");
        fs::create_dir(scratch.0.join("job/.venv/bin")).unwrap();
        symlink(&python, scratch.0.join("job/.venv/bin/python")).unwrap();
        let (path, shown) = scratch.path_of("job/.venv/bin", "job");
        assert_eq!(path, scratch.0.join("job/.venv/bin"));
        assert_eq!(shown, [scratch.0.join(".pyenv/versions/3.11")]);
    }

    #[test]
    fn a_programs_folder_is_known_by_its_real_path() {
        let scratch = Scratch::new("folder");
        let python = scratch.write("3.11/envs/foo/bin/python3");
        symlink("python3", python.with_file_name("python")).unwrap();
        symlink("3.11/envs/foo", scratch.0.join("foo")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let found = scratch.0.join("foo/bin/python");
        for (seen, expected) in [
            ("3.11", python.with_file_name("python")),
            ("foo", found.clone()),
            ("none", found.clone()),
        ] {
            let seen = scratch.0.join(seen);
            let is_seen = |path: &[u8]| {
                let path = Path::new(OsStr::from_bytes(path));
                path.starts_with(&seen).then(|| path.to_owned())
            };
            let mut packer = Packer::new(Box::new(is_seen), Examiner::default());
            assert_eq!(packer.by_seen_folder(found.clone()), expected);
        }
    }
}
