//! Stress tests: a thousand pressure events a second over two hundred disks, while several
//! front-ends do I/O and check every byte, others misbehave, and the back-end is killed at random
//! and started again.
//!
//! The back-end is another process of this program, so that it can be killed. The numbers of kills
//! and requests are fixed. `STORM=4` multiplies both by four.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

#[path = "storm/backend.rs"]
mod backend;
mod frontend;
#[path = "storm/player.rs"]
mod player;
#[path = "storm/vandal.rs"]
mod vandal;

use backend::{Backend, Standing};
use player::Player;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use vandal::Vandal;

/// Number of disks of the back-end. Most of them only receive pressure events.
const DISKS: usize = 200;
/// Number of front-ends that check what they read. Each has the disk of its number.
const PLAYERS: usize = 6;
/// Number of front-ends that misbehave. Their disks follow those of the players.
const VANDALS: usize = 3;
/// Requests of each player, times the factor `STORM`.
const REQUESTS: u64 = 3000;
/// Kills, times the factor `STORM`.
const KILLS: u64 = 4;
/// Bytes by which the process may grow for each request that it answered, and once. The allocator
/// keeps some memory; a leak would be larger.
const LEFT_PER_REQUEST: u64 = 16;
const LEFT_ONCE: u64 = 1 << 20;

/// Returns the factor `STORM`.
fn size() -> u64 {
    let told = std::env::var("STORM").ok();
    told.map_or(1, |size| size.parse().expect("STORM is a number"))
}

fn folder(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Has the two tests run one after the other, because both need the machine and count descriptors.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Not a test: the process that the tests start. See [`backend`].
#[test]
fn a_back_end_for_the_others() {
    backend::serve_if_asked();
}

/// The state of a storm, shared by its threads.
struct Weather {
    folder: PathBuf,
    /// Number of back-ends started after a kill.
    incarnation: AtomicUsize,
    /// Whether front-ends that misbehave must go on.
    rough: AtomicBool,
    answered: AtomicU64,
    mischief: AtomicU64,
}

impl Weather {
    fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            incarnation: AtomicUsize::new(0),
            rough: AtomicBool::new(true),
            answered: AtomicU64::new(0),
            mischief: AtomicU64::new(0),
        }
    }

    fn socket(&self, disk: usize) -> PathBuf {
        self.folder.join(format!("d{disk}.sock"))
    }

    // All Relaxed: the numbers order no other memory access. Front-ends react to a new back-end
    // through the socket.
    fn incarnation(&self) -> usize {
        self.incarnation.load(Ordering::Relaxed)
    }

    fn is_rough(&self) -> bool {
        self.rough.load(Ordering::Relaxed)
    }

    fn count(&self, counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs players and vandals until each player has done `requests`, and calls `meanwhile`
/// repeatedly.
fn storm(weather: &Weather, players: &mut [Player], requests: u64, mut meanwhile: impl FnMut()) {
    weather.rough.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let vandals: Vec<_> = (0..VANDALS)
            .map(|index| {
                let mut vandal = Vandal::new(PLAYERS + index);
                scope.spawn(move || vandal.rage(weather))
            })
            .collect();
        let playing: Vec<_> = players
            .iter_mut()
            .map(|player| scope.spawn(move || player.play(weather, requests)))
            .collect();
        while !playing.iter().all(|thread| thread.is_finished()) {
            meanwhile();
        }
        weather.rough.store(false, Ordering::Relaxed);
        for thread in playing.into_iter().chain(vandals) {
            thread.join().unwrap();
        }
    });
}

#[test]
fn no_request_is_lost_or_wrong_however_often_the_back_end_is_killed() {
    let _alone = alone();
    let folder = folder("kills");
    let weather = Weather::new(&folder);
    let mut backend = Backend::start(&folder, DISKS);
    backend.press();
    let mut players: Vec<_> = (0..PLAYERS)
        .map(|disk| Player::new(disk, &weather))
        .collect();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let (mut kills, wanted) = (0, KILLS * size());
    storm(&weather, &mut players, REQUESTS * size(), || {
        // xorshift64: kills come at random moments.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        std::thread::sleep(std::time::Duration::from_micros(20_000 + seed % 80_000));
        if kills < wanted {
            kills += 1;
            backend.kill();
            backend = Backend::start(&folder, DISKS);
            backend.press();
            weather.incarnation.fetch_add(1, Ordering::Relaxed);
        }
    });
    for player in &mut players {
        player.check_everything(&weather);
    }
    let again: u64 = players.iter().map(|player| player.reconnects).sum();
    println!(
        "{} requests checked, {} acts of mischief, {kills} kills, {again} reconnects",
        weather.answered.load(Ordering::Relaxed),
        weather.mischief.load(Ordering::Relaxed),
    );
    assert!(kills > 0 && again > 0, "nothing was survived");
    drop(players);
    drop(backend);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn nothing_leaks_in_a_storm() {
    let _alone = alone();
    let folder = folder("leaks");
    let weather = Weather::new(&folder);
    let mut backend = Backend::start(&folder, DISKS);
    let mut standings: Vec<(Standing, u64)> = Vec::new();
    // In the first storm the process allocates what it keeps for ever.
    for _ in 0..3 {
        backend.press();
        let before = weather.answered.load(Ordering::Relaxed);
        let mut players: Vec<_> = (0..PLAYERS)
            .map(|disk| Player::new(disk, &weather))
            .collect();
        storm(&weather, &mut players, REQUESTS * size(), || {
            std::thread::sleep(std::time::Duration::from_millis(5));
        });
        for player in &mut players {
            player.check_everything(&weather);
        }
        drop(players);
        let answered = weather.answered.load(Ordering::Relaxed) - before;
        standings.push((backend.standing(), answered));
    }
    println!("{standings:?}");
    println!(
        "{} acts of mischief",
        weather.mischief.load(Ordering::Relaxed)
    );
    for pair in standings[1..].windows(2) {
        let [(before, _), (after, answered)] = pair else {
            unreachable!("windows of two")
        };
        assert_eq!(after.descriptors, before.descriptors);
        assert_eq!(after.threads, before.threads);
        let most = before.anonymous_bytes + LEFT_ONCE + LEFT_PER_REQUEST * answered;
        assert!(after.anonymous_bytes <= most, "{before:?} then {after:?}");
    }
    drop(backend);
    std::fs::remove_dir_all(&folder).unwrap();
}
