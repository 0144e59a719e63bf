//! The current task, and its state that only the task itself may access.

#![expect(unsafe_code, reason = "the current task is found by its thread")]

use super::{Task, table};
use crate::fs::{self, table::FilesOfTask};
use crate::process::ipc::sem::UndoList;
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use logic::credentials::Credentials;
use machine::sched;

/// The task that runs on this CPU. The task stays alive while it runs. The reference cannot leave
/// that task's own stack, so it is always valid.
#[derive(Copy, Clone, Debug)]
pub struct TaskRef {
    task: NonNull<Task>,
    _not_send: PhantomData<*mut ()>,
}

/// Returns the task that runs on this CPU.
#[inline]
pub fn current() -> TaskRef {
    TaskRef {
        // Every thread is the first part of a task (`owner`).
        task: sched::current().as_non_null().cast(),
        _not_send: PhantomData,
    }
}

impl TaskRef {
    /// Returns a counted reference to the task.
    pub fn to_arc(self) -> Arc<Task> {
        // SAFETY: every task is in an `Arc`, and the CPU holds a reference to the running one.
        unsafe {
            Arc::increment_strong_count(self.task.as_ptr());
            Arc::from_raw(self.task.as_ptr())
        }
    }

    /// Returns whether this task is `task`.
    pub fn is(self, task: &Task) -> bool {
        core::ptr::eq(self.task.as_ptr(), task)
    }

    /// Returns the task's address space. Returns `None` for a kernel thread, and at a task's end.
    #[inline]
    pub fn vm(&self) -> Option<&Arc<AddressSpace>> {
        let user = self.user.as_ref()?;
        // SAFETY: the caller is the task itself, which changes the field only in exec and exit. No
        // reference from here is in use there.
        unsafe { user.vm.look() }.as_deref()
    }

    /// Returns the task's credentials. No caller keeps the reference across [`Self::act_as`].
    #[inline]
    pub fn credentials(&self) -> &Arc<Credentials> {
        // SAFETY: the caller is the task itself.
        unsafe { self.own_credentials() }
    }

    /// Sets the task's credentials to `new`. If the process may now hold data that its new user
    /// must not see, it becomes non-dumpable and loses its death signal.
    pub(crate) fn act_as(&self, new: Credentials) {
        if new.hides_from(self.credentials()) {
            self.process.dumpable.store(0, Ordering::Relaxed);
            self.process.death_signal.store(0, Ordering::Relaxed);
        }
        let (from, to) = (self.credentials().users.real, new.users.real);
        if from != to {
            table::lock().move_task(from, to);
        }
        // SAFETY: the caller is the task itself, and holds no reference from `credentials`.
        unsafe { self.set_credentials(Arc::new(new)) };
    }

    /// Returns the task's table of open files.
    ///
    /// # Panics
    /// Panics in a kernel thread, and at a task's end.
    #[inline]
    pub fn files(&self) -> &Arc<fs::FileTable> {
        let user = self.user.as_ref().expect("a user task");
        // SAFETY: the caller is the task itself, and changes the field only where no reference is
        // in use.
        unsafe { user.files.look() }
            .as_deref()
            .expect("files last until the task's end")
    }

    /// Returns the task's root, working directory and umask.
    ///
    /// # Panics
    /// Panics in a kernel thread, and at a task's end.
    #[inline]
    pub fn fs(&self) -> &Arc<fs::Context> {
        let user = self.user.as_ref().expect("a user task");
        // SAFETY: the caller is the task itself, and changes the field only where no reference is
        // in use.
        unsafe { user.fs.look() }
            .as_ref()
            .expect("the context lasts until the task's end")
    }

    /// Returns the list of the task's `SEM_UNDO` adjustments, which other tasks may share. Makes
    /// the list if the task has none.
    ///
    /// # Panics
    /// Panics in a kernel thread.
    pub(crate) fn undo_list(&self) -> &Arc<UndoList> {
        let user = self.user.as_ref().expect("a user task");
        // SAFETY: the caller is the task itself, and changes the field only where no reference is
        // in use.
        if unsafe { user.undo.look() }.is_none() {
            // SAFETY: the caller is the task itself, and no reference to a list exists, because
            // there is none.
            *unsafe { user.undo.get() } = Some(UndoList::new());
            user.mark_undo_list();
        }
        // SAFETY: the caller is the task itself, and changes the field only where no reference is
        // in use.
        unsafe { user.undo.look() }.as_ref().expect("made above")
    }

    /// Drops the task's reference to its `SEM_UNDO` list, which applies the adjustments unless
    /// other tasks share the list. The task has no list afterwards.
    pub(crate) fn leave_undo_list(&self) {
        let Some(user) = &self.user else { return };
        // SAFETY: the caller is the task itself, and holds no reference from `undo_list`.
        drop(unsafe { user.undo.get() }.take());
        user.mark_undo_list();
    }

    /// Makes `files` the table of open files of this task, but not of its process's other tasks.
    pub(crate) fn replace_files(&self, files: Arc<fs::FileTable>) {
        let Some(user) = &self.user else { return };
        let own = FilesOfTask::new(files.clone());
        // SAFETY: the caller is the task itself, and holds no reference from `files`.
        let old = unsafe { user.files.get() }.replace(own);
        let shown = self
            .is_main()
            .then(|| self.process.resources.lock().files.replace(files));
        drop((old, shown));
    }

    /// Returns whether the task is the main thread of its process. Others see its files and its
    /// root and working directory as the process's.
    fn is_main(&self) -> bool {
        self.tid() == self.process.pid()
    }

    /// Makes `context` the root, working directory and umask of this task, but not of its process's
    /// other tasks.
    pub(crate) fn replace_fs(&self, context: Arc<fs::Context>) {
        let Some(user) = &self.user else { return };
        // SAFETY: the caller is the task itself, and holds no reference from `fs`.
        let old = unsafe { user.fs.get() }.replace(context.clone());
        let shown = self
            .is_main()
            .then(|| self.process.resources.lock().fs.replace(context));
        drop((old, shown));
    }
}

impl Deref for TaskRef {
    type Target = Task;
    #[inline]
    fn deref(&self) -> &Task {
        // SAFETY: the running task stays alive, and the reference does not leave its stack; see the
        // type.
        unsafe { self.task.as_ref() }
    }
}
