//! `/proc/net`: the sockets there are, and the loopback interface, in Linux's columns.
//!
//! There is no list of sockets: a read goes through the descriptors of all processes, the sockets
//! in unread messages, and the connections that are not accepted yet. Columns without a meaning
//! here, such as timers and retransmissions of TCP, have the values of an idle connection.

use super::statistics;
use crate::fs::OpenFile;
use crate::fs::socket::{self, Address, Family, Protocol, Socket, Stage, View};
use crate::fs::synthetic::{Directory, Entry, Synthetic};
use crate::fs::text::Text;
use crate::process::{self, task};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::fmt::{Error, Result as Written, Write};
use logic::errno::Errno;
use logic::socket::address::{Endpoint, Ip, UnixName};
use machine::sched;
use machine::sync::Once;

/// The directory `net` of all processes: there is one network.
static FILES: Once<Arc<Directory>> = Once::new();

/// The files of `/proc/net`. As on Linux, root may open the files with counters for writing, but
/// not the tables.
const ENTRIES: &[Entry] = &[
    Entry::table("arp", |text| {
        writeln!(
            text,
            "IP address       HW type     Flags       HW address            Mask     Device"
        )
    }),
    Entry::table("dev", devices),
    Entry::table("if_inet6", |text| {
        writeln!(text, "{:032x} 01 80 10 80       lo", 1)
    }),
    Entry::table("netlink", netlink),
    Entry::table("packet", |text| {
        writeln!(
            text,
            "sk               RefCnt Type Proto  Iface R Rmem   User   Inode"
        )
    }),
    Entry::table("raw", |text| writeln!(text, "{RAW}")),
    Entry::table("raw6", |text| writeln!(text, "{MESSAGES6}")),
    Entry::file("netstat", statistics::extended),
    Entry::table("protocols", statistics::protocols),
    Entry::table("route", |text| {
        let head =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
        writeln!(text, "{head:127}")
    }),
    Entry::file("snmp", |text| {
        let sockets = all(text, |socket| socket.protocol() == Some(Protocol::Tcp))?;
        let connected = sockets
            .values()
            .filter(|row| matches!(row.view.stage, Stage::Connected | Stage::PeerEnded));
        statistics::by_protocol(text, connected.count())
    }),
    Entry::file("snmp6", statistics::version_6),
    Entry::file("sockstat", |text| {
        let sockets = all(text, |_| true)?;
        writeln!(text, "sockets: used {}", sockets.len())?;
        let [tcp, udp, lite] = in_use(&sockets, Family::Inet);
        // Of both versions, bound or not.
        let is_tcp = |row: &&Row| row.view.protocol == Some(Protocol::Tcp);
        let all = sockets.values().filter(is_tcp).count();
        writeln!(text, "TCP: inuse {tcp} orphan 0 tw 0 alloc {all} mem 0")?;
        writeln!(text, "UDP: inuse {udp} mem 0\nUDPLITE: inuse {lite}")?;
        writeln!(text, "RAW: inuse 0\nFRAG: inuse 0 memory 0")
    }),
    Entry::file("sockstat6", |text| {
        let sockets = all(text, |_| true)?;
        let [tcp, udp, lite] = in_use(&sockets, Family::Inet6);
        writeln!(
            text,
            "TCP6: inuse {tcp}\nUDP6: inuse {udp}\nUDPLITE6: inuse {lite}"
        )?;
        writeln!(text, "RAW6: inuse 0\nFRAG6: inuse 0 memory 0")
    }),
    Entry::table("tcp", |text| ports(text, Family::Inet, Protocol::Tcp)),
    Entry::table("tcp6", |text| ports(text, Family::Inet6, Protocol::Tcp)),
    Entry::table("udp", |text| ports(text, Family::Inet, Protocol::Udp)),
    Entry::table("udp6", |text| ports(text, Family::Inet6, Protocol::Udp)),
    Entry::table("udplite", |text| {
        ports(text, Family::Inet, Protocol::UdpLite)
    }),
    Entry::table("udplite6", |text| {
        ports(text, Family::Inet6, Protocol::UdpLite)
    }),
    Entry::table("unix", unix),
];

/// Creates the files of `/proc/net`, which [`files`] returns. Called once.
pub(super) fn build(fs: &Arc<Synthetic>) {
    let files = Directory::new(fs, None, b"net");
    files.add_all(ENTRIES);
    // Built once.
    let _ = FILES.set(files);
}

/// Returns the directory `/proc/PID/net`, or `None` before [`build`] has created it.
pub(super) fn files() -> Option<&'static Arc<Directory>> {
    FILES.get()
}

/// A line of a file: a socket.
struct Row {
    view: View,
    /// The inode number, which `fstat` and `/proc/PID/fd` show. 0 if the socket has no descriptor
    /// yet.
    inode: u64,
    /// The user that owns the socket.
    user: u32,
}

/// The rows in the order of the file: listeners first, sockets without a descriptor last, each in
/// the order of their creation. A tree, since a vector of many rows would need large contiguous
/// memory.
type Rows = BTreeMap<(bool, bool, u64, usize), Row>;

/// The sockets that were found so far.
struct Found<'a> {
    wanted: &'a dyn Fn(&Socket) -> bool,
    seen: BTreeSet<u64>,
    rows: Rows,
}

impl Found<'_> {
    fn push(&mut self, row: Row) {
        let later = row.view.stage != Stage::Listening;
        let key = (later, row.inode == 0, row.inode, self.rows.len());
        self.rows.insert(key, row);
    }

    /// Adds the socket behind `file`, if it is wanted, and the connections that it has not accepted
    /// yet. Fails with `ENOMEM`.
    fn add(&mut self, file: &OpenFile) -> Result<(), Errno> {
        let Some(socket) = file.file().downcast::<Socket>() else {
            return Ok(());
        };
        let inode = file.node().id().inode;
        if !(self.wanted)(socket) || !self.seen.insert(inode) {
            return Ok(());
        }
        self.push(Row {
            view: socket.view(),
            inode,
            user: file.metadata().uid,
        });
        for waiting in socket.unaccepted()? {
            self.push(Row {
                view: waiting.view(),
                inode: 0,
                user: 0,
            });
        }
        Ok(())
    }
}

/// Returns all sockets for which `wanted` returns `true`: listeners first, and each in the order of
/// creation. If that fails, stores the error in `text` and fails.
fn all(text: &mut Text, wanted: impl Fn(&Socket) -> bool) -> Result<Rows, Error> {
    find(&wanted).map_err(|error| text.fail(error))
}

fn find(wanted: &dyn Fn(&Socket) -> bool) -> Result<Rows, Errno> {
    let mut found = Found {
        wanted,
        seen: BTreeSet::new(),
        rows: Rows::new(),
    };
    let mut pid = 0;
    // Ends with the last process: each number is looked at once.
    while let Some(process) = task::next_process(pid) {
        pid = process.pid() + 1;
        let Some(files) = process.files() else {
            continue;
        };
        let mut from = 0;
        while let Some((file, next)) = files.next_socket(from) {
            from = next;
            if process::current().killed() {
                return Err(Errno::EINTR);
            }
            if let Some(file) = file {
                let added = found.add(&file);
                file.close();
                added?;
            }
            sched::cond_resched();
        }
    }
    for file in socket::on_their_way()? {
        let added = found.add(&file);
        file.close();
        added?;
    }
    Ok(found.rows)
}

/// Returns whether Linux shows a socket with a port: a TCP socket must not be closed, and other
/// sockets must be bound.
fn is_shown(row: &Row, family: Family, protocol: Protocol) -> bool {
    let view = &row.view;
    view.family == family
        && view.protocol == Some(protocol)
        && if protocol == Protocol::Tcp {
            view.stage != Stage::Closed
        } else {
            view.bound
        }
}

/// Returns the numbers of sockets of TCP, UDP and UDP-Lite that Linux would show.
fn in_use(rows: &Rows, family: Family) -> [usize; 3] {
    [Protocol::Tcp, Protocol::Udp, Protocol::UdpLite].map(|protocol| {
        let shown = rows.values().filter(|row| is_shown(row, family, protocol));
        shown.count()
    })
}

/// The headings of the columns for datagram sockets of both versions.
const MESSAGES: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout \
                        inode ref pointer drops";
const MESSAGES6: &str = "  sl  local_address                         remote_address                        st tx_queue \
                         rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops";
const RAW: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref \
                   pointer drops";
/// The headings of the columns for TCP sockets of both versions.
const STREAMS: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
const STREAMS6: &str = "  sl  local_address                         remote_address                        st tx_queue \
                        rx_queue tr tm->when retrnsmt   uid  timeout inode";
/// The lengths to which lines of version 4 are padded.
const STREAM_WIDTH: usize = 149;
const MESSAGE_WIDTH: usize = 127;

/// Shows the sockets of `family` and `protocol`, which have ports.
fn ports(text: &mut Text, family: Family, protocol: Protocol) -> Written {
    let tcp = protocol == Protocol::Tcp;
    let (head, width) = match (tcp, family) {
        (true, Family::Inet6) => (STREAMS6, 0),
        (true, _) => (STREAMS, STREAM_WIDTH),
        (false, Family::Inet6) => (MESSAGES6, 0),
        (false, _) => (MESSAGES, MESSAGE_WIDTH),
    };
    writeln!(text, "{head:width$}")?;
    let rows = all(text, |socket| {
        socket.family() == family && socket.protocol() == Some(protocol)
    })?;
    let shown = rows.values().filter(|row| is_shown(row, family, protocol));
    for (number, row) in shown.enumerate() {
        sched::give_way();
        let start = text.len();
        let digits = if tcp { 4 } else { 5 };
        write!(text, "{number:digits$}: ")?;
        endpoint(text, family, &row.view.local)?;
        endpoint(text, family, &row.view.remote)?;
        let Row { view, inode, user } = row;
        // No byte waits on this side: sent bytes are in the receiver's inbox.
        write!(
            text,
            "{:02X} 00000000:{:08X} 00:00000000 00000000 {user:5} {:8} {inode} ",
            state(tcp, view.stage),
            view.waiting,
            0
        )?;
        match (tcp, view.stage) {
            (false, _) => write!(text, "2 {:016} {}", 0, view.drops)?,
            (true, Stage::Listening) => write!(text, "1 {:016} 100 0 0 10 0", 0)?,
            (true, _) => write!(text, "1 {:016} 20 4 0 10 -1", 0)?,
        }
        let written = text.len() - start;
        text.spaces(width.saturating_sub(written))?;
        text.push(b"\n")?;
    }
    Ok(())
}

/// Returns Linux's number of the state `stage` of a socket. A socket other than TCP (`tcp` is
/// `false`) has the number of a closed or of an established TCP connection.
fn state(tcp: bool, stage: Stage) -> u8 {
    match stage {
        Stage::Closed => 7,
        _ if !tcp => 1,
        _ => stage.tcp_number(),
    }
}

/// Writes an address, in words of the machine's byte order, and a port.
fn endpoint(text: &mut Text, family: Family, address: &Address) -> Written {
    let Endpoint { ip, port } = match address {
        Address::Inet(endpoint) => *endpoint,
        Address::Unix(_) | Address::Netlink { .. } => Endpoint {
            ip: Ip::ANY6,
            port: 0,
        },
    };
    let bytes = if family == Family::Inet6 {
        &ip.0[..]
    } else {
        &ip.0[12..]
    };
    for word in bytes.chunks_exact(4) {
        let word = word.first_chunk().copied().map_or(0, u32::from_le_bytes);
        write!(text, "{word:08X}")?;
    }
    write!(text, ":{port:04X} ")
}

/// Shows the sockets of `AF_UNIX`.
fn unix(text: &mut Text) -> Written {
    writeln!(
        text,
        "Num       RefCount Protocol Flags    Type St Inode Path"
    )?;
    let rows = all(text, |socket| socket.family() == Family::Unix)?;
    for Row { view, inode, .. } in rows.into_values() {
        sched::give_way();
        let accepts = view.stage == Stage::Listening;
        let connected = !matches!(view.stage, Stage::Closed | Stage::Listening);
        let state = match (connected, inode) {
            (true, 0) => 2,
            (true, _) => 3,
            (false, _) => 1,
        };
        let flags = if accepts { 0x10000 } else { 0 };
        let references = if connected { 3 } else { 2 };
        write!(
            text,
            "{:016}: {references:08X} 00000000 {flags:08X} {:04X} {state:02X} {inode:5}",
            0, view.kind as u32
        )?;
        match &view.local {
            Address::Unix(UnixName::Path(path)) => {
                text.push(b" ")?;
                text.push(path)?;
            }
            Address::Unix(UnixName::Abstract(name)) => {
                text.push(b" @")?;
                for byte in &name[..] {
                    text.push(if *byte == 0 {
                        b"@"
                    } else {
                        core::slice::from_ref(byte)
                    })?;
                }
            }
            _ => {}
        }
        text.push(b"\n")?;
    }
    Ok(())
}

/// Shows the netlink sockets.
fn netlink(text: &mut Text) -> Written {
    writeln!(
        text,
        "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode"
    )?;
    let rows = all(text, |socket| socket.family() == Family::Netlink)?;
    for Row { view, inode, .. } in rows.into_values() {
        sched::give_way();
        if let Address::Netlink { port, groups } = view.local {
            let waiting = view.waiting;
            let protocol = if view.protocol == Some(Protocol::SockDiag) {
                4
            } else {
                0
            };
            writeln!(
                text,
                "{:016} {protocol:<3} {port:<10} {groups:08x} {waiting:<8} {:<8} 0     2        0        {inode:<8}",
                0, 0
            )?;
        }
    }
    Ok(())
}

/// Shows the loopback interface, whose counters are 0.
fn devices(text: &mut Text) -> Written {
    writeln!(
        text,
        "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs \
         drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed"
    )?;
    write!(text, "    lo:")?;
    for width in [7, 7, 4, 4, 4, 5, 10, 9, 8, 7, 4, 4, 4, 5, 7, 10] {
        write!(text, " {:width$}", 0)?;
    }
    text.push(b"\n")
}
