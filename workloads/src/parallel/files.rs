//! `dup` of a descriptor, and `open` of a file by its name.

use super::{Call, Watch};
use crate::Failure;
use crate::tasks::Kind;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Number of calls in a batch.
const BATCH: u64 = 64;

/// The call `dup`: each task duplicates a descriptor of a file of its own and closes the duplicate.
pub(super) const DUP: Call = Call {
    name: "dup",
    kind: Kind::Threads,
    batch: BATCH,
    work: dup,
};

/// The call `open`: each task opens a file of its own by its name and closes it.
pub(super) const OPEN: Call = Call {
    name: "open",
    kind: Kind::Processes,
    batch: BATCH,
    work: open,
};

fn close(descriptor: libc::c_int) -> Result<(), Failure> {
    // SAFETY: the caller has just made the descriptor, and no other code has it.
    if unsafe { libc::close(descriptor) } != 0 {
        return Err(Failure::last_os("close"));
    }
    Ok(())
}

fn dup(watch: &mut Watch) -> Result<(), Failure> {
    let file = File::open("/dev/null").map_err(Failure::system("open /dev/null"))?;
    while watch.again() {
        for _ in 0..BATCH {
            // SAFETY: the call takes a number only.
            let copy = unsafe { libc::dup(file.as_raw_fd()) };
            if copy < 0 {
                return Err(Failure::last_os("dup"));
            }
            close(copy)?;
        }
    }
    Ok(())
}

/// A file that is removed when this value is dropped.
struct Own(PathBuf);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open(watch: &mut Watch) -> Result<(), Failure> {
    let path = std::env::temp_dir().join(format!("ebb-parallel-{}", std::process::id()));
    File::create(&path).map_err(Failure::system(format!("make {}", path.display())))?;
    let own = Own(path);
    let name = CString::new(own.0.clone().into_os_string().into_vec())
        .map_err(|_| Failure::Wrong("a path with a zero in it".to_owned()))?;
    while watch.again() {
        for _ in 0..BATCH {
            // SAFETY: the name is a C string.
            let file = unsafe { libc::open(name.as_ptr(), libc::O_RDWR) };
            if file < 0 {
                return Err(Failure::last_os("open a file by its name"));
            }
            close(file)?;
        }
    }
    Ok(())
}
