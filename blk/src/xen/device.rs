//! One device in xenstore: its entries and states, and the connection to its front-end's rings.

use super::evtchn::{Events, Port};
use super::grants::{DomainId, GrantRef, Grants, Mapping};
use super::protocol::{Abi, MAX_INDIRECT_SEGMENTS};
use super::ring::Ring;
use super::rings::Rings;
use super::state::{Action, DeviceStates, State, next};
use super::store::{Store, StoreError, Transaction, write_all};
use crate::image::Image;
use crate::messages::RateLimitedLog;
use crate::request::SECTOR_BYTES;
use crate::time::Clock;
use std::rc::Rc;

/// Maximum size of a ring: 2 to this power pages.
pub const MAX_RING_PAGE_ORDER: u32 = 4;
/// Maximum number of rings of one disk.
pub const MAX_QUEUES: u32 = 8;
/// The bit in `info` that marks a read-only disk.
const VDISK_READONLY: u32 = 4;
/// Maximum number of steps after one event. The states settle in fewer.
const MAX_STEPS: usize = 8;

/// Number of characters of an invalid value that a message shows.
const SHOWN_CHARACTERS: usize = 32;

/// Reads and writes outside of a transaction.
const NONE: Transaction = Transaction(0);

/// The entry of a device in xenstore, by its parts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    /// The folder of this type of back-end, relative to this domain's own path: `backend/qdisk`.
    pub folder: String,
    /// The front-end's domain.
    pub domain: DomainId,
    /// The device's number in the front-end's domain.
    pub device: u32,
}

impl Address {
    /// Returns the path of the back-end's folder in xenstore, relative to this domain's own path.
    pub fn path(&self) -> String {
        format!("{}/{}/{}", self.folder, self.domain.0, self.device)
    }

    /// Returns the name of the instance that serves the device: `xen-DOMAIN-DEVICE`.
    pub fn name(&self) -> String {
        format!("xen-{}-{}", self.domain.0, self.device)
    }
}

/// The two ends of a device in xenstore.
#[derive(Clone, Debug)]
pub struct Front {
    /// The back-end's end.
    pub address: Address,
    /// The path of the front-end's end.
    pub path: String,
}

/// The reason why the back-end could not connect to the rings of a front-end.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An entry of the front-end is missing or invalid.
    #[error("the front-end's {name} is {value}; {wanted}")]
    Value {
        /// Name of the entry.
        name: String,
        /// The value, shortened.
        value: String,
        /// The values that are allowed.
        wanted: String,
    },
    /// A ring's pages cannot be mapped, because they are not granted or not enough address space is
    /// left.
    #[error("ring {ring}: its pages cannot be mapped: {source}")]
    Map {
        /// Number of the ring.
        ring: u32,
        /// The reason.
        source: std::io::Error,
    },
    /// A ring's event channel cannot be bound.
    #[error("ring {ring}: event channel {port} cannot be bound: {source}")]
    Bind {
        /// Number of the ring.
        ring: u32,
        /// The front-end's port.
        port: u32,
        /// The reason.
        source: std::io::Error,
    },
    /// xenstore failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One Xen block device, as its back-end sees it: its entries in xenstore and the offered features.
#[derive(Debug)]
pub struct Device<S> {
    /// The connection to xenstore.
    pub store: S,
    address: Address,
    frontend: String,
    grants: Rc<dyn Grants>,
    events: Rc<dyn Events>,
    offer: Vec<(&'static str, String)>,
    /// Whether the front-end could not be connected since the last offer.
    refused: bool,
    log: RateLimitedLog,
}

/// Whether the instance must go on after [`Device::settle`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum InstanceState {
    /// The device exists.
    Running,
    /// The device is gone, and the instance must end.
    Ended,
}

/// Reads the states of both ends of a device from `store`. `back` and `front` are the paths of
/// their folders. `mapped` and `refused` are `false` in the result, because xenstore does not know
/// them. `online` is `false` if the toolstack has removed the device.
///
/// # Errors
/// Fails if xenstore does not answer or refuses.
pub fn device_states(
    store: &mut dyn Store,
    back: &str,
    front: &str,
) -> Result<DeviceStates, StoreError> {
    let there = store.read(NONE, &format!("{back}/frontend"))?.is_some();
    let online = store.read(NONE, &format!("{back}/online"))?;
    let state = |value: Option<String>| State::told(value.as_deref());
    Ok(DeviceStates {
        front: state(store.read(NONE, &format!("{front}/state"))?),
        back: state(store.read(NONE, &format!("{back}/state"))?),
        online: there && online.is_none_or(|online| online.trim() != "0"),
        mapped: false,
        refused: false,
    })
}

impl<S: Store> Device<S> {
    /// Makes the back-end of the device at `address`, whose front-end is at the path `frontend`,
    /// and watches the entries of both. Writes nothing to xenstore yet. `image` gives the features
    /// to offer. `grants` and `events` are the interfaces to the hypervisor.
    ///
    /// # Errors
    /// Fails if xenstore refuses or does not answer.
    pub fn new(
        mut store: S,
        address: Address,
        frontend: String,
        image: &Image,
        (grants, events): (Rc<dyn Grants>, Rc<dyn Events>),
    ) -> Result<Self, StoreError> {
        let back = address.path();
        for path in [
            format!("{frontend}/state"),
            format!("{back}/state"),
            format!("{back}/online"),
        ] {
            store.watch(&path, "device")?;
        }
        let log = RateLimitedLog::new(&address.name(), Clock::start());
        Ok(Self {
            log,
            store,
            address,
            frontend,
            grants,
            events,
            offer: offer(image),
            refused: false,
        })
    }

    /// Carries out the actions that the states of both ends require, until there is none or after 8
    /// of them: offers features, connects or disconnects `rings`, and writes states. Calls `drain`
    /// to finish the requests under way before rings are disconnected. Returns
    /// [`InstanceState::Ended`] if the device is gone, otherwise [`InstanceState::Running`].
    ///
    /// # Errors
    /// Fails if xenstore does not answer or refuses, or `drain` fails. An error of the front-end is
    /// written to xenstore and stderr instead.
    pub fn settle(
        &mut self,
        rings: &mut Rings,
        mut drain: impl FnMut(&mut Rings) -> std::io::Result<()>,
    ) -> Result<InstanceState, StoreError> {
        let back = self.address.path();
        for _ in 0..MAX_STEPS {
            let seen = device_states(&mut self.store, &back, &self.frontend)?;
            let seen = DeviceStates {
                mapped: rings.connected(),
                refused: self.refused,
                ..seen
            };
            match next(seen) {
                Action::Stay => break,
                Action::Offer => {
                    drain(rings)?;
                    rings.disconnect();
                    self.refused = false;
                    let offer = self.offer.clone();
                    self.tell(&offer)?;
                }
                Action::Connect => match self.connect(rings) {
                    Ok(()) if seen.back < State::Connected => {
                        self.tell(&[("state", State::Connected.to_string())])?;
                    }
                    Ok(()) => {}
                    Err(ConnectError::Store(error)) => return Err(error),
                    Err(error) => {
                        self.refused = true;
                        self.complain(&error.to_string())?;
                    }
                },
                Action::Tell(state) => self.tell(&[("state", state.to_string())])?,
                Action::Close => {
                    drain(rings)?;
                    rings.disconnect();
                    self.tell(&[("state", State::Closed.to_string())])?;
                    if !self.is_there()? {
                        break;
                    }
                }
                Action::End => {
                    drain(rings)?;
                    rings.disconnect();
                    self.tell(&[("state", State::Closed.to_string())])?;
                    return Ok(InstanceState::Ended);
                }
            }
        }
        Ok(InstanceState::Running)
    }

    /// Sets the back-end's state to Closing, because the indices of all rings were invalid.
    ///
    /// # Errors
    /// Fails if xenstore does not answer or refuses.
    pub fn give_up(&mut self) -> Result<(), StoreError> {
        self.tell(&[("state", State::Closing.to_string())])
    }

    /// Writes the error `why` to xenstore's entry `error`, and to stderr at a limited rate.
    ///
    /// # Errors
    /// Fails if xenstore does not answer or refuses.
    pub fn complain(&mut self, why: &str) -> Result<(), StoreError> {
        self.log.log(format_args!("{why}"));
        self.tell(&[("error", why.to_owned())])
    }

    /// Returns whether the device's folder still exists.
    fn is_there(&mut self) -> Result<bool, StoreError> {
        let path = format!("{}/frontend", self.address.path());
        Ok(self.store.read(NONE, &path)?.is_some())
    }

    /// Writes entries of the back-end, in one transaction.
    fn tell(&mut self, values: &[(&str, String)]) -> Result<(), StoreError> {
        write_all(&mut self.store, &self.address.path(), values).map(|_| ())
    }

    /// Reads an entry of the front-end. Returns `None` if it does not exist.
    fn front(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        let path = format!("{}/{name}", self.frontend);
        self.store.read(NONE, &path)
    }

    /// Reads a number from `least` to `most` from an entry of the front-end. If the entry is
    /// missing, returns `otherwise`. Fails if the number is out of range, or the entry is missing
    /// and `otherwise` is `None`.
    fn number(
        &mut self,
        name: &str,
        otherwise: Option<u32>,
        (least, most): (u32, u32),
    ) -> Result<u32, ConnectError> {
        let value = self.front(name)?;
        let number = match (&value, otherwise) {
            (None, Some(number)) => Some(number),
            (None, None) => None,
            (Some(text), _) => text.trim().parse().ok(),
        };
        let fits = number.filter(|number| (least..=most).contains(number));
        fits.ok_or_else(|| ConnectError::Value {
            name: name.to_owned(),
            value: value.map_or("missing".into(), |text| shown(&text)),
            wanted: format!("{least} to {most} it can be"),
        })
    }

    /// Reads the front-end's entries, maps its rings and binds their event channels. Connects all
    /// rings or none.
    fn connect(&mut self, rings: &mut Rings) -> Result<(), ConnectError> {
        let protocol = self.front("protocol")?;
        let abi = Abi::named(protocol.as_deref()).ok_or_else(|| ConnectError::Value {
            name: "protocol".into(),
            value: shown(protocol.as_deref().unwrap_or_default()),
            wanted: "x86_64-abi or x86_32-abi it can be".into(),
        })?;
        let persistent = self.number("feature-persistent", Some(0), (0, 1))? == 1;
        let queues = self.number("multi-queue-num-queues", Some(1), (1, MAX_QUEUES))?;
        let order = self.number("ring-page-order", Some(0), (0, MAX_RING_PAGE_ORDER))?;
        let mut connected: Vec<(Ring, Port)> = Vec::new();
        for queue in 0..queues {
            match self.ring(queue, queues > 1, order, abi) {
                Ok(ring) => connected.push(ring),
                Err(error) => {
                    for (_, port) in connected {
                        self.events.unbind(port);
                    }
                    return Err(error);
                }
            }
        }
        rings.connect(connected, abi, persistent);
        Ok(())
    }

    /// Maps ring number `queue` of 2^`order` pages and binds its event channel. With `folder`, its
    /// entries are in a folder of their own.
    fn ring(
        &mut self,
        queue: u32,
        folder: bool,
        order: u32,
        abi: Abi,
    ) -> Result<(Ring, Port), ConnectError> {
        let prefix = if folder {
            format!("queue-{queue}/")
        } else {
            String::new()
        };
        let any = (0, u32::MAX);
        let mut pages = Vec::new();
        if order == 0 && self.front(&format!("{prefix}ring-ref"))?.is_some() {
            pages.push(GrantRef(self.number(
                &format!("{prefix}ring-ref"),
                None,
                any,
            )?));
        } else {
            for page in 0..1 << order {
                let name = format!("{prefix}ring-ref{page}");
                pages.push(GrantRef(self.number(&name, None, any)?));
            }
        }
        let remote = self.number(&format!("{prefix}event-channel"), None, any)?;
        let domain = self.address.domain;
        let memory = Mapping::new(&self.grants, domain, &pages, true).map_err(|source| {
            ConnectError::Map {
                ring: queue,
                source,
            }
        })?;
        let port = self.events.bind(domain, remote);
        let port = port.map_err(|source| ConnectError::Bind {
            ring: queue,
            port: remote,
            source,
        })?;
        Ok((Ring::new(memory, abi), port))
    }
}

/// Quotes the beginning of a front-end's value for a message. A whole value might be too long for
/// the entry in xenstore that the message goes to.
fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(SHOWN_CHARACTERS).collect();
    let more = if beginning.len() < text.len() {
        "…"
    } else {
        ""
    };
    format!("{beginning:?}{more}")
}

/// Returns the entries that describe the disk and the features to the front-end.
fn offer(image: &Image) -> Vec<(&'static str, String)> {
    let writable = u32::from(!image.read_only());
    let block = image.block_bytes();
    let info = if image.read_only() { VDISK_READONLY } else { 0 };
    vec![
        ("sectors", (image.bytes() / SECTOR_BYTES).to_string()),
        ("sector-size", block.to_string()),
        ("physical-sector-size", block.to_string()),
        ("info", info.to_string()),
        ("feature-flush-cache", "1".into()),
        ("feature-discard", writable.to_string()),
        ("discard-granularity", block.to_string()),
        ("discard-alignment", "0".into()),
        ("discard-secure", "0".into()),
        ("feature-persistent", "1".into()),
        (
            "feature-max-indirect-segments",
            MAX_INDIRECT_SEGMENTS.to_string(),
        ),
        ("max-ring-page-order", MAX_RING_PAGE_ORDER.to_string()),
        ("multi-queue-max-queues", MAX_QUEUES.to_string()),
        ("state", State::InitWait.to_string()),
    ]
}

#[cfg(test)]
#[path = "device_tests.rs"]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
