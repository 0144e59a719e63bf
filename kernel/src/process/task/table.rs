//! All processes and tasks by their numbers. The table's lock also guards the relations between
//! processes.

use super::{Process, Task};
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::Errno;
use logic::numbers::{GROUP, GROUPS, Numbers, PID_MAX, RESERVED};
use machine::sync::{SpinGuard, SpinLock};

/// Numbers in one chunk of the table.
const CHUNK: usize = 128;
/// The number of chunks that are allocated together.
const GROUP_CHUNKS: usize = GROUP as usize / CHUNK;

/// The objects with a number. The number is free if there are none.
#[derive(Debug, Default)]
struct Slot {
    /// The live thread with this number, if any.
    task: Option<Arc<Task>>,
    /// The process with this number, if any. Zombies count, too.
    process: Option<Arc<Process>>,
    /// Whether the number is reserved for a task that is being made.
    reserved: bool,
    /// Whether a thread with this number has ended, and its tracer must wait for it.
    kept: bool,
    /// Processes of the group with this number.
    group_members: u32,
    /// Processes of the session with this number.
    session_members: u32,
}

impl Slot {
    fn is_free(&self) -> bool {
        self.task.is_none()
            && self.process.is_none()
            && !self.reserved
            && !self.kept
            && self.group_members == 0
            && self.session_members == 0
    }
}

/// Slots for [`CHUNK`] consecutive numbers; empty while all of them are free.
#[derive(Debug)]
struct Chunk {
    slots: Vec<Slot>,
    used: usize,
}

impl Chunk {
    const EMPTY: Self = Self {
        slots: Vec::new(),
        used: 0,
    };

    /// Returns the chunk with the slot of a number. Allocates the chunk if necessary. Fails with
    /// `ENOMEM`.
    fn of(groups: &mut [Vec<Self>; GROUPS], number: u32) -> Result<&mut Self, Errno> {
        let group = &mut groups[(number / GROUP) as usize];
        if group.is_empty() {
            group
                .try_reserve_exact(GROUP_CHUNKS)
                .map_err(|_| Errno::ENOMEM)?;
            group.resize_with(GROUP_CHUNKS, || Self::EMPTY);
        }
        let chunk = &mut group[number as usize / CHUNK % GROUP_CHUNKS];
        if chunk.slots.is_empty() {
            chunk
                .slots
                .try_reserve_exact(CHUNK)
                .map_err(|_| Errno::ENOMEM)?;
            chunk.slots.resize_with(CHUNK, Slot::default);
        }
        Ok(chunk)
    }
}

/// The process table: all processes and tasks by their numbers; see [`lock`].
pub(crate) struct Table {
    numbers: Numbers,
    /// Chunks by groups of numbers. A group is empty until one of its numbers is used.
    chunks: [Vec<Chunk>; GROUPS],
    /// User tasks, including those being made.
    tasks: usize,
    /// Tasks that were entered since the kernel started.
    entered: u64,
    /// Processes, including zombies.
    processes: usize,
    /// The limit on user tasks.
    max_tasks: usize,
    /// The number of tasks for each user except root, including those being made.
    users: Vec<(u32, u64)>,
}

static TABLE: SpinLock<Table> = SpinLock::new(Table {
    numbers: Numbers::new(),
    chunks: [const { Vec::new() }; GROUPS],
    tasks: 0,
    entered: 0,
    processes: 0,
    max_tasks: PID_MAX as usize,
    users: Vec::new(),
});

/// Takes the lock of the process table, which also guards all relations between processes.
pub(crate) fn lock() -> SpinGuard<'static, Table> {
    TABLE.lock()
}

impl Table {
    fn slot(&self, number: u32) -> Option<&Slot> {
        self.chunks
            .get((number / GROUP) as usize)?
            .get(number as usize / CHUNK % GROUP_CHUNKS)?
            .slots
            .get(number as usize % CHUNK)
    }

    /// Changes the slot of a number in use, and frees the number if the slot becomes empty.
    fn change<R>(&mut self, number: u32, change: impl FnOnce(&mut Slot) -> R) -> R {
        let group = &mut self.chunks[(number / GROUP) as usize];
        let chunk = &mut group[number as usize / CHUNK % GROUP_CHUNKS];
        let slot = &mut chunk.slots[number as usize % CHUNK];
        let result = change(slot);
        if slot.is_free() {
            chunk.used -= 1;
            if chunk.used == 0 {
                *chunk = Chunk::EMPTY;
            }
            self.numbers.give_back(number);
        }
        result
    }

    /// Sets the limit on the number of tasks to `max`, at most one per process number.
    pub(crate) fn set_max_tasks(&mut self, max: usize) {
        self.max_tasks = max.min(PID_MAX as usize - 1);
    }

    /// Returns the limit on the number of tasks in the table.
    pub(crate) fn max_tasks(&self) -> usize {
        self.max_tasks
    }

    /// Returns the number of tasks that count against the limit: init, user tasks, and those that
    /// are being created. Ended tracees count until their tracer has waited for them. Other kernel
    /// threads do not count.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks
    }

    /// Reserves a free number for a new task of the user `uid`, and counts the task. Returns the
    /// number. `limit` bounds the number of the user's tasks, except root's.
    ///
    /// # Errors
    /// Fails with `EAGAIN` at one of the limits on tasks, or if no number is free. Fails with
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self, uid: u32, limit: u64) -> Result<u32, Errno> {
        if self.tasks >= self.max_tasks || self.tasks_of(uid) >= limit {
            return Err(Errno::EAGAIN);
        }
        // There are no more users than tasks, so with this room a task can always change its user.
        let room = (self.tasks + 1).saturating_sub(self.users.len());
        self.users.try_reserve(room).map_err(|_| Errno::ENOMEM)?;
        let number = self.reserve_number()?;
        self.count_user(uid, true);
        Ok(number)
    }

    /// Returns the number of a user's tasks; 0 for root, whose tasks are not counted.
    fn tasks_of(&self, uid: u32) -> u64 {
        let known = self.users.iter().find(|(user, _)| *user == uid);
        known.map_or(0, |(_, count)| *count)
    }

    /// Adds a task to a user's count if `comes`, else subtracts it. [`Self::reserve`] has made room
    /// for one user for each task.
    fn count_user(&mut self, uid: u32, comes: bool) {
        if uid == 0 {
            return;
        }
        match self.users.iter().position(|(user, _)| *user == uid) {
            Some(at) if comes => self.users[at].1 += 1,
            Some(at) => {
                self.users[at].1 -= 1;
                if self.users[at].1 == 0 {
                    self.users.swap_remove(at);
                }
            }
            None if comes => self.users.push((uid, 1)),
            None => {}
        }
    }

    /// Moves a task from the count of the user `from` to that of the user `to`.
    pub(super) fn move_task(&mut self, from: u32, to: u32) {
        self.count_user(from, false);
        self.count_user(to, true);
    }

    fn reserve_number(&mut self) -> Result<u32, Errno> {
        let number = self.numbers.take().ok_or(Errno::EAGAIN)?;
        let chunk = match Chunk::of(&mut self.chunks, number) {
            Ok(chunk) => chunk,
            Err(error) => {
                self.numbers.give_back(number);
                return Err(error);
            }
        };
        chunk.slots[number as usize % CHUNK].reserved = true;
        chunk.used += 1;
        self.tasks += 1;
        Ok(number)
    }

    /// Releases the reserved number `number` of a task of the user `uid`, because the task was not
    /// created.
    pub(crate) fn unreserve(&mut self, uid: u32, number: u32) {
        self.tasks -= 1;
        self.count_user(uid, false);
        self.change(number, |slot| slot.reserved = false);
    }

    /// Enters `task` into the table under its reserved number. With `new_process`, also enters its
    /// process under this number.
    pub(crate) fn enter(&mut self, task: &Arc<Task>, new_process: bool) {
        let number = task.tid();
        self.entered += 1;
        self.processes += usize::from(new_process);
        self.change(number, |slot| {
            slot.reserved = false;
            slot.task = Some(task.clone());
            if new_process {
                slot.process = Some(task.process().clone());
            }
        });
    }

    /// Adds children behind those that `parent` has: `first` and its next siblings, up to the one
    /// with the number `last`. Waits find the oldest child first, as on Linux.
    pub(crate) fn append_children(&self, parent: &Process, first: &Arc<Process>, last: u32) {
        let before = {
            let mut relations = parent.relations.lock();
            let before = core::mem::replace(&mut relations.last_child, last);
            if before == 0 {
                relations.first_child = Some(first.clone());
            }
            before
        };
        first.relations.lock().previous_sibling = before;
        if before != 0 {
            // A child keeps its number until it is reaped, which takes it out of this list.
            let before = self.process(before).expect("a child is in the table");
            before.relations.lock().next_sibling = Some(first.clone());
        }
    }

    /// Removes the task with the number `number` from the table and from the counts. Returns the
    /// table's reference to the task, which the caller drops without the lock. Returns `None` if
    /// the table has no such task, which callers rule out.
    #[must_use]
    pub(crate) fn remove_task(&mut self, number: u32) -> Option<Arc<Task>> {
        self.tasks -= 1;
        let gone = self.change(number, |slot| slot.task.take());
        if let Some(task) = &gone {
            let uid = task.credentials_for_others().users.real;
            self.count_user(uid, false);
        }
        gone
    }

    /// Removes the task with the number `number` from the table. The task counts until
    /// [`Self::uncount`]. With `keep_number`, its number stays in use until
    /// [`Self::release_number`]. Returns the table's reference to the task, which the caller drops
    /// without the lock. Returns `None` if the table has no such task.
    #[must_use]
    pub(crate) fn keep_task(&mut self, number: u32, keep_number: bool) -> Option<Arc<Task>> {
        self.change(number, |slot| {
            slot.kept |= keep_number;
            slot.task.take()
        })
    }

    /// Removes `task`, which [`Self::keep_task`] took out, from the counts of tasks.
    pub(crate) fn uncount(&mut self, task: &Task) {
        self.tasks -= 1;
        let uid = task.credentials_for_others().users.real;
        // A decrease needs no memory.
        self.count_user(uid, false);
    }

    /// Releases the number `number`, which [`Self::keep_task`] has kept in use.
    pub(crate) fn release_number(&mut self, number: u32) {
        self.change(number, |slot| slot.kept = false);
    }

    /// Returns whether [`Self::keep_task`] has kept the number `number` in use.
    pub(crate) fn is_kept(&self, number: u32) -> bool {
        self.slot(number).is_some_and(|slot| slot.kept)
    }

    /// Removes the process with the number `number`, which was waited for, from the table. Returns
    /// the table's reference to the process, which the caller drops without the lock. Returns
    /// `None` if the table has no such process.
    #[must_use]
    pub(crate) fn remove_process(&mut self, number: u32) -> Option<Arc<Process>> {
        let gone = self.change(number, |slot| slot.process.take());
        self.processes -= usize::from(gone.is_some());
        gone
    }

    /// Gives `task` the number `number` of its process's main thread, which has ended (exec).
    /// Returns the table's reference to `task` under its earlier number, which the caller drops
    /// without the lock. Returns `None` if the table had none.
    #[must_use]
    pub(crate) fn take_over(&mut self, task: &Arc<Task>, number: u32) -> Option<Arc<Task>> {
        let old = task.tid();
        let entry = self.change(old, |slot| slot.task.take());
        // SeqCst: see `futex_pi::lock`. A task that waits for a lock of `task` reads the number
        // after it has noted that it waits.
        task.tid.store(number, core::sync::atomic::Ordering::SeqCst);
        self.change(number, |slot| slot.task = Some(task.clone()));
        entry
    }

    /// Counts one more member of the process group `group` if `join`, else one less. The group's
    /// number is not reused while it has members. Does nothing for the number 0.
    pub(crate) fn count_group(&mut self, group: u32, join: bool) {
        if group != 0 {
            self.change(group, |slot| {
                if join {
                    slot.group_members += 1;
                } else {
                    slot.group_members -= 1;
                }
            });
        }
    }

    /// Counts one more member of the session `session` if `join`, else one less. The session's
    /// number is not reused while it has members. Does nothing for the number 0.
    pub(crate) fn count_session(&mut self, session: u32, join: bool) {
        if session != 0 {
            self.change(session, |slot| {
                if join {
                    slot.session_members += 1;
                } else {
                    slot.session_members -= 1;
                }
            });
        }
    }

    /// Returns whether the process group `group` has members.
    pub(crate) fn group_exists(&self, group: u32) -> bool {
        self.slot(group).is_some_and(|slot| slot.group_members != 0)
    }

    /// Returns the process with the number `number`, also if it is a zombie. Returns `None` if
    /// there is no such process.
    pub(crate) fn process(&self, number: u32) -> Option<&Arc<Process>> {
        self.slot(number)?.process.as_ref()
    }

    /// Returns whether a task, a process, a group or a session has the number `number`, or the
    /// number is reserved.
    pub(crate) fn is_used(&self, number: u32) -> bool {
        self.slot(number).is_some_and(|slot| !slot.is_free())
    }

    /// Returns the live thread with the number `number`, or `None` if there is none.
    pub(crate) fn task(&self, number: u32) -> Option<&Arc<Task>> {
        self.slot(number)?.task.as_ref()
    }

    /// Returns all processes in the order of their numbers, zombies included.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Arc<Process>> {
        self.processes_from(0)
    }

    /// Returns the processes of the group `group`, zombies included. The search begins at the
    /// group's number and ends at its last member, which is near for most groups.
    pub(crate) fn members(&self, group: u32) -> impl Iterator<Item = &Arc<Process>> {
        let count = self.slot(group).map_or(0, |slot| slot.group_members);
        let before = self
            .processes()
            .take_while(move |process| process.pid() < group);
        self.processes_from(group)
            .chain(before)
            .filter(move |process| process.pgid() == group)
            .take(count as usize)
    }

    fn processes_from(&self, number: u32) -> impl Iterator<Item = &Arc<Process>> {
        let (group, first) = (number / GROUP, number % GROUP);
        let first = first as usize / CHUNK;
        self.chunks
            .iter()
            .skip(group as usize)
            .enumerate()
            .flat_map(move |(n, group)| group.iter().skip(if n == 0 { first } else { 0 }))
            .flat_map(|chunk| chunk.slots.iter())
            .filter_map(|slot| slot.process.as_ref())
            .skip_while(move |process| process.pid() < number)
    }

    /// Returns the processes for which `choose` returns `true`, zombies included.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(crate) fn collect(
        &self,
        mut choose: impl FnMut(&Process) -> bool,
    ) -> Result<Vec<Arc<Process>>, Errno> {
        let mut found = Vec::new();
        for process in self.processes() {
            if choose(process) {
                found.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                found.push(process.clone());
            }
        }
        Ok(found)
    }
}

/// Returns the process with the number `pid`, also if it is a zombie. Returns `None` if there is no
/// such process.
pub fn find(pid: u32) -> Option<Arc<Process>> {
    lock().process(pid).cloned()
}

/// Returns the live thread with the number `tid`, or `None` if there is none.
pub fn find_task(tid: u32) -> Option<Arc<Task>> {
    lock().task(tid).cloned()
}

/// Returns the process with the lowest number that is not below `pid`, also if it is a zombie.
/// Returns `None` if there is no such process.
pub fn next_process(pid: u32) -> Option<Arc<Process>> {
    lock().processes_from(pid).next().cloned()
}

/// Returns the limit that the numbers of new tasks are below (`kernel.pid_max`).
pub fn number_limit() -> u32 {
    lock().numbers.limit()
}

/// Sets the limit that the numbers of new tasks are below to `limit` (`kernel.pid_max`).
///
/// # Errors
/// Fails with `EINVAL` if `limit` is below 301, as on Linux, or above `PID_MAX`.
pub fn set_number_limit(limit: u64) -> Result<(), Errno> {
    let limit = u32::try_from(limit).map_err(|_| Errno::EINVAL)?;
    if !(RESERVED + 1..=PID_MAX).contains(&limit) {
        return Err(Errno::EINVAL);
    }
    lock().numbers.set_limit(limit);
    Ok(())
}

/// Returns the number that was given to a new task last.
pub fn last_number() -> u32 {
    lock().numbers.last()
}

/// Returns the number of user tasks that were made since the kernel started.
pub fn tasks_made() -> u64 {
    lock().entered
}

/// Returns the number of processes, zombies included.
pub fn process_count() -> usize {
    lock().processes
}

/// Returns the number of tasks that count against the limit, and the limit (`threads-max`).
pub fn task_count() -> (usize, usize) {
    let table = lock();
    (table.tasks(), table.max_tasks())
}
