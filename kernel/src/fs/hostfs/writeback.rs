//! Writing pages to the host that mappings have changed. A thread does this every few seconds. A
//! task does it when too many pages are dirty, and in `msync`, `fsync` and the last close. This
//! module also decides which files' pages are kept, and which are dropped.

use super::super::used::Cold;
use super::failures::Seen;
use super::known;
use super::node::HostNode;
use super::pages::Choice;
use super::{ALL, Hostfs};
use crate::drivers::volume::{self, Opcode, Request};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::memory::{self, stats};
use machine::sched;
use machine::sync::{Mutex, SpinLock, WaitQueue};

/// How long a page may stay dirty.
const INTERVAL: Nanos = Nanos::from_secs(5);
/// The part of all memory that may be dirty is one in this number.
const LIMIT_PART: u64 = 20;
/// The part of that limit that files of the host may have dirty in any case is one in this number.
const OWN_PART: u64 = 8;
/// Recently opened files, whose pages are kept.
const LATELY: usize = 256;
/// Pages that are dropped after a failed allocation.
const RELIEF: usize = 512;

/// The number of dirty pages of all files.
static DIRTY_PAGES: AtomicI64 = AtomicI64::new(0);
/// Files with dirty pages, or that may get some.
static DIRTY: SpinLock<Vec<Arc<HostNode>>> = SpinLock::new(Vec::new());
/// Held while all files are written. Another task that wants the same waits until it is done.
static WRITING: Mutex<()> = Mutex::new(());
static LAST: SpinLock<[Option<Arc<HostNode>>; LATELY]> = SpinLock::new([const { None }; LATELY]);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static WORKER: WaitQueue = WaitQueue::new();

/// Starts the kernel thread `khostfs`, which writes dirty pages to the host. Call this if a folder
/// of the host is mounted.
pub fn start_thread() {
    sched::spawn_kernel("khostfs", run);
}

fn run() {
    loop {
        let deadline = clock::now().saturating_add(INTERVAL);
        WORKER.wait_uninterruptible_deadline(|| false, deadline);
        let _ = write_all(false);
        known::give_back();
    }
}

/// Adds `node` to the list of files that must soon be written, or closed on the host. Does nothing
/// if the list has it. Returns `false` if memory is short.
pub(super) fn note(node: &HostNode) -> bool {
    let Some(node) = node.this.upgrade() else {
        return true;
    };
    let mut dirty = DIRTY.lock();
    // Relaxed: changed with the lock held.
    if node.listed.load(Ordering::Relaxed) {
        drop(dirty);
        return true;
    }
    if dirty.try_reserve(1).is_err() {
        drop(dirty);
        return false;
    }
    node.listed.store(true, Ordering::Relaxed);
    dirty.push(node);
    true
}

/// Writes all pages that are dirty now to the host and, if `stable`, to its disk. A file stays
/// listed until it is written. Fails with the last error.
fn write_all(stable: bool) -> Result<(), Errno> {
    let _writing = WRITING.lock();
    let mut result = Ok(());
    let (mut at, len) = (0, DIRTY.lock().len());
    for _ in 0..len {
        let Some(node) = DIRTY.lock().get(at).cloned() else {
            break;
        };
        let before = node.failures.count();
        node.write_back();
        if stable {
            let synced = volume::done(&Request::new(Opcode::Sync, node.handle));
            if let Err(error) = synced {
                node.failures.note(error);
            }
        }
        if node.failures.count() != before {
            result = Err(node.failures.last());
        }
        node.close_unused(0);
        let gone = {
            let mut dirty = DIRTY.lock();
            // A view whose pages may be changed relies on the file being listed.
            if node.is_dirty() || node.views.may_change() || at >= dirty.len() {
                at += 1;
                None
            } else {
                node.listed.store(false, Ordering::Relaxed);
                // No other code removes entries.
                Some(dirty.remove(at))
            }
        };
        drop(gone);
    }
    result
}

impl HostNode {
    /// Writes the file to the host, and has the host write it to its disk.
    ///
    /// # Errors
    /// Fails with a write error since the last call with `seen`, and with the error of this call.
    pub(super) fn sync(&self, seen: &Seen) -> Result<(), Errno> {
        self.write_back();
        let synced = volume::done(&Request::new(Opcode::Sync, self.handle));
        self.failures.check(seen)?;
        synced
    }

    /// Closes the file on the host, so that it can be executed there. Does nothing if the file has
    /// dirty pages, if a mapping may change it, or if more than `own` open files may write it.
    pub(super) fn close_unused(&self, own: u32) {
        let _moving = self.moving.lock();
        // Acquire: pairs with the AcqRel of changes to the count.
        if self.opens.load(Ordering::Acquire) <= own
            && !self.is_dirty()
            && !self.views.may_change()
            && self.pinned.swap(false, Ordering::Relaxed)
        {
            let _ = volume::done(&Request::new(Opcode::Close, self.handle));
        }
    }
}

/// Adds `change`, which may be negative, to the number of dirty pages.
pub(super) fn count_dirty(change: i64) {
    // Relaxed: compared with a limit.
    DIRTY_PAGES.fetch_add(change, Ordering::Relaxed);
    stats::count_dirty_pages(change);
}

/// If more pages are dirty than the limit allows, writes pages to the host, first those of `node`.
/// Call this before a page becomes dirty, without a spin lock.
///
/// The limit includes pages of disks, which only the disks' writers write. Does nothing while files
/// of the host have few dirty pages: to write a page unmaps it, so a store to a mapping would never
/// end if each of its faults wrote the page of the one before.
pub(super) fn throttle(node: &HostNode) {
    let limit = memory::allocator().managed_frames() / LIMIT_PART;
    let own = DIRTY_PAGES.load(Ordering::Relaxed);
    if stats::unwritten().0 <= limit || own <= (limit / OWN_PART).cast_signed() {
        return;
    }
    node.write_back();
    if stats::unwritten().0 > limit {
        let _ = write_all(false);
    }
}

/// Writes all pages that mappings have changed to the host, and the host's files to its disk
/// (`sync(2)`). Open files still report the errors by `fsync`.
///
/// # Errors
/// Fails with the last error of this call.
pub fn sync_all() -> Result<(), Errno> {
    write_all(true)
}

/// Adds `node`, which is being opened, to the list of the [`LATELY`] recently opened files. The
/// list keeps the file's pages in memory after the last close. Each new file takes the place of an
/// old one.
pub(super) fn use_lately(node: &Arc<HostNode>) {
    // Relaxed: only a place in the list.
    let at = NEXT.fetch_add(1, Ordering::Relaxed) % LATELY;
    let old = {
        let mut last = LAST.lock();
        if last.iter().flatten().any(|other| Arc::ptr_eq(other, node)) {
            return;
        }
        last[at].replace(node.clone())
    };
    drop(old);
}

/// Removes `node` from the list of recently opened files. Does nothing if the list does not have
/// it.
pub(super) fn use_no_more(node: &HostNode) {
    let mut last = LAST.lock();
    let own = last.iter_mut().find(|place| {
        place
            .as_ref()
            .is_some_and(|other| core::ptr::eq(&**other, node))
    });
    let old = own.and_then(Option::take);
    drop(last);
    drop(old);
}

/// Calls `visit` with each node in use until it returns `false`. No spin lock is held.
fn each_node(mut visit: impl FnMut(&HostNode) -> bool) {
    // Volumes are mounted before there are programs, and stay mounted.
    for number in 0.. {
        let fs: Arc<Hostfs> = match ALL.lock().get(number) {
            Some(fs) => fs.clone(),
            None => break,
        };
        let mut handle = 0;
        while let Some((next, node)) = fs.next_node(handle) {
            handle = next;
            if node.is_some_and(|node| !visit(&node)) {
                return;
            }
        }
    }
}

/// Drops up to `most` unused pages that the host has too. Returns their number.
fn drop_some(most: usize) -> usize {
    let mut dropped = 0;
    each_node(|node| {
        dropped += node.drop_range(0..u64::MAX, Choice::Unused, most - dropped);
        dropped < most
    });
    dropped
}

impl Cold for HostNode {
    fn age(&self) -> u32 {
        self.used.age()
    }

    fn unmap(&self) {
        if self.has_pages() {
            self.views.ask_again(&(0..u64::MAX));
        }
    }

    fn drop_unused(&self) -> usize {
        self.drop_range(0..u64::MAX, Choice::Unused, usize::MAX)
    }
}

/// Calls `visit` with each node in use. Returns the sum of its results. No spin lock is held.
pub(in super::super) fn each_cold(visit: &mut dyn FnMut(&dyn Cold) -> usize) -> usize {
    let mut sum = 0;
    each_node(|node| {
        sum += visit(node);
        sched::cond_resched();
        true
    });
    sum
}

/// Drops unused clean pages of mounted host folders after a failed allocation. Returns `true` if
/// trying again may help. No spin lock may be held.
pub fn relieve() -> bool {
    drop_some(RELIEF) > 0
}

/// Drops all unused clean pages of mounted host folders, and files that are not open.
pub fn drop_clean() {
    drop_some(usize::MAX);
    for at in 0..LATELY {
        let old = LAST.lock()[at].take();
        drop(old);
    }
}
