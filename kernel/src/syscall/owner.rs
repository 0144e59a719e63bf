//! The recipients of a descriptor's signals: calls of `fcntl(2)` and `ioctl(2)`.

use super::Args;
use crate::fs::OpenFile;
use crate::fs::owner::{Kind, Recipient};
use crate::process;
use crate::process::signal::{MAX_SIGNAL, recipient};
use alloc::sync::Arc;
use linux_raw_sys::general::{
    F_GETOWN, F_GETOWN_EX, F_GETOWNER_UIDS, F_GETSIG, F_SETOWN, F_SETOWN_EX, F_SETSIG,
};
use logic::errno::{Errno, SysResult};
use machine::uaccess::{self, UserPtr};

/// The `ioctl` request of a socket that sets the owner.
pub(super) const FIOSETOWN: u32 = 0x8901;
/// The same as [`FIOSETOWN`].
pub(super) const SIOCSPGRP: u32 = 0x8902;
/// The `ioctl` request of a socket that returns the owner.
pub(super) const FIOGETOWN: u32 = 0x8903;
/// The same as [`FIOGETOWN`].
pub(super) const SIOCGPGRP: u32 = 0x8904;

/// Returns the real and the effective user of the caller.
pub(super) fn users() -> [u32; 2] {
    let users = process::current().users();
    [users.real, users.effective]
}

fn name(file: &OpenFile, kind: Kind, number: u32) -> Result<(), Errno> {
    let recipient: Option<Arc<dyn Recipient>> = match number {
        0 => None,
        number => {
            let (_, found) = recipient::find(kind, number).ok_or(Errno::ESRCH)?;
            Some(found)
        }
    };
    file.prepare_owner()?.name(kind, recipient, users());
    Ok(())
}

/// Sets the recipient of the signals about `file` (`F_SETOWN`, `FIOSETOWN`): the process `number`,
/// or the process group `-number` if `number` is negative. 0 removes the recipient.
///
/// # Errors
/// Fails with `EINVAL` for `i32::MIN`, with `ESRCH` if the number is unused, and as
/// [`OpenFile::prepare_owner`] does.
pub(super) fn set(file: &OpenFile, number: i32) -> Result<(), Errno> {
    let kind = if number < 0 {
        Kind::Group
    } else {
        Kind::Process
    };
    if number == i32::MIN {
        return Err(Errno::EINVAL);
    }
    name(file, kind, number.unsigned_abs())
}

/// Returns the recipient of the signals about `file` (`F_GETOWN`, `FIOGETOWN`): the number of a
/// process or thread, or the negated number of a process group. Returns 0 if there is none.
pub(super) fn get(file: &OpenFile) -> i32 {
    match file.known_owner().map(|owner| owner.named()) {
        Some((Kind::Group, number)) => -number.cast_signed(),
        Some((_, number)) => number.cast_signed(),
        None => 0,
    }
}

/// Carries out the `fcntl(2)` command `command` if it concerns the recipient of signals or their
/// number (`F_SETOWN`, `F_SETSIG` and so on). Returns its result, or `None` for another command.
pub(super) fn fcntl(file: &OpenFile, command: u32, a: &Args) -> Option<SysResult> {
    Some(match command {
        F_GETOWN => Ok(super::value(i64::from(get(file)).cast_unsigned())),
        F_SETOWN => set(file, a.int(2)).map(|()| 0),
        F_GETOWN_EX => get_extended(file, a.addr(2)),
        F_SETOWN_EX => set_extended(file, a.addr(2)),
        F_GETOWNER_UIDS => {
            let users = file.known_owner().map_or([0; 2], |owner| owner.users());
            UserPtr::<[u32; 2]>::new(a.addr(2))
                .write(&users)
                .map(|()| 0)
        }
        F_GETSIG => Ok(file.known_owner().map_or(0, |owner| owner.signal()) as usize),
        F_SETSIG => set_signal(file, a.0[2]),
        _ => return None,
    })
}

fn get_extended(file: &OpenFile, address: u64) -> SysResult {
    let (kind, number) = file
        .known_owner()
        .map_or((Kind::default(), 0), |owner| owner.named());
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&(kind as u32).to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    uaccess::copy_out(address, &bytes)?;
    Ok(0)
}

fn set_extended(file: &OpenFile, address: u64) -> SysResult {
    let [kind, number] = UserPtr::<[u32; 2]>::new(address).read()?;
    let kind = [Kind::Thread, Kind::Process, Kind::Group]
        .into_iter()
        .find(|&known| known as u32 == kind)
        .ok_or(Errno::EINVAL)?;
    if i32::try_from(number).is_err() {
        return Err(Errno::ESRCH);
    }
    name(file, kind, number)?;
    Ok(0)
}

fn set_signal(file: &OpenFile, signal: u64) -> SysResult {
    let signal = u32::try_from(signal)
        .ok()
        .filter(|&signal| signal <= MAX_SIGNAL)
        .ok_or(Errno::EINVAL)?;
    file.prepare_owner()?.set_signal(signal);
    Ok(0)
}
