//! Searches for ranges of 2 MiB with most pages present, and joins their pages.

use super::super::family::Member;
use super::{SPACES, forget, knobs};
use crate::vm::AddressSpace;
use crate::vm::collapse::{Before, Density, may_join};
use crate::vm::compaction::{self, daemon::traffic};
use crate::vm::entry::REGION;
use crate::vm::moving::Mover;
use crate::vm::pagetable::Region;
use crate::vm::space::State;
use crate::vm::thp::wants_huge;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use logic::errno::Errno;
use machine::arch::USER_END;
use machine::arch::clock::{self, Nanos};
use machine::memory::huge::{Effort, FRAMES};
use machine::memory::percpu;
use machine::sched;

/// The most page tables, and the most areas and missing tables, that are examined under one lock.
const TABLES: u32 = 8;
const LOOKS: u32 = 128;
/// The number of frames that come and go in an idle guest: less activity counts as none.
const QUIET: u64 = 64;
/// While the guest is idle, the time between two looks grows up to this multiple of its knob.
const LONGEST: u64 = 16;
/// The shortest time between two looks, in milliseconds.
const SHORTEST: u64 = 10;

/// The position and the schedule of `khugepaged`'s search for pages to join.
pub(super) struct Joiner {
    due: Nanos,
    /// The factor by which the pause before the next poll is longer than usual, since the guest is
    /// idle.
    factor: u64,
    /// The number of frames allocated and freed when the last pass over all spaces ended.
    traffic: u64,
    /// The index in the list of the space that is searched.
    index: usize,
    /// The space that is searched. `None` before the first.
    member: Option<Member>,
    /// The address in the space at which the search continues.
    at: u64,
    /// Whether an area examined so far in the space may have huge pages.
    fit: bool,
    /// The version of the space's areas when the search of the space began.
    version: u64,
    before: Option<Before>,
    mover: Option<Mover>,
}

/// The result of a search under one hold of a space's lock.
struct Look {
    /// The address of a region whose pages can be joined, and whether other spaces share some of
    /// its pages. `None` if there is none.
    found: Option<(u64, bool)>,
    /// The address to continue at.
    next: u64,
    /// Whether an area in the searched part may have huge pages.
    fit: bool,
}

/// The reason to stop the search for now.
enum Halt {
    /// The number of pages to examine is used up.
    Budget,
    /// There is no free block.
    NoBlock,
}

impl Joiner {
    /// Returns a search that begins at the first space at once.
    pub(super) const fn new() -> Self {
        Self {
            due: Nanos(0),
            factor: 1,
            traffic: 0,
            index: 0,
            member: None,
            at: 0,
            fit: false,
            version: 0,
            before: None,
            mover: None,
        }
    }

    /// Plans the next poll after the usual pause, because the list of spaces is not empty any more.
    pub(super) fn begin(&mut self) {
        self.factor = 1;
        self.sleep(knobs::SCAN_SLEEP.get());
    }

    /// Returns the time of the next poll.
    pub(super) const fn due(&self) -> Nanos {
        self.due
    }

    fn sleep(&mut self, millis: u64) {
        let millis = millis.saturating_mul(self.factor).max(SHORTEST);
        let nanos = Nanos(millis.saturating_mul(1_000_000));
        self.due = clock::now().saturating_add(nanos);
    }

    /// Examines some pages and joins those that can be joined, if a poll is due.
    pub(super) fn poll(&mut self) {
        if knobs::take_set() {
            self.factor = 1;
            self.due = clock::now();
        }
        if clock::now() < self.due {
            return;
        }
        if self.before.is_none() {
            self.before = Before::new().ok();
        }
        let mut budget = knobs::PAGES_TO_SCAN.get();
        let halt = loop {
            let Some(member) = SPACES.lock().get(self.index).copied() else {
                self.pass_ended();
                break Halt::Budget;
            };
            if Some(member) != self.member {
                // The list begins with it, or others have left the list.
                self.member = Some(member);
                self.at = 0;
            }
            let Some(space) = member.space() else {
                // It is going, and takes itself out.
                self.next_space();
                continue;
            };
            match self.look_at(&space, &mut budget) {
                ControlFlow::Continue(()) if !self.fit && space.unlist_if(self.version) => {
                    forget(member);
                    self.at = 0;
                }
                ControlFlow::Continue(()) => self.next_space(),
                ControlFlow::Break(halt) => break halt,
            }
            sched::cond_resched();
        };
        self.sleep(match halt {
            Halt::Budget => knobs::SCAN_SLEEP.get(),
            Halt::NoBlock => knobs::ALLOC_SLEEP.get(),
        });
    }

    fn next_space(&mut self) {
        self.index += 1;
        self.at = 0;
    }

    fn pass_ended(&mut self) {
        self.index = 0;
        self.at = 0;
        knobs::FULL_SCANS.fetch_add(1, Ordering::Relaxed);
        let traffic = traffic();
        self.factor = if traffic.wrapping_sub(self.traffic) < QUIET {
            LONGEST.min(2 * self.factor)
        } else {
            1
        };
        self.traffic = traffic;
    }

    /// Joins pages of `space` while `budget` allows to examine more pages. Continues if the whole
    /// space was searched. Otherwise breaks with the reason.
    fn look_at(&mut self, space: &AddressSpace, budget: &mut u64) -> ControlFlow<Halt> {
        if self.at == 0 {
            self.fit = false;
            self.version = space.state.lock().version;
        }
        let Some(before) = &mut self.before else {
            return ControlFlow::Break(Halt::NoBlock);
        };
        let effort = if knobs::DEFRAG.get() == 0 {
            Effort::None
        } else {
            Effort::Direct
        };
        while self.at < USER_END {
            if *budget == 0 {
                return ControlFlow::Break(Halt::Budget);
            }
            let joins = !space.declines_huge_pages();
            let look = space.state.lock().look(self.at, joins, budget);
            self.at = look.next;
            self.fit |= look.fit;
            if let Some((start, shared)) = look.found {
                let joined = if shared {
                    space.join(start, effort, before)
                } else {
                    space.try_join(start, effort, before)
                };
                match joined {
                    // Another task was faster.
                    Ok(()) if before.is_empty() => {}
                    Ok(()) => {
                        knobs::COLLAPSED.fetch_add(1, Ordering::Relaxed);
                        make_whole(before, &mut self.mover);
                    }
                    Err(Errno::ENOMEM) => return ControlFlow::Break(Halt::NoBlock),
                    // Its pages are in use.
                    Err(_) => {}
                }
            }
            sched::cond_resched();
        }
        ControlFlow::Continue(())
    }
}

/// Empties the blocks that joined pages have left, so that the next pages are joined in these.
/// Otherwise the guest would hold twice the memory of the host for a while.
fn make_whole(joined: &Before, mover: &mut Option<Mover>) {
    if mover.is_none() {
        *mover = Mover::new().ok();
    }
    let Some(mover) = mover else { return };
    percpu::drain();
    for frame in joined.ends() {
        compaction::empty_remains(frame, mover);
    }
}

impl State {
    /// Searches for pages that can be joined, from the address `from` on. Only searches for areas
    /// if `joins` is `false`. Stops when `budget`, the number of pages to examine, is used up.
    /// Returns what was found and where to continue.
    fn look(&self, from: u64, joins: bool, budget: &mut u64) -> Look {
        let most_missing = knobs::MAX_NONE.get();
        let most_shared = knobs::MAX_SHARED.get();
        let (mut tables, mut looks) = (0, 0);
        let mut look = Look {
            found: None,
            next: USER_END,
            fit: false,
        };
        let mut at = from;
        while let Some(area) = self.areas.next_from(at) {
            let mut region = area.start.next_multiple_of(REGION);
            let holds_one = region < area.end && area.end - region >= REGION;
            look.fit |= holds_one && may_join(area);
            region = region.max(at.next_multiple_of(REGION));
            if !(joins && may_join(area) && wants_huge(area.flags)) {
                region = area.end;
            }
            while region < area.end && area.end - region >= REGION {
                if tables == TABLES || looks == LOOKS || *budget == 0 {
                    look.next = region;
                    return look;
                }
                looks += 1;
                region = match self.tables.region(region) {
                    Region::AbsentUntil(next) => next,
                    Region::Huge(_, span) => (region / span + 1) * span,
                    Region::Trial(_) => region + REGION,
                    Region::Table(table) => {
                        tables += 1;
                        *budget = budget.saturating_sub(FRAMES);
                        let density = Density::of(table);
                        if density.pages > 0
                            && density.pages + most_missing >= FRAMES
                            && density.shared <= most_shared
                        {
                            look.found = Some((region, density.shared != 0));
                            look.next = region + REGION;
                            return look;
                        }
                        region + REGION
                    }
                };
            }
            at = area.end;
            looks += 1;
            if looks >= LOOKS {
                look.next = at;
                return look;
            }
        }
        look
    }
}

impl AddressSpace {
    /// Removes the space from the list if its areas have not changed since `version` and nothing is
    /// on trial. Returns whether it did.
    fn unlist_if(&self, version: u64) -> bool {
        let state = self.state.lock();
        let unlist = state.version == version && state.tables.trials.count() == 0;
        if unlist {
            self.enlisted.store(false, Ordering::Relaxed);
        }
        unlist
    }
}
