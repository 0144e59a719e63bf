//! Runs a program on the host. Its result there is the expected result in a guest.

use crate::scratch::Scratch;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// More time than any program here needs on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The result of a program, on the host or in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deed {
    /// The status as in a shell: 128 plus the signal if a signal ended the program.
    pub(crate) status: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Returns the path of the static busybox, which guests use too.
pub(crate) fn busybox() -> PathBuf {
    let places = ["/bin/busybox", "/usr/bin/busybox"];
    let found = places
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.is_file());
    found.expect("no busybox here: apt-get install busybox-static")
}

/// Returns a folder with a link for each applet, as in the guest's /bin.
fn applets() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("applets");
        std::fs::create_dir_all(&folder).expect("cargo's folder for tests is writable");
        let output = Command::new(busybox())
            .arg("--list")
            .output()
            .expect("busybox runs");
        for applet in String::from_utf8_lossy(&output.stdout).lines() {
            // The link may exist from an earlier run.
            let _ = std::os::unix::fs::symlink(busybox(), folder.join(applet));
        }
        folder
    })
}

/// Runs a program in a folder of its own, with the same environment as in a guest.
pub(crate) fn run(program: &Path, words: &[&str], script: Option<&Path>) -> Deed {
    let folder = Scratch::new("native");
    // The tests may have been started with ignored signals, by nohup or in the background of a
    // script. A guest's program never is.
    let mut command = Command::new("/usr/bin/env");
    command.arg("--default-signal").arg(program);
    if let Some(script) = script {
        std::fs::copy(script, folder.folder().join("script.sh")).expect("the script is there");
    }
    command
        .args(words)
        .current_dir(folder.folder())
        .env_clear()
        .env("PATH", applets())
        .env("HOME", "/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command
        .spawn()
        .expect("the program was built for this machine");
    let out = collect(child.stdout.take());
    let err = collect(child.stderr.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if start.elapsed() > TIMEOUT {
            child.kill().expect("it runs");
            panic!("{} does not end on the host itself", program.display());
        }
        thread::sleep(Duration::from_millis(5));
    };
    let status = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    Deed {
        status: status.expect("it ended"),
        stdout: out.join().expect("no panic"),
        stderr: err.join().expect("no panic"),
    }
}

fn collect(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            stream.read_to_end(&mut bytes).expect("a pipe can be read");
        }
        bytes
    })
}
