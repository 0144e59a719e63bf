//! Changes what the back-end is using: revokes grants, overwrites requests and tables from other
//! threads, fills a ring with random bytes. The statuses of answers cannot be predicted. But each
//! request must be answered once, and afterwards the disk must work.

use crate::Failed;
use crate::attack::NEVER;
use crate::session::{PLAIN, Session, Setup};
use crate::verify::{Buffer, Shape, sound};
use ebb_blk::xen::front::{SharedWords, data, indirect, table_entry};
use ebb_blk::xen::protocol::{Abi, SEGMENT_BYTES};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Offset of a ring's first request.
const ENTRIES: usize = 64;
/// Duration of each race.
const RACE: Duration = Duration::from_millis(1000);

/// Pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

/// Numbers of answers: to requests with revoked grants that succeeded or failed, and to changed
/// requests.
#[derive(Default)]
struct Seen {
    done: usize,
    refused: usize,
    answered: usize,
}

impl Seen {
    /// Counts the answer to a request with revoked grants. Fails for a status that does not exist.
    fn note(&mut self, status: i16) -> Result<(), Failed> {
        match status {
            0 => self.done += 1,
            -2..0 => self.refused += 1,
            other => return Err(format!("{other} is no status").into()),
        }
        Ok(())
    }
}

/// Sends requests whose pages are revoked right after they were published.
fn revoked(session: &mut Session, setup: Setup, seen: &mut Seen) -> Result<(), Failed> {
    session.connect(setup)?;
    let mut numbers = Numbers(1);
    let end = Instant::now() + RACE;
    while Instant::now() < end {
        let mut buffers = Vec::new();
        for _ in 0..8 {
            let shape = [Shape::Direct, Shape::Parts, Shape::Table][numbers.below(3)];
            let buffer = Buffer::new(session, shape)?;
            let (id, write) = (session.id(), numbers.below(2) == 0);
            let bytes = 4096 * (1 + numbers.below(24));
            let (raw, _) = buffer.request((setup.abi, id), write, 0, bytes);
            session.queues[0].ring.put(&raw);
            buffers.push(buffer);
        }
        session.push(0);
        // Some grants are revoked before the back-end reads the request, some while it copies or
        // writes.
        for _ in 0..numbers.below(2000) {
            std::hint::spin_loop();
        }
        drop(buffers);
        for answer in session.answers(0, 8)? {
            seen.note(answer.status)?;
        }
    }
    sound(session)?;
    session.close()
}

/// Overwrites random words of `memory` from the offset `from` on, until `stop` is set.
fn scribble(memory: &impl SharedWords, from: usize, names: &[u32], seed: u64, stop: &AtomicBool) {
    let mut numbers = Numbers(seed);
    let words = (memory.bytes() - from) / 4;
    while !stop.load(Ordering::Relaxed) {
        let word = memory.word(from + 4 * numbers.below(words));
        let value = match numbers.below(8) {
            0 => numbers.0 as u32,
            1 => word.load(Ordering::Relaxed) ^ 1 << numbers.below(32),
            2 => NEVER,
            3 => 0x0706 >> numbers.below(16),
            4 => 6 | (numbers.below(2) << 8 | 255 << 16) as u32,
            5 => 1 | (numbers.below(12) << 8) as u32,
            _ => names[numbers.below(names.len())],
        };
        word.store(value, Ordering::Relaxed);
    }
}

/// Sends requests while threads overwrite requests and tables. The threads use references of
/// granted pages, so that many of the changed requests are valid.
fn changed(session: &mut Session, setup: Setup, seen: &mut Seen) -> Result<(), Failed> {
    session.connect(setup)?;
    let (pages, table) = (session.pages(64)?, session.pages(1)?);
    let mut names: Vec<u32> = pages.refs().iter().map(|gref| gref.0).collect();
    for (index, name) in names.iter().cycle().take(512).enumerate() {
        table.fill(index * SEGMENT_BYTES, &table_entry((*name, 0, 7)));
    }
    names.push(table.gref(0));
    let ring = session.queues[0].ring.memory().clone();
    let batch = session.queues[0].ring.size() as usize;
    let (stop, mut numbers) = (AtomicBool::new(false), Numbers(7));
    let mut race = |session: &mut Session| -> Result<(), Failed> {
        let end = Instant::now() + RACE;
        while Instant::now() < end {
            for id in 0..batch as u64 {
                let (write, name) = (numbers.below(2) == 0, names[numbers.below(64)]);
                let sector = numbers.below(64) as u64;
                let raw = if numbers.below(3) == 0 {
                    let table = (table.gref(0), 1 + numbers.below(256) as u16);
                    indirect(setup.abi, write, id, sector, table)
                } else {
                    data(setup.abi, write, id, sector, &[(name, 0, 7)])
                };
                session.queues[0].ring.put(&raw);
            }
            session.push(0);
            // The contents of an answer may be a thread's as well as the back-end's.
            seen.answered += session.answers(0, batch)?.len();
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| scribble(&ring, ENTRIES, &names, 3, &stop));
        scope.spawn(|| scribble(&table, 0, &names, 5, &stop));
        let raced = race(session);
        stop.store(true, Ordering::Relaxed);
        raced
    })?;
    sound(session)?;
    session.close()
}

/// Fills a ring with random bytes, including its indices, and notifies the back-end without end.
fn nonsense(session: &mut Session, setup: Setup) -> Result<(), Failed> {
    let pages = session.pages(8)?;
    let names: Vec<u32> = pages.refs().iter().map(|gref| gref.0).collect();
    for seed in 0..4 {
        session.connect(setup)?;
        let stop = AtomicBool::new(false);
        let ring = session.queues[0].ring.memory().clone();
        std::thread::scope(|scope| {
            scope.spawn(|| scribble(&ring, 0, &names, seed, &stop));
            let end = Instant::now() + RACE / 4;
            while Instant::now() < end {
                session.notify(0);
            }
            stop.store(true, Ordering::Relaxed);
        });
        session.close()?;
    }
    session.connect(setup)?;
    sound(session)?;
    session.close()
}

/// Runs all races. Returns a summary, or the first error.
pub(crate) fn race(session: &mut Session) -> Result<String, Failed> {
    let mut seen = Seen::default();
    for (abi, persistent) in [(Abi::X86_64, false), (Abi::X86_32, true)] {
        let setup = Setup {
            abi,
            persistent,
            ..PLAIN
        };
        let during = |what: &str, error: Failed| format!("{what}, {setup:?}: {error}");
        revoked(session, setup, &mut seen).map_err(|e| during("grants taken back", e))?;
        changed(session, setup, &mut seen).map_err(|e| during("requests changed", e))?;
        nonsense(session, setup).map_err(|e| during("nonsense", e))?;
    }
    let Seen {
        done,
        refused,
        answered,
    } = seen;
    Ok(format!(
        "of requests whose grants were taken back {done} were done and {refused} refused; \
         {answered} changed ones were answered"
    ))
}
