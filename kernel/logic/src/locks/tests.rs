//! Compares the table of locks with a model that stores for every byte its owners and kinds of
//! locks.

use super::ranges::{Kind, LAST_BYTE, Label, Span, SpanError};
use super::table::{
    Acquired, BUCKETS, FileKey, Line, Owner, Refused, Request, Subject, Table, World,
};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Number of bytes of a file that the model tracks. The last one represents all further bytes.
const BYTES: usize = 24;
const OWNERS: usize = 5;
const SUBJECTS: usize = 3;

#[derive(Clone, Debug)]
struct Wanted {
    subject: usize,
    owner: usize,
    first: usize,
    last: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Step {
    Try(Wanted),
    Wait(Wanted),
    Unlock(Wanted),
    Release { subject: usize, owner: usize },
    Cancel(usize),
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let kind = prop_oneof![Just(Kind::Shared), Just(Kind::Exclusive)];
    let bytes = (0..BYTES, 0..8_usize);
    (0..SUBJECTS, 0..OWNERS, bytes, kind).prop_map(|(subject, owner, (first, more), kind)| {
        let last = (first + more).min(BYTES - 1);
        // The last subject is in the world of whole files.
        let (first, last) = if subject == SUBJECTS - 1 {
            (0, BYTES - 1)
        } else {
            (first, last)
        };
        Wanted {
            subject,
            owner,
            first,
            last,
            kind,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => wanted().prop_map(Step::Try),
        4 => wanted().prop_map(Step::Wait),
        3 => wanted().prop_map(Step::Unlock),
        1 => (0..SUBJECTS, 0..OWNERS).prop_map(|(subject, owner)| Step::Release { subject, owner }),
        1 => (0..64_usize).prop_map(Step::Cancel),
    ]
}

fn subject(number: usize) -> Subject {
    let world = if number == SUBJECTS - 1 {
        World::Whole
    } else {
        World::Ranges
    };
    // The first and the last subject are the same file.
    let inode = (number % (SUBJECTS - 1)) as u64;
    Subject {
        file: FileKey { device: 1, inode },
        world,
    }
}

/// Returns the owner with this `number` for the subject with number `subject`. The last one is an
/// open file description, in both worlds; the others are tables of descriptors in the world of
/// ranges.
fn owner(subject: usize, number: usize) -> Owner {
    if subject == SUBJECTS - 1 || number == OWNERS - 1 {
        Owner::Description(number as u64)
    } else {
        Owner::Files(number as u64)
    }
}

fn is_posix(wanted: &Wanted) -> bool {
    matches!(owner(wanted.subject, wanted.owner), Owner::Files(_))
}

fn span(first: usize, last: usize) -> Span {
    let last = if last == BYTES - 1 {
        LAST_BYTE
    } else {
        last as u64
    };
    Span {
        first: first as u64,
        last,
    }
}

fn request(wanted: &Wanted) -> Request {
    Request {
        owner: owner(wanted.subject, wanted.owner),
        span: span(wanted.first, wanted.last),
        kind: wanted.kind,
        label: Label {
            pid: wanted.owner as u32,
            via: 0,
        },
    }
}

#[derive(Default)]
struct Model {
    /// The kind of lock, by subject, owner and byte.
    held: Vec<Vec<[Option<Kind>; BYTES]>>,
    /// The waiting requests with the numbers of their tickets, the oldest first.
    waiters: Vec<(usize, Wanted)>,
}

impl Model {
    fn new() -> Self {
        Self {
            held: vec![vec![[None; BYTES]; OWNERS]; SUBJECTS],
            waiters: Vec::new(),
        }
    }

    fn blockers(&self, wanted: &Wanted) -> Vec<usize> {
        let against = |kind: &Option<Kind>| match kind {
            None => false,
            Some(Kind::Exclusive) => true,
            Some(Kind::Shared) => wanted.kind == Kind::Exclusive,
        };
        let of_subject = self.held[wanted.subject].iter().enumerate();
        of_subject
            .filter(|(other, bytes)| {
                *other != wanted.owner && bytes[wanted.first..=wanted.last].iter().any(against)
            })
            .map(|(other, _)| other)
            .collect()
    }

    fn set(&mut self, wanted: &Wanted, kind: Option<Kind>) {
        self.held[wanted.subject][wanted.owner][wanted.first..=wanted.last].fill(kind);
    }

    /// Returns the owners that the request `wanted` waits for, directly or indirectly, among owners
    /// of POSIX locks.
    fn waits_for(&self, wanted: &Wanted) -> Vec<usize> {
        let mut met: Vec<usize> = Vec::new();
        let mut open = vec![wanted.clone()];
        while let Some(one) = open.pop() {
            for blocker in self.blockers(&one) {
                let node = Wanted {
                    owner: blocker,
                    ..one.clone()
                };
                if is_posix(&node) && !met.contains(&blocker) {
                    met.push(blocker);
                    let all = self.waiters.iter().map(|(_, waiter)| waiter.clone());
                    open.extend(all.filter(|w| w.owner == blocker && is_posix(w)));
                }
            }
        }
        met
    }

    /// Grants the possible requests, in the order of waiting. Returns the tickets that were
    /// settled.
    fn hand_over(&mut self) -> Vec<usize> {
        let mut settled = Vec::new();
        loop {
            let before = settled.len();
            let mut place = 0;
            while place < self.waiters.len() {
                let (ticket, wanted) = self.waiters[place].clone();
                if self.blockers(&wanted).is_empty() {
                    self.set(&wanted, Some(wanted.kind));
                    self.waiters.remove(place);
                    settled.push(ticket);
                } else {
                    place += 1;
                }
            }
            if settled.len() == before {
                return settled;
            }
        }
    }
}

/// Returns the number of held locks and waiting requests in all buckets of `table`.
fn count<T>(table: &Table<T>) -> usize {
    (0..BUCKETS).map(|bucket| table.count(bucket)).sum()
}

/// Returns the lines of all buckets of `table`, whose numbers continue from bucket to bucket.
fn list(table: &Table<usize>) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    let mut before = 0;
    for bucket in 0..BUCKETS {
        let mut lines = Vec::with_capacity(table.count(bucket));
        table.list(bucket, &mut lines);
        assert_eq!(lines.len(), table.count(bucket));
        for line in &mut lines {
            line.number += before;
        }
        before += lines.iter().filter(|line| !line.waits).count();
        all.append(&mut lines);
    }
    all
}

fn compare(table: &Table<usize>, model: &Model) {
    let lines = list(table);
    let (waiting, held): (Vec<&Line>, Vec<&Line>) = lines.iter().partition(|line| line.waits);

    let mut seen = vec![vec![[None; BYTES]; OWNERS]; SUBJECTS];
    for (place, line) in held.iter().enumerate() {
        assert_eq!(line.number, place + 1);
        let at = (0..SUBJECTS).find(|&at| subject(at) == line.subject);
        let at = at.expect("a subject of the test");
        let (Owner::Files(who) | Owner::Description(who)) = line.owner;
        let who = who as usize;
        assert_eq!(line.owner, owner(at, who));
        let span = line.held.span;
        for byte in span.first..=span.last.min(BYTES as u64 - 1) {
            let before = seen[at][who][byte as usize].replace(line.held.kind);
            assert_eq!(before, None, "two locks of one byte");
        }
        let next = held.get(place + 1);
        if let Some(next) =
            next.filter(|next| (next.subject, next.owner) == (line.subject, line.owner))
        {
            let apart = span.last + 1 < next.held.span.first;
            assert!(apart || line.held.kind != next.held.kind, "not merged");
        }
    }
    assert_eq!(seen, model.held);

    assert_eq!(waiting.len(), model.waiters.len());
    for line in waiting {
        let blocker = held.iter().find(|other| other.number == line.number);
        let blocker = blocker.expect("who waits, waits for a lock");
        assert_eq!(blocker.subject, line.subject);
        assert!(blocker.owner != line.owner);
        assert!(blocker.held.excludes(&line.held.span, line.held.kind));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn it_does_what_a_list_of_bytes_does(steps in prop::collection::vec(step(), 0..80)) {
        let mut table: Table<usize> = Table::new();
        let mut model = Model::new();
        let mut numbers: Vec<(usize, u64)> = Vec::new();
        for (ticket, step) in steps.into_iter().enumerate() {
            let mut settled = Vec::new();
            let settle = |ticket: &usize, result| {
                assert_eq!(result, Ok(()));
                settled.push(*ticket);
            };
            match &step {
                Step::Try(wanted) | Step::Wait(wanted) => {
                    let waits = matches!(step, Step::Wait(_));
                    // A conversion of a whole file's lock first releases the old lock.
                    let bytes = &mut model.held[wanted.subject][wanted.owner];
                    if subject(wanted.subject).world == World::Whole && bytes[0] != Some(wanted.kind) {
                        bytes.fill(None);
                    }
                    let blockers = model.blockers(wanted);
                    let expected = if blockers.is_empty() {
                        model.set(wanted, Some(wanted.kind));
                        Ok(())
                    } else if !waits {
                        Err(Refused::Conflict)
                    } else if is_posix(wanted) && model.waits_for(wanted).contains(&wanted.owner) {
                        Err(Refused::Deadlock)
                    } else {
                        model.waiters.push((ticket, wanted.clone()));
                        Ok(())
                    };
                    let at = subject(wanted.subject);
                    let blocker = table.blocker(at, &request(wanted));
                    if expected == Err(Refused::Conflict) {
                        let (whose, held) = blocker.expect("a lock is in the way");
                        prop_assert!(blockers.iter().any(|&one| owner(wanted.subject, one) == whose));
                        prop_assert!(held.excludes(&request(wanted).span, wanted.kind));
                    }
                    let found = table.acquire(at, &request(wanted), waits.then_some(ticket), settle);
                    if let Ok(Acquired::Waiting(number)) = found {
                        numbers.push((ticket, number));
                        prop_assert!(!blockers.is_empty());
                    }
                    prop_assert_eq!(found.map(|_| ()), expected);
                }
                Step::Unlock(wanted) => {
                    model.set(wanted, None);
                    let whose = owner(wanted.subject, wanted.owner);
                    let bytes = span(wanted.first, wanted.last);
                    prop_assert_eq!(table.unlock(subject(wanted.subject), whose, bytes, settle), Ok(()));
                }
                Step::Release { subject: at, owner: whose } => {
                    model.held[*at][*whose].fill(None);
                    table.release(subject(*at), owner(*at, *whose), settle);
                }
                Step::Cancel(which) => {
                    if let Some(&(ticket, number)) = numbers.get(*which) {
                        let waits = model.waiters.iter().position(|(one, _)| *one == ticket);
                        prop_assert_eq!(table.cancel(number), waits.is_some());
                        if let Some(place) = waits {
                            model.waiters.remove(place);
                        }
                    }
                }
            }
            prop_assert_eq!(settled, model.hand_over());
            compare(&table, &model);
        }
        // All owners release their locks, including those granted after a wait. Nothing is left
        // behind.
        for _ in 0..=numbers.len() {
            for at in 0..SUBJECTS {
                for whose in 0..OWNERS {
                    table.release(subject(at), owner(at, whose), |_, _| {});
                }
            }
        }
        prop_assert_eq!(count(&table), 0);
    }

    #[test]
    fn spans_are_what_the_numbers_say(base in 0..=LAST_BYTE, start: i64, length: i64) {
        let begin = i128::from(base) + i128::from(start);
        let all = match length {
            0 => (begin, i128::from(LAST_BYTE)),
            1.. => (begin, begin + i128::from(length) - 1),
            _ => (begin + i128::from(length), begin - 1),
        };
        match Span::relative(base, start, length) {
            Ok(span) => {
                prop_assert_eq!((span.first.into(), span.last.into()), all);
                prop_assert!(span.first <= span.last && span.last <= LAST_BYTE);
            }
            Err(SpanError::BeforeStart) => prop_assert!(begin < 0 || all.0 < 0),
            Err(SpanError::BeyondEnd) => prop_assert!(all.1.max(begin) > LAST_BYTE.into()),
        }
    }
}

/// Small numbers hit the edges that random ones miss.
#[test]
fn edges_of_spans() {
    let last = LAST_BYTE;
    let top = i64::MAX;
    for (base, start, length, expected) in [
        (0, 0, 0, Ok((0, last))),
        (0, 5, 1, Ok((5, 5))),
        (5, -5, 0, Ok((0, last))),
        (5, -6, 0, Err(SpanError::BeforeStart)),
        (10, 0, -10, Ok((0, 9))),
        (10, 0, -11, Err(SpanError::BeforeStart)),
        (0, 0, -1, Err(SpanError::BeforeStart)),
        (0, top, 1, Ok((last, last))),
        (0, top, 0, Ok((last, last))),
        (0, top, 2, Err(SpanError::BeyondEnd)),
        (1, top, 0, Err(SpanError::BeyondEnd)),
        (1, top, -1, Err(SpanError::BeyondEnd)),
        (0, 1, top, Ok((1, last))),
        (0, 0, top, Ok((0, last - 1))),
        (last, i64::MIN, 0, Err(SpanError::BeforeStart)),
        (0, i64::MIN, i64::MIN, Err(SpanError::BeforeStart)),
    ] {
        let found = Span::relative(base, start, length).map(|span| (span.first, span.last));
        assert_eq!(found, expected, "{base} {start} {length}");
    }
}

/// A chain of waiting owners as long as a machine could have is searched to its end.
#[test]
fn a_long_chain_is_a_deadlock_too() {
    const CHAIN: u64 = 400;
    let mut table: Table<()> = Table::new();
    let at = |inode| Subject {
        file: FileKey { device: 0, inode },
        world: World::Ranges,
    };
    let ask = |owner| Request {
        owner: Owner::Files(owner),
        span: Span::ALL,
        kind: Kind::Exclusive,
        label: Label { pid: 0, via: 0 },
    };
    for owner in 0..CHAIN {
        let own = table.acquire(at(owner), &ask(owner), None, |_, _| {});
        assert_eq!(own, Ok(Acquired::Granted));
    }
    for owner in 0..CHAIN - 1 {
        let next = table.acquire(at(owner + 1), &ask(owner), Some(()), |_, _| {});
        assert!(matches!(next, Ok(Acquired::Waiting(_))));
    }
    let closed = table.acquire(at(0), &ask(CHAIN - 1), Some(()), |_, _| {});
    assert_eq!(closed, Err(Refused::Deadlock));
}

#[test]
fn of_many_files_that_were_locked_one_entry_stays() {
    let mut table: Table<()> = Table::new();
    for inode in 0..1000 {
        let subject = Subject {
            file: FileKey { device: 1, inode },
            world: World::Ranges,
        };
        let request = Request {
            owner: Owner::Files(1),
            span: Span { first: 0, last: 0 },
            kind: Kind::Exclusive,
            label: Label { pid: 1, via: 1 },
        };
        for _ in 0..2 {
            let got = table.acquire(subject, &request, None, |(), _| ());
            assert_eq!(got, Ok(Acquired::Granted));
            let span = request.span;
            let unlocked = table.unlock(subject, request.owner, span, |(), _| ());
            assert!(unlocked.is_ok());
        }
        assert_eq!((count(&table), table.entries()), (0, 1));
    }
}
