//! Tests that a program gets memory back from an inflated balloon when it needs it.

use crate::ebb::{Holder, TIMEOUT};
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

#[test]
fn a_balloon_yields_to_a_program_in_need_and_loses_no_page() {
    let folder = Scratch::new("balloon");
    let socket = folder.folder().join("qmp");
    let listen = format!("--qemu-arg=unix:{},server=on,wait=off", socket.display());
    let options = [
        "-m",
        "512M",
        "-c",
        "2",
        "--unconfined",
        "--qemu-arg=-qmp",
        &listen,
    ];
    let mut holder = Holder::start(&options);
    holder.tell("take 1", "taken");
    let mut qmp = Qmp::connect(&socket);
    qmp.set(INFLATED);
    // The program needs more memory than is left. The balloon is deflated first, and no process is
    // killed.
    holder.tell("take 300", "taken");
    let actual = qmp.actual();
    assert!(actual > INFLATED + (100 << 20), "{actual}");
    holder.tell("free", "freed");
    // Every page that was put into the balloon comes out again.
    qmp.set(MEMORY);
    holder.tell("take 400", "taken");
}
