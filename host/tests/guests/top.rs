//! Tests of `ebb top`, `ebb metrics` and the control sockets with real guests.

use crate::guest::ebb;
use crate::running::{eventually, signal};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const MIB: u64 = 1 << 20;

/// A runtime folder of one test.
struct Runtime(PathBuf);

impl Runtime {
    fn new(test: &str) -> Self {
        let name = format!("ebb-runtime-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new folder");
        Self(path)
    }

    fn folder(&self) -> PathBuf {
        self.0.join("ebb")
    }

    fn sockets(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder()).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Runs `ebb COMMAND` with this runtime folder.
    fn ebb(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ebb"))
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &self.0)
            .output()
            .expect("ebb starts")
    }

    /// Returns the guests that are registered in this folder.
    fn listing(&self) -> Vec<Value> {
        let output = self.ebb(&["top", "--once", "--json"]);
        assert!(output.status.success());
        let listing: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // The list also contains guests of other users of this machine.
        let pids = self.sockets().join(" ");
        let guests = listing["guests"].as_array().expect("a list").iter();
        let ours = guests.filter(|guest| {
            let pid = guest["pid"].as_u64().expect("a number");
            pids.split(' ').any(|name| name == format!("{pid}.sock"))
        });
        ours.cloned().collect()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A guest. Dropping it ends the guest.
struct Guest(Child);

impl Guest {
    /// Starts a guest with a script that prints `ready` and then waits for a line.
    fn start(runtime: &Path, arguments: &[&str], script: &str) -> Self {
        let child = ebb(&[arguments, &["--", "sh", "-c", script]].concat())
            .env("XDG_RUNTIME_DIR", runtime)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ebb starts");
        let mut guest = Self(child);
        guest.wait_for("ready");
        guest
    }

    fn wait_for(&mut self, word: &str) {
        let stdout = self.0.stdout.as_mut().expect("it is piped");
        // Reads one byte at a time, so that later output is not lost.
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            stdout.read_exact(&mut byte).expect("a line");
            line.push(byte[0]);
        }
        assert_eq!(String::from_utf8_lossy(&line).trim_end(), word);
    }

    fn go_on(&mut self) {
        let stdin = self.0.stdin.as_mut().expect("it is piped");
        stdin.write_all(b"\n").expect("it reads");
    }

    fn socket(&self, runtime: &Runtime) -> PathBuf {
        let path = runtime.folder().join(format!("{}.sock", self.0.id()));
        eventually("registration", || path.exists().then_some(()));
        path
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends one request to a control socket and returns the answer.
fn ask(socket: &Path, request: &str) -> Value {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream
        .write_all(format!("{request}\n").as_bytes())
        .expect("it reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a line");
    serde_json::from_str(&line).expect("JSON")
}

/// Returns the number of pageblocks of each kind in a guest of 256 MiB.
fn counts(socket: &Path) -> impl Fn(&str) -> u64 + use<> {
    counts_of(socket, 128)
}

/// Returns the number of pageblocks of each kind in a guest with `blocks` pageblocks.
fn counts_of(socket: &Path, blocks: u64) -> impl Fn(&str) -> u64 + use<> {
    let reply = ask(socket, r#"{"get":"map"}"#);
    let map = reply["map"].clone();
    let regions = map["regions"].as_array().expect("a list").iter();
    let letters: usize = regions
        .map(|region| region["blocks"].as_str().expect("text").len())
        .sum();
    let counts = map["counts"].clone();
    let sum: u64 = counts
        .as_object()
        .expect("an object")
        .values()
        .map(|count| count.as_u64().expect("a number"))
        .sum();
    assert_eq!(sum, blocks, "each is counted: {counts}");
    assert_eq!(letters as u64, blocks, "each has a letter");
    assert_eq!(map["block_bytes"], 2 * MIB);
    move |kind| counts[kind].as_u64().expect("a number")
}

#[test]
fn two_guests_are_listed_while_they_run() {
    let runtime = Runtime::new("two");
    let mut guests = [
        Guest::start(&runtime.0, &["--name", "first one"], "echo ready; read x"),
        Guest::start(&runtime.0, &[], "echo ready; read x"),
    ];
    let sockets = guests.each_ref().map(|guest| guest.socket(&runtime));
    // The name of a running guest cannot be used again, but the name of its program can. On a busy
    // host, the first guest may answer late, and its name is not known then.
    eventually("the refusal of a name", || {
        let second = runtime.ebb(&["run", "--name", "first one", "--", "true"]);
        let why = String::from_utf8_lossy(&second.stderr);
        let is_refused = second.status.code() == Some(125);
        (is_refused && why.contains("a guest of that name runs already (process ")).then_some(())
    });
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions();
    assert_eq!(mode(&runtime.folder()).mode() & 0o777, 0o700);

    // Figures are as old as the last sample of the guest, and its first line may arrive before the
    // sample.
    let listed = eventually("a look at both guests at work", || {
        let listed = runtime.listing();
        let at_work =
            |guest: &Value| guest["life"] == "running" && guest["overhead_bytes"].is_u64();
        // On a busy host, a guest may answer late and be absent.
        (listed.len() == 2 && listed.iter().all(at_work)).then_some(listed)
    });
    let names: Vec<_> = listed
        .iter()
        .filter_map(|guest| guest["name"].as_str())
        .collect();
    assert_eq!(listed.len(), 2, "{names:?}");
    assert!(names.contains(&"first one"), "{names:?}");
    let default = format!("sh-{}", guests[1].0.id());
    assert!(names.contains(&default.as_str()), "{names:?}");
    for guest in &listed {
        assert_eq!(guest["memory_bytes"], 256 * MIB);
        assert_eq!(guest["kernel"], "ebb");
        let bytes = |name: &str| guest[name].as_u64().expect("a number");
        assert!(bytes("used_bytes") > MIB && bytes("used_bytes") < 64 * MIB);
        assert!(bytes("free_bytes") > 128 * MIB);
        assert!(bytes("used_bytes") + bytes("free_bytes") <= 256 * MIB);
        assert!(bytes("resident_bytes") > MIB);
        assert!(bytes("overhead_bytes") > MIB);
        assert!(bytes("faults") > 0);
    }

    eventually("the guest in the table", || {
        let output = runtime.ebb(&["top", "--once", "--sort", "name"]);
        let table = String::from_utf8(output.stdout).expect("text");
        assert!(table.starts_with("NAME"), "{table}");
        table.contains("first one").then_some(())
    });

    let line = format!(
        "ebb_guest_memory_bytes{{guest=\"first one\",pid=\"{}\"}} 268435456\n",
        guests[0].0.id()
    );
    eventually("the guest in the metrics", || {
        let output = runtime.ebb(&["metrics", "--once"]);
        let metrics = String::from_utf8(output.stdout).expect("text");
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
        metrics.contains(&line).then_some(())
    });

    let history = ask(&sockets[0], r#"{"get":"history"}"#);
    let points = history["history"]["points"].as_array().expect("a list");
    assert!(!points.is_empty());

    for guest in &mut guests {
        guest.go_on();
        assert_eq!(guest.0.wait().expect("it ends").code(), Some(0));
    }
    assert!(runtime.sockets().is_empty(), "{:?}", runtime.sockets());
}

#[test]
fn the_map_follows_what_the_program_does() {
    let runtime = Runtime::new("map");
    let script = "echo ready; read x; dd if=/dev/zero of=/tmp/x bs=1M count=100 2>/dev/null; \
        echo taken; read x; rm /tmp/x; echo freed; read x";
    let mut guest = Guest::start(&runtime.0, &[], script);
    let socket = guest.socket(&runtime);
    let before = counts(&socket);
    assert!(before("returned") > 90, "nothing was used yet");
    guest.go_on();
    guest.wait_for("taken");
    // A map may be slightly old.
    eventually("the blocks that the file takes", || {
        let taken = counts(&socket);
        let more = taken("full") + taken("partial") >= before("full") + before("partial") + 45;
        (more && taken("returned") + 45 <= before("returned")).then_some(())
    });
    guest.go_on();
    guest.wait_for("freed");
    // At first the host still holds the memory, or it is being reported. Seconds later it has gone
    // back.
    eventually("the return of all blocks", || {
        let now = counts(&socket);
        let is_freed = now("full") + now("partial") <= before("full") + before("partial") + 4;
        (is_freed && now("returned") + 3 >= before("returned") && now("held") <= 3).then_some(())
    });
}

#[test]
fn the_map_shows_the_pool_of_huge_pages() {
    let runtime = Runtime::new("pool");
    let script = "echo ready; read x; echo 40 > /proc/sys/vm/nr_hugepages; echo made; read x; \
        mkdir /huge; mount -t hugetlbfs none /huge; fallocate -l 20M /huge/file; echo taken; read x; \
        rm /huge/file; echo 10 > /proc/sys/vm/nr_hugepages; echo fewer; read x";
    let mut guest = Guest::start(&runtime.0, &[], script);
    let socket = guest.socket(&runtime);
    let pid = guest.0.id();
    let shows = |free: u64, used: u64| {
        eventually("the pool in the map", || {
            let now = counts(&socket);
            (now("pool_free") == free && now("pool_used") == used && now("huge") == 0).then_some(())
        });
        let sample = |name: &str, more: &str, value: u64| {
            format!("{name}{{guest=\"sh-{pid}\",pid=\"{pid}\"{more}}} {value}\n")
        };
        let size = ",page_bytes=\"2097152\"";
        let given_up = (free + used) * (32 << 10);
        let samples = [
            sample("ebb_guest_huge_pages", size, free + used),
            sample("ebb_guest_huge_pages_free", size, free),
            sample("ebb_guest_huge_pages_reserved", size, 0),
            sample("ebb_guest_huge_pages_surplus", size, 0),
            sample("ebb_guest_huge_descriptors_given_up_bytes", "", given_up),
        ];
        eventually("the pool in the metrics", || {
            let metrics = runtime.ebb(&["metrics", "--once"]).stdout;
            let metrics = String::from_utf8(metrics).expect("text");
            let told = samples.iter().all(|sample| metrics.contains(sample));
            told.then_some(())
        });
    };
    shows(0, 0);
    guest.go_on();
    guest.wait_for("made");
    shows(40, 0);
    guest.go_on();
    guest.wait_for("taken");
    shows(30, 10);
    guest.go_on();
    guest.wait_for("fewer");
    shows(10, 0);
}

/// Shows that the map shows pages of 1 GiB, and pages of 2 MiB once they are split.
#[test]
fn the_map_shows_pages_of_1_gib() {
    let runtime = Runtime::new("gib");
    let script = "cd /sys/kernel/mm/hugepages/hugepages-1048576kB; echo ready; read x; \
        echo 2 > nr_hugepages; echo made; read x; mkdir /huge; \
        mount -t hugetlbfs -o pagesize=1G none /huge; fallocate -l 1G /huge/file; echo taken; read x; \
        rm /huge/file; echo 1 > demote; echo parted; read x";
    let mut guest = Guest::start(&runtime.0, &["-m", "5G"], script);
    let socket = guest.socket(&runtime);
    let shows = |wanted: [u64; 4]| {
        eventually("pages of 1 GiB in the map", || {
            let now = counts_of(&socket, 5 << 9);
            let now = ["gib_free", "gib_used", "pool_free", "pool_used"].map(now);
            (now == wanted).then_some(())
        });
    };
    shows([0; 4]);
    for (said, wanted) in [
        ("made", [1024, 0, 0, 0]),
        ("taken", [512, 512, 0, 0]),
        ("parted", [512, 0, 512, 0]),
    ] {
        guest.go_on();
        guest.wait_for(said);
        shows(wanted);
    }
}

#[test]
fn sockets_of_killed_runs_are_removed() {
    let runtime = Runtime::new("stale");
    let mut guest = Guest::start(&runtime.0, &[], "echo ready; read x");
    let killed = guest.socket(&runtime);
    guest.0.kill().expect("it is alive");
    guest.0.wait().expect("it ends");
    assert!(killed.exists(), "no process was left to remove it");
    drop(UnixListener::bind(runtime.folder().join("notes")).expect("a socket"));
    assert!(runtime.listing().is_empty());
    assert_eq!(runtime.sockets(), ["notes"], "what is not ours stays");
}

#[test]
fn a_signal_leaves_no_socket() {
    let runtime = Runtime::new("signal");
    let mut guest = Guest::start(&runtime.0, &[], "echo ready; while :; do sleep 1; done");
    guest.socket(&runtime);
    signal(guest.0.id(), "TERM");
    assert_eq!(guest.0.wait().expect("it ends").code(), Some(143));
    assert!(runtime.sockets().is_empty());
}

#[test]
fn hostile_clients_do_not_block_others() {
    let runtime = Runtime::new("hostile");
    let mut guest = Guest::start(&runtime.0, &[], "echo ready; read x");
    let socket = guest.socket(&runtime);
    let slow: Vec<_> = (0..40)
        .map(|_| {
            let mut client = UnixStream::connect(&socket).expect("it listens");
            // A client that was disconnected cannot write the rest.
            let _ = client.write_all(b"{\"get\":");
            client
        })
        .collect();
    let deaf = UnixStream::connect(&socket).expect("it listens");
    deaf.set_nonblocking(true).expect("it can be");
    let requests = b"{\"get\":\"map\"}\n".repeat(64);
    // Until the socket accepts no more bytes.
    while (&deaf).write(&requests).is_ok() {}
    let mut endless = UnixStream::connect(&socket).expect("it listens");
    let _ = endless.write_all(&vec![b'['; 1 << 20]);
    let mut answer = String::new();
    let _ = endless.read_to_string(&mut answer);
    assert!(answer.contains("at most 1024 bytes"), "{answer}");
    for nonsense in [
        "",
        "{}",
        "\0",
        "{\"get\":\"figures\",\"get\":\"map\"}",
        "nul",
    ] {
        let reply = ask(&socket, nonsense);
        assert!(reply["error"].is_string(), "{reply}");
    }
    assert_eq!(
        ask(&socket, r#"{"get":"figures"}"#)["figures"]["life"],
        "running"
    );
    guest.go_on();
    assert_eq!(guest.0.wait().expect("it ends").code(), Some(0));
    assert!(!socket.exists());
    drop((slow, deaf));
}

#[test]
fn a_folder_that_cannot_be_had_is_no_failure() {
    let runtime = Runtime::new("refused");
    std::fs::write(runtime.folder(), "a file in its place").expect("it is ours");
    let output = ebb(&["--", "echo", "fine"])
        .env("XDG_RUNTIME_DIR", &runtime.0)
        .output()
        .expect("ebb starts");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"fine\n");
    assert!(
        output.stderr.is_empty(),
        "{:?}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn metrics_are_served_on_this_machine_alone() {
    let refused = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["metrics", "--listen", "0.0.0.0:0"])
        .output()
        .expect("ebb starts");
    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("0.0.0.0:0"));

    let mut serving = Guest(
        Command::new(env!("CARGO_BIN_EXE_ebb"))
            .args(["metrics", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("ebb starts"),
    );
    let mut line = String::new();
    let stdout = serving.0.stdout.as_mut().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let address = line
        .strip_prefix("serving http://")
        .and_then(|rest| rest.strip_suffix("/metrics\n"))
        .expect("the address");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}
