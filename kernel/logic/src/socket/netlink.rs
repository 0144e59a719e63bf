//! Netlink (RFC 3549): requests about interfaces and addresses, and their answers. There is only
//! the loopback interface, and its settings never change.

use super::address::{AF_INET, AF_INET6, Ip};
use super::attribute::attribute;
use super::packet::LOOPBACK;
use super::routes;
use crate::errno::Errno;
use alloc::vec::Vec;

/// The family of netlink sockets.
pub const AF_NETLINK: u16 = 16;
/// Size of `struct sockaddr_nl` in bytes. It consists of a family, two bytes of padding, a port and
/// groups.
pub const ADDRESS_LENGTH: usize = 12;
/// The name of the loopback interface.
pub const NAME: &[u8] = b"lo";
/// The most bytes of requests in one send. The answer to a request that fails contains all of the
/// request.
pub const REQUESTS_MAX: usize = 8 << 10;
/// The largest size of a packet on the loopback interface, in bytes.
pub const MTU: u32 = 65536;
/// The length of the send queue of the loopback interface, in packets.
pub const QUEUE_LENGTH: u32 = 1000;
/// The hardware type of the loopback interface (`ARPHRD_LOOPBACK`).
pub const HARDWARE: u16 = 772;
/// The flag of a loopback interface.
pub const IFF_LOOPBACK: u32 = 8;
/// The flag of an interface that is up.
pub const IFF_UP: u32 = 1;
/// The flags `IFF_UP` and `IFF_RUNNING` of an interface.
pub const IFF_UP_RUNNING: u32 = IFF_UP | 0x40;

/// `IFF_LOWER_UP`.
const IFF_LOWER_UP: u32 = 0x10000;
/// Bytes of `struct nlmsghdr`: a length that includes them, type, flags, sequence, port.
const HEADER: usize = 16;

// Types of messages.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The first type that does not belong to netlink itself (`NLMSG_MIN_TYPE`).
const FIRST_TYPE: u16 = 16;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNEIGH: u16 = 30;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
/// The last type of Linux 6.1 (`RTM_MAX`).
const LAST_TYPE: u16 = 123;
/// The lowest two bits of types that request data.
const GETS: u16 = 2;

// Flags of messages.
const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
const NLM_F_CAPPED: u16 = 0x100;
/// The request is for all objects of a kind.
const NLM_F_DUMP: u16 = 0x300;

// Attributes of an interface.
const IFLA_ADDRESS: u16 = 1;
const IFLA_BROADCAST: u16 = 2;
const IFLA_IFNAME: u16 = 3;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_MTU: u16 = 4;
const IFLA_QDISC: u16 = 6;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKMODE: u16 = 17;
const IFLA_GROUP: u16 = 27;
const IFLA_ALT_IFNAME: u16 = 53;

// Attributes of an address.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
const IFA_F_PERMANENT: u8 = 0x80;
const RT_SCOPE_HOST: u8 = 254;
/// The address is valid and preferred for ever, and exists since the machine started.
const FOR_EVER: [u8; 16] = [
    255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Parses `bytes`, an address that a program passed. Returns its port and its groups.
///
/// # Errors
/// `EINVAL` if it is no netlink address.
pub fn parse_address(bytes: &[u8]) -> Result<(u32, u32), Errno> {
    if bytes.len() < ADDRESS_LENGTH || half(bytes, 0) != AF_NETLINK {
        return Err(Errno::EINVAL);
    }
    Ok((word(bytes, 4), word(bytes, 8)))
}

/// Returns the address with this `port` and these `groups` as a `struct sockaddr_nl`.
pub fn address_bytes(port: u32, groups: u32) -> Vec<u8> {
    let family = u32::from(AF_NETLINK);
    [family, port, groups].map(u32::to_le_bytes).concat()
}

fn half(bytes: &[u8], at: usize) -> u16 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.copied().map_or(0, u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.copied().map_or(0, u32::from_le_bytes)
}

/// Returns `length`, the length of a message, as the four bytes of its length field.
fn length32(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

/// The port of the requesting socket, and the sequence number of the request.
#[derive(Copy, Clone, Debug)]
struct Asker {
    sequence: u32,
    port: u32,
}

impl Asker {
    fn message(self, kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = HEADER + body.len();
        let mut bytes = Vec::with_capacity(length.next_multiple_of(4));
        bytes.extend_from_slice(&length32(length));
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.port.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Returns the acknowledgement of `request`. If `error` is given, it contains that error and
    /// the whole request, else only the header of the request.
    fn acknowledgement(self, error: Option<Errno>, request: &[u8]) -> Vec<u8> {
        let number = error.map_or(0_u32, |error| {
            // Errors are small and negative.
            u32::try_from(error.to_return() & 0xffff_ffff).unwrap_or(0)
        });
        let (flags, request) = match error {
            Some(_) => (0, request),
            None => (NLM_F_CAPPED, &request[..HEADER]),
        };
        let body = [&number.to_le_bytes()[..], request].concat();
        self.message(NLMSG_ERROR, flags, &body)
    }
}

/// Returns the `struct ifinfomsg` of the interface and its attributes, in Linux's order.
fn interface() -> Vec<u8> {
    let mut body = [0, 0].to_vec();
    body.extend_from_slice(&HARDWARE.to_le_bytes());
    let flags = IFF_UP_RUNNING | IFF_LOOPBACK | IFF_LOWER_UP;
    body.extend_from_slice(&[LOOPBACK, flags, 0].map(u32::to_le_bytes).concat());
    attribute(&mut body, IFLA_IFNAME, b"lo\0");
    attribute(&mut body, IFLA_TXQLEN, &QUEUE_LENGTH.to_le_bytes());
    attribute(&mut body, IFLA_OPERSTATE, &[0]);
    attribute(&mut body, IFLA_LINKMODE, &[0]);
    attribute(&mut body, IFLA_MTU, &MTU.to_le_bytes());
    attribute(&mut body, IFLA_GROUP, &[0; 4]);
    attribute(&mut body, IFLA_QDISC, b"noqueue\0");
    attribute(&mut body, IFLA_ADDRESS, &[0; 6]);
    attribute(&mut body, IFLA_BROADCAST, &[0; 6]);
    body
}

/// Returns the `struct ifaddrmsg` of the interface's address in `family`, which is IPv4 or IPv6,
/// and its attributes, in Linux's order.
fn address(family: u16) -> Vec<u8> {
    let four = family == AF_INET;
    // Families have small numbers.
    let family = u8::try_from(family).unwrap_or(0);
    let prefix = if four { 8 } else { 128 };
    let mut body = [family, prefix, IFA_F_PERMANENT, RT_SCOPE_HOST].to_vec();
    body.extend_from_slice(&LOOPBACK.to_le_bytes());
    let flags = u32::from(IFA_F_PERMANENT).to_le_bytes();
    if four {
        let ip = &Ip::LOCAL4.to_v4().unwrap_or_default();
        attribute(&mut body, IFA_ADDRESS, ip);
        attribute(&mut body, IFA_LOCAL, ip);
        attribute(&mut body, IFA_LABEL, b"lo\0");
        attribute(&mut body, IFA_FLAGS, &flags);
        attribute(&mut body, IFA_CACHEINFO, &FOR_EVER);
    } else {
        attribute(&mut body, IFA_ADDRESS, &Ip::LOCAL6.0);
        attribute(&mut body, IFA_CACHEINFO, &FOR_EVER);
        attribute(&mut body, IFA_FLAGS, &flags);
    }
    body
}

/// The subject of the requests of a netlink socket.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Interfaces and their addresses (`NETLINK_ROUTE`).
    Routes,
    /// Sockets (`NETLINK_SOCK_DIAG`), as on a Linux whose protocols have no modules for that.
    Sockets,
}

/// Answers the requests in `bytes`, at most [`REQUESTS_MAX`] bytes, which the socket at `port` sent
/// about `topic`. Calls `reply` with each answer. `is_admin` says whether the sender may change
/// networks. As on Linux, a malformed request ends the processing.
pub fn answer(
    mut bytes: &[u8],
    topic: Topic,
    port: u32,
    is_admin: bool,
    mut reply: impl FnMut(Vec<u8>),
) {
    // Each iteration consumes at least a header.
    while bytes.len() >= HEADER {
        let length = usize::try_from(word(bytes, 0)).unwrap_or(usize::MAX);
        if length < HEADER || length > bytes.len() {
            return;
        }
        let request = &bytes[..length];
        let flags = half(request, 6);
        let asker = Asker {
            sequence: word(request, 8),
            port,
        };
        let result = if flags & NLM_F_REQUEST == 0 || half(request, 4) < FIRST_TYPE {
            Ok(false)
        } else {
            match topic {
                Topic::Routes => answer_one(request, asker, is_admin, &mut reply),
                Topic::Sockets => Err(about_sockets(request)),
            }
        };
        match result {
            Err(error) => reply(asker.acknowledgement(Some(error), request)),
            Ok(false) if flags & NLM_F_ACK != 0 => reply(asker.acknowledgement(None, request)),
            Ok(_) => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Answers `request`, a request of `asker` about interfaces, by calls of `reply`. `is_admin` says
/// whether the sender may change networks. Returns `true` if the answer is complete, so that no
/// acknowledgement follows. Fails with `EPERM`, `EOPNOTSUPP`, `ENODEV` or `EINVAL` if Linux would;
/// the caller sends the error.
fn answer_one(
    request: &[u8],
    asker: Asker,
    is_admin: bool,
    reply: &mut impl FnMut(Vec<u8>),
) -> Result<bool, Errno> {
    let (kind, flags) = (half(request, 4), half(request, 6));
    let body = &request[HEADER..];
    if kind > LAST_TYPE {
        return Err(Errno::EOPNOTSUPP);
    }
    let Some(family) = body.first() else {
        return Ok(false);
    };
    if kind & 3 != GETS {
        if !is_admin {
            return Err(Errno::EPERM);
        }
        return keep(kind, body).map(|()| false);
    }
    if flags & NLM_F_DUMP == 0 {
        if kind != RTM_GETLINK {
            return Err(Errno::EOPNOTSUPP);
        }
        check_is_loopback(body)?;
        reply(asker.message(RTM_NEWLINK, 0, &interface()));
        return Ok(false);
    }
    let family = u16::from(*family);
    match kind {
        RTM_GETLINK => reply(asker.message(RTM_NEWLINK, NLM_F_MULTI, &interface())),
        RTM_GETADDR => {
            let one = [AF_INET, AF_INET6].contains(&family);
            for each in [AF_INET, AF_INET6] {
                if !one || each == family {
                    reply(asker.message(RTM_NEWADDR, NLM_F_MULTI, &address(each)));
                }
            }
        }
        RTM_GETROUTE => {
            for route in routes::all(family) {
                reply(asker.message(RTM_NEWROUTE, NLM_F_MULTI, &route));
            }
        }
        // No neighbours are reachable through the interface.
        RTM_GETNEIGH => {}
        _ => return Err(Errno::EOPNOTSUPP),
    }
    reply(asker.message(NLMSG_DONE, NLM_F_MULTI, &[0; 4]));
    Ok(true)
}

/// Accepts a request to set the interface up, which it already is. `kind` is its type, and `body` a
/// `struct ifinfomsg` and its attributes.
///
/// # Errors
/// `EOPNOTSUPP` if the request would change anything. The errors of [`check_is_loopback`].
fn keep(kind: u16, body: &[u8]) -> Result<(), Errno> {
    if ![RTM_NEWLINK, RTM_SETLINK].contains(&kind) {
        return Err(Errno::EOPNOTSUPP);
    }
    check_is_loopback(body)?;
    let (flags, change) = (word(body, 8), word(body, 12));
    let names_alone = attributes(body)
        .all(|(kind, _)| [IFLA_IFNAME, IFLA_ALT_IFNAME, IFLA_EXT_MASK].contains(&kind));
    if (flags ^ IFF_UP) & change != 0 || change & !IFF_UP != 0 || !names_alone {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// Returns the attributes in `body`, after a `struct ifinfomsg`: kind and bytes of each, up to the
/// first malformed one.
fn attributes(body: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(INFO_LENGTH..).unwrap_or_default();
    // Each iteration consumes at least the head of an attribute.
    core::iter::from_fn(move || {
        let length = usize::from(half(rest.get(..4)?, 0));
        let data = rest.get(4..length)?;
        let kind = half(rest, 2);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    })
}

/// Returns the error with which `request`, a request about sockets, fails.
fn about_sockets(request: &[u8]) -> Errno {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const SOCK_DESTROY: u16 = 21;
    /// The types for TCP and DCCP, which are older.
    const OLDER: [u16; 2] = [18, 19];
    /// Bytes of `struct sock_diag_req`.
    const LENGTH: usize = 2;
    /// Families are below this number (`AF_MAX`).
    const FAMILIES: u8 = 46;
    let kind = half(request, 4);
    let body = &request[HEADER..];
    let named = body.len() >= LENGTH && body[0] < FAMILIES;
    match kind {
        SOCK_DIAG_BY_FAMILY | SOCK_DESTROY if named => Errno::ENOENT,
        _ if OLDER.contains(&kind) => Errno::ENOENT,
        _ => Errno::EINVAL,
    }
}

/// Bytes of `struct ifinfomsg`.
const INFO_LENGTH: usize = 16;

/// Checks whether `body`, a `struct ifinfomsg` and its attributes, names the loopback interface, by
/// its number or its name. Fails with `ENODEV` if it names another interface. Fails with `EINVAL`
/// if it names none or is too short.
fn check_is_loopback(body: &[u8]) -> Result<(), Errno> {
    if body.len() < INFO_LENGTH {
        return Err(Errno::EINVAL);
    }
    match word(body, 4) {
        0 => {}
        LOOPBACK => return Ok(()),
        _ => return Err(Errno::ENODEV),
    }
    let mut names = attributes(body)
        .filter(|(kind, _)| [IFLA_IFNAME, IFLA_ALT_IFNAME].contains(kind))
        .map(|(_, data)| data.split(|byte| *byte == 0).next());
    match names.next() {
        Some(Some(name)) if *name == *NAME => Ok(()),
        Some(_) => Err(Errno::ENODEV),
        None => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::prelude::v1::*;

    fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let asker = Asker {
            sequence: 7,
            port: 0,
        };
        let mut bytes = asker.message(kind, flags, body);
        bytes.truncate(HEADER + body.len());
        bytes
    }

    fn answers(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        answer(bytes, Topic::Routes, 42, false, |bytes| all.push(bytes));
        all
    }

    #[test]
    fn sockets_are_not_told_of() {
        let ask = |kind: u16, body: &[u8]| {
            let mut all = Vec::new();
            let bytes = request(kind, NLM_F_REQUEST | NLM_F_DUMP, body);
            answer(&bytes, Topic::Sockets, 42, false, |bytes| all.push(bytes));
            assert_eq!((all.len(), half(&all[0], 4)), (1, NLMSG_ERROR));
            word(&all[0], HEADER).cast_signed()
        };
        let number = |errno: Errno| i32::try_from(errno.to_return().cast_signed()).unwrap();
        assert_eq!(ask(20, &[2, 6]), number(Errno::ENOENT));
        assert_eq!(ask(18, &[2, 6]), number(Errno::ENOENT));
        assert_eq!(ask(20, &[2]), number(Errno::EINVAL));
        assert_eq!(ask(20, &[46, 6]), number(Errno::EINVAL));
        assert_eq!(ask(16, &[2, 6]), number(Errno::EINVAL));
    }

    /// Returns type, flags, sequence and port of each answer to the requests in `bytes`.
    fn heads(bytes: &[u8]) -> Vec<(u16, u16, u32, u32)> {
        let head = |bytes: &Vec<u8>| {
            let length = word(bytes, 0) as usize;
            assert_eq!(length.next_multiple_of(4), bytes.len());
            (
                half(bytes, 4),
                half(bytes, 6),
                word(bytes, 8),
                word(bytes, 12),
            )
        };
        answers(bytes).iter().map(head).collect()
    }

    fn error(bytes: &[u8]) -> i32 {
        let all = answers(bytes);
        assert_eq!((all.len(), half(&all[0], 4)), (1, NLMSG_ERROR));
        word(&all[0], HEADER).cast_signed()
    }

    #[test]
    fn all_of_a_kind() {
        let all = NLM_F_REQUEST | NLM_F_DUMP;
        let done = (NLMSG_DONE, NLM_F_MULTI, 7, 42);
        let address = (RTM_NEWADDR, NLM_F_MULTI, 7, 42);
        let link = (RTM_NEWLINK, NLM_F_MULTI, 7, 42);
        assert_eq!(heads(&request(RTM_GETLINK, all, &[0])), [link, done]);
        assert_eq!(
            heads(&request(RTM_GETADDR, all, &[0])),
            [address, address, done]
        );
        assert_eq!(heads(&request(RTM_GETADDR, all, &[10])), [address, done]);
        // Several requests in one message.
        let two = [request(RTM_GETLINK, all, &[0; 4]), request(38, all, &[0])].concat();
        assert_eq!(heads(&two)[2], (NLMSG_ERROR, 0, 7, 42));
    }

    #[test]
    fn one_interface() {
        let ask = |index: u32, name: &[u8]| {
            let mut body = [0, 0, index, 0].map(u32::to_le_bytes).concat();
            body.swap(4, 8);
            if !name.is_empty() {
                attribute(&mut body, IFLA_IFNAME, name);
            }
            request(RTM_GETLINK, NLM_F_REQUEST, &body)
        };
        let link = [(RTM_NEWLINK, 0, 7, 42)];
        assert_eq!(heads(&ask(1, b"")), link);
        assert_eq!(heads(&ask(0, b"lo\0")), link);
        let number = |errno: Errno| i32::try_from(errno.to_return().cast_signed()).unwrap();
        assert_eq!(error(&ask(2, b"")), number(Errno::ENODEV));
        assert_eq!(error(&ask(0, b"eth0\0")), number(Errno::ENODEV));
        assert_eq!(error(&ask(0, b"")), number(Errno::EINVAL));
    }

    #[test]
    fn what_is_not_answered() {
        assert_eq!(heads(&request(RTM_GETLINK, NLM_F_DUMP, &[0; 16])), []);
        assert_eq!(heads(&request(RTM_GETLINK, NLM_F_REQUEST, &[])), []);
        assert_eq!(heads(&[0; 40]), []);
        assert_eq!(heads(&[255; 40]), []);
        let acknowledged = [(NLMSG_ERROR, NLM_F_CAPPED, 7, 42)];
        let ack = NLM_F_REQUEST | NLM_F_ACK;
        assert_eq!(heads(&request(3, ack, &[0; 4])), acknowledged);
        let change = request(RTM_NEWLINK, NLM_F_REQUEST, &[0; 16]);
        assert_eq!(error(&change), -1);
    }

    #[test]
    fn routes_lead_to_the_interface() {
        let all = NLM_F_REQUEST | NLM_F_DUMP;
        let count = |family: u8| heads(&request(RTM_GETROUTE, all, &[family; 12])).len() - 1;
        assert_eq!([0, 2, 10, 7].map(count), [4, 3, 1, 4]);
        assert_eq!(heads(&request(RTM_GETNEIGH, all, &[0; 12])).len(), 1);
    }

    #[test]
    fn what_is_so_already_can_be_set() {
        let set = |interface: u8, flags: u8, change: u8| {
            let mut body = [0; 16];
            (body[4], body[8], body[12]) = (interface, flags, change);
            let bytes = request(RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, &body);
            let mut all = Vec::new();
            answer(&bytes, Topic::Routes, 42, true, |one| all.push(one));
            all.first()
                .and_then(|one| one[HEADER..].first_chunk().copied())
                .map(i32::from_le_bytes)
        };
        assert_eq!(set(1, 1, 1), Some(0));
        assert_eq!(set(1, 0, 1), Some(-95));
        assert_eq!(set(1, 16, 16), Some(-95));
        assert_eq!(set(2, 1, 1), Some(-19));
    }

    #[test]
    fn an_error_has_the_whole_request() {
        let long = request(200, NLM_F_REQUEST, &vec![9; REQUESTS_MAX - HEADER]);
        let all = answers(&long);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0][HEADER + 4..], long);
        assert_eq!(all[0].capacity(), all[0].len());
    }

    #[test]
    fn addresses() {
        assert_eq!(parse_address(&address_bytes(7, 1)), Ok((7, 1)));
        assert_eq!(parse_address(&[16, 0, 0, 0]), Err(Errno::EINVAL));
        assert_eq!(parse_address(&[0; 12]), Err(Errno::EINVAL));
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for one in answers(&bytes) {
                prop_assert!(one.len() % 4 == 0);
            }
        }
    }
}
