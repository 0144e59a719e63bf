//! The network's counters (`/proc/net/snmp` and its like). There are no packets, so the counters of
//! TCP packets, their errors and routes are 0.

use crate::fs::socket::{
    ACTIVE_OPENS, ATTEMPT_FAILS, DEFAULT_HOPS, UDP_IN, UDP_NO_PORT, UDP_NO_ROOM, UDP_OUT,
};
use crate::fs::text::Text;
use core::fmt::{Result as Written, Write};

/// Writes a line with the names of `fields`, and a line with their numbers.
fn lines(text: &mut Text, name: &str, fields: &[(&str, u64)]) -> Written {
    write!(text, "{name}:")?;
    for (field, _) in fields {
        write!(text, " {field}")?;
    }
    write!(text, "\n{name}:")?;
    for (_, value) in fields {
        write!(text, " {value}")?;
    }
    text.push(b"\n")
}

/// Shows `/proc/net/snmp`. `connected` is the number of connected TCP sockets.
pub(super) fn by_protocol(text: &mut Text, connected: usize) -> Written {
    // Every message is a packet.
    let received = UDP_IN.get() + UDP_NO_PORT.get() + UDP_NO_ROOM.get();
    let sent = UDP_OUT.get();
    let ip = [
        ("Forwarding", 2),
        ("DefaultTTL", DEFAULT_HOPS.into()),
        ("InReceives", received),
        ("InHdrErrors", 0),
        ("InAddrErrors", 0),
        ("ForwDatagrams", 0),
        ("InUnknownProtos", 0),
        ("InDiscards", 0),
        ("InDelivers", received),
        ("OutRequests", sent),
        ("OutDiscards", 0),
        ("OutNoRoutes", 0),
        ("ReasmTimeout", 0),
        ("ReasmReqds", 0),
        ("ReasmOKs", 0),
        ("ReasmFails", 0),
        ("FragOKs", 0),
        ("FragFails", 0),
        ("FragCreates", 0),
    ];
    lines(text, "Ip", &ip)?;
    let icmp = [
        "InMsgs",
        "InErrors",
        "InCsumErrors",
        "InDestUnreachs",
        "InTimeExcds",
        "InParmProbs",
        "InSrcQuenchs",
        "InRedirects",
        "InEchos",
        "InEchoReps",
        "InTimestamps",
        "InTimestampReps",
        "InAddrMasks",
        "InAddrMaskReps",
        "OutMsgs",
        "OutErrors",
        "OutRateLimitGlobal",
        "OutRateLimitHost",
        "OutDestUnreachs",
        "OutTimeExcds",
        "OutParmProbs",
        "OutSrcQuenchs",
        "OutRedirects",
        "OutEchos",
        "OutEchoReps",
        "OutTimestamps",
        "OutTimestampReps",
        "OutAddrMasks",
        "OutAddrMaskReps",
    ];
    lines(text, "Icmp", &icmp.map(|name| (name, 0)))?;
    // The bounds of retransmission timeouts in milliseconds, and -1 for no limit of connections.
    writeln!(
        text,
        "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets \
         CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors"
    )?;
    let opened = ACTIVE_OPENS.get();
    let failed = ATTEMPT_FAILS.get();
    writeln!(
        text,
        "Tcp: 1 200 120000 -1 {} {opened} {failed} 0 {connected} 0 0 0 0 0 0",
        opened + failed
    )?;
    let udp = [
        ("InDatagrams", UDP_IN.get()),
        ("NoPorts", UDP_NO_PORT.get()),
        ("InErrors", UDP_NO_ROOM.get()),
        ("OutDatagrams", sent),
        ("RcvbufErrors", UDP_NO_ROOM.get()),
        ("SndbufErrors", 0),
        ("InCsumErrors", 0),
        ("IgnoredMulti", 0),
        ("MemErrors", 0),
    ];
    lines(text, "Udp", &udp)?;
    lines(text, "UdpLite", &udp.map(|(name, _)| (name, 0)))
}

/// Shows `/proc/net/netstat`, with the names that programs look for.
pub(super) fn extended(text: &mut Text) -> Written {
    let tcp = [
        "SyncookiesSent",
        "SyncookiesRecv",
        "SyncookiesFailed",
        "EmbryonicRsts",
        "PruneCalled",
        "TW",
        "DelayedACKs",
        "DelayedACKLost",
        "ListenOverflows",
        "ListenDrops",
        "TCPTimeouts",
        "TCPLossProbes",
        "TCPLostRetransmit",
        "TCPFastRetrans",
        "TCPSlowStartRetrans",
        "TCPSynRetrans",
        "TCPAbortOnData",
        "TCPAbortOnClose",
        "TCPAbortOnMemory",
        "TCPAbortOnTimeout",
        "TCPRcvQDrop",
        "TCPOFOQueue",
    ];
    lines(text, "TcpExt", &tcp.map(|name| (name, 0)))?;
    let received = UDP_IN.get() + UDP_NO_PORT.get() + UDP_NO_ROOM.get();
    let ip = [
        ("InNoRoutes", 0),
        ("InTruncatedPkts", 0),
        ("InMcastPkts", 0),
        ("OutMcastPkts", 0),
        ("InBcastPkts", 0),
        ("OutBcastPkts", 0),
        ("InCsumErrors", 0),
        ("InNoECTPkts", received),
        ("ReasmOverlaps", 0),
    ];
    lines(text, "IpExt", &ip)
}

/// Shows `/proc/net/snmp6`. All numbers are 0, since messages of version 6 are counted with those
/// of version 4.
pub(super) fn version_6(text: &mut Text) -> Written {
    for name in [
        "Ip6InReceives",
        "Ip6InDelivers",
        "Ip6OutRequests",
        "Icmp6InMsgs",
        "Icmp6OutMsgs",
        "Udp6InDatagrams",
        "Udp6NoPorts",
        "Udp6InErrors",
        "Udp6OutDatagrams",
        "Udp6RcvbufErrors",
    ] {
        writeln!(text, "{name:<32}\t0")?;
    }
    Ok(())
}

/// Shows `/proc/net/protocols`: the protocols that sockets may have.
pub(super) fn protocols(text: &mut Text) -> Written {
    writeln!(
        text,
        "protocol  size sockets  memory press maxhdr  slab module     cl co di ac io in de sh ss gs se re bi br ha uh gp em"
    )?;
    for (name, methods) in [
        (
            "UDPv6",
            "y  y  y  n  y  y  y  n  y  y  y  y  n  n  y  y  y  n",
        ),
        (
            "TCPv6",
            "y  y  y  y  y  y  y  y  y  y  y  y  y  n  y  y  y  y",
        ),
        (
            "UNIX",
            "y  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n",
        ),
        (
            "UDP",
            "y  y  y  n  y  y  y  n  y  y  y  y  n  n  y  y  y  n",
        ),
        (
            "TCP",
            "y  y  y  y  y  y  y  y  y  y  y  y  y  n  y  y  y  y",
        ),
        (
            "NETLINK",
            "n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n",
        ),
    ] {
        writeln!(
            text,
            "{name:<9} {:4} {:6}  {:6}   NI   {:6}   no   kernel      {methods}",
            0, 0, -1, 0
        )?;
    }
    Ok(())
}
