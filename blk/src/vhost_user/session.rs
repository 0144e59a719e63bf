//! The vhost-user protocol between one front-end and a device. Messages are carried out and
//! answered one after the other.

use super::channel::{Answer, Channel};
use super::device::{Device, MessageError};
use super::inbox::{ConnectionEnd, MESSAGE_FILES, Message};
use super::reader::Reader;
use crate::pressure::registry::Waker;
use crate::time::Micros;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vhost::vhost_user::message::{
    FrontendReq, VHOST_USER_CONFIG_SIZE, VhostUserInflight, VhostUserLog, VhostUserMemoryRegion,
    VhostUserVringAddrFlags,
};
use vhost::vhost_user::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};

/// The bit in a ring number's field that says that no descriptor comes with the message.
const NO_FILE: u64 = 1 << 8;
/// The flags allowed in a message about the configuration space.
const CONFIG_FLAGS: u32 = 3;

/// The connection to one front-end, and the features that it has negotiated.
#[derive(Debug)]
pub(crate) struct Session {
    channel: Channel,
    /// Whether the front-end has asked for the offered features.
    offered: bool,
    /// The feature bits that the front-end has set.
    features: u64,
    /// The protocol features that the front-end has set.
    protocol: u64,
}

/// The outcome of [`Session::attend`], by which the caller decides whether the session goes on.
#[derive(Debug)]
pub(crate) enum Event {
    /// Nothing to report.
    Fine,
    /// A message was refused, for this reason. The session goes on.
    Refused(String),
    /// The front-end must be cut off, for this reason.
    CutOff(String),
    /// The front-end has closed the connection.
    Gone,
}

/// The answer to a message that was carried out.
enum Reply {
    /// An acknowledgement, if the front-end asked for one.
    Done,
    /// These bytes, with a descriptor if there is one.
    Told(Vec<u8>, Option<File>),
}

impl From<ConnectionEnd> for Event {
    fn from(end: ConnectionEnd) -> Self {
        match end {
            ConnectionEnd::Gone => Self::Gone,
            ConnectionEnd::Broken(why) => Self::CutOff(why),
        }
    }
}

impl Session {
    /// Begins a session with the front-end at the other end of `stream`. Sends nothing. The thread
    /// `reader` reads the socket while the calling thread does not, and then wakes the latter by
    /// `waker`.
    ///
    /// # Errors
    /// Fails if the system refuses to set the socket's buffer or to add it to an epoll.
    pub(crate) fn new(
        stream: UnixStream,
        reader: &Arc<Reader>,
        waker: Option<Waker>,
    ) -> io::Result<Self> {
        Ok(Self {
            channel: Channel::new(stream, reader, waker)?,
            offered: false,
            features: 0,
            protocol: 0,
        })
    }

    /// Returns whether a part of an answer is not sent yet. The caller must then wait until the
    /// socket is writable instead of readable.
    pub(crate) fn is_answering(&self) -> bool {
        self.channel.is_answering()
    }

    /// Returns whether another thread has received something for [`Self::attend`] to handle: a
    /// message, a part of one, or the end of the connection. The socket then need not poll
    /// readable. Returns `false` while an answer is not sent completely.
    pub(crate) fn has_news(&self) -> bool {
        self.channel.has_news()
    }

    /// Returns the time at which [`Self::attend`] must be called even without an event, to cut off
    /// a front-end that is too slow. Returns `None` if no message or answer is incomplete.
    pub(crate) fn deadline(&self) -> Option<Micros> {
        self.channel.deadline()
    }

    /// Receives at most one message, carries it out on `device`, and answers it. First sends the
    /// rest of an earlier answer. Does not block on the front-end, but may wait for requests under
    /// way and the image's lock. After [`Event::CutOff`] and [`Event::Gone`] the caller must drop
    /// the session and reset the device.
    pub(crate) fn attend(&mut self, device: &mut Device, now: Micros) -> Event {
        let message = match self.channel.receive(now) {
            Ok(Some(message)) => message,
            Ok(None) => return Event::Fine,
            Err(end) => return end.into(),
        };
        let code = message.code;
        let wants = message.need_reply;
        let (reply, event) = match self.perform(device, message) {
            Ok(Reply::Told(bytes, file)) => (Some((bytes, file)), Event::Fine),
            Ok(Reply::Done) => (self.acknowledgement(wants, 0), Event::Fine),
            Err(MessageError::Refused(why)) => {
                let told = format!("refused {code}: {why}");
                (self.acknowledgement(wants, 1), Event::Refused(told))
            }
            Err(MessageError::Disconnect(why)) => return Event::CutOff(format!("{code}: {why}")),
        };
        let Some((bytes, file)) = reply else {
            return event;
        };
        match self.channel.answer(Answer::new(code, &bytes, file), now) {
            Ok(()) => event,
            Err(end) => end.into(),
        }
    }

    /// Returns the acknowledgement `value`, or `None` if the front-end does not want one (`wants`).
    fn acknowledgement(&self, wants: bool, value: u64) -> Option<(Vec<u8>, Option<File>)> {
        let agreed = self.offered && self.agreed(VhostUserProtocolFeatures::REPLY_ACK);
        (wants && agreed).then(|| (value.to_ne_bytes().to_vec(), None))
    }

    /// Returns whether a protocol feature was negotiated.
    fn agreed(&self, feature: VhostUserProtocolFeatures) -> bool {
        self.protocol & feature.bits() != 0
    }

    /// Fails with `Disconnect` if a protocol feature was not negotiated, because the front-end may
    /// wait for an answer that this message cannot have.
    fn need(&self, feature: VhostUserProtocolFeatures) -> Result<(), MessageError> {
        if self.agreed(feature) {
            return Ok(());
        }
        Err(disconnect(format!("feature {feature:?} was not agreed to")))
    }

    /// Carries out one message. Fails with `Refused` or `Disconnect` if the message is malformed or
    /// its handler fails.
    fn perform(&mut self, device: &mut Device, message: Message) -> Result<Reply, MessageError> {
        use VhostUserProtocolFeatures as Feature;
        let known = message.code.known();
        let mut fields = Fields(&message.body);
        let files = message.files;
        if !files.is_empty() && !takes_files(known) {
            let count = files.len();
            return Err(disconnect(format!(
                "{count} descriptors, which it does not take"
            )));
        }
        match known {
            Some(FrontendReq::SET_OWNER) => {
                fields.are(0)?;
            }
            Some(FrontendReq::RESET_OWNER) => {
                fields.are(0)?;
                device.reset().map_err(MessageError::Refused)?;
            }
            Some(FrontendReq::RESET_DEVICE) => {
                self.need(Feature::RESET_DEVICE)?;
                fields.are(0)?;
                device.reset().map_err(MessageError::Refused)?;
            }
            Some(FrontendReq::GET_FEATURES) => {
                fields.are(0)?;
                self.offered = true;
                return Ok(number(device.features()));
            }
            Some(FrontendReq::SET_FEATURES) => {
                fields.are(8)?;
                let features = fields.u64();
                device.set_features(features)?;
                self.features = features;
            }
            Some(FrontendReq::GET_PROTOCOL_FEATURES) => {
                fields.are(0)?;
                return Ok(number(Device::protocol_features().bits()));
            }
            Some(FrontendReq::SET_PROTOCOL_FEATURES) => {
                fields.are(8)?;
                let features = fields.u64();
                device.set_protocol_features(features)?;
                self.protocol = features;
            }
            Some(FrontendReq::GET_QUEUE_NUM) => {
                self.need(Feature::MQ)?;
                fields.are(0)?;
                return Ok(number(Device::queue_num()));
            }
            Some(FrontendReq::SET_MEM_TABLE) => {
                set_mem_table(device, fields, files)?;
            }
            Some(FrontendReq::SET_VRING_NUM) => {
                fields.are(8)?;
                device.set_vring_num(fields.u32(), fields.u32())?;
            }
            Some(FrontendReq::SET_VRING_BASE) => {
                fields.are(8)?;
                device.set_vring_base(fields.u32(), fields.u32())?;
            }
            Some(FrontendReq::GET_VRING_BASE) => {
                return get_vring_base(device, fields);
            }
            Some(FrontendReq::SET_VRING_ADDR) => {
                set_vring_addr(device, fields)?;
            }
            Some(FrontendReq::SET_VRING_ENABLE) => {
                self.set_vring_enable(device, fields)?;
            }
            Some(FrontendReq::SET_VRING_KICK) => {
                let (index, file) = fields.ring(files)?;
                device.set_vring_kick(index, file)?;
            }
            Some(FrontendReq::SET_VRING_CALL) => {
                let (index, file) = fields.ring(files)?;
                device.set_vring_call(index, file)?;
            }
            Some(FrontendReq::SET_VRING_ERR) => {
                let (index, file) = fields.ring(files)?;
                device.set_vring_err(index, file)?;
            }
            Some(FrontendReq::GET_CONFIG) => {
                self.need(Feature::CONFIG)?;
                return get_config(device, fields);
            }
            Some(FrontendReq::SET_CONFIG) => {
                self.need(Feature::CONFIG)?;
                fields.config()?;
                let why = "nothing in the configuration space can be written";
                return Err(MessageError::Refused(io::Error::other(why)));
            }
            Some(FrontendReq::GET_INFLIGHT_FD) => {
                self.need(Feature::INFLIGHT_SHMFD)?;
                return get_inflight_fd(device, fields);
            }
            Some(FrontendReq::SET_INFLIGHT_FD) => {
                self.need(Feature::INFLIGHT_SHMFD)?;
                let given = fields.inflight()?;
                device.set_inflight_fd(&given, single(files)?)?;
            }
            Some(FrontendReq::SET_LOG_BASE) => {
                self.need(Feature::LOG_SHMFD)?;
                fields.are(16)?;
                let given = VhostUserLog::new(fields.u64(), fields.u64());
                let log = device.set_log_base(&given, single(files)?);
                log.map_err(MessageError::Disconnect)?;
                return Ok(Reply::Told(message.body, None));
            }
            _ => return Err(disconnect("no message that a disk knows")),
        }
        Ok(Reply::Done)
    }

    /// Enables or disables the ring that `fields` names. Fails with `Disconnect` if the front-end
    /// has not set the bit of the protocol's features, or if `fields` are malformed.
    fn set_vring_enable(
        &self,
        device: &mut Device,
        mut fields: Fields<'_>,
    ) -> Result<(), MessageError> {
        fields.are(8)?;
        if self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            return Err(disconnect("the protocol's features were not agreed to"));
        }
        let (index, state) = (fields.u32(), fields.u32());
        if state > 1 {
            return Err(disconnect(format!("state {state}; 0 and 1 there are")));
        }
        device.set_vring_enable(index, state == 1)
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Returns whether messages of the kind `known` may carry descriptors.
fn takes_files(known: Option<FrontendReq>) -> bool {
    matches!(
        known,
        Some(
            FrontendReq::SET_MEM_TABLE
                | FrontendReq::SET_LOG_BASE
                | FrontendReq::SET_VRING_KICK
                | FrontendReq::SET_VRING_CALL
                | FrontendReq::SET_VRING_ERR
                | FrontendReq::SET_INFLIGHT_FD
        )
    )
}

/// Gives `device` the guest's memory, one descriptor in `files` for each region in `fields`. Fails
/// with `Disconnect` if their numbers differ.
fn set_mem_table(
    device: &mut Device,
    mut fields: Fields<'_>,
    files: Vec<File>,
) -> Result<(), MessageError> {
    let regions = fields.regions()?;
    if regions.len() != files.len() {
        let (regions, count) = (regions.len(), files.len());
        return Err(disconnect(format!(
            "{regions} regions of memory with {count} descriptors"
        )));
    }
    device.set_mem_table(&regions, files)
}

/// Tells `device` the addresses of the parts of one ring. Fails with `Disconnect` if `fields` have
/// another length or an unknown flag.
fn set_vring_addr(device: &mut Device, mut fields: Fields<'_>) -> Result<(), MessageError> {
    fields.are(40)?;
    let (index, flags) = (fields.u32(), fields.u32());
    let (descriptor, used, available) = (fields.u64(), fields.u64(), fields.u64());
    let log = fields.u64();
    let known = VhostUserVringAddrFlags::from_bits(flags);
    let known = known.ok_or_else(|| disconnect(format!("flags {flags:#x}")))?;
    device.set_vring_addr(index, known, descriptor, used, available, log)
}

/// Stops the ring that `fields` names, and answers with the index at which it is to go on.
fn get_vring_base(device: &mut Device, mut fields: Fields<'_>) -> Result<Reply, MessageError> {
    fields.are(8)?;
    let index = fields.u32();
    let base = device
        .get_vring_base(index)
        .map_err(MessageError::Disconnect)?;
    let told = [index, base.into()].map(u32::to_ne_bytes).concat();
    Ok(Reply::Told(told, None))
}

/// Answers with the part of the configuration space that `fields` names.
fn get_config(device: &Device, mut fields: Fields<'_>) -> Result<Reply, MessageError> {
    let (offset, size, flags) = fields.config()?;
    let bytes = device.config(offset, size);
    let fits = bytes.len() == size as usize;
    let told = [offset, if fits { size } else { 0 }, flags].map(u32::to_ne_bytes);
    let bytes = if fits { bytes } else { Vec::new() };
    Ok(Reply::Told([told.concat(), bytes].concat(), None))
}

/// Answers with new memory for the requests in flight: its description and its descriptor.
fn get_inflight_fd(device: &Device, mut fields: Fields<'_>) -> Result<Reply, MessageError> {
    let asked = fields.inflight()?;
    let made = device
        .get_inflight_fd(&asked)
        .map_err(MessageError::Disconnect)?;
    let (area, file) = made;
    let told = [
        &area.mmap_size.to_ne_bytes()[..],
        &area.mmap_offset.to_ne_bytes(),
        &area.num_queues.to_ne_bytes(),
        &area.queue_size.to_ne_bytes(),
        &[0; 4],
    ];
    Ok(Reply::Told(told.concat(), Some(file)))
}

/// Makes an error that ends the connection, for the reason `why`.
fn disconnect(why: impl Into<String>) -> MessageError {
    MessageError::Disconnect(io::Error::other(why.into()))
}

/// Makes an answer of one 64-bit number.
fn number(value: u64) -> Reply {
    Reply::Told(value.to_ne_bytes().to_vec(), None)
}

/// Returns the only element of `files`. Fails with `Disconnect` if there is another number of them.
fn single(files: Vec<File>) -> Result<File, MessageError> {
    let count = files.len();
    let single: Result<[File; 1], _> = files.try_into();
    let [file] = single.map_err(|_| disconnect(format!("{count} descriptors; one it takes")))?;
    Ok(file)
}

/// A reader of the numbers in a message's body, from its start. Behind the end it reads zeroes, so
/// the callers check the length first.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// Fails with `Disconnect` unless exactly `bytes` are left.
    fn are(&self, bytes: usize) -> Result<(), MessageError> {
        let there = self.0.len();
        if there == bytes {
            return Ok(());
        }
        Err(disconnect(format!("{there} bytes; {bytes} it has")))
    }

    /// Takes the next `N` bytes.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((bytes, rest)) = self.0.split_first_chunk() else {
            return [0; N];
        };
        self.0 = rest;
        *bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    /// Reads the regions of a memory table. Fails with `Disconnect` if the table is malformed.
    fn regions(&mut self) -> Result<Vec<VhostUserMemoryRegion>, MessageError> {
        const REGION_BYTES: usize = 32;
        let bytes = self.0.len();
        let (count, padding) = (self.u32() as usize, self.u32());
        if count == 0 || count > MESSAGE_FILES || padding != 0 {
            return Err(disconnect(format!(
                "{count} regions of memory; 1 to {MESSAGE_FILES} there can be"
            )));
        }
        if bytes != 8 + count * REGION_BYTES {
            return Err(disconnect(format!(
                "{bytes} bytes for {count} regions of memory"
            )));
        }
        let regions = (0..count).map(|_| {
            let (guest, bytes) = (self.u64(), self.u64());
            let (front, offset) = (self.u64(), self.u64());
            let ends = [guest, front, offset].map(|start| start.checked_add(bytes));
            if bytes == 0 || ends.contains(&None) {
                return Err(disconnect(format!(
                    "a region of {bytes} bytes at {guest:#x}"
                )));
            }
            Ok(VhostUserMemoryRegion::new(guest, bytes, front, offset))
        });
        regions.collect()
    }

    /// Reads a ring number, and returns it with the message's descriptor, if there is one. Fails
    /// with `Disconnect` if the body is malformed or the descriptors do not match it.
    fn ring(&mut self, files: Vec<File>) -> Result<(u8, Option<File>), MessageError> {
        self.are(8)?;
        let value = self.u64();
        let file = match value & NO_FILE {
            0 => Some(single(files)?),
            _ if files.is_empty() => None,
            _ => {
                return Err(disconnect(format!(
                    "{value:#x} says that no descriptor comes"
                )));
            }
        };
        Ok((value.to_le_bytes()[0], file))
    }

    /// Reads an offset in the configuration space, a number of bytes, and flags. Fails with
    /// `Disconnect` if they are out of range.
    fn config(&mut self) -> Result<(u32, u32, u32), MessageError> {
        let (offset, size, flags) = (self.u32(), self.u32(), self.u32());
        let end = offset.checked_add(size);
        let inside = size > 0 && end.is_some_and(|end| end <= VHOST_USER_CONFIG_SIZE);
        if !inside || flags & !CONFIG_FLAGS != 0 {
            return Err(disconnect(format!(
                "{size} bytes from {offset} on with flags {flags:#x}"
            )));
        }
        self.are(size as usize)?;
        Ok((offset, size, flags))
    }

    /// Reads a description of in-flight memory. Fails with `Disconnect` if it is malformed.
    fn inflight(&mut self) -> Result<VhostUserInflight, MessageError> {
        self.are(size_of::<VhostUserInflight>())?;
        let (bytes, offset) = (self.u64(), self.u64());
        let (queues, size) = (self.u16(), self.u16());
        if queues == 0 || size == 0 {
            return Err(disconnect(format!("{queues} queues of {size}")));
        }
        Ok(VhostUserInflight::new(bytes, offset, queues, size))
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
