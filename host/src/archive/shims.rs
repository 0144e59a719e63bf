//! Finds the program that a version manager's stand-in (shim) would run. A shim is a small program
//! in the user's `PATH` that looks at settings and then runs the program of one version.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// A manager whose shims lie in the folder `shims` beside its folder `versions`.
struct Manager {
    /// The name of the manager's folder, without a dot at its beginning.
    name: &'static str,
    /// The variable that selects versions.
    variable: &'static str,
    /// The file in the working folder or above it that selects versions.
    file: &'static str,
}

const MANAGERS: [Manager; 3] = [
    Manager {
        name: "pyenv",
        variable: "PYENV_VERSION",
        file: ".python-version",
    },
    Manager {
        name: "rbenv",
        variable: "RBENV_VERSION",
        file: ".ruby-version",
    },
    Manager {
        name: "nodenv",
        variable: "NODENV_VERSION",
        file: ".node-version",
    },
];

/// The most bytes of a file of settings that are read.
const SETTINGS_MAX: u64 = 64 << 10;

/// The kind of a program that was found in `PATH`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// It is no shim.
    Program,
    /// It is a shim that runs this program.
    Runs(PathBuf),
    /// It is a shim that leaves the choice to the folders of `PATH` behind it.
    PassedOn,
    /// It is a shim whose program is not known here.
    Unknown,
}

/// The environment in which shims decide.
pub(super) struct Settings<'a> {
    /// The working folder.
    pub(super) here: &'a Path,
    /// Returns a variable of the environment.
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
}

/// Returns what the program at `found` is. Runs no program.
pub(super) fn examine(found: &Path, settings: &Settings<'_>) -> Found {
    let (Some(folder), Some(name)) = (found.parent(), found.file_name()) else {
        return Found::Program;
    };
    if let Some(top) = top_of_shims(folder) {
        let Some(manager) = manager_of(top) else {
            return Found::Unknown;
        };
        for version in versions_of(manager, top, settings) {
            match version {
                Version::System => return Found::PassedOn,
                Version::Folder(folder) if is_executable(&folder.join(name)) => {
                    return Found::Runs(folder.join(name));
                }
                Version::Folder(_) => {}
            }
        }
        return Found::Unknown;
    }
    if !is_rustups(found, folder) {
        return Found::Program;
    }
    let program = of_rustup(folder, settings).map(|folder| folder.join(name));
    let program = program.filter(|program| is_executable(program));
    program.map_or(Found::Unknown, Found::Runs)
}

/// Returns the folder with the programs that the shims in `folder` run. Returns `None` if `folder`
/// has no shims, or if it is not known what they run.
pub(super) fn folder_behind(folder: &Path, settings: &Settings<'_>) -> Option<PathBuf> {
    if let Some(top) = top_of_shims(folder) {
        let versions = versions_of(manager_of(top)?, top, settings);
        return match versions.into_iter().next()? {
            Version::Folder(folder) => Some(folder),
            Version::System => None,
        };
    }
    is_rustups(&folder.join("rustc"), folder).then(|| of_rustup(folder, settings))?
}

/// Returns the top folder of the manager whose shims are in `folder`.
fn top_of_shims(folder: &Path) -> Option<&Path> {
    (folder.file_name() == Some(OsStr::new("shims"))).then(|| folder.parent())?
}

fn manager_of(top: &Path) -> Option<&'static Manager> {
    let name = top.file_name()?.to_str()?.trim_start_matches('.');
    MANAGERS.iter().find(|manager| manager.name == name)
}

/// A version that is selected: the folder with its programs, or the programs of the system.
enum Version {
    Folder(PathBuf),
    System,
}

/// Returns the versions that the settings select, in their order. Leaves out those that are not
/// installed.
fn versions_of(manager: &Manager, top: &Path, settings: &Settings<'_>) -> Vec<Version> {
    let selected = match (settings.variable)(manager.variable) {
        Some(text) if !text.is_empty() => text.to_string_lossy().replace(':', " "),
        _ => nearest(settings.here, manager.file)
            .or_else(|| text_of(&top.join("version")))
            .unwrap_or_else(|| "system".into()),
    };
    let lines = selected
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let versions = top.join("versions");
    let found = |name: &str| {
        if name == "system" {
            return Some(Version::System);
        }
        let name = name.strip_prefix("python-").unwrap_or(name);
        let exact = below(&versions, name).filter(|folder| folder.is_dir());
        let folder = exact.or_else(|| latest(&versions, name))?;
        Some(Version::Folder(folder.join("bin")))
    };
    lines
        .flat_map(str::split_whitespace)
        .filter_map(found)
        .collect()
}

/// Returns whether `found` in `folder` is a symbolic or hard link to the program `rustup` beside
/// it.
fn is_rustups(found: &Path, folder: &Path) -> bool {
    let rustup = folder.join("rustup");
    let identity = |path: &Path| {
        let facts = fs::metadata(path).ok()?;
        Some((facts.dev(), facts.ino()))
    };
    found != rustup && identity(found).is_some_and(|one| Some(one) == identity(&rustup))
}

/// Returns the folder with the programs of the toolchain that rustup selects. Returns `None` if the
/// toolchain is not known here. `folder` is the one with rustup's links.
fn of_rustup(folder: &Path, settings: &Settings<'_>) -> Option<PathBuf> {
    let Settings { here, variable } = *settings;
    let top = match variable("RUSTUP_HOME") {
        Some(top) => PathBuf::from(top),
        // `~/.cargo/bin` is the folder.
        None => folder.parent()?.parent()?.join(".rustup"),
    };
    let defaults = text_of(&top.join("settings.toml"))?;
    let selected = match variable("RUSTUP_TOOLCHAIN") {
        Some(text) if !text.is_empty() => text.into_string().ok()?,
        _ => overridden(&defaults, here)
            .or_else(|| Some(field(&nearest(here, "rust-toolchain.toml")?, "channel")?.to_owned()))
            .or_else(|| of_plain_file(&nearest(here, "rust-toolchain")?))
            .or_else(|| field(&defaults, "default_toolchain").map(str::to_owned))?,
    };
    let toolchains = top.join("toolchains");
    let exact = below(&toolchains, &selected).filter(|folder| folder.is_dir());
    let found = exact.or_else(|| {
        let host = format!("{selected}-x86_64-unknown-linux-gnu");
        below(&toolchains, &host).filter(|folder| folder.is_dir())
    });
    Some(found?.join("bin"))
}

/// Returns the toolchain of the longest folder above `here` among rustup's overrides.
fn overridden(settings: &str, here: &Path) -> Option<String> {
    let (_, overrides) = settings.split_once("[overrides]")?;
    let pairs = overrides.lines().filter_map(|line| {
        let (folder, toolchain) = line.split_once('=')?;
        Some((folder.trim().trim_matches(['"', '\'']), unquoted(toolchain)))
    });
    let fitting = pairs.filter(|(folder, _)| !folder.is_empty() && here.starts_with(folder));
    let longest = fitting.max_by_key(|(folder, _)| folder.len());
    longest.map(|(_, toolchain)| toolchain.to_owned())
}

/// Returns the toolchain in a file `rust-toolchain`, which has one line or the format of TOML.
fn of_plain_file(text: &str) -> Option<String> {
    let line = text.trim();
    match line.contains(['\n', '=']) {
        true => field(text, "channel").map(str::to_owned),
        false => Some(line.to_owned()).filter(|line| !line.is_empty()),
    }
}

/// Returns the value of the first line `name = "value"`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == name).then(|| unquoted(value))
    })
}

/// Returns the text between the first pair of quotes. If `text` does not begin with a quote,
/// returns all of it up to a comment.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inner = ['"', '\'']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.split(*quote).next());
    inner.unwrap_or_else(|| text.split('#').next().unwrap_or_default().trim())
}

/// Returns the text of the file `name` in `here` or the nearest folder above it that has one.
fn nearest(here: &Path, name: &str) -> Option<String> {
    here.ancestors()
        .find_map(|folder| text_of(&folder.join(name)))
}

/// Returns the text of a small regular file. Returns `None` if there is none.
fn text_of(path: &Path) -> Option<String> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(SETTINGS_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the path of the entry `name` below `folder`. Returns `None` if the name is empty or
/// leads elsewhere.
fn below(folder: &Path, name: &str) -> Option<PathBuf> {
    let is_normal = |part| matches!(part, Component::Normal(_));
    let is_below = !name.is_empty() && Path::new(name).components().all(is_normal);
    is_below.then(|| folder.join(name))
}

/// Returns the folder of the highest version that begins with `prefix` and a dot.
fn latest(versions: &Path, prefix: &str) -> Option<PathBuf> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        let parts = name.split('.').map(|part| part.parse().ok());
        parts.collect()
    };
    let names = fs::read_dir(versions).ok()?.flatten();
    let fitting = names.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let rest = name.strip_prefix(prefix)?;
        rest.starts_with('.')
            .then(|| Some((numbers(&name)?, entry.path())))?
    });
    fitting.max().map(|(_, path)| path)
}

/// Returns whether `path` is a regular file with permission to execute it.
pub(super) fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("ebb-shims-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(path.join("job/inner")).unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        fn examine(&self, shim: &Path, set: Option<(&str, &str)>) -> Found {
            let variable = |name: &str| {
                let (known, value) = set?;
                (known == name).then(|| value.into())
            };
            let here = self.0.join("job/inner");
            let settings = Settings {
                here: &here,
                variable: &variable,
            };
            if let Found::Runs(program) = examine(shim, &settings) {
                let folder = folder_behind(shim.parent().unwrap(), &settings);
                assert_eq!(folder.as_deref(), program.parent());
                return Found::Runs(program);
            }
            examine(shim, &settings)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn pyenv_runs_the_version_that_is_selected() {
        let scratch = Scratch::new("pyenv");
        let shim = scratch.write(".pyenv/shims/python", "");
        let version = |name: &str| scratch.write(&format!(".pyenv/versions/{name}/bin/python"), "");
        let (old, new) = (version("3.9.1"), version("3.11.10"));
        version("3.11.9");
        assert_eq!(scratch.examine(&shim, None), Found::PassedOn);
        scratch.write(".pyenv/version", "3.9.1\n");
        assert_eq!(scratch.examine(&shim, None), Found::Runs(old.clone()));
        scratch.write("job/.python-version", "# ours\n3.11 # newest\n");
        assert_eq!(scratch.examine(&shim, None), Found::Runs(new));
        let set = |value| scratch.examine(&shim, Some(("PYENV_VERSION", value)));
        assert_eq!(set("4.0:3.9.1"), Found::Runs(old));
        assert_eq!(set("system"), Found::PassedOn);
        assert_eq!(set("../../etc"), Found::Unknown);
        assert_eq!(set("4.0"), Found::Unknown);
        let other = scratch.write(".asdf/shims/python", "");
        assert_eq!(scratch.examine(&other, None), Found::Unknown);
        let plain = scratch.write("bin/python", "");
        assert_eq!(scratch.examine(&plain, None), Found::Program);
    }

    #[test]
    fn values_end_at_their_quotes() {
        for text in [
            "channel = \"1.88\"  # pinned",
            "channel='1.88' # not \"1.87\"",
            "channel = 1.88 # bare",
            " channel = \"1.88\" ",
        ] {
            assert_eq!(field(text, "channel"), Some("1.88"), "{text}");
        }
    }

    #[test]
    fn rustup_runs_the_toolchain_that_is_selected() {
        let scratch = Scratch::new("rustup");
        scratch.write(".cargo/bin/rustup", "");
        symlink("rustup", scratch.0.join(".cargo/bin/rustc")).unwrap();
        let shim = scratch.0.join(".cargo/bin/cargo");
        symlink("rustup", &shim).unwrap();
        assert_eq!(scratch.examine(&shim, None), Found::Unknown);
        let toolchain = |name: &str| {
            let name = format!(".rustup/toolchains/{name}-x86_64-unknown-linux-gnu/bin/cargo");
            scratch.write(&name, "")
        };
        let (stable, nightly) = (toolchain("stable"), toolchain("nightly"));
        let settings = "default_toolchain = \"stable-x86_64-unknown-linux-gnu\"\n[overrides]\n";
        scratch.write(".rustup/settings.toml", settings);
        assert_eq!(scratch.examine(&shim, None), Found::Runs(stable.clone()));
        scratch.write(
            "job/rust-toolchain.toml",
            "[toolchain]\nchannel = \"nightly\"\n",
        );
        assert_eq!(scratch.examine(&shim, None), Found::Runs(nightly));
        let job = scratch.0.join("job").display().to_string();
        scratch.write(
            ".rustup/settings.toml",
            &format!("{settings}\"{job}\" = \"stable\"\n"),
        );
        assert_eq!(scratch.examine(&shim, None), Found::Runs(stable.clone()));
        // Some installations of rustup have hard links.
        fs::remove_file(&shim).unwrap();
        fs::hard_link(scratch.0.join(".cargo/bin/rustup"), &shim).unwrap();
        assert_eq!(scratch.examine(&shim, None), Found::Runs(stable));
        let set = Some(("RUSTUP_TOOLCHAIN", "1.0"));
        assert_eq!(scratch.examine(&shim, set), Found::Unknown);
    }
}
