//! The requests of one row of the tables, and the code that sends them.

use crate::frontend::{self, DATA, Failed, IN, OUT, Request};
use crate::served::Served;
use std::fmt;
use std::time::{Duration, Instant};

/// Size of the image in bytes.
pub(crate) const IMAGE: u64 = 256 << 20;
/// Time before the measurement in which requests are not counted.
const WARM_UP: Duration = Duration::from_millis(40);

/// One row of the tables: a kind of request and a queue depth.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Load {
    write: bool,
    /// Random or sequential addresses.
    random: bool,
    bytes: u32,
    depth: u64,
    /// Whether the data is at odd addresses, which direct I/O cannot use.
    pub(crate) odd: bool,
}

impl Load {
    /// Returns all rows.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for odd in [false, true] {
            for (random, bytes) in [(true, 4096), (false, 128 << 10)] {
                for write in [false, true] {
                    for depth in [1, 64] {
                        all.push(Self {
                            write,
                            random,
                            bytes,
                            depth,
                            odd,
                        });
                    }
                }
            }
        }
        all
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.random { "random" } else { "sequential" };
        let what = if self.write { "write" } else { "read" };
        let odd = if self.odd { ", odd addresses" } else { "" };
        write!(
            f,
            "{order} {what} {} KiB{odd} | {}",
            self.bytes >> 10,
            self.depth
        )
    }
}

/// The figures of one run: requests per second, latencies in µs, memory in KiB.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) iops: f64,
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
    /// Maximum of some samples of the back-end's anonymous memory, in KiB.
    pub(crate) busy_kib: u64,
}

/// The addresses of requests, from a fixed pseudo-random sequence, so that all back-ends get the
/// same.
struct Places {
    state: u64,
    next: u64,
}

impl Places {
    /// Returns the first sector of the next request.
    fn sector(&mut self, load: &Load) -> u64 {
        let blocks = IMAGE / u64::from(load.bytes);
        let block = if load.random {
            // xorshift64.
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.state % blocks
        } else {
            self.next = (self.next + 1) % blocks;
            self.next
        };
        block * u64::from(load.bytes) / 512
    }
}

/// Sends the requests of `load` to a back-end and returns its figures. Fails if a request does.
pub(crate) fn drive(
    served: &Served,
    load: &Load,
    run: Duration,
    seed: u64,
) -> Result<Figures, Failed> {
    let mut client = served.connect()?;
    let mut places = Places {
        state: seed,
        next: 0,
    };
    let mut began: Vec<Instant> = vec![Instant::now(); frontend::SLOTS.into()];
    let mut latencies: Vec<f64> = Vec::with_capacity(1 << 20);
    let skew = u64::from(load.odd);
    let span = (u64::from(load.bytes) + skew).next_multiple_of(4096);
    let start = Instant::now();
    let mut counted_from = None;
    let mut seconds = 0.0;
    let mut busy_kib = 0;
    let mut flying = 0;
    let mut places_used = 0;
    loop {
        let elapsed = start.elapsed();
        if counted_from.is_none() && elapsed >= WARM_UP {
            busy_kib = served.memory()?.anonymous;
            counted_from = Some(Instant::now());
            latencies.clear();
        }
        let counted = counted_from.map(|from: Instant| from.elapsed());
        let over = counted.is_some_and(|counted| counted >= run);
        if over && seconds == 0.0 {
            seconds = counted.unwrap_or_default().as_secs_f64();
            busy_kib = busy_kib.max(served.memory()?.anonymous);
        }
        if over && flying == 0 {
            break;
        }
        let before = client.available(0);
        while !over && flying < load.depth {
            let request = Request {
                kind: if load.write { OUT } else { IN },
                sector: places.sector(load),
                data: DATA + places_used % load.depth * span + skew,
                bytes: load.bytes,
            };
            places_used += 1;
            let slot = client.submit(0, request)?;
            began[usize::from(slot)] = Instant::now();
            flying += 1;
        }
        if client.available(0) != before {
            client.kick(0, before)?;
        }
        let mut answered = false;
        while let Some((slot, status, _)) = client.answer(0)? {
            if status != 0 {
                return Err(format!("status {status}").into());
            }
            if !over {
                latencies.push(began[usize::from(slot)].elapsed().as_secs_f64() * 1e6);
            }
            flying -= 1;
            answered = true;
        }
        if !answered {
            client.wait(0, 30)?;
        }
    }
    let iops = latencies.len() as f64 / seconds;
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let index = (latencies.len() as f64 * part) as usize;
        let last = latencies.len().saturating_sub(1);
        latencies.get(index.min(last)).copied().unwrap_or(f64::NAN)
    };
    Ok(Figures {
        iops,
        median_us: at(0.5),
        p99_us: at(0.99),
        busy_kib,
    })
}
