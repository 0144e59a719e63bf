//! `/dev/xen/evtchn`: event channels, the interrupts between domains.
//!
//! A port that was read as pending stays masked until it is written back, so a front-end that
//! notifies without end costs one event for each look that its disk's thread takes.

use super::grants::DomainId;
use super::open_device;
use rustix::fs::OFlags;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A port of ours.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port(pub u32);

/// `_IOC(_IOC_NONE, 'E', number, bytes)` of Linux.
const fn command(number: u64, bytes: usize) -> libc::c_ulong {
    (bytes as u64) << 16 | (b'E' as u64) << 8 | number
}

/// Binds a port of ours to one of another domain's.
pub(crate) const BIND_INTERDOMAIN: libc::c_ulong = command(1, 8);
/// Makes a port of ours that another domain may bind.
const BIND_UNBOUND: libc::c_ulong = command(2, 4);
/// Gives a port up.
pub(crate) const UNBIND: libc::c_ulong = command(3, 4);
/// Notifies the other end.
pub(crate) const NOTIFY: libc::c_ulong = command(4, 4);
/// From then on the descriptor can only be bound to this domain.
pub(crate) const RESTRICT_DOMID: libc::c_ulong = command(6, 2);

/// Ports that are looked at together.
const PENDING: usize = 64;

/// What is needed of event channels.
pub trait Events: fmt::Debug {
    /// Binds to the other domain's `remote` port.
    ///
    /// # Errors
    /// If that port is not there for us, or bound already.
    fn bind(&self, domain: DomainId, remote: u32) -> io::Result<Port>;
    /// Gives `port` up.
    fn unbind(&self, port: Port);
    /// Notifies the other end of `port`.
    fn notify(&self, port: Port);
    /// Lets `port` become pending again.
    fn unmask(&self, port: Port);
    /// Ports that were notified since they were last unmasked.
    fn pending(&self) -> Vec<Port>;
    /// What polls readable when a port is pending.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// The open device. Its ports go with it, also if the process is killed.
#[derive(Debug)]
pub struct Evtchn {
    fd: OwnedFd,
}

impl Evtchn {
    /// Opens the device, for ports to `domain` alone. Linux restricts no descriptor to domain 0:
    /// one for that can be bound to any.
    ///
    /// # Errors
    /// If there is none: this is no Xen domain, or its `evtchn` module is not loaded.
    pub fn open(domain: DomainId) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = open_device("/dev/xen/evtchn", flags)?;
        let evtchn = Self { fd };
        let mut domain = domain.0;
        if domain != 0 {
            // SAFETY: the command takes a domain's number.
            unsafe { evtchn.call(RESTRICT_DOMID, &raw mut domain)? };
        }
        Ok(evtchn)
    }

    /// A port that `domain` may bind its own to: what a front-end tells its back-end.
    ///
    /// # Errors
    /// If the device was opened for another domain, or there are too many ports.
    pub fn offer(&self, domain: DomainId) -> io::Result<Port> {
        let mut remote = u32::from(domain.0);
        // SAFETY: the command takes a domain's number.
        unsafe { self.call(BIND_UNBOUND, &raw mut remote) }.map(Port)
    }

    /// # Safety
    /// `argument` is what `command` asks for.
    unsafe fn call<T>(&self, command: libc::c_ulong, argument: *mut T) -> io::Result<u32> {
        // SAFETY: as promised by the caller.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), command, argument) };
        u32::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

impl Events for Evtchn {
    fn bind(&self, domain: DomainId, remote: u32) -> io::Result<Port> {
        let mut ends = [u32::from(domain.0), remote];
        // SAFETY: the command takes a domain's number and a port.
        unsafe { self.call(BIND_INTERDOMAIN, ends.as_mut_ptr()) }.map(Port)
    }

    fn unbind(&self, port: Port) {
        let mut port = port.0;
        // It fails only for ports that are not ours; then there is nothing to give up.
        // SAFETY: the command takes a port.
        let _ = unsafe { self.call(UNBIND, &raw mut port) };
    }

    fn notify(&self, port: Port) {
        let mut port = port.0;
        // The other end may be gone: then nobody is to be told.
        // SAFETY: the command takes a port.
        let _ = unsafe { self.call(NOTIFY, &raw mut port) };
    }

    fn unmask(&self, port: Port) {
        let _ = rustix::io::write(&self.fd, &port.0.to_ne_bytes());
    }

    fn pending(&self) -> Vec<Port> {
        let mut bytes = [0; 4 * PENDING];
        let read = rustix::io::read(&self.fd, &mut bytes).unwrap_or(0);
        let (words, _) = bytes[..read].as_chunks::<4>();
        words
            .iter()
            .map(|word| Port(u32::from_ne_bytes(*word)))
            .collect()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}
