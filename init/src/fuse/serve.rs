//! Mounts a FUSE file system and answers its requests in one thread, one after another.

use super::message::{MAJOR, MINOR, Reply, Request, can, opcode};
use crate::failure::Failure;
use crate::frames;
use ebb_wire::root::FRAMES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;

const DEVICE: &str = "/dev/fuse";
/// Size of the largest request in bytes, without the bytes to write.
const REQUEST_MAX: usize = 16 << 10;
/// Number of forgotten nodes that are dropped between two requests.
const LOST_AT_ONCE: usize = 64;
/// The limit for background requests. It is this high so that they are never held back, and stay in
/// order with other requests.
const BACKGROUND: u16 = u16::MAX;

/// A FUSE file system, which answers the requests of Linux.
pub(crate) trait FileSystem: Send + 'static {
    /// The feature flags ([`can`]) of this file system, besides those that all have.
    const ABILITIES: u32;
    /// The largest number of bytes that one request may write.
    const WRITE_MAX: usize;

    /// Answers `request` by writing to `reply`. If this fails, `reply` is ignored and Linux gets
    /// the error. Fails with `ENOSYS` if the request is not supported.
    fn answer(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno>;

    /// Drops `times` of Linux's references to `node`, which Linux has forgotten.
    fn forget(&mut self, node: u64, times: u64);
}

/// Mounts the file system `fs` at `at` and starts the thread that answers its requests. `kind` and
/// `source` are its type and source in `/proc/mounts`. Fails if `/dev/fuse` cannot be opened or the
/// mount fails.
pub(crate) fn mount(
    fs: impl FileSystem,
    kind: &str,
    source: &[u8],
    at: &Path,
    flags: MountFlags,
) -> Result<(), Failure> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    let device = device.map_err(|error| Failure::new(format!("open {DEVICE}"), error))?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
        device.as_raw_fd()
    );
    let options = CString::new(options).unwrap_or_default();
    rustix::mount::mount(source, at, kind, flags, options.as_c_str())
        .map_err(|errno| Failure::new(format!("mount {kind} at {}", at.display()), errno))?;
    thread::spawn(move || serve(fs, device));
    Ok(())
}

/// Answers requests until the file system is unmounted.
fn serve<F: FileSystem>(mut fs: F, mut device: File) {
    let mut bytes = vec![0; REQUEST_MAX + F::WRITE_MAX];
    let mut reply = Reply::new(frames::BYTES);
    // Forgotten nodes and the number of references of each. Linux may forget thousands at once, so
    // other requests are answered between them.
    let mut lost = VecDeque::new();
    loop {
        let some = lost.len().min(LOST_AT_ONCE);
        lost.drain(..some)
            .for_each(|(node, times)| fs.forget(node, times));
        if !lost.is_empty() && !is_readable(&device) {
            continue;
        }
        let len = match device.read(&mut bytes) {
            Ok(len) => len,
            Err(error) => match Errno::from_io_error(&error) {
                // The request was withdrawn, or the call was interrupted.
                Some(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
                _ => return,
            },
        };
        let Some(request) = Request::parse(&bytes[..len]) else {
            continue;
        };
        reply.begin();
        let result = match request.opcode {
            opcode::FORGET => {
                if let Ok(times) = request.u64_at(0) {
                    lost.push_back((request.node, times));
                }
                continue;
            }
            opcode::BATCH_FORGET => {
                lost.extend(all_lost(&request));
                continue;
            }
            // Requests are answered quickly, so an interruption is not needed.
            opcode::INTERRUPT => continue,
            opcode::INIT => begin::<F>(&request, &mut reply),
            opcode::DESTROY => Ok(()),
            _ => fs.answer(&request, &mut reply),
        };
        // Fails if Linux has withdrawn the request.
        let _ = device.write(reply.finish(request.unique, result));
    }
}

/// Returns whether a request is waiting.
fn is_readable(device: &File) -> bool {
    let mut look = [PollFd::new(device, PollFlags::IN)];
    let now = Timespec::default();
    poll(&mut look, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Returns the nodes of a `struct fuse_batch_forget_in`, each with its number of references.
fn all_lost(request: &Request<'_>) -> impl Iterator<Item = (u64, u64)> {
    let count = request.u32_at(0).unwrap_or(0);
    (0..count as usize).map_while(move |n| {
        let at = 8 + n * 16;
        Some((request.u64_at(at).ok()?, request.u64_at(at + 8).ok()?))
    })
}

/// Answers a `struct fuse_init_in` with a `struct fuse_init_out`. Fails with `EPROTO` if the major
/// versions differ, and with `EIO` if the request is too short.
fn begin<F: FileSystem>(request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
    if request.u32_at(0)? != MAJOR {
        return Err(Errno::PROTO);
    }
    let (ahead, abilities) = (request.u32_at(8)?, request.u32_at(12)?);
    let ours = can::ASYNC_READ | can::BIG_WRITES | can::PARALLEL_DIROPS | can::MAX_PAGES;
    for number in [MAJOR, MINOR, ahead, abilities & (ours | F::ABILITIES)] {
        reply.put_u32(number);
    }
    reply.bytes(&BACKGROUND.to_ne_bytes());
    reply.bytes(&BACKGROUND.to_ne_bytes());
    reply.put_u32(u32::try_from(F::WRITE_MAX).unwrap_or(u32::MAX));
    // The granularity of times: one nanosecond.
    reply.put_u32(1);
    reply.bytes(&u16::try_from(FRAMES_MAX).unwrap_or(u16::MAX).to_ne_bytes());
    reply.bytes(&[0; 34]);
    Ok(())
}
