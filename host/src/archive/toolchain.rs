//! Recognizes the folder of a toolchain: a programming language's programs with the files that they
//! need beside them.

use crate::system::secrets::Homes;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The file that marks the top folder of a Python environment.
const ENVIRONMENT: &str = "pyvenv.cfg";

/// Folders in which version managers keep one folder for each version.
const VERSIONS: [&str; 6] = [
    ".pyenv/versions",
    ".rbenv/versions",
    ".nodenv/versions",
    ".nvm/versions/node",
    ".rustup/toolchains",
    "uv/python",
];

/// Folders in which version managers keep one folder for each tool, with one for each version in
/// it.
const TOOLS: [&str; 3] = [".asdf/installs", "mise/installs", ".sdkman/candidates"];

/// Entries that together mark the top folder of a toolchain: those of conda, of Go and of a JDK.
const MARKS: [&[&str]; 3] = [
    &["conda-meta"],
    &["VERSION", "pkg/tool", "bin/go"],
    &["release", "bin/java"],
];

/// Which folders count as toolchains.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kinds {
    All,
    /// All but the environments of Python. A project may have an environment in its top folder, and
    /// a link in a foreign folder must not show that project.
    Installed,
}

/// Returns the folders of the toolchains that contain the program `command`: one by its own path,
/// and if it is a link, one by the path of the file that the link leads to. The second one is never
/// a Python environment. The folders' paths have no links. Returns none for a program that does not
/// exist.
pub(super) fn toolchains_of(command: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(command).ok();
    let named = absolute.and_then(|path| {
        let folder = path.parent()?.canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    });
    let mut found: Vec<PathBuf> = Vec::new();
    found.extend(named.and_then(|path| toolchain(&path, Kinds::All)));
    if let Some(folder) = toolchain_behind(command)
        && !found.contains(&folder)
    {
        found.push(folder);
    }
    found
}

/// Returns the folder of the toolchain with the file that the link `command` leads to. Returns
/// `None` if `command` is no link, and for a Python environment.
pub(super) fn toolchain_behind(command: &Path) -> Option<PathBuf> {
    if !command.is_symlink() {
        return None;
    }
    toolchain(&command.canonicalize().ok()?, Kinds::Installed)
}

/// Returns the folders of the toolchains that the programs in `folder` belong to: as
/// [`toolchains_of`], but for the interpreter of a Python environment too, which is a link.
pub(super) fn toolchains_of_folder(folder: &Path) -> Vec<PathBuf> {
    let own = folder.canonicalize().ok();
    let own = own.and_then(|folder| toolchain(&folder.join("program"), Kinds::All));
    let mut found: Vec<PathBuf> = own.into_iter().collect();
    for more in toolchains_of(&folder.join("python")) {
        if !found.contains(&more) {
            found.push(more);
        }
    }
    found
}

/// Returns the top folder of the toolchain that contains `program`: a folder with `pyvenv.cfg` or
/// other marks, or a version of a version manager. Returns `None` if no folder of these `kinds` has
/// the program, if other users may change the folder, or if it is or contains a home folder.
fn toolchain(program: &Path, kinds: Kinds) -> Option<PathBuf> {
    static HOMES: LazyLock<Homes> = LazyLock::new(Homes::of_host);
    toolchain_beside(&HOMES, program, kinds)
}

/// Does the work of [`toolchain`] where `homes` are the home folders.
fn toolchain_beside(homes: &Homes, program: &Path, kinds: Kinds) -> Option<PathBuf> {
    let top = program.ancestors().skip(1).find(|folder| {
        let above = |count: usize| folder.ancestors().nth(count).unwrap_or(Path::new("/"));
        VERSIONS.iter().any(|place| above(1).ends_with(place))
            || TOOLS.iter().any(|place| above(2).ends_with(place))
            || (kinds == Kinds::All && folder.join(ENVIRONMENT).is_file())
            || MARKS
                .iter()
                .any(|marks| marks.iter().all(|mark| folder.join(mark).exists()))
    })?;
    // A toolchain without `pyvenv.cfg` is recognized by its folder alone.
    let mark = top.join(ENVIRONMENT);
    let is_trusted = is_users_own(top) && (!mark.exists() || is_users_own(&mark));
    // A top-level folder, or a whole home folder, is no toolchain.
    let inside = top.as_os_str().as_bytes().strip_prefix(b"/")?;
    let is_deep = top.components().count() > 2 && !homes.are_in(inside);
    (is_trusted && is_deep).then(|| top.to_owned())
}

/// Returns whether the file at `path` is no link, belongs to the user or to root, and is not
/// writable for other users.
pub(super) fn is_users_own(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    path.symlink_metadata().is_ok_and(|facts| {
        !facts.is_symlink() && [own, 0].contains(&facts.uid()) && facts.mode() & 0o022 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn toolchain(program: &Path) -> Option<PathBuf> {
        super::toolchain(program, Kinds::All)
    }

    fn scratch(name: &str) -> Scratch {
        let name = format!("ebb-toolchain-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path.canonicalize().unwrap())
    }

    fn make(scratch: &Scratch, name: &str) -> PathBuf {
        let path = scratch.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn a_toolchain_is_one_of_the_user_that_others_do_not_change() {
        let scratch = scratch("own");
        let mode = |name: &str, mode: u32| {
            let path = scratch.0.join(name);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let tool = make(&scratch, "home/venv/bin/tool");
        assert_eq!(toolchain(&tool), None);
        make(&scratch, "home/venv/pyvenv.cfg");
        assert_eq!(toolchain(&tool), Some(scratch.0.join("home/venv")));
        for others in [0o777, 0o775] {
            mode("home/venv", others);
            assert_eq!(toolchain(&tool), None);
        }
        mode("home/venv", 0o755);
        mode("home/venv/pyvenv.cfg", 0o664);
        assert_eq!(toolchain(&tool), None);
        assert_eq!(toolchain(Path::new("/usr/bin/env")), None);
    }

    #[test]
    fn a_link_shows_no_project_that_has_an_environment() {
        let scratch = scratch("project");
        let python = make(&scratch, "work/api/bin/python");
        make(&scratch, "work/api/pyvenv.cfg");
        fs::create_dir_all(scratch.0.join("foreign")).unwrap();
        let run = scratch.0.join("foreign/run");
        symlink(&python, &run).unwrap();
        assert_eq!(toolchains_of(&run), Vec::<PathBuf>::new());
        assert_eq!(toolchain_behind(&run), None);
        assert_eq!(toolchains_of(&python), [scratch.0.join("work/api")]);
    }

    #[test]
    fn no_home_folder_is_a_toolchain() {
        let scratch = scratch("home");
        let tool = make(&scratch, "all/bob/bin/tool");
        let found = |mark: &str, home: &str| {
            let mark = make(&scratch, mark);
            let mut homes = Homes::default();
            homes.add(&scratch.0.join(home));
            let found = toolchain_beside(&homes, &tool, Kinds::All);
            fs::remove_file(mark).unwrap();
            found
        };
        let (all, bob) = (scratch.0.join("all"), scratch.0.join("all/bob"));
        assert_eq!(found("all/bob/pyvenv.cfg", "all/ann"), Some(bob));
        assert_eq!(found("all/bob/pyvenv.cfg", "all/bob"), None);
        assert_eq!(found("all/pyvenv.cfg", "other"), Some(all));
        assert_eq!(found("all/pyvenv.cfg", "all/bob"), None);
    }

    #[test]
    fn versions_of_managers_are_toolchains() {
        let scratch = scratch("versions");
        for (program, top) in [
            (".pyenv/versions/3.11/bin/python", ".pyenv/versions/3.11"),
            (".nvm/versions/node/v20/bin/node", ".nvm/versions/node/v20"),
            (".asdf/installs/lua/5.4/bin/lua", ".asdf/installs/lua/5.4"),
            (".local/share/uv/python/c/bin/p", ".local/share/uv/python/c"),
            (".rustup/toolchains/s/bin/cargo", ".rustup/toolchains/s"),
        ] {
            let program = make(&scratch, &format!("home/{program}"));
            let top = scratch.0.join("home").join(top);
            assert_eq!(toolchain(&program), Some(top));
        }
    }

    #[test]
    fn an_environment_needs_the_toolchain_that_its_links_lead_to() {
        let scratch = scratch("links");
        let python = make(&scratch, ".pyenv/versions/3.11/bin/python");
        make(&scratch, "job/venv/pyvenv.cfg");
        fs::create_dir_all(scratch.0.join("job/venv/bin")).unwrap();
        let link = scratch.0.join("job/venv/bin/python");
        symlink(&python, &link).unwrap();
        let version = scratch.0.join(".pyenv/versions/3.11");
        assert_eq!(
            toolchains_of(&link),
            [scratch.0.join("job/venv"), version.clone()]
        );
        assert_eq!(toolchains_of(&python), [version]);
        assert_eq!(
            toolchains_of(&scratch.0.join("no/such")),
            Vec::<PathBuf>::new()
        );
    }
}
