//! Runs `ebb` on stock guests, under TCG, with a bound on everything.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any guest here takes on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// `ebb run --kernel linux` with a small guest that ends after [`PATIENCE`] at the latest.
pub(crate) fn ebb(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    let seconds = PATIENCE.as_secs().to_string();
    command
        .args(["run", "--kernel", "linux", "--accel", "tcg", "-m", "320M"])
        .args(["-c", "1", "--timeout", &seconds])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

/// Whether Debian's kernel is here or can be fetched. Looked for once; said once if not.
pub(crate) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let output = ebb(&["--print-qemu", "--", "true"])
            .output()
            .expect("ebb starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return true;
        }
        assert!(
            stderr.contains("cannot fetch Debian's kernel"),
            "only a kernel that cannot be fetched is an excuse: {stderr}"
        );
        eprintln!("SKIPPED, there is no stock kernel: {stderr}");
        false
    })
}

/// Runs it to its end; `None` without a kernel.
pub(crate) fn run(arguments: &[&str]) -> Option<Output> {
    available().then(|| ebb(arguments).output().expect("ebb starts"))
}

/// Runs it with `input` on its stdin; `None` without a kernel.
pub(crate) fn run_with_input(arguments: &[&str], input: Vec<u8>) -> Option<Output> {
    if !available() {
        return None;
    }
    let mut child = ebb(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ebb starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A program may end before it has read everything.
    let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("ebb can be waited for");
    feeder.join().expect("the feeder does not panic");
    Some(output)
}

/// The QEMU that belongs to a running ebb.
pub(crate) fn qemu_of(ebb: &Child) -> Option<u32> {
    let children = format!("/proc/{0}/task/{0}/children", ebb.id());
    let children = std::fs::read_to_string(children).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Waits until `condition` holds; panics with `what` if it does not within [`PATIENCE`].
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal by number.
pub(crate) fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .status();
    assert!(status.expect("kill runs").success());
}

/// A folder that is gone when it is dropped.
pub(crate) struct Scratch(pub(crate) std::path::PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ebb-stock-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a writable place");
        Self(path)
    }

    /// The path of `name` in it, as text.
    pub(crate) fn path(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.to_str().expect("a plain path").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
