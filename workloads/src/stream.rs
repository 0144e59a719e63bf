//! `stream`: sends many bytes from one process to another over a socket, like netperf.
//!
//! netperf's stream test over TCP goes through a network card. In a guest without one, a pair of
//! sockets has the rest of it: copying into the kernel and out of it, and the switches between the
//! two processes. Messages have the size that netperf sends, and the receiver's buffer the size
//! with which it receives.

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio};
use crate::output::{Better, Labels, Metric, Output};
use crate::tasks::Child;
use crate::{Experiment, Failure};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The experiment `stream`, with its arguments, help text and function: measures the bytes a second
/// from one process to another over a socket.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "stream",
    usage: "[SECONDS|ROUNDSr]",
    summary: "bulk bytes from one process to another over a socket",
    help: "\
For SECONDS (5) or a fixed number of rounds of 16 MiB (10r), messages of 16 KiB over a pair of
AF_UNIX stream sockets. The receiver checks samples of what it gets.

Prints bytes a second at the receiver (bytes_per_second) and how many bytes came.",
    run,
};

const MESSAGE_BYTES: usize = 16 << 10;
const RECEIVE_BYTES: usize = 87_380;
const MESSAGES_A_ROUND: usize = 1024;
const DEFAULT_UNTIL: Until = Until::Elapsed(Duration::from_secs(5));
/// The receiver checks one byte in each group of this number of bytes.
const SAMPLE_BYTES: usize = 4093;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 1)?;
    let until = words
        .first()
        .map_or(Ok(DEFAULT_UNTIL), |word| Until::parse(word))?;
    let (here, there) = UnixStream::pair().map_err(Failure::system("make a pair of sockets"))?;
    // In a cell, so that the child can close its copy.
    let here = Cell::new(Some(here));
    let sender = Child::fork(|| {
        drop(here.take());
        send(&there, until)
    })?;
    drop(there);
    let here = here.take().expect("the parent took nothing");
    let (bytes, ns) = receive(here)?;
    let status = sender.wait()?;
    if !status.success() {
        return Err(Failure::Wrong(format!("the sender ended with {status}")));
    }
    out.say(&format!("{bytes} bytes in {} s", ratio(ns, 1_000_000_000)))?;
    out.result(&Metric {
        name: "bytes_per_second",
        value: ratio(bytes, ns) * 1e9,
        unit: "1/s",
        better: Better::Higher,
        labels: Labels::from([("message", MESSAGE_BYTES.to_string())]),
    })
}

/// Sends whole rounds until `until` is reached, then ends the stream.
fn send(mut socket: &UnixStream, until: Until) -> Result<(), Failure> {
    let message: Vec<u8> = (0..MESSAGE_BYTES).map(expected).collect();
    let begin = monotonic_ns();
    let mut rounds = 0;
    while !until.reached(rounds, monotonic_ns() - begin) {
        for _ in 0..MESSAGES_A_ROUND {
            socket
                .write_all(&message)
                .map_err(Failure::system("send"))?;
        }
        rounds += 1;
    }
    socket
        .shutdown(std::net::Shutdown::Write)
        .map_err(Failure::system("end the stream"))
}

/// Receives to the end of the stream. Returns the number of bytes, and the nanoseconds from the
/// first byte to the end. Fails with `Wrong` if a byte differs.
fn receive(mut socket: UnixStream) -> Result<(u64, u64), Failure> {
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut position = 0;
    let mut begin = None;
    loop {
        let count = match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(Failure::system("receive")(source)),
        };
        begin.get_or_insert_with(monotonic_ns);
        for offset in (0..count).step_by(SAMPLE_BYTES) {
            if buffer[offset] != expected(position + offset) {
                return Err(Failure::Wrong(format!(
                    "byte {} of the stream is not what was sent",
                    position + offset
                )));
            }
        }
        position += count;
    }
    let ns = begin.map_or(0, |begin| monotonic_ns() - begin);
    Ok((position as u64, ns))
}

/// Returns the byte at `position`. All messages are equal, and shifted data differs.
#[allow(clippy::cast_possible_truncation, reason = "it is a hash")]
fn expected(position: usize) -> u8 {
    let inside = position % MESSAGE_BYTES;
    (inside ^ (inside >> 8).wrapping_mul(37)) as u8
}
