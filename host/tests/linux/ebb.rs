//! Runs `ebb` with real guests, at most three at a time, with limits for time and memory.

use crate::programs;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of guests that run at the same time. Most have two CPUs and wait for a third of their
/// time, so that three of them keep two CPUs of the host busy.
const GUESTS_AT_ONCE: usize = 3;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// The permission to run one guest. Dropping it lets another guest start.
#[derive(Debug)]
pub(crate) struct Turn(());

impl Turn {
    pub(crate) fn take() -> Self {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = ENDED
            .wait_while(running, |running| *running >= GUESTS_AT_ONCE)
            .unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// The status and output of a guest.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Outcome {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Asserts the exit status. Shows all output if it differs.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32) -> &Self {
        assert_eq!(
            self.code(),
            Some(code),
            "status {}\n--- stdout\n{}\n--- stderr\n{}",
            self.status,
            tail(&self.out()),
            tail(&self.err())
        );
        self
    }
}

/// Returns the last lines of a text. They are few, so that the last page of a log shows several
/// failures.
pub(crate) fn tail(text: &str) -> String {
    const LINES: usize = 25;
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// Returns a command for `ebb run` under TCG with `options` before the program, which ends after
/// `seconds`. The guest sees no file of the host unless the options say so.
pub(crate) fn command(seconds: u32, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command
        .args(["run", "--accel", "tcg", "--root", "none"])
        .args(["--timeout", &seconds.to_string()])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A guest on a busy host may take this many times as long as on an idle one.
const BUSY: u32 = 4;

/// Runs a program in a guest of its own to its end, for at most four times `seconds`.
pub(crate) fn run<S: AsRef<OsStr>>(seconds: u32, options: &[&str], program: &[S]) -> Outcome {
    let mut command = command(seconds * BUSY, options);
    command.arg("--").args(program);
    finish(&mut command)
}

/// Returns the output of a program on stock Linux, as the reference.
///
/// It is partly chance whether Linux has a free huge page, because the host may reclaim the guest's
/// memory and allocations depend on timing. So the guest keeps its memory. A run for which `whole`
/// returns `false` lacked a huge page and is repeated.
#[track_caller]
pub(crate) fn linux<S: AsRef<OsStr>>(
    seconds: u32,
    options: &[&str],
    program: &[S],
    whole: impl Fn(&str) -> bool,
) -> String {
    let stock = ["--kernel", "linux", "--give-back", "off"];
    let options = [options, &stock].concat();
    let mut lacking = String::new();
    for _ in 0..3 {
        let outcome = run(seconds, &options, program);
        if outcome.code() == Some(0) && whole(&outcome.out()) {
            return outcome.out();
        }
        lacking += &format!(
            "--- status {}, stdout\n{}\n--- stderr\n{}\n",
            outcome.status,
            outcome.out(),
            outcome.err()
        );
    }
    panic!("Linux itself has not what is wanted of it\n{lacking}");
}

/// Runs a command again while it reports that the guest did not follow or answer in the time that
/// `ebb` allows it, and returns the last output.
pub(crate) fn again_if_late(command: impl Fn() -> Output) -> Output {
    let start = Instant::now();
    loop {
        let output = command();
        let said = String::from_utf8_lossy(&output.stderr);
        let late = [
            "in time",
            "timed out",
            "no guest",
            "has not carried out the command",
            "has not finished",
        ];
        let late = late.iter().any(|words| said.contains(words));
        if output.status.success() || !late || start.elapsed() > TIMEOUT {
            return output;
        }
    }
}

/// Runs a prepared command to its end.
pub(crate) fn finish(command: &mut Command) -> Outcome {
    let _turn = Turn::take();
    let output = command.output().expect("ebb starts");
    Outcome {
        status: output.status,
        stdout: output.stdout,
        stderr: output.stderr,
    }
}

/// A guest that runs during the test. Dropping it ends the guest.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) child: Child,
    _turn: Option<Turn>,
}

impl Guest {
    pub(crate) fn start(command: &mut Command) -> Self {
        let turn = Turn::take();
        Self {
            child: command.spawn().expect("ebb starts"),
            _turn: Some(turn),
        }
    }

    /// Returns a guest without a permission, for a test that starts more than [`GUESTS_AT_ONCE`].
    pub(crate) fn of(child: Child) -> Self {
        Self { child, _turn: None }
    }

    /// Returns the resident bytes of the guest's RAM. Returns `None` before there is a RAM.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        use std::os::unix::fs::MetadataExt;
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).ok()?;
        entries.flatten().find_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let target = target.to_string_lossy();
            let metadata = std::fs::metadata(entry.path()).ok()?;
            // The RAM is a memfd, or a file without a name on a tmpfs.
            let in_memory = target.starts_with("/memfd:") || target.starts_with("/#");
            let is_ram = in_memory && metadata.len() >= 32 << 20;
            is_ram.then(|| metadata.blocks() * 512)
        })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A guest that runs the program `hold`, which executes the test's commands.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) guest: Guest,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// The time limit for an action that the guest performs sooner or later.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

impl Holder {
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command = command(900, options);
        command.arg("--").arg(programs::path("hold"));
        command.stdin(Stdio::piped()).stderr(Stdio::inherit());
        let mut guest = Guest::start(&mut command);
        let stdin = guest.child.stdin.take().expect("it is piped");
        let stdout = BufReader::new(guest.child.stdout.take().expect("it is piped"));
        Self {
            guest,
            stdin,
            stdout,
        }
    }

    /// Sends one line and returns the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").expect("the guest reads");
        let mut answer = String::new();
        self.stdout
            .read_line(&mut answer)
            .expect("the guest answers");
        assert!(
            !answer.is_empty(),
            "the guest ended instead of doing {line:?}"
        );
        answer.trim_end().to_owned()
    }

    /// Sends one line and asserts the answer.
    #[track_caller]
    pub(crate) fn tell(&mut self, line: &str, answer: &str) {
        assert_eq!(self.ask(line), answer, "as the answer to {line:?}");
    }

    /// Returns a counter of the guest's `/proc/vmstat`.
    #[track_caller]
    pub(crate) fn counter(&mut self, name: &str) -> i64 {
        let answer = self.ask(&format!("vmstat {name}"));
        answer.parse().unwrap_or_else(|_| panic!("{answer}"))
    }

    pub(crate) fn resident_mib(&self) -> u64 {
        self.guest.resident_bytes().expect("the guest has a RAM") >> 20
    }

    /// Waits until at most `mib` MiB are resident.
    #[track_caller]
    pub(crate) fn falls_to(&self, mib: u64) {
        let start = Instant::now();
        while self.resident_mib() > mib {
            assert!(
                start.elapsed() < TIMEOUT,
                "{} MiB are still resident, more than {mib}",
                self.resident_mib()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Calls `guest` until its result is `right`, or until the host has had enough memory during a
/// call, and returns that result. A guest whose host is short of memory gives more than its mode
/// says.
#[track_caller]
pub(crate) fn while_the_host_has_memory<R>(
    right: impl Fn(&R) -> bool,
    mut guest: impl FnMut() -> R,
) -> R {
    let start = Instant::now();
    loop {
        let before = memory_stalls();
        let result = guest();
        if right(&result) || memory_stalls() < before + STALL_MIN {
            return result;
        }
        assert!(start.elapsed() < TIMEOUT, "the host is short of memory");
    }
}

/// The smallest stall of the host for memory of which guests hear, in microseconds.
const STALL_MIN: u64 = 10_000;

/// Returns for how many microseconds tasks of the host have waited for memory. Returns 0 if the
/// host does not count that.
fn memory_stalls() -> u64 {
    let text = std::fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
    let some = text.lines().find(|line| line.starts_with("some "));
    some.and_then(|line| line.rsplit_once("total=")?.1.parse().ok())
        .unwrap_or(0)
}
