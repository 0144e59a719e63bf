//! What every Linux program finds: `/proc`, `/sys`, `/dev`; and the end of the machine.

use crate::Failure;
use rustix::fs::{Mode, symlink};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use std::convert::Infallible;
use std::ffi::CString;
use std::time::Duration;

/// Where, what, and with which options.
const MOUNTS: [(&str, &str, &str); 5] = [
    ("/proc", "proc", ""),
    ("/sys", "sysfs", ""),
    ("/dev", "devtmpfs", "mode=0755"),
    ("/dev/pts", "devpts", "mode=0620,ptmxmode=0666"),
    ("/dev/shm", "tmpfs", "mode=1777"),
];
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts the kernel's file systems.
pub(crate) fn mount_all() -> Result<(), Failure> {
    for (path, kind, options) in MOUNTS {
        match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Failure::new(format!("make {path}"), errno)),
        }
        let options = CString::new(options).unwrap_or_default();
        mount(kind, path, kind, MountFlags::NOSUID, options.as_c_str())
            .map_err(|errno| Failure::new(format!("mount {path}"), errno))?;
    }
    for (target, path) in LINKS {
        match symlink(target, path) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Failure::new(format!("link {path}"), errno)),
        }
    }
    Ok(())
}

/// Ends the machine: QEMU is told to take a restart for the end.
pub(crate) fn restart() -> ! {
    let failed: Result<Infallible, Errno> = match reboot(RebootCommand::Restart) {
        // It returns only where it fails.
        Ok(()) => Err(Errno::IO),
        Err(errno) => Err(errno),
    };
    let Err(errno) = failed;
    eprintln!("ebb-init: cannot restart: {errno}");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
