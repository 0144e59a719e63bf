//! Huge blocks that reach behind the end of their file. The pages behind the end are freed when
//! memory is short or the file system is full.

use super::{TmpNode, Tmpfs};
use alloc::sync::Weak;
use alloc::vec::Vec;
use machine::sync::SpinLock;

/// Files with a huge block that may reach behind their end.
static FILES: SpinLock<Vec<Weak<TmpNode>>> = SpinLock::new(Vec::new());

/// Adds `node` to the list of files with a huge block that may reach behind their end. The list
/// must not have it. Returns `false` if memory is short.
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

/// Frees pages behind the ends of files, after a failed allocation. Returns `true` if trying again
/// may help. No spin lock may be held.
pub fn trim_all() -> bool {
    trim(|_| true)
}

/// Frees pages behind the ends of the files of `fs`, which is full. Returns `true` if trying again
/// may help. No spin lock may be held.
pub(super) fn trim_of(fs: &Tmpfs) -> bool {
    trim(|node| core::ptr::eq(&raw const *node.fs, fs))
}

fn trim(wanted: impl Fn(&TmpNode) -> bool) -> bool {
    let count = FILES.lock().len();
    for index in (0..count).rev() {
        let (file, is_wanted) = {
            let mut files = FILES.lock();
            let Some(file) = files.get(index).map(Weak::upgrade) else {
                continue;
            };
            let is_wanted = file.as_deref().is_none_or(&wanted);
            if is_wanted {
                files.swap_remove(index);
            }
            // Dropped after the lock, because this may be the last reference.
            (file, is_wanted)
        };
        let Some(node) = file.filter(|_| is_wanted) else {
            continue;
        };
        let Some(regular) = node.regular() else {
            continue;
        };
        match regular.trim(&node.fs) {
            Some(true) => return true,
            Some(false) => {}
            // A task is writing. Try another time.
            None => drop(note(&node)),
        }
    }
    false
}
