//! A front-end whose disk does not read its socket cannot keep other front-ends of its user from
//! sending descriptors.
//!
//! Linux counts the descriptors that a user has sent and that were not received. Above a process's
//! limit of open descriptors, its sending fails. This does not apply to root, so the front-ends
//! here are processes of another user.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use ebb_blk::image::{Location, Spec};
use ebb_blk::server::{Disk, Options, Server};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A front-end that leaves `argv[1]` answers unread. Then it sends messages with `argv[2]`
/// descriptors each, until it is cut off or its socket is full for five minutes. It prints the
/// number of descriptors sent, and waits.
const HOSTILE: &str = "
import errno, resource, socket, struct, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
s = socket.socket(fileno=0)
s.settimeout(300)
header = lambda code, length: struct.pack('=III', code, 1, length)
sent, why = 0, ''
try:
    for _ in range(int(sys.argv[1])):
        s.sendall(header(1, 0))
    descriptors = [1] * int(sys.argv[2])
    while True:
        try:
            socket.send_fds(s, [header(5, 8) + bytes(8)], descriptors)
            sent += len(descriptors)
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
except TimeoutError:
    why = 'no room'
except OSError as error:
    why = errno.errorcode[error.errno]
print(sent, why, flush=True)
time.sleep(1000)
";

/// Another process of that user, which sends as many descriptors as a memory table.
const OTHER: &str = "
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
a, b = socket.socketpair()
socket.send_fds(a, [b'x'], [1] * 8)
";

/// Maximum number of descriptors in an inbox, and one more message.
const AHEAD: usize = 128 + 8;
/// Number of messages that a socket of `attach` holds.
const IN_SOCKET: usize = 8;

struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs Python with `program`. If the test runs as root, Python runs as a user that has no other
/// process.
fn python(program: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-I", "-S", "-c", program]);
    if rustix::process::geteuid().is_root() {
        let user = 2_000_000_000 + std::process::id();
        command.uid(user).gid(user);
    }
    command
}

#[test]
fn descriptors_that_no_disk_comes_to_read_are_few() {
    let server = Server::new(Options::default());
    let cases = [(400, 8), (20, 8), (20, 253), (0, 8), (0, 253), (4, 1)];
    let cases = [false, true].map(|wide| cases.map(|(unread, each)| (wide, unread, each)));
    for (index, (wide, unread, descriptors)) in cases.concat().into_iter().enumerate() {
        let disk = Disk {
            name: format!("disk{index}"),
            spec: Spec {
                location: Location::Ram { bytes: 1 << 20 },
                read_only: false,
                cached: false,
            },
            settings: Vec::new(),
        };
        let socket = server.attach(&disk).unwrap();
        if wide {
            // This acts as a front-end that may enlarge the buffer, or that made its socket itself.
            rustix::net::sockopt::set_socket_send_buffer_size(&socket, 1 << 20).unwrap();
        }
        let mut hostile = python(HOSTILE);
        hostile
            .arg(unread.to_string())
            .arg(descriptors.to_string())
            .stdin(std::os::fd::OwnedFd::from(socket))
            .stdout(Stdio::piped());
        let mut hostile = Stopped(hostile.spawn().unwrap());
        let mut said = String::new();
        let out = hostile.0.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut said).unwrap();
        let mut other = python(OTHER);
        let other = other.output().unwrap();
        let error = String::from_utf8_lossy(&other.stderr);
        assert!(
            other.status.success(),
            "{unread} answers unread, {descriptors} descriptors: {said}{error}"
        );
        // The front-end was cut off.
        let (sent, why) = said.trim().split_once(' ').unwrap();
        assert!(["EPIPE", "ECONNRESET"].contains(&why), "{said}");
        let sent: usize = sent.parse().unwrap();
        if !wide && descriptors <= 8 {
            assert!(sent <= AHEAD + IN_SOCKET * 8, "{unread}: {said}");
        }
    }
}
