//! Takes memory from a guest and returns it to the guest, in the way of its column.

use super::column::Method;
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
enum Connection {
    Fleet(Box<Fleet>, GuestId),
    Monitor(Box<Monitor>),
    Nothing,
}

/// Takes memory from one guest and returns it to the guest, by the [`Method`] of its column.
pub(super) struct MemoryControl {
    by: Method,
    connection: Connection,
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
    /// Connects to the guest of the `ebb run` with process number `pid`, which must be up. `socket`
    /// is that of QEMU's second monitor, and `bytes` the amount to take later. For
    /// [`Method::Shared`] sets the guest's mode to `off` and waits for that. Fails if the guest
    /// cannot be reached or does not follow within 30 s.
    pub(super) fn connect(by: Method, pid: u32, socket: &Path, bytes: u64) -> Result<Self, String> {
        let connection = match by {
            Method::Shared | Method::Reclaim => {
                let mut fleet = Fleet::new();
                let (id, _) = fleet
                    .find(Some(&pid.to_string()))
                    .map_err(|error| error.to_string())?;
                Connection::Fleet(Box::new(fleet), id)
            }
            Method::Balloon | Method::Plug => {
                let stream = UnixStream::connect(socket)
                    .map_err(|error| format!("QEMU's monitor: {error}"))?;
                let monitor = Monitor::connect(stream).map_err(|error| error.to_string())?;
                Connection::Monitor(Box::new(monitor))
            }
            Method::Itself | Method::Nothing => Connection::Nothing,
        };
        let mut control = Self {
            by,
            connection,
            bytes,
            full: bytes,
            number: 0,
            asked: None,
        };
        match by {
            Method::Balloon => control.full = control.left_to_guest()?,
            // The mode is off until memory is to leave.
            Method::Shared => control.set_and_wait(GiveBack::Off)?,
            Method::Reclaim | Method::Plug | Method::Itself | Method::Nothing => {}
        }
        Ok(control)
    }

    /// Starts taking the memory from the guest. Does not wait for the end. Does nothing if memory
    /// leaves by itself or not at all. Fails if the guest cannot be reached.
    pub(super) fn start_shrink(&mut self) -> Result<(), String> {
        match self.by {
            Method::Shared => self.set(GiveBack::Shared),
            Method::Reclaim => {
                let Connection::Fleet(fleet, id) = &mut self.connection else {
                    return Ok(());
                };
                let asked = fleet.reclaim(id, Reclaim::Free);
                self.number = asked.map_err(|error| error.to_string())?;
                Ok(())
            }
            Method::Balloon => self.set_target(self.full.saturating_sub(self.bytes)),
            Method::Plug => self.set_target(0),
            Method::Itself | Method::Nothing => Ok(()),
        }
    }

    /// Starts returning the memory to the guest. Does not wait for the end. Does nothing if the
    /// guest keeps its memory all the time. Fails if the guest cannot be reached.
    pub(super) fn start_grow(&mut self) -> Result<(), String> {
        match self.by {
            Method::Shared => self.set(GiveBack::Off),
            Method::Balloon | Method::Plug => self.set_target(self.full),
            // In these modes the guest keeps its memory all the time.
            Method::Reclaim | Method::Itself | Method::Nothing => Ok(()),
        }
    }

    /// Returns whether all memory has left, or `None` if the column's method does not report it.
    /// Returns `Some(false)` without a query if the last one was less than 5 ms ago. Fails if the
    /// guest cannot be reached, has ended, or its step failed.
    pub(super) fn has_shrunk(&mut self) -> Result<Option<bool>, String> {
        if !self.may_ask() {
            return Ok(Some(false));
        }
        match self.by {
            Method::Reclaim => self.has_finished().map(Some),
            Method::Balloon => {
                let goal = self.full.saturating_sub(self.bytes);
                Ok(Some(self.left_to_guest()? <= goal))
            }
            Method::Plug => Ok(Some(self.left_to_guest()? == 0)),
            Method::Shared | Method::Itself | Method::Nothing => Ok(None),
        }
    }

    /// Returns whether the guest has all of its memory again. Returns `false` without a query if
    /// the last one was less than 5 ms ago, and `true` if the guest keeps its memory all the time.
    /// Fails if QEMU's monitor fails.
    pub(super) fn has_grown(&mut self) -> Result<bool, String> {
        match self.by {
            Method::Balloon | Method::Plug => {
                Ok(self.may_ask() && self.left_to_guest()? >= self.full)
            }
            Method::Shared | Method::Reclaim | Method::Itself | Method::Nothing => Ok(true),
        }
    }

    /// Returns whether the host must act to return memory to the guest: with a balloon or
    /// virtio-mem.
    pub(super) fn grows(&self) -> bool {
        matches!(self.by, Method::Balloon | Method::Plug)
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
        let Connection::Fleet(fleet, id) = &mut self.connection else {
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
            if let Connection::Fleet(fleet, id) = &mut self.connection
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
    fn has_finished(&mut self) -> Result<bool, String> {
        let Connection::Fleet(fleet, id) = &mut self.connection else {
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
        let Connection::Monitor(monitor) = &mut self.connection else {
            return Ok(0);
        };
        match self.by {
            Method::Plug => {
                let size = monitor.property(DEVICE, "size");
                size.map_err(|error| error.to_string())?
                    .as_u64()
                    .ok_or_else(|| "QEMU does not say what is plugged in".to_owned())
            }
            _ => monitor.balloon().map_err(|error| error.to_string()),
        }
    }

    /// Sets the target of the balloon or of the virtio-mem device to `bytes`.
    fn set_target(&mut self, bytes: u64) -> Result<(), String> {
        let Connection::Monitor(monitor) = &mut self.connection else {
            return Ok(());
        };
        let done = match self.by {
            Method::Plug => monitor.set_property(DEVICE, "requested-size", Value::from(bytes)),
            _ => monitor.set_balloon(bytes),
        };
        done.map_err(|error| error.to_string())
    }
}
