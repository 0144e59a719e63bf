//! A request as the engine knows it, whichever door it came through, and what a door is.

use std::fmt;

/// Bytes of a sector, the unit of addresses on every door.
pub const SECTOR_BYTES: u64 = 512;

/// Ranges that one discard or write-zeroes request may name.
pub const MAX_RANGES: usize = 32;

/// Bytes of the name by which a disk introduces itself.
pub const ID_BYTES: usize = 20;

/// Bytes of an image from `offset`. Checked to lie inside of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// For write-zeroes: whether the space may be given up.
    pub unmap: bool,
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Image to guest, from this byte of the image on.
    Read(u64),
    /// Guest to image, from this byte of the image on.
    Write(u64),
    /// What was written is to be on the medium.
    Flush,
    /// These ranges are not needed any more.
    Discard(Vec<Range>),
    /// These ranges are to read as zeroes.
    WriteZeroes(Vec<Range>),
    /// The disk's name.
    GetId,
}

/// How a request ended. The numbers are virtio's.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// Not done, or not known to be done.
    IoError = 1,
    /// Nothing that this disk does.
    Unsupported = 2,
}

/// Guest memory that is not there (any more).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fault;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request's memory is not the guest's")
    }
}

/// A piece of guest memory at a host address.
pub type HostSlice = libc::iovec;

/// Which way bytes are copied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the guest's memory.
    Out,
    /// To it.
    In,
}

/// Bytes to be copied between a payload and memory of ours.
#[derive(Debug)]
pub struct Move<'a, P> {
    /// The guest's memory.
    pub payload: &'a P,
    /// Where the bytes begin there.
    pub at: u64,
    /// Ours, piece by piece.
    pub local: Vec<&'a mut [u8]>,
    /// Whether all of it was copied.
    pub done: bool,
}

/// The guest memory of a request. Stays mapped, if it ever was, while this lives.
pub trait Payload: Sized {
    /// All bytes.
    fn bytes(&self) -> u64;

    /// The pieces in order, if the kernel can read and write them in place.
    fn in_place(&self) -> Option<&[HostSlice]>;

    /// Guest to `buffer`, from byte `at` of the payload on.
    ///
    /// # Errors
    /// If the memory is not there.
    fn copy_out(&self, at: u64, buffer: &mut [u8]) -> Result<(), Fault>;

    /// `buffer` to guest, from byte `at` of the payload on.
    ///
    /// # Errors
    /// If the memory is not there.
    fn copy_in(&self, at: u64, buffer: &[u8]) -> Result<(), Fault>;

    /// Copies for several requests. Where a copy is a system call, this is the place to make one
    /// of many.
    fn copy_all(way: Way, moves: &mut [Move<'_, Self>]) {
        for each in moves {
            let mut at = each.at;
            let copied = each.local.iter_mut().try_for_each(|piece| {
                let from = at;
                at += piece.len() as u64;
                match way {
                    Way::Out => each.payload.copy_out(from, piece),
                    Way::In => each.payload.copy_in(from, piece),
                }
            });
            each.done = copied.is_ok();
        }
    }
}

/// A request that came through a door, or what is wrong with it.
#[derive(Debug)]
pub struct Incoming<T, P> {
    /// What the door needs to answer it.
    pub ticket: T,
    /// The operation, and the memory that it reads or fills (empty for those that need none).
    pub request: Result<(Op, P), Status>,
}

/// Where requests come from and answers go to.
pub trait Door {
    /// What is needed to answer one request.
    type Ticket: fmt::Debug;
    /// Its memory.
    type Payload: Payload + fmt::Debug;

    /// The next request, if there is one.
    fn next_request(&mut self) -> Option<Incoming<Self::Ticket, Self::Payload>>;

    /// The memory of a request may have been filled, whatever becomes of the request: told before
    /// its answer. For doors that keep account of what was written.
    fn filled(&mut self, _payload: &Self::Payload) {}

    /// The memory of a request was not there when the kernel came for it.
    fn lost(&mut self, _payload: &Self::Payload) {}

    /// Answers a request. `written` is how many bytes of the guest's memory were filled.
    fn answer(&mut self, ticket: Self::Ticket, status: Status, written: u32);
}
