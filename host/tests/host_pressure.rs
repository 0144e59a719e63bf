//! Tests that a guest learns of its host's memory pressure. This is a test binary of its own,
//! because other guests of the host would give memory back at the same time.

#[path = "parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;

use scratch::Scratch;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program that waits for the host's pressure as runtimes do, after it has tried invalid
/// triggers.
const PROGRAM: &str = r#"
import errno, os, select, sys
PATH = "/proc/ebb/host_pressure"
def open_it():
    return os.open(PATH, os.O_RDWR | os.O_NONBLOCK)
def refused(fd, text):
    try:
        os.write(fd, text)
    except OSError as error:
        return errno.errorcode[error.errno]
fd = open_it()
print(os.read(fd, 4096).decode(), end="")
poll = select.poll()
poll.register(fd, select.POLLPRI)
print("bare", poll.poll(0)[0][1] == select.POLLPRI | select.POLLERR)
for text in [b"some", b"all 1 1000000", b"some 0 1000000", b"some 2 400000", b"full 1 11000000"]:
    print(text.decode(), refused(fd, text))
print("armed", refused(fd, b"some 10000 1000000\0"))
print("again", refused(fd, b"some 10000 1000000"))
other = open_it()
print("other", refused(other, b"full 4294967295 1000000"))
epoll = select.epoll()
epoll.register(fd, select.EPOLLPRI)
print("waiting", flush=True)
events = epoll.poll()
print("fired", events == [(fd, select.EPOLLPRI)])
text = os.pread(fd, 4096, 0).decode()
print("total", int(text.split("total=")[1].split()[0]) >= 10000)
os.close(fd)
"#;

/// A memory cgroup of 8 MiB, in which a writer stalls.
struct Tight(PathBuf);

impl Tight {
    fn new() -> Self {
        let name = format!("ebb-host-pressure-{}", std::process::id());
        let (folder, limit) = match Path::new("/sys/fs/cgroup/memory") {
            v1 if v1.exists() => (v1.join(name), "memory.limit_in_bytes"),
            _ => (Path::new("/sys/fs/cgroup").join(name), "memory.max"),
        };
        fs::create_dir(&folder).expect("root may make a cgroup");
        let tight = Self(folder);
        fs::write(tight.0.join(limit), "8M").expect("the group has a limit");
        tight
    }

    /// Starts a process in the group that writes `file` repeatedly.
    fn stall(&self, file: &Path) -> Killed {
        let script = "echo $$ > \"$1/cgroup.procs\"
            while :; do dd if=/dev/zero of=\"$2\" bs=1M count=64 2>/dev/null; done";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&self.0).arg(file);
        Killed(command.spawn().expect("there is a shell"))
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        // The last process needs a moment to leave the group.
        for _ in 0..1_000 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ebb(program: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["run", "--accel", "tcg", "-m", "256M", "--", "python3"]);
    // A guest sees the working folder.
    let folder = program.parent().expect("it is in a folder");
    command.arg(program).current_dir(folder);
    command.stdin(Stdio::null());
    command
}

#[test]
fn a_program_waits_for_its_hosts_pressure() {
    assert!(
        Path::new("/proc/pressure/memory").exists(),
        "this kernel tells of no stalls (start it with psi=1)"
    );
    // The file is on a disk, because writes to memory do not stall.
    let scratch = Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")), "host-pressure");
    let program = scratch.folder().join("wait.py");
    fs::write(&program, PROGRAM).expect("a writable folder");
    let mut guest = ebb(&program);
    let mut guest = Killed(guest.stdout(Stdio::piped()).spawn().expect("ebb starts"));
    let out = guest.0.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(out).lines().map(|line| line.expect("text"));
    for name in ["some", "full"] {
        let line = lines.next().expect("a line");
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some(name));
        for average in ["avg10=", "avg60=", "avg300="] {
            let value = words.next().and_then(|word| word.strip_prefix(average));
            assert!(
                value.is_some_and(|value| value.parse::<f32>().is_ok()),
                "{line}"
            );
        }
        let total = words.next().and_then(|word| word.strip_prefix("total="));
        assert!(
            total.is_some_and(|total| total.parse::<u64>().is_ok()),
            "{line}"
        );
    }
    let said: Vec<String> = lines.by_ref().take(9).collect();
    assert_eq!(
        said,
        [
            "bare True",
            "some EINVAL",
            "all 1 1000000 EINVAL",
            "some 0 1000000 EINVAL",
            "some 2 400000 EINVAL",
            "full 1 11000000 EINVAL",
            "armed None",
            "again EBUSY",
            "other EINVAL",
        ]
    );
    assert_eq!(lines.next().as_deref(), Some("waiting"));
    let tight = Tight::new();
    let writer = tight.stall(&scratch.folder().join("written"));
    let rest: Vec<String> = lines.collect();
    drop(writer);
    assert_eq!(rest, ["fired True", "total True"]);
    assert!(guest.0.wait().expect("ebb ends").success());
}

#[test]
fn a_counted_run_has_no_such_file() {
    // The behaviour of a counted run must not depend on the host.
    let output = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["run", "--icount", "--root", "none", "--", "test", "-e"])
        .arg("/proc/ebb/host_pressure")
        .output()
        .expect("ebb starts");
    assert_eq!(output.status.code(), Some(1));
}
