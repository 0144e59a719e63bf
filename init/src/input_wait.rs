//! Reports once when the program waits for input from the terminal.
//!
//! The program's stdin is a pipe, whose other end is not informed of a reader. So a thread polls
//! all processes several times a second until one is in a system call that reads the pipe. This is
//! done only if the host's stdin is a terminal.

use crate::control::Port;
use ebb_wire::report::Report;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(200);
/// System calls that wait for input, and the index of the argument with the descriptor.
const READS: [(u64, usize); 4] = [
    (number::READ, 0),
    (number::READV, 0),
    (number::SENDFILE, 1),
    (number::SPLICE, 0),
];

/// System call numbers on x86-64.
mod number {
    /// `read(2)`.
    pub(super) const READ: u64 = 0;
    /// `readv(2)`.
    pub(super) const READV: u64 = 19;
    /// `sendfile(2)`.
    pub(super) const SENDFILE: u64 = 40;
    /// `splice(2)`.
    pub(super) const SPLICE: u64 = 275;
}

/// Starts a thread that polls until a thread of any process waits in a call that reads the pipe
/// `stdin`. The thread then reports that once to the host through `port`.
pub(crate) fn watch(stdin: impl AsFd, mut port: Port) {
    let Ok(pipe) = rustix::fs::fstat(stdin) else {
        return;
    };
    let pipe = (pipe.st_dev, pipe.st_ino);
    thread::spawn(move || {
        while !is_being_read(pipe) {
            thread::sleep(PAUSE);
        }
        // Fails if the host is gone.
        let _ = port.say(Report::AwaitsInput);
    });
}

/// Returns whether a thread of any process is in a system call that reads the pipe, given by device
/// and inode.
fn is_being_read(pipe: (u64, u64)) -> bool {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    entries(Path::new("/proc")).any(|process| {
        let process = process.path();
        entries(&process.join("task")).any(|thread| {
            let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
            reads_from(&call).is_some_and(|descriptor| is_at(&process, descriptor, pipe))
        })
    })
}

fn is_at(process: &Path, descriptor: u64, pipe: (u64, u64)) -> bool {
    let file = fs::metadata(process.join(format!("fd/{descriptor}")));
    file.is_ok_and(|file| (file.dev(), file.ino()) == pipe)
}

/// Returns the descriptor that a process waits to read. `call` is the text of `/proc/PID/syscall`:
/// a system call's number and its arguments. Returns `None` if the call is not one of [`READS`].
fn reads_from(call: &str) -> Option<u64> {
    let mut words = call.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let (_, place) = READS.iter().find(|(read, _)| *read == number)?;
    u64::from_str_radix(words.nth(*place)?.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_name_descriptors() {
        let arguments = "0x3 0x5 0x7 0x0 0x0 0x0 0x7ffd 0x7f12";
        assert_eq!(reads_from(&format!("0 {arguments}\n")), Some(3));
        assert_eq!(reads_from(&format!("40 {arguments}\n")), Some(5));
        for other in [
            &format!("1 {arguments}"),
            "running",
            "-1 0x7ffd 0x0",
            "",
            "0",
            "0 x",
        ] {
            assert_eq!(reads_from(other), None, "{other}");
        }
    }

    #[test]
    fn who_reads_a_pipe_is_found() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let stat = rustix::fs::fstat(&reader).expect("a pipe");
        let pipe = (stat.st_dev, stat.st_ino);
        let mut child = std::process::Command::new("cat")
            .stdin(reader)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("cat starts");
        while !is_being_read(pipe) {
            assert!(
                child.try_wait().expect("a child").is_none(),
                "it was not seen"
            );
        }
        drop(writer);
        child.wait().expect("it ends");
        assert!(!is_being_read(pipe));
    }

    #[test]
    fn a_second_thread_that_reads_a_pipe_is_found() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let stat = rustix::fs::fstat(&reader).expect("a pipe");
        let reads = thread::spawn(move || std::io::Read::read(&mut reader, &mut [0]));
        while !is_being_read((stat.st_dev, stat.st_ino)) {
            assert!(!reads.is_finished(), "it was not seen");
        }
        drop(writer);
        assert_eq!(reads.join().expect("it ends").expect("it reads"), 0);
    }
}
