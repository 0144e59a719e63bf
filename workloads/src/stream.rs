//! `stream`: sends many bytes from one process to another over a socket, like netperf.
//!
//! With `--tcp` it does what netperf's `TCP_STREAM` does between two processes of one machine: a
//! connection over the loopback interface, messages of 16,384 bytes, calls that receive up to
//! 87,380 bytes. netperf does not set the sizes of the sockets' buffers unless it is asked to; it
//! prints what the kernel says. So does this experiment. Without `--tcp` the same goes through a
//! pair of `AF_UNIX` sockets, which leaves the protocol out.

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio, seconds};
use crate::output::{Better, Labels, Metric, Output};
use crate::tasks::Child;
use crate::{Experiment, Failure};
use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The experiment `stream`, with its arguments, help text and function: measures the bytes a second
/// from one process to another over a socket.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "stream",
    usage: "[SECONDS|ROUNDSr] [--tcp]",
    summary: "bulk bytes from one process to another over a socket, as netperf's TCP_STREAM",
    help: "\
For SECONDS (5) or a fixed number of rounds of 16 MiB (10r), messages of 16 KiB over a pair of
AF_UNIX stream sockets, or with --tcp over a TCP connection to 127.0.0.1. Calls receive up to 87,380
bytes. The receiver checks samples of what it gets.

Prints bytes a second at the receiver (bytes_per_second), and for people netperf's line: the sizes
of the receiver's and the sender's socket by getsockopt, that of messages, the time, and the
throughput in 10^6 bits a second.",
    run,
};

const MESSAGE_BYTES: usize = 16 << 10;
const RECEIVE_BYTES: usize = 87_380;
const MESSAGES_A_ROUND: usize = 1024;
const DEFAULT_UNTIL: Until = Until::Elapsed(Duration::from_secs(5));
/// The receiver checks one byte in each group of this number of bytes.
const SAMPLE_BYTES: usize = 4093;

/// The kind of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sockets {
    /// A pair of `AF_UNIX` stream sockets.
    Unix,
    /// A TCP connection over the loopback interface.
    Tcp,
}

/// Two connected sockets, with the sizes of their buffers in bytes. Those of TCP are as the kernel
/// says before the connection, as netperf prints them; they grow later.
struct Connection {
    receiver: File,
    sender: File,
    receive_buffer: u64,
    send_buffer: u64,
}

impl Sockets {
    /// Connects two sockets of this kind. Fails with `System` if a call fails.
    fn connect(self) -> Result<Connection, Failure> {
        let (receiver, sender, sized): (OwnedFd, OwnedFd, Option<OwnedFd>) = match self {
            Self::Unix => {
                let (here, there) =
                    UnixStream::pair().map_err(Failure::system("make a pair of sockets"))?;
                (here.into(), there.into(), None)
            }
            Self::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                    .map_err(Failure::system("listen on 127.0.0.1"))?;
                let address = listener
                    .local_addr()
                    .map_err(Failure::system("ask for the listener's address"))?;
                // The backlog takes the connection before it is accepted.
                let sender = TcpStream::connect(address)
                    .map_err(Failure::system(format!("connect to {address}")))?;
                let (receiver, _) = listener
                    .accept()
                    .map_err(Failure::system("accept a connection"))?;
                (receiver.into(), sender.into(), Some(unconnected()?))
            }
        };
        Ok(Connection {
            receive_buffer: buffer(sized.as_ref().unwrap_or(&receiver), libc::SO_RCVBUF)?,
            send_buffer: buffer(sized.as_ref().unwrap_or(&sender), libc::SO_SNDBUF)?,
            receiver: receiver.into(),
            sender: sender.into(),
        })
    }

    /// Returns the name of the row: netperf's for TCP.
    fn name(self) -> &'static str {
        match self {
            Self::Unix => "AF_UNIX",
            Self::Tcp => "TCP_STREAM",
        }
    }
}

/// Creates a TCP socket that is connected to nothing.
fn unconnected() -> Result<OwnedFd, Failure> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes numbers only.
    let descriptor = unsafe { libc::socket(libc::AF_INET, kind, 0) };
    if descriptor < 0 {
        return Err(Failure::last_os("make a TCP socket"));
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns the size of a socket's buffer in bytes. `option` is `SO_RCVBUF` or `SO_SNDBUF`.
fn buffer(socket: &OwnedFd, option: libc::c_int) -> Result<u64, Failure> {
    let mut bytes: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of_val(&bytes)).expect("four bytes");
    // SAFETY: `bytes` is writable memory of `length` bytes.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut bytes).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(Failure::last_os("ask for the size of a socket's buffer"));
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

fn run(mut words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let sockets = if args::take_flag(&mut words, "--tcp") {
        Sockets::Tcp
    } else {
        Sockets::Unix
    };
    args::no_more(&words, 1)?;
    let until = words
        .first()
        .map_or(Ok(DEFAULT_UNTIL), |word| Until::parse(word))?;
    let connection = sockets.connect()?;
    let (receive_buffer, send_buffer) = (connection.receive_buffer, connection.send_buffer);
    // In a cell, so that the child can close its copy.
    let here = Cell::new(Some(connection.receiver));
    let there = connection.sender;
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
    out.say(&format!("{bytes} bytes in {} s", seconds(ns)))?;
    for line in [
        "Recv    Send    Send",
        "Socket  Socket  Message  Elapsed",
        "Size    Size    Size     Time     Throughput",
        "bytes   bytes   bytes    secs.    10^6bits/sec",
    ] {
        out.say(line)?;
    }
    out.say(&format!(
        "{receive_buffer:>6}  {send_buffer:>6}  {MESSAGE_BYTES:>6}  {:>7}  {:>10.2}",
        seconds(ns),
        ratio(bytes * 8, ns) * 1e3
    ))?;
    out.result(&Metric {
        name: "bytes_per_second",
        value: ratio(bytes, ns) * 1e9,
        unit: "1/s",
        better: Better::Higher,
        labels: Labels::from([
            ("message", MESSAGE_BYTES.to_string()),
            ("over", sockets.name().to_owned()),
        ]),
    })
}

/// Sends whole rounds until `until` is reached, then ends the stream.
fn send(mut socket: &File, until: Until) -> Result<(), Failure> {
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
    // SAFETY: the call takes numbers only.
    if unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_WR) } != 0 {
        return Err(Failure::last_os("end the stream"));
    }
    Ok(())
}

/// Receives to the end of the stream. Returns the number of bytes, and the nanoseconds from the
/// first byte to the end. Fails with `Wrong` if a byte differs.
fn receive(mut socket: File) -> Result<(u64, u64), Failure> {
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
