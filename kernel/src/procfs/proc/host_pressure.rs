//! `/proc/ebb/host_pressure`: memory stalls of the host, in the form of Linux's
//! `/proc/pressure/memory`. A runtime with caches waits for a trigger of this file, and then gives
//! the memory of its caches back.

use crate::drivers::control;
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::synthetic::{Content, Directory};
use crate::fs::text::Text;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_wire::boot;
use logic::errno::Errno;
use logic::stalls::{Micros, Stalls, Totals, Trigger};
use machine::arch::{BootInfo, clock};
use machine::sync::SpinLock;

/// The file's path below `/proc`.
const PATH: &str = "ebb/host_pressure";

/// The stalls that the host has reported.
static STALLS: SpinLock<Stalls> = SpinLock::new(Stalls::new(0));
/// Open files with a trigger.
static WATCHING: SpinLock<Vec<Weak<Opened>>> = SpinLock::new(Vec::new());

/// Adds `/proc/ebb/host_pressure` to `root`, the root of `/proc`, if the command line says that the
/// host reports its stalls.
pub(super) fn add(root: &Arc<Directory>, boot: &BootInfo) {
    if boot.option(boot::HOST_PRESSURE) == Some(boot::TOLD) {
        root.add(PATH, Arc::new(HostPressure));
        control::set_pressure(told);
    }
}

/// Takes the host's totals, and fires the triggers that they reach.
fn told(totals: Totals) {
    let now = now();
    let totals = {
        let mut stalls = STALLS.lock();
        stalls.set(now, totals);
        stalls.totals()
    };
    // Each file is checked without the list's lock, which the close of a file takes. A file that is
    // closed in that time moves those behind it, which have been checked already.
    let mut next = WATCHING.lock().len();
    while next > 0 {
        next -= 1;
        let opened = WATCHING.lock().get(next).and_then(Weak::upgrade);
        if let Some(opened) = opened {
            opened.look(now, totals);
        }
    }
}

fn now() -> Micros {
    clock::now().0 / 1_000
}

/// The file. Each `open` creates an [`Opened`].
struct HostPressure;

impl Content for HostPressure {
    fn show(&self, text: &mut Text) -> fmt::Result {
        show(text)
    }
    fn writable(&self) -> bool {
        true
    }
    fn permissions(&self) -> u32 {
        0o666
    }
    fn open(&self) -> Result<Option<Arc<dyn Content>>, Errno> {
        let opened = Arc::new_cyclic(|this| Opened {
            this: this.clone(),
            trigger: SpinLock::new(None),
            fired: AtomicBool::new(false),
            notifier: Arc::new(Notifier::new()),
        });
        Ok(Some(opened))
    }
}

/// The file as it was opened once. It has at most one trigger, which cannot be replaced.
struct Opened {
    this: Weak<Self>,
    trigger: SpinLock<Option<Trigger>>,
    /// Whether the trigger has fired since the last poll.
    fired: AtomicBool,
    notifier: Arc<Notifier>,
}

impl Opened {
    /// Fires the trigger if `totals` as of `now` reach it.
    fn look(&self, now: Micros, totals: Totals) {
        let fires = match &mut *self.trigger.lock() {
            Some(trigger) => trigger.fires(now, totals),
            None => false,
        };
        if fires {
            // Release: pairs with the Acquire in `poll`.
            self.fired.store(true, Ordering::Release);
            self.notifier.notify(PollMask::PRI);
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.trigger.get_mut().is_some() {
            WATCHING
                .lock()
                .retain(|weak| !core::ptr::eq(weak.as_ptr(), self));
        }
    }
}

impl Content for Opened {
    fn show(&self, text: &mut Text) -> fmt::Result {
        show(text)
    }
    fn writable(&self) -> bool {
        true
    }
    fn store(&self, value: &str) -> Result<(), Errno> {
        let totals = STALLS.lock().totals();
        let trigger = Trigger::parse(value, now(), totals).ok_or(Errno::EINVAL)?;
        let mut watching = WATCHING.lock();
        watching.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let mut own = self.trigger.lock();
        if own.is_some() {
            return Err(Errno::EBUSY);
        }
        *own = Some(trigger);
        watching.push(self.this.clone());
        Ok(())
    }
    fn poll(&self) -> PollMask {
        let always = PollMask::READABLE | PollMask::WRITABLE;
        if self.trigger.lock().is_none() {
            return always | PollMask::ERR | PollMask::PRI;
        }
        // Acquire: pairs with the Release in `look`. Each firing is reported once.
        if self.fired.swap(false, Ordering::Acquire) {
            always | PollMask::PRI
        } else {
            always
        }
    }
    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(Arc::clone(&self.notifier))
    }
}

fn show(text: &mut Text) -> fmt::Result {
    // A copy, since the text allocates memory, for which no lock may be held.
    let mut stalls = *STALLS.lock();
    stalls.show(now(), text)
}
