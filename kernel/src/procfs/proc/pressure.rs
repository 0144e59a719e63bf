//! `/proc/pressure`: the times for which the tasks of this machine stall, and triggers for them.

use super::triggers::{List, Slot};
use crate::fs::OpenFlags;
use crate::fs::knob::Input;
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::synthetic::{Content, Directory};
use crate::fs::text::Text;
use crate::process::{caller, task};
use alloc::sync::{Arc, Weak};
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::knob::word;
use logic::psi::trigger::Trigger;
use logic::psi::{Resource, Times};
use machine::arch::BootInfo;
use machine::arch::clock::Nanos;
use machine::sched::{self, pressure};

/// The word of the command line that switches these files off.
const WORD: &str = "psi";

/// Triggers of all open files.
static TRIGGERS: List<Opened> = List::new();
/// Whether the thread that checks the triggers was started.
static MONITOR_STARTED: AtomicBool = AtomicBool::new(false);

/// Adds the files of `/proc/pressure` to `root`, the root of `/proc`. If the boot line says
/// `psi=0`, adds none and disables the measurement instead.
pub(super) fn add(root: &Arc<Directory>, boot: &BootInfo) {
    let enabled = boot
        .option(WORD)
        .map(|value| word::boolean(value.as_bytes()));
    match enabled {
        Some(Ok(false)) => return pressure::disable(),
        Some(Err(_)) => machine::console!("{WORD}=: not on or off"),
        _ => {}
    }
    for (path, resource) in [
        ("pressure/io", Resource::Io),
        ("pressure/memory", Resource::Memory),
        ("pressure/cpu", Resource::Cpu),
    ] {
        root.add(path, Arc::new(Pressure(resource)));
    }
}

/// The file of a resource.
struct Pressure(Resource);

impl Content for Pressure {
    fn show(&self, text: &mut Text) -> fmt::Result {
        pressure::report(self.0).show(text)
    }
    fn writable(&self) -> bool {
        true
    }
    fn permissions(&self) -> u32 {
        0o666
    }
    fn admits(&self, flags: OpenFlags) -> Result<(), Errno> {
        if flags.writable() {
            caller::need(Capabilities::SYS_RESOURCE)?;
        }
        Ok(())
    }
    fn open(&self) -> Result<Option<Arc<dyn Content>>, Errno> {
        Ok(Some(Arc::new_cyclic(|this| Opened {
            this: this.clone(),
            resource: self.0,
            slot: Slot::new(),
        })))
    }
}

/// The file as it was opened once.
struct Opened {
    this: Weak<Self>,
    resource: Resource,
    slot: Slot<Trigger>,
}

impl Content for Opened {
    fn show(&self, text: &mut Text) -> fmt::Result {
        pressure::report(self.resource).show(text)
    }
    fn writable(&self) -> bool {
        true
    }
    /// Sets the trigger. The file has no offset that could move. Returns the number of bytes
    /// written. Fails with `EBUSY` if the file has a trigger, with `EINVAL` for another form or
    /// numbers out of bounds, and with `ENOMEM`.
    fn write(&self, input: Input<'_>, _: &mut u64) -> SysResult {
        if self.slot.is_set() {
            return Err(Errno::EBUSY);
        }
        let mut trigger = Trigger::parse(input.bytes, self.resource)?;
        let (totals, now) = pressure::totals();
        trigger.begin(now.0, totals[trigger.stall() as usize]);
        start_monitor()?;
        TRIGGERS.add(&self.this, &self.slot, trigger)?;
        pressure::watch(self.resource);
        Ok(input.length)
    }
    fn poll(&self) -> PollMask {
        self.slot.poll()
    }
    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.slot.notifier())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.slot.is_set() {
            TRIGGERS.remove(self);
            pressure::unwatch(self.resource);
        }
    }
}

impl Opened {
    /// Checks the trigger against the `totals` as of `now`. If it fires, wakes the pollers of the
    /// file.
    fn look(&self, now: Nanos, totals: &Times) {
        let fires = self
            .slot
            .with(|trigger| trigger.look(now.0, totals[trigger.stall() as usize]));
        if fires == Some(true) {
            self.slot.fire();
        }
    }
}

/// Starts the monitor, if that was not done before.
///
/// # Errors
/// Fails with `ENOMEM`.
fn start_monitor() -> Result<(), Errno> {
    if MONITOR_STARTED.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    task::try_spawn("psimon", monitor)
        .inspect_err(|_| MONITOR_STARTED.store(false, Ordering::Release))
}

/// Looks at the triggers while there are stalls, and for the longest window afterwards.
fn monitor() {
    loop {
        pressure::wait_for_stall();
        let (totals, now) = pressure::totals();
        TRIGGERS.for_each(|opened| {
            opened.slot.with(|trigger| {
                trigger.begin(now.0, totals[trigger.stall() as usize]);
            });
        });
        let mut until = now;
        let mut at = now;
        loop {
            let (mut every, mut longest) = (u64::MAX, 0);
            TRIGGERS.for_each(|opened| {
                opened.slot.with(|trigger| {
                    every = every.min(trigger.look_every());
                    longest = longest.max(trigger.window());
                });
            });
            if until == now {
                until = now.saturating_add(Nanos(longest));
            }
            // No trigger is left, or no stall came for a window.
            if longest == 0 || at >= until {
                break;
            }
            sched::sleep_until(at.saturating_add(Nanos(every)));
            let (totals, then) = pressure::totals();
            at = then;
            let mut grown = false;
            TRIGGERS.for_each(|opened| {
                let more = opened
                    .slot
                    .with(|trigger| trigger.has_grown(totals[trigger.stall() as usize]));
                grown |= more == Some(true);
                opened.look(at, &totals);
            });
            if grown {
                until = at.saturating_add(Nanos(longest));
            }
        }
    }
}
