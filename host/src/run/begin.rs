//! Where and how the guest's program begins: its working folder, the folders that are made for it,
//! and the variables of `--env-file`.

use super::options::RunOptions;
use super::root::Root;
use super::unseen;
use super::volumes::VolumeOption;
use crate::archive::{GuestPath, Initramfs};
use crate::failure::Failure;
use crate::text::one_line;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the guest's absolute path of the folder in which the program begins: that of
/// `--workdir`, or else the one of `root`. Returns `/` without a root.
///
/// # Errors
/// Fails with a usage error if `--workdir` is a folder of the host that the guest does not see, and
/// none that `tree` has.
pub(super) fn working_folder(
    options: &RunOptions,
    root: Option<&mut Root>,
    tree: &Initramfs,
) -> Result<Vec<u8>, Failure> {
    let Some(asked) = &options.workdir else {
        return Ok(root.map_or_else(|| b"/".to_vec(), |root| root.working_folder()));
    };
    let refuse = |why: &str| Failure::Usage(format!("--workdir {}: {why}", one_line(asked)));
    // In an image and in a folder as root, a path is the guest's. Otherwise it is the host's.
    let absolute = match &root {
        Some(root) if root.is_whole() => Path::new("/").join(asked),
        _ => std::path::absolute(asked).map_err(|error| refuse(&error.to_string()))?,
    };
    let path = GuestPath::parse(absolute.as_os_str().as_bytes())
        .map_err(|error| refuse(&error.to_string()))?;
    if let Some(folder) = folder_in_volume(options, &path) {
        // The guest makes no folders in a volume for this.
        if !folder.is_dir() {
            let folder = one_line(&folder);
            return Err(refuse(&format!("the volume has no folder {folder}")));
        }
        return Ok(path.as_bytes().to_vec());
    }
    if let Some(root) = root
        && !root.is_whole()
        && tree.get(&path).is_none()
        && absolute.is_dir()
        && !root.has(&path.as_bytes()[1..])
        && !unseen::is_of_guest(&absolute)
    {
        return Err(refuse(
            "the guest does not see this folder; --volume SRC:DST shares it, --file packs it",
        ));
    }
    Ok(path.as_bytes().to_vec())
}

/// Returns the host's path of the guest's `path` in a volume: in the last one with the longest
/// destination that contains it. Returns `None` if no volume does.
fn folder_in_volume(options: &RunOptions, path: &GuestPath) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(path.as_bytes()));
    let parsed = options.volumes.iter().map(|text| VolumeOption::parse(text));
    parsed
        .flatten()
        .filter_map(|volume| {
            let below = path.strip_prefix(OsStr::from_bytes(&volume.destination));
            Some((volume.destination.len(), volume.source.join(below.ok()?)))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, folder)| folder)
}

/// Returns the folders of the guest that are created if they are missing: that of `--workdir`, and
/// the working folder and the volumes that an image names.
pub(super) fn folders_to_create(
    options: &RunOptions,
    root: Option<&mut Root>,
    begin: &[u8],
) -> Vec<Vec<u8>> {
    let config = root.as_deref().and_then(Root::config);
    let mut folders = Vec::new();
    if options.workdir.is_some() || config.is_some_and(|config| config.working_folder.is_some()) {
        folders.push(begin.to_vec());
    }
    let volumes = config.iter().flat_map(|config| &config.volumes);
    folders.extend(volumes.map(|volume| volume.as_bytes().to_vec()));
    folders
}

/// Puts the variables of the `--env-file` options before those of `--env`. Empty lines and lines
/// that begin with `#` are left out, and so are names without a value that are not set on the host.
///
/// # Errors
/// Fails with a usage error if a file cannot be read or has more than 1 MiB.
pub(super) fn add_env_files(options: &mut RunOptions) -> Result<(), Failure> {
    const MOST: u64 = 1 << 20;
    let mut settings = Vec::new();
    for path in &options.env_files {
        let refuse = |why: String| Failure::Usage(format!("--env-file {}: {why}", one_line(path)));
        let file = std::fs::File::open(path).map_err(|error| refuse(error.to_string()))?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, MOST + 1), &mut bytes)
            .map_err(|error| refuse(error.to_string()))?;
        if bytes.len() as u64 > MOST {
            return Err(refuse("it has more than 1 MiB".into()));
        }
        for line in bytes.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start();
            let setting = OsStr::from_bytes(line);
            let is_set = line.contains(&b'=') || std::env::var_os(setting).is_some();
            if !line.is_empty() && !line.starts_with(b"#") && is_set {
                settings.push(setting.to_owned());
            }
        }
    }
    options.env.splice(0..0, settings);
    Ok(())
}
