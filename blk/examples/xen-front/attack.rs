//! Makes every mistake that a front-end can make, one after the other. A bad request must be
//! answered with the status that `blk/README.md` promises, and the next valid one must be served. A
//! ring with an invalid index must be shut while the other goes on. Invalid values must be refused,
//! and valid ones accepted afterwards.

use crate::Failed;
use crate::gntalloc::{Access, Pages};
use crate::session::{BACKEND, PLAIN, Session, Setup};
use crate::verify::sound;
use ebb_blk::xen::front::{data, discard, flush, indirect, table_entry};
use ebb_blk::xen::protocol::{Abi, SEGMENT_BYTES};
use ebb_blk::xen::state::State;

/// A grant reference that no domain has, because no grant table is so large.
pub(crate) const NEVER: u32 = 0x7fff_fff0;
const OK: i16 = 0;
const ERROR: i16 = -1;
const UNSUPPORTED: i16 = -2;

/// A request and the status with which it must be answered.
struct Case {
    name: &'static str,
    raw: Vec<u8>,
    operation: u8,
    status: i16,
}

struct Granted {
    /// Pages that the back-end may read and write.
    pages: Pages,
    /// Pages that the back-end may only read.
    read_only: Pages,
    /// Tables that the back-end may only read: 256 valid segments; the same with an invalid grant
    /// in the middle; the same with a segment that runs backwards.
    tables: Pages,
}

const TABLE: u16 = 256;
const GOOD: usize = 0;
const HOLE: usize = 1;
const BACKWARDS: usize = 2;

impl Granted {
    fn new(session: &Session) -> Result<Self, Failed> {
        let granted = Self {
            pages: session.pages(TABLE.into())?,
            read_only: session.gntalloc.grant(BACKEND, 2, Access::Read)?,
            tables: session.gntalloc.grant(BACKEND, 3, Access::Read)?,
        };
        for table in [GOOD, HOLE, BACKWARDS] {
            for index in 0..usize::from(TABLE) {
                let segment = match (table, index) {
                    (HOLE, 100) => (NEVER, 0, 7),
                    (BACKWARDS, 200) => (granted.pages.gref(index), 5, 4),
                    _ => (granted.pages.gref(index), 0, 7),
                };
                let at = table * 4096 + index * SEGMENT_BYTES;
                granted.tables.fill(at, &table_entry(segment));
            }
        }
        Ok(granted)
    }
}

/// Returns `raw` with some bytes replaced.
fn with(mut raw: Vec<u8>, bytes: &[(usize, u8)]) -> Vec<u8> {
    for (at, byte) in bytes {
        raw[*at] = *byte;
    }
    raw
}

/// Returns all bad requests and their statuses.
#[allow(clippy::too_many_lines, reason = "a list")]
fn cases(abi: Abi, granted: &Granted, sectors: u64) -> Vec<Case> {
    let page = |index: usize| (granted.pages.gref(index), 0, 7);
    let never = (NEVER, 0, 7);
    let table = |which: usize| (granted.tables.gref(which), TABLE);
    let plain = |write, sector| data(abi, write, 0, sector, &[page(0)]);
    let read_only = |write| data(abi, write, 0, 0, &[(granted.read_only.gref(0), 0, 7)]);
    let mut cases = Vec::new();
    let mut case = |name, raw: Vec<u8>, status| {
        let operation = if raw[0] == 6 { raw[1] } else { raw[0] };
        cases.push(Case {
            name,
            raw,
            operation,
            status,
        });
    };
    for write in [false, true] {
        case("never granted", data(abi, write, 0, 0, &[never]), ERROR);
        let among = [page(0), never, page(1)];
        case(
            "never granted among others",
            data(abi, write, 0, 0, &among),
            ERROR,
        );
        let lost = indirect(abi, write, 0, 0, (NEVER, 3));
        case("a table never granted", lost, ERROR);
        case(
            "a table with a hole",
            indirect(abi, write, 0, 0, table(HOLE)),
            ERROR,
        );
        case(
            "a table backwards",
            indirect(abi, write, 0, 0, table(BACKWARDS)),
            ERROR,
        );
        case("a table", indirect(abi, write, 0, 0, table(GOOD)), OK);
        let (good, _) = table(GOOD);
        for count in [0, 257, u16::MAX] {
            let raw = indirect(abi, write, 0, 0, (good, count));
            case("too many or no segments in a table", raw, ERROR);
        }
        for count in [0, 12, 255] {
            case(
                "too many or no segments",
                with(plain(write, 0), &[(1, count)]),
                ERROR,
            );
        }
        for (first, last) in [(7, 0), (1, 0), (0, 8), (8, 8), (255, 255), (255, 0)] {
            let raw = data(abi, write, 0, 0, &[(granted.pages.gref(0), first, last)]);
            case("sectors out of their page", raw, ERROR);
        }
        for sector in [
            sectors,
            sectors - 7,
            u64::MAX,
            u64::MAX - 7,
            1 << 55,
            1 << 63,
        ] {
            case("beyond the end", plain(write, sector), ERROR);
            let raw = indirect(abi, write, 0, sector, table(GOOD));
            case("a table beyond the end", raw, ERROR);
        }
        case("the last sectors", plain(write, sectors - 8), OK);
    }
    case("read into what may only be read", read_only(false), ERROR);
    case("write from what may only be read", read_only(true), OK);
    case(
        "one page twice",
        data(abi, false, 0, 0, &[page(0), page(0)]),
        OK,
    );
    for (first, count) in [
        (0, 0),
        (sectors, 1),
        (1, sectors),
        (u64::MAX, 2),
        (0, u64::MAX),
    ] {
        case(
            "discard what is not there",
            discard(abi, 0, first, count),
            ERROR,
        );
    }
    case(
        "secure discard",
        with(discard(abi, 0, 0, 8), &[(1, 1)]),
        UNSUPPORTED,
    );
    case("flush with data", with(flush(abi, 0), &[(1, 1)]), ERROR);
    for operation in [2, 4, 7, 8, 127, 255] {
        case(
            "unknown operation",
            with(plain(true, 0), &[(0, operation)]),
            UNSUPPORTED,
        );
    }
    for operation in [2, 3, 5, 6, 255] {
        let raw = with(indirect(abi, true, 0, 0, table(GOOD)), &[(1, operation)]);
        case("unknown operation of a table", raw, UNSUPPORTED);
    }
    cases
}

/// Sends all bad requests one at a time, then together. Returns their number.
fn requests(session: &mut Session, setup: Setup) -> Result<usize, Failed> {
    session.connect(setup)?;
    let (granted, sectors) = (Granted::new(session)?, session.sectors()?);
    let mut cases = cases(setup.abi, &granted, sectors);
    let id_at = if setup.abi == Abi::X86_64 { 8 } else { 4 };
    let expected = |case: &Case, id: u64| (id, case.operation, case.status);
    for case in &mut cases {
        let id = session.id();
        case.raw[id_at..id_at + 8].copy_from_slice(&id.to_le_bytes());
        let a = session.ask(0, std::slice::from_ref(&case.raw))?[0];
        let got = (a.id, a.operation, a.status);
        if got != expected(case, id) {
            let wanted = expected(case, id);
            return Err(format!("{} ({setup:?}): {got:?} instead of {wanted:?}", case.name).into());
        }
        // The next request, a valid one, must succeed.
        let id = session.id();
        let page = (granted.pages.gref(0), 0, 7);
        let honest = session.ask(0, &[data(setup.abi, false, id, 0, &[page])])?[0];
        if (honest.id, honest.status) != (id, 0) {
            return Err(format!("behind `{}`: {honest:?}", case.name).into());
        }
    }
    for some in cases.chunks(session.queues[0].ring.size() as usize) {
        let raw: Vec<_> = some.iter().map(|case| case.raw.clone()).collect();
        let statuses: Vec<_> = session.ask(0, &raw)?.iter().map(|a| a.status).collect();
        let wanted: Vec<_> = some.iter().map(|case| case.status).collect();
        if statuses != wanted {
            return Err(format!("together: {statuses:?} instead of {wanted:?}").into());
        }
    }
    sound(session)?;
    session.close()?;
    Ok(cases.len())
}

/// Sets indices that run backwards or too far. Returns the number of attempts.
fn indices(session: &mut Session) -> Result<usize, Failed> {
    let setup = Setup { queues: 2, ..PLAIN };
    let mut tried = 0;
    for far in [0_u32, 33, 1 << 31] {
        session.connect(setup)?;
        sound(session)?;
        // The current index of the front-end, and an invalid one.
        let index =
            |session: &Session, ring: usize| session.queues[ring].ring.word(0).load(RELAXED);
        for ring in [0, 1] {
            let now = index(session, ring);
            // `far` 0 means one step back.
            let bad = if far == 0 {
                now.wrapping_sub(1)
            } else {
                now.wrapping_add(far)
            };
            session.queues[ring].ring.word(0).store(bad, RELAXED);
            session.notify(ring);
            tried += 1;
            if ring == 0 {
                // The other ring goes on, whichever is checked first.
                let (pages, abi) = (session.pages(1)?, session.abi);
                for _ in 0..20 {
                    let id = session.id();
                    let raw = data(abi, true, id, 0, &[(pages.gref(0), 0, 7)]);
                    let answer = session.ask(1, &[raw])?[0];
                    if (answer.id, answer.status) != (id, 0) {
                        return Err(format!("beside a ring that is shut: {answer:?}").into());
                    }
                }
                let told = session.told("error")?;
                let shut = format!("ring 0 is shut: {} requests", bad.wrapping_sub(now));
                if !told.contains(&shut) {
                    return Err(format!("index {now} became {bad}; told was {told:?}").into());
                }
            }
        }
        // With all rings shut, the back-end closes the device.
        session.await_back(&[State::Closing])?;
        session.close()?;
    }
    session.connect(setup)?;
    sound(session)?;
    session.close()?;
    Ok(tried)
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// Writes invalid values to xenstore. Returns the number of attempts.
fn values(session: &mut Session) -> Result<usize, Failed> {
    let read_only = session.gntalloc.grant(BACKEND, 1, Access::Read)?;
    let bad = [
        ("ring-ref", NEVER.to_string()),
        ("ring-ref", read_only.gref(0).to_string()),
        ("ring-ref", "-1".into()),
        ("ring-ref", "9".repeat(400)),
        ("event-channel", "0".into()),
        ("event-channel", "4000".into()),
        ("event-channel", "4294967295".into()),
        ("protocol", "sparc-abi".into()),
        ("multi-queue-num-queues", "9".into()),
        ("multi-queue-num-queues", "0".into()),
        ("ring-page-order", "5".into()),
        ("feature-persistent", "yes".into()),
    ];
    for (name, value) in &bad {
        session.begin()?;
        session.prepare(PLAIN)?;
        session.tell(name, value)?;
        session.become_state(State::Initialised)?;
        session.await_back(&[State::Closing])?;
        let told = session.told("error")?;
        if told.is_empty() {
            return Err(format!("{name}={value} was refused without a word").into());
        }
        session.close()?;
    }
    // States in random order, faster than the back-end can follow.
    for turn in 0..50_usize {
        let all = [
            State::Connected,
            State::Initialising,
            State::Closing,
            State::Initialised,
            State::Unknown,
            State::InitWait,
            State::Closed,
        ];
        session.become_state(all[turn * turn % all.len()])?;
    }
    // Closed in the proper order, because an earlier state may still be answered until then.
    session.close()?;
    session.connect(PLAIN)?;
    sound(session)?;
    session.close()?;
    Ok(bad.len())
}

/// Runs all attacks. Returns a summary, or the first answer that was wrong.
pub(crate) fn attack(session: &mut Session) -> Result<String, Failed> {
    let mut answered = 0;
    for (abi, persistent) in [(Abi::X86_64, false), (Abi::X86_32, true)] {
        let setup = Setup {
            abi,
            persistent,
            ..PLAIN
        };
        answered += 2 * requests(session, setup)?;
    }
    let shut = indices(session)?;
    let refused = values(session)?;
    Ok(format!(
        "{answered} bad requests answered, {shut} rings shut, {refused} values refused"
    ))
}
