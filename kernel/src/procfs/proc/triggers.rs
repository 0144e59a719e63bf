//! Triggers of open files about pressure: the trigger of one file, and the list of all files with a
//! trigger.

use crate::fs::poll::{Notifier, PollMask};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::errno::Errno;
use machine::sync::SpinLock;

/// The place of an open file for a trigger of the type `T`. A trigger stays until the file is
/// closed.
pub(super) struct Slot<T> {
    trigger: SpinLock<Option<T>>,
    /// Whether the trigger has fired since the last poll.
    fired: AtomicBool,
    notifier: Arc<Notifier>,
}

impl<T> Slot<T> {
    /// Returns a slot without a trigger.
    pub(super) fn new() -> Self {
        Self {
            trigger: SpinLock::new(None),
            fired: AtomicBool::new(false),
            notifier: Arc::new(Notifier::new()),
        }
    }

    /// Returns whether the file has a trigger.
    pub(super) fn is_set(&self) -> bool {
        self.trigger.lock().is_some()
    }

    /// Returns what `on` makes of the trigger, or `None` if there is no trigger.
    pub(super) fn with<R>(&self, on: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.trigger.lock().as_mut().map(on)
    }

    /// Wakes the pollers of the file, because the trigger fires.
    pub(super) fn fire(&self) {
        // Release: pairs with the Acquire in `poll`.
        self.fired.store(true, Ordering::Release);
        self.notifier.notify(PollMask::PRI);
    }

    /// Returns the readiness of the file. Each firing is reported once.
    pub(super) fn poll(&self) -> PollMask {
        let always = PollMask::READABLE | PollMask::WRITABLE;
        if !self.is_set() {
            return always | PollMask::ERR | PollMask::PRI;
        }
        // Acquire: pairs with the Release in `fire`.
        if self.fired.swap(false, Ordering::Acquire) {
            always | PollMask::PRI
        } else {
            always
        }
    }

    /// Returns the notifier of the file's pollers.
    pub(super) fn notifier(&self) -> Arc<Notifier> {
        self.notifier.clone()
    }
}

/// The open files of the type `F` that have a trigger.
pub(super) struct List<F>(SpinLock<Vec<Weak<F>>>);

impl<F> List<F> {
    /// Returns an empty list.
    pub(super) const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }

    /// Sets the trigger of `file`, whose slot is `slot`, and adds the file to the list.
    ///
    /// # Errors
    /// Fails with `EBUSY` if the file has a trigger, and with `ENOMEM`.
    pub(super) fn add<T>(&self, file: &Weak<F>, slot: &Slot<T>, trigger: T) -> Result<(), Errno> {
        let mut files = self.0.lock();
        files.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let mut own = slot.trigger.lock();
        if own.is_some() {
            return Err(Errno::EBUSY);
        }
        *own = Some(trigger);
        files.push(file.clone());
        Ok(())
    }

    /// Removes `file` from the list, when it is closed.
    pub(super) fn remove(&self, file: &F) {
        self.0
            .lock()
            .retain(|weak| !core::ptr::eq(weak.as_ptr(), file));
    }

    /// Calls `each` for every file, without the list's lock, which the close of a file takes. A
    /// file that is closed in that time moves those behind it, for which `each` has been called
    /// already.
    pub(super) fn for_each(&self, mut each: impl FnMut(&F)) {
        let mut next = self.0.lock().len();
        while next > 0 {
            next -= 1;
            let file = self.0.lock().get(next).and_then(Weak::upgrade);
            if let Some(file) = file {
                each(&file);
            }
        }
    }
}
