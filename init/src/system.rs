//! The kernel's file systems that every Linux program expects, the loopback interface, and the
//! restart.

use crate::failure::Failure;
use rustix::fs::{Mode, symlink};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::net::{AddressFamily, SendFlags, SocketType};
use rustix::system::{RebootCommand, reboot};
use std::convert::Infallible;
use std::ffi::CString;
use std::time::Duration;

const COMMAND_LINE: &str = "/proc/cmdline";
/// Mount point, file system type and options.
const MOUNTS: [(&str, &str, &str); 5] = [
    ("/proc", "proc", ""),
    ("/sys", "sysfs", ""),
    ("/dev", "devtmpfs", "mode=0755"),
    ("/dev/pts", "devpts", "mode=0620,ptmxmode=0666"),
    ("/dev/shm", "tmpfs", "mode=1777"),
];
/// The mount points that lie directly in the root.
pub(crate) const KERNELS_OWN: [&str; 3] = ["/proc", "/sys", "/dev"];
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts the kernel's file systems and creates the links in `/dev`. Fails if one cannot be mounted
/// or created.
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

/// Returns the kernel's command line. Fails if `/proc/cmdline` cannot be read.
pub(crate) fn command_line() -> Result<String, Failure> {
    std::fs::read_to_string(COMMAND_LINE)
        .map_err(|error| Failure::new(format!("read {COMMAND_LINE}"), error))
}

/// Switches the loopback interface on, as every Linux system does at its start. Does nothing if the
/// kernel has no network support. Fails if no netlink socket can be created or the request cannot
/// be sent.
pub(crate) fn loopback_up() -> Result<(), Failure> {
    let failed = |errno: Errno| Failure::new("switch the loopback interface on", errno);
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None);
    let socket = match socket {
        Ok(socket) => socket,
        // A kernel without network support.
        Err(Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT) => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    };
    rustix::net::send(&socket, &link_up(LOOPBACK), SendFlags::empty()).map_err(failed)?;
    Ok(())
}

/// The loopback is the first interface of every network namespace.
const LOOPBACK: i32 = 1;

/// Returns a request to switch the interface `index` on (rtnetlink(7)): `struct nlmsghdr` and
/// `struct ifinfomsg`.
fn link_up(index: i32) -> [u8; 32] {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const IFF_UP: u32 = 1;
    let mut message = [0; 32];
    message[0..4].copy_from_slice(&32u32.to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message[20..24].copy_from_slice(&index.to_ne_bytes());
    message[24..28].copy_from_slice(&IFF_UP.to_ne_bytes());
    message[28..32].copy_from_slice(&IFF_UP.to_ne_bytes());
    message
}

/// Ends the virtual machine by a restart. QEMU was started so that it exits then. If the restart
/// fails, reports that on the console and sleeps forever.
pub(crate) fn restart() -> ! {
    let failed: Result<Infallible, Errno> = match reboot(RebootCommand::Restart) {
        // The call returns only if it fails.
        Ok(()) => Err(Errno::IO),
        Err(errno) => Err(errno),
    };
    let Err(errno) = failed;
    eprintln!("ebb-init: cannot restart: {errno}");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Returns the number of processes that the OOM killer has killed. Returns `None` if the kernel
/// does not count them.
pub(crate) fn oom_kills() -> Option<u64> {
    let counters = std::fs::read_to_string("/proc/vmstat").ok()?;
    let count = |line: &str| line.strip_prefix("oom_kill ")?.parse().ok();
    counters.lines().find_map(count)
}
