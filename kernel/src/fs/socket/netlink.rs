//! Netlink sockets: programs ask the kernel about interfaces and addresses (`NETLINK_ROUTE`), and
//! about sockets (`NETLINK_SOCK_DIAG`). The kernel lists sockets in `/proc/net` alone.

use super::account::{self, NoRoom};
use super::address::{Address, Family, Protocol};
use super::inbox::Refusal;
use super::operations::Outgoing;
use super::payload::Payload;
use super::queue::Bounds;
use super::segment::Segment;
use super::state::{Socket, caller, caller_is_admin};
use super::stream::OVERHEAD;
use crate::fs::io::{ByteSource, NO_LIMIT, SliceSource};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use logic::credentials::{Capabilities, Credentials as Subject};
use logic::errno::{Errno, SysResult};
use logic::socket::address::{AF_UNSPEC, split_family};
use logic::socket::control::Credentials;
use logic::socket::netlink::{self, Topic};
use machine::sync::SpinLock;

/// The ports in use.
static PORTS: SpinLock<BTreeSet<u32>> = SpinLock::new(BTreeSet::new());

/// Keeps a port until it is dropped.
struct PortUse(u32);

impl Drop for PortUse {
    fn drop(&mut self) {
        PORTS.lock().remove(&self.0);
    }
}

impl PortUse {
    fn take(port: u32) -> Result<Self, Errno> {
        if PORTS.lock().insert(port) {
            Ok(Self(port))
        } else {
            Err(Errno::EADDRINUSE)
        }
    }

    /// Takes the number of the calling process or, if that is taken, one that no process has.
    fn take_any() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0x8000_0000);
        let mut port = caller().pid;
        loop {
            if let Ok(taken) = Self::take(port) {
                return taken;
            }
            // Relaxed: only the number matters. There are fewer sockets than numbers.
            port = NEXT.fetch_add(1, Ordering::Relaxed) | 0x8000_0000;
        }
    }
}

impl Socket {
    /// Binds the socket to the port and the groups in `bytes` (`bind(2)`). Port 0 takes any free
    /// port. A socket that is bound already only changes its groups.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `bytes` is no netlink address or the socket is bound to another port.
    /// Fails with `EADDRINUSE` if the port is in use.
    pub(super) fn bind_netlink(&self, bytes: &[u8]) -> Result<(), Errno> {
        let (port, groups) = netlink::parse_address(bytes)?;
        self.take_netlink_port(port, groups)
    }

    fn take_netlink_port(&self, port: u32, groups: u32) -> Result<(), Errno> {
        {
            let mut state = self.state.lock();
            if let Address::Netlink { port: ours, .. } = state.local
                && state.bound.is_some()
            {
                if port != ours {
                    return Err(Errno::EINVAL);
                }
                state.local = Address::Netlink { port: ours, groups };
                return Ok(());
            }
        }
        let taken = match port {
            0 => PortUse::take_any(),
            _ => PortUse::take(port)?,
        };
        let port = taken.0;
        let taken = Arc::new(taken);
        let mut state = self.state.lock();
        if state.bound.is_some() {
            drop(state);
            // Another thread was faster.
            drop(taken);
            return Err(Errno::EINVAL);
        }
        state.local = Address::Netlink { port, groups };
        state.bound = Some(taken);
        Ok(())
    }

    /// Returns the socket's port number. Takes a free one if the socket has none. Fails with
    /// `EINVAL` if this is no netlink socket.
    fn netlink_port(&self) -> Result<u32, Errno> {
        if !self.is_bound() {
            match self.take_netlink_port(0, 0) {
                // Another thread was faster.
                Err(Errno::EINVAL) => {}
                other => other?,
            }
        }
        match self.local() {
            Address::Netlink { port, .. } => Ok(port),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Checks that `bytes` is the address of the kernel, and gives the socket a port if it has none
    /// (`connect(2)`). All messages go to the kernel anyway. Does nothing for the family
    /// `AF_UNSPEC`.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `bytes` is no netlink address. For the address of another socket,
    /// fails with `EPERM`, or with `ECONNREFUSED` if `who` has `CAP_NET_ADMIN` and `bytes` names no
    /// group.
    pub(super) fn connect_netlink(&self, bytes: &[u8], who: &Subject) -> Result<(), Errno> {
        if split_family(bytes)?.0 == AF_UNSPEC {
            return Ok(());
        }
        Self::check_is_kernel(bytes, who)?;
        self.netlink_port().map(drop)
    }

    fn check_is_kernel(bytes: &[u8], who: &Subject) -> Result<(), Errno> {
        match netlink::parse_address(bytes)? {
            (0, 0) => Ok(()),
            (_, 0) if who.can(Capabilities::NET_ADMIN) => Err(Errno::ECONNREFUSED),
            _ => Err(Errno::EPERM),
        }
    }

    /// Sends requests to the kernel, which puts the answers into the socket's inbox. Returns the
    /// number of bytes sent.
    ///
    /// # Errors
    /// Fails with `ENODATA` if `from` is empty, with `EMSGSIZE` if it is too long, and with
    /// `ENOBUFS` if memory is short. Fails with `EPERM` or `ECONNREFUSED` if the message is for
    /// another receiver than the kernel.
    pub(super) fn send_netlink(&self, from: &mut dyn ByteSource, out: &Outgoing<'_>) -> SysResult {
        let port = self.netlink_port()?;
        if let Some((bytes, caller)) = out.to {
            Self::check_is_kernel(bytes, caller.who)?;
        }
        let length = from.left();
        if length == 0 {
            return Err(Errno::ENODATA);
        }
        let room = self.send_buffer().saturating_sub(OVERHEAD);
        if length > room.min(netlink::REQUESTS_MAX) {
            return Err(Errno::EMSGSIZE);
        }
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(length)
            .map_err(|_| Errno::ENOBUFS)?;
        bytes.resize(length, 0);
        from.fill(&mut bytes)?;
        let _alone = self.answering.lock();
        let topic = match self.protocol() {
            Some(Protocol::SockDiag) => Topic::Sockets,
            _ => Topic::Routes,
        };
        let is_admin = caller_is_admin();
        netlink::answer(&bytes, topic, port, is_admin, |answer| {
            self.receive_from_kernel(&answer);
        });
        Ok(length)
    }

    /// Returns whether this is a netlink socket.
    pub fn is_netlink(&self) -> bool {
        self.family() == Family::Netlink
    }

    /// Puts a message from the kernel into the inbox. If there is no room, the message is lost and
    /// the next call fails with `ENOBUFS`.
    pub fn receive_from_kernel(&self, answer: &[u8]) {
        // Relaxed: an option orders nothing.
        let room = self.settings().receive_buffer.load(Ordering::Relaxed);
        let bounds = Bounds {
            messages: None,
            memory: Some(room),
        };
        let kernel = Address::KERNEL;
        let who = Credentials::default();
        let pushed = match account::charge(None, Payload::memory(answer.len()) + OVERHEAD) {
            Err(NoRoom::Full | NoRoom::Memory) => Err(Refusal::Memory),
            Ok(charge) => Payload::take(&mut SliceSource::new(answer, NO_LIMIT), answer.len())
                .map_err(|_| Refusal::Memory)
                .and_then(|payload| {
                    let segment = Arc::new(Segment::new(payload, kernel, who, charge));
                    self.inbox
                        .push(segment, self.inbox.id(), bounds)
                        .map_err(|(refusal, _)| refusal)
                }),
        };
        if pushed.is_err() {
            self.inbox.set_error(Errno::ENOBUFS);
        }
    }
}
