//! Options that a socket only stores for programs to read again, and the values that they accept.
//!
//! An option is in these tables if no other program can see its effect over the loopback interface,
//! or if the kernel only reads its value. Options with more effects are methods of sockets.

use crate::errno::Errno;

/// The level of options of all sockets (`SOL_SOCKET`).
pub const SOL_SOCKET: u32 = 1;
/// The level of options of IPv4 (`IPPROTO_IP`).
pub const SOL_IP: u32 = 0;
/// The level of options of TCP (`IPPROTO_TCP`).
pub const SOL_TCP: u32 = 6;
/// The level of options of UDP (`IPPROTO_UDP`).
pub const SOL_UDP: u32 = 17;
/// The level of options of IPv6 (`IPPROTO_IPV6`).
pub const SOL_IPV6: u32 = 41;

/// The capability that a change of an option needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No capability.
    Nothing,
    /// `CAP_NET_ADMIN` or `CAP_NET_RAW`, to turn a [`Switch`] on or to set a [`Number`].
    AdminOrRaw,
    /// `CAP_NET_ADMIN`, to raise the value.
    AdminToRaise,
}

/// An option that is on or off. Any number but 0 is stored as 1.
#[derive(Copy, Clone, Debug)]
pub struct Switch {
    /// The level of the option (`SOL_*`).
    pub level: u32,
    /// The number of the option in its level.
    pub option: u32,
    /// Whether numbers other than 0 and 1 are refused.
    pub strict: bool,
    /// Whether the switch is on in a new socket.
    pub initial: bool,
    /// The capability that a change needs.
    pub needs: Needs,
}

const fn switch(level: u32, option: u32) -> Switch {
    Switch {
        level,
        option,
        strict: false,
        initial: false,
        needs: Needs::Nothing,
    }
}

const fn strict(level: u32, option: u32) -> Switch {
    Switch {
        strict: true,
        ..switch(level, option)
    }
}

const fn initially_on(from: Switch) -> Switch {
    Switch {
        initial: true,
        ..from
    }
}

const fn admin_or_raw(level: u32, option: u32) -> Switch {
    Switch {
        needs: Needs::AdminOrRaw,
        ..switch(level, option)
    }
}

/// Index of `IP_FREEBIND` in [`SWITCHES`].
pub const FREE_BIND4: usize = 0;
/// Index of `IPV6_FREEBIND` in [`SWITCHES`].
pub const FREE_BIND6: usize = 1;
/// Index of `IP_TRANSPARENT` in [`SWITCHES`].
pub const TRANSPARENT4: usize = 2;
/// Index of `IPV6_TRANSPARENT` in [`SWITCHES`].
pub const TRANSPARENT6: usize = 3;
/// Index of `IP_BIND_ADDRESS_NO_PORT` in [`SWITCHES`].
pub const NO_PORT: usize = 4;
/// Index of `IP_MULTICAST_ALL` in [`SWITCHES`].
pub const ALL_GROUPS4: usize = 5;
/// Index of `IPV6_MULTICAST_ALL` in [`SWITCHES`].
pub const ALL_GROUPS6: usize = 6;
/// Index of `SO_RXQ_OVFL` in [`SWITCHES`].
pub const TELLS_DROPS: usize = 7;
/// Index of `TCP_INQ` in [`SWITCHES`].
pub const TELLS_REST: usize = 8;
/// Index of `IP_MULTICAST_LOOP` in [`SWITCHES`].
pub const LOOP4: usize = 9;
/// Index of `IPV6_MULTICAST_LOOP` in [`SWITCHES`].
pub const LOOP6: usize = 10;
/// Index of `SO_RCVMARK` in [`SWITCHES`].
pub const TELLS_MARK: usize = 11;

/// All switches. The constants above are indexes into this table.
pub const SWITCHES: &[Switch] = &[
    switch(SOL_IP, 15),
    switch(SOL_IPV6, 78),
    admin_or_raw(SOL_IP, 19),
    admin_or_raw(SOL_IPV6, 75),
    switch(SOL_IP, 24),
    initially_on(strict(SOL_IP, 49)),
    initially_on(switch(SOL_IPV6, 29)),
    switch(SOL_SOCKET, 40),
    strict(SOL_TCP, 36),
    initially_on(switch(SOL_IP, 34)),
    initially_on(strict(SOL_IPV6, 19)),
    admin_or_raw(SOL_SOCKET, 75),
    // SO_NO_CHECK, SO_PASSSEC, SO_WIFI_STATUS, SO_NOFCS, SO_SELECT_ERR_QUEUE, SO_PREFER_BUSY_POLL.
    switch(SOL_SOCKET, 11),
    switch(SOL_SOCKET, 34),
    switch(SOL_SOCKET, 41),
    switch(SOL_SOCKET, 43),
    switch(SOL_SOCKET, 45),
    Switch {
        needs: Needs::AdminToRaise,
        ..switch(SOL_SOCKET, 69)
    },
    // IP_RECVOPTS, IP_RETOPTS, IP_PASSSEC, IP_RECVFRAGSIZE, IP_RECVERR_RFC4884: packets have no
    // options and are never fragmented.
    switch(SOL_IP, 6),
    switch(SOL_IP, 7),
    switch(SOL_IP, 18),
    switch(SOL_IP, 25),
    strict(SOL_IP, 26),
    // IPV6_RECVERR_RFC4884, IPV6_FLOWINFO_SEND, IPV6_RECVHOPOPTS, IPV6_RECVRTHDR, IPV6_RECVDSTOPTS,
    // the three of RFC 2292, IPV6_RECVPATHMTU, IPV6_AUTOFLOWLABEL, IPV6_RECVFRAGSIZE,
    // IPV6_ROUTER_ALERT_ISOLATE, IPV6_FLOWINFO.
    strict(SOL_IPV6, 31),
    switch(SOL_IPV6, 33),
    switch(SOL_IPV6, 53),
    switch(SOL_IPV6, 56),
    switch(SOL_IPV6, 58),
    switch(SOL_IPV6, 3),
    switch(SOL_IPV6, 4),
    switch(SOL_IPV6, 5),
    switch(SOL_IPV6, 60),
    initially_on(switch(SOL_IPV6, 70)),
    switch(SOL_IPV6, 77),
    switch(SOL_IPV6, 30),
    switch(SOL_IPV6, 11),
    // TCP_THIN_LINEAR_TIMEOUTS, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE.
    strict(SOL_TCP, 16),
    strict(SOL_TCP, 30),
    strict(SOL_TCP, 34),
    // UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX, UDP_GRO: received messages are never joined.
    switch(SOL_UDP, 101),
    switch(SOL_UDP, 102),
    switch(SOL_UDP, 104),
];

/// An option whose value is a number.
#[derive(Copy, Clone, Debug)]
pub struct Number {
    /// The level of the option (`SOL_*`).
    pub level: u32,
    /// The number of the option in its level.
    pub option: u32,
    /// The least value.
    pub least: i32,
    /// The greatest value.
    pub most: i32,
    /// The value in a new socket.
    pub initial: i32,
    /// The capability that a change needs.
    pub needs: Needs,
}

const fn number(level: u32, option: u32, least: i32, most: i32, initial: i32) -> Number {
    Number {
        level,
        option,
        least,
        most,
        initial,
        needs: Needs::Nothing,
    }
}

/// Index of `IP_MULTICAST_TTL` in [`NUMBERS`].
pub const GROUP_HOPS4: usize = 0;
/// Index of `IPV6_MULTICAST_HOPS` in [`NUMBERS`].
pub const GROUP_HOPS6: usize = 1;
/// Index of `SO_MARK` in [`NUMBERS`].
pub const MARK: usize = 2;
/// Index of `TCP_DEFER_ACCEPT` in [`NUMBERS`]. Its value is stored as a number of attempts, which
/// [`periods`] converts to seconds.
pub const DEFER_ACCEPT: usize = 3;
/// Index of `TCP_MAXSEG` in [`NUMBERS`]. Its value 0 is the default.
pub const SEGMENT: usize = 4;
/// Index of `IPV6_MTU` in [`NUMBERS`]. Its value 0 is the default.
pub const MTU6: usize = 5;

/// All numbers. The constants above are indexes into this table.
pub const NUMBERS: &[Number] = &[
    number(SOL_IP, 33, 0, 255, 1),
    number(SOL_IPV6, 18, 0, 255, 1),
    Number {
        needs: Needs::AdminOrRaw,
        ..number(SOL_SOCKET, 36, i32::MIN, i32::MAX, 0)
    },
    number(SOL_TCP, 9, i32::MIN, i32::MAX, 0),
    number(SOL_TCP, 2, 0, i32::MAX, 0),
    number(SOL_IPV6, 24, 0, i32::MAX, 0),
    // SO_BUSY_POLL, SO_INCOMING_CPU, SO_BUF_LOCK, SO_TXREHASH.
    Number {
        needs: Needs::AdminToRaise,
        ..number(SOL_SOCKET, 46, 0, i32::MAX, 0)
    },
    number(SOL_SOCKET, 49, i32::MIN, i32::MAX, -1),
    number(SOL_SOCKET, 72, 0, 3, 0),
    number(SOL_SOCKET, 74, 0, 1, 1),
    // IP_MINTTL and IPV6_MINHOPCOUNT, which only packets from more distant routers could fail.
    number(SOL_IP, 21, 0, 255, 0),
    number(SOL_IPV6, 73, 0, 255, 0),
    // TCP_WINDOW_CLAMP, TCP_FASTOPEN, TCP_NOTSENT_LOWAT.
    number(SOL_TCP, 10, i32::MIN, i32::MAX, 0),
    number(SOL_TCP, 23, 0, i32::MAX, 0),
    number(SOL_TCP, 25, i32::MIN, i32::MAX, 0),
];

/// An option that is stored, by its index in [`SWITCHES`] or [`NUMBERS`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Index in [`SWITCHES`].
    Switch(usize),
    /// Index in [`NUMBERS`].
    Number(usize),
}

impl Kept {
    /// Returns the option with the number `option` in `level`, or `None` if it is not in the
    /// tables.
    pub fn find(level: u32, option: u32) -> Option<Self> {
        let switch = SWITCHES
            .iter()
            .position(|one| (one.level, one.option) == (level, option));
        let number = || {
            NUMBERS
                .iter()
                .position(|one| (one.level, one.option) == (level, option))
        };
        switch
            .map(Self::Switch)
            .or_else(|| number().map(Self::Number))
    }

    /// Returns the capability that a change of the option needs.
    pub fn needs(self) -> Needs {
        match self {
            Self::Switch(at) => SWITCHES[at].needs,
            Self::Number(at) => NUMBERS[at].needs,
        }
    }

    /// Returns the number to store when a program sets the option to `value`. For a [`Switch`] it
    /// is 0 or 1. For `TCP_DEFER_ACCEPT`, whose value is in seconds, it is a number of attempts
    /// ([`periods`]). For any other [`Number`] it is the value itself, except that -1 means the
    /// initial value 1 of an option that accepts no negative values.
    ///
    /// # Errors
    /// `EINVAL` if the option does not accept the value.
    pub fn checked(self, value: i32) -> Result<i32, Errno> {
        match self {
            Self::Switch(at) if SWITCHES[at].strict && !(0..=1).contains(&value) => {
                Err(Errno::EINVAL)
            }
            Self::Switch(_) => Ok((value != 0).into()),
            Self::Number(DEFER_ACCEPT) => Ok(periods_of(value)),
            Self::Number(SEGMENT) if value != 0 && !(88..=32767).contains(&value) => {
                Err(Errno::EINVAL)
            }
            Self::Number(MTU6) if value != 0 && value < 1280 => Err(Errno::EINVAL),
            Self::Number(at) => {
                let Number {
                    least,
                    most,
                    initial,
                    ..
                } = NUMBERS[at];
                match value {
                    -1 if least == 0 && initial == 1 => Ok(initial),
                    _ if value < least || value > most => Err(Errno::EINVAL),
                    _ => Ok(value),
                }
            }
        }
    }
}

/// The longest wait between two attempts of TCP in seconds, and the most attempts.
const LONGEST_PERIOD: i32 = 120;
const MOST_PERIODS: i32 = 255;

/// Returns how many attempts of TCP take at least `seconds`. The first takes one second, and each
/// further one twice as long as the one before, up to `LONGEST_PERIOD`.
fn periods_of(seconds: i32) -> i32 {
    (0..MOST_PERIODS)
        .find(|&count| seconds <= periods(count))
        .unwrap_or(MOST_PERIODS)
}

/// Returns the number of seconds that `count` attempts of TCP to send a packet take.
pub fn periods(count: i32) -> i32 {
    let mut next = 1;
    let mut sum = 0;
    for _ in 0..count {
        sum += next;
        next = (next * 2).min(LONGEST_PERIOD);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn places_are_those_of_their_names() {
        let at = |level, option| Kept::find(level, option).unwrap();
        assert_eq!(at(SOL_IPV6, 78), Kept::Switch(FREE_BIND6));
        assert_eq!(at(SOL_IP, 24), Kept::Switch(NO_PORT));
        assert_eq!(at(SOL_IPV6, 29), Kept::Switch(ALL_GROUPS6));
        assert_eq!(at(SOL_TCP, 36), Kept::Switch(TELLS_REST));
        assert_eq!(at(SOL_IPV6, 19), Kept::Switch(LOOP6));
        assert_eq!(at(SOL_SOCKET, 75), Kept::Switch(TELLS_MARK));
        assert_eq!(at(SOL_SOCKET, 36), Kept::Number(MARK));
        assert_eq!(at(SOL_TCP, 2), Kept::Number(SEGMENT));
        assert_eq!(at(SOL_IPV6, 24), Kept::Number(MTU6));
        assert_eq!(Kept::find(SOL_IP, 1), None);
        assert!(SWITCHES.len() <= 64);
    }

    #[test]
    fn no_option_stands_twice() {
        let mut all: Vec<_> = SWITCHES
            .iter()
            .map(|one| (one.level, one.option))
            .chain(NUMBERS.iter().map(|one| (one.level, one.option)))
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn values_are_checked() {
        let set = |level, option, value| Kept::find(level, option).unwrap().checked(value);
        assert_eq!(set(SOL_IP, 15, -7), Ok(1));
        assert_eq!(set(SOL_IP, 49, 2), Err(Errno::EINVAL));
        assert_eq!(set(SOL_IP, 33, -1), Ok(1));
        assert_eq!(set(SOL_IP, 33, 256), Err(Errno::EINVAL));
        assert_eq!(set(SOL_IP, 21, -1), Err(Errno::EINVAL));
        assert_eq!(set(SOL_TCP, 2, 87), Err(Errno::EINVAL));
        assert_eq!(set(SOL_TCP, 2, 0), Ok(0));
        assert_eq!(set(SOL_IPV6, 24, 1279), Err(Errno::EINVAL));
        assert_eq!(set(SOL_SOCKET, 46, -1), Err(Errno::EINVAL));
    }

    #[test]
    fn seconds_become_periods() {
        for (seconds, shown) in [(-1, 0), (0, 0), (1, 1), (2, 3), (5, 7), (10, 15), (60, 63)] {
            let kept = Kept::Number(DEFER_ACCEPT).checked(seconds).unwrap();
            assert_eq!(periods(kept), shown);
        }
        assert_eq!(periods_of(i32::MAX), MOST_PERIODS);
    }
}
