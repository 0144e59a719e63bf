//! The common part of the calls on the three kinds of System V IPC.

use super::record::IpcPerm;
use crate::process::ipc::Owner;
use logic::errno::SysResult;
use zerocopy::FromZeros;

/// Removes the object.
pub(super) const IPC_RMID: i32 = 0;
/// Sets the owner, the permissions and the limits of the object.
pub(super) const IPC_SET: i32 = 1;
/// Returns the state of the object.
pub(super) const IPC_STAT: i32 = 2;
/// Returns the limits of the kind of object.
pub(super) const IPC_INFO: i32 = 3;
/// Flag of an operation that fails instead of waiting.
pub(super) const IPC_NOWAIT: u32 = 0o4000;

/// Returns `number` as the result of a call. The number comes from the kernel and is not negative.
/// Never fails.
pub(super) fn result(number: i32) -> SysResult {
    Ok(usize::try_from(number).unwrap_or(0))
}

/// Returns the ABI's record of the owner of the object with the number `id`.
pub(super) fn permissions(id: i32, owner: &Owner) -> IpcPerm {
    IpcPerm {
        key: owner.key,
        uid: owner.owner[0],
        gid: owner.owner[1],
        maker_uid: owner.maker[0],
        maker_gid: owner.maker[1],
        mode: owner.mode,
        // The bits above those of the place. They fit, since no number is negative.
        round: u16::try_from(id >> 15).unwrap_or(0),
        ..IpcPerm::new_zeroed()
    }
}

/// Converts a limit or a count to a field of 32 bits. A larger value becomes the largest one.
pub(super) fn word(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
