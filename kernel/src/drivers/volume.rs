//! Folders of the host's that the guest writes, by requests over a port ([`ebb_wire::volume`]).

use super::port;
use super::root::exchange;
pub use ebb_wire::root::{Entry, FRAMES_MAX};
use ebb_wire::root::{Frames, entries, leading_number};
pub use ebb_wire::volume::{Attributes, Opcode, Request, change};
use logic::errno::Errno;
use machine::memory::FrameRef;

/// Whether requests can be made at all.
pub fn is_there() -> bool {
    port::root().is_some()
}

/// Makes a request that has attributes as its answer; `learn` is called with them before anybody
/// else's answer comes.
///
/// # Errors
/// The host's, and those of `learn`.
pub fn attributes<R>(
    request: &Request<'_>,
    learn: impl FnOnce(&Attributes) -> Result<R, Errno>,
) -> Result<R, Errno> {
    attributes_and(request, |attributes, _| learn(attributes))
}

/// The same; what follows the attributes are numbers.
///
/// # Errors
/// As [`attributes`].
fn attributes_and<R>(
    request: &Request<'_>,
    learn: impl FnOnce(&Attributes, &[u8]) -> Result<R, Errno>,
) -> Result<R, Errno> {
    exchange(
        |buffer| request.write(buffer),
        |rest| {
            let (attributes, rest) = Attributes::read(rest).ok_or(Errno::EIO)?;
            learn(&attributes, rest)
        },
    )
}

/// The folder of the volume with this number: attributes, and the time since 1970 in nanoseconds on
/// the host.
///
/// # Errors
/// The host's, and those of `learn`.
pub fn top<R>(
    number: u64,
    learn: impl FnOnce(&Attributes) -> Result<R, Errno>,
) -> Result<(R, u64), Errno> {
    attributes_and(&Request::new(Opcode::Top, number), |attributes, rest| {
        let (time, _) = leading_number(rest).ok_or(Errno::EIO)?;
        Ok((learn(attributes)?, time))
    })
}

/// Makes a request that is only done, or not.
///
/// # Errors
/// The host's.
pub fn done(request: &Request<'_>) -> Result<(), Errno> {
    exchange(|buffer| request.write(buffer), |_| Ok(()))
}

/// Names in a folder from a number on. Gives the number with which to go on, 0 at the end.
///
/// # Errors
/// The host's, and those of `take`.
pub fn list(
    handle: u64,
    from: u64,
    mut take: impl FnMut(&Entry<'_>) -> Result<(), Errno>,
) -> Result<u64, Errno> {
    let mut request = Request::new(Opcode::List, handle);
    request.numbers[0] = from;
    exchange(
        |buffer| request.write(buffer),
        |rest| {
            let (next, rest) = leading_number(rest).ok_or(Errno::EIO)?;
            entries(rest).try_for_each(|entry| take(&entry))?;
            if next != 0 && next <= from {
                return Err(Errno::EIO);
            }
            Ok(next)
        },
    )
}

/// Where a link leads.
///
/// # Errors
/// The host's, and those of `take`.
pub fn target<R>(handle: u64, take: impl FnOnce(&[u8]) -> Result<R, Errno>) -> Result<R, Errno> {
    let request = Request::new(Opcode::ReadLink, handle);
    exchange(
        |buffer| request.write(buffer),
        |rest| take(entries(rest).next().ok_or(Errno::EIO)?.target),
    )
}

/// What `statfs` tells: block size, blocks, free, available, files, free files.
///
/// # Errors
/// The host's.
pub fn room(handle: u64) -> Result<[u64; 6], Errno> {
    let request = Request::new(Opcode::StatFs, handle);
    exchange(
        |buffer| request.write(buffer),
        |mut rest| {
            let mut numbers = [0; 6];
            for number in &mut numbers {
                (*number, rest) = leading_number(rest).ok_or(Errno::EIO)?;
            }
            Ok(numbers)
        },
    )
}

/// Calls with a request that has the addresses of frames.
fn with_frames<R>(
    request: Request<'_>,
    frames: impl Iterator<Item = u64>,
    call: impl FnOnce(&Request<'_>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut addresses = [0; FRAMES_MAX];
    let mut len = 0;
    for (place, address) in addresses.iter_mut().zip(frames) {
        *place = address;
        len += 1;
    }
    let frames = Frames::Addresses(&addresses[..len]);
    call(&Request { frames, ..request })
}

/// Reads bytes of a file from `offset` into `frames` and returns their number. The rest of the
/// frames is not changed.
///
/// # Errors
/// The host's.
pub fn read(
    handle: u64,
    offset: u64,
    frames: &[FrameRef],
    learn: impl FnOnce(&Attributes),
) -> Result<usize, Errno> {
    let mut request = Request::new(Opcode::Read, handle);
    request.numbers[0] = offset;
    with_frames(request, frames.iter().map(FrameRef::address), |request| {
        attributes_and(request, |attributes, rest| {
            learn(attributes);
            count(rest, frames.len() * machine::memory::PAGE_SIZE)
        })
    })
}

/// The number that follows, which is not more than `most`.
fn count(rest: &[u8], most: usize) -> Result<usize, Errno> {
    let (count, _) = leading_number(rest).ok_or(Errno::EIO)?;
    let count = usize::try_from(count).ok().filter(|&count| count <= most);
    count.ok_or(Errno::EIO)
}

/// Bytes that go to a file.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Where they stand, one behind the other.
    pub frames: &'a [Option<FrameRef>],
    /// The first byte in the first frame.
    pub within: usize,
    /// How many.
    pub count: usize,
    /// Where they go, if not to the end.
    pub offset: Option<u64>,
}

/// Writes bytes; how many were, and from where in the file on.
///
/// # Errors
/// The host's.
pub fn write(
    handle: u64,
    bytes: &Outgoing<'_>,
    learn: impl FnOnce(&Attributes),
) -> Result<(usize, u64), Errno> {
    let mut request = Request::new(Opcode::Write, handle);
    let append = u64::from(bytes.offset.is_none());
    let numbers = [
        bytes.offset.unwrap_or(0),
        bytes.within as u64,
        bytes.count as u64,
        append,
    ];
    request.numbers[..4].copy_from_slice(&numbers);
    let addresses = bytes.frames.iter().flatten().map(FrameRef::address);
    with_frames(request, addresses, |request| {
        attributes_and(request, |attributes, rest| {
            learn(attributes);
            let written = count(rest, bytes.count)?;
            let (at, _) = leading_number(rest.get(8..).ok_or(Errno::EIO)?).ok_or(Errno::EIO)?;
            Ok((written, at))
        })
    })
}
