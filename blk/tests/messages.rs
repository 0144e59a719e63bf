//! Malformed messages of the vhost-user protocol. The disk's thread does not block, the front-end
//! is cut off, and no descriptor of it stays open.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod frontend;

use ebb_blk::image::{Location, Spec};
use ebb_blk::server::{Disk, Options, Server};
use frontend::{Client, DATA, IN, Request};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_CALL: u32 = 13;
const NEED_REPLY: u32 = 8;
/// More descriptors than a message may have, and the most that the kernel allows in one `sendmsg`.
const TOO_MANY: [usize; 2] = [9, 253];

/// Descriptors belong to the process, so only one test at a time counts them.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ram(name: &str) -> Disk {
    Disk {
        name: name.into(),
        spec: Spec {
            location: Location::Ram { bytes: 1 << 20 },
            read_only: false,
            cached: false,
        },
        settings: Vec::new(),
    }
}

fn message(code: u32, flags: u32, length: usize, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).unwrap();
    let header = [code, 1 | flags, length].map(u32::to_ne_bytes);
    [&header.concat(), body].concat()
}

fn send(stream: &UnixStream, bytes: &[u8], descriptors: usize) {
    let files: Vec<RawFd> = vec![stream.as_raw_fd(); descriptors];
    let sent = stream.send_with_fds(&[bytes], &files).unwrap();
    assert_eq!(sent, bytes.len());
}

/// Waits until the back-end closes the connection, and ignores its answers. Returns `false` if it
/// does not.
fn is_cut_off(mut stream: &UnixStream) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_secs(300)))
        .unwrap();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

fn settle(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed().as_secs() < 300, "it does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn socket(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.sock"))
}

type Rude = fn(&mut UnixStream);

/// Malformed behaviour, and whether the back-end notices it at once or only after a time.
const RUDE: &[(&str, bool, Rude)] = &[
    ("9 descriptors", true, |stream| {
        send(stream, &message(GET_FEATURES, 0, 0, &[]), TOO_MANY[0]);
    }),
    ("253 descriptors", true, |stream| {
        send(stream, &message(GET_FEATURES, 0, 0, &[]), TOO_MANY[1]);
    }),
    ("9 descriptors with a body to come", true, |stream| {
        send(stream, &message(SET_MEM_TABLE, 0, 40, &[]), TOO_MANY[0]);
    }),
    ("9 descriptors with a part of a header", true, |stream| {
        send(stream, &message(GET_FEATURES, 0, 0, &[])[..5], TOO_MANY[0]);
    }),
    ("a descriptor with a part of a header", false, |stream| {
        send(stream, &message(GET_FEATURES, 0, 0, &[])[..5], 1);
    }),
    ("descriptors with the rest of a header", true, |stream| {
        let bytes = message(SET_VRING_CALL, 0, 8, &[0; 8]);
        send(stream, &bytes[..5], 1);
        send(stream, &bytes[5..], TOO_MANY[0]);
    }),
    ("a descriptor with the body", true, |stream| {
        let bytes = message(SET_VRING_CALL, 0, 8, &[0; 8]);
        send(stream, &bytes[..12], 0);
        send(stream, &bytes[12..], 1);
    }),
    ("too many with a part of the body", true, |stream| {
        let bytes = message(SET_VRING_CALL, 0, 8, &[0; 8]);
        send(stream, &bytes[..15], 1);
        send(stream, &bytes[15..18], TOO_MANY[1]);
    }),
    ("a descriptor that it does not take", true, |stream| {
        send(stream, &message(GET_FEATURES, 0, 0, &[]), 1);
    }),
    ("regions without descriptors", true, |stream| {
        let body = [[1_u32, 0].map(u32::to_ne_bytes).concat(), vec![1; 32]].concat();
        send(stream, &message(SET_MEM_TABLE, NEED_REPLY, 40, &body), 0);
    }),
    ("more descriptors than regions", true, |stream| {
        let body = [[1_u32, 0].map(u32::to_ne_bytes).concat(), vec![1; 32]].concat();
        send(stream, &message(SET_MEM_TABLE, NEED_REPLY, 40, &body), 3);
    }),
    ("2^32 - 1 bytes to come", true, |stream| {
        send(stream, &message(SET_FEATURES, 0, u32::MAX as usize, &[]), 1);
    }),
    ("a byte more than there may be", true, |stream| {
        send(stream, &message(SET_FEATURES, 0, 4097, &[0; 4097]), 0);
    }),
    ("as much as there may be, and one lacks", false, |stream| {
        send(stream, &message(SET_FEATURES, 0, 4096, &[0; 4095]), 0);
    }),
    ("another version", true, |stream| {
        send(stream, &message(GET_FEATURES, 3, 0, &[]), 0);
    }),
    ("an answer", true, |stream| {
        send(stream, &message(GET_FEATURES, 4, 0, &[]), 0);
    }),
    ("answers unread", false, |stream| {
        // Fewer than the limit of the inbox.
        for _ in 0..100 {
            stream.write_all(&message(GET_FEATURES, 0, 0, &[])).unwrap();
        }
    }),
    ("messages without end", true, flood),
    ("answers unread, and no more to come", false, |stream| {
        flood(stream);
        stream.shutdown(Shutdown::Write).unwrap();
    }),
    ("a byte now and then", false, |stream| {
        let mut slow = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            for byte in message(SET_FEATURES, 0, 4000, &[0; 4000]) {
                if slow.write_all(&[byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
    }),
];

/// Sends messages until the back-end cuts the connection off.
fn flood(stream: &mut UnixStream) {
    stream
        .set_write_timeout(Some(Duration::from_secs(300)))
        .unwrap();
    while stream.write_all(&message(GET_FEATURES, 0, 0, &[])).is_ok() {}
}

#[test]
fn whatever_is_wrong_with_a_message_its_disk_goes_on() {
    let _alone = alone();
    let server = Server::new(Options::default());
    let before = {
        // Descriptors that the process opens once and keeps are opened first.
        let path = socket("message-first");
        server.listen(&ram("first"), &path).unwrap();
        drop(Client::connect(UnixStream::connect(&path).unwrap(), 1).unwrap());
        settle(|| !server.instances()["first"].figures().connected);
        server.instances()["first"].request_stop();
        settle(|| !server.instances()["first"].is_running());
        server.forget_ended();
        descriptors()
    };
    let mut streams = Vec::new();
    for (index, (what, at_once, rude)) in RUDE.iter().enumerate() {
        let (name, path) = (format!("disk-{index}"), socket(&format!("message-{index}")));
        server.listen(&ram(&name), &path).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        rude(&mut stream);
        // Events are handled in the same time.
        assert_eq!(server.registry().squeeze(&name, server.clock().now()), 1);
        settle(|| server.instances()[&name].figures().counters.squeezes == 1);
        if *at_once {
            assert!(is_cut_off(&stream), "{what}");
        }
        streams.push((what, stream, path));
    }
    // The slow cases take their time together. Answers are not read before, because that would be
    // correct behaviour.
    std::thread::sleep(Duration::from_secs(6));
    for index in 0..streams.len() {
        let name = format!("disk-{index}");
        settle(|| !server.instances()[&name].figures().connected);
    }
    for (what, stream, path) in streams {
        assert!(is_cut_off(&stream), "{what}");
        drop(stream);
        // The next front-end is served.
        Client::connect(UnixStream::connect(&path).unwrap(), 1).unwrap();
    }
    server.stop();
    server.forget_ended();
    settle(|| descriptors() <= before);
}

#[test]
fn a_disk_that_is_told_to_stop_does_so_whatever_its_front_end_does() {
    let _alone = alone();
    for (what, _, rude) in RUDE {
        let path = socket("message-stop");
        let server = Server::new(Options::default());
        server.listen(&ram("disk"), &path).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        rude(&mut stream);
        let (stopped, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(server);
            stopped.send(()).unwrap();
        });
        let ended = done.recv_timeout(Duration::from_secs(300));
        assert!(ended.is_ok(), "{what}: its disk does not end");
    }
}

#[test]
fn a_counter_that_blocks_costs_its_front_end_the_disk_and_ends_nothing_else() {
    let _alone = alone();
    let path = socket("message-counter");
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let server = Server::new(Options::default());
        server.listen(&ram("disk"), &path).unwrap();
        let read = Request {
            kind: IN,
            sector: 0,
            data: DATA,
            bytes: 4096,
        };
        for last in [false, true] {
            let stream = UnixStream::connect(&path).unwrap();
            let mut client = Client::connect(stream.try_clone().unwrap(), 1).unwrap();
            client.block_call(0).unwrap();
            client.submit(0, read).unwrap();
            client.ring(0).unwrap();
            // An interrupt follows, and its write blocks.
            while client.answer(0).unwrap().is_none() {
                std::thread::yield_now();
            }
            if !last {
                assert!(is_cut_off(&stream));
                sender.send("cut off").unwrap();
            }
        }
        drop(server);
        sender.send("stopped").unwrap();
    });
    for what in ["cut off", "stopped"] {
        let ended = done.recv_timeout(Duration::from_secs(300));
        assert_eq!(ended, Ok(what));
    }
}
