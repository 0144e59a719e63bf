//! The operations on sockets: system calls, and those of a file.

use super::address::{Family, Protocol, SocketKind};
use super::inbox::{Got, How, Patience};
use super::interface;
use super::rights::{self, Rights};
use super::state::Socket;
use super::stream::With;
use crate::fs::io::{ByteSink, ByteSource};
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::{Context, File, OpenFile, OpenFlags, anonymous};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::take;
use linux_raw_sys::ioctl::{FIONREAD, TIOCOUTQ};
use logic::credentials::Credentials as Subject;
use logic::errno::{Errno, SysResult};
use logic::socket::control::Credentials;
use machine::uaccess;

/// The longest backlog (`net.core.somaxconn`).
pub const MAX_BACKLOG: usize = 4096;

/// Asks whether the next byte of a stream is the urgent one.
const SIOCATMARK: u32 = 0x8905;
/// Asks for the number of bytes of a stream that were not sent.
const SIOCOUTQNSD: u32 = 0x894b;

/// The calling task, as far as socket calls need it.
#[derive(Copy, Clone, Debug)]
pub struct Caller<'a> {
    /// The task's root, working directory and umask.
    pub context: &'a Context,
    /// The credentials with which the task acts.
    pub who: &'a Subject,
}

/// A message to send.
pub struct Outgoing<'a> {
    /// The destination address as the call passed it, with the calling task. `None` if the call
    /// passed no address.
    pub to: Option<(&'a [u8], Caller<'a>)>,
    /// The control messages that the call passes with a packet of UDP or ICMP.
    pub control: &'a [u8],
    /// Open files whose descriptors are sent with the message.
    pub files: Vec<Arc<OpenFile>>,
    /// The real user of the sender, for whom the descriptors count while they are in flight.
    pub files_user: u32,
    /// The sender's limit on descriptors in flight (`RLIMIT_NOFILE`), or `usize::MAX` if its
    /// capabilities exempt it.
    pub files_limit: usize,
    /// The credentials that the sender passes with the message (`SCM_CREDENTIALS`). `None` if it
    /// passes none.
    pub credentials: Option<Credentials>,
    /// Whether the call fails with `EAGAIN` instead of waiting.
    pub nonblocking: bool,
    /// TCP: whether the last byte is urgent (`MSG_OOB`).
    pub urgent: bool,
    /// More data follows (`MSG_MORE`).
    pub more: bool,
    /// Whether the caller may set the mark of a packet (`SO_MARK`).
    pub may_mark: bool,
}

impl Outgoing<'_> {
    /// Returns a message without address, descriptors and control messages. With `nonblocking` the
    /// call does not wait.
    pub const fn plain(nonblocking: bool) -> Self {
        Self {
            to: None,
            control: &[],
            files: Vec::new(),
            files_user: 0,
            files_limit: 0,
            credentials: None,
            nonblocking,
            urgent: false,
            more: false,
            may_mark: false,
        }
    }
}

/// The flags of a receiving call.
#[derive(Copy, Clone, Debug, Default)]
pub struct Incoming {
    /// Whether the data stays in the inbox (`MSG_PEEK`).
    pub peek: bool,
    /// Whether the call waits until the buffer is full (`MSG_WAITALL`).
    pub all: bool,
    /// Whether the call fails with `EAGAIN` instead of waiting.
    pub nonblocking: bool,
}

impl Socket {
    /// Returns a new open file of this socket. Its node belongs to the user and group `owner`.
    pub fn to_file(self: Arc<Self>, flags: OpenFlags, owner: [u32; 2]) -> Arc<OpenFile> {
        let flags = (flags & OpenFlags::NONBLOCK) | OpenFlags::READ_WRITE;
        let name = self.protocol_name();
        anonymous::open_socket(self, flags, owner, name)
    }

    /// Returns Linux's name of the socket's protocol, as `system.sockprotoname` shows it.
    fn protocol_name(&self) -> &'static str {
        let six = self.family() == Family::Inet6;
        match (self.family(), self.protocol(), self.kind()) {
            (Family::Netlink, ..) => "NETLINK",
            (Family::Unix, _, SocketKind::Stream) => "UNIX-STREAM",
            (Family::Unix, ..) => "UNIX",
            (_, _, SocketKind::Raw) if six => "RAWv6",
            (_, _, SocketKind::Raw) => "RAW",
            (_, Some(Protocol::Icmp), _) if six => "PINGv6",
            (_, Some(Protocol::Icmp), _) => "PING",
            (_, Some(Protocol::UdpLite), _) if six => "UDPLITEv6",
            (_, Some(Protocol::UdpLite), _) => "UDP-Lite",
            (_, Some(Protocol::Udp), _) if six => "UDPv6",
            (_, Some(Protocol::Udp), _) => "UDP",
            _ if six => "TCPv6",
            _ => "TCP",
        }
    }

    /// Returns a pair of connected sockets of `AF_UNIX`, as open files.
    pub fn pair(
        kind: SocketKind,
        flags: OpenFlags,
        owner: [u32; 2],
    ) -> (Arc<OpenFile>, Arc<OpenFile>) {
        let (a, b) = (Self::new(Family::Unix, kind), Self::new(Family::Unix, kind));
        Self::join(&a, &b);
        (a.to_file(flags, owner), b.to_file(flags, owner))
    }

    /// Binds the socket to `address`, which is in the form of `struct sockaddr` (`bind(2)`).
    ///
    /// # Errors
    /// Fails as `bind(2)`: among others with `EINVAL` if the socket is bound already, and with
    /// `EADDRINUSE` if the address is in use.
    pub fn bind(&self, address: &[u8], caller: Caller<'_>) -> Result<(), Errno> {
        match self.family() {
            Family::Unix => self.bind_unix(address, caller),
            Family::Inet | Family::Inet6 => self.bind_inet(address, caller.who),
            Family::Netlink => self.bind_netlink(address),
        }
    }

    /// Connects the socket to `address`, which is in the form of `struct sockaddr` (`connect(2)`).
    /// Waits for the connection unless `nonblocking` is `true`.
    ///
    /// # Errors
    /// Fails as `connect(2)`: among others with `ECONNREFUSED` if no socket listens there, and with
    /// `EINPROGRESS` if the call would wait. Fails with `EALREADY` if another thread is connecting
    /// the socket.
    pub fn connect(
        &self,
        address: &[u8],
        caller: Caller<'_>,
        nonblocking: bool,
    ) -> Result<(), Errno> {
        let patience = self.patience(nonblocking, true);
        let _alone = self.connect_alone()?;
        match self.family() {
            Family::Unix => self.connect_unix(address, caller, patience),
            Family::Inet | Family::Inet6 => self.connect_inet(address, patience),
            Family::Netlink => self.connect_netlink(address, caller.who),
        }
    }

    /// Makes the socket accept connections (`listen(2)`). At most `backlog` connections wait to be
    /// accepted. A negative or large `backlog` counts as [`MAX_BACKLOG`].
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` if sockets of this kind do not accept connections. Fails with
    /// `EINVAL` if the socket is in a state in which it cannot listen.
    pub fn listen(&self, backlog: i32) -> Result<(), Errno> {
        let backlog = usize::try_from(backlog).unwrap_or(MAX_BACKLOG);
        let backlog = backlog.min(MAX_BACKLOG);
        if self.is_unix() {
            self.listen_unix(backlog)
        } else {
            self.listen_inet(backlog)
        }
    }

    /// Ends the reading direction, the writing direction or both (`shutdown(2)`). As on Linux, a
    /// TCP socket that connects is disconnected, and so is a listening one with `reading`.
    ///
    /// # Errors
    /// Fails with `EOPNOTSUPP` for a netlink socket, and with the errors of [`Self::shut_down`].
    pub fn shutdown(&self, reading: bool, writing: bool) -> Result<(), Errno> {
        if self.family() == Family::Netlink {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.is_tcp() && ((reading && self.is_listening()) || self.is_connecting()) {
            // As on Linux, the socket is disconnected, because there is no stream to end in order.
            self.disconnect_stream();
            return Ok(());
        }
        self.shut_down(reading, writing)
    }

    /// Sets the option `SO_REUSEADDR`.
    pub fn set_reuse_address(&self, on: bool) {
        self.settings().reuse_address.set(on);
        if !self.is_unix() {
            self.reuse_address_changed(on);
        }
    }

    /// Sends bytes of a stream, or a message. Returns the number of bytes sent.
    ///
    /// # Errors
    /// Fails as `sendmsg(2)` does, and with `BROKEN_PIPE` where Linux sends SIGPIPE.
    pub fn send(&self, from: &mut dyn ByteSource, mut out: Outgoing<'_>) -> SysResult {
        let stream = self.kind() == SocketKind::Stream;
        let refused = if !out.files.is_empty() && !self.is_unix() {
            Some(Errno::EINVAL)
        } else if out.to.is_some() && self.is_unix() && stream {
            let connected = self.remote().is_some();
            Some(if connected {
                Errno::EISCONN
            } else {
                Errno::EOPNOTSUPP
            })
        } else {
            None
        };
        if let Some(error) = refused {
            // Each reference may be the last by now.
            out.files.into_iter().for_each(OpenFile::close);
            return Err(error);
        }
        let rights = match out.files.is_empty() {
            true => None,
            false => Some(Rights::send(
                take(&mut out.files),
                out.files_user,
                out.files_limit,
            )?),
        };
        let patience = self.patience(out.nonblocking, true);
        if stream {
            let with = With {
                credentials: out.credentials,
                patience,
                urgent: out.urgent,
                more: out.more,
            };
            return self.send_stream(from, rights, with);
        }
        match self.family() {
            Family::Unix => self.send_message(from, out.to, rights, out.credentials, patience),
            Family::Inet | Family::Inet6 if self.is_icmp() => self.send_icmp(from, &out),
            Family::Inet | Family::Inet6 => self.send_datagram(from, &out),
            Family::Netlink => self.send_netlink(from, &out),
        }
    }

    /// Receives bytes of a stream, or a message, into `to`. Returns the number of bytes, the
    /// sender, and the descriptors and control data that came with them.
    ///
    /// # Errors
    /// Fails as `recvmsg(2)` does.
    pub fn receive(&self, to: &mut dyn ByteSink, how: Incoming) -> Result<Got, Errno> {
        let least = if how.all {
            to.room()
        } else {
            let least = self.settings().receive_least.get() as usize;
            least.min(to.room())
        };
        let patience = self.patience(how.nonblocking, false);
        self.check_receives(patience)?;
        let how = How {
            peek: how.peek,
            least,
            by_sender: self.settings().pass_credentials.get(),
            patience,
        };
        if self.kind() == SocketKind::Stream {
            return self.inbox.receive_stream(to, how);
        }
        let got = self.inbox.receive_message(to, how)?;
        if got.source.is_none() && !self.kind().connects() && patience == Patience::None {
            // As on Linux, only a call that waits finds the end of messages.
            return Err(Errno::EAGAIN);
        }
        Ok(got)
    }

    /// Returns the urgent byte of a stream. Unless `peek`, marks the byte as received.
    ///
    /// # Errors
    /// Fails with `EINVAL` if there is no urgent byte, and with `ENOTCONN` if the socket is a
    /// listener.
    pub fn receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        if self.is_listening() {
            return Err(Errno::ENOTCONN);
        }
        self.inbox.urgent_byte(!peek).ok_or(Errno::EINVAL)
    }

    /// Sets the option `SO_OOBINLINE`: an urgent byte is received with the other bytes.
    pub fn set_urgent_inline(&self, on: bool) {
        self.inbox.set_urgent_inline(on);
    }

    /// Returns whether `SO_OOBINLINE` is set.
    pub fn is_urgent_inline(&self) -> bool {
        self.inbox.is_urgent_inline()
    }

    /// Checks whether the socket can receive anything. Fails with the socket's pending error. Fails
    /// with `EAGAIN` if it is connecting and `patience` is `None`. Otherwise fails with `EINVAL`
    /// for a stream of `AF_UNIX` and with `ENOTCONN` for other sockets that are not connected.
    fn check_receives(&self, patience: Patience) -> Result<(), Errno> {
        if !self.kind().connects() || self.can_receive() {
            return Ok(());
        }
        if self.is_connecting() {
            if patience == Patience::None {
                return Err(Errno::EAGAIN);
            }
            return Ok(());
        }
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        Err(if self.is_unix() && self.kind() == SocketKind::Stream {
            Errno::EINVAL
        } else {
            Errno::ENOTCONN
        })
    }
}

impl File for Socket {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        // As on Linux, a `read` of no bytes takes no message, while a `recv` of no bytes takes one.
        if to.room() == 0 {
            return Ok(0);
        }
        if self.kind() == SocketKind::Stream
            && let Some(received) = self.inbox.receive_at_once(to)
        {
            return received;
        }
        let how = Incoming {
            nonblocking: flags.nonblocking(),
            ..Incoming::default()
        };
        // Descriptors that come with the data are closed, as on Linux.
        self.receive(to, how).map(|got| {
            got.files.into_iter().for_each(OpenFile::close);
            got.count
        })
    }

    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, flags: OpenFlags) -> SysResult {
        if self.kind() == SocketKind::Stream {
            let with = With {
                credentials: None,
                patience: self.patience(flags.nonblocking(), true),
                urgent: false,
                more: false,
            };
            return self.send_stream(from, None, with);
        }
        self.send(from, Outgoing::plain(flags.nonblocking()))
    }

    fn poll(&self) -> PollMask {
        self.ready()
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.notifier.clone())
    }

    fn signals(&self) -> Result<Option<Arc<Notifier>>, Errno> {
        Ok(self.notifier())
    }

    fn ioctl(&self, command: u32, argument: u64) -> SysResult {
        let count = match command {
            FIONREAD if self.family() != Family::Netlink => {
                if self.is_listening() {
                    return Err(Errno::EINVAL);
                }
                let (all, first) = self.waiting();
                if self.kind() == SocketKind::Datagram {
                    first
                } else {
                    all
                }
            }
            TIOCOUTQ => self.unreceived(),
            SIOCOUTQNSD if self.is_tcp() => self.held.pieces.lock().bytes,
            SIOCATMARK if self.is_tcp() => self.inbox.is_at_urgent().into(),
            _ => return interface::ioctl(self.family(), command, argument),
        };
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        uaccess::copy_out(argument, &count.to_le_bytes())?;
        Ok(0)
    }

    fn descriptor_closed(&self) {
        rights::look_soon();
    }
}
