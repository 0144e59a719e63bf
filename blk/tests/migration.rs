//! Tests that written pages are marked while a front-end migrates its guest.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

mod frontend;

use ebb_blk::image::{Location, Spec};
use ebb_blk::server::{Disk, Options, Server};
use frontend::log::{LOG, Log, PAGE, pages};
use frontend::{
    Client, DATA, FLUSH, GET_ID, IN, IO_ERROR, MEMORY, OK, OUT, Request, SLOTS, UNANSWERED,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use vm_memory::{Bytes, GuestAddress};

const DISK: u64 = 8 << 20;

/// A file of non-zero bytes on a real file system, for direct I/O. It is removed when this value is
/// dropped.
struct TempImage(PathBuf);

impl TempImage {
    fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let bytes: Vec<u8> = (0..DISK)
            .map(|at| (at / 512 + at % 251) as u8 | 1)
            .collect();
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn disk(&self) -> Disk {
        Disk {
            name: "file".into(),
            spec: Spec {
                location: Location::Path(self.0.clone()),
                read_only: false,
                cached: false,
            },
            settings: Vec::new(),
        }
    }
}

impl Drop for TempImage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn both_ways() -> [Server; 2] {
    [true, false].map(|uring| {
        Server::new(Options {
            uring,
            ..Options::default()
        })
    })
}

fn client(server: &Server, image: &TempImage) -> Client {
    Client::connect(server.attach(&image.disk()).unwrap(), 2).unwrap()
}

fn request(kind: u32, sector: u64, data: u64, bytes: u32) -> Request {
    Request {
        kind,
        sector,
        data,
        bytes,
    }
}

#[test]
fn exactly_the_pages_that_requests_write_are_marked() {
    let image = TempImage::new("exact");
    for server in both_ways() {
        let mut client = client(&server, &image);
        let log = Log::new().unwrap();
        let read = request(IN, 8, DATA, 8192);
        assert_eq!(client.perform(0, read).unwrap().0, OK);
        assert_eq!(log.take().unwrap(), [].into(), "not before it is wanted");
        // Used rings are logged at addresses behind the guest's memory, as the specification
        // allows.
        client.start_logging(&log, MEMORY).unwrap();
        let rings: BTreeSet<u64> = (0..2)
            .flat_map(|queue| pages(client.used_at(queue) + MEMORY, 6 + 8 * 256))
            .collect();
        assert_eq!(log.take().unwrap(), rings, "all of them at the beginning");
        for (what, filled, status) in [
            (read, 8192, OK),
            (request(IN, 0, DATA + PAGE, 512), 512, OK),
            (request(IN, 16, DATA + 3, 4096), 4096, OK),
            (request(IN, 64, DATA + 100 * PAGE + 1, 1 << 20), 1 << 20, OK),
            (request(GET_ID, 0, DATA + PAGE - 10, 20), 20, OK),
            (request(IN, DISK / 512, DATA, 512), 0, IO_ERROR),
            (request(OUT, 8, DATA, 8192), 0, OK),
            (request(OUT, 9, DATA + 5, 8192), 0, OK),
            (request(FLUSH, 0, 0, 0), 0, OK),
        ] {
            for queue in 0..2 {
                let slot = u64::from(client.next_slot(queue).unwrap());
                assert_eq!(client.perform(queue, what).unwrap().0, status, "{what:?}");
                let mut expected = pages(what.data, filled);
                expected.extend(pages(client.status_at(queue, slot), 1));
                let mut marked = log.take().unwrap();
                // The used ring shows an answer just before its own page is marked.
                let ring = (client.used_at(queue) + MEMORY) / PAGE;
                let mut tries = 0..60_000;
                while !marked.contains(&ring) {
                    assert!(tries.next().is_some(), "{what:?}: the used ring");
                    std::thread::sleep(Duration::from_millis(5));
                    marked.extend(log.take().unwrap());
                }
                // The fields by which drivers are notified may be written at any time.
                marked.retain(|page| !rings.contains(page));
                assert_eq!(marked, expected, "{what:?}");
            }
        }
        client.log_all(None).unwrap();
        log.take().unwrap();
        assert_eq!(client.perform(0, read).unwrap().0, OK);
        assert_eq!(log.take().unwrap(), [].into(), "not any more");
        client.log_all(Some(0)).unwrap();
        assert_eq!(client.perform(0, read).unwrap().0, OK);
        assert!(log.take().unwrap().contains(&(DATA / PAGE)), "again");
    }
}

/// Migrates as QEMU does: starts logging under load, copies memory, then copies pages that were
/// marked, the last ones after the rings have stopped.
#[test]
fn a_guests_memory_is_the_same_where_it_goes_though_its_disk_was_busy() {
    let image = TempImage::new("busy");
    for server in both_ways() {
        let mut client = client(&server, &image);
        let log = Log::new().unwrap();
        let mut copy = vec![0; MEMORY as usize];
        let mut seed = 1_u64;
        let mut expected = BTreeSet::new();
        let mut marked = BTreeSet::new();
        // Each slot of a queue has memory of its own, which only its reads write to.
        let room = 128 << 10;
        for round in 0..60 {
            if round == 10 {
                client.start_logging(&log, 0).unwrap();
                for page in 0..MEMORY / PAGE {
                    client.copy_page(page, &mut copy).unwrap();
                }
            }
            for queue in 0..2 {
                if round > 0 {
                    // Ensures that there is load in each round, even on a slow machine.
                    client.wait(queue, 300).unwrap();
                }
                while client.answer(queue).unwrap().is_some() {}
                let before = client.available(queue);
                while let Some(slot) = client.next_slot(queue) {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let random = seed >> 33;
                    let bytes = (1 + random % 200) * 512;
                    let slot = u64::from(slot) + queue as u64 * u64::from(SLOTS);
                    let data = DATA + slot * room + random % 3 * 512 + random % 2;
                    let sector = random % (DISK / 512 - 200);
                    let kind = if random.is_multiple_of(5) { GET_ID } else { IN };
                    let bytes = if kind == GET_ID { 20 } else { bytes };
                    let what = request(kind, sector, data, bytes as u32);
                    expected.extend(pages(data, bytes));
                    client.submit(queue, what).unwrap();
                }
                client.kick(queue, before).unwrap();
            }
            if round >= 10 {
                for page in log.take().unwrap() {
                    client.copy_page(page, &mut copy).unwrap();
                    marked.insert(page);
                }
            }
        }
        client.stop().unwrap();
        for page in log.take().unwrap() {
            client.copy_page(page, &mut copy).unwrap();
            marked.insert(page);
        }
        let mut whole = vec![0; MEMORY as usize];
        client
            .memory
            .read_slice(&mut whole, GuestAddress(0))
            .unwrap();
        let data = (DATA, (u64::from(SLOTS) * 2 * room) as usize);
        let answers = (0..2).flat_map(|queue| client.answers(queue));
        // A request that was not taken before the rings stopped still has the status that the
        // front-end stored, so its page need not be marked.
        let untaken = |at: u64, bytes: usize| bytes == 1 && whole[at as usize] == UNANSWERED;
        for (at, bytes) in answers.clone().chain([data]) {
            if untaken(at, bytes) {
                continue;
            }
            let span = at as usize..at as usize + bytes;
            let differs = span.into_iter().find(|at| whole[*at] != copy[*at]);
            assert_eq!(differs, None, "the first byte that was lost");
        }
        expected.extend(answers.flat_map(|(at, bytes)| pages(at, bytes as u64)));
        let superfluous = marked.difference(&expected).count();
        assert_eq!(superfluous, 0, "marked without need");
        assert!(marked.len() > 1000, "there was load: {}", marked.len());
    }
}

#[test]
fn a_log_that_is_cut_or_too_small_costs_its_front_end_alone() {
    let image = TempImage::new("cut");
    let server = Server::new(Options::default());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("cut-log-{}.sock", std::process::id()));
    server.listen(&image.disk(), &path).unwrap();
    let connect = || {
        let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        Client::connect(stream, 2).unwrap()
    };
    let read = request(IN, 8, DATA, 8192);
    let log = Log::new().unwrap();
    {
        let mut client = connect();
        let too_small = (MEMORY / PAGE / 8) - 1;
        assert!(client.set_log(&log, too_small).is_err());
        assert!(client.config(8).is_err(), "it was cut off");
    }
    {
        let mut client = connect();
        assert!(client.set_log(&log, LOG + 4096).is_err());
        assert!(client.config(8).is_err(), "it was cut off");
    }
    {
        // Addresses without bits in the log, some of which wrap around.
        let mut client = connect();
        client.set_log(&log, MEMORY / PAGE / 8).unwrap();
        for behind in [2 * MEMORY, u64::MAX - 0x8000, u64::MAX - 0x8800] {
            client.log_all(Some(behind)).unwrap();
            log.take().unwrap();
            assert_eq!(client.perform(0, read).unwrap().0, OK);
            let mut marked = log.take().unwrap();
            assert!(marked.contains(&(DATA / PAGE)));
            // The unused ring of the other queue wraps around to addresses that exist.
            marked.retain(|page| *page < client.used_at(1) / PAGE - 8);
            assert_eq!(marked, pages(client.status_at(0, 0), 1), "{behind:#x}");
        }
    }
    {
        let mut client = connect();
        let cut = Log::new().unwrap();
        client.start_logging(&cut, 0).unwrap();
        cut.file.set_len(0).unwrap();
        client.submit(0, read).unwrap();
        client.ring(0).unwrap();
        let mut tries = 0..60_000;
        while client.config(8).is_ok() {
            assert!(tries.next().is_some(), "it was not cut off");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(connect().perform(0, read).unwrap().0, OK, "others go on");
}
