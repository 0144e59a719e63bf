//! The report to a sender that no socket received its packet (`struct sock_extended_err`, ip(7)).

use super::address::Endpoint;
use super::control::Writer;
use crate::errno::Errno;
use alloc::vec::Vec;

const SOL_IP: u32 = 0;
const SOL_IPV6: u32 = 41;
const IP_RECVERR: u32 = 11;
const IPV6_RECVERR: u32 = 25;

/// `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6`: an ICMP packet reported the error.
const ICMP: u8 = 2;
const ICMP6: u8 = 3;
/// ICMP type and code of "port unreachable", for IPv4 and IPv6.
const UNREACHABLE4: [u8; 2] = [3, 3];
const UNREACHABLE6: [u8; 2] = [1, 4];

/// Reports that no socket is bound to the port to which a packet was sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The destination of the packet.
    pub to: Endpoint,
}

impl Report {
    /// The error that the report contains.
    pub const ERROR: Errno = Errno::ECONNREFUSED;

    /// Returns the control message for a socket of IPv6 if `v6`, else IPv4: level, type and data.
    pub fn message(&self, v6: bool) -> (u32, u32, Vec<u8>) {
        let four = self.to.ip.to_v4().is_some();
        let (origin, [kind, code]) = if four {
            (ICMP, UNREACHABLE4)
        } else {
            (ICMP6, UNREACHABLE6)
        };
        // `to_return` returns errors negated, in two's complement.
        let number = u32::try_from(Self::ERROR.to_return().wrapping_neg()).unwrap_or(0);
        let mut bytes = number.to_le_bytes().to_vec();
        // The remaining fields have no meaning for this error.
        bytes.extend_from_slice(&[origin, kind, code, 0]);
        bytes.extend_from_slice(&[0; 8]);
        // The node that reported the error: the destination.
        let who = Endpoint {
            ip: self.to.ip,
            port: 0,
        };
        bytes.extend(who.to_bytes(v6));
        if v6 {
            (SOL_IPV6, IPV6_RECVERR, bytes)
        } else {
            (SOL_IP, IP_RECVERR, bytes)
        }
    }

    /// Adds the report to the control messages in `writer`, for a socket of IPv6 if `v6`, else
    /// IPv4.
    pub fn tell(&self, v6: bool, writer: &mut Writer) {
        let (level, kind, data) = self.message(v6);
        writer.add(level, kind, &data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::address::Ip;

    #[test]
    fn a_report_names_error_and_offender() {
        let to = Endpoint {
            ip: Ip::LOCAL4,
            port: 53,
        };
        let (level, kind, data) = Report { to }.message(false);
        assert_eq!((level, kind, data.len()), (SOL_IP, IP_RECVERR, 32));
        assert_eq!(data[..8], [111, 0, 0, 0, 2, 3, 3, 0]);
        assert_eq!(data[16..24], [2, 0, 0, 0, 127, 0, 0, 1]);
        let (_, kind, data) = Report { to }.message(true);
        assert_eq!((kind, data.len(), data[4]), (IPV6_RECVERR, 44, 2));
        let to = Endpoint {
            ip: Ip::LOCAL6,
            port: 53,
        };
        let (level, _, data) = Report { to }.message(true);
        assert_eq!(level, SOL_IPV6);
        assert_eq!(data[4..7], [3, 1, 4]);
        assert_eq!(data[16], 10);
    }
}
