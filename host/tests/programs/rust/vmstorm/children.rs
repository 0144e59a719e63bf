//! Child processes: what a fork keeps, and what a new program gets.

use crate::actor::Actor;
use crate::areas::{Area, Source};
use crate::checks;
use crate::control;
use crate::files::File;
use crate::guard;
use crate::log;
use crate::sys::{self, PAGE, PAGE_WORDS};
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::Ordering;

/// The number of pages that a child fills.
const CHILD_PAGES: usize = 8;
/// The bytes of heap that a child allocates, and the stack frames that it uses.
const HEAP_BYTES: u64 = 160 << 10;
const STACK_FRAMES: u32 = 40;

impl Actor {
    /// Forks a child that checks its copy of this thread's memory, and the files at the end of the
    /// round.
    pub fn fork_that_stays(&mut self) {
        // There is only one per process, because it doubles the memory that its threads store to.
        if self.thread != 0 || !self.children.is_empty() {
            return;
        }
        log!("fork a child that stays");
        let round = control::get().round.load(Ordering::Relaxed);
        let pid = match sys::fork() {
            Err(sys::EAGAIN | sys::ENOMEM) => return,
            outcome => self.must("fork", outcome),
        };
        if pid != 0 {
            self.children.push(pid);
            return;
        }
        self.become_child();
        if self.random.once_in(3) {
            self.check_copies();
        }
        // Acquire: pairs with the Release of the thread that sets it.
        let settled = &control::get().views_settled;
        control::wait_until(|| settled.load(Ordering::Acquire) >= round);
        checks::common_views(self, "a forked child's");
        checks::shared_views(self, "a forked child's");
        sys::exit(0);
    }

    /// Forks a child that checks its memory, moves the end of its heap, grows its stack, and exits.
    pub fn fork_that_goes(&mut self) {
        log!("fork a child that goes");
        let pid = match sys::fork() {
            Err(sys::EAGAIN | sys::ENOMEM) => return,
            outcome => self.must("fork", outcome),
        };
        if pid == 0 {
            self.become_child();
            self.check_copies();
            if let Err(text) = check_heap() {
                self.fail(&text);
            }
            sys::exit(0);
        }
        self.wait(pid);
    }

    /// Forks a child that stores to a disk through the inherited mapping and syncs it.
    pub fn fork_that_stores(&mut self, file: &File, words: Range<u64>) {
        log!(
            "fork a child that stores to file {} words {words:#x?}",
            file.number
        );
        let pid = match sys::fork() {
            Err(sys::EAGAIN | sys::ENOMEM) => return,
            outcome => self.must("fork", outcome),
        };
        if pid == 0 {
            self.become_child();
            self.random.dawdle();
            let tag = file.tag(self.id);
            let words = self.store_words(file, words);
            let first = words.start * 8 / PAGE;
            let last = (words.end * 8).div_ceil(PAGE);
            let bytes = (last - first) * PAGE;
            let outcome = sys::sync_map(file.view + first * PAGE, bytes, sys::MS_SYNC);
            self.must("msync in a child", outcome);
            if let Some(direct) = file.direct {
                let got = sys::read_at(direct, self.buffer, bytes, first * PAGE);
                if self.must("a direct read", got) != bytes {
                    self.fail("a direct read is short");
                }
                for word in words {
                    let at = self.buffer + word * 8 - first * PAGE;
                    let found = guard::word(at).unwrap_or(0);
                    if found != tag | word {
                        self.fail(&format!(
                            "a child stored {:#x} to word {word:#x} of the disk and had it written; \
                             the disk has {}",
                            tag | word,
                            crate::files::describe(found)
                        ));
                    }
                }
            }
            sys::exit(0);
        }
        self.wait(pid);
    }

    /// Starts a new program that checks its heap and its stack.
    pub fn spawn(&mut self) {
        log!("spawn");
        match Command::new("/proc/self/exe").arg("look").status() {
            Ok(status) if status.success() => {}
            Ok(status) => self.fail(&format!("a new program ended with {status}")),
            Err(e) if matches!(e.raw_os_error(), Some(sys::EAGAIN | sys::ENOMEM)) => {}
            Err(e) => self.fail(&format!("a new program cannot be started: {e}")),
        }
    }

    fn become_child(&mut self) {
        // The parent's ring shows the parent's operations only.
        control::become_actor(usize::MAX);
        self.children.clear();
    }

    /// Checks that the parent's private memory is here, and that stores to the copies stay.
    fn check_copies(&mut self) {
        let areas: Vec<Area> = self.areas.iter().cloned().collect();
        for area in &areas {
            self.check_own_pages(area);
        }
        let own = |area: &&Area| area.source == Source::Nothing && area.is_writable();
        let mut at = Vec::new();
        for area in areas.iter().filter(own) {
            at.extend(
                (area.start..area.end())
                    .step_by(PAGE as usize)
                    .step_by(13)
                    .take(2),
            );
        }
        at.truncate(CHILD_PAGES);
        for &at in &at {
            self.fill_range(at..at + PAGE);
        }
        for at in at {
            let area = self.areas.find(at).expect("it was filled").clone();
            self.check_own_pages(&area);
        }
    }

    /// Waits for a child, which must have found no error.
    pub fn wait(&self, pid: i32) {
        match sys::wait(pid, 0) {
            Ok(Some(0)) => {}
            Ok(status) => self.fail(&format!("a child ended with status {status:x?}")),
            Err(e) => self.fail(&format!("waitpid failed with error {e}")),
        }
    }
}

/// Runs the checks of the program that `Actor::spawn` starts. Fails with a message.
pub fn look() -> Result<(), String> {
    check_heap()?;
    let sum = deepen(STACK_FRAMES, 7);
    let expected = (0..=STACK_FRAMES)
        .map(|n| (n * 7 + 3) as u64 * 512)
        .sum::<u64>();
    if sum == expected {
        Ok(())
    } else {
        Err(format!(
            "a deep stack adds up to {sum} instead of {expected}"
        ))
    }
}

/// Uses stack frames of four pages each, which are filled on the way down and added up on the way
/// back.
#[inline(never)]
fn deepen(frames: u32, factor: u32) -> u64 {
    let mut words = [0_u64; 4 * PAGE_WORDS];
    for word in words.iter_mut().step_by(4) {
        *word = u64::from(frames * factor + 3);
    }
    let below = if frames == 0 {
        0
    } else {
        deepen(frames - 1, factor)
    };
    std::hint::black_box(&words).iter().sum::<u64>() + below
}

/// Checks that the heap grows with zeroes, keeps stored words, and loses released pages.
fn check_heap() -> Result<(), String> {
    let end = sys::brk(0);
    let start = end.next_multiple_of(PAGE);
    for turn in 0..2 {
        if sys::brk(start + HEAP_BYTES) != start + HEAP_BYTES {
            return Err(format!("the heap does not grow from {start:#x}"));
        }
        for at in (start..start + HEAP_BYTES).step_by(PAGE as usize) {
            let found = guard::word(at);
            if found != Some(0) {
                return Err(format!("a new page of the heap at {at:#x} has {found:x?}"));
            }
            guard::fill(at, at + turn, PAGE_WORDS);
        }
        for at in (start..start + HEAP_BYTES).step_by(PAGE as usize) {
            let found = guard::word(at + PAGE - 8);
            if found != Some(at + turn + PAGE_WORDS as u64 - 1) {
                return Err(format!("the page of the heap at {at:#x} has {found:x?}"));
            }
        }
        if sys::brk(start) != start {
            return Err(format!("the heap does not shrink to {start:#x}"));
        }
    }
    sys::brk(end);
    Ok(())
}
