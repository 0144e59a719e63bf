//! Tests of the vhost-user transport with a front-end that does what guests do, and what they must
//! not do.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

mod frontend;

use ebb_blk::image::{Location, Spec};
use ebb_blk::knobs::Knob;
use ebb_blk::server::{Disk, Options, Server};
use frontend::{
    Client, DATA, DISCARD, FLUSH, GET_ID, IN, IO_ERROR, OK, OUT, Request, UNSUPPORTED, WRITE_ZEROES,
};
use std::path::PathBuf;
use vhost::VhostBackend;
use vm_memory::{Bytes, GuestAddress};

const DISK: u64 = 8 << 20;

fn disk(name: &str, location: Location) -> Disk {
    Disk {
        name: name.into(),
        spec: Spec {
            location,
            read_only: false,
            cached: false,
        },
        settings: Vec::new(),
    }
}

fn ram(name: &str) -> Disk {
    disk(name, Location::Ram { bytes: DISK })
}

/// A file on a real file system, for direct I/O. It is removed when this value is dropped.
struct TempImage(PathBuf);

impl TempImage {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("{name}-{}", std::process::id()));
        std::fs::write(&path, vec![0_u8; DISK as usize]).unwrap();
        Self(path)
    }
}

impl Drop for TempImage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn client(server: &Server, disk: &Disk, queues: usize) -> Client {
    Client::connect(server.attach(disk).unwrap(), queues).unwrap()
}

fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| seed.wrapping_add((i / 7) as u8) ^ (i as u8))
        .collect()
}

fn fill(client: &Client, at: u64, bytes: &[u8]) {
    client.memory.write_slice(bytes, GuestAddress(at)).unwrap();
}

fn read_back(client: &Client, at: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    client
        .memory
        .read_slice(&mut buffer, GuestAddress(at))
        .unwrap();
    buffer
}

fn write_and_read(client: &mut Client, data: u64, sector: u64, bytes: usize) {
    let written = pattern((sector % 251) as u8, bytes);
    fill(client, data, &written);
    let request = Request {
        kind: OUT,
        sector,
        data,
        bytes: bytes as u32,
    };
    assert_eq!(client.perform(0, request).unwrap(), (OK, 1));
    fill(client, data, &vec![0xee; bytes]);
    let request = Request {
        kind: IN,
        sector,
        data,
        bytes: bytes as u32,
    };
    assert_eq!(client.perform(0, request).unwrap(), (OK, bytes as u32 + 1));
    assert_eq!(read_back(client, data, bytes), written);
}

fn both_ways() -> [Options; 2] {
    [true, false].map(|uring| Options {
        uring,
        ..Options::default()
    })
}

#[test]
fn what_is_written_is_read_again() {
    let image = TempImage::new("rw");
    for options in both_ways() {
        let server = Server::new(options);
        for disk in [ram("ram"), disk("file", Location::Path(image.0.clone()))] {
            let mut client = client(&server, &disk, 1);
            for (data, sector, bytes) in [
                (DATA, 0, 4096),
                (DATA + 512, 8, 512),
                (DATA + 3, 16, 4096),
                (DATA + 1, 64, 1 << 20),
                (DATA, 4096, 1 << 20),
                (DATA, 7, 1536),
                (DATA + 5, DISK / 512 - 1, 512),
            ] {
                write_and_read(&mut client, data, sector, bytes);
            }
            let flush = Request {
                kind: FLUSH,
                sector: 0,
                data: 0,
                bytes: 0,
            };
            assert_eq!(client.perform(0, flush).unwrap(), (OK, 1));
            let figures = server.instances()[&disk.name].figures();
            println!(
                "{} by {}: {figures:?}",
                disk.name,
                server.instances()[&disk.name].io_kind()
            );
            assert_eq!(figures.counters.failed, 0);
        }
    }
}

#[test]
fn segments_that_direct_io_cannot_take_go_through_the_pool() {
    let image = TempImage::new("bounce");
    let server = Server::new(Options::default());
    let mut client = client(&server, &disk("file", Location::Path(image.0.clone())), 1);
    write_and_read(&mut client, DATA, 0, 64 << 10);
    let bounced = |server: &Server| server.instances()["file"].figures().counters.bounced_bytes;
    settle(|| server.instances()["file"].figures().counters.requests == 2);
    assert_eq!(bounced(&server), 0, "aligned segments are taken in place");
    write_and_read(&mut client, DATA + 3, 0, 64 << 10);
    settle(|| server.instances()["file"].figures().counters.requests == 4);
    let figures = server.instances()["file"].figures();
    if bounced(&server) == 0 {
        // A file system without direct I/O uses memory at any address.
        assert_eq!(figures.pool.free, 0);
        return;
    }
    assert_eq!(bounced(&server), 128 << 10);
    assert_eq!((figures.pool.in_use, figures.pool.free), (0, 16));
    // A squeeze frees all pages, also of an idle instance.
    let now = server.clock().now();
    assert_eq!(server.registry().squeeze("file", now), 1);
    settle(|| server.instances()["file"].figures().pool.free == 0);
    // With a limit of 0 the disk still works.
    server.instances()["file"]
        .knobs()
        .set(Knob::MaxBufferPages, 0)
        .unwrap();
    write_and_read(&mut client, DATA + 3, 0, 1 << 20);
    settle(|| server.instances()["file"].figures().counters.requests == 6);
    settle(|| server.instances()["file"].figures().pool.free == 0);
}

/// Waits until `condition` holds, which another thread makes true. Fails if it never does.
fn settle(condition: impl Fn() -> bool) {
    for _ in 0..300_000 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the figures never came to what they should be");
}

#[test]
fn ranges_are_zeroed_and_discarded() {
    for options in both_ways() {
        let server = Server::new(options);
        let mut client = client(&server, &ram("ram"), 1);
        fill(&client, DATA, &pattern(1, 8192));
        let whole = Request {
            kind: OUT,
            sector: 0,
            data: DATA,
            bytes: 8192,
        };
        assert_eq!(client.perform(0, whole).unwrap().0, OK);
        let range = |sector: u64, sectors: u32, flags: u32| {
            let mut raw = sector.to_le_bytes().to_vec();
            raw.extend(sectors.to_le_bytes());
            raw.extend(flags.to_le_bytes());
            raw
        };
        let ask = |client: &mut Client, kind, ranges: Vec<u8>| {
            fill(client, DATA + 65536, &ranges);
            let bytes = ranges.len() as u32;
            client
                .perform(
                    0,
                    Request {
                        kind,
                        sector: 0,
                        data: DATA + 65536,
                        bytes,
                    },
                )
                .unwrap()
                .0
        };
        let two = [range(0, 2, 0), range(4, 1, 1)].concat();
        assert_eq!(ask(&mut client, WRITE_ZEROES, two), OK);
        assert_eq!(ask(&mut client, DISCARD, range(8, 8, 0)), OK);
        assert_eq!(
            ask(&mut client, DISCARD, range(0, 1, 1)),
            UNSUPPORTED,
            "unmap in a discard"
        );
        assert_eq!(
            ask(&mut client, WRITE_ZEROES, range(0, 1, 2)),
            UNSUPPORTED,
            "unknown flag"
        );
        assert_eq!(ask(&mut client, DISCARD, range(DISK / 512, 1, 0)), IO_ERROR);
        assert_eq!(ask(&mut client, DISCARD, range(u64::MAX, 1, 0)), IO_ERROR);
        assert_eq!(ask(&mut client, DISCARD, vec![0; 15]), IO_ERROR);
        assert_eq!(ask(&mut client, DISCARD, vec![0; 16 * 33]), IO_ERROR);
        let read = Request { kind: IN, ..whole };
        assert_eq!(client.perform(0, read).unwrap().0, OK);
        let mut expected = pattern(1, 8192);
        expected[..1024].fill(0);
        expected[2048..2560].fill(0);
        expected[4096..].fill(0);
        assert_eq!(read_back(&client, DATA, 8192), expected);
    }
}

#[test]
fn a_disk_tells_what_it_is() {
    let server = Server::new(Options::default());
    let mut client = client(&server, &ram("data-1"), 2);
    let config = client.config(60).unwrap();
    assert_eq!(config[..8], (DISK / 512).to_le_bytes());
    assert_eq!(config[34..36], 16_u16.to_le_bytes());
    let id = Request {
        kind: GET_ID,
        sector: 0,
        data: DATA,
        bytes: 20,
    };
    assert_eq!(client.perform(1, id).unwrap(), (OK, 21));
    assert_eq!(
        read_back(&client, DATA, 20),
        *b"data-1\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    );
}

#[test]
fn a_read_only_disk_stays_as_it_is() {
    let server = Server::new(Options::default());
    let mut disk = ram("ro");
    disk.spec.read_only = true;
    let mut client = client(&server, &disk, 1);
    for kind in [OUT, DISCARD, WRITE_ZEROES] {
        let request = Request {
            kind,
            sector: 0,
            data: DATA,
            bytes: 512,
        };
        assert_eq!(client.perform(0, request).unwrap().0, IO_ERROR, "{kind}");
    }
    let request = Request {
        kind: IN,
        sector: 0,
        data: DATA,
        bytes: 512,
    };
    assert_eq!(client.perform(0, request).unwrap().0, OK);
}

#[test]
fn hostile_requests_are_answered_and_the_disk_lives() {
    let server = Server::new(Options::default());
    let mut client = client(&server, &ram("ram"), 2);
    let outside = frontend::MEMORY;
    for (kind, sector, data, bytes, status) in [
        (IN, DISK / 512, DATA, 512, IO_ERROR),
        (IN, DISK / 512 - 1, DATA, 1024, IO_ERROR),
        (OUT, u64::MAX, DATA, 512, IO_ERROR),
        (OUT, u64::MAX / 512, DATA, 512, IO_ERROR),
        (IN, 0, DATA, 511, IO_ERROR),
        (IN, 0, outside, 512, IO_ERROR),
        (OUT, 0, outside - 256, 512, IO_ERROR),
        (OUT, 0, u64::MAX - 100, 512, IO_ERROR),
        (IN, 0, DATA, u32::MAX - 1023, IO_ERROR),
        (77, 0, DATA, 512, UNSUPPORTED),
        (GET_ID, 0, outside, 20, IO_ERROR),
    ] {
        let request = Request {
            kind,
            sector,
            data,
            bytes,
        };
        assert_eq!(client.perform(0, request).unwrap().0, status, "{request:?}");
    }
    write_and_read(&mut client, DATA, 0, 4096);
    // A chain that runs in a circle, one that leaves the table, one without a status.
    for (flags, next) in [(1, 0), (1, 9999), (0, 0)] {
        client.descriptor(0, 0, DATA, 16, flags, next).unwrap();
        let before = client.available(0);
        client.offer(0, 0).unwrap();
        client.kick(0, before).unwrap();
        client.wait(0, 20).unwrap();
        assert!(client.answer(0).unwrap().is_some());
    }
    // An index that jumps: this ring is closed, and the other goes on.
    client
        .set_available(0, client.available(0).wrapping_add(5000))
        .unwrap();
    client.kick(0, client.available(0).wrapping_sub(1)).unwrap();
    let request = Request {
        kind: OUT,
        sector: 0,
        data: DATA,
        bytes: 512,
    };
    assert_eq!(client.perform(1, request).unwrap().0, OK);
    assert!(server.instances()["ram"].is_running());
}

#[test]
fn a_front_end_that_dies_mid_request_leaves_the_others_alone() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dies.sock");
    let server = Server::new(Options::default());
    server.listen(&ram("shared"), &path).unwrap();
    let mut other = client(&server, &ram("other"), 1);
    let connect = || std::os::unix::net::UnixStream::connect(&path).unwrap();
    for _ in 0..5 {
        let mut client = Client::connect(connect(), 1).unwrap();
        write_and_read(&mut client, DATA, 0, 4096);
        let before = client.available(0);
        for slot in 0..40_u64 {
            let request = Request {
                kind: OUT,
                sector: slot * 8,
                data: DATA,
                bytes: 65536,
            };
            client.submit(0, request).unwrap();
        }
        client.kick(0, before).unwrap();
        drop(client);
        write_and_read(&mut other, DATA, 0, 4096);
    }
    // Random bytes instead of a message.
    use std::io::Write;
    let mut garbage = connect();
    garbage.write_all(&[0xff; 64]).unwrap();
    drop(garbage);
    let mut client = Client::connect(connect(), 1).unwrap();
    write_and_read(&mut client, DATA, 0, 4096);
    drop(server);
    assert!(!path.exists(), "the socket is gone with the server");
}

#[test]
fn a_front_end_that_cuts_its_memory_harms_itself_alone() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cut.sock");
    let image = TempImage::new("cut");
    for options in both_ways() {
        let server = Server::new(options);
        let disk = disk("cut", Location::Path(image.0.clone()));
        server.listen(&disk, &path).unwrap();
        let mut other = client(&server, &ram("other"), 1);
        let connect = || std::os::unix::net::UnixStream::connect(&path).unwrap();
        // Truncated to nothing, to all but the data, and inside a page of the ring; with data that
        // goes through the pool, and data that the kernel transfers in place.
        let cuts = [0, DATA, 100].map(|left| [(left, 0), (left, 1)]).concat();
        for ((left, odd), kind) in cuts.iter().flat_map(|cut| [(*cut, OUT), (*cut, IN)]) {
            let stream = connect();
            let mut client = Client::connect(stream.try_clone().unwrap(), 1).unwrap();
            write_and_read(&mut client, DATA + odd, 0, 8192);
            // If the ring will be truncated too, the requests are written before.
            let ring_stays = left == DATA;
            if ring_stays {
                client.cut_memory(left).unwrap();
            }
            for slot in 0..20 {
                let request = Request {
                    kind,
                    sector: slot * 8,
                    data: DATA + odd,
                    bytes: 65536,
                };
                client.submit(0, request).unwrap();
            }
            client.cut_memory(left).unwrap();
            client.ring(0).unwrap();
            // The front-end is cut off, and the disk is not affected.
            assert!(
                answer(&stream).is_empty(),
                "{left} bytes left, {odd}, {kind}"
            );
            write_and_read(&mut other, DATA, 0, 4096);
        }
        let mut client = Client::connect(connect(), 1).unwrap();
        write_and_read(&mut client, DATA, 0, 4096);
    }
}

/// A small file system in memory, which only root can mount.
struct Small(PathBuf);

impl Small {
    fn mount(name: &str, megabytes: u32) -> Option<Self> {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        let mut mount = std::process::Command::new("mount");
        let size = format!("size={megabytes}m");
        mount
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(&path)
            .stderr(std::process::Stdio::null());
        let mounted = mount.status().is_ok_and(|status| status.success());
        mounted.then_some(Self(path))
    }

    fn create(&self, name: &str) -> std::fs::File {
        let mut how = std::fs::File::options();
        let how = how.read(true).write(true).create(true).truncate(true);
        how.open(self.0.join(name)).unwrap()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let mut unmount = std::process::Command::new("umount");
        let _ = unmount.arg("-l").arg(&self.0).status();
    }
}

#[test]
fn guest_memory_that_finds_no_room_harms_its_front_end_alone() {
    use std::io::Write;
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("full.sock");
    let image = TempImage::new("full");
    let Some(small) = Small::mount("full", 8) else {
        println!("only root mounts file systems");
        return;
    };
    let locations = [
        Location::Path(image.0.clone()),
        Location::Ram { bytes: 1 << 20 },
    ];
    for (options, location) in both_ways()
        .into_iter()
        .flat_map(|options| locations.clone().map(|location| (options, location)))
    {
        let server = Server::new(options);
        server.listen(&disk("full", location), &path).unwrap();
        let mut other = client(&server, &ram("other"), 1);
        let connect = || std::os::unix::net::UnixStream::connect(&path).unwrap();
        for (odd, kind) in [(0, OUT), (1, OUT), (0, IN), (1, IN)] {
            let stream = connect();
            let (memory, again) = (small.create("memory"), stream.try_clone().unwrap());
            let mut client = Client::connect_with(again, 1, memory).unwrap();
            // The rings have pages, and the data gets none.
            for page in 0..256 {
                let address = GuestAddress(page * 4096 + 4095);
                client.memory.write_slice(&[0], address).unwrap();
            }
            let mut rest = small.create("rest");
            while rest.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
            let request = Request {
                kind,
                sector: 0,
                data: DATA + odd,
                bytes: 65536,
            };
            client.submit(0, request).unwrap();
            client.ring(0).unwrap();
            assert!(answer(&stream).is_empty(), "{odd}, {kind}: it goes on");
            write_and_read(&mut other, DATA, 0, 4096);
            rest.set_len(0).unwrap();
        }
        let mut client = Client::connect(connect(), 1).unwrap();
        write_and_read(&mut client, DATA, 0, 4096);
    }
}

#[test]
fn what_is_no_event_counter_is_no_kick() {
    use rustix::fd::FromRawFd;
    let server = Server::new(Options::default());
    let client = client(&server, &ram("ram"), 1);
    let file = rustix::fs::memfd_create("kick", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: the descriptor was just made and has no other owner.
    let event = unsafe {
        vmm_sys_util::eventfd::EventFd::from_raw_fd(rustix::fd::IntoRawFd::into_raw_fd(file))
    };
    assert!(client.frontend.set_vring_call(0, &event).is_err());
    assert!(client.frontend.get_features().is_ok(), "it is only refused");
}

#[test]
fn a_successor_does_what_was_under_way() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("successor.sock");
    let image = TempImage::new("successor");
    let disk = disk("disk", Location::Path(image.0.clone()));
    let server = Server::new(Options::default());
    server.listen(&disk, &path).unwrap();
    let connect = || std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut client = Client::connect(connect(), 1).unwrap();
    write_and_read(&mut client, DATA, 0, 4096);
    drop(server);
    // No back-end is running, so these requests are only in the ring.
    fill(&client, DATA, &pattern(9, 40 * 512));
    for slot in 0..40_u64 {
        let data = DATA + slot * 512;
        client
            .submit(
                0,
                Request {
                    kind: OUT,
                    sector: slot,
                    data,
                    bytes: 512,
                },
            )
            .unwrap();
    }
    let server = Server::new(Options::default());
    server.listen(&disk, &path).unwrap();
    client.reconnect(connect()).unwrap();
    let mut left = 40;
    while left > 0 {
        match client.answer(0).unwrap() {
            Some((_, status, _)) => {
                assert_eq!(status, OK);
                left -= 1;
            }
            None => client.wait(0, 20).unwrap(),
        }
    }
    let read = Request {
        kind: IN,
        sector: 0,
        data: DATA + (1 << 20),
        bytes: 40 * 512,
    };
    assert_eq!(client.perform(0, read).unwrap().0, OK);
    assert_eq!(
        read_back(&client, DATA + (1 << 20), 40 * 512),
        pattern(9, 40 * 512)
    );
}

/// Makes a message as bytes, without the crate by which the back-end parses it.
fn message(code: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    let header = [code, 1 | flags, length].map(u32::to_ne_bytes);
    [&header.concat(), body].concat()
}

/// Makes a body of two 32-bit numbers.
fn pair(first: u32, second: u32) -> Vec<u8> {
    [first.to_ne_bytes(), second.to_ne_bytes()].concat()
}

/// Returns the back-end's answer within five minutes, or nothing if the connection is closed.
fn answer(mut stream: &std::os::unix::net::UnixStream) -> Vec<u8> {
    use std::io::Read;
    let limit = Some(std::time::Duration::from_secs(300));
    stream.set_read_timeout(limit).unwrap();
    let mut bytes = vec![0; 4096];
    let read = match stream.read(&mut bytes) {
        // The back-end closed the connection with unread bytes.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
        read => read.unwrap(),
    };
    bytes.truncate(read);
    bytes
}

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const GET_VRING_BASE: u32 = 11;
const NEED_REPLY: u32 = 8;

#[test]
fn who_waits_for_an_answer_that_there_is_none_to_is_cut_off() {
    use std::io::Write;
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("answers.sock");
    let server = Server::new(Options::default());
    server.listen(&ram("disk"), &path).unwrap();
    let inflight = |queues: u16, size: u16| {
        let numbers = [queues.to_ne_bytes(), size.to_ne_bytes()].concat();
        [vec![0; 16], numbers, vec![0; 4]].concat()
    };
    // All these features may be requested, except for the last cases.
    let agreed = 1 << 0 | 1 << 3 | 1 << 9 | 1 << 12 | 1 << 13_u64;
    let set_up = [
        message(GET_FEATURES, 0, &[]),
        message(SET_FEATURES, 0, &(1_u64 << 30).to_ne_bytes()),
        message(16, 0, &u64::to_ne_bytes(agreed)),
    ];
    for (what, agrees, asked) in [
        (
            "a ring that is not",
            true,
            message(GET_VRING_BASE, 0, &pair(16, 0)),
        ),
        (
            "a ring of 2^32 - 1",
            true,
            message(GET_VRING_BASE, 0, &pair(u32::MAX, 0)),
        ),
        (
            "17 queues in flight",
            true,
            message(31, 0, &inflight(17, 64)),
        ),
        (
            "queues of 2048 in flight",
            true,
            message(31, 0, &inflight(1, 2048)),
        ),
        ("enabled by 7", true, message(18, NEED_REPLY, &pair(0, 7))),
        ("a log without a file", true, message(6, 0, &[0; 16])),
        ("memory slots", true, message(36, 0, &[])),
        ("unknown", true, message(99, NEED_REPLY, &[])),
        ("queues, not agreed to", false, message(17, 0, &[])),
        (
            "configuration, not agreed to",
            false,
            message(24, 0, &[0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ),
        (
            "in flight, not agreed to",
            false,
            message(31, 0, &inflight(1, 64)),
        ),
        (
            "a reset, not agreed to",
            false,
            message(34, NEED_REPLY, &[]),
        ),
        (
            "enabled, not agreed to",
            false,
            message(18, NEED_REPLY, &pair(0, 1)),
        ),
    ] {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        if agrees {
            stream.write_all(&set_up.concat()).unwrap();
            assert_eq!(answer(&stream).len(), 20, "features");
        }
        stream.write_all(&asked).unwrap();
        assert!(answer(&stream).is_empty(), "{what}");
    }
    // After a message that is refused with an answer, the connection goes on.
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(&set_up.concat()).unwrap();
    assert_eq!(answer(&stream).len(), 20, "features");
    for asked in [
        message(8, NEED_REPLY, &pair(99, 64)),
        message(8, NEED_REPLY, &pair(0, 65)),
        message(10, NEED_REPLY, &pair(0, 70_000)),
        message(9, NEED_REPLY, &[0; 40]),
        message(SET_FEATURES, NEED_REPLY, &u64::MAX.to_ne_bytes()),
        message(18, NEED_REPLY, &pair(99, 1)),
        message(25, NEED_REPLY, &[pair(0, 4), pair(0, 0)].concat()),
    ] {
        stream.write_all(&asked).unwrap();
        let told = answer(&stream);
        assert_eq!(told[12..], 1_u64.to_ne_bytes(), "{asked:?}");
        // A message that failed may have changed the negotiated features.
        stream.write_all(&set_up[1..].concat()).unwrap();
    }
    stream
        .write_all(&message(GET_VRING_BASE, 0, &pair(3, 0)))
        .unwrap();
    assert_eq!(answer(&stream)[12..], *pair(3, 0));
}

#[test]
fn who_leaves_a_message_unfinished_or_answers_unread_holds_no_other_up() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("unfinished.sock");
    type Rude = fn(&mut UnixStream);
    let rude: [Rude; 3] = [
        |stream| {
            stream
                .write_all(&message(GET_FEATURES, 0, &[])[..5])
                .unwrap()
        },
        |stream| {
            stream
                .write_all(&message(SET_FEATURES, 0, &[0; 8])[..15])
                .unwrap()
        },
        |stream| {
            let limit = Some(std::time::Duration::from_secs(300));
            stream.set_write_timeout(limit).unwrap();
            while stream.write_all(&message(GET_FEATURES, 0, &[])).is_ok() {}
        },
    ];
    for rude in rude {
        let ends_at_once = || {
            let server = Server::new(Options::default());
            server.listen(&ram("disk"), &path).unwrap();
            let mut stream = UnixStream::connect(&path).unwrap();
            rude(&mut stream);
            // Requests, events and settings are handled in the same time.
            let now = server.clock().now();
            assert_eq!(server.registry().squeeze("disk", now), 1);
            settle(|| server.instances()["disk"].figures().counters.squeezes == 1);
            let asked = std::time::Instant::now();
            drop(server);
            asked.elapsed().as_secs() < 3
        };
        // The end of a disk that waited for its front-end would always take longer. On a busy
        // host, others sometimes do, too.
        assert!((0..20).any(|_| ends_at_once()), "it ends at once");
    }
    // After a while all are cut off at once. A slow front-end gets its answer.
    let server = Server::new(Options::default());
    let connect = |index: usize| {
        let path = path.with_extension(index.to_string());
        server
            .listen(&ram(&format!("disk-{index}")), &path)
            .unwrap();
        UnixStream::connect(&path).unwrap()
    };
    drop(connect(9));
    let is_answered = || {
        let mut slow = UnixStream::connect(path.with_extension("9")).unwrap();
        for byte in message(GET_FEATURES, 0, &[]) {
            if slow.write_all(&[byte]).is_err() {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        answer(&slow).len() == 20
    };
    // On a busy host, a front-end is sometimes slower than it may be.
    assert!((0..20).any(|_| is_answered()), "it gets its answer");
    let streams = rude.iter().enumerate().map(|(index, rude)| {
        let mut stream = connect(index);
        rude(&mut stream);
        stream
    });
    let streams: Vec<_> = streams.collect();
    // Not read before, because the last front-end would then have read its answers.
    std::thread::sleep(std::time::Duration::from_secs(6));
    for index in 0..streams.len() {
        let name = format!("disk-{index}");
        settle(|| !server.instances()[&name].figures().connected);
    }
    for stream in &streams {
        while !answer(stream).is_empty() {}
    }
    // The next front-end is served.
    let next = UnixStream::connect(path.with_extension("0")).unwrap();
    Client::connect(next, 1).unwrap();
}
