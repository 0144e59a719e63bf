//! The data of `TCP_INFO` about a connection (`struct tcp_info` of Linux 6.1).

use alloc::vec::Vec;

/// Bytes of `struct tcp_info`.
const LENGTH: usize = 232;
/// The most bytes of one packet over the loopback interface, and the first window.
const SEGMENT: u32 = 32768;
const ADVERTISED: u32 = 65483;
/// The segment size of a socket that has received nothing yet.
const FIRST_SEGMENT: u32 = 536;
/// Microseconds until a packet is retransmitted.
const TIMEOUT: u32 = 200_000;
const FIRST_TIMEOUT: u32 = 1_000_000;
const PATH: u32 = 65535;
const NO_THRESHOLD: u32 = 0x7fff_ffff;
const FIRST_WINDOW: u32 = 10;
const REORDERING: u32 = 3;

/// A connection at one moment. All other fields have Linux's values for a connection on which no
/// packet was lost or late.
#[derive(Copy, Clone, Debug, Default)]
pub struct TcpInfo {
    /// The number that Linux gives the state of the connection.
    pub state: u8,
    /// Whether the socket is or was connected.
    pub connected: bool,
    /// Number of bytes sent.
    pub sent: u64,
    /// Number of bytes received.
    pub received: u64,
    /// Number of bytes that were written but are held back, so that they are not sent yet.
    pub held: usize,
    /// The maximum send rate (`SO_MAX_PACING_RATE`).
    pub most_rate: u64,
}

impl TcpInfo {
    /// Returns the bytes of `struct tcp_info`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = alloc::vec![0; LENGTH];
        bytes[0] = self.state;
        let mut put = |at: usize, value: u64, length: usize| {
            bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        };
        let (timeout, segment) = if self.connected {
            (TIMEOUT, SEGMENT)
        } else {
            (FIRST_TIMEOUT, FIRST_SEGMENT)
        };
        for (at, value) in [
            (8, timeout),
            (16, segment),
            (20, FIRST_SEGMENT),
            (60, if self.connected { PATH } else { 0 }),
            (64, if self.connected { ADVERTISED } else { 0 }),
            (76, NO_THRESHOLD),
            (80, FIRST_WINDOW),
            (84, if self.connected { ADVERTISED } else { 0 }),
            (88, REORDERING),
            (96, if self.connected { ADVERTISED } else { 0 }),
            (144, u32::try_from(self.held).unwrap_or(u32::MAX)),
        ] {
            put(at, value.into(), 4);
        }
        // The packet that connects counts as one byte.
        let acknowledged = self.sent + u64::from(self.connected);
        for (at, value) in [
            (112, self.most_rate),
            (120, acknowledged),
            (128, self.received),
            (200, self.sent),
        ] {
            put(at, value, 8);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_where_programs_read_them() {
        let info = TcpInfo {
            state: 1,
            connected: true,
            sent: 0x0102,
            received: 7,
            held: 9,
            most_rate: u64::MAX,
        };
        let bytes = info.to_bytes();
        assert_eq!(bytes.len(), LENGTH);
        assert_eq!((bytes[0], bytes[128], bytes[144]), (1, 7, 9));
        assert_eq!(bytes[120..122], [3, 1]);
        assert_eq!(bytes[112..120], [255; 8]);
    }
}
