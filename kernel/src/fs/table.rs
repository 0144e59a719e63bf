//! A process's table of file descriptors.

use super::file::OpenFile;
use super::flags::FileKind;
use super::locks;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use logic::errno::Errno;
use logic::used_slots::UsedSlots;
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
    slots: Vec<Option<Descriptor>>,
    /// Which of them are used, so that nobody looks through those that are not.
    used: UsedSlots,
}

impl Slots {
    fn get(&self, fd: i32) -> Result<&Descriptor, Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.slots
            .get(at)
            .and_then(Option::as_ref)
            .ok_or(Errno::EBADF)
    }

    fn get_mut(&mut self, fd: i32) -> Result<&mut Descriptor, Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.slots
            .get_mut(at)
            .and_then(Option::as_mut)
            .ok_or(Errno::EBADF)
    }

    /// How many slots a table has that needs slot `at`.
    fn size_for(at: usize) -> usize {
        (at + 1)
            .max(8)
            .next_power_of_two()
            .min(MAX_DESCRIPTORS.max(at + 1))
    }

    /// Makes sure that slot `at` exists.
    fn grow_to(&mut self, at: usize) -> Result<(), Errno> {
        if at >= self.slots.len() {
            let size = Self::size_for(at);
            let more = size - self.slots.len();
            self.used.grow_to(size)?;
            self.slots
                .try_reserve_exact(more)
                .map_err(|_| Errno::ENOMEM)?;
            self.slots.resize(size, None);
        }
        Ok(())
    }

    /// Fills a slot that exists; gives what was in it.
    fn put(&mut self, at: usize, descriptor: Descriptor) -> Option<Descriptor> {
        self.used.set(at);
        self.slots[at].replace(descriptor)
    }

    /// Empties a slot.
    fn take(&mut self, at: usize) -> Option<Descriptor> {
        let descriptor = self.slots.get_mut(at)?.take()?;
        self.used.clear(at);
        Some(descriptor)
    }

    /// The used slots from `from` on.
    fn used_from(&self, from: usize) -> impl Iterator<Item = (usize, &Descriptor)> {
        let mut next = from;
        core::iter::from_fn(move || {
            let at = self.used.first_used(next)?;
            next = at + 1;
            Some((at, self.slots.get(at)?.as_ref()?))
        })
    }
}

/// The table. `CLONE_FILES` shares it, `fork` copies it.
#[derive(Debug, Default)]
pub struct FileTable {
    slots: SpinLock<Slots>,
    /// Processes that use it: [`FilesOfProcess`] counts them.
    processes: AtomicUsize,
    /// A process asked for a POSIX lock, so that each close has to look for some.
    has_locks: AtomicBool,
}

/// A process's use of a table. With the last one everything in the table is closed, whoever looks
/// at it still. Drop it where the task may wait.
#[derive(Debug)]
pub struct FilesOfProcess(Arc<FileTable>);

impl FilesOfProcess {
    /// One more process uses `table`.
    pub fn new(table: Arc<FileTable>) -> Self {
        // Relaxed: whoever hands the table to another process has it in use meanwhile.
        table.processes.fetch_add(1, Ordering::Relaxed);
        Self(table)
    }
}

impl Deref for FilesOfProcess {
    type Target = Arc<FileTable>;
    fn deref(&self) -> &Arc<FileTable> {
        &self.0
    }
}

impl Drop for FilesOfProcess {
    fn drop(&mut self) {
        // AcqRel: the last one sees what the others did with the table; pairs with itself.
        if self.0.processes.fetch_sub(1, Ordering::AcqRel) == 1 {
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
        self.processes.load(Ordering::Acquire) > 1
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

    /// A copy for a forked process: the same open files.
    pub fn fork_copy(&self) -> Result<Arc<Self>, Errno> {
        loop {
            // As far as it is in use; the table may have been larger once.
            let end = self.slots.lock().used.end();
            let size = if end == 0 {
                0
            } else {
                Slots::size_for(end - 1)
            };
            let mut copy = Slots::default();
            copy.used.grow_to(size)?;
            copy.slots
                .try_reserve_exact(size)
                .map_err(|_| Errno::ENOMEM)?;
            let slots = self.slots.lock();
            let end = slots.used.end();
            if end > size {
                continue; // It grew meanwhile; at most MAX_DESCRIPTORS doublings.
            }
            copy.slots.extend(slots.slots[..end].iter().cloned());
            copy.used.copy_from(&slots.used, end);
            drop(slots);
            copy.slots.resize(size, None);
            let slots = copy;
            return Ok(Arc::new(Self {
                slots: SpinLock::new(slots),
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
        for descriptor in all.slots.into_iter().flatten() {
            self.let_go(descriptor.file, has_locks);
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
        }
    }

    /// Sets close-on-exec for `first..=last` (`CLOSE_RANGE_CLOEXEC`).
    pub fn mark_range(&self, first: i32, last: i32) {
        let mut slots = self.slots.lock();
        let first = usize::try_from(first).unwrap_or(0);
        let last = usize::try_from(last).unwrap_or(0);
        let range = slots
            .slots
            .iter_mut()
            .take(last.saturating_add(1))
            .skip(first);
        for descriptor in range.flatten() {
            descriptor.close_on_exec = true;
        }
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
        self.slots.lock().slots.len().max(64)
    }
}
