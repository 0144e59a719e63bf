use super::super::fake::{FakeGrants, FrontRing};
use super::super::front::data;
use super::super::protocol::{parse, response};
use super::*;
use crate::request::Status;

fn read(abi: Abi, id: u64) -> Vec<u8> {
    data(abi, false, id, id, &[(9, 0, 7)])
}

fn id_of(abi: Abi, raw: &[u8; REQUEST_BYTES]) -> u64 {
    parse(abi, raw).id
}

fn ok(id: u64) -> [u8; RESPONSE_BYTES] {
    response(id, 0, Status::Ok)
}

fn all(ring: &mut Ring, abi: Abi) -> Vec<(Sequence, u64)> {
    let take = || ring.take().unwrap().map(|(at, raw)| (at, id_of(abi, &raw)));
    std::iter::from_fn(take).collect()
}

#[test]
fn rings_of_every_size_and_layout_wrap_around() {
    for abi in [Abi::X86_64, Abi::X86_32] {
        for (order, size) in [(0, 32), (1, 64), (2, 128), (3, 256), (4, 512)] {
            let domain = FakeGrants::new(16);
            let mut front = FrontRing::new(&domain, 0, 1 << order, abi);
            let mut ring = Ring::new(front.map(), abi);
            assert_eq!(ring.size(), size);
            let mut next = 0_u64;
            for batch in [1, size / 2 + 1, size, size - 1, size] {
                let ids: Vec<_> = (next..next + u64::from(batch)).collect();
                next += u64::from(batch);
                for id in &ids {
                    front.put(&read(abi, *id));
                }
                assert!(ring.take().unwrap().is_none(), "nothing was told yet");
                front.push();
                let taken = all(&mut ring, abi);
                assert_eq!(taken.iter().map(|(_, id)| *id).collect::<Vec<_>>(), ids);
                for (at, id) in taken {
                    ring.answer(at, ok(id));
                }
                let answered: Vec<_> = front.answers().iter().map(|a| a.0).collect();
                assert_eq!(answered, ids);
            }
        }
    }
}

#[test]
fn an_answer_waits_for_older_ones() {
    let domain = FakeGrants::new(1);
    let mut front = FrontRing::new(&domain, 0, 1, Abi::X86_64);
    let mut ring = Ring::new(front.map(), Abi::X86_64);
    (0..4).for_each(|id| front.put(&read(Abi::X86_64, id)));
    front.push();
    let taken = all(&mut ring, Abi::X86_64);
    ring.answer(taken[2].0, ok(2));
    ring.answer(taken[1].0, ok(1));
    assert_eq!(front.answers(), []);
    ring.answer(taken[0].0, ok(0));
    assert_eq!(front.answers(), [(0, 0, 0), (1, 0, 0), (2, 0, 0)]);
    ring.answer(taken[3].0, response(3, 1, Status::Unsupported));
    assert_eq!(front.answers(), [(3, 1, -2)]);
}

#[test]
fn a_successor_does_what_was_not_answered_and_nothing_else() {
    for abi in [Abi::X86_64, Abi::X86_32] {
        let domain = FakeGrants::new(1);
        let mut front = FrontRing::new(&domain, 0, 1, abi);
        let mut ring = Ring::new(front.map(), abi);
        // Past the end of the ring, so that indices and entries differ.
        for id in 0..40 {
            front.put(&read(abi, id));
            front.push();
            let (at, _) = all(&mut ring, abi)[0];
            ring.answer(at, ok(id));
        }
        front.answers();
        (40..50).for_each(|id| front.put(&read(abi, id)));
        front.push();
        let taken = all(&mut ring, abi);
        for done in [5, 0, 1, 7, 9] {
            ring.answer(taken[done].0, ok(taken[done].1));
        }
        drop(ring);
        assert_eq!(front.answers().len(), 2);
        let mut ring = Ring::new(front.map(), abi);
        let again = all(&mut ring, abi);
        let ids: Vec<_> = again.iter().map(|(_, id)| *id).collect();
        assert_eq!(ids, (42..50).collect::<Vec<_>>());
        for (at, id) in again {
            ring.answer(at, ok(id));
        }
        let answered: Vec<_> = front.answers().iter().map(|a| a.0).collect();
        assert_eq!(answered, ids);
    }
}

/// A killed process leaves the stores that it made until then. The test tries every prefix of the
/// stores of one answer.
#[test]
fn a_kill_between_any_two_stores_of_an_answer_loses_no_request() {
    for abi in [Abi::X86_64, Abi::X86_32] {
        let domain = FakeGrants::new(1);
        let mut front = FrontRing::new(&domain, 0, 1, abi);
        let mut ring = Ring::new(front.map(), abi);
        for id in 0..35 {
            front.put(&read(abi, id));
            front.push();
            let (at, _) = all(&mut ring, abi)[0];
            ring.answer(at, ok(id));
        }
        (35..38).for_each(|id| front.put(&read(abi, id)));
        front.push();
        let taken = all(&mut ring, abi);
        let before = domain.page(front.memory().first);
        ring.answer(taken[0].0, ok(35));
        drop(ring);
        let after = domain.page(front.memory().first);
        // In the order of `publish`: the journal, its number, its complement, the entry, the index.
        let entry = ENTRIES + 3 * abi.entry_bytes();
        let stores = [
            JOURNAL + 8,
            JOURNAL + 12,
            JOURNAL + 16,
            JOURNAL,
            JOURNAL + 4,
        ]
        .into_iter()
        .chain([entry, entry + 4, entry + 8, RSP_PROD]);
        let stores: Vec<_> = stores.collect();
        let changed = (0..GRANT_WORDS).map(|n| n * 4).filter(|at| {
            let range = *at..at + 4;
            before[range.clone()] != after[range]
        });
        for at in changed {
            assert!(stores.contains(&at), "{at} is stored to as well");
        }
        for done in 0..=stores.len() {
            domain.fill(front.memory().first, 0, &before);
            for at in &stores[..done] {
                domain.fill(front.memory().first, *at, &after[*at..at + 4]);
            }
            let mut ring = Ring::new(front.map(), abi);
            let again: Vec<_> = all(&mut ring, abi).iter().map(|(_, id)| *id).collect();
            let expected = if done == stores.len() { 36 } else { 35 };
            assert_eq!(
                again,
                (expected..38).collect::<Vec<_>>(),
                "after {done} stores"
            );
        }
    }
}

const GRANT_WORDS: usize = super::super::grants::GRANT_BYTES / 4;

#[test]
fn an_index_that_runs_away_or_back_is_refused() {
    let domain = FakeGrants::new(1);
    let mut front = FrontRing::new(&domain, 0, 1, Abi::X86_64);
    let mut ring = Ring::new(front.map(), Abi::X86_64);
    (0..3).for_each(|id| front.put(&read(Abi::X86_64, id)));
    front.push();
    let taken = all(&mut ring, Abi::X86_64);
    ring.answer(taken[0].0, ok(0));
    // Two requests are unanswered, so 30 more fit.
    front.word(REQ_PROD).store(3 + 30, Ordering::Relaxed);
    assert_eq!(ring.waiting(), Ok(30));
    for bad in [3 + 31, 2, 0, u32::MAX, 3 + (1 << 31)] {
        front.word(REQ_PROD).store(bad, Ordering::Relaxed);
        let error = ring.take().unwrap_err();
        assert_eq!((error.waiting, error.room), (bad.wrapping_sub(3), 30));
        assert!(ring.enable_notifications().is_err());
    }
}

#[test]
fn the_front_end_is_told_when_it_asked_for_it() {
    let domain = FakeGrants::new(1);
    let mut front = FrontRing::new(&domain, 0, 1, Abi::X86_64);
    let mut ring = Ring::new(front.map(), Abi::X86_64);
    (0..4).for_each(|id| front.put(&read(Abi::X86_64, id)));
    assert_eq!(ring.enable_notifications(), Ok(false));
    assert_eq!(front.word(REQ_EVENT).load(Ordering::Relaxed), 1);
    front.push();
    assert_eq!(ring.enable_notifications(), Ok(true));
    let taken = all(&mut ring, Abi::X86_64);
    assert!(!ring.wants_notification(), "nothing was answered");
    front.word(RSP_EVENT).store(2, Ordering::Relaxed);
    ring.answer(taken[0].0, ok(0));
    assert!(!ring.wants_notification(), "it waits for the second");
    ring.answer(taken[1].0, ok(1));
    ring.answer(taken[2].0, ok(2));
    assert!(ring.wants_notification());
    assert!(!ring.wants_notification(), "once");
    ring.answer(taken[3].0, ok(3));
    assert!(!ring.wants_notification());
}
