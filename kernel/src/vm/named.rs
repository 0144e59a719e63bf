//! Finds the owner of a frame. Each file with movable pages has a number. The descriptors of its
//! frames hold this number and the index of the page.

use super::page_owner::PageOwner;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};
use logic::radix::RadixTree;
use machine::memory::FrameRef;
use machine::sync::SpinLock;

/// The number of low bits of a word, which hold the index of the page.
const INDEX_BITS: u32 = 35;
const INDICES: u64 = 1 << INDEX_BITS;
/// The bit above the index: see [`keep`].
const KEPT: u64 = INDICES;
/// The lowest bit of the number of the file.
const NUMBER_SHIFT: u32 = INDEX_BITS + 1;
const NUMBERS: u64 = 1 << (64 - NUMBER_SHIFT);
/// The number of attempts to find a free number for a file, which otherwise has none.
const TRIES: u64 = 64;

/// The files that have numbers.
static FILES: SpinLock<RadixTree<Weak<dyn PageOwner>>> = SpinLock::new(RadixTree::new());
/// The number to try next for a file.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number by which [`find`] gets from the owner word of a frame to the file. 0 while the file
/// has no number. Frames that the file gets in that time cannot be moved (`moving`).
#[derive(Debug)]
pub struct Name(AtomicU64);

impl Name {
    /// Returns the value for a new file, which has no number yet.
    pub const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Gives the file a number, if it has none and memory allows. Pages that it gets from then on
    /// can move. `file` returns a reference to the file.
    pub fn give(&self, file: impl FnOnce() -> Weak<dyn PageOwner>) {
        // Relaxed (all of the number): its users check with the file.
        if self.0.load(Ordering::Relaxed) != 0 {
            return;
        }
        let file = file();
        for _ in 0..TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed) % NUMBERS;
            let mut files = FILES.lock();
            // Another task may have set it in between; the lock is held for each change.
            if self.0.load(Ordering::Relaxed) != 0 {
                return;
            }
            if number != 0 && files.get(number).is_none() {
                if files.insert(number, file).is_ok() {
                    self.0.store(number, Ordering::Relaxed);
                }
                return;
            }
        }
    }

    /// Records in the descriptor of `frame` that the frame is about to become page `index` of the
    /// file.
    pub fn own(&self, frame: &FrameRef, index: u64) {
        frame.set_owner(self.word(index));
    }

    /// Returns the owner word for the frame of page `index`: the file's number and the index.
    /// Returns 0 if the file has no number, or the index is too large.
    fn word(&self, index: u64) -> u64 {
        let number = self.0.load(Ordering::Relaxed);
        if number == 0 || index >= INDICES {
            return 0;
        }
        (number << NUMBER_SHIFT) | index
    }
}

/// Marks the page of a file in `frame` as one that programs need, although page tables map it no
/// more until the next access. The mark moves with the page. Does nothing for a page that cannot
/// be moved.
pub fn keep(frame: &FrameRef) {
    let word = frame.owner();
    if word != 0 {
        frame.set_owner(word | KEPT);
    }
}

/// Returns whether [`keep`] was called for the page of a file in `frame`.
pub fn is_kept(frame: &FrameRef) -> bool {
    frame.owner() & KEPT != 0
}

impl Drop for Name {
    fn drop(&mut self) {
        let number = *self.0.get_mut();
        if number != 0 {
            let mut gone = [None];
            FILES.lock().take_batch(number, number + 1, &mut gone);
        }
    }
}

/// Returns the file that the owner word `word` names, and the index of the page. Returns `None` if
/// the word names no file, or the file does not exist any more.
pub(super) fn find(word: u64) -> Option<(Arc<dyn PageOwner>, u64)> {
    let file = FILES
        .lock()
        .get(word >> NUMBER_SHIFT)
        .and_then(Weak::upgrade)?;
    Some((file, word % INDICES))
}
