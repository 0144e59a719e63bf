//! Takes memory from a guest and returns it to the guest, in the way of its column.

use super::column::By;
use crate::machine::GiveBack;
use crate::qemu::Monitor;
use crate::registry::{Fleet, GuestId, Presence};
use ebb_wire::Reclaim;
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The QOM path of the virtio-mem device.
const DEVICE: &str = "/machine/peripheral/vm0";
/// The minimum interval between queries of a run's server or QEMU.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// The timeout for a guest to change its mode.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The connection to the guest.
enum Reach {
    Fleet(Box<Fleet>, GuestId),
    Monitor(Box<Monitor>),
    Nothing,
}

/// Takes memory from one guest and returns it to the guest.
pub(super) struct MemoryControl {
    by: By,
    reach: Reach,
    /// The bytes that are taken.
    bytes: u64,
    /// The bytes of the guest, or of its virtio-mem device, when nothing is taken.
    full: u64,
    /// The number of the last request to the guest.
    number: u32,
    /// When the guest was last queried.
    asked: Option<Instant>,
}

impl MemoryControl {
    /// Connects to the guest of the `ebb run` with process number `pid`, which is up. `socket` is
    /// that of QEMU's monitor, and `bytes` the amount to take later. Fails if the guest cannot be
    /// reached.
    pub(super) fn connect(by: By, pid: u32, socket: &Path, bytes: u64) -> Result<Self, String> {
        let reach = match by {
            By::Shared | By::Reclaim => {
                let mut fleet = Fleet::new();
                let (id, _) = fleet
                    .find(Some(&pid.to_string()))
                    .map_err(|error| error.to_string())?;
                Reach::Fleet(Box::new(fleet), id)
            }
            By::Balloon | By::Plug => {
                let stream = UnixStream::connect(socket)
                    .map_err(|error| format!("QEMU's monitor: {error}"))?;
                let monitor = Monitor::connect(stream).map_err(|error| error.to_string())?;
                Reach::Monitor(Box::new(monitor))
            }
            By::Itself | By::Nothing => Reach::Nothing,
        };
        let mut control = Self {
            by,
            reach,
            bytes,
            full: bytes,
            number: 0,
            asked: None,
        };
        match by {
            By::Balloon => control.full = control.left_to_guest()?,
            // The mode is off until memory is to leave.
            By::Shared => control.set_and_wait(GiveBack::Off)?,
            By::Reclaim | By::Plug | By::Itself | By::Nothing => {}
        }
        Ok(control)
    }

    /// Starts taking the memory from the guest. Does not wait for the end. Fails if the guest
    /// cannot be reached.
    pub(super) fn start_shrink(&mut self) -> Result<(), String> {
        match self.by {
            By::Shared => self.set(GiveBack::Shared),
            By::Reclaim => {
                let Reach::Fleet(fleet, id) = &mut self.reach else {
                    return Ok(());
                };
                let asked = fleet.reclaim(id, Reclaim::Free);
                self.number = asked.map_err(|error| error.to_string())?;
                Ok(())
            }
            By::Balloon => self.want(self.full.saturating_sub(self.bytes)),
            By::Plug => self.want(0),
            By::Itself | By::Nothing => Ok(()),
        }
    }

    /// Starts returning the memory to the guest. Does not wait for the end. Fails if the guest
    /// cannot be reached.
    pub(super) fn start_grow(&mut self) -> Result<(), String> {
        match self.by {
            By::Shared => self.set(GiveBack::Off),
            By::Balloon | By::Plug => self.want(self.full),
            // In these modes the guest keeps its memory all the time.
            By::Reclaim | By::Itself | By::Nothing => Ok(()),
        }
    }

    /// Returns whether all memory has left, or `None` if this way does not report it. Returns
    /// `Some(false)` without a query if the last one was too recent. Fails if the guest cannot be
    /// reached.
    pub(super) fn has_shrunk(&mut self) -> Result<Option<bool>, String> {
        if !self.may_ask() {
            return Ok(Some(false));
        }
        match self.by {
            By::Reclaim => self.is_through().map(Some),
            By::Balloon => {
                let goal = self.full.saturating_sub(self.bytes);
                Ok(Some(self.left_to_guest()? <= goal))
            }
            By::Plug => Ok(Some(self.left_to_guest()? == 0)),
            By::Shared | By::Itself | By::Nothing => Ok(None),
        }
    }

    /// Returns whether the guest has all of its memory again. Returns `false` without a query if
    /// the last one was too recent. Fails if the guest cannot be reached.
    pub(super) fn has_grown(&mut self) -> Result<bool, String> {
        match self.by {
            By::Balloon | By::Plug => Ok(self.may_ask() && self.left_to_guest()? >= self.full),
            By::Shared | By::Reclaim | By::Itself | By::Nothing => Ok(true),
        }
    }

    /// Returns whether the host must act to return memory to the guest in this way.
    pub(super) fn grows(&self) -> bool {
        matches!(self.by, By::Balloon | By::Plug)
    }

    /// Returns whether a query is allowed now, and records it. QEMU and a run's server get only one
    /// per interval.
    fn may_ask(&mut self) -> bool {
        let now = Instant::now();
        if self.asked.is_some_and(|asked| now - asked < ASK_EVERY) {
            return false;
        }
        self.asked = Some(now);
        true
    }

    /// Sets the guest's mode of giving memory back. Does not wait.
    fn set(&mut self, mode: GiveBack) -> Result<(), String> {
        let Reach::Fleet(fleet, id) = &mut self.reach else {
            return Ok(());
        };
        let set = fleet.set_give_back(id, mode);
        set.map_err(|error| error.to_string())
    }

    /// Sets the mode, and waits until the guest's figures show it. Fails after a timeout.
    fn set_and_wait(&mut self, mode: GiveBack) -> Result<(), String> {
        self.set(mode)?;
        let since = Instant::now();
        while since.elapsed() < TIMEOUT {
            if let Reach::Fleet(fleet, id) = &mut self.reach
                && let Some(Presence::Here(figures)) = fleet.figures().get(id)
                && figures.give_back == mode.name()
            {
                return Ok(());
            }
            thread::sleep(ASK_EVERY);
        }
        Err(format!(
            "the guest does not follow give-back={}",
            mode.name()
        ))
    }

    /// Returns whether the guest has finished the last request. Fails if the request failed.
    fn is_through(&mut self) -> Result<bool, String> {
        let Reach::Fleet(fleet, id) = &mut self.reach else {
            return Ok(true);
        };
        match fleet.figures().get(id) {
            Some(Presence::Here(figures)) => {
                if figures.reclaim_failed == Some(self.number) {
                    return Err("the request for memory failed".into());
                }
                // Numbers wrap around, and 0 means that no request has finished.
                Ok(figures.reclaimed.is_some_and(|done| {
                    done != 0 && done.wrapping_sub(self.number).cast_signed() >= 0
                }))
            }
            Some(Presence::Silent) => Ok(false),
            None => Err("the guest has ended".into()),
        }
    }

    /// Returns the bytes that the balloon leaves to the guest, or the plugged bytes of the
    /// virtio-mem device. Fails if the monitor fails.
    fn left_to_guest(&mut self) -> Result<u64, String> {
        let Reach::Monitor(monitor) = &mut self.reach else {
            return Ok(0);
        };
        match self.by {
            By::Plug => {
                let size = monitor.property(DEVICE, "size");
                size.map_err(|error| error.to_string())?
                    .as_u64()
                    .ok_or_else(|| "QEMU does not say what is plugged in".to_owned())
            }
            _ => monitor.balloon().map_err(|error| error.to_string()),
        }
    }

    /// Sets the target of the balloon or of the virtio-mem device to `bytes`.
    fn want(&mut self, bytes: u64) -> Result<(), String> {
        let Reach::Monitor(monitor) = &mut self.reach else {
            return Ok(());
        };
        let done = match self.by {
            By::Plug => monitor.set_property(DEVICE, "requested-size", Value::from(bytes)),
            _ => monitor.set_balloon(bytes),
        };
        done.map_err(|error| error.to_string())
    }
}
