//! Fills pages when they are freed and when they are allocated, as the boot options in `hardening`
//! request.
//!
//! With `page_poison=1` a freed page is filled with 0xaa and checked when it is allocated. A write
//! in between is a use after free. Pages of zeros pass the check: the host may have dropped them,
//! or they were never used.

use super::clear::{clear_page, set_clear_allocated};
use crate::arch::layout::PAGE_SIZE;
use crate::arch::{ipi, phys_to_virt};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use ebb_mm::{Contents, Frame};
use logic::page_poison::{Damage, Fill, POISON, POISON_WORD, damage};

/// The contents with which freed pages are filled: a [`Fill`] as a number.
static FILL: AtomicU8 = AtomicU8::new(Fill::Nothing as u8);
/// Whether an allocated page is filled with zeros.
static INIT_ON_ALLOC: AtomicBool = AtomicBool::new(false);
/// Whether allocated pages are checked or filled.
static ON_ALLOC: AtomicBool = AtomicBool::new(false);
/// The number of pages that were written to after they were freed.
static DAMAGED: AtomicU64 = AtomicU64::new(0);
/// The number of words in a page.
const WORDS: usize = PAGE_SIZE / size_of::<u64>();
/// The most damaged pages that the console reports.
const TOLD: u64 = 10;

/// Sets how pages are filled and checked. Freed pages get the contents `fill`. Allocated pages are
/// filled with zeros if `zero`, else checked for writes since they were freed if `check`. With
/// `check` each free page must be zero or filled already. The first CPU calls this before others
/// run.
pub(super) fn set(fill: Fill, zero: bool, check: bool) {
    // Relaxed (all): no other CPU runs.
    FILL.store(fill as u8, Ordering::Relaxed);
    INIT_ON_ALLOC.store(zero, Ordering::Relaxed);
    ON_ALLOC.store(zero || check, Ordering::Relaxed);
    if check {
        set_clear_allocated(check_and_clear);
    }
}

/// Returns the contents with which freed pages are filled.
pub fn fill() -> Fill {
    match FILL.load(Ordering::Relaxed) {
        fill if fill == Fill::Poison as u8 => Fill::Poison,
        fill if fill == Fill::Zeros as u8 => Fill::Zeros,
        _ => Fill::Nothing,
    }
}

/// Returns whether freed pages are filled.
#[inline]
pub fn is_filling() -> bool {
    FILL.load(Ordering::Relaxed) != Fill::Nothing as u8
}

/// Fills the `frames` frames from `frame` on, which are about to be freed, with the contents that
/// [`fill`] returns. Does nothing if freed pages are not filled. The caller is the only user of the
/// frames.
#[inline]
pub(super) fn freed(frame: Frame, frames: u64) {
    if is_filling() {
        fill_frames(frame, frames);
    }
}

/// Fills the `frames` frames from `frame` on, which were just allocated, with zeros if [`set`] got
/// `zero`. If it got only `check`, checks that no write has changed the frames since they were
/// freed, and prints a message for each of the first [`TOLD`] changed pages. If it got neither,
/// does nothing.
#[inline]
pub(super) fn allocated(frame: Frame, frames: u64) {
    if ON_ALLOC.load(Ordering::Relaxed) {
        see_frames(frame, frames);
    }
}

/// Checks that no write has changed the `frames` frames from `frame` on, which were just allocated,
/// since they were freed. Does so only if [`set`] got `check`, and if `contents` does not say that
/// the frames were never used. Prints messages as [`allocated`] does. Never fills the frames,
/// because the caller does.
#[inline]
pub(super) fn allocated_known(frame: Frame, frames: u64, contents: Contents) {
    if contents != Contents::NeverUsed
        && ON_ALLOC.load(Ordering::Relaxed)
        && !INIT_ON_ALLOC.load(Ordering::Relaxed)
    {
        see_frames(frame, frames);
    }
}

unsafe extern "C" fn check_and_clear(page: *mut u8) {
    see(page);
    // SAFETY: the caller's promise.
    unsafe { clear_page(page) };
}

#[cold]
fn fill_frames(frame: Frame, frames: u64) {
    for page in (0..frames).map(|index| phys_to_virt(frame.offset(index).address())) {
        // Other CPUs may wait for an answer of this one, and a GiB takes long.
        ipi::poll_mailbox();
        if fill() == Fill::Zeros {
            // SAFETY: a page of the physmap, which the caller is about to free and alone uses.
            unsafe { clear_page(page) };
            continue;
        }
        for index in 0..WORDS {
            // SAFETY: inside the page, which is the caller's alone. Volatile, as a `memset` stores
            // byte by byte.
            unsafe { page.cast::<u64>().add(index).write_volatile(POISON_WORD) };
        }
    }
}

#[cold]
fn see_frames(frame: Frame, frames: u64) {
    let zero = INIT_ON_ALLOC.load(Ordering::Relaxed);
    for page in (0..frames).map(|index| phys_to_virt(frame.offset(index).address())) {
        ipi::poll_mailbox();
        if zero {
            // SAFETY: pages of the physmap that are the caller's alone: they were just allocated.
            unsafe { clear_page(page) };
        } else {
            see(page);
        }
    }
}

/// Checks the page at `page`, which was filled when it was freed. If it was written to since,
/// counts that, and prints a message for each of the first [`TOLD`] such pages.
fn see(page: *const u8) {
    if let Some(found) = damage_of(page) {
        let number = DAMAGED.fetch_add(1, Ordering::Relaxed);
        if number < TOLD {
            let what = if found.is_single_bit() {
                "single bit error"
            } else {
                "memory corruption"
            };
            let Damage {
                word, index, words, ..
            } = found;
            let at = page.addr() + index * size_of::<u64>();
            crate::console!("pagealloc: {what}: {word:016x} at {at:#x}, {words} words of the page");
        }
    }
}

fn damage_of(page: *const u8) -> Option<Damage> {
    let words = 0..WORDS;
    // SAFETY: inside of a page of the physmap, which stays mapped. The page should not be written;
    // in case it is, each word is read once, as a volatile.
    damage(words.map(move |index| unsafe { page.cast::<u64>().add(index).read_volatile() }))
}

/// Tests the check of poisoned pages: fills `frame` as a freed page, then writes a byte to it.
/// Returns `true` if the check accepts the filled frame and finds the write, else `false`. The
/// caller is the only user of the frame.
pub(super) fn finds_a_write(frame: Frame) -> bool {
    const WRITTEN: usize = 77;
    fill_frames(frame, 1);
    let page = phys_to_virt(frame.address());
    let sound = damage_of(page).is_none();
    // SAFETY: a byte of the page, which is the caller's alone.
    unsafe { page.add(WRITTEN).write_volatile(!POISON) };
    sound && damage_of(page).is_some_and(|damage| damage.index == WRITTEN / size_of::<u64>())
}
