//! Measures the time from a pressure event until the pools are freed, and whether the resident size
//! shrinks:
//!
//! ```text
//! cargo run --release -p ebb-blk --example pressure
//! ```
//!
//! Serves `--disks` disks on files in `--folder`, fills their pools by requests at odd addresses,
//! posts `--events` events, and watches every instance: first while all are idle, then while some
//! are under I/O. Prints a table in Markdown.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes and ranks that are small and positive"
)]

#[path = "../../tests/frontend/mod.rs"]
mod frontend;

use ebb_blk::image::{Location, Spec};
use ebb_blk::knobs::Knob;
use ebb_blk::pool::{DEFAULT_BUFFER_SQUEEZE_DURATION_MS, PAGE_BYTES, SHRINK_INTERVAL};
use ebb_blk::server::{Disk, Options, Server};
use frontend::{Client, DATA, Failed, IN, Request};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DISK: u64 = 16 << 20;
const REQUEST: u32 = 128 << 10;
const DEPTH: u64 = 32;
/// Number of disks that are under I/O in the second part.
const BUSY: usize = 4;
/// Time between events, longer than a squeeze, so that each event finds full pools.
const PAUSE: Duration = Duration::from_millis(60);
/// Time after which the measurement fails.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Failed> {
    let (mut disks, mut events, mut folder) = (50, 20, PathBuf::from("target"));
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} lacks its value"))?;
        match name.as_str() {
            "--disks" => disks = value.parse()?,
            "--events" => events = value.parse()?,
            "--folder" => folder = value.into(),
            _ => return Err(format!("{name}: there are --disks, --events, --folder").into()),
        }
    }
    let folder = folder.join(format!("ebb-pressure-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = measure(&folder, disks, events);
    std::fs::remove_dir_all(&folder)?;
    result
}

/// Makes both measurements and prints their tables.
fn measure(folder: &Path, disks: usize, events: usize) -> Result<(), Failed> {
    let server = Server::new(Options::default());
    // With a hold, a squeeze would outlast the pause.
    server.knobs().set(Knob::SqueezeHoldMs, 0)?;
    let mut clients = Vec::new();
    for index in 0..disks {
        let path = folder.join(index.to_string());
        std::fs::write(&path, vec![0x5a_u8; DISK as usize])?;
        let stream = server.attach(&Disk {
            name: format!("d{index}"),
            spec: Spec {
                location: Location::Path(path),
                read_only: false,
                cached: false,
            },
            settings: Vec::new(),
        })?;
        clients.push(Client::connect(stream, 1)?);
    }
    let interval = SHRINK_INTERVAL + Duration::from_millis(10);
    println!(
        "\n#### Pools returned after pressure\n\n{disks} disks, {events} events, a squeeze of {DEFAULT_BUFFER_SQUEEZE_DURATION_MS} ms. From \
         the event until what an instance kept is gone, for each instance and event. The bound is the \
         shrink interval and 10 ms: {} ms.\n",
        interval.as_millis()
    );
    println!(
        "| | times | median µs | 99 % µs | most µs | within the bound | anonymous MiB, before and after |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut times = Vec::new();
    let mut anonymous = (0, 0);
    for _ in 0..events {
        for client in &mut clients {
            read(client, DEPTH)?;
        }
        std::thread::sleep(PAUSE);
        let before = anonymous_bytes()?;
        let kept: u32 = server
            .instances()
            .values()
            .map(|i| i.figures().pool.free)
            .sum();
        times.extend(until_returned(&server, disks)?);
        let after = anonymous_bytes()?;
        let returned = before.saturating_sub(after);
        if returned < u64::from(kept) * PAGE_BYTES as u64 * 9 / 10 {
            return Err(format!("{kept} pages were kept, {returned} bytes returned").into());
        }
        anonymous = (anonymous.0 + before, anonymous.1 + after);
    }
    let mib = |bytes: u64| bytes as f64 / events as f64 / f64::from(1 << 20);
    let told = format!("{:.1}, {:.1}", mib(anonymous.0), mib(anonymous.1));
    print("all idle, pools full", times, interval, &told);
    let over = AtomicBool::new(false);
    let times = std::thread::scope(|scope| -> Result<Vec<Duration>, Failed> {
        let busy: Vec<_> = clients
            .iter_mut()
            .take(BUSY)
            .map(|client| {
                let over = &over;
                scope.spawn(move || {
                    // Relaxed: the thread is joined before anything depends on it.
                    while !over.load(Ordering::Relaxed) {
                        if let Err(error) = read(client, DEPTH) {
                            return Err(error.to_string());
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let mut times = Vec::new();
        for _ in 0..events * 4 {
            std::thread::sleep(PAUSE);
            times.extend(until_returned(&server, BUSY)?);
        }
        over.store(true, Ordering::Relaxed);
        for thread in busy {
            thread.join().map_err(|_| "a front-end panicked")??;
        }
        Ok(times)
    })?;
    print(
        &format!("{BUSY} under I/O at odd addresses"),
        times,
        interval,
        "",
    );
    Ok(())
}

/// Posts an event. Returns for each of the first `disks` disks the time until its thread has
/// squeezed the pool and freed pages that it kept. A disk under I/O may have taken others by then.
/// Fails if a disk takes longer than ten seconds.
fn until_returned(server: &Server, disks: usize) -> Result<Vec<Duration>, Failed> {
    let all: Vec<_> = (0..disks)
        .filter_map(|index| server.instances().remove(&format!("d{index}")))
        .collect();
    let before: Vec<_> = all.iter().map(|i| i.figures()).collect();
    let mut left: Vec<usize> = (0..all.len()).collect();
    let mut times = Vec::new();
    let start = Instant::now();
    server.registry().pressure(server.clock().now());
    while !left.is_empty() {
        let elapsed = start.elapsed();
        if elapsed > PATIENCE {
            return Err(format!("{} instances returned nothing", left.len()).into());
        }
        left.retain(|index| {
            let figures = all[*index].figures();
            let (now, then) = (figures.pool, before[*index].pool);
            let gone = now.free == 0 || now.released > then.released || then.free == 0;
            let done = figures.counters.squeezes > before[*index].counters.squeezes && gone;
            if done {
                times.push(elapsed);
            }
            !done
        });
        // The disks' threads need the processor more than this loop does.
        std::thread::sleep(Duration::from_micros(20));
    }
    Ok(times)
}

/// Prints one row: number, median, 99th percentile and maximum of `times` in µs, and how many are
/// within `bound`.
fn print(what: &str, mut times: Vec<Duration>, bound: Duration, memory: &str) {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let at = |part: f64| {
        let index = (times.len() as f64 * part) as usize;
        times.get(index.min(last)).map_or(0, Duration::as_micros)
    };
    let within = times.iter().filter(|time| **time <= bound).count();
    println!(
        "| {what} | {} | {} | {} | {} | {within} of {} | {memory} |",
        times.len(),
        at(0.5),
        at(0.99),
        at(1.0),
        times.len()
    );
}

/// Reads at odd addresses, which direct I/O cannot use, so that the pool grows.
fn read(client: &mut Client, depth: u64) -> Result<(), Failed> {
    let before = client.available(0);
    for slot in 0..depth {
        client.submit(
            0,
            Request {
                kind: IN,
                sector: slot * u64::from(REQUEST) / 512,
                data: DATA + slot * (u64::from(REQUEST) + 4096) + 1,
                bytes: REQUEST,
            },
        )?;
    }
    client.kick(0, before)?;
    let mut left = depth;
    while left > 0 {
        match client.answer(0)? {
            Some((_, 0, _)) => left -= 1,
            Some((_, status, _)) => return Err(format!("status {status}").into()),
            None => client.wait(0, 30)?,
        }
    }
    Ok(())
}

/// Returns the anonymous memory of this process in bytes. The guests' memory is in files and not
/// included.
fn anonymous_bytes() -> Result<u64, Failed> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Anonymous:"));
    let kib: u64 = line
        .ok_or("no Anonymous")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kib * 1024)
}
