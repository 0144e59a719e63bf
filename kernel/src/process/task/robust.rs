//! Futexes at a task's end: the robust list, and the word that `pthread_join` waits on.

use crate::process::TaskRef;
use crate::process::futex;
use core::sync::atomic::Ordering;
use machine::uaccess;

/// The most entries of a robust list that are processed; Linux's `ROBUST_LIST_LIMIT`.
const LIMIT: usize = 2048;
/// Futex word: tasks wait.
const WAITERS: u32 = 0x8000_0000;
/// Futex word: the owner died.
const OWNER_DIED: u32 = 0x4000_0000;
/// Futex word: the owner's thread number.
const TID_MASK: u32 = 0x3fff_ffff;

fn read_u64(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    uaccess::copy_in(&mut bytes, address).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// Marks the futexes in the robust list of `task`, which it still holds, as those of a dead owner,
/// and wakes one waiter of each. The program may have put anything into the list, so the walk ends
/// at the first error.
pub(super) fn release_list(task: TaskRef) {
    let head = task.marks().robust_list.swap(0, Ordering::Relaxed);
    if head == 0 {
        return;
    }
    let walk = || {
        let mut entry = read_u64(head)?;
        let offset = read_u64(head.wrapping_add(8))?;
        let pending = read_u64(head.wrapping_add(16))?;
        for _ in 0..LIMIT {
            if entry & !1 == head {
                break;
            }
            let next = read_u64(entry & !1);
            if entry & !1 != pending & !1 {
                release(
                    task,
                    (entry & !1).wrapping_add(offset),
                    entry & 1 != 0,
                    false,
                )?;
            }
            entry = next?;
        }
        if pending & !1 != 0 {
            release(
                task,
                (pending & !1).wrapping_add(offset),
                pending & 1 != 0,
                true,
            )?;
        }
        Some(())
    };
    let _ = walk();
}

/// Marks the lock whose word is at `address` as that of a dead owner, if `task` owns it, and wakes
/// a waiter. A lock with `priority_inheriting` is handed over elsewhere. `pending` says that the
/// task was about to take or free this lock. Returns `None` if the word cannot be accessed.
fn release(task: TaskRef, address: u64, priority_inheriting: bool, pending: bool) -> Option<()> {
    if !address.is_multiple_of(4) {
        return None;
    }
    let mut word = uaccess::atomic::load_u32(address).ok()?;
    if pending && !priority_inheriting && word == 0 {
        // The task may have freed it, and not have woken a waiter yet.
        let _ = futex::wake(address, true, 1, u32::MAX);
        return Some(());
    }
    // Each turn means that another thread has changed the word. Bounded, because others may do so
    // for ever.
    for _ in 0..LIMIT {
        if word & TID_MASK != task.tid() {
            return Some(());
        }
        let marked = word & WAITERS | OWNER_DIED;
        let seen = uaccess::atomic::compare_exchange_u32(address, word, marked).ok()?;
        if seen == word {
            if word & WAITERS != 0 && !priority_inheriting {
                let _ = futex::wake(address, true, 1, u32::MAX);
            }
            return Some(());
        }
        word = seen;
    }
    Some(())
}

/// Clears the word of `task` that `pthread_join` waits on, and wakes the waiter. Does nothing if no
/// word is set.
pub(super) fn clear_child_tid(task: TaskRef) {
    let address = task.marks().clear_child_tid.swap(0, Ordering::Relaxed);
    if address != 0 && uaccess::copy_out(address, &0u32.to_ne_bytes()).is_ok() {
        // A joiner may wait on a private or a shared futex.
        let _ = futex::wake(address, false, 1, u32::MAX);
        let _ = futex::wake(address, true, 1, u32::MAX);
    }
}
