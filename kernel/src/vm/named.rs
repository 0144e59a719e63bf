//! From a frame of a file to the file. Each file with movable pages has a number, and its frames'
//! descriptors have this number and the number of the page.

use super::source::PageSource;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};
use logic::radix::RadixTree;
use machine::sync::SpinLock;

/// The page's number is in the low bits of a word, the file's above.
const INDEX_BITS: u32 = 36;
const INDICES: u64 = 1 << INDEX_BITS;
const NUMBERS: u64 = 1 << (64 - INDEX_BITS);
/// The number of attempts to find a free number for a file, which otherwise has none.
const TRIES: u64 = 64;

/// The files that have numbers.
static FILES: SpinLock<RadixTree<Weak<dyn PageSource>>> = SpinLock::new(RadixTree::new());
/// The number to be tried next.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number of a file; 0: it has none, and its pages do not move.
#[derive(Debug)]
pub(super) struct Name(AtomicU64);

impl Name {
    pub(super) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Gives the file a number, if it has none and there is memory for it: its pages from now on
    /// can move.
    pub(super) fn give(&self, file: impl FnOnce() -> Weak<dyn PageSource>) {
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

    /// The word of a page; 0: nothing is known of it.
    pub(super) fn word(&self, index: u64) -> u64 {
        let number = self.0.load(Ordering::Relaxed);
        if number == 0 || index >= INDICES {
            return 0;
        }
        (number << INDEX_BITS) | index
    }
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

/// The file that a word names, and the page of it.
pub(super) fn find(word: u64) -> Option<(Arc<dyn PageSource>, u64)> {
    let file = FILES
        .lock()
        .get(word >> INDEX_BITS)
        .and_then(Weak::upgrade)?;
    Some((file, word % INDICES))
}
