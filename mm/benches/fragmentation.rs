//! Measures how much of the free memory is still in whole pageblocks of 2 MiB after many
//! allocations and frees, for Ebb and for the page-frame allocators of crates.io under the same
//! events.
//!
//!     cargo run -p ebb-mm-benches --release --example fragmentation
//!         [-- --seed N] [--gib N] [--rounds N]
//!
//! *Mixed*: blocks of orders 0 to 6, with the same amount of memory in each order, up to 50, 70 and
//! 85 % of the memory. Then in each round a tenth of them is freed at random, one by one, and
//! replaced. *Order 0*: all memory is allocated, a random half is freed, and then single frames are
//! exchanged in the same way.
//!
//! The program prints the free pageblocks in percent of those that the free memory would fill. It
//! counts them by its own list of blocks in use, not by the allocators' figures.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "figures of an experiment"
)]

#[path = "peers/contest/mod.rs"]
mod contest;

use std::{env, process::ExitCode};

use contest::{Bitmap, BuddySlab, BuddySystem, Depot, Ebb, Frames, GIB, Ranges};

const BLOCK: u64 = 512;
const LARGEST: u8 = 6;
const FILLS: [u64; 3] = [50, 70, 85];

/// The parameters of a run.
#[derive(Copy, Clone)]
struct Plan {
    seed: u64,
    frames: u64,
    rounds: u64,
}

/// A random number generator with repeatable results: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns a random order, half as often as the order below it, so that each order has the same
    /// amount of memory.
    fn order(&mut self) -> u8 {
        loop {
            let order = self.next().trailing_zeros() as u8;
            if order <= LARGEST {
                return order;
            }
        }
    }
}

/// The blocks in use, by the program's own list.
struct Books {
    live: Vec<(u64, u8)>,
    frames: u64,
}

impl Books {
    /// Frees one block at random.
    fn free<F: Frames>(&mut self, random: &mut Random, frames: &F, cpu: &mut F::Cpu) {
        let at = random.below(self.live.len() as u64) as usize;
        let (frame, order) = self.live.swap_remove(at);
        frames.put(cpu, frame, order);
        self.frames -= 1 << order;
    }

    /// Allocates one block. Returns `false` if there is none.
    fn allocate<F: Frames>(&mut self, order: u8, frames: &F, cpu: &mut F::Cpu) -> bool {
        let Some(frame) = frames.get(cpu, order) else {
            return false;
        };
        self.live.push((frame, order));
        self.frames += 1 << order;
        true
    }

    /// Returns the free pageblocks in percent of those that the free frames would fill.
    fn whole(&self, total: u64, first: u64) -> f64 {
        let mut used = vec![false; (total / BLOCK) as usize];
        used[..first.div_ceil(BLOCK) as usize].fill(true);
        for &(frame, _) in &self.live {
            used[(frame / BLOCK) as usize] = true;
        }
        let free = used.iter().filter(|used| !**used).count();
        free as f64 / ((total - first - self.frames) / BLOCK) as f64 * 100.0
    }
}

fn mixed<F: Frames>(plan: Plan, fill: u64) -> f64 {
    let frames = F::new(plan.frames);
    let mut cpu = frames.cpu(0);
    let mut random = Random(plan.seed);
    let mut books = Books {
        live: Vec::new(),
        frames: 0,
    };
    let most = (plan.frames - frames.first()) * fill / 100;
    while books.frames < most && books.allocate(random.order(), &frames, &mut cpu) {}
    for _ in 0..plan.rounds {
        for _ in 0..books.live.len() / 10 {
            books.free(&mut random, &frames, &mut cpu);
            while books.frames < most && books.allocate(random.order(), &frames, &mut cpu) {}
        }
    }
    frames.settle(&mut cpu);
    books.whole(plan.frames, frames.first())
}

fn single<F: Frames>(plan: Plan) -> f64 {
    let frames = F::new(plan.frames);
    let mut cpu = frames.cpu(0);
    let mut random = Random(plan.seed);
    let mut books = Books {
        live: Vec::new(),
        frames: 0,
    };
    while books.allocate(0, &frames, &mut cpu) {}
    for _ in 0..books.live.len() / 2 {
        books.free(&mut random, &frames, &mut cpu);
    }
    for _ in 0..plan.rounds {
        for _ in 0..books.live.len() / 10 {
            books.free(&mut random, &frames, &mut cpu);
            books.allocate(0, &frames, &mut cpu);
        }
    }
    frames.settle(&mut cpu);
    books.whole(plan.frames, frames.first())
}

fn line<F: Frames>(plan: Plan) {
    let [half, more, most] = FILLS.map(|fill| mixed::<F>(plan, fill));
    print!("| {} | {half:.0} | {more:.0} | {most:.0} |", F::NAME);
    if F::MOST_FRAGMENTED == 0 {
        // Each event would move all entries behind it.
        println!(" - |");
    } else {
        println!(" {:.1} |", single::<F>(plan));
    }
}

/// Returns the value of an option, at least `least`.
fn option(name: &str, default: u64, least: u64) -> Result<u64, String> {
    let arguments: Vec<String> = env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == name) else {
        return Ok(default);
    };
    let value = arguments.get(at + 1).map_or("", String::as_str);
    match value.parse() {
        Ok(value) if value >= least => Ok(value),
        _ => Err(format!("{name} takes a number from {least}, not {value:?}")),
    }
}

fn plan() -> Result<Plan, String> {
    Ok(Plan {
        seed: option("--seed", 1, 0)?,
        frames: option("--gib", 2, 1)?.min(16) * GIB,
        rounds: option("--rounds", 100, 0)?,
    })
}

fn main() -> ExitCode {
    let plan = match plan() {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("fragmentation: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "Free pageblocks, % of ideal: {} GiB, {} rounds, seed {}\n",
        plan.frames / GIB,
        plan.rounds,
        plan.seed
    );
    println!("| | mixed, 50 % | mixed, 70 % | mixed, 85 % | order 0, 50 % |");
    println!("|---|---|---|---|---|");
    line::<Ebb>(plan);
    line::<Depot>(plan);
    line::<BuddySystem>(plan);
    line::<Bitmap>(plan);
    line::<BuddySlab>(plan);
    line::<Ranges>(plan);
    ExitCode::SUCCESS
}
