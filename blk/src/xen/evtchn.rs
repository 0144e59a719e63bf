//! `/dev/xen/evtchn`: event channels, which are interrupts between domains.
//!
//! A port stays masked from the time at which it is read as pending until it is written back. So a
//! front-end that notifies without end causes one event for each check by its disk's thread.

use super::grants::DomainId;
use super::open_device;
use rustix::fs::OFlags;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The number of an event channel's end in this domain.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port(pub u32);

/// Computes an ioctl command: `_IOC(_IOC_NONE, 'E', number, bytes)` of Linux.
const fn command(number: u64, bytes: usize) -> libc::c_ulong {
    (bytes as u64) << 16 | (b'E' as u64) << 8 | number
}

/// The `ioctl` command that binds a new port of this domain to a port of another.
pub(crate) const BIND_INTERDOMAIN: libc::c_ulong = command(1, 8);
/// The command that makes a port to which another domain may bind its own.
const BIND_UNBOUND: libc::c_ulong = command(2, 4);
/// The `ioctl` command that frees a port.
pub(crate) const UNBIND: libc::c_ulong = command(3, 4);
/// The `ioctl` command that notifies the other end of a port.
pub(crate) const NOTIFY: libc::c_ulong = command(4, 4);
/// The `ioctl` command after which the descriptor's ports can be bound to one domain only.
pub(crate) const RESTRICT_DOMID: libc::c_ulong = command(6, 2);

/// Maximum number of pending ports that one call reads.
const PENDING: usize = 64;

/// The operations on event channels.
pub trait Events: fmt::Debug {
    /// Binds a new port of this domain to the port `remote` of `domain`, and returns the new port.
    ///
    /// # Errors
    /// Fails if that port does not exist, is not offered to this domain, or is bound already.
    fn bind(&self, domain: DomainId, remote: u32) -> io::Result<Port>;
    /// Frees `port`. Does nothing if it is not bound.
    fn unbind(&self, port: Port);
    /// Notifies the other end of `port`. Does nothing if the other end is gone.
    fn notify(&self, port: Port);
    /// Unmasks `port`, which was returned as pending, so that it can become pending again.
    fn unmask(&self, port: Port);
    /// Returns ports that have become pending, and leaves them masked. Does not wait. Returns at
    /// most 64; the next call returns the others.
    fn pending(&self) -> Vec<Port>;
    /// Returns a descriptor that polls readable when a port is pending. Returns `None` if the
    /// implementation has no descriptor.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// An open `/dev/xen/evtchn`. The kernel frees its ports when it is closed, also if the process is
/// killed.
#[derive(Debug)]
pub struct Evtchn {
    fd: OwnedFd,
}

impl Evtchn {
    /// Opens the device `/dev/xen/evtchn` for ports to `domain` only. Linux cannot restrict a
    /// descriptor to domain 0, so for that it can be bound to any domain.
    ///
    /// # Errors
    /// Fails if the device does not exist, because this is no Xen domain or its `evtchn` module is
    /// not loaded, or if it refuses the restriction.
    pub fn open(domain: DomainId) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = open_device("/dev/xen/evtchn", flags)?;
        let evtchn = Self { fd };
        let mut domain = domain.0;
        if domain != 0 {
            // SAFETY: the command takes a pointer to a domain's number.
            unsafe { evtchn.call(RESTRICT_DOMID, &raw mut domain)? };
        }
        Ok(evtchn)
    }

    /// Makes a port to which `domain` may bind its own, and returns it. A front-end passes its
    /// number to its back-end.
    ///
    /// # Errors
    /// Fails if the device was opened for another domain, or the domain has no port left.
    pub fn offer(&self, domain: DomainId) -> io::Result<Port> {
        let mut remote = u32::from(domain.0);
        // SAFETY: the command takes a domain's number, and a port after it comes back as the
        // result.
        unsafe { self.call(BIND_UNBOUND, &raw mut remote) }.map(Port)
    }

    /// Calls `ioctl` and returns its result. Fails if that is negative.
    ///
    /// # Safety
    /// `argument` must point to the structure that `command` expects.
    unsafe fn call<T>(&self, command: libc::c_ulong, argument: *mut T) -> io::Result<u32> {
        // SAFETY: the caller guarantees that `argument` suits the command.
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
        // The command fails only for ports that are not bound, and these need not be freed.
        // SAFETY: the command takes a port.
        let _ = unsafe { self.call(UNBIND, &raw mut port) };
    }

    fn notify(&self, port: Port) {
        let mut port = port.0;
        // The other end may be gone, and then no notification is needed.
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
