//! Finds the Xen devices of this back-end in xenstore, and starts a disk for each.
//!
//! The toolstack makes a folder for each device: `backend/qdisk/<domain>/<device>` below this
//! domain's own path. Linux's `xen-blkback` uses `backend/vbd`, so the two do not conflict.

use crate::capabilities::keep_capabilities;
use crate::image::{Location, Spec};
use crate::messages::print;
use crate::server::{Disk, Server};
use crate::xen::device::{Address, Front, device_states};
use crate::xen::grants::DomainId;
use crate::xen::state::{Action, next};
use crate::xen::store::{Store, StoreError, Transaction, write_all};
use crate::xen::xenbus::Xenbus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::thread::CapabilitySet;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The back-end type that toolstacks use for back-ends in user space: the folder's name in
/// xenstore.
pub const DEFAULT_BACKEND: &str = "qdisk";
/// Time after which a device that could not be served, or whose thread ended, is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// Interval at which the thread checks for instances that ended.
const ROUND: Duration = Duration::from_secs(1);
/// Maximum length of a back-end type in bytes.
const MAX_NAME: usize = 32;

/// Reads and writes outside of a transaction.
const NONE: Transaction = Transaction(0);

/// The right to serve the devices of one back-end type, which one process has at a time. A second
/// process would take over rings that the first still serves. The kernel releases it at the end of
/// the process, however it ends.
#[derive(Debug)]
struct Claim(#[allow(dead_code, reason = "held, not used")] OwnedFd);

impl Claim {
    /// Claims the devices of the back-end type `name`. Fails with `AddrInUse` if another process
    /// has claimed them.
    fn new(name: &str) -> io::Result<Self> {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        let address = SocketAddrUnix::new_abstract_name(format!("ebb-blk-xen-{name}").as_bytes())?;
        rustix::net::bind(&socket, &address).map_err(|errno| match errno {
            rustix::io::Errno::ADDRINUSE => io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("another process serves the back-ends of backend/{name}"),
            ),
            errno => errno.into(),
        })?;
        Ok(Self(socket))
    }
}

/// Starts a thread that serves, by `server`, every Xen device of the back-end type `name`, those
/// that exist and those that appear, for the rest of the process. The reason why a device is not
/// served goes to xenstore and stderr, and it is tried again. If xenstore fails, the thread writes
/// this to stderr and ends.
///
/// # Errors
/// Fails with `InvalidInput` if `name` is no valid type or `vbd`, and with `AddrInUse` if another
/// process serves these devices. Fails if the process is not in a Xen domain, xenstore refuses, or
/// the system refuses a thread.
pub fn watch(server: Arc<Server>, name: &str) -> io::Result<()> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(letter) || name == "vbd" {
        let why = format!("`{name}` is no name for back-ends: letters, digits, `-`, `_`; not vbd");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let claim = Claim::new(name)?;
    let mut store = Xenbus::open()?;
    let folder = format!("backend/{name}");
    let told = store.watch(&folder, "devices");
    told.map_err(io::Error::other)?;
    let mut watcher = Watcher {
        server,
        store,
        folder,
        tried: BTreeMap::new(),
    };
    thread::Builder::new().name("xen".into()).spawn(move || {
        let _claim = claim;
        // The thread opens images, which may belong to any user.
        let images = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        let run = keep_capabilities(images).map_err(StoreError::from);
        if let Err(error) = run.and_then(|()| watcher.run()) {
            print(format_args!("no more devices are looked for: {error}"));
        }
    })?;
    Ok(())
}

/// The thread that looks for devices.
struct Watcher<S> {
    server: Arc<Server>,
    store: S,
    folder: String,
    /// The devices that were tried, until they disappear from xenstore.
    tried: BTreeMap<Address, Try>,
}

/// The last attempt to serve a device.
struct Try {
    when: Instant,
    /// The reason why the device was refused, or `None` if it was served.
    refused: Option<String>,
}

impl Watcher<Xenbus> {
    /// Watches xenstore and serves devices, until xenstore fails.
    fn run(&mut self) -> Result<(), StoreError> {
        let mut deferred = false;
        loop {
            let mut changed = self.server.forget_ended() > 0 || deferred;
            while let Some(event) = self.store.event()? {
                changed |= self.matters(&event.path);
            }
            if changed {
                deferred = self.look()?;
                if !deferred {
                    // Further events may have arrived in the store's buffer, for which the socket
                    // does not poll.
                    continue;
                }
            }
            let wait = Timespec::try_from(ROUND).ok();
            let mut fds = [PollFd::new(&self.store, PollFlags::IN)];
            match poll(&mut fds, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }
}

impl<S: Store> Watcher<S> {
    /// Returns whether a change at `path` can mean that a device must be served. Changes that the
    /// threads of devices make themselves cannot.
    fn matters(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&self.folder).unwrap_or(path);
        match rest.split('/').filter(|part| !part.is_empty()).nth(2) {
            None => true,
            Some(part) => matches!(
                part,
                "params" | "frontend" | "mode" | "online" | "hotplug-status"
            ),
        }
    }

    /// Serves the devices in xenstore that are not served yet. Returns whether one must be tried
    /// again later.
    fn look(&mut self) -> Result<bool, StoreError> {
        let folder = self.folder.clone();
        let mut seen = Vec::new();
        for domain in self.store.list(&folder)? {
            let Ok(number) = domain.parse() else { continue };
            for device in self.store.list(&format!("{folder}/{domain}"))? {
                if let Ok(device) = device.parse() {
                    seen.push(Address {
                        folder: folder.clone(),
                        domain: DomainId(number),
                        device,
                    });
                }
            }
        }
        self.tried.retain(|address, _| seen.contains(address));
        let served = self.server.instances();
        seen.retain(|address| !served.contains_key(&address.name()));
        let recently = |tried: &Try| tried.when.elapsed() < RETRY;
        let (waiting, ready): (Vec<_>, Vec<_>) = seen
            .into_iter()
            .partition(|address| self.tried.get(address).is_some_and(recently));
        let mut again = !waiting.is_empty();
        for address in ready {
            again |= self.serve(address)?;
        }
        Ok(again)
    }

    /// Serves a device, or writes the reason for not doing so to xenstore. Returns whether to try
    /// again later without a change in xenstore: an image may appear, or a predecessor may release
    /// it.
    fn serve(&mut self, address: Address) -> Result<bool, StoreError> {
        let back = address.path();
        let mut value = |name: &str| self.store.read(NONE, &format!("{back}/{name}"));
        // Toolstacks write these together; a device made by hand may lack one for a while.
        let (Some(front), Some(params)) = (value("frontend")?, value("params")?) else {
            return Ok(false);
        };
        let mode = value("mode")?;
        if next(device_states(&mut self.store, &back, &front)?) == Action::End {
            return Ok(false);
        }
        let spec = match spec(address.domain, &front, &params, mode.as_deref()) {
            Ok(spec) => spec,
            Err(why) => return self.refuse(address, why).map(|()| false),
        };
        let disk = Disk {
            name: address.name(),
            spec,
            settings: Vec::new(),
        };
        let place = Front {
            address: address.clone(),
            path: front,
        };
        match self.server.serve_xen(&disk, place) {
            Ok(handle) => {
                print(format_args!(
                    "{} {params} by {}",
                    disk.name,
                    handle.io_kind()
                ));
                self.note(address, None);
                Ok(false)
            }
            Err(error) => self.refuse(address, error.to_string()).map(|()| true),
        }
    }

    /// Records an attempt. Returns the one before.
    fn note(&mut self, address: Address, refused: Option<String>) -> Option<Try> {
        let when = Instant::now();
        self.tried.insert(address, Try { when, refused })
    }

    /// Writes `why` to xenstore's `hotplug-error`, where the toolstack looks for it, and to stderr.
    /// Does nothing if the device was refused for the same reason before.
    fn refuse(&mut self, address: Address, why: String) -> Result<(), StoreError> {
        let path = address.path();
        let before = self.note(address, Some(why.clone()));
        if before.and_then(|tried| tried.refused).as_ref() == Some(&why) {
            return Ok(());
        }
        print(format_args!("{path}: {why}"));
        write_all(&mut self.store, &path, &[("hotplug-error", why)]).map(|_| ())
    }
}

/// Returns the image that a device's entries in xenstore name. The error is a message for the
/// toolstack.
fn spec(domain: DomainId, front: &str, params: &str, mode: Option<&str>) -> Result<Spec, String> {
    let own = format!("/local/domain/{}/", domain.0);
    if !front.starts_with(&own) {
        return Err(format!("frontend is {front}, which is not below {own}"));
    }
    // Toolstacks write the format in front of the path.
    let path = ["aio:", "raw:", "file:", "phy:"]
        .iter()
        .find_map(|format| params.strip_prefix(format))
        .unwrap_or(params);
    if !path.starts_with('/') {
        return Err(format!(
            "params is {params}; it has to be the path of a raw image or a block device"
        ));
    }
    Ok(Spec {
        location: Location::Path(path.into()),
        read_only: !mode.is_some_and(|mode| mode.starts_with('w')),
        cached: false,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::server::Options;
    use crate::xen::fake::FakeStore;

    /// Makes a watcher of the devices in `store`.
    fn watcher(store: &FakeStore) -> Watcher<FakeStore> {
        Watcher {
            server: Arc::new(Server::new(Options::default())),
            store: store.clone(),
            folder: "backend/qdisk".into(),
            tried: BTreeMap::new(),
        }
    }

    #[test]
    fn a_device_that_appears_later_is_served_once_it_is_complete() {
        let store = FakeStore::default();
        let mut watcher = watcher(&store);
        assert!(!watcher.look().unwrap());
        let (back, front) = ("backend/qdisk/7/51728", "/local/domain/7/device/vbd/51728");
        let params = format!("{back}/params");
        store.set(&params, "/nowhere/disk.img");
        store.set(&format!("{front}/state"), "1");
        assert!(watcher.matters(&params));
        assert!(!watcher.look().unwrap());
        assert!(watcher.tried.is_empty(), "no front-end is known");
        let frontend = format!("{back}/frontend");
        store.set(&frontend, front);
        assert!(watcher.matters(&frontend));
        assert!(watcher.look().unwrap());
        assert_eq!(watcher.tried.len(), 1);
        assert!(!watcher.matters(&format!("{back}/state")), "its own change");
        // A device that was detached may come again at once.
        store.remove(back);
        assert!(watcher.matters(back));
        assert!(!watcher.look().unwrap());
        assert!(watcher.tried.is_empty());
    }

    #[test]
    fn a_device_that_cannot_be_served_is_tried_again_and_told_of_once() {
        let store = FakeStore::default();
        let back = "backend/qdisk/7/51712";
        let device = |values: &[(&str, &str)]| {
            for (name, value) in values {
                store.set(&format!("{back}/{name}"), value);
            }
        };
        let front = ("frontend", "/local/domain/7/device/vbd/51712");
        device(&[front, ("params", "/nowhere/disk.img"), ("online", "1")]);
        store.set("/local/domain/7/device/vbd/51712/state", "1");
        let mut watcher = watcher(&store);
        let error = format!("{back}/hotplug-error");
        assert!(watcher.look().unwrap(), "it is to be tried again");
        assert!(store.get(&error).contains("/nowhere/disk.img"));
        store.set(&error, "");
        for tried in watcher.tried.values_mut() {
            tried.when -= RETRY;
        }
        assert!(watcher.look().unwrap());
        assert_eq!(store.get(&error), "", "the same is not told again");
        // An error that only the toolstack can correct is reported, and not tried again.
        device(&[("params", "qcow2:/a")]);
        for tried in watcher.tried.values_mut() {
            tried.when -= RETRY;
        }
        assert!(!watcher.look().unwrap());
        assert!(store.get(&error).contains("qcow2:/a"));
        // The error of a device that was removed does not make its folder again.
        store.remove(back);
        let address = watcher.tried.keys().next().cloned().unwrap();
        watcher.refuse(address, "too late".into()).unwrap();
        assert_eq!(store.get(&error), "");
    }

    #[test]
    fn images_are_paths_with_or_without_their_format() {
        let image = |params: &str, mode| {
            let spec = spec(DomainId(7), "/local/domain/7/device/vbd/1", params, mode);
            spec.map(|spec| (spec.location, spec.read_only))
        };
        let path = |path: &str| Location::Path(path.into());
        assert_eq!(image("aio:/a:b", Some("w")), Ok((path("/a:b"), false)));
        assert_eq!(image("/dev/ram0", Some("r")), Ok((path("/dev/ram0"), true)));
        assert_eq!(image("/dev/ram0", None), Ok((path("/dev/ram0"), true)));
        assert!(image("qcow2:/a", Some("w")).is_err());
        assert!(spec(DomainId(7), "/local/domain/8/device/vbd/1", "/a", None).is_err());
    }
}
