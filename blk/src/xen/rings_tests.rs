use super::super::fake::{DOMAIN, FakeEvents, FakeGrants, FrontRing};
use super::super::front::{data, indirect, table_entry};
use super::super::protocol::Abi;
use super::*;
use crate::engine::Engine;
use crate::image::{Image, Location, Spec};
use crate::io::Queue as IoQueue;
use crate::knobs::DEFAULT_PERSISTENT_GRANT_UNUSED_SECONDS;
use std::sync::atomic::Ordering;

const SECTORS: u64 = 4096;
const ABI: Abi = Abi::X86_64;
/// The first page that does not belong to a ring.
const DATA: u32 = 32;

/// A simulated domain with rings, and a disk in memory.
struct Bench {
    domain: Rc<FakeGrants>,
    events: Rc<FakeEvents>,
    knobs: Arc<Knobs>,
    fronts: Vec<FrontRing>,
    rings: Rings,
    engine: Engine<Rings>,
}

impl Bench {
    /// Makes a domain with `queues` rings of 2^`order` pages and connects it.
    fn new(queues: u32, order: u32, persistent: bool, read_only: bool) -> Self {
        let domain = FakeGrants::new(DATA + 512);
        let events = Rc::new(FakeEvents::default());
        let knobs = Arc::new(Knobs::default());
        let image = Image::open(&Spec {
            location: Location::Ram {
                bytes: SECTORS * 512,
            },
            read_only,
            cached: false,
        });
        let engine = Engine::new(image.unwrap(), "bench", knobs.clone(), IoQueue::calls());
        let geometry = Geometry {
            bytes: SECTORS * 512,
            read_only,
        };
        let clock = Clock::start();
        let (grants, ports) = (domain.clone(), events.clone());
        let rings = Rings::new(DOMAIN, grants, ports, geometry, knobs.clone(), clock);
        let front = |n: u32| FrontRing::new(&domain, n << order, 1 << order, ABI);
        let fronts = (0..queues).map(front).collect();
        let mut bench = Self {
            domain,
            events,
            knobs,
            fronts,
            rings,
            engine: engine.unwrap(),
        };
        bench.connect(persistent);
        bench
    }

    /// Connects the rings.
    fn connect(&mut self, persistent: bool) {
        let ring = |front: &FrontRing| {
            let port = self.events.bind(DOMAIN, 9).unwrap();
            (Ring::new(front.map(), ABI), port)
        };
        let rings = self.fronts.iter().map(ring).collect();
        self.rings.connect(rings, ABI, persistent);
    }

    /// Serves all requests in the rings.
    fn serve(&mut self) {
        while self.engine.accept(&mut self.rings).unwrap()
            + self.engine.reap(&mut self.rings).unwrap()
            > 0
        {}
        self.rings.announce();
    }

    /// Puts requests into ring `queue`, serves them, and returns the answers' statuses by id.
    fn ask(&mut self, queue: usize, requests: &[Vec<u8>]) -> Vec<(u64, i16)> {
        for raw in requests {
            self.fronts[queue].put(raw);
        }
        self.fronts[queue].push();
        self.serve();
        let answers = self.fronts[queue].answers();
        answers
            .iter()
            .map(|(id, _, status)| (*id, *status))
            .collect()
    }
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..4096_u32)
        .map(|n| (n.wrapping_mul(31) as u8).wrapping_add(seed))
        .collect()
}

#[test]
fn what_was_written_is_read_whichever_way_the_memory_is_reached() {
    for persistent in [false, true] {
        let mut bench = Bench::new(1, 0, persistent, false);
        bench.domain.fill(GrantRef(DATA), 0, &pattern(1));
        bench.domain.fill(GrantRef(DATA + 1), 0, &pattern(2));
        // Sectors 1 to 7 of one page and 0 to 2 of another, to sector 100.
        let write = data(ABI, true, 1, 100, &[(DATA, 1, 7), (DATA + 1, 0, 2)]);
        let read = data(ABI, false, 2, 99, &[(DATA + 2, 0, 7), (DATA + 3, 0, 3)]);
        let flush = {
            let mut raw = data(ABI, false, 3, 0, &[]);
            raw[0] = 3;
            raw
        };
        assert_eq!(
            bench.ask(0, &[write, read, flush]),
            [(1, 0), (2, 0), (3, 0)]
        );
        let first = bench.domain.page(GrantRef(DATA + 2));
        assert_eq!(first[..512], [0; 512]);
        assert_eq!(first[512..], pattern(1)[512..]);
        let second = bench.domain.page(GrantRef(DATA + 3));
        assert_eq!(second[..1536], pattern(2)[..1536]);
        let counters = bench.engine.counters();
        let bytes = (7 + 3 + 8 + 4) * 512;
        if persistent {
            assert_eq!(
                (counters.in_place_bytes, counters.bounced_bytes),
                (bytes, 0)
            );
            assert_eq!(
                (bench.domain.copies.get(), bench.rings.persistent_grants()),
                (0, 4)
            );
        } else {
            assert_eq!(
                (counters.in_place_bytes, counters.bounced_bytes),
                (0, bytes)
            );
        }
        assert!(!bench.events.notified.borrow().is_empty());
        bench.rings.disconnect();
        assert_eq!(
            bench.domain.mapped.get(),
            0,
            "nothing of the front-end stays"
        );
        assert!(bench.events.bound.borrow().is_empty());
    }
}

#[test]
fn a_table_names_up_to_256_segments() {
    for persistent in [false, true] {
        let mut bench = Bench::new(1, 0, persistent, false);
        let table = GrantRef(DATA + 511);
        for n in 0..256_u32 {
            let page = GrantRef(DATA + n);
            bench
                .domain
                .fill(page, 0, &pattern(u8::try_from(n).unwrap()));
            let at = n as usize * 8;
            bench.domain.fill(table, at, &table_entry((page.0, 0, 7)));
        }
        let write = indirect(ABI, true, 1, 8, (table.0, 256));
        bench.fronts[0].put(&write);
        bench.fronts[0].push();
        bench.serve();
        // The answer names the operation inside the indirect request, a write.
        assert_eq!(bench.fronts[0].answers(), [(1, 1, 0)]);
        for n in [0_u32, 1, 63, 64, 255] {
            let read = data(ABI, false, 2, 8 + u64::from(n) * 8, &[(DATA + 300, 0, 7)]);
            assert_eq!(bench.ask(0, &[read]), [(2, 0)]);
            let page = bench.domain.page(GrantRef(DATA + 300));
            assert_eq!(page, pattern(u8::try_from(n).unwrap()), "page {n}");
        }
        bench.domain.fill(table, 8, &table_entry((DATA, 5, 4)));
        let backwards = indirect(ABI, true, 3, 8, (table.0, 256));
        bench.domain.revoked.borrow_mut().insert(GrantRef(400));
        let nowhere = indirect(ABI, true, 4, 8, (400, 2));
        assert_eq!(bench.ask(0, &[backwards, nowhere]), [(3, -1), (4, -1)]);
    }
}

#[test]
fn what_is_not_granted_is_an_error_of_one_request() {
    for persistent in [false, true] {
        let mut bench = Bench::new(1, 0, persistent, false);
        bench.domain.revoked.borrow_mut().insert(GrantRef(DATA + 1));
        let good = |id| data(ABI, true, id, 0, &[(DATA, 0, 7)]);
        let requests = [
            good(1),
            data(ABI, true, 2, 0, &[(DATA, 0, 7), (DATA + 1, 0, 7)]),
            data(ABI, false, 3, 0, &[(u32::MAX, 0, 7)]),
            data(ABI, false, 4, SECTORS - 7, &[(DATA, 0, 7)]),
            data(ABI, false, 5, u64::MAX, &[(DATA, 0, 7)]),
            data(ABI, false, 6, 0, &[(DATA, 3, 8)]),
            good(7),
        ];
        let expected = [(1, 0), (2, -1), (3, -1), (4, -1), (5, -1), (6, -1), (7, 0)];
        assert_eq!(bench.ask(0, &requests), expected);
        assert_eq!(bench.engine.pool().in_use, 0);
        bench.rings.disconnect();
        assert_eq!(bench.domain.mapped.get(), 0);
    }
}

#[test]
fn a_disk_that_refuses_writes_refuses_discards_too() {
    let discard = |id, sector: u64, sectors: u64| {
        let mut raw = data(ABI, false, id, sector, &[]);
        raw[0] = 5;
        raw[24..32].copy_from_slice(&sectors.to_le_bytes());
        raw
    };
    let mut bench = Bench::new(1, 0, false, true);
    let write = data(ABI, true, 1, 0, &[(DATA, 0, 7)]);
    let read = data(ABI, false, 2, 0, &[(DATA, 0, 7)]);
    assert_eq!(
        bench.ask(0, &[write, read, discard(3, 0, 8)]),
        [(1, -1), (2, 0), (3, -1)]
    );
    let mut bench = Bench::new(1, 0, false, false);
    bench.domain.fill(GrantRef(DATA), 0, &pattern(3));
    let write = data(ABI, true, 1, 0, &[(DATA, 0, 7)]);
    let read = data(ABI, false, 3, 0, &[(DATA + 1, 0, 7)]);
    let off = discard(4, SECTORS - 1, 2);
    assert_eq!(
        bench.ask(0, &[write, discard(2, 0, 8), read, off]),
        [(1, 0), (2, 0), (3, 0), (4, -1)]
    );
    assert_eq!(bench.domain.page(GrantRef(DATA + 1)), [0; 4096]);
}

#[test]
fn a_ring_that_makes_no_sense_is_shut_and_the_others_go_on() {
    let mut bench = Bench::new(2, 1, false, false);
    bench.fronts[0].word(0).store(1 << 30, Ordering::Release);
    let read = data(ABI, false, 1, 0, &[(DATA, 0, 7)]);
    assert_eq!(bench.ask(1, std::slice::from_ref(&read)), [(1, 0)]);
    let shut = bench.rings.take_shut();
    assert_eq!(shut.len(), 1);
    assert_eq!((shut[0].0, shut[0].1.waiting), (0, 1 << 30));
    assert!(!bench.rings.all_shut());
    let ports: Vec<_> = bench.events.bound.borrow().iter().copied().collect();
    *bench.events.pending.borrow_mut() = ports.clone();
    bench.rings.take_events();
    assert_eq!(*bench.events.unmasked.borrow(), ports[1..]);
    // The ring stays shut, even if its index becomes valid again.
    bench.fronts[0].word(0).store(0, Ordering::Release);
    assert!(bench.ask(0, &[read]).is_empty());
    bench.fronts[1].word(0).store(7 << 20, Ordering::Release);
    bench.rings.enable_notifications();
    assert!(bench.rings.all_shut());
}

#[test]
fn grants_stay_mapped_up_to_the_limit_and_go_when_asked() {
    let mut bench = Bench::new(1, 0, true, false);
    bench.knobs.set(Knob::MaxPersistentGrants, 100).unwrap();
    let read = |id: u64, grant: u32| data(ABI, false, id, 0, &[(DATA + grant, 0, 7)]);
    for n in 0..100 {
        assert_eq!(bench.ask(0, &[read(1, n)]), [(1, 0)]);
    }
    assert_eq!(
        (bench.domain.mapped.get(), bench.domain.copies.get()),
        (101, 0)
    );
    // No space is left: the request is copied, and the next purge unmaps some grants.
    assert_eq!(bench.ask(0, &[read(1, 100)]), [(1, 0)]);
    assert_eq!(bench.domain.copies.get(), 1);
    assert_eq!(bench.ask(0, &[read(1, 0)]), [(1, 0)]);
    bench.rings.purge(Micros(u64::MAX / 4));
    // By then all grants are unused.
    assert_eq!(bench.rings.persistent_grants(), 0);
    for n in 0..100 {
        bench.ask(0, &[read(1, n)]);
    }
    bench.ask(0, &[read(1, 100)]);
    bench
        .knobs
        .set(Knob::PersistentGrantUnusedSeconds, 0)
        .unwrap();
    bench.rings.purge(Micros(u64::MAX / 2));
    assert_eq!(
        bench.rings.persistent_grants(),
        95,
        "5 % of the limit, least recently used"
    );
    let copies = bench.domain.copies.get();
    bench.ask(0, &[read(1, 99)]);
    assert_eq!(
        (bench.rings.persistent_grants(), bench.domain.copies.get()),
        (95, copies)
    );
    bench.ask(0, &[read(1, 0)]);
    assert_eq!(bench.rings.persistent_grants(), 96, "the oldest had gone");
    bench.rings.reclaim();
    assert_eq!(
        (bench.rings.persistent_grants(), bench.domain.mapped.get()),
        (0, 1)
    );
    assert_eq!(bench.rings.next_purge(), None);
    bench
        .knobs
        .set(
            Knob::PersistentGrantUnusedSeconds,
            DEFAULT_PERSISTENT_GRANT_UNUSED_SECONDS,
        )
        .unwrap();
    bench.ask(0, &[read(1, 0)]);
    assert!(bench.rings.next_purge().is_some());
}

#[test]
fn the_rings_of_a_disk_share_its_limit_of_mapped_grants() {
    let mut bench = Bench::new(2, 0, true, false);
    bench.knobs.set(Knob::MaxPersistentGrants, 10).unwrap();
    let read = |grant: u32| data(ABI, false, 1, 0, &[(DATA + grant, 0, 7)]);
    for n in 0..10 {
        assert_eq!(bench.ask(n as usize % 2, &[read(n)]), [(1, 0)]);
    }
    assert_eq!(
        (bench.rings.persistent_grants(), bench.domain.copies.get()),
        (10, 0)
    );
    for ring in [0, 1] {
        assert_eq!(bench.ask(ring, &[read(10 + ring as u32)]), [(1, 0)]);
    }
    assert_eq!(
        (bench.rings.persistent_grants(), bench.domain.copies.get()),
        (10, 2)
    );
}

/// A back-end that is killed at any moment, repeatedly, loses no answered write, and each request
/// is answered once.
#[test]
fn back_ends_that_are_killed_lose_nothing() {
    for seed in 1..=40_u64 {
        println!("seed {seed}");
        let mut state = seed;
        let mut random = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % bound
        };
        let mut bench = Bench::new(2, 0, seed % 2 == 0, false);
        let mut disk = [0_u8; 64];
        let mut next = 1_u64;
        for _ in 0..60 {
            let mut asked = [Vec::new(), Vec::new()];
            let mut busy = [false; 64];
            for _ in 0..random(20) {
                // One request for each sector at a time, as front-ends do.
                let (queue, sector) = (random(2) as usize, random(64));
                if std::mem::replace(&mut busy[sector as usize], true) {
                    continue;
                }
                let page = DATA + u32::try_from(sector).unwrap() + 64 * queue as u32;
                let write = random(2) == 0;
                let value = random(256) as u8;
                bench.domain.fill(GrantRef(page), 0, &[value; 512]);
                let raw = data(ABI, write, next, sector, &[(page, 0, 0)]);
                bench.fronts[queue].put(&raw);
                asked[queue].push((next, write, sector, page, value));
                next += 1;
            }
            for front in &bench.fronts {
                front.push();
            }
            // The back-end is killed after this many requests, so requests that it took and did not
            // answer are lost.
            let far = random(25);
            for _ in 0..far {
                let Some(incoming) = bench.rings.next_request() else {
                    break;
                };
                if random(3) > 0 {
                    let (op, memory) = incoming.request.unwrap();
                    carry_out(&mut bench, &op, &memory);
                    bench.rings.answer(incoming.ticket, Status::Ok, 0);
                }
            }
            let persistent = random(2) == 0;
            bench.rings.disconnect();
            bench.connect(persistent);
            bench.serve();
            for (queue, requests) in asked.iter().enumerate() {
                let answers = bench.fronts[queue].answers();
                let expected: Vec<_> = requests
                    .iter()
                    .map(|r| (r.0, u8::from(r.1), 0_i16))
                    .collect();
                assert_eq!(answers, expected);
                for (_, write, sector, page, value) in requests {
                    let sector = *sector as usize;
                    if *write {
                        disk[sector] = *value;
                    } else {
                        let seen = bench.domain.page(GrantRef(*page));
                        assert_eq!(seen[..512], [disk[sector]; 512]);
                    }
                }
            }
        }
        bench.rings.disconnect();
        assert_eq!(bench.domain.mapped.get(), 0);
    }
}

/// Carries out a request at once, as the engine would.
fn carry_out(bench: &mut Bench, op: &Op, memory: &GrantedMemory) {
    use crate::request::Payload;
    let mut sector = [0; 512];
    let fd = bench.engine.image().cached();
    match op {
        Op::Write(offset) => {
            memory.copy_out(0, &mut sector).unwrap();
            rustix::io::pwrite(fd, &sector, *offset).unwrap();
        }
        Op::Read(offset) => {
            rustix::io::pread(fd, &mut sector, *offset).unwrap();
            memory.copy_in(0, &sector).unwrap();
        }
        other => panic!("{other:?} was not asked for"),
    }
}

#[test]
fn requests_that_come_together_are_copied_together_and_fail_alone() {
    let mut bench = Bench::new(1, 0, false, false);
    let count = 8_u32;
    let page = |n: u32| (DATA + n, 0, 7);
    for n in 0..count {
        bench.domain.fill(GrantRef(DATA + n), 0, &pattern(n as u8));
    }
    let asked = |write, first: u32| -> Vec<_> {
        let request = |n: u32| data(ABI, write, n.into(), u64::from(n) * 8, &[page(first + n)]);
        (0..count).map(request).collect()
    };
    // One grant is revoked: its request fails, and those beside it do not.
    bench.domain.revoked.borrow_mut().insert(GrantRef(DATA + 3));
    let answers = bench.ask(0, &asked(true, 0));
    let expected: Vec<_> = (0..u64::from(count))
        .map(|id| (id, if id == 3 { -1 } else { 0 }))
        .collect();
    assert_eq!(answers, expected);
    assert_eq!(bench.domain.copies.take(), 1);
    assert!(
        bench
            .ask(0, &asked(false, count))
            .iter()
            .all(|(_, status)| *status == 0)
    );
    assert_eq!(bench.domain.copies.get(), 1);
    for n in 0..count {
        let wanted = if n == 3 {
            vec![0; 4096]
        } else {
            pattern(n as u8)
        };
        assert_eq!(
            bench.domain.page(GrantRef(DATA + count + n)),
            wanted,
            "page {n}"
        );
    }
}
