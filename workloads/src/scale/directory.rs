//! Part `directory`: files of one directory.

use super::call::checked;
use super::{BEFORE, Figures, Part, TIMES, time};
use crate::Failure;
use crate::clock::{monotonic_ns, ratio};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The part `directory` of the experiment `scale`: its numbers of objects and its function.
pub(super) const PART: Part = Part {
    name: "directory",
    counts: "files",
    usual: [1_000, 64_000],
    most: 200_000,
    run,
};

/// Number of bytes that are read from a directory at once, as the C library does.
const BUFFER_BYTES: usize = 32 << 10;

/// A directory that is removed with its files when this value is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(number: u64) -> Result<Figures, Failure> {
    let path = std::env::temp_dir().join(format!("ebb-scale-{}", std::process::id()));
    std::fs::create_dir_all(&path).map_err(Failure::system(format!("make {}", path.display())))?;
    let folder = Folder(path);
    let folder = &folder.0;
    for index in 0..number {
        open(&name(folder, index)?, libc::O_RDWR | libc::O_CREAT)?;
    }
    read(folder, number)?;
    let begin = monotonic_ns();
    read(folder, number)?;
    let entry = ratio(monotonic_ns() - begin, number);
    let others: Vec<_> = (0..BEFORE + TIMES)
        .map(|index| name(folder, index * 977 % number))
        .collect::<Result<_, _>>()?;
    let opened = time(|index| open(&others[index], libc::O_RDONLY))?;
    let more: Vec<_> = (0..BEFORE + TIMES)
        .map(|index| name(folder, number + index))
        .collect::<Result<_, _>>()?;
    let created = time(|index| open(&more[index], libc::O_RDWR | libc::O_CREAT))?;
    let removed = time(|index| unlink(&more[index]))?;
    Ok(vec![
        ("readdir_entry_ns", entry),
        ("open_close_by_name_ns", opened),
        ("create_close_ns", created),
        ("unlink_ns", removed),
    ])
}

fn name(folder: &Path, index: u64) -> Result<CString, Failure> {
    let path = folder.join(format!("file-{index}"));
    CString::new(path.into_os_string().into_vec())
        .map_err(|_| Failure::Wrong("a path with a zero in it".to_owned()))
}

/// Opens a file and closes it.
fn open(name: &CString, flags: libc::c_int) -> Result<(), Failure> {
    // SAFETY: the name is a C string.
    let answer = unsafe { libc::open(name.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
    checked("open a file by its name", answer.into())?;
    // SAFETY: the descriptor is new, and no other code has it.
    let answer = unsafe { libc::close(answer) };
    checked("close", answer.into()).map(drop)
}

fn unlink(name: &CString) -> Result<(), Failure> {
    // SAFETY: the name is a C string.
    let answer = unsafe { libc::unlink(name.as_ptr()) };
    checked("unlink", answer.into()).map(drop)
}

/// Reads the directory from start to end, as `readdir` does, without parsing the entries. Fails if
/// there are too few bytes for `files` files.
fn read(folder: &Path, files: u64) -> Result<(), Failure> {
    let folder = File::open(folder).map_err(Failure::system("open the directory"))?;
    let mut buffer = vec![0_u8; BUFFER_BYTES];
    let mut bytes = 0;
    loop {
        // SAFETY: the buffer is valid for the length that is passed.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                folder.as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        match checked("getdents64", answer)?.unsigned_abs() {
            0 => break,
            count => bytes += count,
        }
    }
    // An entry has 19 bytes and its NUL-terminated name, and begins at a multiple of eight.
    if bytes < files * 24 {
        return Err(Failure::Wrong(format!(
            "{bytes} bytes are too few for {files} files"
        )));
    }
    Ok(())
}
