//! Sockets of ICMP over the loopback interface. Those of `SOCK_DGRAM` send echo requests and
//! receive the replies. Raw ones receive all packets of ICMP. The machine answers requests.

use super::account;
use super::address::{Address, Family, Protocol, SocketKind};
use super::inbox::WITH_STAMP;
use super::operations::Outgoing;
use super::payload::Payload;
use super::ports;
use super::segment::Segment;
use super::state::{Socket, caller};
use super::stream::OVERHEAD;
use crate::fs::io::{ByteSource, NO_LIMIT, SliceSource};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use logic::errno::{Errno, SysResult};
use logic::socket::address::{Endpoint, Ip};
use logic::socket::icmp;
use logic::socket::packet::{Choice, Head, Told};
use machine::sync::SpinLock;

/// The longest packet without its version 4 header.
const LONGEST: usize = 65_515;
/// The most raw sockets. Each packet is examined for every one of them.
const MOST_RAW: usize = 256;

/// The user groups whose members may have sockets that send echo requests: the first and the last
/// (`net.ipv4.ping_group_range`). If the first is above the last, there are none. Relaxed: no other
/// memory depends on them.
pub static PING_GROUPS: [AtomicU32; 2] = [AtomicU32::new(1), AtomicU32::new(0)];

/// All raw sockets.
static RAW: SpinLock<Vec<Weak<Socket>>> = SpinLock::new(Vec::new());

/// A packet between two addresses of this machine.
struct Packet {
    from: Ip,
    to: Endpoint,
    bytes: Vec<u8>,
    hops: u8,
    service: u8,
    mark: u32,
}

impl Packet {
    fn is_v6(&self) -> bool {
        self.to.ip.to_v4().is_none()
    }
}

impl Socket {
    /// Returns whether this is a socket of ICMP.
    pub fn is_icmp(&self) -> bool {
        self.protocol() == Some(Protocol::Icmp)
    }

    /// Registers a new raw socket, so that it receives packets.
    ///
    /// # Errors
    /// Fails with `ENOBUFS` if there are too many raw sockets, or memory is short.
    pub fn receive_raw(&self) -> Result<(), Errno> {
        let this = self.weak();
        let mut all = RAW.lock();
        all.retain(|one| one.strong_count() > 0);
        if all.len() >= MOST_RAW || all.try_reserve(1).is_err() {
            drop(all);
            return Err(Errno::ENOBUFS);
        }
        all.push(this);
        Ok(())
    }

    /// Binds a raw socket to the address of `local`. The port is ignored.
    pub(super) fn bind_raw(&self, local: Endpoint) {
        let mut state = self.state.lock();
        state.local = Address::Inet(Endpoint {
            ip: local.ip,
            port: 0,
        });
        state.chose_address = !local.ip.is_any();
    }

    /// Sends the bytes of `from` as a packet of ICMP, and returns their number. If the packet is a
    /// request, the machine answers it.
    ///
    /// # Errors
    /// Fails as `sendmsg(2)` does, and with `EINVAL` if the packet is no request and the socket is
    /// not raw.
    pub(super) fn send_icmp(&self, from: &mut dyn ByteSource, out: &Outgoing<'_>) -> SysResult {
        let length = from.left();
        if length > LONGEST {
            return Err(Errno::EMSGSIZE);
        }
        let raw = self.kind() == SocketKind::Raw;
        let v6 = self.family() == Family::Inet6;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(length)
            .map_err(|_| Errno::ENOBUFS)?;
        bytes.resize(length, 0);
        from.fill(&mut bytes)?;
        if !raw && !icmp::is_request(&bytes, v6) {
            return Err(Errno::EINVAL);
        }
        let connected = self.remote().and_then(|remote| remote.endpoint());
        let to = match out.to {
            Some((bytes, _)) => self.destination(bytes, Errno::ENETUNREACH)?,
            None => connected.ok_or(Errno::EDESTADDRREQ)?,
        };
        if v6 && to.ip.to_v4().is_some() {
            return Err(Errno::ENETUNREACH);
        }
        let choice = Choice::parse(out.control, self.version_of_packet(to.ip))?;
        if choice.mark.is_some() && !out.may_mark {
            return Err(Errno::EPERM);
        }
        let source = choice.source.unwrap_or(self.route(to, choice.interface)?);
        if to.ip.is_group() || to.ip.is_broadcast() {
            return Err(Errno::ENETUNREACH);
        }
        if !raw {
            self.bind_to_any_port(self.endpoint().ip)?;
        }
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if !raw {
            icmp::set_identifier(&mut bytes, self.endpoint().port);
        }
        if length >= icmp::HEADER && (!raw || v6) {
            icmp::seal(&mut bytes, source, to.ip);
        }
        let head = self.head(to, choice);
        let mut packet = Packet {
            from: source,
            to,
            bytes,
            hops: head.hops,
            service: head.service,
            mark: head.mark,
        };
        deliver(&packet)?;
        if icmp::is_request(&packet.bytes, v6) {
            icmp::make_reply(&mut packet.bytes, source, to.ip);
            let reply = Packet {
                from: to.ip,
                to: Endpoint {
                    ip: source,
                    port: to.port,
                },
                hops: super::inet::DEFAULT_HOPS,
                ..packet
            };
            deliver(&reply)?;
        }
        Ok(length)
    }

    /// Returns whether a raw socket receives `packet`.
    fn receives(&self, packet: &Packet) -> bool {
        let v6 = packet.is_v6();
        let own = self.endpoint().ip;
        let remote = self.remote().and_then(|remote| remote.endpoint());
        (self.family() == Family::Inet6) == v6
            && (own.is_any() || own == packet.to.ip)
            && remote.is_none_or(|remote| remote.ip == packet.from)
            && !self.settings().blocks(packet.bytes.first().copied())
    }

    /// Puts `packet` into the inbox if there is room. Raw sockets of version 4 get the IP header as
    /// well. A packet for which there is no room is lost, which is no error. Fails with `ENOBUFS`
    /// or `ENOMEM` if memory is short.
    fn put_packet(&self, packet: &Packet) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        if self.kind() == SocketKind::Raw && !packet.is_v6() {
            bytes = icmp::header4(
                packet.from,
                packet.to.ip,
                packet.service,
                packet.hops,
                packet.bytes.len(),
            );
        }
        bytes
            .try_reserve_exact(packet.bytes.len())
            .map_err(|_| Errno::ENOBUFS)?;
        bytes.extend_from_slice(&packet.bytes);
        let memory = Payload::memory(bytes.len()) + OVERHEAD;
        let charge = account::charge(None, memory).map_err(|_| Errno::ENOBUFS)?;
        let payload = Payload::take(&mut SliceSource::new(&bytes, NO_LIMIT), bytes.len())?;
        let source = Address::Inet(Endpoint {
            ip: packet.from,
            port: 0,
        });
        let asked = self.settings().told.get();
        let head = Head {
            to: Endpoint {
                ip: packet.to.ip,
                port: 0,
            },
            hops: packet.hops,
            service: packet.service,
            interface_known: asked.intersects(Told::INFO4 | Told::INFO6),
            mark: packet.mark,
        };
        let mut segment = Segment::new(payload, source, caller(), charge).with_head(head);
        segment.stamp(self.inbox.asks(WITH_STAMP));
        // The packet is lost if there is no room.
        let _ = self.put(self, Arc::new(segment));
        Ok(())
    }
}

/// Delivers a packet to raw sockets, and a reply to the socket that sent the request.
///
/// # Errors
/// Fails with `ENOBUFS` if memory is short.
fn deliver(packet: &Packet) -> Result<(), Errno> {
    let mut receivers = Vec::new();
    receivers
        .try_reserve_exact(MOST_RAW)
        .map_err(|_| Errno::ENOBUFS)?;
    let all = RAW.lock();
    receivers.extend(all.iter().filter_map(Weak::upgrade));
    drop(all);
    for receiver in receivers {
        if receiver.receives(packet) {
            receiver.put_packet(packet)?;
        }
    }
    let Some(identifier) = icmp::identifier_of_reply(&packet.bytes, packet.is_v6()) else {
        return Ok(());
    };
    let to = Endpoint {
        ip: packet.to.ip,
        port: identifier,
    };
    // The port in the reply is the one that a connected socket chose.
    let from = Endpoint {
        ip: packet.from,
        port: packet.to.port,
    };
    match ports::find(Protocol::Icmp, to, from) {
        Some(receiver) => receiver.put_packet(packet),
        None => Ok(()),
    }
}
