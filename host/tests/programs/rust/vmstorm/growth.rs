//! Duels of two threads of a process about the addresses below a stack. One thread stores there, so
//! that the stack grows. The other makes or removes a mapping at the same moment.

use crate::actor::Actor;
use crate::control;
use crate::guard;
use crate::log;
use crate::sys::{self, PAGE, PAGE_WORDS};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The page from which the stack grows downwards.
const TOP: u64 = 0x1100_0000_0000;
const MIB: u64 = 1 << 20;
/// The range of the other thread's mapping.
const BELOW: Range<u64> = TOP - 6 * MIB..TOP - 2 * MIB;
/// The address in the stack that is stored to.
const DEPTH: u64 = TOP - 4 * MIB + 16;
/// The number of filled pages in the mapping.
const FILLED: u64 = 128;
/// The number of attempts to store before the stack's thread stops trying.
const TRIES: u32 = 4000;

/// Messages between the two threads of a process. Each is the number of a duel: the one that is
/// open, the one that the other thread has prepared, the one that may start, and the one that has
/// ended, with its outcome.
static OPEN: AtomicU64 = AtomicU64::new(0);
static READY: AtomicU64 = AtomicU64::new(0);
static GO: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicU64 = AtomicU64::new(0);
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Waits for a number, or the storm's end. Acquire: pairs with the Release stores of the other
/// thread.
fn wait_for(number: &AtomicU64, value: u64) {
    control::wait_until(|| number.load(Ordering::Acquire) >= value);
}

/// The kind of duel. Both threads choose the same one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A mapping below the stack: either it is made or the stack grows, but not both.
    Exclusive,
    /// A mapping is removed while the stack grows into its range: the stored words stay.
    Leaving,
    /// A mapping is made below the end of the growing stack: both keep their content.
    Beside,
}

fn kind_of(duel: u64, leaving: bool) -> Kind {
    match duel % 3 {
        _ if leaving => Kind::Leaving,
        0 => Kind::Beside,
        _ => Kind::Exclusive,
    }
}

impl Actor {
    /// Fights several duels, as one of the first two threads of a process.
    pub fn duel(&mut self, times: u64, leaving: bool) {
        self.files_do_not_grow();
        for _ in 0..times {
            if self.thread == 0 {
                self.grow(leaving);
            } else {
                self.map_below(leaving);
            }
        }
    }

    /// Checks that only private anonymous memory can grow.
    fn files_do_not_grow(&self) {
        for kind in [sys::MAP_PRIVATE, sys::MAP_SHARED] {
            let (flags, file) = (kind | sys::MAP_GROWSDOWN, &self.files[0]);
            match sys::map(0, PAGE, sys::PROT_BOTH, flags, file.fd, PAGE) {
                Err(sys::EINVAL) => {}
                other => self.fail(&format!("a growing mapping of a file: {other:x?}")),
            }
        }
    }

    fn grow(&mut self, leaving: bool) {
        let duel = OPEN.load(Ordering::Relaxed) + 1;
        let kind = kind_of(duel, leaving);
        log!("duel {duel} {kind:?}: stack");
        let flags =
            sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_GROWSDOWN | sys::MAP_FIXED_NOREPLACE;
        let top = sys::map(TOP, PAGE, sys::PROT_BOTH, flags, -1, 0);
        self.must("mmap of a stack", top);
        guard::fill(TOP, duel, PAGE_WORDS);
        OPEN.store(duel, Ordering::Release);
        wait_for(&READY, duel);
        GO.store(duel, Ordering::Release);
        self.random.dawdle();
        let depth = if kind == Kind::Beside {
            TOP - MIB + 16
        } else {
            DEPTH
        };
        let tries = if kind == Kind::Leaving { TRIES } else { 1 };
        log!("duel {duel} {kind:?}: store to {depth:#x}");
        let grown = (0..tries).any(|_| guard::fill(depth, duel << 32, 1) == 1);
        wait_for(&OVER, duel);
        let mapped = MAPPED.load(Ordering::Acquire) != 0;
        log!("duel {duel} {kind:?}: grown {grown}, mapped {mapped}");
        if kind == Kind::Exclusive && grown == mapped {
            self.fail(&format!(
                "a stack that {} to {DEPTH:#x} and a mapping of {BELOW:#x?} that takes no other's \
                 place and {}",
                if grown { "grew" } else { "did not grow" },
                if mapped { "was made" } else { "was not" },
            ));
        }
        if kind == Kind::Beside && !grown {
            self.fail(&format!("a stack does not grow to {depth:#x}"));
        }
        if grown {
            let found = guard::word(depth);
            if found != Some(duel << 32) {
                self.fail(&format!(
                    "{kind:?}: a stack grew to {depth:#x} and {:#x} was stored there; it shows \
                     {found:x?}",
                    duel << 32
                ));
            }
            for at in (depth.next_multiple_of(PAGE)..TOP).step_by(64 * PAGE as usize) {
                if guard::word(at) != Some(0) {
                    self.fail(&format!("a new page of a stack at {at:#x} is not zero"));
                }
            }
        }
        if guard::word(TOP) != Some(duel) {
            self.fail("the top page of a stack has changed");
        }
        log!("duel {duel} {kind:?}: unmap");
        let gone = sys::unmap(TOP - 16 * MIB, 16 * MIB + PAGE);
        self.must("munmap of a stack", gone);
        let left = (TOP - 16 * MIB..=TOP).step_by(PAGE as usize * 64);
        for at in left.chain([TOP, DEPTH, BELOW.start]) {
            if guard::word(at).is_some() {
                self.fail(&format!("{at:#x} was unmapped and can be read"));
            }
        }
    }

    fn map_below(&mut self, leaving: bool) {
        let duel = OVER.load(Ordering::Relaxed) + 1;
        let kind = kind_of(duel, leaving);
        log!("duel {duel} {kind:?}: mapping");
        wait_for(&OPEN, duel);
        let bytes = BELOW.end - BELOW.start;
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
        let fill = |range: &Range<u64>| {
            for page in 0..FILLED {
                guard::fill(range.start + page * PAGE, duel << 20 | page, PAGE_WORDS);
            }
        };
        if kind == Kind::Leaving {
            let made = sys::map(
                BELOW.start,
                bytes,
                sys::PROT_BOTH,
                flags | sys::MAP_FIXED,
                -1,
                0,
            );
            self.must("mmap", made);
            // The filled pages are around the end of the stack, so that the removal takes long when
            // the stack arrives.
            let middle = DEPTH - DEPTH % PAGE - FILLED / 2 * PAGE;
            fill(&(middle..BELOW.end));
            let closed = sys::protect(BELOW.start, bytes, sys::PROT_READ);
            self.must("mprotect", closed);
        }
        READY.store(duel, Ordering::Release);
        wait_for(&GO, duel);
        self.random.dawdle();
        log!("duel {duel} {kind:?}: now");
        let mut mapped = false;
        match kind {
            Kind::Exclusive => {
                let flags = flags | sys::MAP_FIXED_NOREPLACE;
                match sys::map(BELOW.start, bytes, sys::PROT_READ, flags, -1, 0) {
                    Ok(_) => mapped = true,
                    Err(sys::EEXIST) => {}
                    Err(e) => self.fail(&format!("mmap below a stack failed with error {e}")),
                }
            }
            Kind::Leaving => {
                let gone = sys::unmap(BELOW.start, bytes);
                self.must("munmap below a stack", gone);
            }
            Kind::Beside => {
                let low = BELOW.start..BELOW.start + 2 * MIB;
                let flags = flags | sys::MAP_FIXED;
                let made = sys::map(low.start, 2 * MIB, sys::PROT_BOTH, flags, -1, 0);
                self.must("mmap below a stack", made);
                fill(&low);
                mapped = true;
                for page in 0..FILLED {
                    let found = guard::word(low.start + page * PAGE);
                    if found != Some(duel << 20 | page) {
                        self.fail(&format!("page {page} below a stack shows {found:x?}"));
                    }
                }
            }
        }
        log!("duel {duel} {kind:?}: over");
        MAPPED.store(mapped.into(), Ordering::Relaxed);
        OVER.store(duel, Ordering::Release);
    }
}
