//! Debian's kernel package, unpacked into a cache folder of the user and never installed.

use crate::system::{OwnFolder, OwnFolderError, new_folder};
use crate::text::{one_line, stderr};
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The kernel series of Debian 12, with which results are compared.
const SERIES: &str = "6.1";
/// The files of the package that a guest can need. The rest is four hundred megabytes.
const WANTED: [&str; 21] = [
    "*/vmlinuz-*",
    "*/kernel/drivers/virtio/*",
    "*/kernel/drivers/char/virtio_console.ko*",
    "*/kernel/drivers/block/virtio_blk.ko*",
    "*/modules.builtin",
    // For files of the host. Disks need overlayfs, too.
    "*/kernel/fs/fuse/fuse.ko*",
    // For disks: file systems, and the modules that they depend on or request.
    "*/kernel/fs/ext4/*",
    "*/kernel/fs/jbd2/*",
    "*/kernel/fs/mbcache.ko*",
    "*/kernel/fs/xfs/*",
    "*/kernel/fs/fat/*",
    "*/kernel/fs/isofs/*",
    "*/kernel/fs/overlayfs/*",
    "*/kernel/fs/nls/nls_cp437.ko*",
    "*/kernel/fs/nls/nls_ascii.ko*",
    "*/kernel/fs/nls/nls_iso8859-1.ko*",
    "*/kernel/fs/nls/nls_utf8.ko*",
    "*/kernel/drivers/cdrom/cdrom.ko*",
    "*/kernel/drivers/block/loop.ko*",
    "*/kernel/crypto/crc32c_generic.ko*",
    "*/kernel/lib/*crc*",
];

/// The file in an unpacked package that lists the extracted patterns. A package that an `ebb` with
/// a shorter list unpacked is fetched again.
const PARTS: &str = "parts";
/// The lock file, held by the `ebb` that fetches the package.
const LOCK: &str = "linux.lock";
/// The prefix and suffix of a folder in which a package is being unpacked.
const WORK: (&str, &str) = (".linux-image-", ".new");

/// The reason why Debian's kernel is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error("there is no folder for Debian's kernel: neither XDG_CACHE_HOME nor HOME is set")]
    NoFolder,
    #[error("the folder for Debian's kernel is not used")]
    Folder(#[from] OwnFolderError),
    #[error("cannot {what} {}", one_line(path))]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot fetch Debian's kernel: cannot run {command}")]
    Run { command: String, source: io::Error },
    #[error("cannot fetch Debian's kernel: {command} failed: {said}")]
    Failed { command: String, said: String },
    #[error("cannot fetch Debian's kernel: apt knows no package linux-image-{SERIES}.N-M-amd64")]
    Unknown,
    #[error("{} holds no kernel image; remove it, so that it is fetched again", one_line(.0))]
    Damaged(PathBuf),
}

impl CacheError {
    /// Returns a function that makes the error "cannot `what` `path`" from an I/O error.
    fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what, path, source }
    }
}

/// Returns the path of Debian's kernel image in the user's cache folder. Uses the newest package
/// there. If there is none, waits until no other `ebb` fetches one, and then fetches the newest
/// that apt knows, with a message on stderr. Fails if the cache folder is not safe to use, the
/// fetch fails, or the package has no image.
pub(crate) fn debian_kernel() -> Result<PathBuf, CacheError> {
    // `OwnFolder` ensures that only this user could write to the folder.
    let cache = OwnFolder::cache()?.ok_or(CacheError::NoFolder)?;
    let folder = cache.path().to_owned();
    if let Some(package) = newest(names(&folder)) {
        return image(&folder.join(package));
    }
    let lock = folder.join(LOCK);
    let file = cache.open_lock(LOCK);
    let file = file.map_err(CacheError::file("open", &lock))?;
    // Held until the file is closed. Another `ebb` waits here, and then finds the fetched package.
    flock(&file, FlockOperation::LockExclusive)
        .map_err(|errno| CacheError::file("lock", &lock)(errno.into()))?;
    if let Some(package) = newest(names(&folder)) {
        return image(&folder.join(package));
    }
    let fetched = fetch(&folder)?;
    drop(file);
    image(&fetched)
}

/// Downloads and unpacks the package, and returns its folder. The folder gets its final name only
/// when it is complete. Fails if a command or a file operation fails.
fn fetch(folder: &Path) -> Result<PathBuf, CacheError> {
    let package = newest_package()?;
    stderr::say(&format!(
        "ebb: fetching {package} into {}",
        one_line(folder)
    ));
    let work = Work::new(folder, &package)?;
    let mut apt = Command::new("apt-get");
    // If it runs as root, apt would warn that its sandbox user cannot write to this folder.
    apt.args(["-qq", "-o", "APT::Sandbox::User=root", "download", &package])
        .current_dir(&work.0);
    output_of(apt)?;
    let archive = first_entry(&work.0, |name| name.ends_with(".deb"))
        .ok_or_else(|| CacheError::Damaged(work.0.clone()))?;
    let root = work.0.join("root");
    fs::create_dir(&root).map_err(CacheError::file("make", &root))?;
    unpack(&archive, &root)?;
    image(&root)?;
    let parts = root.join(PARTS);
    let written = File::create_new(&parts)
        .and_then(|mut file| io::Write::write_all(&mut file, WANTED.join("\n").as_bytes()));
    written.map_err(CacheError::file("write", &parts))?;
    let target = folder.join(&package);
    remove_folder(&target)?;
    fs::rename(&root, &target).map_err(CacheError::file("make", &target))?;
    Ok(target)
}

/// A folder for unfinished work, which is removed when this is dropped.
struct Work(PathBuf);

impl Work {
    /// Makes a work folder in `folder`. Removes old ones: the caller holds the lock, so they were
    /// left by an `ebb` that was killed.
    fn new(folder: &Path, package: &str) -> Result<Self, CacheError> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let is_old = |path: &Path| {
            let name = path.file_name().and_then(OsStr::to_str);
            name.is_some_and(|name| name.starts_with(WORK.0) && name.ends_with(WORK.1))
        };
        for path in entries
            .map(|entry| entry.path())
            .filter(|path| is_old(path))
        {
            remove_folder(&path)?;
        }
        let path = new_folder(folder, &format!(".{package}"));
        path.map(Self)
            .map_err(CacheError::file("make a folder in", folder))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // If removing fails, the folder only takes space, and the next fetch removes it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes `path` and its contents. Succeeds if there is no such folder.
fn remove_folder(path: &Path) -> Result<(), CacheError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CacheError::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Extracts the wanted files of the package `archive` into `root`, by `dpkg-deb` and `tar`.
fn unpack(archive: &Path, root: &Path) -> Result<(), CacheError> {
    let mut list = Command::new("dpkg-deb");
    list.arg("--fsys-tarfile")
        .arg(archive)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let command = format!("{list:?}");
    let failed = |source| CacheError::Run {
        command: command.clone(),
        source,
    };
    let mut lister = list.spawn().map_err(failed)?;
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-C").arg(root);
    tar.args(["--no-same-owner", "--wildcards"]).args(WANTED);
    if let Some(stream) = lister.stdout.take() {
        tar.stdin(stream);
    }
    let unpacked = output_of(tar);
    let listed = lister.wait().map_err(failed)?;
    unpacked?;
    if listed.success() {
        Ok(())
    } else {
        Err(CacheError::Failed {
            command,
            said: listed.to_string(),
        })
    }
}

/// Returns the names of the packages in the cache that were unpacked with the current list of
/// files.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let whole = |path: PathBuf| {
        fs::read_to_string(path.join(PARTS)).is_ok_and(|parts| parts == WANTED.join("\n"))
    };
    entries
        .filter(|entry| whole(entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Returns the name of the newest package that apt knows. Fails with `Unknown` if there is none.
fn newest_package() -> Result<String, CacheError> {
    let mut search = Command::new("apt-cache");
    let pattern = format!(
        r"^linux-image-{}\.[0-9]+-[0-9]+-amd64$",
        SERIES.replace('.', r"\.")
    );
    search
        .args(["search", "--names-only", &pattern])
        .stdin(Stdio::null());
    let listing = output_of(search)?;
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    newest(listing.lines().filter_map(first)).ok_or(CacheError::Unknown)
}

/// Returns the newest of the `names` that are stock kernel packages, or `None` if none are.
fn newest(names: impl IntoIterator<Item = String>) -> Option<String> {
    names
        .into_iter()
        .filter_map(|name| Some((version(&name)?, name)))
        .max()
        .map(|(_, name)| name)
}

/// Returns (N, M) for `linux-image-6.1.N-M-amd64`, or `None` for any other name.
fn version(name: &str) -> Option<(u32, u32)> {
    let rest = name
        .strip_prefix("linux-image-")?
        .strip_prefix(SERIES)?
        .strip_prefix('.')?
        .strip_suffix("-amd64")?;
    let (patch, abi) = rest.split_once('-')?;
    Some((patch.parse().ok()?, abi.parse().ok()?))
}

/// Returns the path of the kernel image in an unpacked package. Fails with `Damaged` if there is
/// none.
fn image(root: &Path) -> Result<PathBuf, CacheError> {
    first_entry(&root.join("boot"), |name| name.starts_with("vmlinuz-"))
        .ok_or_else(|| CacheError::Damaged(root.to_owned()))
}

/// Returns the alphabetically first entry of `folder` whose name `fits`.
fn first_entry(folder: &Path, fits: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(&fits))
        .min()
}

/// Runs `command` and returns its stdout. Fails with the last line of its stderr if it fails.
fn output_of(mut command: Command) -> Result<String, CacheError> {
    let name = format!("{command:?}");
    let output = match command.output() {
        Ok(output) => output,
        Err(source) => {
            return Err(CacheError::Run {
                command: name,
                source,
            });
        }
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next_back().unwrap_or_default().trim();
    Err(CacheError::Failed {
        command: name,
        said: if said.is_empty() {
            output.status.to_string()
        } else {
            said.to_owned()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_is_by_number() {
        let names = [
            "kvm.json",
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-56-amd64",
            "linux-image-6.1.0-57-cloud-amd64",
            "linux-image-6.10.0-1-amd64",
            ".linux-image-6.1.0-99-amd64.new",
        ];
        assert_eq!(
            newest(names.map(str::to_owned)).as_deref(),
            Some("linux-image-6.1.0-56-amd64")
        );
        assert_eq!(newest(Vec::new()), None);
    }

    #[test]
    fn work_is_done_at_a_name_of_its_own_and_no_link_is_followed() {
        let folder = new_folder(&std::env::temp_dir(), "ebb-work").unwrap();
        let package = "linux-image-6.1.0-56-amd64";
        let victim = folder.join("victim");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("kept"), "").unwrap();
        let left = folder.join(format!(".{package}.0123456789abcdef.new"));
        fs::create_dir(&left).unwrap();
        let link = folder.join(format!(".{package}.new"));
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let work = Work::new(&folder, package).unwrap();
        assert!(!left.exists() && !link.is_symlink() && victim.join("kept").exists());
        assert!(work.0.is_dir() && work.0 != link && work.0 != left);
        let path = work.0.clone();
        drop(work);
        assert!(!path.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
