//! The current task, and its state that only the task itself may access.

use super::used_space::UsedSpace;
use super::{Task, UserState, table};
use crate::fs::{self, table::FilesOfTask};
use crate::process::ipc::sem::UndoList;
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use logic::credentials::{Credentials, Ids};
use logic::own::{Own, Token};
use machine::sched::Running;

/// The task that runs on this CPU. It cannot leave that task's own stack.
#[derive(Copy, Clone, Debug)]
pub struct TaskRef(Running<Task>);

/// Returns the task that runs on this CPU.
#[inline]
pub fn current() -> TaskRef {
    TaskRef(Running::current())
}

impl TaskRef {
    /// Returns a counted reference to the task.
    pub fn to_arc(self) -> Arc<Task> {
        self.0.to_arc()
    }

    /// Returns whether this task is `task`.
    pub fn is(self, task: &Task) -> bool {
        core::ptr::eq(&*self.0, task)
    }

    /// Calls `look` with the task's address space, and returns its result. Passes `None` for a
    /// kernel thread, and at a task's end.
    #[inline]
    pub fn with_vm<R>(self, look: impl FnOnce(Option<&Arc<AddressSpace>>) -> R + Send) -> R {
        if self.is_kernel() {
            return look(None);
        }
        self.0.with(vm, |vm| look(vm.as_deref()))
    }

    /// Returns a counted reference to the task's address space. Returns `None` for a kernel thread,
    /// and at a task's end.
    pub fn vm(self) -> Option<Arc<AddressSpace>> {
        self.with_vm(|vm| vm.cloned())
    }

    /// Makes `new` the task's address space, or leaves the task without one. Returns the former
    /// one.
    ///
    /// # Panics
    /// Panics in a kernel thread.
    pub(super) fn replace_vm(self, new: Option<UsedSpace>, token: &mut Token) -> Option<UsedSpace> {
        self.0.replace(vm, new, token)
    }

    /// Calls `look` with the task's credentials, and returns its result. This takes no reference,
    /// whose count other threads would share.
    #[inline]
    pub fn with_credentials<R>(self, look: impl FnOnce(&Arc<Credentials>) -> R + Send) -> R {
        self.0.with(|task| &task.own_credentials, look)
    }

    /// Returns a counted reference to the task's credentials.
    pub fn credentials(self) -> Arc<Credentials> {
        self.with_credentials(Arc::clone)
    }

    /// Returns the user IDs of the task.
    #[inline]
    pub fn users(self) -> Ids {
        self.with_credentials(|who| who.users)
    }

    /// Returns the group IDs of the task.
    #[inline]
    pub fn groups(self) -> Ids {
        self.with_credentials(|who| who.groups)
    }

    /// Sets the task's credentials to `new`. If the process may now hold data that its new user
    /// must not see, it becomes non-dumpable and loses its death signal.
    pub(crate) fn act_as(self, new: Credentials, token: &mut Token) {
        if self.with_credentials(|old| new.hides_from(old)) {
            self.process.dumpable.store(0, Ordering::Relaxed);
            self.process.death_signal.store(0, Ordering::Relaxed);
        }
        let (from, to) = (self.users().real, new.users.real);
        if from != to {
            table::lock().move_task(from, to);
        }
        let new = Arc::new(new);
        let old = self
            .0
            .replace(|task| &task.own_credentials, new.clone(), token);
        if self.is_main() {
            self.process.set_credentials(new.clone());
        }
        let shown = core::mem::replace(&mut *self.credentials.lock(), new);
        drop((old, shown));
    }

    /// Calls `look` with the task's table of open files, and returns its result. This takes no
    /// reference, whose count other threads would share.
    ///
    /// # Panics
    /// Panics in a kernel thread, and at a task's end.
    #[inline]
    pub fn with_files<R>(self, look: impl FnOnce(&Arc<fs::FileTable>) -> R + Send) -> R {
        self.0.with(files, |files| {
            look(files.as_deref().expect("files last until the task's end"))
        })
    }

    /// Returns a counted reference to the task's table of open files.
    ///
    /// # Panics
    /// Panics in a kernel thread, and at a task's end.
    pub fn files(self) -> Arc<fs::FileTable> {
        self.with_files(Arc::clone)
    }

    /// Makes `new` the table of open files of this task, but not of its process's other tasks.
    pub(crate) fn change_files(self, new: Arc<fs::FileTable>, token: &mut Token) {
        let old = self.replace_files(Some(FilesOfTask::new(new.clone())), token);
        let shown = self
            .is_main()
            .then(|| self.process.resources.lock().files.replace(new));
        drop((old, shown));
    }

    /// Makes `new` the task's table of open files, or leaves the task without one. Returns the
    /// former one. Others see the same table of the process as before.
    ///
    /// # Panics
    /// Panics in a kernel thread.
    pub(super) fn replace_files(
        self,
        new: Option<FilesOfTask>,
        token: &mut Token,
    ) -> Option<FilesOfTask> {
        self.0.replace(files, new, token)
    }

    /// Calls `look` with the task's root, working directory and umask, and returns its result.
    ///
    /// # Panics
    /// Panics in a kernel thread, and at a task's end.
    #[inline]
    pub fn with_fs<R>(self, look: impl FnOnce(&Arc<fs::Context>) -> R + Send) -> R {
        self.0.with(context, |context| {
            look(
                context
                    .as_ref()
                    .expect("the context lasts until the task's end"),
            )
        })
    }

    /// Returns a counted reference to the task's root, working directory and umask.
    ///
    /// # Panics
    /// Panics in a kernel thread, and at a task's end.
    pub fn fs(self) -> Arc<fs::Context> {
        self.with_fs(Arc::clone)
    }

    /// Makes `new` the root, working directory and umask of this task, but not of its process's
    /// other tasks.
    pub(crate) fn change_fs(self, new: Arc<fs::Context>, token: &mut Token) {
        let old = self.replace_fs(Some(new.clone()), token);
        let shown = self
            .is_main()
            .then(|| self.process.resources.lock().fs.replace(new));
        drop((old, shown));
    }

    /// Makes `new` the task's root, working directory and umask, or leaves the task without these.
    /// Returns the former ones. Others see the same ones of the process as before.
    ///
    /// # Panics
    /// Panics in a kernel thread.
    pub(super) fn replace_fs(
        self,
        new: Option<Arc<fs::Context>>,
        token: &mut Token,
    ) -> Option<Arc<fs::Context>> {
        self.0.replace(context, new, token)
    }

    /// Returns whether the task is the main thread of its process. Others see its files, its root
    /// and working directory, and its credentials as the process's.
    fn is_main(self) -> bool {
        self.tid() == self.process.pid()
    }

    /// Returns a counted reference to the list of the task's `SEM_UNDO` adjustments, which other
    /// tasks may share. Makes the list if the task has none.
    ///
    /// # Panics
    /// Panics in a kernel thread.
    pub(crate) fn undo_list(self, token: &mut Token) -> Arc<UndoList> {
        if let Some(list) = self.0.with(undo, Option::clone) {
            return list;
        }
        let list = UndoList::new();
        self.0.replace(undo, Some(list.clone()), token);
        user(&self).mark_undo_list(Some(&list));
        list
    }

    /// Drops the task's reference to its `SEM_UNDO` list, which applies the adjustments unless
    /// other tasks share the list. The task has no list afterwards.
    ///
    /// # Panics
    /// Panics in a kernel thread.
    pub(crate) fn leave_undo_list(self, token: &mut Token) {
        drop(self.0.replace(undo, None, token));
        user(&self).mark_undo_list(None);
    }
}

/// Returns the state of `task` that user code sees.
#[inline]
fn user(task: &Task) -> &UserState {
    task.user.as_ref().expect("a user task")
}

/// The task's field for its address space.
#[inline]
pub(super) fn vm(task: &Task) -> &Own<Option<UsedSpace>> {
    &user(task).vm
}

/// The task's field for its table of open files.
#[inline]
fn files(task: &Task) -> &Own<Option<FilesOfTask>> {
    &user(task).files
}

/// The task's field for its root, working directory and umask.
#[inline]
fn context(task: &Task) -> &Own<Option<Arc<fs::Context>>> {
    &user(task).fs
}

/// The task's field for its list of `SEM_UNDO` adjustments.
#[inline]
fn undo(task: &Task) -> &Own<Option<Arc<UndoList>>> {
    &user(task).undo
}

impl Deref for TaskRef {
    type Target = Task;
    #[inline]
    fn deref(&self) -> &Task {
        &self.0
    }
}
