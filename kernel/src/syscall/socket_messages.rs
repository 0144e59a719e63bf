//! Sending and receiving through sockets.

use super::Args;
use super::record::{ManyHeader, MessageHeader};
use super::socket::{read_address, with_socket, write_address};
use super::stamps;
use crate::fs::OpenFile;
use crate::fs::io::{
    ByteSink, MAX_RW_COUNT, NO_LIMIT, Segment, UserSink, UserSource, read_segments,
};
use crate::fs::socket::{
    Address, Caller, Family, Got, Incoming, Outgoing, Protocol, Socket, SocketKind,
};
use crate::fs::table::MAX_DESCRIPTORS;
use crate::process::task::table;
use crate::process::time::values::Timespec;
use crate::process::{self, caller};
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::socket::address::{AF_UNSPEC, MAX_LENGTH, UnixName, split_family};
use logic::socket::control::{self, Credentials, Passed, SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET};
use logic::socket::options;
use machine::arch::clock::{self, Nanos};
use machine::memory::FrameRef;
use machine::sched;
use machine::uaccess::{self, UserPtr};

const MSG_OOB: u32 = 1;
const MSG_PEEK: u32 = 2;
/// Returned to a receiver if control messages were lost.
const MSG_CTRUNC: u32 = 8;
/// Passed by a receiver to get the message's whole length. Set for it if a part of the message was
/// lost.
const MSG_TRUNC: u32 = 0x20;
const MSG_DONTWAIT: u32 = 0x40;
const MSG_WAITALL: u32 = 0x100;
const MSG_ERRQUEUE: u32 = 0x2000;
const MSG_NOSIGNAL: u32 = 0x4000;
/// Passed by a sender if more bytes follow, so that these may be held back.
const MSG_MORE: u32 = 0x8000;
/// Passed to `recvmmsg` to wait only for the first message.
const MSG_WAITFORONE: u32 = 0x1_0000;
const MSG_FASTOPEN: u32 = 0x2000_0000;
const MSG_CMSG_CLOEXEC: u32 = 0x4000_0000;
/// The types of control messages of `SOL_SOCKET`.
const SO_MARK: u32 = 36;
const SO_RXQ_OVFL: u32 = 40;
/// The control message of `IPPROTO_TCP` with the number of bytes that are still to be received.
const TCP_INQ: u32 = 36;
/// The most messages of one call (`UIO_MAXIOV`).
const MOST_MESSAGES: u32 = 1024;

/// The address, the descriptors and the control messages that go with the bytes of a message.
#[derive(Default)]
struct Beside {
    to: Option<Vec<u8>>,
    /// The credentials and descriptors, for `AF_UNIX`.
    passed: Passed,
    /// Control messages of UDP.
    control: Vec<u8>,
}

/// Sends the bytes of `segments`. With `MSG_NOSIGNAL` a broken connection raises no signal. Returns
/// the number of bytes sent. Fails as `sendmsg(2)` does.
fn send(
    socket: &Socket,
    file: &OpenFile,
    segments: &[Segment],
    beside: &Beside,
    flags: u32,
) -> SysResult {
    let urgent = flags & MSG_OOB != 0;
    let tcp = socket.protocol() == Some(Protocol::Tcp);
    if urgent && !tcp {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut files = Vec::new();
    for fd in &beside.passed.descriptors {
        match caller::place(*fd) {
            Ok(file) => files.push(file),
            Err(error) => {
                files.into_iter().for_each(OpenFile::close);
                return Err(error);
            }
        }
    }
    let context = caller::context();
    caller::with_credentials(|who| {
        let from = Caller {
            context: &context,
            who,
        };
        let exempting = Capabilities::SYS_RESOURCE | Capabilities::SYS_ADMIN;
        let files_limit = if who.effective.meets(exempting) {
            // Linux has no limit here. This one bounds the kernel's memory for the list.
            MAX_DESCRIPTORS
        } else {
            caller::descriptor_limit()
        };
        let nonblocking = file.flags().nonblocking() || flags & MSG_DONTWAIT != 0;
        if tcp && flags & MSG_FASTOPEN != 0 {
            // As on Linux with a server that does not support fast connections, it connects first.
            connect_first(socket, beside, from, flags & MSG_DONTWAIT != 0)?;
        }
        let out = Outgoing {
            to: beside.to.as_deref().map(|bytes| (bytes, from)),
            control: &beside.control,
            files,
            files_user: who.users.real,
            files_limit,
            credentials: beside.passed.credentials,
            nonblocking,
            urgent,
            more: flags & MSG_MORE != 0,
            may_mark: !beside.control.is_empty() && may_mark(),
        };
        let result = socket.send(&mut UserSource::new(segments, NO_LIMIT), out);
        if flags & MSG_NOSIGNAL != 0 && result == Err(Errno::BROKEN_PIPE) {
            return Err(Errno::EPIPE);
        }
        result
    })
}

/// Connects a TCP socket to the address of the message that it sends (`MSG_FASTOPEN`).
///
/// # Errors
/// Fails with `EINVAL` without an address, and with `EISCONN` if the socket is connected. Fails
/// with `EOPNOTSUPP` if the address is one that disconnects, and with the errors of `connect`.
fn connect_first(
    socket: &Socket,
    beside: &Beside,
    from: Caller<'_>,
    nonblocking: bool,
) -> Result<(), Errno> {
    let Some(to) = beside.to.as_deref() else {
        return Err(match socket.remote() {
            Some(_) => Errno::EISCONN,
            None => Errno::EINVAL,
        });
    };
    if split_family(to)?.0 == AF_UNSPEC {
        return Err(Errno::EOPNOTSUPP);
    }
    socket.connect(to, from, nonblocking)
}

/// Returns whether the caller may mark packets (`SO_MARK`).
fn may_mark() -> bool {
    caller::can(Capabilities::NET_ADMIN) || caller::can(Capabilities::NET_RAW)
}

/// Returns the segment of `length` bytes at `address`, cut to the most bytes of a call.
fn one_segment(address: u64, length: usize) -> [Segment; 1] {
    [Segment {
        address,
        length: length.min(MAX_RW_COUNT),
    }]
}

/// `sendto(2)`.
pub fn sendto(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, file| {
        let mut beside = Beside::default();
        if a.addr(4) != 0 {
            beside.to = Some(read_address(a.addr(4), a.int(5))?);
        }
        let segments = one_segment(a.addr(1), a.size(2));
        send(socket, file, &segments, &beside, a.uint(3))
    })
}

/// Checks the identity that a sender claims. It must be one that the sender can act as, or that its
/// capabilities allow. Fails with `EPERM` if not, with `EINVAL` for invalid IDs, and with `ESRCH`
/// if there is no such process.
fn check_credentials(credentials: Credentials) -> Result<(), Errno> {
    if credentials.uid == u32::MAX || credentials.gid == u32::MAX {
        return Err(Errno::EINVAL);
    }
    let task = process::current();
    let who = task.credentials();
    let known = task.process().pid() == credentials.pid || who.can(Capabilities::SYS_ADMIN);
    let of_user = who.users.three().contains(&credentials.uid) || who.can(Capabilities::SETUID);
    let of_group = who.groups.three().contains(&credentials.gid) || who.can(Capabilities::SETGID);
    if !(known && of_user && of_group) {
        return Err(Errno::EPERM);
    }
    match table::find(credentials.pid) {
        Some(_) => Ok(()),
        None => Err(Errno::ESRCH),
    }
}

/// Reads the address, the descriptors and the control messages that a sender's `header` names.
/// Fails with `EINVAL`, `ENOBUFS`, `EFAULT` or `EPERM` as `sendmsg(2)` does.
fn read_beside(socket: &Socket, header: &MessageHeader) -> Result<Beside, Errno> {
    let mut beside = Beside::default();
    if header.name != 0 && header.name_length != 0 {
        let length = i32::try_from(header.name_length).map_err(|_| Errno::EINVAL)?;
        // A longer address is cut, as on Linux.
        let most = i32::try_from(MAX_LENGTH).unwrap_or(0);
        beside.to = Some(read_address(header.name, length.min(most))?);
    }
    if header.control_length != 0 {
        let length = usize::try_from(header.control_length).map_err(|_| Errno::ENOBUFS)?;
        if length > control::MAX_LENGTH {
            return Err(Errno::ENOBUFS);
        }
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(length)
            .map_err(|_| Errno::ENOBUFS)?;
        bytes.resize(length, 0);
        uaccess::copy_in(&mut bytes, header.control)?;
        match socket.protocol() {
            None | Some(Protocol::SockDiag) => {
                beside.passed = control::parse(&bytes)?;
                if let Some(credentials) = beside.passed.credentials {
                    check_credentials(credentials)?;
                }
            }
            Some(Protocol::Tcp) => control::check_of_stream(&bytes)?,
            Some(Protocol::Udp | Protocol::UdpLite | Protocol::Icmp) => beside.control = bytes,
        }
    }
    Ok(beside)
}

fn send_header(socket: &Socket, file: &OpenFile, header: &MessageHeader, flags: u32) -> SysResult {
    let segments = read_segments_of_message(header)?;
    let beside = read_beside(socket, header)?;
    send(socket, file, &segments, &beside, flags)
}

fn read_segments_of_message(header: &MessageHeader) -> Result<Vec<Segment>, Errno> {
    read_segments(header.segments, header.segment_count).map_err(|error| match error {
        // Too many segments give `EMSGSIZE`, while other calls fail with `EINVAL`.
        Errno::EINVAL if header.segment_count > MOST_MESSAGES.into() => Errno::EMSGSIZE,
        other => other,
    })
}

/// `sendmsg(2)`.
pub fn sendmsg(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, file| {
        let header = UserPtr::<MessageHeader>::new(a.addr(1)).read()?;
        send_header(socket, file, &header, a.uint(2))
    })
}

/// Returns the address of the `struct mmsghdr` of message `n`, given that of message 0.
fn nth_header(first: u64, n: u32) -> u64 {
    first.wrapping_add(u64::from(n) * size_of::<ManyHeader>() as u64)
}

/// Lets other tasks run between two messages. Returns `false` if the caller is being killed.
fn goes_on() -> bool {
    sched::cond_resched();
    !sched::current().killed()
}

/// `sendmmsg(2)`.
pub fn sendmmsg(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, file| {
        let count = a.uint(2).min(MOST_MESSAGES);
        for n in 0..count {
            let place = UserPtr::<ManyHeader>::new(nth_header(a.addr(1), n));
            let sent = place.read().and_then(|mut many| {
                let sent = send_header(socket, file, &many.header, a.uint(3))?;
                many.length = u32::try_from(sent).unwrap_or(u32::MAX);
                place.write(&many)
            });
            match sent {
                Ok(()) => {}
                Err(error) if n == 0 => return Err(error),
                Err(_) => return Ok(n as usize),
            }
            if !goes_on() {
                return Ok(n as usize + 1);
            }
        }
        Ok(count as usize)
    })
}

/// Discards bytes.
struct Nowhere {
    room: usize,
}

impl Nowhere {
    fn pass(&mut self, count: usize) -> SysResult {
        let count = count.min(self.room);
        self.room -= count;
        Ok(count)
    }
}

impl ByteSink for Nowhere {
    fn room(&self) -> usize {
        self.room
    }
    fn put(&mut self, bytes: &[u8]) -> SysResult {
        self.pass(bytes.len())
    }
    fn put_frame(&mut self, _: &FrameRef, _: usize, count: usize) -> SysResult {
        self.pass(count)
    }
}

/// Receives the urgent byte of TCP. With `MSG_TRUNC` the byte is discarded. Fails as
/// `Socket::receive_urgent`, and with `EFAULT` for a bad address.
fn receive_urgent(socket: &Socket, segments: &[Segment], flags: u32) -> Result<Got, Errno> {
    let byte = socket.receive_urgent(flags & MSG_PEEK != 0)?;
    let mut sink = UserSink::new(segments);
    let count = match sink.room() {
        0 => 0,
        _ if flags & MSG_TRUNC != 0 => 1,
        _ => sink.put(&[byte])?,
    };
    Ok(Got {
        count,
        length: 1,
        ..Got::default()
    })
}

/// Receives bytes or a message into `segments`. Fails as `recvmsg(2)` does.
fn receive(
    socket: &Socket,
    file: &OpenFile,
    segments: &[Segment],
    flags: u32,
) -> Result<Got, Errno> {
    let unix = socket.family() == Family::Unix;
    if flags & MSG_OOB != 0 && socket.protocol() == Some(Protocol::Tcp) {
        return receive_urgent(socket, segments, flags);
    }
    if flags & MSG_OOB != 0 {
        // Other sockets have no urgent bytes.
        return Err(match socket.kind() {
            SocketKind::Stream => Errno::EINVAL,
            _ => Errno::EOPNOTSUPP,
        });
    }
    if flags & MSG_ERRQUEUE != 0 && !unix {
        return socket.receive_problem(&mut UserSink::new(segments));
    }
    let how = Incoming {
        peek: flags & MSG_PEEK != 0,
        all: flags & MSG_WAITALL != 0,
        nonblocking: file.flags().nonblocking() || flags & MSG_DONTWAIT != 0,
    };
    let mut sink = UserSink::new(segments);
    if !unix && socket.kind() == SocketKind::Stream && flags & MSG_TRUNC != 0 {
        // With `MSG_TRUNC`, TCP discards the bytes.
        let mut nowhere = Nowhere { room: sink.room() };
        return socket.receive(&mut nowhere, how);
    }
    socket.receive(&mut sink, how)
}

/// Returns the result of a receiving call: the bytes taken, or with `MSG_TRUNC` the size of the
/// message.
fn received(got: &Got, flags: u32) -> usize {
    if flags & MSG_TRUNC != 0 && flags & MSG_OOB == 0 {
        got.length
    } else {
        got.count
    }
}

/// Returns the address of a message's sender. It is empty for a TCP stream and for a sender without
/// a name.
fn source_bytes(socket: &Socket, got: &Got) -> Vec<u8> {
    match &got.source {
        None | Some(Address::Unix(UnixName::Nameless)) => Vec::new(),
        Some(Address::Inet(_)) if socket.kind() == SocketKind::Stream => Vec::new(),
        Some(source) => source.to_bytes(socket.family()),
    }
}

/// `recvfrom(2)`.
pub fn recvfrom(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, file| {
        let segments = one_segment(a.addr(1), a.size(2));
        let mut got = receive(socket, file, &segments, a.uint(3))?;
        // Descriptors that come with the message are lost.
        got.files.drain(..).for_each(OpenFile::close);
        if a.addr(4) != 0 {
            write_address(&source_bytes(socket, &got), a.addr(4), a.addr(5))?;
        }
        Ok(received(&got, a.uint(3)))
    })
}

/// Gives the receiver descriptors for the `files` for which `writer` has room, and writes their
/// control message. Closes the other files.
fn install_files(files: Vec<Arc<OpenFile>>, writer: &mut control::Writer, flags: u32) {
    let room = writer.descriptors_room();
    let mut numbers = Vec::new();
    let mut files = files.into_iter();
    for file in files.by_ref().take(room) {
        match caller::install(file, flags & MSG_CMSG_CLOEXEC != 0) {
            Ok(fd) => numbers.extend_from_slice(&i32::try_from(fd).unwrap_or(-1).to_le_bytes()),
            Err(_) => {
                writer.cut();
                break;
            }
        }
    }
    if files.len() > 0 {
        writer.cut();
    }
    files.for_each(OpenFile::close);
    if !numbers.is_empty() {
        writer.add(SOL_SOCKET, SCM_RIGHTS, &numbers);
    }
}

/// Writes the control messages about a message that the receiver has requested, in Linux's order.
fn tell_of_message(socket: &Socket, got: &Got, writer: &mut control::Writer) {
    let settings = socket.settings();
    let stream = socket.kind() == SocketKind::Stream;
    let came = got.source.is_some();
    let streams_stamp = socket.protocol() == Some(Protocol::Tcp);
    if came && (!stream || streams_stamp) {
        stamps::tell(settings, got.stamp, writer);
    }
    if got.head.is_some() && settings.kept.is_on(options::TELLS_DROPS) && socket.drops() > 0 {
        writer.add(SOL_SOCKET, SO_RXQ_OVFL, &socket.drops().to_le_bytes());
    }
    if let Some(head) = &got.head {
        if settings.kept.is_on(options::TELLS_MARK) {
            writer.add(SOL_SOCKET, SO_MARK, &head.mark.to_le_bytes());
        }
        head.tell(settings.told.get(), writer);
    }
    if let Some(report) = &got.report {
        report.tell(socket.family() == Family::Inet6, writer);
    }
    if settings.pass_credentials.get()
        && let Some(credentials) = got.credentials
    {
        writer.add(SOL_SOCKET, SCM_CREDENTIALS, &credentials.to_bytes());
    }
    if stream && settings.kept.is_on(options::TELLS_REST) {
        let rest = i32::try_from(socket.waiting().0).unwrap_or(i32::MAX);
        writer.add(options::SOL_TCP, TCP_INQ, &rest.to_le_bytes());
    }
}

fn receive_header(
    socket: &Socket,
    file: &OpenFile,
    place: UserPtr<MessageHeader>,
    flags: u32,
) -> SysResult {
    let mut header = place.read()?;
    let segments = read_segments_of_message(&header)?;
    if header.name != 0 && i32::try_from(header.name_length).is_err() {
        return Err(Errno::EINVAL);
    }
    let mut got = receive(socket, file, &segments, flags)?;
    header.flags = flags & (MSG_CMSG_CLOEXEC | MSG_OOB);
    if got.count < got.length {
        header.flags |= MSG_TRUNC;
    }
    if got.report.is_some() {
        header.flags |= MSG_ERRQUEUE;
    }
    if header.name != 0 {
        let bytes = source_bytes(socket, &got);
        let room = (header.name_length as usize).min(bytes.len());
        uaccess::copy_out(header.name, &bytes[..room])?;
        // No address is longer than MAX_LENGTH.
        header.name_length = u32::try_from(bytes.len()).unwrap_or(0);
    }
    let room = usize::try_from(header.control_length).unwrap_or(0);
    let room = if header.control == 0 { 0 } else { room };
    // All control messages together are shorter than the maximum.
    let mut writer = control::Writer::new(room.min(control::MAX_LENGTH));
    tell_of_message(socket, &got, &mut writer);
    let files = core::mem::take(&mut got.files);
    if !files.is_empty() {
        install_files(files, &mut writer, flags);
    }
    let (bytes, cut) = writer.finish();
    if cut {
        header.flags |= MSG_CTRUNC;
    }
    uaccess::copy_out(header.control, &bytes)?;
    header.control_length = bytes.len() as u64;
    place.write(&header)?;
    Ok(received(&got, flags))
}

/// `recvmsg(2)`.
pub fn recvmsg(a: &Args) -> SysResult {
    with_socket(a.int(0), |socket, file| {
        let place = UserPtr::<MessageHeader>::new(a.addr(1));
        receive_header(socket, file, place, a.uint(2))
    })
}

/// `recvmmsg(2)`. As on Linux, the timeout is checked only after each message.
pub fn recvmmsg(a: &Args) -> SysResult {
    let deadline = match a.addr(4) {
        0 => None,
        address => {
            let timeout = Timespec::read(address)?;
            Some(clock::now().saturating_add(timeout))
        }
    };
    let mut left = None;
    let received = with_socket(a.int(0), |socket, file| {
        let count = a.uint(2);
        if a.uint(3) & MSG_ERRQUEUE == 0
            && let Some(error) = socket.take_error()
        {
            return Err(error);
        }
        let mut flags = a.uint(3);
        for n in 0..count {
            let address = nth_header(a.addr(1), n);
            let wait_for_one = flags & MSG_WAITFORONE != 0;
            let place = UserPtr::<MessageHeader>::new(address);
            let got =
                receive_header(socket, file, place, flags & !MSG_WAITFORONE).and_then(|length| {
                    let length = u32::try_from(length).unwrap_or(u32::MAX);
                    let at = address.wrapping_add(size_of::<MessageHeader>() as u64);
                    uaccess::copy_out(at, &length.to_le_bytes())
                });
            match got {
                Ok(()) => {}
                Err(error) if n == 0 => return Err(error),
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ERESTARTSYS) => return Ok(n as usize),
                Err(error) => {
                    socket.keep_error(error);
                    return Ok(n as usize);
                }
            }
            if wait_for_one {
                flags |= MSG_DONTWAIT;
            }
            left = deadline.map(|deadline: Nanos| deadline.saturating_sub(clock::now()));
            // There is at most one urgent byte.
            if left == Some(Nanos(0)) || flags & MSG_OOB != 0 || !goes_on() {
                return Ok(n as usize + 1);
            }
        }
        Ok(count as usize)
    })?;
    if let Some(left) = left {
        Timespec::from(left).write(a.addr(4))?;
    }
    Ok(received)
}
