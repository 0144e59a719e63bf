//! Huge blocks that the end of their file cuts: what is behind the end is given up when memory is short.

use super::TmpNode;
use alloc::sync::Weak;
use alloc::vec::Vec;
use machine::sync::SpinLock;

/// Files that may have such a block.
static FILES: SpinLock<Vec<Weak<TmpNode>>> = SpinLock::new(Vec::new());

/// Notes a file that is not there yet; false: there is no memory for that.
pub(super) fn note(node: &TmpNode) -> bool {
    let mut files = FILES.lock();
    if files.len() == files.capacity() {
        files.retain(|file| file.strong_count() != 0);
    }
    let room = files.try_reserve(1).is_ok();
    if room {
        files.push(node.this.clone());
    }
    room
}

/// For an allocation that found nothing: frees what is behind the ends of files. True when it may help to try again. No
/// spin lock is held.
pub fn trim_all() -> bool {
    let count = FILES.lock().len();
    for index in (0..count).rev() {
        let file = {
            let mut files = FILES.lock();
            (index < files.len()).then(|| files.swap_remove(index))
        };
        let Some(node) = file.and_then(|file| file.upgrade()) else {
            continue;
        };
        let Some(regular) = node.regular() else {
            continue;
        };
        match regular.trim(&node.fs) {
            Some(true) => return true,
            Some(false) => {}
            // Another time.
            None => drop(note(&node)),
        }
    }
    false
}
