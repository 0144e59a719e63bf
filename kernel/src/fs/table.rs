//! A process's table of file descriptors.

use super::file::OpenFile;
use super::flags::FileKind;
use super::locks;
use alloc::sync::Arc;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use logic::errno::Errno;
use logic::sparse::{CHUNK, Sparse};
use logic::used_slots::UsedSlots;
use machine::sched;
use machine::sync::SpinLock;

/// The number of descriptors that nobody may exceed (`fs.nr_open`).
pub const MAX_DESCRIPTORS: usize = 1 << 20;

#[derive(Clone, Debug)]
struct Descriptor {
    file: Arc<OpenFile>,
    close_on_exec: bool,
}

#[derive(Default)]
struct Slots {
    slots: Sparse<Descriptor>,
    /// Which of them are used, so that nobody looks through those that are not.
    used: UsedSlots,
}

impl Slots {
    #[inline]
    fn get(&self, fd: i32) -> Result<&Descriptor, Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.slots.get(at).ok_or(Errno::EBADF)
    }

    fn get_mut(&mut self, fd: i32) -> Result<&mut Descriptor, Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.slots.get_mut(at).ok_or(Errno::EBADF)
    }

    /// Makes sure that slot `at` exists.
    #[inline]
    fn grow_to(&mut self, at: usize) -> Result<(), Errno> {
        if self.slots.has(at) {
            return Ok(());
        }
        self.add_slot(at)
    }

    /// Makes slot `at`, which does not exist.
    #[cold]
    fn add_slot(&mut self, at: usize) -> Result<(), Errno> {
        self.slots.prepare(at)?;
        self.used.grow_to(self.slots.len())
    }

    /// Fills a slot that exists; gives what was in it.
    fn put(&mut self, at: usize, descriptor: Descriptor) -> Option<Descriptor> {
        self.used.set(at);
        self.slots.put(at, descriptor)
    }

    /// Empties a slot.
    fn take(&mut self, at: usize) -> Option<Descriptor> {
        let descriptor = self.slots.take(at)?;
        self.used.clear(at);
        Some(descriptor)
    }

    /// Copies the used chunks of another table whose used slots end at `end` or before, and for which memory was reserved.
    /// Returns `false` if there is none for one of them.
    fn copy_used(&mut self, other: &Self, end: usize) -> bool {
        let mut from = 0;
        while let Some(first) = other.used.first_used(from) {
            if !self.slots.copy_chunk(size_slot(first, end), &other.slots) {
                return false;
            }
            from = (first / CHUNK + 1) * CHUNK;
        }
        true
    }

    /// The used slots from `from` on.
    fn used_from(&self, from: usize) -> impl Iterator<Item = (usize, &Descriptor)> {
        let mut next = from;
        core::iter::from_fn(move || {
            let at = self.used.first_used(next)?;
            next = at + 1;
            Some((at, self.slots.get(at)?))
        })
    }
}

/// Returns the slot by which the chunk of slot `first` has its size in a copy of a table whose used slots end at `end`: only
/// the first chunk is smaller than others, if they fit.
fn size_slot(first: usize, end: usize) -> usize {
    if first < CHUNK {
        end.clamp(first + 1, CHUNK) - 1
    } else {
        first
    }
}

/// The table. `CLONE_FILES` shares it, `fork` copies it.
#[derive(Debug, Default)]
pub struct FileTable {
    slots: SpinLock<Slots>,
    /// Tasks that use it: [`FilesOfTask`] counts them.
    users: AtomicUsize,
    /// A process asked for a POSIX lock, so that each close has to look for some.
    has_locks: AtomicBool,
}

/// A task's use of a table. Dropping the last one closes everything in the table, even if another
/// task still looks at it. Drop it where the task may wait.
#[derive(Debug)]
pub struct FilesOfTask(Arc<FileTable>);

impl FilesOfTask {
    /// One more task uses `table`.
    pub fn new(table: Arc<FileTable>) -> Self {
        // Relaxed: if other tasks use the table, the caller does, so the count is not 0 meanwhile.
        table.users.fetch_add(1, Ordering::Relaxed);
        Self(table)
    }
}

impl Deref for FilesOfTask {
    type Target = Arc<FileTable>;
    fn deref(&self) -> &Arc<FileTable> {
        &self.0
    }
}

impl Drop for FilesOfTask {
    fn drop(&mut self) {
        // AcqRel: the last one sees what the others did with the table; pairs with itself.
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.close_all();
        }
    }
}

impl FileTable {
    /// An empty table.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// The open file behind `fd`.
    #[inline]
    pub fn get(&self, fd: i32) -> Result<Arc<OpenFile>, Errno> {
        self.slots
            .lock()
            .get(fd)
            .map(|descriptor| descriptor.file.clone())
    }

    /// Hands the open files behind descriptors to `look`, all as of one moment. It drops none: they may
    /// be the last that hold them.
    pub fn look_up<R>(&self, look: impl FnOnce(&dyn Fn(i32) -> Option<Arc<OpenFile>>) -> R) -> R {
        let slots = self.slots.lock();
        look(&|fd| slots.get(fd).ok().map(|descriptor| descriptor.file.clone()))
    }

    /// Gives `file` the lowest free descriptor at `minimum` or above and below `limit`
    /// (`RLIMIT_NOFILE`); `EMFILE` if there is none.
    pub fn insert(
        &self,
        file: Arc<OpenFile>,
        close_on_exec: bool,
        minimum: usize,
        limit: usize,
    ) -> Result<usize, Errno> {
        let mut slots = self.slots.lock();
        let at = slots.used.first_free(minimum);
        if at >= limit.min(MAX_DESCRIPTORS) {
            // The guard goes first: dropping the file may take other locks.
            drop(slots);
            return Err(Errno::EMFILE);
        }
        if let Err(error) = slots.grow_to(at) {
            drop(slots);
            return Err(error);
        }
        let descriptor = Descriptor {
            file,
            close_on_exec,
        };
        let old = slots.put(at, descriptor);
        debug_assert!(old.is_none(), "descriptor {at} was free");
        Ok(at)
    }

    /// Gives the file behind `fd` another descriptor, as [`Self::insert`] does.
    ///
    /// # Errors
    /// `EBADF`, and as there.
    pub fn duplicate(
        &self,
        fd: i32,
        close_on_exec: bool,
        minimum: usize,
        limit: usize,
    ) -> Result<usize, Errno> {
        let mut slots = self.slots.lock();
        slots.get(fd)?;
        let at = slots.used.first_free(minimum);
        if at >= limit.min(MAX_DESCRIPTORS) {
            return Err(Errno::EMFILE);
        }
        slots.grow_to(at)?;
        let descriptor = Descriptor {
            file: slots.get(fd)?.file.clone(),
            close_on_exec,
        };
        let old = slots.put(at, descriptor);
        debug_assert!(old.is_none(), "descriptor {at} was free");
        Ok(at)
    }

    /// Whether another process uses it too.
    pub fn is_shared(&self) -> bool {
        // Acquire: pairs with the AcqRel of a use's end.
        self.users.load(Ordering::Acquire) > 1
    }

    /// Notes that closing a file may release POSIX locks from now on.
    pub(super) fn note_locks(&self) {
        // Relaxed: whoever closes the file that is being locked looks here with the lock of the slots
        // held, and whoever locks takes it afterwards, to see whether the file was closed.
        self.has_locks.store(true, Ordering::Relaxed);
    }

    /// What is due when a descriptor of `file` is gone: by POSIX any close of a file ends the
    /// process's locks of it.
    fn let_go(&self, file: Arc<OpenFile>, has_locks: bool) {
        if has_locks {
            locks::release_files(self, &file);
        }
        file.close();
    }

    /// Whether there may be locks; asked with the slots locked.
    fn may_have_locks(&self) -> bool {
        // Relaxed: see `note_locks`.
        self.has_locks.load(Ordering::Relaxed)
    }

    /// Makes `fd` mean `file`, and closes what it meant before (`dup2`).
    pub fn replace(
        &self,
        fd: i32,
        file: Arc<OpenFile>,
        close_on_exec: bool,
        limit: usize,
    ) -> Result<(), Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        if at >= limit.min(MAX_DESCRIPTORS) {
            return Err(Errno::EBADF);
        }
        let mut slots = self.slots.lock();
        if let Err(error) = slots.grow_to(at) {
            drop(slots);
            return Err(error);
        }
        let descriptor = Descriptor {
            file,
            close_on_exec,
        };
        let old = slots.put(at, descriptor);
        let has_locks = self.may_have_locks();
        drop(slots);
        if let Some(old) = old {
            self.let_go(old.file, has_locks);
        }
        Ok(())
    }

    /// Whether a further descriptor below `limit` is free, to fail before anything is made.
    pub fn check_room(&self, limit: usize) -> Result<(), Errno> {
        if self.slots.lock().used.first_free(0) < limit.min(MAX_DESCRIPTORS) {
            Ok(())
        } else {
            Err(Errno::EMFILE)
        }
    }

    /// Closes `fd`.
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        let mut slots = self.slots.lock();
        let descriptor = slots.take(at).ok_or(Errno::EBADF)?;
        let has_locks = self.may_have_locks();
        drop(slots);
        self.let_go(descriptor.file, has_locks);
        Ok(())
    }

    /// Closes `fd` if it still means `file`: other threads may have closed it, and opened something else.
    pub fn close_same(&self, fd: i32, file: &Arc<OpenFile>) {
        let mut slots = self.slots.lock();
        let is_same = |found: &Descriptor| Arc::ptr_eq(&found.file, file);
        let taken = match usize::try_from(fd) {
            Ok(at) if slots.get(fd).is_ok_and(is_same) => slots.take(at),
            _ => None,
        };
        let has_locks = self.may_have_locks();
        drop(slots);
        if let Some(descriptor) = taken {
            self.let_go(descriptor.file, has_locks);
        }
    }

    /// Whether `fd` closes on exec.
    pub fn close_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        self.slots
            .lock()
            .get(fd)
            .map(|descriptor| descriptor.close_on_exec)
    }

    /// Sets whether `fd` closes on exec.
    pub fn set_close_on_exec(&self, fd: i32, close: bool) -> Result<(), Errno> {
        self.slots.lock().get_mut(fd)?.close_on_exec = close;
        Ok(())
    }

    /// Returns a copy for a forked process: the same open files.
    ///
    /// # Errors
    /// `ENOMEM`
    pub fn fork_copy(&self) -> Result<Arc<Self>, Errno> {
        // A turn for each time that it grows meanwhile, at most MAX_DESCRIPTORS.
        loop {
            // As far as it is in use; the table may have been larger once.
            let end = self.slots.lock().used.end();
            let mut copy = Slots::default();
            // All memory is there before a file is referred to.
            copy.used.grow_to(end.next_multiple_of(CHUNK))?;
            let mut from = 0;
            while from < end
                && let Some(first) = self.first_used(from)
            {
                copy.slots.reserve_chunk(size_slot(first, end))?;
                from = (first / CHUNK + 1) * CHUNK;
                sched::give_way();
            }
            let slots = self.slots.lock();
            if slots.used.end() > end || !copy.copy_used(&slots, end) {
                continue;
            }
            copy.used.copy_from(&slots.used, slots.used.end());
            drop(slots);
            return Ok(Arc::new(Self {
                slots: SpinLock::new(copy),
                ..Self::default()
            }));
        }
    }

    /// Closes what exec closes.
    pub fn close_for_exec(&self) {
        self.close_where(0, i32::MAX, |descriptor| descriptor.close_on_exec);
    }

    /// Closes `first..=last`.
    pub fn close_range(&self, first: i32, last: i32) {
        self.close_where(first, last, |_| true);
    }

    /// Closes everything, at the end of the last process.
    fn close_all(&self) {
        let mut slots = self.slots.lock();
        let all = core::mem::take(&mut *slots);
        let has_locks = self.may_have_locks();
        // As below.
        drop(slots);
        for descriptor in all.slots.into_values() {
            self.let_go(descriptor.file, has_locks);
            sched::give_way();
        }
    }

    fn close_where(&self, first: i32, last: i32, chosen: impl Fn(&Descriptor) -> bool) {
        let mut from = usize::try_from(first).unwrap_or(0);
        let last = usize::try_from(last).unwrap_or(0);
        loop {
            let mut slots = self.slots.lock();
            let end = slots.slots.len().min(last.saturating_add(1));
            let found = slots.used_from(from).take_while(|(at, _)| *at < end);
            let Some(at) = found.filter(|(_, d)| chosen(d)).map(|(at, _)| at).next() else {
                return;
            };
            let descriptor = slots.take(at);
            let has_locks = self.may_have_locks();
            // Closed without the lock: it may block, or take other locks.
            drop(slots);
            if let Some(descriptor) = descriptor {
                self.let_go(descriptor.file, has_locks);
            }
            from = at + 1;
            sched::give_way();
        }
    }

    /// Sets close-on-exec for `first..=last` (`CLOSE_RANGE_CLOEXEC`).
    pub fn mark_range(&self, first: i32, last: i32) {
        let mut from = usize::try_from(first).unwrap_or(0);
        let last = usize::try_from(last).unwrap_or(0);
        // A turn for each chunk.
        while from <= last {
            let until = (from / CHUNK + 1) * CHUNK;
            let mut slots = self.slots.lock();
            if from >= slots.slots.len() {
                return;
            }
            for at in from..until.min(last.saturating_add(1)) {
                if let Some(descriptor) = slots.slots.get_mut(at) {
                    descriptor.close_on_exec = true;
                }
            }
            drop(slots);
            from = until;
            sched::give_way();
        }
    }

    /// The first slot in use at `from` or above.
    fn first_used(&self, from: usize) -> Option<usize> {
        self.slots.lock().used.first_used(from)
    }

    /// The first descriptor at `from` or above with its file, for `/proc/PID/fd`.
    pub fn next_from(&self, from: usize) -> Option<(usize, Arc<OpenFile>)> {
        let slots = self.slots.lock();
        let (at, descriptor) = slots.used_from(from).next()?;
        Some((at, descriptor.file.clone()))
    }

    /// The first socket at `from` or above, and where to look on; of the many descriptors that there
    /// may be some at a time, as all stand still meanwhile. Nothing else is held by this: closing a file
    /// for good is for who closes it.
    pub fn next_socket(&self, from: usize) -> Option<(Option<Arc<OpenFile>>, usize)> {
        const SOME: usize = 256;
        let slots = self.slots.lock();
        let mut next = None;
        for (at, descriptor) in slots.used_from(from).take(SOME) {
            next = Some((None, at + 1));
            if descriptor.file.node().kind() == FileKind::Socket {
                return Some((Some(descriptor.file.clone()), at + 1));
            }
        }
        next
    }

    /// How many slots there are (`FDSize` in `/proc/PID/status`).
    pub fn size(&self) -> usize {
        let slots = self.slots.lock().slots.len();
        slots.next_power_of_two().max(64)
    }
}
