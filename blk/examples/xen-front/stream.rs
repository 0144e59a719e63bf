//! Endless requests: to be killed in the middle, or to be timed.

use crate::Failed;
use crate::session::{PLAIN, Session, Setup};
use crate::verify::{Buffer, Shape};
use std::time::{Duration, Instant};

/// Sends large writes through four full rings until this process is killed.
pub(crate) fn hold(session: &mut Session) -> Result<String, Failed> {
    let setup = Setup {
        queues: 4,
        persistent: true,
        ..PLAIN
    };
    session.connect(setup)?;
    let buffer = Buffer::new(session, Shape::Table)?;
    let copied = Buffer::new(session, Shape::Parts)?;
    let put = |session: &mut Session, ring: usize| {
        let (id, abi) = (session.id(), session.abi);
        let which = if id & 1 == 0 { &buffer } else { &copied };
        let (raw, _) = which.request((abi, id), true, 0, 1 << 20);
        session.queues[ring].ring.put(&raw);
    };
    for ring in 0..4 {
        for _ in 0..session.queues[ring].ring.size() {
            put(session, ring);
        }
        session.push(ring);
    }
    loop {
        for ring in 0..4 {
            session.answers(ring, 1)?;
            put(session, ring);
            session.push(ring);
        }
    }
}

/// Measures the time per request in µs by kind, one at a time and eight at a time. Fails if a
/// request does.
pub(crate) fn time(session: &mut Session, seconds: u64) -> Result<String, Failed> {
    let mut said = String::new();
    for persistent in [false, true] {
        let setup = Setup {
            persistent,
            ..PLAIN
        };
        session.connect(setup)?;
        for (name, shape, bytes) in [
            ("4k", Shape::Direct, 4 << 10),
            ("44k", Shape::Direct, 44 << 10),
            ("1m", Shape::Table, 1 << 20),
        ] {
            for (write, depth) in [(false, 1), (true, 1), (false, 8), (true, 8)] {
                let buffers: Result<Vec<_>, _> =
                    (0..depth).map(|_| Buffer::new(session, shape)).collect();
                let (buffers, begun, mut done) = (buffers?, Instant::now(), 0_u32);
                while begun.elapsed() < Duration::from_secs(seconds) {
                    let mut asked = Vec::new();
                    for buffer in &buffers {
                        let of = (session.abi, session.id());
                        let sector = u64::from(done % 8) * 2048;
                        asked.push(buffer.request(of, write, sector, bytes).0);
                        done += 1;
                    }
                    if session.ask(0, &asked)?.iter().any(|a| a.status != 0) {
                        return Err(format!("a request of {name} failed").into());
                    }
                }
                let each = begun.elapsed().as_secs_f64() * 1e6 / f64::from(done);
                let kind = if persistent { "persistent" } else { "plain" };
                let way = if write { "write" } else { "read" };
                said += &format!("time {kind} {way} {name} depth={depth} us={each:.0}\n");
            }
        }
        session.close()?;
    }
    Ok(said)
}
