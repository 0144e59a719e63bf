//! Measures whether it pays to ask only the disks whose pools hold most at memory pressure, instead
//! of all disks:
//!
//! ```text
//! cargo run --release -p ebb-blk --example selective
//! ```
//!
//! Serves one disk that is idle with a full pool, and some that are under I/O at odd addresses,
//! which goes through small pools. In turn, for a fraction of a second each, no disk is asked, all
//! disks are asked, and the idle disk alone is asked, ten times a second as under lasting pressure.
//! Prints a table in Markdown: the requests a second and the latencies of the busy disks, and the
//! memory that an event gives back.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts and ranks that are small and positive"
)]

#[path = "../../tests/frontend/mod.rs"]
mod frontend;
#[path = "../drive/paired.rs"]
#[allow(dead_code, reason = "it is shared with another example")]
mod paired;

use ebb_blk::image::{Location, Spec};
use ebb_blk::pool::PAGE_BYTES;
use ebb_blk::server::{Disk, Options, Server};
use frontend::{Client, DATA, Failed, IN, Request};
use paired::{Verdict, ratio};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const IMAGE: u64 = 16 << 20;
/// Size of the requests that fill the pool of the idle disk, and their number.
const FILL: (u32, u64) = (128 << 10, 32);
/// Time between events: the kernel reports lasting pressure as often.
const GAP: Duration = Duration::from_millis(100);
/// The name of the idle disk.
const IDLE: &str = "idle";

/// The disks that a pressure event asks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Asked {
    NoDisk,
    All,
    /// The disk with the fullest pool.
    Fullest,
}

impl Asked {
    const EACH: [Self; 3] = [Self::NoDisk, Self::All, Self::Fullest];

    fn name(self) -> &'static str {
        match self {
            Self::NoDisk => "no disk",
            Self::All => "all disks",
            Self::Fullest => "the fullest alone",
        }
    }
}

/// The load of the busy disks: the size of requests in bytes, and their number at a time.
#[derive(Copy, Clone, Debug)]
struct Load {
    bytes: u32,
    depth: u64,
}

/// What was measured in one turn.
#[derive(Copy, Clone, Debug)]
struct Turn {
    /// Requests a second of all busy disks.
    iops: f64,
    p99_us: f64,
    /// Pages that all pools gave back, for each event.
    pages: f64,
    /// Pages that the busy disks took from the system, for each thousand requests.
    fetched: f64,
}

fn main() -> Result<(), Failed> {
    let (mut rounds, mut millis, mut busy) = (12, 600, 2);
    let mut folder = PathBuf::from("target");
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} lacks its value"))?;
        match name.as_str() {
            "--rounds" => rounds = value.parse()?,
            "--millis" => millis = value.parse()?,
            "--busy" => busy = value.parse()?,
            "--folder" => folder = value.into(),
            _ => {
                let known = "--rounds, --millis, --busy, --folder";
                return Err(format!("{name}: there are {known}").into());
            }
        }
    }
    let folder = folder.join(format!("ebb-selective-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = measure(&folder, rounds, Duration::from_millis(millis), busy);
    std::fs::remove_dir_all(&folder)?;
    result
}

/// Measures each load with each way to ask, and prints the table.
fn measure(folder: &Path, rounds: usize, turn: Duration, busy: usize) -> Result<(), Failed> {
    println!(
        "\n#### Who is asked for memory\n\nOne disk is idle with a full pool, {busy} are under random reads at odd addresses. Events come \
         every {} ms. {rounds} turns of {} ms each; medians of the busy disks' requests and latencies, beside those with no event \
         (the middle of the ratios, turn by turn, and where the true middle lies with 95 % confidence), the memory that all pools \
         give back for each event, and the pages that the busy disks take for a thousand requests.\n",
        GAP.as_millis(),
        turn.as_millis()
    );
    println!(
        "| requests | depth | asked | IOPS | of those with no event | 95 % | 99 % µs | KiB an event | pages for 1,000 requests |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for load in [
        Load {
            bytes: 4096,
            depth: 8,
        },
        Load {
            bytes: 4096,
            depth: 64,
        },
        Load {
            bytes: 128 << 10,
            depth: 8,
        },
    ] {
        let mut turns: [Vec<Turn>; 3] = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for step in 0..3 {
                // Which comes first changes from round to round.
                let index = (step + round) % 3;
                // A squeeze lasts for seconds, so each turn has disks of its own.
                let mut disks = Disks::open(folder, busy)?;
                let measured = disks.turn(Asked::EACH[index], load, turn)?;
                disks.server.stop();
                // The first round warms up.
                if round > 0 {
                    turns[index].push(measured);
                }
            }
        }
        let of = |index: usize, figure: fn(&Turn) -> f64| -> Vec<f64> {
            turns[index].iter().map(figure).collect()
        };
        for (index, asked) in Asked::EACH.into_iter().enumerate() {
            let verdict = if asked == Asked::NoDisk {
                "| ".to_owned()
            } else {
                match ratio(&of(index, |turn| turn.iops), &of(0, |turn| turn.iops)) {
                    Some(it) => {
                        let word = match it.verdict() {
                            Verdict::More => "more",
                            Verdict::Less => "**less**",
                            Verdict::Unproven => "not proven",
                        };
                        format!(
                            "{:.3} ({:.3} to {:.3}) | {word}",
                            it.median, it.low, it.high
                        )
                    }
                    None => "– | –".to_owned(),
                }
            };
            println!(
                "| random read {} KiB | {} | {} | {:.0} | {verdict} | {:.0} | {:.0} | {:.1} |",
                load.bytes >> 10,
                load.depth,
                asked.name(),
                median(of(index, |turn| turn.iops)),
                median(of(index, |turn| turn.p99_us)),
                median(of(index, |turn| turn.pages)) * PAGE_BYTES as f64 / 1024.0,
                median(of(index, |turn| turn.fetched))
            );
        }
    }
    Ok(())
}

/// The disks of a measurement, with a front-end for each.
struct Disks {
    server: Server,
    idle: Client,
    busy: Vec<Client>,
}

impl Disks {
    /// Serves the idle disk and `busy` others, and connects to them.
    fn open(folder: &Path, busy: usize) -> Result<Self, Failed> {
        let server = Server::new(Options::default());
        let attach = |name: String| -> Result<Client, Failed> {
            let path = folder.join(&name);
            if !path.exists() {
                std::fs::write(&path, vec![0x5a_u8; IMAGE as usize])?;
            }
            let stream = server.attach(&Disk {
                name,
                spec: Spec {
                    location: Location::Path(path),
                    read_only: false,
                    cached: false,
                },
                settings: Vec::new(),
            })?;
            Client::connect(stream, 1)
        };
        let idle = attach(IDLE.to_owned())?;
        let clients: Result<Vec<Client>, Failed> =
            (0..busy).map(|index| attach(format!("b{index}"))).collect();
        Ok(Self {
            idle,
            busy: clients?,
            server,
        })
    }

    /// Fills the pool of the idle disk, lets the others work for `time`, and asks `asked` during
    /// that time.
    fn turn(&mut self, asked: Asked, load: Load, time: Duration) -> Result<Turn, Failed> {
        let (bytes, depth) = FILL;
        transfer(
            &mut self.idle,
            Load { bytes, depth },
            &mut 1,
            &mut Vec::new(),
        )?;
        let (server, clients) = (&self.server, &mut self.busy);
        let over = AtomicBool::new(false);
        let begin = Instant::now();
        let returned = || -> u64 {
            let instances = server.instances();
            instances
                .values()
                .map(|it| it.figures().pool.released)
                .sum()
        };
        // The pages that busy disks take again are a cost that other work does not change.
        let fetched = || -> u64 {
            let instances = server.instances();
            let busy = instances.iter().filter(|(name, _)| *name != IDLE);
            busy.map(|(_, it)| it.figures().pool.fetched()).sum()
        };
        let (before, fetched_before) = (returned(), fetched());
        let (events, mut latencies) = std::thread::scope(|scope| -> Result<_, Failed> {
            let threads: Vec<_> = clients
                .iter_mut()
                .enumerate()
                .map(|(seed, client)| {
                    let over = &over;
                    scope.spawn(move || -> Result<Vec<f64>, String> {
                        let (mut state, mut times) = (seed as u64 + 1, Vec::new());
                        // Relaxed: the thread is joined before anything depends on it.
                        while !over.load(Ordering::Relaxed) {
                            transfer(client, load, &mut state, &mut times)
                                .map_err(|error| error.to_string())?;
                        }
                        Ok(times)
                    })
                })
                .collect();
            let mut events = 0_u32;
            while begin.elapsed() < time {
                let now = server.clock().now();
                match asked {
                    Asked::NoDisk => {}
                    Asked::All => {
                        server.registry().pressure(now);
                    }
                    Asked::Fullest => {
                        server.registry().squeeze(IDLE, now);
                    }
                }
                events += 1;
                std::thread::sleep(GAP.min(time.saturating_sub(begin.elapsed())));
            }
            over.store(true, Ordering::Relaxed);
            let mut all = Vec::new();
            for thread in threads {
                all.extend(thread.join().map_err(|_| "a front-end panicked")??);
            }
            Ok((events, all))
        })?;
        let seconds = begin.elapsed().as_secs_f64();
        latencies.sort_by(f64::total_cmp);
        let last = latencies.len().saturating_sub(1);
        let p99 = latencies.get((latencies.len() as f64 * 0.99) as usize);
        Ok(Turn {
            iops: latencies.len() as f64 / seconds,
            p99_us: *p99
                .or(latencies.get(last))
                .ok_or("no request was answered")?,
            pages: (returned() - before) as f64 / f64::from(events.max(1)),
            fetched: (fetched() - fetched_before) as f64 * 1e3 / latencies.len() as f64,
        })
    }
}

/// Does as many reads as `load` has at a time, at places from `state`, and adds their latencies in
/// µs to `times`. Fails if a request does.
fn transfer(
    client: &mut Client,
    load: Load,
    state: &mut u64,
    times: &mut Vec<f64>,
) -> Result<(), Failed> {
    let before = client.available(0);
    let span = (u64::from(load.bytes) + 1).next_multiple_of(4096);
    let begin = Instant::now();
    for slot in 0..load.depth {
        // xorshift64.
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let block = *state % (IMAGE / u64::from(load.bytes));
        client.submit(
            0,
            Request {
                kind: IN,
                sector: block * u64::from(load.bytes) / 512,
                data: DATA + slot * span + 1,
                bytes: load.bytes,
            },
        )?;
    }
    client.kick(0, before)?;
    let mut left = load.depth;
    while left > 0 {
        match client.answer(0)? {
            Some((_, 0, _)) => {
                left -= 1;
                times.push(begin.elapsed().as_secs_f64() * 1e6);
            }
            Some((_, status, _)) => return Err(format!("status {status}").into()),
            None => client.wait(0, 30)?,
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
