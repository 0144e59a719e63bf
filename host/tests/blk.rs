//! Tests of `ebb blk` without a guest: its messages, the files that it leaves alone, and its end.

#[path = "parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;

use scratch::Scratch;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// More time than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

fn blk() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.arg("blk");
    command
}

/// A process of `ebb blk serve`. Dropping it ends the process.
struct Server {
    child: Child,
    control: PathBuf,
}

impl Server {
    /// Starts a server for `disks` in `folder` and waits until it is ready.
    fn start(folder: &Path, disks: &[&str], stderr: Stdio) -> Self {
        let control = folder.join("control");
        let mut command = blk();
        command.arg("serve").arg("--control").arg(&control);
        command.arg("--socket-dir").arg(folder).stderr(stderr);
        for disk in disks {
            command.args(["--disk", disk]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("ebb starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        let read = BufReader::new(stdout).read_line(&mut line);
        assert!(read.is_ok() && !line.is_empty(), "it serves");
        Self { child, control }
    }

    fn get(&self) -> Output {
        let mut command = blk();
        command.args(["get", "--json", "--control"]);
        command.arg(&self.control).output().expect("ebb starts")
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        let pid = rustix::process::Pid::from_raw(pid).expect("not 0");
        rustix::process::kill_process(pid, signal).expect("it is there");
    }

    /// Waits until `condition` holds for the folder in `/proc` of one of its threads.
    fn until_thread(&self, what: &str, condition: impl Fn(&Path) -> bool) {
        let start = Instant::now();
        loop {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
            if tasks.flatten().any(|task| condition(&task.path())) {
                return;
            }
            assert!(start.elapsed() < LIMIT, "no thread {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits up to [`LIMIT`] for the end of the process and returns its status.
    fn ended(&mut self) -> std::process::ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a vhost-user message that has no answer, so the back-end disconnects.
fn nonsense(socket: &Path) {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    let message: Vec<u8> = [99_u32, 1, 0]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    stream.write_all(&message).expect("it is read");
    let mut rest = Vec::new();
    let limit = Some(LIMIT);
    stream.set_read_timeout(limit).expect("a socket");
    stream.read_to_end(&mut rest).expect("it is hung up");
    assert!(rest.is_empty());
}

#[test]
fn a_front_end_fills_no_journal_and_its_pipe_needs_no_reader() {
    let folder = Scratch::new("blk-words");
    let (stderr, pipe) = std::io::pipe().expect("a pipe");
    let server = Server::start(folder.folder(), &["d=ram:1M"], pipe.into());
    let socket = PathBuf::from(folder.path("d.sock"));
    for _ in 0..200 {
        nonsense(&socket);
    }
    drop(server);
    let mut said = String::new();
    BufReader::new(stderr)
        .read_to_string(&mut said)
        .expect("text");
    let complaints = said
        .lines()
        .filter(|line| line.contains("cut its front-end off"));
    let count = complaints.count();
    assert!((1..20).contains(&count), "{count}: {said}");

    let (stderr, pipe) = std::io::pipe().expect("a pipe");
    let server = Server::start(folder.folder(), &["d=ram:1M"], pipe.into());
    drop(stderr);
    nonsense(&socket);
    nonsense(&socket);
    let answer = server.get();
    assert!(answer.status.success());
    assert!(String::from_utf8_lossy(&answer.stdout).contains("\"d\""));
}

#[test]
fn disks_start_with_the_settings_of_the_command_line() {
    let folder = Scratch::new("blk-settings");
    let control = folder.path("control");
    let mut command = blk();
    let disk = "d=ram:1M,buffer_squeeze_duration_ms=30,squeeze_hold_ms=0";
    command.args(["serve", "--disk", disk, "--control", &control]);
    command.args(["--set", "max_buffer_pages=7", "--set", "squeeze_hold_ms=5"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("ebb starts");
    let stdout = child.stdout.take().expect("a pipe");
    let server = Server {
        child,
        control: control.into(),
    };
    let read = BufReader::new(stdout).read_line(&mut String::new());
    assert!(read.is_ok_and(|bytes| bytes > 0), "it serves");
    let answer = String::from_utf8(server.get().stdout).expect("text");
    assert!(answer.contains("\"max_buffer_pages\": 7"), "{answer}");
    for own in [
        "\"buffer_squeeze_duration_ms\": 30",
        "\"squeeze_hold_ms\": 0",
    ] {
        assert!(answer.contains(own), "{answer}");
    }
}

#[test]
fn files_where_a_socket_should_be_stay() {
    let folder = Scratch::new("blk-files");
    let file = PathBuf::from(folder.path("d.sock"));
    fs::write(&file, "precious").expect("a scratch folder");
    let mut command = blk();
    command.args(["serve", "--disk", "d=ram:1M", "--control"]);
    command.arg(folder.path("control"));
    let refused = command.output().expect("ebb starts");
    assert_eq!(refused.status.code(), Some(125));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("d.sock"), "{said}");
    let mut command = blk();
    command.args(["serve", "--disk", "e=ram:1M", "--control"]);
    let refused = command.arg(&file).output().expect("ebb starts");
    assert_eq!(refused.status.code(), Some(125));
    assert_eq!(fs::read(&file).expect("it is there"), b"precious");
    let left = fs::read_dir(folder.folder()).expect("a scratch folder");
    assert_eq!(left.count(), 1, "and no socket is left");
}

#[test]
fn a_stdout_that_is_closed_or_full_leaves_no_socket() {
    let folder = Scratch::new("blk-stdout");
    let control = folder.folder().join("control");
    let serve = |stdout: OwnedFd| {
        let mut command = blk();
        command.args(["serve", "--disk", "d=ram:1M", "--socket-dir"]);
        command.arg(folder.folder()).arg("--control").arg(&control);
        command.stdout(stdout);
        command
    };
    let full = fs::File::options().write(true).open("/dev/full");
    let output = serve(full.expect("it is there").into()).output();
    let output = output.expect("ebb starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("cannot write stdout"), "{said}");
    assert!(folder.files().is_empty(), "{:?}", folder.files());

    let (reader, closed) = UnixStream::pair().expect("sockets");
    drop(reader);
    let child = serve(closed.into()).spawn().expect("ebb starts");
    let control = control.clone();
    let mut server = Server { child, control };
    let start = Instant::now();
    while !server.get().status.success() {
        let ended = server.child.try_wait().expect("our child");
        assert!(ended.is_none() && start.elapsed() < LIMIT, "it serves");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    assert!(folder.files().is_empty(), "{:?}", folder.files());
}

/// Returns whether the tests run under nohup(1), which servers heed.
fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("it is there");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.expect("a mask").trim(), 16);
    mask.expect("a number") & 1 != 0
}

#[test]
fn the_end_of_its_terminal_ends_a_server_in_order() {
    if ignores_hangups() {
        return;
    }
    let folder = Scratch::new("blk-hangup");
    let mut server = Server::start(folder.folder(), &["d=ram:1M"], Stdio::null());
    server.signal(rustix::process::Signal::HUP);
    assert_eq!(server.ended().code(), Some(0));
    assert!(folder.files().is_empty(), "{:?}", folder.files());
}

#[test]
fn a_second_signal_waits_for_no_thread() {
    use rustix::fs::{OFlags, fcntl_setfl};
    use std::os::unix::process::ExitStatusExt;
    let folder = Scratch::new("blk-signals");
    let (_stderr, mut pipe) = std::io::pipe().expect("a pipe");
    let for_server = pipe.try_clone().expect("a descriptor");
    let mut server = Server::start(folder.folder(), &["d=ram:1M"], for_server.into());
    // The pipe has no reader and is full, so a thread that writes a message blocks.
    fcntl_setfl(&pipe, OFlags::NONBLOCK).expect("a pipe");
    while pipe.write(&[b'.'; 1]).is_ok() {}
    fcntl_setfl(&pipe, OFlags::empty()).expect("a pipe");
    let mut stream = UnixStream::connect(folder.path("d.sock")).expect("the server listens");
    stream.write_all(&[0xff; 64]).expect("there is room");
    let write = format!("{} 0x2 ", libc::SYS_write);
    server.until_thread("waits for room in the pipe", |task| {
        fs::read_to_string(task.join("syscall")).is_ok_and(|call| call.starts_with(&write))
    });
    server.signal(rustix::process::Signal::INT);
    server.until_thread("waits for the next signal", |task| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "signals\n")
    });
    assert!(server.child.try_wait().expect("our child").is_none());
    server.signal(rustix::process::Signal::INT);
    let ended = server.ended();
    assert_eq!(ended.signal(), Some(rustix::process::Signal::INT.as_raw()));
    assert!(!server.control.exists());

    let mut orderly = Server::start(folder.folder(), &["d=ram:1M"], Stdio::null());
    orderly.signal(rustix::process::Signal::INT);
    assert_eq!(orderly.ended().code(), Some(0));
    let left = fs::read_dir(folder.folder()).expect("a scratch folder");
    assert_eq!(
        left.count(),
        0,
        "what the first one left was replaced, and removed"
    );
}

#[test]
fn many_disks_have_more_descriptors_than_a_shell_gives() {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if hard.is_some_and(|most| most < 2048) {
        println!("this system allows {hard:?} descriptors");
        return;
    }
    let folder = Scratch::new("blk-many");
    let mut command = Command::new("sh");
    let exe = env!("CARGO_BIN_EXE_ebb");
    command.args([
        "-c",
        "ulimit -Sn 128; exec \"$0\" \"$@\"",
        exe,
        "blk",
        "serve",
    ]);
    for disk in 0..100 {
        command.arg("--disk").arg(format!("d{disk}=ram:1M"));
    }
    command.arg("--control").arg(folder.path("control"));
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.expect("sh starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let served = lines.by_ref().take(100).filter(Result::is_ok).count();
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(served, 100);
}

/// Serves the most disks that a process may have, and squeezes them all by one event.
#[test]
fn a_thousand_disks_are_served_and_squeezed_at_once() {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if hard.is_some_and(|most| most < 8192) {
        println!("this system allows {hard:?} descriptors");
        return;
    }
    let folder = Scratch::new("blk-thousand");
    let disks: Vec<String> = (0..=1000).map(|n| format!("d{n}=ram:64K")).collect();
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    let server = Server::start(folder.folder(), &disks[..1000], Stdio::null());
    let mut command = blk();
    command.args(["squeeze", "--control"]).arg(&server.control);
    // On a busy machine not all may have answered within the second that the command waits.
    command.output().expect("ebb starts");
    let start = Instant::now();
    loop {
        let answer = String::from_utf8(server.get().stdout).expect("text");
        assert_eq!(answer.matches("\"squeezes\": ").count(), 1000);
        if !answer.contains("\"squeezes\": 0,") {
            break;
        }
        assert!(start.elapsed() < LIMIT, "a disk was not squeezed");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(server);

    let mut command = blk();
    command.args(["serve", "--control", &folder.path("more")]);
    command.args(disks.iter().flat_map(|disk| ["--disk", *disk]));
    let refused = command.output().expect("ebb starts");
    assert_eq!(refused.status.code(), Some(125));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("more than 1000 disks"), "{said}");
}

/// A server from which mounts of its own hide all sources of events of memory pressure warns, and
/// serves.
#[test]
fn without_a_source_of_events_a_server_warns_and_serves() {
    const HIDE: &str = "mount -t tmpfs none /proc/pressure && mount --bind /dev/null /proc/meminfo \
                        && mount -t tmpfs none /sys/fs/cgroup || exit 77; exec \"$@\"";
    let words = [
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        HIDE,
        "sh",
    ];
    let hidden = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(words).arg(program);
        command
    };
    let tried = hidden("true").output().expect("unshare starts");
    if !tried.status.success() {
        println!("no mounts here: {}", String::from_utf8_lossy(&tried.stderr));
        return;
    }
    let folder = Scratch::new("blk-unwatched");
    let control = folder.folder().join("control");
    let (stderr, pipe) = std::io::pipe().expect("a pipe");
    let mut command = hidden(env!("CARGO_BIN_EXE_ebb"));
    command.args(["blk", "serve", "--disk", "d=ram:1M", "--control"]);
    command.arg(&control).stderr(pipe).stdout(Stdio::piped());
    let mut child = command.spawn().expect("unshare starts");
    // It holds the pipe's end for writing, so a server that ends without a word would go unnoticed.
    drop(command);
    let stdout = child.stdout.take().expect("a pipe");
    let server = Server { child, control };
    let mut warning = String::new();
    let read = BufReader::new(stderr).read_line(&mut warning);
    assert!(read.is_ok(), "{read:?}");
    assert!(
        warning.contains("memory pressure is not watched"),
        "{warning}"
    );
    let read = BufReader::new(stdout).read_line(&mut String::new());
    assert!(read.is_ok_and(|bytes| bytes > 0), "it serves");
    let mut command = blk();
    command.args(["squeeze", "--control"]).arg(&server.control);
    let squeezed = command.output().expect("ebb starts");
    assert!(squeezed.status.success(), "it is squeezed by hand");
    let answer = String::from_utf8(server.get().stdout).expect("text");
    assert!(answer.contains("\"squeezes\": 1,"), "{answer}");
}

#[test]
fn where_there_is_no_xen_it_is_said_what_is_missing() {
    if Path::new("/dev/xen/xenbus").exists() {
        println!("this is a Xen domain");
        return;
    }
    let folder = Scratch::new("blk-xen");
    let mut command = blk();
    command.args(["serve", "--xen", "--control"]);
    let refused = command.arg(folder.path("control")).output();
    let refused = refused.expect("ebb starts");
    assert_eq!(refused.status.code(), Some(125));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("/dev/xen/xenbus"), "{said}");
    assert!(!said.contains("guest"), "{said}");
}

#[test]
fn a_runtime_folder_that_is_no_place_is_ignored() {
    let folder = Scratch::new("blk-runtime");
    fs::create_dir(folder.path("here")).expect("a scratch folder");
    for runtime in ["", "here"] {
        let mut command = blk();
        command.arg("get").env("XDG_RUNTIME_DIR", runtime);
        // It is unknown whether another server uses the default socket.
        let output = command.current_dir(folder.folder()).output();
        let said = output.expect("ebb starts").stderr;
        assert!(!String::from_utf8_lossy(&said).contains("at ebb-blk"));
    }
    assert!(!Path::new(&folder.path("ebb-blk")).exists());
    assert!(!Path::new(&folder.path("here/ebb-blk")).exists());
}
