//! Compares the cost of compaction by `Compactor` with that of an idealised pair of scanners on the
//! same memory.
//!
//!     cargo run -p ebb-mm --release --example compaction [-- --seed N] [--gib N] [--rounds N]
//!
//! 50 to 95 % of the memory are in use. There are three patterns:
//!
//! - *mixed*: blocks of orders 0 to 6, with the same amount of memory in each order. In each round
//!   a tenth of them is freed at random and replaced.
//! - *single*: all frames are allocated, some are freed at random, and then frames are exchanged in
//!   the same way.
//! - *parts*: all frames are allocated, and the same part of each 2 MiB is freed.
//!
//! The scanners are Linux's at their best: every frame can move, no other task runs, and no page is
//! scanned twice. One scanner walks upwards and moves frames in use. The other walks downwards and
//! finds target frames, past free blocks. They end where they meet. The compactor stops when it has
//! gained the same number of pageblocks.
//!
//! A look is one cache line of metadata. The scanners need one look for each frame in use, one for
//! each target frame, and one for each aligned free run that they pass, as Linux counts. The
//! compactor needs one look for the state words of 32 pageblocks, one for the bitmap of a
//! pageblock, and one for each frame that it moves or takes. All looks are wasted except those for
//! frames that are moved or taken.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "figures of an experiment"
)]

#[path = "../tests/arena/mod.rs"]
mod arena;

use std::{collections::HashSet, env, process::ExitCode, time::Duration};

use arena::{ZONE, range, with};
use ebb_mm::{
    Allocator, Compactor, Compacts, Config, CpuCache, Emptied, Frame, Mobility, Order, Request,
    Reserve, Watermarks, ZoneConfig, ZoneKind,
};

const BLOCK: usize = 512;
const GIB: u64 = 1 << 18;
const LARGEST: u8 = 6;
const FILLS: [u64; 6] = [50, 60, 70, 80, 90, 95];

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

/// The frames in use, and their owners.
struct Books<'a, 'm> {
    a: &'a Allocator<'m>,
    cache: CpuCache,
    live: Vec<(Frame, Order)>,
    frames: u64,
}

impl Books<'_, '_> {
    fn free(&mut self, at: usize) {
        let (frame, order) = self.live.swap_remove(at);
        self.a.free(&mut self.cache, frame, order);
        self.frames -= order.frames();
    }

    fn free_random(&mut self, random: &mut Random) {
        let at = random.next() % self.live.len() as u64;
        self.free(at as usize);
    }

    fn allocate(&mut self, order: u8) -> bool {
        let order = Order::new(order).unwrap_or(Order::BASE);
        let request = Request::new(order, Mobility::Movable).reserve(Reserve::Use);
        let Ok(frame) = self.a.allocate(&mut self.cache, request) else {
            return false;
        };
        self.live.push((frame, order));
        self.frames += order.frames();
        true
    }
}

/// The pattern of the memory.
#[derive(Copy, Clone)]
enum Past {
    Mixed,
    Single,
    Parts,
}

impl Past {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Mixed, "mixed"),
        (Self::Single, "single"),
        (Self::Parts, "parts"),
    ];

    fn make(self, books: &mut Books<'_, '_>, plan: Plan, fill: u64) {
        let mut random = Random(plan.seed);
        let most = plan.frames * fill / 100;
        match self {
            Self::Mixed => while books.frames < most && books.allocate(random.order()) {},
            Self::Single | Self::Parts => while books.allocate(0) {},
        }
        match self {
            Self::Parts => {
                let kept = BLOCK as u64 * fill / 100;
                for at in (0..books.live.len()).rev() {
                    if books.live[at].0.number() % BLOCK as u64 >= kept {
                        books.free(at);
                    }
                }
            }
            Self::Mixed | Self::Single => {
                while books.frames > most {
                    books.free_random(&mut random);
                }
                for _ in 0..plan.rounds {
                    for _ in 0..books.live.len() / 10 {
                        books.free_random(&mut random);
                        while books.frames < most {
                            let order = match self {
                                Self::Mixed => random.order(),
                                _ => 0,
                            };
                            if !books.allocate(order) {
                                break;
                            }
                        }
                    }
                }
            }
        }
        books.a.drain(&mut books.cache);
    }
}

/// The result of a run.
#[derive(Copy, Clone, Default)]
struct Outcome {
    gained: u64,
    copied: u64,
    looked: u64,
}

impl Outcome {
    fn per_block(self, figure: u64) -> f64 {
        figure as f64 / self.gained.max(1) as f64
    }
}

/// Returns the looks that a scanner needs for a pageblock: one for each frame in use, and one for
/// each aligned free run.
fn walk(used: &[bool]) -> u64 {
    let (mut at, mut looks) = (0, 0);
    while at < used.len() {
        looks += 1;
        let mut run = 1;
        while !used[at]
            && at.is_multiple_of(2 * run)
            && at + 2 * run <= used.len()
            && used[at..at + 2 * run].iter().all(|used| !used)
        {
            run *= 2;
        }
        at += run;
    }
    looks
}

/// Runs the two scanners until they meet or have gained `most` pageblocks.
fn scan(mut used: Vec<bool>, most: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let blocks = used.len() / BLOCK;
    let inside = |block: usize| block * BLOCK..(block + 1) * BLOCK;
    let (mut low, mut high) = (0, blocks);
    // The frames that the free scanner found in its pageblock and that are not taken yet.
    let mut found: Vec<usize> = Vec::new();
    while low < high && outcome.gained < most {
        let sources: Vec<usize> = inside(low).filter(|&frame| used[frame]).collect();
        outcome.looked += walk(&used[inside(low)]);
        for &source in &sources {
            while found.is_empty() && high > low + 1 {
                high -= 1;
                let block = &used[inside(high)];
                if block.contains(&true) {
                    outcome.looked += block.iter().filter(|used| **used).count() as u64;
                    found = inside(high).filter(|&frame| !used[frame]).collect();
                }
            }
            let Some(target) = found.pop() else {
                // They have met. The frames moved out of the last pageblock gain nothing.
                return outcome;
            };
            used[source] = false;
            used[target] = true;
            outcome.copied += 1;
            outcome.looked += 1;
        }
        outcome.gained += u64::from(!sources.is_empty());
        low += 1;
    }
    outcome
}

/// Runs the compactor until it has gained `most` pageblocks.
fn compact(books: &mut Books<'_, '_>, most: u64) -> Outcome {
    let a = books.a;
    let mut compactor = Compactor::new(ZONE);
    let mut held: HashSet<Frame> = HashSet::new();
    for (frame, order) in books.live.drain(..) {
        held.extend((0..order.frames()).map(|inside| frame.offset(inside)));
    }
    let mut outcome = Outcome::default();
    let now = Duration::from_secs(1);
    while outcome.gained < most {
        let wanted = (most - outcome.gained) as usize;
        if compactor.plan(now, a, wanted, Compacts::Daemon).is_none() {
            break;
        }
        while let Some(block) = compactor.next(a) {
            let sources: Vec<Frame> = a.frames_in_use(*block).collect();
            let mut targets = vec![Frame::new(0); sources.len()];
            let found = compactor.targets(a, Compacts::Daemon, &mut targets);
            for (from, &to) in sources.iter().zip(&targets[..found]) {
                assert!(held.remove(from) && held.insert(to));
                a.free(&mut books.cache, *from, Order::BASE);
                outcome.copied += 1;
            }
            a.drain(&mut books.cache);
            if compactor.finish(now, a, Compacts::Daemon, block) == Emptied::Whole {
                outcome.gained += 1;
            }
        }
    }
    let counters = compactor.counters();
    outcome.looked += counters.migrate_scanned + counters.free_scanned;
    books.live = held.into_iter().map(|frame| (frame, Order::BASE)).collect();
    outcome
}

fn line(plan: Plan, (past, name): (Past, &str), fill: u64) {
    let ranges = [range(GIB * 4, plan.frames)];
    let zones = [ZoneConfig {
        kind: ZoneKind::Normal,
        node: 0,
        ranges: &ranges,
    }];
    // Half of the gain of the scanners, as a caller seldom wants all memory. Then all of it.
    for part in [2, 1] {
        with(&Config::new(&zones), &(), |a| {
            a.set_watermarks(ZONE, Watermarks::default())
                .expect("rising marks");
            let mut books = Books {
                a,
                cache: CpuCache::new(),
                live: Vec::new(),
                frames: 0,
            };
            past.make(&mut books, plan, fill);
            let mut used = vec![false; plan.frames as usize];
            for &(frame, order) in &books.live {
                let first = (frame.number() - GIB * 4) as usize;
                used[first..first + order.frames() as usize].fill(true);
            }
            let wanted = scan(used.clone(), u64::MAX).gained.div_ceil(part);
            let scanned = scan(used, wanted);
            let free = a.zone_stats(ZONE).free_blocks;
            let ours = compact(&mut books, scanned.gained);
            assert_eq!(ours.gained, scanned.gained);
            assert_eq!(a.zone_stats(ZONE).free_blocks, free + ours.gained);
            let more = compact(&mut books, u64::MAX).gained;
            for (frame, order) in books.live.drain(..) {
                a.free(&mut books.cache, frame, order);
            }
            a.drain(&mut books.cache);
            a.validate().unwrap_or_else(|broken| panic!("{broken}"));
            let all = ours.gained + more;
            print((name, fill, part), all, scanned, ours);
        });
    }
}

fn print((name, fill, part): (&str, u64, u64), all: u64, scanned: Outcome, ours: Outcome) {
    let in_vain = |of: Outcome| of.per_block(of.looked - 2 * of.copied);
    let ratio = |ours: f64, theirs: f64| {
        if theirs == 0.0 {
            "-".to_owned()
        } else {
            format!("{:.2}", ours / theirs)
        }
    };
    let copies = [scanned, ours].map(|of| of.per_block(of.copied));
    let looks = [scanned, ours].map(|of| of.per_block(of.looked));
    let vain = [scanned, ours].map(in_vain);
    println!(
        "| {name} | {fill} | {} | {} | {} | {:.0} | {:.0} | {} | {:.0} | {:.0} | {} | {:.0} | {:.0} | {} |",
        if part == 1 { "all" } else { "half" },
        ours.gained,
        all,
        copies[0],
        copies[1],
        ratio(copies[1], copies[0]),
        looks[0],
        looks[1],
        ratio(looks[1], looks[0]),
        vain[0],
        vain[1],
        ratio(vain[1], vain[0]),
    );
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
        frames: option("--gib", 1, 1)?.min(16) * GIB,
        rounds: option("--rounds", 20, 0)?,
    })
}

fn main() -> ExitCode {
    let plan = match plan() {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("compaction: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "Frames copied and looked at for each pageblock gained: {} GiB, {} rounds, seed {}\n",
        plan.frames / GIB,
        plan.rounds,
        plan.seed
    );
    println!(
        "| memory | % used | gained | blocks | compactor: at most | copied: scanners | compactor | ratio | looks: scanners | compactor | ratio | looks in vain: scanners | compactor | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for past in Past::ALL {
        for fill in FILLS {
            line(plan, past, fill);
        }
    }
    ExitCode::SUCCESS
}
