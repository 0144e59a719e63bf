//! The task that runs, and what only it may look at.

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

/// The task that runs on this CPU. It stays alive as long as it runs, so the reference is good
/// wherever it can be used: on that task's own stack.
#[derive(Copy, Clone, Debug)]
pub struct TaskRef {
    task: NonNull<Task>,
    _not_send: PhantomData<*mut ()>,
}

/// The task that runs on this CPU.
#[inline]
pub fn current() -> TaskRef {
    TaskRef {
        // Every thread is the first part of a task (`owner`).
        task: sched::current().as_non_null().cast(),
        _not_send: PhantomData,
    }
}

impl TaskRef {
    /// A counted reference to the task.
    pub fn to_arc(self) -> Arc<Task> {
        // SAFETY: every task is in an `Arc`, and the running one is counted by its CPU.
        unsafe {
            Arc::increment_strong_count(self.task.as_ptr());
            Arc::from_raw(self.task.as_ptr())
        }
    }

    /// Whether it is this task.
    pub fn is(self, task: &Task) -> bool {
        core::ptr::eq(self.task.as_ptr(), task)
    }

    /// The task's address space; `None` for a kernel thread and at a task's end.
    #[inline]
    pub fn vm(&self) -> Option<&Arc<AddressSpace>> {
        let user = self.user.as_ref()?;
        // SAFETY: the task itself asks, and it changes the field in exec and exit only, where no
        // reference from here is in use.
        unsafe { user.vm.look() }.as_deref()
    }

    /// Who it acts as. Nobody keeps the reference over [`Self::act_as`].
    #[inline]
    pub fn credentials(&self) -> &Arc<Credentials> {
        // SAFETY: the task itself asks.
        unsafe { self.own_credentials() }
    }

    /// Has it act as somebody else. A process that may hold now what is not its new owner's hides it.
    pub(crate) fn act_as(&self, new: Credentials) {
        if new.hides_from(self.credentials()) {
            self.process.dumpable.store(0, Ordering::Relaxed);
            self.process.death_signal.store(0, Ordering::Relaxed);
        }
        let (from, to) = (self.credentials().users.real, new.users.real);
        if from != to {
            table::lock().move_task(from, to);
        }
        // SAFETY: we are the task, and callers hold no reference from `credentials`.
        unsafe { self.set_credentials(Arc::new(new)) };
    }

    /// Its open files.
    ///
    /// # Panics
    /// In a kernel thread, and at a task's end.
    #[inline]
    pub fn files(&self) -> &Arc<fs::FileTable> {
        let user = self.user.as_ref().expect("a user task");
        // SAFETY: as in `vm`.
        unsafe { user.files.look() }
            .as_deref()
            .expect("files last until the task's end")
    }

    /// Its root, working directory and umask.
    ///
    /// # Panics
    /// As [`Self::files`].
    #[inline]
    pub fn fs(&self) -> &Arc<fs::Context> {
        let user = self.user.as_ref().expect("a user task");
        // SAFETY: as in `vm`.
        unsafe { user.fs.look() }
            .as_ref()
            .expect("the context lasts until the task's end")
    }

    /// What `SEM_UNDO` notes for it, alone or with those that share it.
    ///
    /// # Panics
    /// As [`Self::files`], but for a task's end.
    pub(crate) fn undo_list(&self) -> &Arc<UndoList> {
        let user = self.user.as_ref().expect("a user task");
        // SAFETY: as in `vm`.
        if unsafe { user.undo.look() }.is_none() {
            // SAFETY: we are the task, and nobody has a reference to what is not there.
            *unsafe { user.undo.get() } = Some(UndoList::new());
            user.mark_undo_list();
        }
        // SAFETY: as in `vm`.
        unsafe { user.undo.look() }.as_ref().expect("made above")
    }

    /// Carries out what `SEM_UNDO` has noted, unless others share it; from now on it has a list of its
    /// own.
    pub(crate) fn leave_undo_list(&self) {
        let Some(user) = &self.user else { return };
        // SAFETY: we are the task, and callers hold no reference from `undo_list`.
        drop(unsafe { user.undo.get() }.take());
        user.mark_undo_list();
    }

    /// Gives the task, but no other one of its process, other files.
    pub(crate) fn replace_files(&self, files: Arc<fs::FileTable>) {
        let Some(user) = &self.user else { return };
        let own = FilesOfTask::new(files.clone());
        // SAFETY: we are the task, and callers hold no reference from `files`.
        let old = unsafe { user.files.get() }.replace(own);
        let shown = self
            .is_main()
            .then(|| self.process.resources.lock().files.replace(files));
        drop((old, shown));
    }

    /// Whether the task is the main thread of its process, whose files and place in the tree others see as
    /// the process's.
    fn is_main(&self) -> bool {
        self.tid() == self.process.pid()
    }

    /// Gives the task, but no other one of its process, another place in the tree.
    pub(crate) fn replace_fs(&self, context: Arc<fs::Context>) {
        let Some(user) = &self.user else { return };
        // SAFETY: we are the task, and callers hold no reference from `fs`.
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
        // SAFETY: see the type.
        unsafe { self.task.as_ref() }
    }
}
