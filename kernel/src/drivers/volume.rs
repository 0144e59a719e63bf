//! Volumes: folders of the host that the guest reads and writes, by requests over a port
//! ([`ebb_wire::volume`]).

use super::port;
use super::root::exchange;
pub use ebb_wire::root::{Entry, FRAMES_MAX};
use ebb_wire::root::{Frames, entries, leading_number};
pub use ebb_wire::volume::{Attributes, Opcode, Request, change};
use logic::errno::Errno;
use machine::memory::FrameRef;

/// Returns whether the machine has a port for requests about volumes.
pub fn is_there() -> bool {
    port::root().is_some()
}

/// Sends `request`, whose answer is the attributes of a file. Calls `learn` with them before the
/// answer to another request arrives, and returns the result of `learn`.
///
/// # Errors
/// Fails with the host's error, with that of `learn`, and with `EIO` if the answer is invalid or no
/// answer can come.
pub fn attributes<R>(
    request: &Request<'_>,
    learn: impl FnOnce(&Attributes) -> Result<R, Errno>,
) -> Result<R, Errno> {
    attributes_and(request, &[], |attributes, _| learn(attributes))
}

/// Does what [`attributes`] does. Also passes the bytes behind the attributes to `learn`, which
/// hold numbers. The host may read and write `frames` until it answers, as for [`exchange`].
///
/// # Errors
/// Fails as [`attributes`] does.
fn attributes_and<'f, R>(
    request: &Request<'_>,
    frames: impl IntoIterator<Item = &'f FrameRef>,
    learn: impl FnOnce(&Attributes, &[u8]) -> Result<R, Errno>,
) -> Result<R, Errno> {
    exchange(
        |buffer| request.write(buffer),
        frames,
        |rest| {
            let (attributes, rest) = Attributes::read(rest).ok_or(Errno::EIO)?;
            learn(&attributes, rest)
        },
    )
}

/// Calls `learn` with the attributes of the top folder of the volume `number`. Returns the result
/// of `learn` and the host's time in nanoseconds since 1970.
///
/// # Errors
/// Fails with the host's error, with that of `learn`, and with `EIO` if the answer is invalid or no
/// answer can come.
pub fn top<R>(
    number: u64,
    learn: impl FnOnce(&Attributes) -> Result<R, Errno>,
) -> Result<(R, u64), Errno> {
    let request = Request::new(Opcode::Top, number);
    attributes_and(&request, &[], |attributes, rest| {
        let (time, _) = leading_number(rest).ok_or(Errno::EIO)?;
        Ok((learn(attributes)?, time))
    })
}

/// Sends `request` and waits for its answer, which has no data.
///
/// # Errors
/// Fails with the host's error, and with `EIO` if no answer can come.
pub fn done(request: &Request<'_>) -> Result<(), Errno> {
    exchange(|buffer| request.write(buffer), &[], |_| Ok(()))
}

/// Calls `take` with the entries of the folder `handle`, from the index `from` on. Returns the
/// index to continue with, or 0 at the end.
///
/// # Errors
/// Fails with the host's error, with that of `take`, and with `EIO` if the answer is invalid or no
/// answer can come.
pub fn list(
    handle: u64,
    from: u64,
    mut take: impl FnMut(&Entry<'_>) -> Result<(), Errno>,
) -> Result<u64, Errno> {
    let mut request = Request::new(Opcode::List, handle);
    request.numbers[0] = from;
    exchange(
        |buffer| request.write(buffer),
        &[],
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

/// Calls `take` with the target of the symbolic link `handle`, and returns its result.
///
/// # Errors
/// Fails with the host's error, with that of `take`, and with `EIO` if the answer is invalid or no
/// answer can come.
pub fn target<R>(handle: u64, take: impl FnOnce(&[u8]) -> Result<R, Errno>) -> Result<R, Errno> {
    let request = Request::new(Opcode::ReadLink, handle);
    exchange(
        |buffer| request.write(buffer),
        &[],
        |rest| take(entries(rest).next().ok_or(Errno::EIO)?.target),
    )
}

/// Returns the host's `statfs` numbers of the file system with the file `handle`, in this order:
/// block size, blocks, free blocks, available blocks, files and free files.
///
/// # Errors
/// Fails with the host's error, and with `EIO` if the answer is invalid or no answer can come.
pub fn room(handle: u64) -> Result<[u64; 6], Errno> {
    let request = Request::new(Opcode::StatFs, handle);
    exchange(
        |buffer| request.write(buffer),
        &[],
        |mut rest| {
            let mut numbers = [0; 6];
            for number in &mut numbers {
                (*number, rest) = leading_number(rest).ok_or(Errno::EIO)?;
            }
            Ok(numbers)
        },
    )
}

/// Adds the addresses `frames` to `request`, calls `call` with the request, and returns the result
/// of `call`.
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

/// Reads bytes of the file `handle` from `offset` into `frames`. Returns the number of bytes read.
/// The rest of the frames is not changed. Frames behind the first [`FRAMES_MAX`] are not used.
/// Calls `learn` with the file's attributes.
///
/// # Errors
/// Fails with the host's error, and with `EIO` if the answer is invalid or no answer can come.
pub fn read(
    handle: u64,
    offset: u64,
    frames: &[FrameRef],
    learn: impl FnOnce(&Attributes),
) -> Result<usize, Errno> {
    let mut request = Request::new(Opcode::Read, handle);
    request.numbers[0] = offset;
    with_frames(request, frames.iter().map(FrameRef::address), |request| {
        attributes_and(request, frames, |attributes, rest| {
            learn(attributes);
            count(rest, frames.len() * machine::memory::PAGE_SIZE)
        })
    })
}

/// Reads the number at the start of `rest`. Fails with `EIO` if it is above `most`.
fn count(rest: &[u8], most: usize) -> Result<usize, Errno> {
    let (count, _) = leading_number(rest).ok_or(Errno::EIO)?;
    let count = usize::try_from(count).ok().filter(|&count| count <= most);
    count.ok_or(Errno::EIO)
}

/// The bytes to write to a file.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The frames with the bytes, in order.
    pub frames: &'a [Option<FrameRef>],
    /// The offset of the first byte in the first frame.
    pub within: usize,
    /// The number of bytes.
    pub count: usize,
    /// The offset in the file. If `None`, the bytes are appended.
    pub offset: Option<u64>,
}

/// Writes `bytes` to the file `handle` and calls `learn` with the file's new attributes. Returns
/// the number of bytes written and their offset in the file.
///
/// # Errors
/// Fails with the host's error, and with `EIO` if the answer is invalid or no answer can come.
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
    let frames = || bytes.frames.iter().flatten();
    with_frames(request, frames().map(FrameRef::address), |request| {
        attributes_and(request, frames(), |attributes, rest| {
            learn(attributes);
            let written = count(rest, bytes.count)?;
            let (at, _) = leading_number(rest.get(8..).ok_or(Errno::EIO)?).ok_or(Errno::EIO)?;
            Ok((written, at))
        })
    })
}
