//! Block requests in the form that the engine carries out, and the traits of the transport that
//! they arrive by ([`Transport`]).

use std::fmt;

/// Size of a sector in bytes, the unit of addresses in the requests of both transports.
pub const SECTOR_BYTES: u64 = 512;

/// Maximum number of ranges in one discard or write-zeroes request.
pub const MAX_RANGES: usize = 32;

/// Maximum length in bytes of the disk's name in the answer to [`Op::GetId`]. Shorter names are
/// padded with zeros.
pub const ID_BYTES: usize = 20;

/// A range of bytes of an image. The transport has checked that the range lies inside the image.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// First byte, counted from the start of the image.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// For write-zeroes: whether the image may deallocate the space.
    pub unmap: bool,
}

/// The operation of a request, with the bytes of the image that it concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Reads from the image, starting at this byte of it, into guest memory.
    Read(u64),
    /// Writes guest memory to the image, starting at this byte of it.
    Write(u64),
    /// Makes all completed writes durable.
    Flush,
    /// Discards the contents of these ranges.
    Discard(Vec<Range>),
    /// Makes these ranges read as zeroes.
    WriteZeroes(Vec<Range>),
    /// Copies the disk's name into guest memory.
    GetId,
}

/// The result of a request. The numbers are those of virtio-blk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// The operation was carried out.
    Ok = 0,
    /// The operation failed, or its result is unknown.
    IoError = 1,
    /// The disk does not support the operation.
    Unsupported = 2,
}

/// Error: a part of the request's guest memory is not mapped, or not mapped any more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fault;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request's memory is not the guest's")
    }
}

/// A range of guest memory as mapped in this process: its address and its length in bytes.
pub type HostSlice = libc::iovec;

/// The direction of a copy between guest memory and the back-end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CopyDirection {
    /// From guest memory to the back-end.
    FromGuest,
    /// From the back-end to guest memory.
    ToGuest,
}

/// One copy between the guest memory of a request and buffers of the back-end.
#[derive(Debug)]
pub struct CopyRequest<'a, P> {
    /// The guest memory.
    pub payload: &'a P,
    /// Byte of `payload` at which the copy begins.
    pub at: u64,
    /// The buffers of the back-end, which hold the bytes one after the other.
    pub local: Vec<&'a mut [u8]>,
    /// Set by [`Payload::copy_all`]: whether all bytes were copied.
    pub done: bool,
}

/// The guest memory of one request. It stays mapped while this value lives.
pub trait Payload: Sized {
    /// Returns the number of bytes of guest memory in all.
    fn bytes(&self) -> u64;

    /// Returns the slices of guest memory in order, for I/O without a copy. Returns `None` if the
    /// memory is not mapped in this process, so that it can only be copied.
    fn in_place(&self) -> Option<&[HostSlice]>;

    /// Fills `buffer` with guest memory, from byte `at` of the payload on.
    ///
    /// # Errors
    /// Fails if a part of the memory is not mapped or granted, or the payload ends before. The
    /// buffer may be filled in part then.
    fn copy_out(&self, at: u64, buffer: &mut [u8]) -> Result<(), Fault>;

    /// Copies `buffer` into guest memory, from byte `at` of the payload on.
    ///
    /// # Errors
    /// Fails if a part of the memory is not mapped or granted, or the payload ends before. A part
    /// may be copied then.
    fn copy_in(&self, at: u64, buffer: &[u8]) -> Result<(), Fault>;

    /// Carries out `copies`, which belong to several requests, and sets `done` of each. A failed
    /// copy does not keep the others from being made. An implementation whose copy is a system call
    /// can combine them into one call.
    fn copy_all(direction: CopyDirection, copies: &mut [CopyRequest<'_, Self>]) {
        for each in copies {
            let mut at = each.at;
            let copied = each.local.iter_mut().try_for_each(|piece| {
                let from = at;
                at += piece.len() as u64;
                match direction {
                    CopyDirection::FromGuest => each.payload.copy_out(from, piece),
                    CopyDirection::ToGuest => each.payload.copy_in(from, piece),
                }
            });
            each.done = copied.is_ok();
        }
    }
}

/// A request from a transport, or the status with which it must be refused.
#[derive(Debug)]
pub struct Incoming<T, P> {
    /// What the transport needs to answer the request.
    pub ticket: T,
    /// The operation, and the guest memory that it reads or fills (empty if it needs no memory).
    /// `Err` is the status for a request that is malformed or unsupported.
    pub request: Result<(Op, P), Status>,
}

/// A transport: the source of a disk's requests, and the destination of their answers.
pub trait Transport {
    /// The data that the transport needs to answer one request.
    type Ticket: fmt::Debug;
    /// The guest memory of a request.
    type Payload: Payload + fmt::Debug;

    /// Takes the next request from the rings, whether or not it is valid. Returns `None` if no
    /// request waits. Does not wait.
    fn next_request(&mut self) -> Option<Incoming<Self::Ticket, Self::Payload>>;

    /// Notes that a request may have written to guest memory, whether or not it succeeded. The
    /// engine calls this before the answer. Transports that log written pages implement it.
    fn filled(&mut self, _payload: &Self::Payload) {}

    /// Notes that the kernel found the guest memory of a request not mapped. The request is
    /// answered with an error afterwards.
    fn lost(&mut self, _payload: &Self::Payload) {}

    /// Answers a request with `status`. `written` is the number of bytes of guest memory that were
    /// filled. The front-end may have to be notified afterwards.
    fn answer(&mut self, ticket: Self::Ticket, status: Status, written: u32);
}
