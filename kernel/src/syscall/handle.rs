//! Handles: numbers that identify files independently of their names (`name_to_handle_at(2)`).

use super::Args;
use super::at;
use crate::fs::lookup::{self, LastLink};
use crate::fs::node::{NodeRef, mount_number};
use crate::fs::{Context, OpenFlags};
use crate::process::caller;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW};
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::uaccess::{self, UserPtr};

/// The most bytes of a handle (`MAX_HANDLE_SZ`).
const MOST: u32 = 128;
/// Bytes of a handle of files in memory: a generation, which is 0, and the number of the file.
const BYTES: u32 = 12;
/// The type of a handle of files in memory, the same as on Linux.
const TYPE: i32 = 1;
/// The type of an invalid handle (`FILEID_INVALID`).
const NO_TYPE: i32 = 255;
/// Bytes of `struct file_handle` before the handle: its length and its type.
const HEADER: u64 = 8;

/// `name_to_handle_at(2)`.
pub fn name_to_handle_at(a: &Args) -> SysResult {
    let flags = a.uint(4);
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let last_link = if flags & AT_SYMLINK_FOLLOW != 0 {
        LastLink::Follow
    } else {
        LastLink::Keep
    };
    let target = at::target(a.int(0), a.addr(1), flags, last_link)?;
    let node = target.node();
    if !node.has_handles() {
        return Err(Errno::EOPNOTSUPP);
    }
    let room = UserPtr::<u32>::new(a.addr(2)).read()?;
    if room > MOST {
        return Err(Errno::EINVAL);
    }
    let fits = room >= BYTES;
    // The numbers of mounts are small.
    let mount = u32::try_from(mount_number(node)).map_err(|_| Errno::EOVERFLOW)?;
    UserPtr::new(a.addr(3)).write(&mount)?;
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&BYTES.to_ne_bytes());
    bytes[4..8].copy_from_slice(&TYPE.to_ne_bytes());
    bytes[12..].copy_from_slice(&node.id().inode.to_ne_bytes());
    if !fits {
        bytes[4..8].copy_from_slice(&NO_TYPE.to_ne_bytes());
        uaccess::copy_out(a.addr(2), &bytes[..8])?;
        return Err(Errno::EOVERFLOW);
    }
    node.note_handle()?;
    uaccess::copy_out(a.addr(2), &bytes)?;
    Ok(0)
}

/// Returns the node of the descriptor `fd`, or the working directory for `AT_FDCWD`. The node
/// stands for its file system. Fails with `EBADF` if the descriptor is unused.
fn place(fd: i32) -> Result<NodeRef, Errno> {
    if fd == AT_FDCWD {
        return Ok(caller::with_context(Context::cwd));
    }
    Ok(caller::file(fd)?.node().clone())
}

/// `open_by_handle_at(2)`.
pub fn open_by_handle_at(a: &Args) -> SysResult {
    caller::need(Capabilities::DAC_READ_SEARCH)?;
    let flags = OpenFlags::from_user(u64::from(a.uint(2))).completed();
    caller::with_files(|files| files.check_room(caller::descriptor_limit()))?;
    let [length, kind] = UserPtr::<[u32; 2]>::new(a.addr(1)).read()?;
    if length == 0 || length > MOST {
        return Err(Errno::EINVAL);
    }
    let place = place(a.int(0))?;
    let mut bytes = [0; MOST as usize];
    let bytes = &mut bytes[..length as usize];
    uaccess::copy_in(bytes, a.addr(1).wrapping_add(HEADER))?;
    let number = bytes.get(4..12).and_then(|bytes| bytes.first_chunk());
    let number = number.map(|bytes| u64::from_ne_bytes(*bytes));
    let is_ours = length == BYTES && kind == TYPE.cast_unsigned() && bytes.starts_with(&[0; 4]);
    let number = number.filter(|_| is_ours).ok_or(Errno::ESTALE)?;
    let node = place.by_handle(number)?;
    let file = caller::with_credentials(|who| lookup::open_node(who, node, flags))?;
    caller::install(file, flags.contains(OpenFlags::CLOSE_ON_EXEC))
}
