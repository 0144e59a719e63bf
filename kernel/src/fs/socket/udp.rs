//! Messages of UDP over the loopback interface.

use super::account::{self, Charge};
use super::address::{Address, Family, Protocol};
use super::counters::{UDP_IN, UDP_NO_PORT, UDP_NO_ROOM, UDP_OUT};
use super::groups;
use super::held::Message;
use super::inbox::{Refusal, WITH_STAMP};
use super::inet::DEFAULT_HOPS;
use super::operations::Outgoing;
use super::payload::Payload;
use super::ports;
use super::problems::Problem;
use super::queue::Bounds;
use super::segment::Segment;
use super::state::{Socket, caller};
use super::stream::OVERHEAD;
use crate::fs::io::{ByteSource, NO_LIMIT, SliceSource};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::errno::{Errno, SysResult};
use logic::socket::address::{AF_UNSPEC, Endpoint, Ip, split_family};
use logic::socket::options::{self, Kept};
use logic::socket::packet::{Choice, Head, Told, Version};
use logic::socket::report::Report;
use machine::sched;

/// The longest UDP payload: a packet of 65,535 bytes without its IP and UDP headers.
const LONGEST_MESSAGE: usize = 65_507;

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;

/// The source address and the header fields of a message to send.
struct Parcel {
    source: Endpoint,
    head: Head,
    /// Whether the message goes to the address that the socket is connected to.
    connected: bool,
}

impl Parcel {
    /// Makes a segment of the next `length` bytes of `from`.
    ///
    /// # Errors
    /// Fails with the errors of [`Payload::take`].
    fn segment(
        &self,
        from: &mut dyn ByteSource,
        length: usize,
        charge: Charge,
    ) -> Result<Arc<Segment>, Errno> {
        let source = Address::Inet(self.source);
        Segment::take(from, length, source, caller(), charge, None)
    }
}

impl Socket {
    /// Returns the IP version of a packet that this socket sends to `to`. A packet of version 4 is
    /// marked as mapped if the socket has the family `AF_INET6`.
    pub(super) fn version_of_packet(&self, to: Ip) -> Version {
        if to.to_v4().is_none() {
            return Version::Six;
        }
        Version::Four {
            mapped: self.family() == Family::Inet6,
        }
    }

    /// Returns the header fields of a packet to `to`. Each field is that of `choice` if that has
    /// one, else that of the socket's options.
    pub(super) fn head(&self, to: Endpoint, choice: Choice) -> Head {
        let settings = self.settings();
        let (hops, service) = if to.ip.is_group() {
            let hops = settings.kept.get(Kept::Number(options::GROUP_HOPS4));
            (Some(hops.cast_unsigned()), &settings.service)
        } else if to.ip.to_v4().is_some() {
            let hops = settings.hops.get();
            ((hops != 0).then_some(hops), &settings.service)
        } else {
            (settings.hops6.get().checked_sub(1), &settings.service6)
        };
        let mark = settings.kept.get(Kept::Number(options::MARK));
        let byte = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        Head {
            to,
            hops: choice.hops.unwrap_or(hops.map_or(DEFAULT_HOPS, byte)),
            service: choice.service.unwrap_or(byte(service.get())),
            interface_known: false,
            mark: choice.mark.unwrap_or(mark.cast_unsigned()),
        }
    }

    /// Returns whether the socket receives a message of `length` bytes whose checksum covers
    /// `coverage` bytes, header included (`UDPLITE_RECV_CSCOV`). A `coverage` of 0 is the whole
    /// message.
    pub(super) fn takes_coverage(&self, coverage: u32, length: usize) -> bool {
        let partly = coverage != 0 && (coverage as usize) < length + UDP_HEADER;
        match self.settings().least_coverage.get().checked_sub(1) {
            Some(least) if partly => least != 0 && coverage >= least,
            _ => true,
        }
    }

    /// Joins the multicast group `group`.
    ///
    /// # Errors
    /// Fails with `EADDRINUSE` if the socket is a member already. Fails with `ENOBUFS` if the
    /// socket is in too many groups, or memory is short.
    pub fn join_group(&self, group: Ip) -> Result<(), Errno> {
        self.groups.join(group)
    }

    /// Leaves the multicast group `group`.
    ///
    /// # Errors
    /// Fails with `EADDRNOTAVAIL` if the socket is not a member.
    pub fn leave_group(&self, group: Ip) -> Result<(), Errno> {
        self.groups.leave(group)
    }

    /// Returns whether the socket receives messages to `group`. The machine must be a member.
    fn takes_group(&self, group: Ip) -> bool {
        self.settings().kept.is_on(options::ALL_GROUPS4) || self.groups.contains(group)
    }

    /// Determines source, destination and header fields of the message `out`. Binds the socket to a
    /// free port if it has none.
    ///
    /// # Errors
    /// Fails as `sendmsg(2)` does.
    fn parcel(&self, out: &Outgoing<'_>) -> Result<Parcel, Errno> {
        let v6 = self.family() == Family::Inet6;
        if !self.is_bound() {
            self.bind_to_any_port(self.endpoint().ip)?;
        }
        let connected = self.remote().and_then(|remote| remote.endpoint());
        let named = match out.to {
            // As on Linux, `AF_UNSPEC` counts as no address on a socket of version 6.
            Some((bytes, _)) if v6 && split_family(bytes)?.0 == AF_UNSPEC => None,
            Some((bytes, _)) => Some(self.destination(bytes, Errno::ENETUNREACH)?),
            None => None,
        };
        let to = named.or(connected).ok_or(Errno::EDESTADDRREQ)?;
        if to.port == 0 {
            return Err(Errno::EINVAL);
        }
        let choice = Choice::parse(out.control, self.version_of_packet(to.ip))?;
        if choice.mark.is_some() && !out.may_mark {
            return Err(Errno::EPERM);
        }
        let source = match named {
            Some(to) => self.route(to, choice.interface)?,
            None if to.ip.is_group() => Ip::LOCAL4,
            None => self.endpoint().ip,
        };
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.state.lock().shut_write {
            return Err(Errno::EPIPE);
        }
        Ok(Parcel {
            source: Endpoint {
                ip: choice.source.unwrap_or(source),
                port: self.endpoint().port,
            },
            head: self.head(to, choice),
            connected: named.is_none(),
        })
    }

    /// Sends a message of UDP and returns its length. The message is lost if no socket receives it,
    /// or the receiver has no room.
    ///
    /// # Errors
    /// Fails as `sendmsg(2)`: among others with `EMSGSIZE` if the message is too long.
    pub(super) fn send_datagram(&self, from: &mut dyn ByteSource, out: &Outgoing<'_>) -> SysResult {
        let length = from.left();
        if length > LONGEST_MESSAGE {
            return Err(Errno::EMSGSIZE);
        }
        let more = out.more || self.settings().cork.get();
        if more || self.held.any() {
            return self.add_to_held(from, out, more);
        }
        let parcel = self.parcel(out)?;
        let charge = charge(length)?;
        let segment = parcel.segment(from, length, charge)?;
        self.deliver(&parcel, segment)?;
        Ok(length)
    }

    /// Appends bytes to the message that is held back, or starts one. Without `more` the message is
    /// complete and is sent.
    ///
    /// # Errors
    /// Fails as `sendmsg(2)` does. The message that was held back is lost then.
    fn add_to_held(&self, from: &mut dyn ByteSource, out: &Outgoing<'_>, more: bool) -> SysResult {
        let length = from.left();
        let mut pieces = self.held.pieces.lock();
        let held = pieces.message.take();
        self.held.note(&pieces);
        let mut message = match held {
            Some(message) => message,
            None => {
                let Parcel {
                    source,
                    head,
                    connected,
                } = self.parcel(out)?;
                Box::new(Message {
                    head,
                    source,
                    connected,
                    bytes: Vec::new(),
                    charge: charge(LONGEST_MESSAGE)?,
                })
            }
        };
        let before = message.bytes.len();
        if before + length > LONGEST_MESSAGE {
            return Err(Errno::EMSGSIZE);
        }
        message
            .bytes
            .try_reserve(length)
            .map_err(|_| Errno::ENOBUFS)?;
        message.bytes.resize(before + length, 0);
        from.fill(&mut message.bytes[before..])?;
        pieces.message = Some(message);
        self.held.note(&pieces);
        drop(pieces);
        if !more {
            self.send_held_message()?;
        }
        Ok(length)
    }

    /// Sends the message that is held back, if there is one.
    ///
    /// # Errors
    /// Fails with `ENOBUFS` if memory is short.
    pub(super) fn send_held_message(&self) -> Result<(), Errno> {
        let mut pieces = self.held.pieces.lock();
        let message = pieces.message.take();
        self.held.note(&pieces);
        drop(pieces);
        let Some(message) = message else {
            return Ok(());
        };
        let Message {
            head,
            source,
            connected,
            bytes,
            charge: held,
        } = *message;
        drop(held);
        let parcel = Parcel {
            source,
            head,
            connected,
        };
        let charge = charge(bytes.len())?;
        let mut from = SliceSource::new(&bytes, NO_LIMIT);
        let segment = parcel.segment(&mut from, bytes.len(), charge)?;
        self.deliver(&parcel, segment)
    }

    /// Puts a message into the inboxes of its receivers.
    ///
    /// # Errors
    /// Fails with `ENOBUFS` if memory is short.
    fn deliver(&self, parcel: &Parcel, mut segment: Arc<Segment>) -> Result<(), Errno> {
        let Parcel {
            source,
            head,
            connected,
        } = *parcel;
        let to = head.to;
        let protocol = self.protocol().unwrap_or(Protocol::Udp);
        UDP_OUT.count();
        if to.ip.is_group() || to.ip.is_broadcast() {
            return self.deliver_to_many(parcel, segment);
        }
        let Some(receiver) = ports::find(protocol, to, source) else {
            UDP_NO_PORT.count();
            if self.wants_errors(to.ip.to_v4().is_some()) {
                self.add_problem(Problem {
                    report: Report { to },
                    segment,
                });
            } else if connected {
                self.inbox.set_error(Errno::ECONNREFUSED);
            }
            return Ok(());
        };
        let length = segment.payload.len();
        if !receiver.takes_coverage(self.settings().coverage.get(), length) {
            return Ok(());
        }
        let asked = receiver.settings().told.get();
        if let Some(own) = Arc::get_mut(&mut segment) {
            own.head = Some(Head {
                interface_known: asked.intersects(Told::INFO4 | Told::INFO6),
                ..head
            });
            own.stamp(receiver.inbox.asks(WITH_STAMP));
        }
        self.put_counted(&receiver, segment);
        Ok(())
    }

    /// Puts one message into the inboxes of all receivers of its group or broadcast address. Fails
    /// with `ENOBUFS` if memory is short.
    fn deliver_to_many(&self, parcel: &Parcel, mut segment: Arc<Segment>) -> Result<(), Errno> {
        let Parcel { source, head, .. } = *parcel;
        let group = head.to.ip;
        if group.is_group() && !groups::has_members(group) {
            return Ok(());
        }
        let protocol = self.protocol().unwrap_or(Protocol::Udp);
        let mut receivers = ports::find_all(protocol, head.to, source)?;
        if group.is_group() {
            receivers.retain(|receiver| receiver.takes_group(group));
        }
        if let Some(own) = Arc::get_mut(&mut segment) {
            own.head = Some(Head {
                interface_known: true,
                ..head
            });
            own.stamp(receivers.iter().any(|one| one.inbox.asks(WITH_STAMP)));
        }
        for receiver in receivers {
            self.put_counted(&receiver, segment.clone());
            drop(receiver);
            sched::cond_resched();
        }
        Ok(())
    }

    /// Puts a message of UDP into the inbox of `receiver` if there is room, and counts the result.
    fn put_counted(&self, receiver: &Self, segment: Arc<Segment>) {
        match self.put(receiver, segment) {
            Ok(()) => UDP_IN.count(),
            Err(Refusal::Full) => UDP_NO_ROOM.count(),
            Err(Refusal::Closed | Refusal::Stranger | Refusal::Shut | Refusal::Memory) => {}
        }
    }

    /// Puts a message into the inbox of `receiver` if there is room.
    ///
    /// # Errors
    /// Fails with the reason. The message is lost then.
    pub(super) fn put(&self, receiver: &Self, segment: Arc<Segment>) -> Result<(), Refusal> {
        // Relaxed: an option orders nothing.
        let room = receiver.settings().receive_buffer.load(Ordering::Relaxed);
        let bounds = Bounds {
            messages: None,
            memory: Some(room),
        };
        let pushed = receiver.inbox.push(segment, self.inbox.id(), bounds);
        let result = pushed.map_err(|(refusal, _)| refusal);
        if result == Err(Refusal::Full) {
            receiver.inbox.count_drop();
        }
        result
    }
}

/// Charges a UDP message of `length` bytes to the limit that all sockets share.
///
/// # Errors
/// Fails with `ENOBUFS` if the limit is reached.
fn charge(length: usize) -> Result<Charge, Errno> {
    let bytes = Payload::memory(length) + OVERHEAD;
    account::charge(None, bytes).map_err(|_| Errno::ENOBUFS)
}
