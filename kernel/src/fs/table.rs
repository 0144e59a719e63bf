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

/// The most descriptors of any process (`fs.nr_open`).
pub const MAX_DESCRIPTORS: usize = 1 << 20;

#[derive(Clone, Debug)]
struct Descriptor {
    file: Arc<OpenFile>,
    close_on_exec: bool,
}

/// A locked table of descriptors, for lookups.
pub struct Looked<'a>(&'a Slots);

impl Looked<'_> {
    /// Returns the open file of the descriptor `fd`, or `None` if it is unused.
    #[inline]
    pub fn get(&self, fd: i32) -> Option<Arc<OpenFile>> {
        self.0
            .get(fd)
            .ok()
            .map(|descriptor| descriptor.file.clone())
    }
}

#[derive(Default)]
struct Slots {
    slots: Sparse<Descriptor>,
    /// The indices of used slots, so that searches skip the others.
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

    /// Creates slot `at` if it does not exist. Fails with `ENOMEM`.
    #[inline]
    fn grow_to(&mut self, at: usize) -> Result<(), Errno> {
        if self.slots.has(at) {
            return Ok(());
        }
        self.add_slot(at)
    }

    /// Creates slot `at`, which does not exist. Fails with `ENOMEM`.
    #[cold]
    fn add_slot(&mut self, at: usize) -> Result<(), Errno> {
        self.slots.prepare(at)?;
        self.used.grow_to(self.slots.len())
    }

    /// Fills a slot that exists. Returns the descriptor that was in it, if any.
    fn put(&mut self, at: usize, descriptor: Descriptor) -> Option<Descriptor> {
        self.used.set(at);
        self.slots.put(at, descriptor)
    }

    /// Empties a slot. Returns the descriptor that was in it, if any.
    fn take(&mut self, at: usize) -> Option<Descriptor> {
        let descriptor = self.slots.take(at)?;
        self.used.clear(at);
        Some(descriptor)
    }

    /// Copies the used chunks of `other`. Its used slots end at `end` or before, and memory was
    /// reserved for its chunks. Returns `false` if no memory was reserved for one of them.
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

    /// Returns the used slots from `from` on.
    fn used_from(&self, from: usize) -> impl Iterator<Item = (usize, &Descriptor)> {
        let mut next = from;
        core::iter::from_fn(move || {
            let at = self.used.first_used(next)?;
            next = at + 1;
            Some((at, self.slots.get(at)?))
        })
    }
}

/// Returns the slot that determines the size of a chunk in a copy of a table whose used slots end
/// at `end`. `first` is a slot of the chunk. Only the first chunk may be smaller than the others,
/// if all its used slots fit.
fn size_slot(first: usize, end: usize) -> usize {
    if first < CHUNK {
        end.clamp(first + 1, CHUNK) - 1
    } else {
        first
    }
}

/// A table of descriptors. `CLONE_FILES` shares it, `fork` copies it.
#[derive(Debug, Default)]
pub struct FileTable {
    slots: SpinLock<Slots>,
    /// The number of tasks that use the table, counted by [`FilesOfTask`].
    users: AtomicUsize,
    /// Whether a process has requested a POSIX lock, so that each close must look for locks.
    has_locks: AtomicBool,
}

/// The use of a table of descriptors by one task. The drop of the last such use closes all
/// descriptors of the table, even if other references to the table remain. Drop it where the task
/// may block.
#[derive(Debug)]
pub struct FilesOfTask(Arc<FileTable>);

impl FilesOfTask {
    /// Returns the use of `table` by one more task. It counts until it is dropped.
    pub fn new(table: Arc<FileTable>) -> Self {
        // Relaxed: if other tasks use the table, so does the caller, and its use keeps the count
        // above 0.
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
        // AcqRel: pairs with itself. The last task sees everything that the others did with the
        // table.
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.close_all();
        }
    }
}

impl FileTable {
    /// Returns an empty table.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Returns the open file of the descriptor `fd`. Fails with `EBADF` if `fd` is unused.
    #[inline]
    pub fn get(&self, fd: i32) -> Result<Arc<OpenFile>, Errno> {
        self.slots
            .lock()
            .get(fd)
            .map(|descriptor| descriptor.file.clone())
    }

    /// Calls `look` with the locked table, and returns its result. `look` must not drop a reference
    /// to an open file, because it may be the last one.
    #[inline]
    pub fn look_up<R>(&self, look: impl FnOnce(Looked<'_>) -> R) -> R {
        let slots = self.slots.lock();
        look(Looked(&slots))
    }

    /// Gives `file` the lowest free descriptor that is at least `minimum` and below `limit`
    /// (`RLIMIT_NOFILE`). `close_on_exec` says whether exec closes the descriptor. Returns the
    /// descriptor.
    ///
    /// # Errors
    /// Fails with `EMFILE` if no such descriptor is free, and with `ENOMEM`.
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
            // The lock is released first: dropping the file may take other locks.
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

    /// Gives the open file of `fd` another descriptor, as [`Self::insert`] does. Returns the new
    /// descriptor.
    ///
    /// # Errors
    /// Fails with `EBADF` if `fd` is not open, and as [`Self::insert`].
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

    /// Returns whether more than one task uses the table.
    pub fn is_shared(&self) -> bool {
        // Acquire: pairs with the AcqRel at the end of a use.
        self.users.load(Ordering::Acquire) > 1
    }

    /// Records that closing a file may release POSIX locks from now on.
    pub(super) fn note_locks(&self) {
        // Relaxed: the lock of the slots orders this. A task that closes the file which is being
        // locked reads the flag with that lock held. The task that locks takes it afterwards to see
        // whether the file was closed.
        self.has_locks.store(true, Ordering::Relaxed);
    }

    /// Closes `file` after its descriptor was removed. If `has_locks`, first releases the process's
    /// POSIX locks on the file: by POSIX, any close of a file ends them.
    fn let_go(&self, file: Arc<OpenFile>, has_locks: bool) {
        if has_locks {
            locks::release_files(self, &file);
        }
        file.close();
    }

    /// Returns whether the process may have locks. Called with the slots locked.
    fn may_have_locks(&self) -> bool {
        // Relaxed: see `note_locks`.
        self.has_locks.load(Ordering::Relaxed)
    }

    /// Makes `fd` refer to `file`, and closes the file that it referred to before (`dup2`).
    /// `close_on_exec` says whether exec closes `fd`.
    ///
    /// # Errors
    /// Fails with `EBADF` if `fd` is negative or not below `limit`, and with `ENOMEM`.
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

    /// Checks that another descriptor below `limit` is free, so that a call can fail before it
    /// creates anything. Fails with `EMFILE` if none is free.
    pub fn check_room(&self, limit: usize) -> Result<(), Errno> {
        if self.slots.lock().used.first_free(0) < limit.min(MAX_DESCRIPTORS) {
            Ok(())
        } else {
            Err(Errno::EMFILE)
        }
    }

    /// Closes the descriptor `fd`. Fails with `EBADF` if `fd` is unused.
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        let mut slots = self.slots.lock();
        let descriptor = slots.take(at).ok_or(Errno::EBADF)?;
        let has_locks = self.may_have_locks();
        drop(slots);
        self.let_go(descriptor.file, has_locks);
        Ok(())
    }

    /// Closes `fd` if it still refers to `file`. Does nothing if another thread has closed `fd` in
    /// the meantime, even if `fd` refers to another file now.
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

    /// Returns whether exec closes `fd`. Fails with `EBADF` if `fd` is unused.
    pub fn close_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        self.slots
            .lock()
            .get(fd)
            .map(|descriptor| descriptor.close_on_exec)
    }

    /// Sets whether exec closes `fd`. Fails with `EBADF` if `fd` is unused.
    pub fn set_close_on_exec(&self, fd: i32, close: bool) -> Result<(), Errno> {
        self.slots.lock().get_mut(fd)?.close_on_exec = close;
        Ok(())
    }

    /// Returns a copy for a forked process, with the same open files.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn fork_copy(&self) -> Result<Arc<Self>, Errno> {
        // One turn for each time that the table grows in between, at most MAX_DESCRIPTORS.
        loop {
            // Only up to the last used slot: the table may have been larger once.
            let end = self.slots.lock().used.end();
            let mut copy = Slots::default();
            // All memory is reserved before a reference to a file is taken.
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

    /// Closes the descriptors that exec closes.
    pub fn close_for_exec(&self) {
        self.close_where(0, i32::MAX, |descriptor| descriptor.close_on_exec);
    }

    /// Closes the descriptors `first..=last`.
    pub fn close_range(&self, first: i32, last: i32) {
        self.close_where(first, last, |_| true);
    }

    /// Closes all descriptors, when the last task stops using the table.
    fn close_all(&self) {
        let mut slots = self.slots.lock();
        let all = core::mem::take(&mut *slots);
        let has_locks = self.may_have_locks();
        // Files are closed without the lock, as in `close_where`.
        drop(slots);
        for descriptor in all.slots.into_values() {
            self.let_go(descriptor.file, has_locks);
            sched::give_way();
        }
    }

    fn close_where(&self, first: i32, last: i32, chosen: impl Fn(&Descriptor) -> bool) {
        /// The number of descriptors that are examined under one hold of the lock.
        const AT_ONCE: usize = 1024;
        let mut from = usize::try_from(first).unwrap_or(0);
        let last = usize::try_from(last).unwrap_or(0);
        loop {
            let mut slots = self.slots.lock();
            let end = slots.slots.len().min(last.saturating_add(1));
            let found = slots.used_from(from).take_while(|(at, _)| *at < end);
            let mut examined = from;
            let found = found
                .take(AT_ONCE)
                .inspect(|(at, _)| examined = at + 1)
                .find(|(_, descriptor)| chosen(descriptor))
                .map(|(at, _)| at);
            let Some(at) = found else {
                let ended = slots
                    .used_from(examined)
                    .next()
                    .is_none_or(|(at, _)| at >= end);
                drop(slots);
                if ended {
                    return;
                }
                from = examined;
                sched::give_way();
                continue;
            };
            let descriptor = slots.take(at);
            let has_locks = self.may_have_locks();
            // The file is closed without the lock: that may block, or take other locks.
            drop(slots);
            if let Some(descriptor) = descriptor {
                self.let_go(descriptor.file, has_locks);
            }
            from = at + 1;
            sched::give_way();
        }
    }

    /// Sets close-on-exec for the descriptors `first..=last` (`CLOSE_RANGE_CLOEXEC`).
    pub fn mark_range(&self, first: i32, last: i32) {
        let mut from = usize::try_from(first).unwrap_or(0);
        let last = usize::try_from(last).unwrap_or(0);
        // One turn for each chunk.
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

    /// Returns the first used slot that is at least `from`, or `None` if there is none.
    fn first_used(&self, from: usize) -> Option<usize> {
        self.slots.lock().used.first_used(from)
    }

    /// Returns the first descriptor that is at least `from`, with its file, for `/proc/PID/fd`.
    /// Returns `None` if there is none.
    pub fn next_from(&self, from: usize) -> Option<(usize, Arc<OpenFile>)> {
        let slots = self.slots.lock();
        let (at, descriptor) = slots.used_from(from).next()?;
        Some((at, descriptor.file.clone()))
    }

    /// Searches for the first socket among the descriptors from `from` on. Examines at most 256
    /// descriptors, because the table is locked. Returns the socket, or `None` in its place if the
    /// search met none, and the descriptor at which the next search begins. Returns `None` if no
    /// descriptor from `from` on is in use. Takes no reference to other files, so the last
    /// reference to them stays with the tasks that close them.
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

    /// Returns the number of slots that Linux's table would have: a power of two, at least 64.
    /// `/proc/PID/status` shows this number (`FDSize`), and `select` ignores descriptors from it
    /// on.
    pub fn size(&self) -> usize {
        let slots = self.slots.lock().slots.len();
        slots.next_power_of_two().max(64)
    }
}
