//! Tests of the confinement of QEMU, of `ebb` and of the reader of an image, as the kernel reports
//! it, for root and for an ordinary user.

use crate::guest::ebb;
use crate::running::{qemu_of, signal};
use crate::scratch::Scratch;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The user that runs `ebb` in tests without root.
const USER: u32 = 54321;

/// A run whose program has started.
struct Running {
    child: Child,
    qemu: u32,
    /// The messages of `ebb` so far.
    said: String,
    _scratch: Scratch,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_root() -> bool {
    status("self")["Uid"].starts_with("0\t")
}

/// Starts a guest as root, or as [`USER`].
fn start(name: &str, as_root: bool, options: &[&str]) -> Running {
    let scratch = Scratch::within(&std::env::temp_dir(), name);
    fs::set_permissions(scratch.folder(), fs::Permissions::from_mode(0o755))
        .expect("the host does this");
    // At this path, every user can run it.
    let program = scratch.folder().join("ebb");
    // Another process copies the file. Otherwise a child that another test forks at this time would
    // hold it open for writing.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_ebb"))
        .arg(&program)
        .status();
    assert!(copied.expect("the host does this").success());
    let own = scratch.folder().join("own");
    fs::create_dir(&own).expect("the host does this");
    let given = ebb(&[
        options,
        &["--verbose", "--", "sh", "-c", "echo ready; exec sleep 1000"],
    ]
    .concat());
    let mut command = Command::new(&program);
    command
        .args(given.get_args())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", &own)
        .env("XDG_RUNTIME_DIR", &own)
        .env("SECRET_TOKEN", "s3cret")
        .current_dir(&own)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if !as_root {
        std::os::unix::fs::chown(&own, Some(USER), Some(USER)).expect("the host does this");
        command.uid(USER).gid(USER);
    }
    // A descriptor that ebb inherits and knows nothing about.
    let open = fs::File::open("/etc/passwd").expect("the host does this");
    inherit(&open);
    let mut child = command.spawn().expect("ebb starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("the host does this");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("the host does this");
    if line != "ready\n" {
        let _ = child.kill();
        let mut said = String::new();
        let _ = child
            .stderr
            .take()
            .expect("the host does this")
            .read_to_string(&mut said);
        panic!("the program does not run: {said}");
    }
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().expect("the host does this"));
    while !said.contains("ebb: ebb keeps") {
        assert_ne!(
            lines.read_line(&mut said).expect("the host does this"),
            0,
            "{said}"
        );
    }
    // The remaining output is read, so that ebb never blocks on a full pipe.
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    let qemu = qemu_of(&child).expect("ebb has a QEMU");
    Running {
        child,
        qemu,
        said,
        _scratch: scratch,
    }
}

/// Makes a file inheritable for child processes.
fn inherit(file: &fs::File) {
    let number = file.as_raw_fd();
    // SAFETY: F_SETFD changes a flag of an open descriptor.
    assert_eq!(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }, 0);
}

/// Returns the fields in the status of a process or thread, by name.
fn status(process: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).expect("the host does this");
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn capabilities(status: &BTreeMap<String, String>) -> Vec<u64> {
    let sets = ["CapPrm", "CapEff", "CapInh", "CapAmb"];
    sets.iter()
        .map(|set| u64::from_str_radix(&status[*set], 16).expect("the host does this"))
        .collect()
}

fn link(path: &str) -> String {
    fs::read_link(path).map_or_else(|error| error.to_string(), |to| to.display().to_string())
}

/// Returns the expected number of filters of a process with `own` filters, including those of this
/// test's environment.
fn outer_filters(own: u32) -> String {
    let outer = status("self")["Seccomp_filters"].parse::<u32>();
    (outer.expect("a number") + own).to_string()
}

/// Checks the measures of QEMU that its command line and the kernel show.
fn check_qemu(running: &Running, as_root: bool) {
    let qemu = running.qemu;
    let facts = status(&qemu.to_string());
    let users: Vec<_> = facts["Uid"].split('\t').collect();
    assert!(users.iter().all(|user| *user == users[0]), "{users:?}");
    if as_root {
        let user: u32 = users[0].parse().expect("the host does this");
        assert!(user > 1_000_000_000, "QEMU runs as user {user}");
        assert_eq!(facts["Groups"].trim(), "");
    } else {
        assert_eq!(users[0], USER.to_string());
    }
    assert_eq!(capabilities(&facts), [0; 4]);
    assert_eq!(
        u64::from_str_radix(&facts["CapBnd"], 16).expect("the host does this"),
        0
    );
    assert_eq!(facts["NoNewPrivs"], "1");
    assert_eq!(facts["Seccomp"], "2");
    // QEMU's own sandbox is off: a QEMU that may install filters could install thousands.
    assert_eq!(facts["Seccomp_filters"], outer_filters(2));
    for namespace in ["user", "net", "ipc"] {
        let own = link(&format!("/proc/{qemu}/ns/{namespace}"));
        assert_ne!(
            own,
            link(&format!("/proc/self/ns/{namespace}")),
            "{namespace}"
        );
        assert!(own.starts_with(namespace), "{own}");
    }
    assert_eq!(
        fs::read(format!("/proc/{qemu}/environ")).expect("the host does this"),
        b""
    );
    assert_eq!(link(&format!("/proc/{qemu}/cwd")), "/");
    for entry in fs::read_dir(format!("/proc/{qemu}/fd")).expect("the host does this") {
        let file = link(
            &entry
                .expect("the host does this")
                .path()
                .display()
                .to_string(),
        );
        let kinds = [
            "/dev/null",
            "pipe:",
            "socket:",
            "anon_inode:",
            "/memfd:ebb-",
            // A file without a name, on a tmpfs that no other process sees.
            "/#",
            "/dev/kvm",
        ];
        assert!(
            kinds.iter().any(|kind| file.starts_with(kind)),
            "QEMU has {file}"
        );
    }
    assert!(
        running.said.contains("ebb: QEMU is confined: "),
        "{}",
        running.said
    );
    for measure in [
        "unprivileged user",
        "no capabilities",
        "no_new_privs",
        "seccomp",
        "user namespace",
        "network namespace",
        "IPC namespace",
        "empty environment",
        "no other descriptors",
        "folder /",
    ] {
        assert!(
            running.said.contains(measure),
            "{measure}: {}",
            running.said
        );
    }
}

/// Asserts that no thread of `ebb` has a capability outside of `wanted`. The thread that watches
/// the host's memory may keep CAP_SYS_RESOURCE.
fn check_ebb(running: &Running, wanted: u64) {
    const SYS_RESOURCE: u64 = 1 << 24;
    let pid = running.child.id();
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).expect("the host does this") {
        let thread = thread
            .expect("the host does this")
            .file_name()
            .into_string()
            .expect("the host does this");
        let facts = status(&format!("{pid}/task/{thread}"));
        let allowed = wanted
            | if facts["Name"] == "pressure" {
                SYS_RESOURCE
            } else {
                0
            };
        let sets = capabilities(&facts);
        assert!(
            sets.iter().all(|set| set & !allowed == 0),
            "{}: {sets:x?}",
            facts["Name"]
        );
        assert_eq!(facts["NoNewPrivs"], "1", "{}", facts["Name"]);
        threads += 1;
    }
    assert!(threads > 1);
}

#[test]
fn roots_guest_has_no_rights_of_root() {
    if !is_root() {
        return;
    }
    let running = start("confined-root", true, &[]);
    check_qemu(&running, true);
    check_ebb(&running, 0);
    assert!(running.said.contains("ebb keeps no capabilities"));
}

#[test]
fn a_users_guest_has_fewer_rights_than_the_user() {
    let running = start("confined-user", !is_root(), &[]);
    if is_root() {
        check_qemu(&running, false);
    }
    check_ebb(&running, 0);
}

#[test]
fn volumes_are_what_root_keeps_capabilities_for() {
    if !is_root() {
        return;
    }
    const DAC_OVERRIDE: u64 = 1 << 1;
    const DAC_READ_SEARCH: u64 = 1 << 2;
    const FOWNER: u64 = 1 << 3;
    let running = start("confined-read", true, &["--volume", ".:/v:ro"]);
    check_ebb(&running, DAC_READ_SEARCH);
    assert!(
        running.said.contains("CAP_DAC_READ_SEARCH"),
        "{}",
        running.said
    );
    drop(running);
    let running = start(
        "confined-write",
        true,
        &["--volume", ".:/v", "--disk", "ram:1M"],
    );
    check_ebb(&running, DAC_OVERRIDE | DAC_READ_SEARCH | FOWNER);
    check_qemu(&running, true);
}

#[test]
fn the_reader_of_an_image_has_no_rights() {
    let scratch = Scratch::within(&std::env::temp_dir(), "confined-image");
    let archive = scratch.folder().join("root.tar");
    let busybox = Command::new("sh")
        .args(["-c", "command -v busybox"])
        .output()
        .expect("the host does this");
    let busybox = String::from_utf8(busybox.stdout).expect("the host does this");
    let root = scratch.folder().join("root/bin");
    fs::create_dir_all(&root).expect("the host does this");
    fs::copy(busybox.trim(), root.join("busybox")).expect("the host does this");
    for name in ["sh", "sleep"] {
        std::os::unix::fs::symlink("busybox", root.join(name)).expect("the host does this");
    }
    let packed = Command::new("tar")
        .arg("-cf")
        .arg(&archive)
        .arg("-C")
        .arg(scratch.folder().join("root"))
        .arg("bin")
        .status();
    assert!(packed.expect("the host does this").success());
    let archive = archive.display().to_string();
    let running = start("confined-reader", is_root(), &["--root", &archive]);
    let pid = running.child.id();
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("the host does this");
    let mut readers = children.split_whitespace().filter(|child| {
        fs::read_to_string(format!("/proc/{child}/comm")).expect("the host does this")
            == "ebb-image\n"
    });
    let reader = readers.next().expect("a process reads the image");
    let facts = status(reader);
    assert_eq!(capabilities(&facts), [0; 4]);
    assert_eq!(
        (facts["NoNewPrivs"].as_str(), facts["Seccomp"].as_str()),
        ("1", "2")
    );
    assert_eq!(link(&format!("/proc/{reader}/cwd")), "/");
    for entry in fs::read_dir(format!("/proc/{reader}/fd")).expect("the host does this") {
        let file = link(
            &entry
                .expect("the host does this")
                .path()
                .display()
                .to_string(),
        );
        let kinds = [
            "/dev/null",
            "socket:",
            "/memfd:ebb-guest-ram",
            "/#",
            &archive,
        ];
        assert!(
            kinds.iter().any(|kind| file.starts_with(kind)),
            "it has {file}"
        );
    }
    assert!(
        running
            .said
            .contains(&format!("process {reader} reads the image"))
    );
}

#[test]
fn unconfined_is_what_the_user_asks_for() {
    let running = start("unconfined", is_root(), &["--unconfined"]);
    assert!(
        running.said.contains("QEMU is not confined"),
        "{}",
        running.said
    );
    let facts = status(&running.qemu.to_string());
    assert_eq!(facts["Seccomp"], "0");
    // Even unconfined, QEMU has no descriptors of other programs.
    for entry in fs::read_dir(format!("/proc/{}/fd", running.qemu)).expect("the host does this") {
        assert_ne!(
            link(
                &entry
                    .expect("the host does this")
                    .path()
                    .display()
                    .to_string()
            ),
            "/etc/passwd"
        );
    }
}

/// Runs a Python program instead of QEMU with the same confinement and returns its output. The
/// program can call `tried(NAME, FUNCTION)`, which prints NAME and the error number, or `done`.
fn in_place_of_qemu(name: &str, accel: &str, text: &str) -> String {
    let scratch = Scratch::within(&std::env::temp_dir(), name);
    let everyone = fs::Permissions::from_mode(0o755);
    fs::set_permissions(scratch.folder(), everyone).expect("a mode");
    let source = scratch.folder().join("source");
    let start = "#!/usr/bin/python3\nimport ctypes, fcntl, os, resource, socket, sys, time\n\
                 libc = ctypes.CDLL(None, use_errno=True)\n\
                 def call(*arguments):\n\
                 \x20   if libc.syscall(*arguments) < 0: raise OSError(ctypes.get_errno(), '')\n\
                 def tried(name, what):\n\
                 \x20   try: what(); print(name, 'done', file=sys.stderr)\n\
                 \x20   except OSError as error: print(name, error.errno, file=sys.stderr)\n";
    let end = "print('end', dict(os.environ), os.getcwd(), os.getuid(), file=sys.stderr)\n";
    fs::write(&source, [start, text, end].concat()).expect("a file");
    // Another process copies the file. Otherwise a child that another test forks at this time would
    // hold it open for writing.
    let program = scratch.folder().join("qemu");
    let copied = Command::new("install")
        .args(["-m", "755"])
        .arg(&source)
        .arg(&program)
        .status();
    assert!(copied.expect("install runs").success());
    let program = program.display().to_string();
    let options = [
        "--verbose",
        "--accel",
        accel,
        "--qemu",
        &program,
        "--",
        "true",
    ];
    let output = ebb(&options).output().expect("ebb starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("end {") && !said.contains("SECRET"), "{said}");
    said
}

#[test]
fn what_runs_in_qemu_reaches_no_files_and_processes() {
    let scratch = Scratch::within(&std::env::temp_dir(), "confined-reach");
    let everyone = fs::Permissions::from_mode(0o777);
    fs::set_permissions(scratch.folder(), everyone).expect("a mode");
    let secret = scratch.folder().join("secret");
    fs::write(&secret, "a secret").expect("a file");
    let listener = scratch.folder().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&listener).expect("a socket");
    let victim = std::process::id();
    let (secret, listener) = (secret.display(), listener.display());
    let text = format!(
        "tried('read', lambda: open('{secret}').read())\n\
         tried('list', lambda: os.listdir('/etc'))\n\
         tried('passwd', lambda: open('/etc/passwd').read())\n\
         tried('environ', lambda: open('/proc/%d/environ' % os.getppid()).read())\n\
         tried('write', lambda: os.open('{secret}2', os.O_WRONLY | os.O_CREAT))\n\
         tried('chmod', lambda: os.chmod('{secret}', 0o4777))\n\
         tried('fchmod', lambda: os.fchmod(2, 0o777))\n\
         tried('chown', lambda: os.chown('{secret}', -1, -1))\n\
         tried('times', lambda: os.utime('{secret}'))\n\
         tried('attribute', lambda: os.setxattr('{secret}', 'user.x', b'x'))\n\
         tried('unlink', lambda: os.unlink('{secret}'))\n\
         tried('rename', lambda: os.rename('{secret}', '{secret}2'))\n\
         tried('link', lambda: os.link('{secret}', '{secret}2'))\n\
         tried('socket', lambda: socket.socket(socket.AF_UNIX).connect('{listener}'))\n\
         tried('pair', lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))\n\
         tried('ring', lambda: call(425, 8, ctypes.create_string_buffer(120)))\n\
         tried('kill', lambda: os.kill({victim}, 0))\n\
         tried('thread', lambda: call(234, {victim}, {victim}, 0))\n\
         tried('limits', lambda: resource.prlimit({victim}, resource.RLIMIT_NOFILE))\n\
         tried('priority', lambda: os.setpriority(os.PRIO_PROCESS, {victim}, 19))\n\
         tried('owner', lambda: fcntl.fcntl(2, fcntl.F_SETOWN, {victim}))\n\
         tried('signal', lambda: fcntl.fcntl(2, fcntl.F_SETSIG, 9))\n\
         tried('notify', lambda: fcntl.fcntl(2, fcntl.F_SETFL, os.O_ASYNC))\n\
         tried('ioctl', lambda: fcntl.ioctl(2, 0x8901, {victim}))\n\
         tried('orphan', lambda: call(157, 1, 0))\n\
         tried('trace', lambda: call(101, 16, {victim}, 0, 0))\n\
         tried('memory', lambda: call(310, {victim}, 0, 0, 0, 0, 0))\n\
         tried('namespaces', lambda: call(272, 0x10000000))\n\
         tried('fork', lambda: os.fork() or os._exit(0))\n\
         tried('filter', lambda: call(317, 1, 0, 0))\n\
         tried('old-filter', lambda: call(157, 22, 2, 0))\n\
         tried('lock', lambda: fcntl.lockf(2, fcntl.LOCK_SH | fcntl.LOCK_NB))\n\
         tried('open-lock', lambda: fcntl.fcntl(2, 37, bytes(32)))\n\
         tried('flock', lambda: fcntl.flock(2, fcntl.LOCK_SH | fcntl.LOCK_NB))\n\
         tried('clock', lambda: time.clock_gettime((~{victim} << 3) | 2))\n\
         tried('alarm', lambda: call(222, (~{victim} << 3) | 2, 0, ctypes.create_string_buffer(8)))\n\
         tried('cpus', lambda: os.sched_getaffinity({victim}))\n\
         tried('policy', lambda: os.sched_getscheduler({victim}))\n\
         tried('grows', lambda: call(9, 0, 4096, 3, 0x122, -1, 0))\n\
         tried('capabilities', lambda: call(125, (ctypes.c_uint32 * 2)(0x20080522, {victim}), (ctypes.c_uint32 * 6)()))\n\
         tried('set-policy', lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)))\n\
         tried('set-cpus', lambda: os.sched_setaffinity(0, [0]))\n\
         tried('io-priority', lambda: call(251, 1, 0, 0))\n\
         tried('apart', lambda: call(56, 0x10900 | 0x200, 0, 0, 0, 0))\n\
         tried('own-cpus', lambda: os.sched_getaffinity(0))\n\
         tried('own-clock', lambda: time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID))\n\
         at = sys.argv[[i for i in range(len(sys.argv)) if sys.argv[i] == '-object'][0] + 1]\n\
         ram = [word[9:] for word in at.split(',') if word.startswith('mem-path=')][0]\n\
         file = int(ram.split('/')[-1])\n\
         size = os.fstat(file).st_size\n\
         tried('cut', lambda: os.ftruncate(file, 4096))\n\
         tried('grow', lambda: os.ftruncate(file, size * 2))\n\
         tried('allocate', lambda: os.posix_fallocate(file, size, 4096))\n\
         tried('collapse', lambda: call(285, file, 8, 0, 4096))\n\
         tried('cut-by-path', lambda: os.truncate(ram, 4096))\n\
         tried('empty', lambda: os.open(ram, os.O_RDWR | os.O_TRUNC))\n\
         tried('again', lambda: os.open(ram, os.O_RDWR))\n\
         tried('hole', lambda: call(285, file, 3, 0, 2 << 20))\n\
         tried('cut-again', lambda: os.ftruncate(os.open(ram, os.O_RDWR), 4096))\n\
         print('size is', 'kept' if os.fstat(file).st_size == size else 'changed', file=sys.stderr)\n\
         tried('own-limits', lambda: resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    );
    let said = in_place_of_qemu("confined-place", "tcg", &text);
    let files = ["read", "list", "passwd", "environ", "write"];
    let calls = [
        "chmod",
        "fchmod",
        "chown",
        "times",
        "attribute",
        "unlink",
        "rename",
        "link",
        "socket",
        "pair",
        "ring",
        "kill",
        "thread",
        "limits",
        "priority",
        "owner",
        "signal",
        "notify",
        "ioctl",
        "orphan",
        "trace",
        "memory",
        "namespaces",
        "fork",
        "filter",
        "old-filter",
        "lock",
        "open-lock",
        "flock",
        "clock",
        "alarm",
        "cpus",
        "policy",
        "grows",
        "capabilities",
        "set-policy",
        "set-cpus",
        "io-priority",
        "apart",
        "cut",
        "grow",
        "allocate",
        "collapse",
        "cut-by-path",
        "empty",
        "cut-again",
    ];
    let errors = files.iter().map(|name| (name, libc::EACCES));
    for (name, error) in errors.chain(calls.iter().map(|name| (name, libc::EPERM))) {
        assert!(
            said.contains(&format!(" {name} {error}\n")),
            "{name}: {said}"
        );
    }
    for own in ["own-limits", "own-cpus", "own-clock", "again", "hole"] {
        assert!(said.contains(&format!(" {own} done\n")), "{said}");
    }
    assert!(said.contains(" size is kept\n"), "{said}");
    assert!(said.contains("} / "), "{said}");
}

#[test]
fn a_signal_ends_a_qemu_that_does_not_greet() {
    let scratch = Scratch::within(&std::env::temp_dir(), "confined-silent");
    let program = scratch.folder().join("qemu");
    let text = "#!/bin/sh\necho silent >&2\nexec sleep 1000\n";
    fs::write(&program, text).expect("a file");
    let installed = Command::new("chmod").arg("755").arg(&program).status();
    assert!(installed.expect("chmod runs").success());
    let program = program.display().to_string();
    let options = ["--verbose", "--unconfined", "--accel", "tcg", "--qemu"];
    let mut command = ebb(&[&options[..], &[&program, "--", "true"]].concat());
    command.stderr(Stdio::piped());
    let mut child = command.spawn().expect("ebb starts");
    let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("silent")), "QEMU starts");
    signal(child.id(), "INT");
    let status = child.wait().expect("ebb ends");
    // After the 20 s that the monitor may need, it would be the status of a failure.
    assert_eq!(status.code(), Some(130), "{status}");
}

#[test]
fn qemu_on_kvm_is_not_root_either() {
    // If only root may open the device, QEMU gets a node of its own.
    if !is_root() || fs::File::open("/dev/kvm").is_err() {
        return;
    }
    let text = "tried('device', lambda: open('/dev/kvm', 'r+b', buffering=0))\n\
                tried('others', lambda: open('/dev/tty0', 'rb'))\n";
    let said = in_place_of_qemu("confined-kvm", "kvm", text);
    assert!(said.contains(" device done\n"), "{said}");
    assert!(!said.contains(" others done\n"), "{said}");
    let user = said
        .split("} / ")
        .nth(1)
        .and_then(|rest| rest.split('\n').next());
    let user: u32 = user.and_then(|user| user.parse().ok()).expect("its user");
    assert!(user > 1_000_000_000, "{said}");
}
