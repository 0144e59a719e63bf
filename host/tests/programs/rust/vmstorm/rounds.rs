//! The rounds of a storm, as each thread executes them.

use crate::actor::Actor;
use crate::checks;
use crate::control::{self, barrier};
use crate::files::File;
use crate::random::Random;
use crate::themes::Theme;
use crate::{guard, log};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The length of a storm.
#[derive(Copy, Clone, Debug)]
pub enum Length {
    Rounds(u64),
    Seconds(u64),
}

/// The parameters from the command line.
#[derive(Debug)]
pub struct Plan {
    pub seed: u64,
    pub length: Length,
    pub processes: usize,
    pub threads: usize,
    /// The private memory in MiB, without the copies of forked children.
    pub memory: u64,
    pub disk: Option<String>,
    pub themes: Vec<Theme>,
}

impl Plan {
    /// Returns the number of threads of all processes.
    pub fn actors(&self) -> usize {
        self.processes * self.threads
    }

    /// Returns the number of pages of private memory that a thread may have.
    fn budget_pages(&self) -> u64 {
        self.memory * 256 / self.actors() as u64
    }

    /// Returns whether there is another round after `rounds` rounds. The storm began at `start`.
    fn goes_on(&self, rounds: u64, start: Instant) -> bool {
        match self.length {
            Length::Rounds(all) => rounds < all,
            Length::Seconds(seconds) => start.elapsed() < Duration::from_secs(seconds),
        }
    }
}

/// Runs one process of the storm until all its threads end.
pub fn process(plan: &Plan, files: &'static [File], process: usize) {
    guard::install();
    std::thread::scope(|scope| {
        for number in 1..plan.threads {
            scope.spawn(move || thread(plan, files, process, number));
        }
        thread(plan, files, process, 0);
    });
}

fn thread(plan: &Plan, files: &'static [File], process: usize, number: usize) {
    let (actors, id) = (plan.actors(), process * plan.threads + number);
    let start = Instant::now();
    let mut actor = Actor::new(id, actors, number, files, plan.budget_pages());
    for round in 1.. {
        control::desk(id).journal.clear();
        if id == 0 {
            open(plan, round, start);
        }
        barrier(actors, "race");
        let control = control::get();
        // Relaxed (both): there is a barrier in between.
        if control.over.load(Ordering::Relaxed) != 0 {
            return;
        }
        let theme = Theme::of_number(control.theme.load(Ordering::Relaxed));
        actor.random = Random::new(&[plan.seed, round, id as u64]);
        log!("theme {theme:?}");
        actor.prepare(theme);
        barrier(actors, "strike");
        actor.strike(theme);
        lay_down(&actor);
        barrier(actors, "maps");
        if number == 0 {
            checks::compare_maps(plan.threads);
        }
        barrier(actors, "files");
        let mine = || files.iter().filter(|file| file.number % actors == id);
        mine().for_each(|file| checks::settle(&actor, file, actors));
        barrier(actors, "views");
        // Release: pairs with the Acquire of the waiting children.
        control.views_settled.fetch_max(round, Ordering::Release);
        checks::own_areas(&mut actor);
        checks::shared_views(&actor, "a");
        if number == 0 {
            checks::common_views(&actor, "a process's");
        }
        for pid in std::mem::take(&mut actor.children) {
            log!("wait for child {pid}");
            actor.wait(pid);
        }
        barrier(actors, "reset");
        mine().for_each(|file| checks::reset(&actor, file, actors));
        barrier(actors, "next");
    }
}

/// Chooses the theme of the round, or sets the end of the storm.
fn open(plan: &Plan, round: u64, start: Instant) {
    let control = control::get();
    let theme =
        plan.themes[Random::new(&[plan.seed, round]).below(plan.themes.len() as u64) as usize];
    // Relaxed (all): a barrier follows.
    control.seed.store(plan.seed, Ordering::Relaxed);
    control.round.store(round, Ordering::Relaxed);
    control.theme.store(theme.number(), Ordering::Relaxed);
    control.over.store(
        u32::from(!plan.goes_on(round - 1, start)),
        Ordering::Relaxed,
    );
}

fn lay_down(actor: &Actor) {
    let mut all = checks::LAID_DOWN.lock().expect("no thread has panicked");
    all.extend(actor.areas.iter().cloned());
}
