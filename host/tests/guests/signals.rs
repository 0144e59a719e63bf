//! Tests that signals reach the program, and that a program that ignores `SIGTERM` and a guest that
//! hangs end nevertheless.

use crate::guest::{ebb, run};
use crate::running::{eventually, is_alive, qemu_of, signal};
use crate::scratch::Scratch;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A shell script in a guest that has reported that it is ready.
struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

/// Returns a command that runs `script` in a guest, which then reports that it is ready.
fn command(options: &[&str], script: &str) -> Command {
    let script = format!("{script}; echo ready; while :; do sleep 0.2; done");
    ebb(&[options, &["--", "sh", "-c", &script]].concat())
}

impl Running {
    fn start(options: &[&str], script: &str) -> Self {
        Self::by(command(options, script))
    }

    /// Starts `command`, which is one of [`command`] or leads to one.
    fn by(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ebb starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self { child, stdout }
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for the end and returns the status and the messages of ebb.
    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("it ends");
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().expect("it is piped");
        stderr.read_to_string(&mut said).expect("text");
        (status.code(), said)
    }
}

#[test]
fn a_program_that_is_deaf_to_the_request_to_end_is_ended() {
    let guest = Running::start(&["--grace", "1", "--quiet"], "trap '' TERM");
    guest.signal("TERM");
    let (status, said) = guest.end();
    assert_eq!(status, Some(143), "{said}");
    assert!(said.contains("ended the VM"), "{said}");
    assert!(said.contains("1 s after SIGTERM"), "{said}");
}

#[test]
fn a_guest_that_hangs_ends_too() {
    let guest = Running::start(&["--grace", "1"], ":");
    let qemu = qemu_of(&guest.child).expect("ebb has a child");
    // All its CPUs are stopped.
    signal(qemu, "STOP");
    guest.signal("TERM");
    let (status, said) = guest.end();
    assert_eq!(status, Some(143), "{said}");
    assert!(said.contains("after SIGTERM"), "{said}");
    eventually("the end of QEMU", || (!is_alive(qemu)).then_some(()));
}

/// Stops `ebb` while the guest's kernel writes messages, so that the socket of its console fills.
#[test]
fn messages_of_the_kernel_wait_for_an_ebb_that_gets_no_cpu() {
    const MESSAGES: u32 = 300;
    let script = format!(
        "(sleep 1; i=0; while [ $i -lt {MESSAGES} ]; do echo \"message $i.\" > /dev/kmsg; i=$((i + 1)); done; echo written) &"
    );
    let mut guest = Running::start(&["--verbose"], &format!("{script} :"));
    // The messages begin while ebb is stopped, or soon after.
    for _ in 0..8 {
        guest.signal("STOP");
        thread::sleep(Duration::from_millis(300));
        guest.signal("CONT");
        thread::sleep(Duration::from_millis(20));
    }
    let mut line = String::new();
    guest.stdout.read_line(&mut line).expect("a line");
    assert_eq!(line, "written\n");
    guest.signal("TERM");
    let (_, said) = guest.end();
    for number in 0..MESSAGES {
        assert!(
            said.contains(&format!(" message {number}.\n")),
            "{number}: {said}"
        );
    }
}

#[test]
fn a_program_that_takes_its_time_to_end_has_it() {
    let end = || {
        let guest = Running::start(&["--grace", "200"], "trap 'sleep 2; exit 7' TERM");
        // As timeout(1) does: once to its child, and once to its group.
        guest.signal("TERM");
        guest.signal("TERM");
        guest.end()
    };
    // On a busy host, ebb may see the second signal a second after the first one. Then it counts.
    let ends = std::iter::repeat_with(end).take(10);
    let mut ends = ends.skip_while(|(_, said)| said.contains("SIGTERM came again"));
    let (status, said) = ends.next().expect("the two signals come within a second");
    assert_eq!(status, Some(7), "{said}");
    assert!(!said.contains("ended the VM"), "{said}");
}

#[test]
fn a_second_request_to_end_is_the_last_one() {
    let mut guest = Running::start(&["--grace", "10000"], "trap '' TERM");
    guest.signal("TERM");
    // A signal that ebb sees less than a second after the first one does not count.
    while guest
        .child
        .try_wait()
        .expect("it can be waited for")
        .is_none()
    {
        thread::sleep(Duration::from_millis(1500));
        guest.signal("TERM");
    }
    let (status, said) = guest.end();
    assert_eq!(status, Some(143), "{said}");
    assert!(said.contains("SIGTERM came again"), "{said}");
}

#[test]
fn an_interrupt_that_a_program_takes_ends_nothing() {
    let mut guest = Running::start(&["--grace", "1"], "trap 'echo taken' INT");
    for _ in 0..3 {
        guest.signal("INT");
        let mut line = String::new();
        guest.stdout.read_line(&mut line).expect("a line");
        assert_eq!(line, "taken\n");
        thread::sleep(Duration::from_millis(1800));
    }
    guest.signal("TERM");
    assert_eq!(guest.end().0, Some(143));
}

/// The thread that waits for the end of the guest hangs in a write.
#[test]
fn a_pipe_that_is_not_read_does_not_keep_ebb_from_ending() {
    let scratch = Scratch::new("unread");
    let pipe = scratch.path("timeline");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let mut options = File::options();
    let options = options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK);
    let mut reader = options.open(&pipe).expect("it is there");
    while reader.write_all(&[0; 4096]).is_ok() {}
    let mut guest = Running::start(&["--grace", "1", "--timeline", &pipe], ":");
    let qemu = qemu_of(&guest.child).expect("ebb has a child");
    guest.signal("TERM");
    eventually("the end of QEMU", || (!is_alive(qemu)).then_some(()));
    eventually("the end of ebb", || {
        guest.signal("INT");
        thread::sleep(Duration::from_millis(200));
        guest.child.try_wait().expect("it can be waited for")
    });
    let (status, said) = guest.end();
    assert_eq!(status, Some(130), "{said}");
}

/// Returns a command that starts `ebb` with `signal` ignored.
fn ignoring(signal: &str, ebb: &Command) -> Command {
    let mut command = Command::new("env");
    command
        .arg(format!("--ignore-signal={signal}"))
        .arg(ebb.get_program())
        .args(ebb.get_args())
        .env_remove("EBB_KERNEL_IMAGE")
        .stdin(Stdio::null());
    command
}

/// As nohup(1) starts a command.
#[test]
fn a_hangup_that_is_ignored_does_not_reach_the_program() {
    let guest = Running::by(ignoring("HUP", &command(&[], ":")));
    guest.signal("HUP");
    guest.signal("TERM");
    let (status, said) = guest.end();
    // A program that gets both ends by SIGHUP, with the status 129.
    assert_eq!(status, Some(143), "{said}");
}

/// As some daemons start a command. The kernel then drops the statuses of children.
#[test]
fn a_program_has_its_status_also_if_the_end_of_children_is_ignored() {
    let output = ignoring("CHLD", &ebb(&["--", "sh", "-c", "exit 7"])).output();
    let output = output.expect("ebb starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
}

#[test]
fn quiet_is_about_progress_and_summary_about_the_result() {
    let output = run(&["--quiet", "--summary", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("ebb: guest with 256M"), "{said}");
}
