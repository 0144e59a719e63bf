//! `/proc/ebb/host_pressure`: memory stalls of the host, in the form of Linux's
//! `/proc/pressure/memory`. A runtime with caches waits for a trigger of this file, and then gives
//! the memory of its caches back.

use super::triggers::{List, Slot};
use crate::drivers::control;
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::synthetic::{Content, Directory};
use crate::fs::text::Text;
use alloc::sync::{Arc, Weak};
use core::fmt;
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
static WATCHING: List<Opened> = List::new();

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
    WATCHING.for_each(|opened| {
        let fires = opened.slot.with(|trigger| trigger.fires(now, totals));
        if fires == Some(true) {
            opened.slot.fire();
        }
    });
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
            slot: Slot::new(),
        });
        Ok(Some(opened))
    }
}

/// The file as it was opened once.
struct Opened {
    this: Weak<Self>,
    slot: Slot<Trigger>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.slot.is_set() {
            WATCHING.remove(self);
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
        WATCHING.add(&self.this, &self.slot, trigger)
    }
    fn poll(&self) -> PollMask {
        self.slot.poll()
    }
    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.slot.notifier())
    }
}

fn show(text: &mut Text) -> fmt::Result {
    // A copy, since the text allocates memory, for which no lock may be held.
    let mut stalls = *STALLS.lock();
    stalls.show(now(), text)
}
