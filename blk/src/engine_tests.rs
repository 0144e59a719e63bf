//! Compares the engine with a simple model: an image that is a vector of bytes.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

use super::*;
use crate::image::{Location, Spec};
use crate::knobs::Knob;
use crate::pool::{DEFAULT_SQUEEZE_HOLD_MS, MAX_POOL_PAGES, PAGE_BYTES, SHRINK_INTERVAL};
use crate::request::{HostSlice, Range};
use proptest::prelude::*;
use std::cell::RefCell;

const DISK: usize = 1 << 20;

/// The memory of a request. Direct I/O may not accept its address.
#[derive(Debug)]
struct Buffer {
    memory: RefCell<Vec<u8>>,
    slices: Option<Vec<HostSlice>>,
}

impl Buffer {
    /// Makes the memory of a request. If `mapped` is false, the engine can only copy it.
    fn new(bytes: Vec<u8>, mapped: bool) -> Self {
        let memory = RefCell::new(bytes);
        let slices = mapped.then(|| {
            let mut bytes = memory.borrow_mut();
            let half = 512.min(bytes.len());
            let (first, second) = bytes.split_at_mut(half);
            [first, second]
                .into_iter()
                .filter(|part| !part.is_empty())
                .map(|part| HostSlice {
                    iov_base: part.as_mut_ptr().cast(),
                    iov_len: part.len(),
                })
                .collect()
        });
        Self { memory, slices }
    }
}

impl Payload for std::rc::Rc<Buffer> {
    fn bytes(&self) -> u64 {
        self.memory.borrow().len() as u64
    }

    fn in_place(&self) -> Option<&[HostSlice]> {
        self.slices.as_deref()
    }

    fn copy_out(&self, at: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let at = at as usize;
        buffer.copy_from_slice(
            self.memory
                .borrow()
                .get(at..at + buffer.len())
                .ok_or(Fault)?,
        );
        Ok(())
    }

    fn copy_in(&self, at: u64, buffer: &[u8]) -> Result<(), Fault> {
        let at = at as usize;
        let mut memory = self.memory.borrow_mut();
        memory
            .get_mut(at..at + buffer.len())
            .ok_or(Fault)?
            .copy_from_slice(buffer);
        Ok(())
    }
}

/// A transport with a queue of requests and a list of answers.
#[derive(Debug, Default)]
struct FakeTransport {
    asked: VecDeque<(usize, Op, std::rc::Rc<Buffer>)>,
    answers: Vec<(usize, Status, u32)>,
}

impl Transport for FakeTransport {
    type Ticket = usize;
    type Payload = std::rc::Rc<Buffer>;

    fn next_request(&mut self) -> Option<Incoming<usize, Self::Payload>> {
        let (ticket, op, payload) = self.asked.pop_front()?;
        Some(Incoming {
            ticket,
            request: Ok((op, payload)),
        })
    }

    fn answer(&mut self, ticket: usize, status: Status, written: u32) {
        self.answers.push((ticket, status, written));
    }
}

/// A random request.
#[derive(Clone, Debug)]
enum Ask {
    Write {
        sector: usize,
        sectors: usize,
        seed: u8,
        mapped: bool,
    },
    Read {
        sector: usize,
        sectors: usize,
        mapped: bool,
    },
    Zero {
        ranges: Vec<(usize, usize)>,
        unmap: bool,
    },
    Discard {
        sector: usize,
        sectors: usize,
    },
    Flush,
    Squeeze,
}

/// Makes random requests.
fn ask() -> impl Strategy<Value = Ask> {
    let place = || (0..DISK / 512 - 700, 1..700_usize);
    prop_oneof![
        3 => (place(), any::<u8>(), any::<bool>()).prop_map(|((sector, sectors), seed, mapped)| {
            Ask::Write { sector, sectors, seed, mapped }
        }),
        3 => (place(), any::<bool>())
            .prop_map(|((sector, sectors), mapped)| Ask::Read { sector, sectors, mapped }),
        1 => (prop::collection::vec(place(), 1..4), any::<bool>())
            .prop_map(|(ranges, unmap)| Ask::Zero { ranges, unmap }),
        1 => place().prop_map(|(sector, sectors)| Ask::Discard { sector, sectors }),
        1 => Just(Ask::Flush),
        1 => Just(Ask::Squeeze),
    ]
}

/// Opens the image `spec` and makes an engine for it.
fn engine(spec: &Spec, uring: bool) -> Engine<FakeTransport> {
    let image = Image::open(spec).unwrap();
    let queue = if uring {
        Queue::new(&image)
    } else {
        Queue::calls()
    };
    Engine::new(image, "test", Arc::new(Knobs::default()), queue).unwrap()
}

/// Carries out `asks` and compares answers and image with the model.
fn check(asks: &[Ask], spec: &Spec, uring: bool) {
    let mut engine = engine(spec, uring);
    let mut model = vec![0_u8; DISK];
    let mut transport = FakeTransport::default();
    for (ticket, ask) in asks.iter().enumerate() {
        let mut expected = None;
        let (op, payload) = match ask {
            Ask::Write {
                sector,
                sectors,
                seed,
                mapped,
            } => {
                let start = sector * 512;
                let bytes: Vec<_> = (0..sectors * 512).map(|i| seed ^ (i / 3) as u8).collect();
                model[start..start + bytes.len()].copy_from_slice(&bytes);
                (Op::Write(start as u64), Buffer::new(bytes, *mapped))
            }
            Ask::Read {
                sector,
                sectors,
                mapped,
            } => {
                let (start, bytes) = (sector * 512, sectors * 512);
                expected = Some(model[start..start + bytes].to_vec());
                (
                    Op::Read(start as u64),
                    Buffer::new(vec![0xee; bytes], *mapped),
                )
            }
            Ask::Zero { ranges, unmap } => {
                let range = |&(sector, sectors): &(usize, usize)| {
                    model[sector * 512..(sector + sectors) * 512].fill(0);
                    let (offset, bytes) = (sector as u64 * 512, sectors as u64 * 512);
                    Range {
                        offset,
                        bytes,
                        unmap: *unmap,
                    }
                };
                let ranges = ranges.iter().map(range).collect();
                (Op::WriteZeroes(ranges), Buffer::new(vec![], false))
            }
            Ask::Discard { sector, sectors } => {
                model[sector * 512..(sector + sectors) * 512].fill(0);
                let (offset, bytes) = (*sector as u64 * 512, *sectors as u64 * 512);
                let range = Range {
                    offset,
                    bytes,
                    unmap: false,
                };
                (Op::Discard(vec![range]), Buffer::new(vec![], false))
            }
            Ask::Flush => (Op::Flush, Buffer::new(vec![], false)),
            Ask::Squeeze => {
                engine.reclaim_memory(Micros(ticket as u64 + 1));
                engine.shrink(Micros(ticket as u64 + 1));
                assert_eq!(engine.pool().free, 0);
                continue;
            }
        };
        let payload = std::rc::Rc::new(payload);
        transport.asked.push_back((ticket, op, payload.clone()));
        engine.accept(&mut transport).unwrap();
        // One at a time, because requests that overlap have no defined order.
        engine.drain(&mut transport).unwrap();
        let bytes = expected.as_ref().map_or(0, |bytes| bytes.len() as u32);
        assert_eq!(
            transport.answers.pop(),
            Some((ticket, Status::Ok, bytes)),
            "{ask:?}"
        );
        if let Some(expected) = expected {
            assert!(
                *payload.memory.borrow() == expected,
                "{ask:?} reads something else"
            );
        }
        assert_eq!(engine.pool().in_use, 0);
    }
}

/// Describes a RAM disk.
fn ram() -> Spec {
    Spec {
        location: Location::Ram { bytes: DISK as u64 },
        read_only: false,
        cached: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn an_image_is_what_was_written_to_it(asks in prop::collection::vec(ask(), 1..40)) {
        for uring in [true, false] {
            check(&asks, &ram(), uring);
        }
    }
}

/// With more requests than pages, some wait for pages, and all are answered.
#[test]
fn requests_that_find_no_page_wait_for_one() {
    let mut engine = engine(&ram(), true);
    let held = engine
        .memory
        .pool()
        .take(MAX_POOL_PAGES - BOUNCE_PAGES)
        .unwrap();
    let mut transport = FakeTransport::default();
    for ticket in 0..100 {
        let payload = std::rc::Rc::new(Buffer::new(vec![ticket as u8; 256 << 10], false));
        transport.asked.push_back((
            ticket,
            Op::Write((ticket % 4) as u64 * (256 << 10)),
            payload,
        ));
    }
    while engine.accept(&mut transport).unwrap() > 0 {}
    engine.drain(&mut transport).unwrap();
    assert_eq!(transport.answers.len(), 100);
    assert!(
        transport
            .answers
            .iter()
            .all(|(_, status, _)| *status == Status::Ok)
    );
    assert_eq!(engine.pool().in_use, MAX_POOL_PAGES - BOUNCE_PAGES);
    engine.memory.pool().put(held);
}

/// A request that returns its pages and goes on in place also starts requests that wait for pages.
#[test]
fn no_request_waits_for_pages_that_are_free() {
    let path = std::env::temp_dir().join(format!("ebb-blk-starved-{}", std::process::id()));
    std::fs::write(&path, vec![7; DISK]).unwrap();
    let spec = Spec {
        location: Location::Path(path.clone()),
        read_only: false,
        cached: false,
    };
    let mut engine = engine(&spec, false);
    // Truncated inside a sector, so that the rest of a read cannot use direct I/O.
    let image = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    image.set_len(4096 + 100).unwrap();
    std::fs::remove_file(&path).unwrap();
    if engine.image().direct().is_none() {
        println!("no direct I/O here");
        return;
    }
    let held = engine.memory.pool().take(MAX_POOL_PAGES - 1).unwrap();
    let mut bytes = vec![0; 4096];
    let base = bytes.as_mut_ptr();
    let part = |from: usize, iov_len| HostSlice {
        iov_base: base.wrapping_add(from).cast(),
        iov_len,
    };
    // Direct I/O cannot use these slices.
    let slices = Some(vec![part(0, 100), part(100, 3996)]);
    let cut = Buffer {
        memory: RefCell::new(bytes),
        slices,
    };
    let mut transport = FakeTransport::default();
    let waits = Buffer::new(vec![0; 4096], false);
    for (ticket, start, buffer) in [(0, 4096, cut), (1, 0, waits)] {
        transport
            .asked
            .push_back((ticket, Op::Read(start), std::rc::Rc::new(buffer)));
    }
    engine.accept(&mut transport).unwrap();
    assert_eq!(engine.starved.len(), 1);
    engine.memory.pool().put(held);
    for _ in 0..10 {
        engine.reap(&mut transport).unwrap();
    }
    let statuses: Vec<_> = transport.answers.iter().map(|a| (a.0, a.1)).collect();
    assert_eq!(statuses, [(0, Status::IoError), (1, Status::Ok)]);
}

/// A huge request is carried out in bounded steps, so that the thread can check its other events.
#[test]
fn a_huge_request_is_done_in_bounded_steps() {
    const BYTES: usize = 40 << 20;
    let spec = Spec {
        location: Location::Ram {
            bytes: BYTES as u64,
        },
        read_only: false,
        cached: false,
    };
    let mut engine = engine(&spec, false);
    let mut transport = FakeTransport::default();
    for (ticket, op) in [(0, Op::Write(0)), (1, Op::Read(0))] {
        let bytes = if ticket == 0 { 0x5a } else { 0 };
        let payload = std::rc::Rc::new(Buffer::new(vec![bytes; BYTES], true));
        transport.asked.push_back((ticket, op, payload.clone()));
        engine.accept(&mut transport).unwrap();
        while engine.under_way() > 0 {
            assert!(engine.reap(&mut transport).unwrap() <= engine.queue.batch());
        }
        assert_eq!(
            engine.counters().in_place_bytes,
            (ticket as u64 + 1) * BYTES as u64
        );
        assert!(payload.memory.borrow().iter().all(|byte| *byte == 0x5a));
    }
    // The steps of many large requests take turns.
    let batch = engine.queue.batch();
    for ticket in 0..batch {
        let payload = std::rc::Rc::new(Buffer::new(vec![1; 1 << 20], false));
        transport.asked.push_back((ticket, Op::Write(0), payload));
    }
    engine.accept(&mut transport).unwrap();
    for _ in 0..4 {
        assert_eq!(engine.under_way(), batch);
        assert_eq!(engine.reap(&mut transport).unwrap(), batch);
    }
    assert_eq!(engine.under_way(), 0);
}

#[test]
fn a_short_image_is_an_error_and_no_more() {
    let path = std::env::temp_dir().join(format!("ebb-blk-short-{}", std::process::id()));
    std::fs::write(&path, vec![7; DISK]).unwrap();
    let spec = Spec {
        location: Location::Path(path.clone()),
        read_only: false,
        cached: true,
    };
    let mut engine = engine(&spec, true);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    let mut transport = FakeTransport::default();
    for (ticket, start) in [(0, 0), (1, 8192)] {
        let payload = std::rc::Rc::new(Buffer::new(vec![0; 4096], true));
        transport
            .asked
            .push_back((ticket, Op::Read(start), payload));
    }
    engine.accept(&mut transport).unwrap();
    engine.drain(&mut transport).unwrap();
    std::fs::remove_file(&path).unwrap();
    transport.answers.sort_by_key(|answer| answer.0);
    assert_eq!(
        transport.answers,
        [(0, Status::Ok, 4096), (1, Status::IoError, 0)]
    );
}

/// Writes two pages that go through the pool, and shrinks the pool at `now`, in microseconds.
/// Returns the number of free pages that are left.
fn write_and_shrink(
    engine: &mut Engine<FakeTransport>,
    transport: &mut FakeTransport,
    now: u64,
) -> u32 {
    let payload = std::rc::Rc::new(Buffer::new(vec![1; 2 * PAGE_BYTES], false));
    transport.asked.push_back((0, Op::Write(0), payload));
    engine.accept(transport).unwrap();
    engine.drain(transport).unwrap();
    engine.shrink(Micros(now));
    engine.pool().free
}

/// After each batch of requests the pool has no more free pages than `max_buffer_pages`, however
/// busy the disk is.
#[test]
fn no_batch_leaves_more_free_pages_than_the_limit() {
    let mut engine = engine(&ram(), false);
    let mut transport = FakeTransport::default();
    for limit in [0, 1, 2, 5] {
        engine
            .memory
            .knobs()
            .set(Knob::MaxBufferPages, limit)
            .unwrap();
        for n in 0..20 {
            let free = write_and_shrink(&mut engine, &mut transport, n);
            assert_eq!(free, limit.min(2), "{n}");
            assert_eq!(engine.next_shrink(Micros(n)), None, "{limit}");
        }
    }
    // A limit that is lowered holds without a further request.
    engine.memory.knobs().set(Knob::MaxBufferPages, 1).unwrap();
    assert_eq!(engine.next_shrink(Micros(100)), Some(Micros(100)));
    engine.shrink(Micros(100));
    assert_eq!(engine.pool().free, 1);
}

/// Requests under way keep their pages whatever the limit is, up to [`MAX_POOL_PAGES`] for a disk.
/// Further requests wait for pages.
#[test]
fn requests_under_way_are_bounded_by_the_size_of_the_pool_alone() {
    let mut engine = engine(&ram(), false);
    engine.memory.knobs().set(Knob::MaxBufferPages, 0).unwrap();
    let mut held = Vec::new();
    for n in 1..=MAX_POOL_PAGES / BOUNCE_PAGES {
        held.extend(engine.memory.pool().take(BOUNCE_PAGES));
        engine.shrink(Micros(n.into()));
        assert_eq!(engine.pool().in_use, n * BOUNCE_PAGES);
    }
    let mut transport = FakeTransport::default();
    let payload = std::rc::Rc::new(Buffer::new(vec![1; PAGE_BYTES], false));
    transport.asked.push_back((0, Op::Write(0), payload));
    engine.accept(&mut transport).unwrap();
    assert_eq!((engine.starved.len(), engine.counters().starved), (1, 1));
    for batch in held {
        engine.memory.pool().put(batch);
    }
    engine.shrink(Micros(1_000_000));
    assert_eq!(engine.pool().free, 0);
}

#[test]
fn a_squeeze_leaves_what_is_needed_again_at_once() {
    let mut engine = engine(&ram(), false);
    let mut transport = FakeTransport::default();
    let mut write =
        |engine: &mut Engine<FakeTransport>, now| write_and_shrink(engine, &mut transport, now);
    let interval = SHRINK_INTERVAL.as_micros() as u64;
    let event = 6 * interval;
    assert_eq!(write(&mut engine, event), 2);
    assert_eq!(engine.next_shrink(Micros(event)), None);
    engine.reclaim_memory(Micros(event));
    assert_eq!(write(&mut engine, event), 0);
    for n in 1..8 {
        // The pages of one batch are used by the next.
        assert_eq!(write(&mut engine, event + n * interval / 2), 2, "{n}");
    }
    // No more requests come.
    let mut looks = Vec::new();
    let mut now = Micros(event + 7 * interval / 2);
    while let Some(look) = engine.next_shrink(now) {
        engine.shrink(look);
        looks.push(look.0);
        now = look;
    }
    assert_eq!(looks, [event + 4 * interval, event + 5 * interval]);
    assert_eq!(engine.pool().free, 0);
}

/// In the hold of a squeeze the pool has no more free pages than `max_buffer_pages`, too.
#[test]
fn the_limit_holds_in_a_squeeze_that_is_held() {
    let mut engine = engine(&ram(), false);
    engine.memory.knobs().set(Knob::MaxBufferPages, 1).unwrap();
    let mut transport = FakeTransport::default();
    let event = 1_000_000;
    engine.reclaim_memory(Micros(event));
    engine.shrink(Micros(event));
    for now in [event + 20_000, event + 50_000, event + 200_000] {
        assert_eq!(write_and_shrink(&mut engine, &mut transport, now), 1);
    }
}

/// Returns an engine whose squeezes last for `duration_ms` and are not held.
fn without_hold(duration_ms: u32) -> Engine<FakeTransport> {
    let engine = engine(&ram(), false);
    let knobs = engine.memory.knobs();
    knobs.set(Knob::SqueezeHoldMs, 0).unwrap();
    knobs
        .set(Knob::BufferSqueezeDurationMs, duration_ms)
        .unwrap();
    engine
}

/// The limit is 0 for `buffer_squeeze_duration_ms`, and no longer.
#[test]
fn without_a_hold_a_squeeze_lasts_as_long_as_it_is_set() {
    for duration_ms in [1, 100] {
        let mut engine = without_hold(duration_ms);
        let event = 1_000_000;
        engine.reclaim_memory(Micros(event));
        let end = event + u64::from(duration_ms) * 1000;
        assert_eq!(engine.memory.limit(Micros(end - 1)), 0, "{duration_ms} ms");
        let usual = crate::pool::DEFAULT_MAX_BUFFER_PAGES;
        assert_eq!(engine.memory.limit(Micros(end)), usual, "{duration_ms} ms");
    }
}

/// Without a hold a squeeze leaves no free page after any batch of requests, until its end.
#[test]
fn without_a_hold_every_batch_in_a_squeeze_returns_its_pages() {
    for duration_ms in [1, 10, 100] {
        let mut engine = without_hold(duration_ms);
        let mut transport = FakeTransport::default();
        let mut write = |engine: &mut Engine<FakeTransport>| {
            let payload = std::rc::Rc::new(Buffer::new(vec![1; 2 * PAGE_BYTES], false));
            transport.asked.push_back((0, Op::Write(0), payload));
            engine.accept(&mut transport).unwrap();
            engine.drain(&mut transport).unwrap();
            engine.pool().free
        };
        let event = 1_000_000;
        engine.reclaim_memory(Micros(event));
        let end = event + u64::from(duration_ms) * 1000;
        for now in [event, event + 500, end - 1].map(Micros) {
            assert_eq!(write(&mut engine), 2);
            assert_eq!(engine.next_shrink(now), Some(now), "{duration_ms} ms");
            engine.shrink(now);
            assert_eq!(engine.pool().free, 0, "{duration_ms} ms, {now:?}");
            assert_eq!(engine.next_shrink(now), None);
        }
        assert_eq!(write(&mut engine), 2);
        engine.shrink(Micros(end));
        assert_eq!(engine.pool().free, 2, "{duration_ms} ms");
        assert_eq!(engine.next_shrink(Micros(end)), None);
    }
}

/// With a hold, too, every batch returns its pages for `buffer_squeeze_duration_ms`. After that
/// only idle pages go.
#[test]
fn a_hold_does_not_replace_the_duration() {
    for duration_ms in [1, 100] {
        let mut engine = without_hold(duration_ms);
        let knobs = engine.memory.knobs();
        knobs
            .set(Knob::SqueezeHoldMs, DEFAULT_SQUEEZE_HOLD_MS)
            .unwrap();
        let mut transport = FakeTransport::default();
        let mut write =
            |engine: &mut Engine<FakeTransport>, now| write_and_shrink(engine, &mut transport, now);
        let event = 1_000_000;
        let end = event + u64::from(duration_ms) * 1000;
        engine.reclaim_memory(Micros(event));
        assert_eq!(write(&mut engine, event), 0, "{duration_ms} ms");
        assert_eq!(write(&mut engine, end - 1), 0, "{duration_ms} ms");
        assert_eq!(write(&mut engine, end), 2, "{duration_ms} ms");
        let trim = engine.next_shrink(Micros(end));
        assert!(trim.is_some_and(|trim| trim > Micros(end)), "{trim:?}");
    }
}

/// After a squeeze a pool keeps only the pages that it uses, so that idle disks do not cause the
/// next shortage.
#[test]
fn after_a_squeeze_a_pool_keeps_what_it_uses_for_a_while() {
    let mut engine = engine(&ram(), false);
    let mut transport = FakeTransport::default();
    let mut write = |engine: &mut Engine<FakeTransport>, pages: usize, now: u64| {
        let payload = std::rc::Rc::new(Buffer::new(vec![1; pages * PAGE_BYTES], false));
        transport.asked.push_back((0, Op::Write(0), payload));
        engine.accept(&mut transport).unwrap();
        engine.drain(&mut transport).unwrap();
        engine.shrink(Micros(now));
        engine.pool().free
    };
    let interval = SHRINK_INTERVAL.as_micros() as u64;
    let event = 100 * interval;
    engine.shrink(Micros(event));
    engine.reclaim_memory(Micros(event));
    engine.shrink(Micros(event));
    let mut now = event + 10_000 + interval;
    assert_eq!(write(&mut engine, 8, now), 8);
    // Two of the pages are used again and again, the others are not.
    for _ in 0..2 {
        for _ in 0..3 {
            now += interval / 2;
            write(&mut engine, 2, now);
        }
    }
    assert_eq!(engine.pool().free, 2);
    let look = engine.next_shrink(Micros(now)).unwrap();
    engine.shrink(look);
    let look = engine.next_shrink(look).unwrap_or(look + SHRINK_INTERVAL);
    engine.shrink(look);
    assert_eq!((engine.pool().free, engine.next_shrink(look)), (0, None));
    // Long after the squeeze, or with squeezing off, the pool keeps idle pages up to its limit
    // again.
    let calm = event + u64::from(DEFAULT_SQUEEZE_HOLD_MS) * 1000;
    let keeps = |engine: &mut Engine<FakeTransport>, now: u64| {
        (0..4).for_each(|n| engine.shrink(Micros(now + n * interval)));
        (engine.pool().free, engine.next_shrink(Micros(now)))
    };
    assert_eq!(write(&mut engine, 8, calm), 8);
    assert_eq!(keeps(&mut engine, calm), (8, None));
    engine.reclaim_memory(Micros(calm + 10 * interval));
    assert_eq!(engine.counters().squeezes, 2);
    engine
        .memory
        .knobs()
        .set(Knob::BufferSqueezeDurationMs, 0)
        .unwrap();
    assert_eq!(keeps(&mut engine, calm + 11 * interval), (8, None));
    engine.reclaim_memory(Micros(calm + 20 * interval));
    assert_eq!(keeps(&mut engine, calm + 20 * interval), (8, None));
    assert_eq!(
        engine.counters().squeezes,
        2,
        "what squeezed nothing is none"
    );
}

#[test]
fn what_the_image_does_not_do_is_told_by_its_reason() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use std::os::fd::AsRawFd;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("image", flags).unwrap();
    ftruncate(&file, DISK as u64).unwrap();
    let spec = Spec {
        location: Location::Path(format!("/proc/self/fd/{}", file.as_raw_fd()).into()),
        read_only: false,
        cached: false,
    };
    for queue in [Queue::new, |_: &Image| Queue::calls()] {
        let image = Image::open(&spec).unwrap();
        let queue = queue(&image);
        let knobs = Arc::new(Knobs::default());
        let mut engine = Engine::new(image, "disk", knobs, queue).unwrap();
        let mut transport = FakeTransport::default();
        let mut ask = |op: Op| {
            let buffer = std::rc::Rc::new(Buffer::new(vec![1; 4096], false));
            transport.asked.push_back((0, op, buffer));
            engine.accept(&mut transport).unwrap();
            engine.drain(&mut transport).unwrap();
            let status = transport.answers.pop().unwrap().1;
            (
                status,
                engine.take_failure().map(|failure| failure.to_string()),
            )
        };
        assert_eq!(ask(Op::Read(512)), (Status::Ok, None));
        // Writes now fail, as on a full file system.
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).unwrap();
        let (status, told) = ask(Op::Write(8192));
        assert_eq!(status, Status::IoError);
        let told = told.unwrap();
        assert!(told.contains("a write at byte 8192"), "{told}");
        assert!(told.contains("not permitted"), "{told}");
        assert_eq!(ask(Op::Read(512)), (Status::Ok, None), "told once");
    }
    let image = Image::open(&spec).unwrap();
    let knobs = Arc::new(Knobs::default());
    let mut engine = Engine::new(image, "disk", knobs, Queue::calls()).unwrap();
    ftruncate(&file, 4096).unwrap();
    let mut transport = FakeTransport::default();
    let buffer = std::rc::Rc::new(Buffer::new(vec![1; 4096], false));
    transport.asked.push_back((0, Op::Read(65536), buffer));
    engine.accept(&mut transport).unwrap();
    engine.drain(&mut transport).unwrap();
    let told = engine.take_failure().unwrap().to_string();
    assert!(
        told.contains("65536") && told.contains("ends before"),
        "{told}"
    );
}
