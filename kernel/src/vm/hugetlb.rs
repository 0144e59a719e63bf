//! Memory of the pool of huge pages: files of such pages, and their reservations (*promises*).
//!
//! As on Linux, a shared mapping reserves pages for the file, until the file ends. A private
//! mapping reserves them for itself and the space that made it. A child of `fork` has no
//! reservation.

use super::pages::Wish;
use super::source::{MappedFile, Mappings, PageSource};
use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use logic::radix::RadixTree;
use machine::memory::FrameRef;
use machine::memory::hugetlb::{self, HugePage, PageSize};
use machine::sync::{Mutex, SpinLock};

/// Device number of the kernel's own files of huge pages.
const DEVICE: u64 = 15;
/// The number of pages that are dropped before other tasks may run.
const BATCH: usize = 32;

/// The inode number of the next of the kernel's own files of huge pages.
static NEXT_INODE: AtomicU64 = AtomicU64::new(1);

/// The state of one page of a file.
enum Slot {
    /// The page does not exist yet, but a page of the pool is reserved for it.
    Promised,
    Page(HugePage),
}

/// The share of a pool of huge pages that the files of one file system may use (mount options
/// `size` and `min_size`).
pub struct Subpool {
    size: PageSize,
    /// The largest number of pages. `None` for no limit.
    most: Option<u64>,
    /// The number of pages that are reserved for these files, used or not. `None` means 0. For a
    /// while fewer are reserved, if the pool had none left when the files gave up theirs.
    least: Option<u64>,
    usage: SpinLock<Usage>,
}

#[derive(Copy, Clone, Default)]
struct Usage {
    /// The number of pages that the files have, or have reserved.
    used: u64,
    /// The number of pages that are reserved for the file system and not used by any of its files.
    kept: u64,
}

impl fmt::Debug for Subpool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subpool")
            .field("size", &self.size)
            .field("most", &self.most)
            .field("least", &self.least)
            .finish_non_exhaustive()
    }
}

impl Subpool {
    /// Returns a part of the pool with at most `most` pages, and reserves `least` pages for it.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if the pool has fewer than `least` free pages.
    pub fn new(size: PageSize, most: Option<u64>, least: Option<u64>) -> Result<Arc<Self>, Errno> {
        let kept = least.unwrap_or(0);
        hugetlb::reserve(size, kept)?;
        Ok(Arc::new(Self {
            size,
            most,
            least,
            usage: SpinLock::new(Usage { used: 0, kept }),
        }))
    }

    /// Returns a part of the pool without limits.
    pub fn unlimited(size: PageSize) -> Arc<Self> {
        Arc::new(Self {
            size,
            most: None,
            least: None,
            usage: SpinLock::new(Usage::default()),
        })
    }

    /// Returns the size of the files' pages.
    pub const fn size(&self) -> PageSize {
        self.size
    }

    /// Returns the largest number of pages that the files may have, and the number of pages that
    /// are reserved for them. A limit that was not set is `None`.
    pub const fn limits(&self) -> (Option<u64>, Option<u64>) {
        (self.most, self.least)
    }

    /// Returns the number of all pages and of free pages, for `statfs`. Both are `u64::MAX` if only
    /// the number of reserved pages was set. Returns `None` if no limit was set.
    pub fn room(&self) -> Option<(u64, u64)> {
        match (self.most, self.least) {
            (Some(most), _) => Some((most, most.saturating_sub(self.usage.lock().used))),
            (None, Some(_)) => Some((u64::MAX, u64::MAX)),
            (None, None) => None,
        }
    }

    fn least(&self) -> u64 {
        self.least.unwrap_or(0)
    }

    /// Counts `pages` more pages. Returns how many of them are already reserved for the file
    /// system. The caller must reserve the others.
    ///
    /// # Errors
    /// Fails with `ENOSPC` if the file system would have more pages than it may.
    fn charge(&self, pages: u64) -> Result<u64, Errno> {
        let mut usage = self.usage.lock();
        let sum = usage
            .used
            .checked_add(pages)
            .filter(|&sum| self.most.is_none_or(|most| sum <= most));
        usage.used = sum.ok_or(Errno::ENOSPC)?;
        let promised = usage.kept.min(pages);
        usage.kept -= promised;
        Ok(promised)
    }

    /// Uncounts pages, and returns to the pool those of their reservations that are no longer
    /// needed.
    fn discharge(&self, pages: u64, promised: u64) {
        let (spare, missing) = {
            let mut usage = self.usage.lock();
            usage.used -= pages;
            let wanted = self.least().saturating_sub(usage.used + usage.kept);
            let kept = wanted.min(promised);
            usage.kept += kept;
            (promised - kept, wanted - kept)
        };
        if spare != 0 {
            hugetlb::unreserve(self.size, spare);
        }
        for _ in 0..missing {
            // The pages are free now, and another task may take them first. Then fewer are kept for
            // the files.
            if hugetlb::reserve(self.size, 1).is_err() {
                return;
            }
            let excess = {
                let mut usage = self.usage.lock();
                let excess = usage.used + usage.kept >= self.least();
                usage.kept += u64::from(!excess);
                excess
            };
            if excess {
                hugetlb::unreserve(self.size, 1);
                return;
            }
        }
    }
}

impl Drop for Subpool {
    fn drop(&mut self) {
        let kept = self.usage.get_mut().kept;
        hugetlb::unreserve(self.size, kept);
    }
}

/// A file of huge pages.
pub struct HugeFile {
    subpool: Arc<Subpool>,
    slots: SpinLock<RadixTree<Slot>>,
    /// Held by a task that creates a page, so that no two tasks create the same one.
    making: Mutex<()>,
    bytes: AtomicU64,
    mappings: Mappings,
}

impl fmt::Debug for HugeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HugeFile")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Returns the indices of the huge pages that the bytes `range` touch.
fn touched(size: PageSize, range: &Range<u64>) -> Range<u64> {
    range.start / size.bytes()..range.end.div_ceil(size.bytes())
}

impl HugeFile {
    /// Returns an empty file of `bytes` bytes.
    pub fn new(size: PageSize, bytes: u64) -> Self {
        let file = Self::in_subpool(Subpool::unlimited(size));
        file.extend(bytes);
        file
    }

    /// Returns an empty file of length 0 in the file system of `subpool`.
    pub fn in_subpool(subpool: Arc<Subpool>) -> Self {
        Self {
            subpool,
            slots: SpinLock::new(RadixTree::new()),
            making: Mutex::new(()),
            bytes: AtomicU64::new(0),
            mappings: Mappings::new(),
        }
    }

    /// Returns the size of the file's pages.
    pub fn page_size(&self) -> PageSize {
        self.subpool.size
    }

    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        // Relaxed (all): a fault that sees an old size meets the truncation's walk.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Extends the file to `bytes` bytes if it is smaller.
    pub fn extend(&self, bytes: u64) {
        self.bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Sets the size of the file, and drops the pages behind the end.
    pub fn set_bytes(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        // As on Linux also those that were allocated beyond its end.
        let dropped = self.drop_slots(bytes.div_ceil(self.page_size().bytes())..u64::MAX);
        if dropped || bytes < before {
            let pages = bytes.div_ceil(4096)..u64::MAX;
            self.mappings.truncate(self, pages);
        }
    }

    /// Returns the number of pages in the file.
    pub fn pages(&self) -> u64 {
        let slots = self.slots.lock();
        let (mut at, mut count) = (0, 0);
        while let Some((index, slot)) = slots.next_from(at) {
            count += u64::from(matches!(slot, Slot::Page(_)));
            at = index + 1;
        }
        count
    }

    /// Reserves pages of the pool for the bytes `range`, for a shared mapping of the file. Pages
    /// that the file has, or has reserved already, need no further reservation.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if the pool does not have enough free pages, the file system may not
    /// have them, or memory is short.
    pub fn promise(&self, range: &Range<u64>) -> Result<(), Errno> {
        let _making = self.making.lock();
        let wanted = self.missing(touched(self.page_size(), range));
        let kept = self.subpool.charge(wanted).map_err(|_| Errno::ENOMEM)?;
        if let Err(error) = hugetlb::reserve(self.page_size(), wanted - kept) {
            self.subpool.discharge(wanted, kept);
            return Err(error);
        }
        let mut left = wanted;
        for index in touched(self.page_size(), range) {
            let mut slots = self.slots.lock();
            if slots.get(index).is_some() {
                continue;
            }
            if slots.insert(index, Slot::Promised).is_err() {
                drop(slots);
                self.subpool.discharge(left, left);
                return Err(Errno::ENOMEM);
            }
            left -= 1;
        }
        debug_assert_eq!(left, 0, "what is made or dropped waits");
        Ok(())
    }

    /// Returns the number of `indices` without a page or a reservation. The program chooses the
    /// range, so only the slots in use are visited: the pool limits their number.
    fn missing(&self, indices: Range<u64>) -> u64 {
        let slots = self.slots.lock();
        let (mut at, mut missing) = (indices.start, indices.end - indices.start);
        while let Some((index, _)) = slots.next_from(at).filter(|&(at, _)| at < indices.end) {
            missing -= 1;
            at = index + 1;
        }
        missing
    }

    /// Returns the page `index`, or `None` if the file does not have it.
    pub fn present(&self, index: u64) -> Option<HugePage> {
        match self.slots.lock().get(index) {
            Some(Slot::Page(page)) => Some(page.clone()),
            _ => None,
        }
    }

    /// Returns the page `index` for a mapping, and creates it if it is missing. Returns `None` if
    /// the file ends before the page, the pool has no page, the file system may have no more, or
    /// memory is short.
    pub(super) fn mapped_page(&self, index: u64) -> Option<HugePage> {
        self.make(index, || {
            index < self.bytes().div_ceil(self.page_size().bytes())
        })
    }

    /// Returns the page `index`, even behind the end of the file, and creates it if it is missing.
    /// Returns `None` if the pool has no page, the file system may have no more, or memory is
    /// short.
    pub fn page_or_new(&self, index: u64) -> Option<HugePage> {
        self.make(index, || true)
    }

    /// Returns the page `index`, or creates it if `wanted` returns `true`. Calls `wanted` while no
    /// task can drop pages: a truncation drops pages after it has set the size.
    fn make(&self, index: u64, wanted: impl Fn() -> bool) -> Option<HugePage> {
        if let Some(page) = self.present(index) {
            return Some(page);
        }
        let _making = self.making.lock();
        if !wanted() {
            return None;
        }
        let known = match self.slots.lock().get(index) {
            Some(Slot::Page(page)) => return Some(page.clone()),
            Some(Slot::Promised) => true,
            None => false,
        };
        let promised = known || {
            let kept = self.subpool.charge(1).ok()?;
            // A place for the page, before there is one.
            if self.slots.lock().insert(index, Slot::Promised).is_err() {
                self.subpool.discharge(1, kept);
                return None;
            }
            kept == 1
        };
        let page = HugePage::take(self.page_size(), promised);
        match &page {
            Some(page) => {
                if let Some(slot) = self.slots.lock().get_mut(index) {
                    *slot = Slot::Page(page.clone());
                }
            }
            None => {
                // It was not promised, or it was lost in a report to the host.
                let mut place = [None];
                self.slots.lock().take_batch(index, index + 1, &mut place);
                self.subpool.discharge(1, 0);
            }
        }
        page
    }

    /// Drops the pages of `indices`, and the reservations there that have no page yet. Returns
    /// whether there were any.
    fn drop_slots(&self, indices: Range<u64>) -> bool {
        // Who makes a page has promised it to himself for the moment.
        let _making = self.making.lock();
        let (mut from, mut any) = (indices.start, false);
        loop {
            let mut batch = [const { None }; BATCH];
            let (taken, next) = self.slots.lock().take_batch(from, indices.end, &mut batch);
            from = next;
            let promised = batch
                .iter()
                .filter(|slot| matches!(slot, Some(Slot::Promised)))
                .count() as u64;
            drop(batch);
            if taken != 0 {
                self.subpool.discharge(taken as u64, promised);
                any = true;
            }
            if taken < BATCH {
                return any;
            }
        }
    }

    /// Drops the pages of `indices` and keeps their reservations.
    fn drop_pages(&self, indices: Range<u64>) {
        let _making = self.making.lock();
        let mut from = indices.start;
        loop {
            let mut taken = [None];
            {
                let mut slots = self.slots.lock();
                let Some((index, slot)) = slots.next_from(from).filter(|&(at, _)| at < indices.end)
                else {
                    return;
                };
                from = index + 1;
                if matches!(slot, Slot::Page(_)) {
                    slots.take_batch(index, from, &mut taken);
                }
            }
            let [page] = taken;
            if page.is_some() {
                drop(page);
                self.subpool.discharge(1, 0);
            }
            machine::sched::cond_resched();
        }
    }

    /// Frees the bytes of `range`: drops whole pages, and zeroes parts of others. As on Linux,
    /// reservations stay.
    pub fn punch_bytes(&self, range: Range<u64>) {
        let size = self.page_size();
        let whole = range.start.div_ceil(size.bytes())..range.end / size.bytes();
        if whole.start < whole.end {
            self.drop_pages(whole.clone());
            self.mappings
                .invalidate(self, whole.start * size.frames()..whole.end * size.frames());
            self.zero(range.start..whole.start * size.bytes());
            self.zero(whole.end * size.bytes()..range.end);
        } else {
            self.zero(range);
        }
    }

    /// Zeroes the bytes of `range` in pages that the file has.
    fn zero(&self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / 4096 + 1) * 4096);
            let bytes = self.page_size().bytes();
            if let Some(page) = self.present(at / bytes) {
                let frame = FrameRef::new_reference(page.frame().offset(at % bytes / 4096));
                #[expect(clippy::cast_possible_truncation, reason = "within a page")]
                frame.zero((at % 4096) as usize, (end - at) as usize);
                machine::sched::give_way();
            }
            at = end;
        }
    }
}

impl PageSource for HugeFile {
    fn page(&self, index: u64, _: Wish) -> Result<Option<FrameRef>, Errno> {
        if index >= self.bytes().div_ceil(4096) {
            return Ok(None);
        }
        let frames = self.page_size().frames();
        let page = self.mapped_page(index / frames).ok_or(Errno::ENOMEM)?;
        let frame = page.frame().offset(index % frames);
        Ok(Some(FrameRef::new_reference(frame)))
    }

    fn punch(&self, range: Range<u64>) -> Result<(), Errno> {
        if self.mappings.denies_stores() {
            return Err(Errno::EPERM);
        }
        self.punch_bytes(range);
        Ok(())
    }

    fn resident(&self) -> u64 {
        self.pages() * self.page_size().frames()
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    fn as_huge(&self) -> Option<&HugeFile> {
        Some(self)
    }
}

impl Drop for HugeFile {
    fn drop(&mut self) {
        self.drop_slots(0..u64::MAX);
    }
}

/// Returns the size of huge pages that a program requests by `logarithm`, the binary logarithm of
/// the size in bytes (`MAP_HUGE_SHIFT`). 0 stands for the default size.
///
/// # Errors
/// Fails with `EINVAL` for a size without a pool.
pub fn named_size(logarithm: u32) -> Result<PageSize, Errno> {
    if logarithm == 0 {
        return Ok(hugetlb::default_size());
    }
    let bytes = 1_u64.checked_shl(logarithm);
    bytes.and_then(PageSize::of_bytes).ok_or(Errno::EINVAL)
}

/// Returns a new nameless file of `bytes` bytes for an anonymous mapping of huge pages. `bytes` is
/// a multiple of `size`.
pub fn anonymous(size: PageSize, bytes: u64) -> MappedFile {
    // Relaxed: only has to be different each time.
    let inode = NEXT_INODE.fetch_add(1, Ordering::Relaxed);
    MappedFile::new(
        Arc::new(HugeFile::new(size, bytes)),
        Arc::from(&b"/anon_hugepage (deleted)"[..]),
        inode,
        DEVICE,
    )
}

/// The reservation of huge pages for a private mapping of a file. The pages also count for the
/// file's file system until they are unmapped.
pub(super) struct Promises {
    /// The number of the space that has the reservation.
    owner: u64,
    subpool: Arc<Subpool>,
    held: SpinLock<Held>,
}

struct Held {
    /// The indices in the file of pages that are reserved and were not touched yet.
    indices: RadixTree<()>,
    /// The number of pages of the mapping that count for the file system.
    counted: u64,
}

/// The numbers of pages to give back when a part of a reservation ends.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Ended {
    pages: u64,
    promised: u64,
}

impl Promises {
    /// Reserves pages for the bytes `range` of `file`, for the space number `owner`.
    ///
    /// # Errors
    /// Fails with `ENOMEM` if the pool does not have this number of free pages, the file system may
    /// not have them, or memory is short.
    pub(super) fn new(owner: u64, file: &HugeFile, range: &Range<u64>) -> Result<Self, Errno> {
        let size = file.page_size();
        let indices = touched(size, range);
        let count = indices.end - indices.start;
        let subpool = file.subpool.clone();
        let kept = subpool.charge(count).map_err(|_| Errno::ENOMEM)?;
        if let Err(error) = hugetlb::reserve(size, count - kept) {
            subpool.discharge(count, kept);
            return Err(error);
        }
        let mut tree = RadixTree::new();
        for index in indices {
            if tree.insert(index, ()).is_err() {
                subpool.discharge(count, count);
                return Err(Errno::ENOMEM);
            }
        }
        Ok(Self {
            owner,
            subpool,
            held: SpinLock::new(Held {
                indices: tree,
                counted: count,
            }),
        })
    }

    /// Returns whether the reservation belongs to the space with the number `space`.
    pub(super) const fn is_of(&self, space: u64) -> bool {
        self.owner == space
    }

    /// Uses up the reservation of the page `index`, because the caller allocates the page. Returns
    /// `false` if the space with the number `space` has no reservation for it.
    pub(super) fn claim(&self, space: u64, index: u64) -> bool {
        let mut out = [None];
        let mut take = || {
            self.held
                .lock()
                .indices
                .take_batch(index, index + 1, &mut out)
                .0
        };
        space == self.owner && take() == 1
    }

    /// Reserves the page `index` again and drops `page`, which was allocated from the reservation
    /// and not used.
    pub(super) fn renew(&self, index: u64, page: HugePage) {
        // In this order: who finds the promise finds the page.
        page.renounce();
        if self.held.lock().indices.insert(index, ()).is_err() {
            hugetlb::unreserve(self.subpool.size, 1);
        }
    }

    /// Ends the reservation of the space with the number `space` for the bytes `range` of the file.
    /// Returns the pages to give back, which the caller passes to [`Self::discharge`] without a
    /// lock. They are none if the reservation belongs to another space.
    pub(super) fn end(&self, space: u64, range: &Range<u64>) -> Ended {
        if space != self.owner {
            return Ended::default();
        }
        let Range { start, end } = touched(self.subpool.size, range);
        let (mut from, mut promised) = (start, 0);
        let mut held = self.held.lock();
        loop {
            let mut batch = [None; BATCH];
            let (taken, next) = held.indices.take_batch(from, end, &mut batch);
            from = next;
            promised += taken as u64;
            if taken < BATCH {
                break;
            }
        }
        let pages = held.counted.min(end - start);
        held.counted -= pages;
        Ended { pages, promised }
    }

    /// Gives the pages in `ended` back to the file system and the pool. The caller holds no lock.
    pub(super) fn discharge(&self, ended: Ended) {
        if ended.pages != 0 || ended.promised != 0 {
            self.subpool.discharge(ended.pages, ended.promised);
        }
    }
}

impl Drop for Promises {
    fn drop(&mut self) {
        let ended = self.end(self.owner, &(0..u64::MAX));
        self.discharge(ended);
    }
}
