//! The output files of a comparison. Whether they can be written is checked before the long run as
//! far as possible. A file is written as a whole or not at all.

use crate::failure::Failure;
use crate::system::new_file;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

/// The maximum number of characters of a file's name that are used in the name of its temporary
/// file.
const PREFIX_MAX: usize = 48;

/// A file that is written when the comparison is done. Until then its contents are in no file, or
/// in a temporary one. Dropping this removes the temporary file.
#[derive(Debug)]
pub(crate) struct Output {
    /// The path as the user named it.
    path: PathBuf,
    /// How the file is written.
    mode: WriteMode,
}

/// How a file is written.
#[derive(Debug)]
enum WriteMode {
    /// To a temporary file in the same folder, which is then renamed.
    Renamed {
        file: File,
        new: PathBuf,
        target: PathBuf,
    },
    /// Directly, for a pipe or a device, which cannot be replaced.
    Direct(File),
}

impl Output {
    /// Checks that `path` can be written, and reserves `bytes` of disk space in a temporary file
    /// next to it. An existing file is not changed. A pipe or device is opened instead. Fails if
    /// `path` is a folder, the file cannot be created, or there is not enough space.
    pub(crate) fn reserve(path: &Path, bytes: u64) -> Result<Self, Failure> {
        Self::open(path, bytes).map_err(|source| Failure::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Opens the file, or a temporary file next to it, and reserves space.
    fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        // A link stays as it is; the file that it points to is replaced.
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        let kind = fs::metadata(&target).map(|data| data.file_type()).ok();
        if kind.is_some_and(|kind| kind.is_dir()) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if kind.is_some_and(|kind| !kind.is_file()) {
            let file = File::options().write(true).open(&target)?;
            return Ok(Self {
                path: path.to_owned(),
                mode: WriteMode::Direct(file),
            });
        }
        let name = target
            .file_name()
            .ok_or(io::Error::from(io::ErrorKind::InvalidFilename))?;
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let prefix: String = name.to_string_lossy().chars().take(PREFIX_MAX).collect();
        let prefix = format!(".{prefix}");
        let (file, new) = new_file(folder, &prefix, 0o666)?;
        let output = Self {
            path: path.to_owned(),
            mode: WriteMode::Renamed { file, new, target },
        };
        if let WriteMode::Renamed { file, .. } = &output.mode {
            let kept = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes.max(1));
            // On a file system that cannot reserve space, a lack of it is noticed by the write.
            if let Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) = kept {
                // Dropping `output` removes the temporary file.
                return Err(error.into());
            }
        }
        Ok(output)
    }

    /// Writes `bytes` as the whole contents and replaces an existing file. If that fails, the
    /// existing file keeps its old contents. A pipe or a device is written directly and may then
    /// have got a part.
    pub(crate) fn write(mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.put(bytes).map_err(|source| Failure::Write {
            path: self.path.clone(),
            source,
        })
    }

    /// Writes the file.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.mode {
            WriteMode::Direct(file) => file.write_all(bytes),
            WriteMode::Renamed { file, new, target } => {
                file.rewind()?;
                file.write_all(bytes)?;
                file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
                // Some file systems notice only now that they are full.
                file.sync_all()?;
                fs::rename(new, target)
            }
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let WriteMode::Renamed { new, .. } = &self.mode {
            // The file is gone already if it was renamed.
            let _ = fs::remove_file(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_replaced_whole_or_left_alone() {
        let directory = std::env::temp_dir().join(format!("ebb-output-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("report.json");
        fs::write(&path, "old and much longer").unwrap();

        let abandoned = Output::reserve(&path, 1 << 16).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        drop(abandoned);
        assert_eq!(fs::read(&path).unwrap(), b"old and much longer");

        let link = directory.join("link.json");
        symlink("report.json", &link).unwrap();
        Output::reserve(&link, 1 << 16)
            .unwrap()
            .write(b"new")
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);

        // In a folder of all users, another user may predict the process number.
        let trap = directory.join(format!(".report.json.{}.new", std::process::id()));
        symlink("link.json", &trap).unwrap();
        let other = directory.join("victim");
        fs::write(&other, "precious").unwrap();
        fs::remove_file(&link).unwrap();
        symlink("victim", &link).unwrap();
        Output::reserve(&path, 1).unwrap().write(b"newer").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"precious");
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        let long = directory.join("n".repeat(250));
        Output::reserve(&long, 1).unwrap().write(b"x").unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_refused_by_name() {
        let missing = std::env::temp_dir().join("ebb-no-such-folder/report.json");
        for path in [
            missing.as_path(),
            Path::new("/"),
            Path::new("/proc/1/report.json"),
        ] {
            let error = Output::reserve(path, 1).unwrap_err();
            assert!(
                error.to_string().contains(&path.display().to_string()),
                "{error}"
            );
        }
        let full = Output::reserve(Path::new("/dev/full"), 1).unwrap();
        assert!(
            full.write(b"x")
                .unwrap_err()
                .to_string()
                .contains("/dev/full")
        );
        assert!(Path::new("/dev/full").exists());
    }

    #[test]
    fn more_than_the_disk_has_is_refused_before_anything_runs() {
        let path = std::env::temp_dir().join(format!("ebb-huge-{}", std::process::id()));
        let error = Output::reserve(&path, 1 << 55);
        // A file system that does not reserve space may accept the file.
        if let Err(error) = error {
            assert!(error.to_string().contains("ebb-huge"), "{error}");
        }
        assert!(!path.exists());
        assert_eq!(
            fs::read_dir(std::env::temp_dir())
                .unwrap()
                .filter_map(Result::ok)
                .filter(|e| e
                    .file_name()
                    .to_string_lossy()
                    .contains(&format!("ebb-huge-{}", std::process::id())))
                .count(),
            0
        );
    }
}
