//! Tests of an inflated balloon: a program gets memory back from it in need, a pool of huge pages
//! does not, and compaction moves its pages.

use crate::ebb::{Holder, TIMEOUT};
use crate::paused::until;
use crate::scratch::Scratch;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

const MEMORY: u64 = 512 << 20;
const INFLATED: u64 = 128 << 20;

/// A connection to QEMU's monitor, in addition to ebb's own.
struct Qmp(BufReader<UnixStream>);

impl Qmp {
    fn connect(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).expect("QEMU listens while its guest runs");
        let mut qmp = Self(BufReader::new(stream));
        let mut greeting = String::new();
        qmp.0.read_line(&mut greeting).expect("QEMU greets");
        qmp.ask(&json!({"execute": "qmp_capabilities"}));
        qmp
    }

    /// Sends a command and returns its result. Skips events.
    fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.0.get_mut(), "{command}").expect("QEMU reads");
        loop {
            let mut line = String::new();
            let read = self.0.read_line(&mut line).expect("QEMU answers");
            assert!(read != 0, "QEMU ended at {command}");
            let answer: Value = serde_json::from_str(&line).expect("QEMU speaks JSON");
            assert!(answer.get("error").is_none(), "{command}: {answer}");
            if let Some(value) = answer.get("return") {
                return value.clone();
            }
        }
    }

    fn actual(&mut self) -> u64 {
        let answer = self.ask(&json!({"execute": "query-balloon"}));
        answer["actual"].as_u64().expect("a number of bytes")
    }

    /// Returns the statistic `name` that the guest has sent, or `None` if it has sent none yet.
    fn statistic(&mut self, name: &str) -> Option<u64> {
        let answer = self.ask(&json!({"execute": "qom-get", "arguments": {
            "path": "/machine/peripheral/balloon", "property": "guest-stats"}}));
        // QEMU sets a statistic that the guest does not send to all ones.
        answer["stats"][name].as_u64().filter(|n| *n != u64::MAX)
    }

    fn set(&mut self, bytes: u64) {
        self.ask(&json!({"execute": "balloon", "arguments": {"value": bytes}}));
        let start = Instant::now();
        while self.actual() != bytes {
            let actual = self.actual();
            assert!(
                start.elapsed() < TIMEOUT,
                "the guest stays at {actual} of {bytes}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Options for a guest whose QEMU has a second monitor at `socket`.
fn with_monitor(socket: &std::path::Path) -> [String; 3] {
    [
        "--unconfined".into(),
        "--qemu-arg=-qmp".into(),
        format!("--qemu-arg=unix:{},server=on,wait=off", socket.display()),
    ]
}

#[test]
fn its_statistics_count_the_pages_of_the_pool() {
    let folder = Scratch::new("balloon-statistics");
    let socket = folder.folder().join("qmp");
    let monitor = with_monitor(&socket);
    let mut options = vec!["-m", "256M", "--sysctl", "vm.nr_hugepages=1000"];
    options.extend(monitor.iter().map(String::as_str));
    let mut holder = Holder::start(&options);
    holder.tell("take 1", "taken");
    let mut qmp = Qmp::connect(&socket);
    qmp.ask(
        &json!({"execute": "qom-set", "arguments": {"path": "/machine/peripheral/balloon",
        "property": "guest-stats-polling-interval", "value": 1}}),
    );
    let start = Instant::now();
    loop {
        let made = qmp.statistic("stat-htlb-pgalloc");
        let failed = qmp.statistic("stat-htlb-pgfail");
        if let (Some(20..128), Some(1..)) = (made, failed) {
            break;
        }
        assert!(start.elapsed() < TIMEOUT, "{made:?} {failed:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Starts a guest of two CPUs, and inflates its balloon until [`INFLATED`] bytes are left. `folder`
/// is for its monitor's socket.
fn inflated(folder: &Scratch) -> (Holder, Qmp) {
    let socket = folder.folder().join("qmp");
    let monitor = with_monitor(&socket);
    let mut options = vec!["-m", "512M", "-c", "2"];
    options.extend(monitor.iter().map(String::as_str));
    let mut holder = Holder::start(&options);
    holder.tell("take 1", "taken");
    let mut qmp = Qmp::connect(&socket);
    qmp.set(INFLATED);
    (holder, qmp)
}

/// Shows that memory in a balloon counts as neither used nor free with both kernels, and that a
/// stock guest's figures add up to its RAM.
#[test]
fn memory_in_a_balloon_is_neither_used_nor_free() {
    const BALLOON: u64 = 200 << 20;
    const SLACK: u64 = 24 << 20;
    let folder = Scratch::new("balloon-figures");
    for kernel in ["ebb", "linux"] {
        let socket = folder.folder().join(kernel);
        let monitor = with_monitor(&socket);
        let mut options = vec!["-m", "512M", "-c", "2", "--kernel", kernel];
        options.extend(monitor.iter().map(String::as_str));
        let mut holder = Holder::start(&options);
        holder.tell("take 1", "taken");
        let number = |figures: &Value, name: &str| figures[name].as_u64().unwrap_or(u64::MAX);
        let used = |figures: &Value| number(figures, "used_bytes");
        let before = until(&holder.guest, "its figures", |figures| {
            number(figures, "balloon_bytes") == 0 && used(figures) < MEMORY
        });
        let mut qmp = Qmp::connect(&socket);
        for balloon in [BALLOON, 0] {
            qmp.set(MEMORY - balloon);
            let told = until(&holder.guest, "the balloon", |figures| {
                number(figures, "balloon_bytes") == balloon
                    && used(figures) < used(&before) + SLACK
                    && number(figures, "free_bytes")
                        .abs_diff(number(&before, "free_bytes") - balloon)
                        < SLACK
            });
            let parts = ["used_bytes", "balloon_bytes", "free_bytes"];
            let sum: u64 = parts.map(|name| number(&told, name)).iter().sum();
            if kernel == "linux" {
                assert_eq!(sum + number(&told, "reserved_bytes"), MEMORY, "{told}");
                let kept = used(&told) + number(&told, "reserved_bytes");
                let gap = number(&told, "resident_bytes").saturating_sub(kept);
                assert_eq!(number(&told, "gap_bytes"), gap, "{told}");
            } else {
                assert!(told["reserved_bytes"].is_null(), "{told}");
                assert!((MEMORY - SLACK..=MEMORY).contains(&sum), "{told}");
            }
        }
    }
}

#[test]
fn a_balloon_yields_to_a_program_in_need_and_loses_no_page() {
    let folder = Scratch::new("balloon");
    let (mut holder, mut qmp) = inflated(&folder);
    // The program needs more memory than is left. The balloon is deflated first, and no process is
    // killed.
    holder.tell("take 300", "taken");
    // The driver tells the device its size after it has freed the pages.
    let start = Instant::now();
    loop {
        let actual = qmp.actual();
        if actual > INFLATED + (100 << 20) {
            break;
        }
        assert!(start.elapsed() < TIMEOUT, "{actual}");
        thread::sleep(Duration::from_millis(50));
    }
    holder.tell("free", "freed");
    // Every page that was put into the balloon comes out again.
    qmp.set(MEMORY);
    holder.tell("take 400", "taken");
}

/// Shows that a pool of huge pages takes no memory from the balloon, which is the host's limit.
#[test]
fn a_pool_of_huge_pages_leaves_the_balloon_as_it_is() {
    let folder = Scratch::new("balloon-pool");
    let (mut holder, mut qmp) = inflated(&folder);
    let before = holder.counter("balloon_deflate");
    // 400 MiB. The guest has about a quarter of that left.
    holder.tell("write /proc/sys/vm/nr_hugepages 200", "written");
    let pages: u64 = holder
        .ask("show /proc/sys/vm/nr_hugepages")
        .parse()
        .expect("a number");
    assert!((1..64).contains(&pages), "{pages} pages");
    // A small allocation elsewhere may still take a little of it.
    let deflated = holder.counter("balloon_deflate") - before;
    assert!(deflated < 4096, "{deflated} pages left the balloon");
    assert!(qmp.actual() < INFLATED + (16 << 20), "{}", qmp.actual());
}

/// Shows that the kernel's figures of the balloon are in the files that have them on Linux, and
/// agree with the size that QEMU knows.
#[test]
fn its_size_is_in_the_files_that_have_it_on_linux() {
    let folder = Scratch::new("balloon-size");
    let (mut holder, mut qmp) = inflated(&folder);
    let node = "/sys/devices/system/node/node0";
    for size in [INFLATED, MEMORY - (7 << 20), MEMORY] {
        qmp.set(size);
        let (pages, kib) = ((MEMORY - size) >> 12, (MEMORY - size) >> 10);
        let entered = holder.counter("balloon_inflate") - holder.counter("balloon_deflate");
        assert_eq!(entered.cast_unsigned(), pages);
        let line = format!("Balloon:{kib:>16} kB");
        holder.tell("find /proc/meminfo Balloon:", &line);
        let node_line = format!("Node 0 Balloon:{kib:>16} kB");
        holder.tell(&format!("find {node}/meminfo Balloon:"), &node_line);
        let line = format!("nr_balloon_pages {pages}");
        holder.tell("find /proc/vmstat nr_balloon_pages", &line);
        holder.tell(&format!("find {node}/vmstat nr_balloon_pages"), &line);
        let line = format!("      {line}");
        holder.tell("find /proc/zoneinfo nr_balloon_pages", &line);
    }
}

/// Shows that compaction moves pages of the balloon, and that none is lost.
#[test]
fn pages_of_a_balloon_move() {
    let folder = Scratch::new("balloon-moves");
    for cpus in ["1", "4"] {
        let socket = folder.folder().join(cpus);
        let monitor = with_monitor(&socket);
        let still = ["--sysctl", "vm.compaction_proactiveness=0"];
        let mut options = vec!["-m", "512M", "-c", cpus];
        options.extend(still);
        options.extend(monitor.iter().map(String::as_str));
        let mut holder = Holder::start(&options);
        // Most memory is in pieces of one page when the balloon takes its pages.
        holder.tell("take 420", "taken");
        holder.tell("sparse", "freed");
        let mut qmp = Qmp::connect(&socket);
        let size = MEMORY - (128 << 20);
        qmp.set(size);
        holder.tell("free", "freed");
        holder.tell("write /proc/sys/vm/compact_memory 1", "written");
        let moved = holder.counter("balloon_migrate");
        assert!(moved > 1000, "{moved} pages moved, {cpus} CPUs");
        // The balloon has its size still.
        qmp.set(size);
        let (inflated, deflated) = (
            holder.counter("balloon_inflate"),
            holder.counter("balloon_deflate"),
        );
        assert_eq!(inflated - deflated, 128 << 8, "pages, {cpus} CPUs");
        qmp.set(MEMORY);
        holder.tell("take 400", "taken");
    }
}
