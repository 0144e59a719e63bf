//! `seccomp(2)`, and the same by `prctl(2)`.

use super::Args;
use crate::process;
use crate::process::caller;
use crate::process::seccomp::{self, Whose};
use alloc::vec::Vec;
use logic::bpf::{Instruction, MAX_INSTRUCTIONS, Program};
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::seccomp::Action;
use machine::uaccess::{self, UserPtr};

const SET_MODE_STRICT: u32 = 0;
const SET_MODE_FILTER: u32 = 1;
const GET_ACTION_AVAIL: u32 = 2;
const GET_NOTIF_SIZES: u32 = 3;

bitflags::bitflags! {
    /// The supported `SECCOMP_FILTER_FLAG_*`. There are no listeners (`NEW_LISTENER`,
    /// `WAIT_KILLABLE_RECV`).
    #[derive(Copy, Clone, Debug)]
    struct Flags: u32 {
        /// Install the filter in all threads of the process.
        const TSYNC = 1;
        /// Name the filter's actions in the kernel log.
        const LOG = 1 << 1;
        /// Let the CPU speculate as in other programs. It does so without the flag, too.
        const SPEC_ALLOW = 1 << 2;
        /// Fail with `ESRCH` if a thread cannot have the filter.
        const TSYNC_ESRCH = 1 << 4;
    }
}

/// `seccomp(2)`.
pub fn seccomp(a: &Args) -> SysResult {
    operate(a.uint(0), a.uint(1), a.addr(2))
}

/// Sets the seccomp mode of the current thread to the one in argument 1 (`PR_SET_SECCOMP`).
/// Argument 2 is the address of a filter's program. Returns 0.
///
/// # Errors
/// Fails with `EINVAL` if the mode is unknown, and otherwise as `seccomp(2)` does.
pub(super) fn set_mode(a: &Args) -> SysResult {
    match a.addr(1) {
        1 => operate(SET_MODE_STRICT, 0, 0),
        2 => operate(SET_MODE_FILTER, 0, a.addr(2)),
        _ => Err(Errno::EINVAL),
    }
}

fn operate(operation: u32, flags: u32, address: u64) -> SysResult {
    match operation {
        SET_MODE_STRICT if flags == 0 && address == 0 => seccomp::become_strict().map(|()| 0),
        SET_MODE_FILTER => {
            let flags = Flags::from_bits(flags).ok_or(Errno::EINVAL)?;
            let program = read_program(address)?;
            let whose = if !flags.contains(Flags::TSYNC) {
                Whose::Own
            } else if flags.contains(Flags::TSYNC_ESRCH) {
                Whose::AllOrError
            } else {
                Whose::All
            };
            seccomp::install(program, flags.contains(Flags::LOG), whose)
        }
        GET_ACTION_AVAIL if flags == 0 => {
            let number = UserPtr::<u32>::new(address).read()?;
            let action = Action::numbered(number);
            action.map(|_| 0).ok_or(Errno::EOPNOTSUPP)
        }
        GET_NOTIF_SIZES if flags == 0 => {
            /// Bytes of `struct seccomp_notif`, `seccomp_notif_resp` and `seccomp_data`.
            const SIZES: [u8; 6] = [80, 0, 24, 0, 64, 0];
            uaccess::copy_out(address, &SIZES).map(|()| 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Reads the program that the `struct sock_fprog` at `address` names, and checks it. Fails with
/// `EACCES` if the caller has neither `no_new_privs` nor `CAP_SYS_ADMIN`, with `EINVAL` for an
/// invalid program, with `EFAULT` for a bad address, and with `ENOMEM`.
fn read_program(address: u64) -> Result<Program, Errno> {
    /// Instructions that are copied at a time.
    const PIECE: usize = 32;
    let [length, from] = UserPtr::<[u64; 2]>::new(address).read()?;
    let [low, high, ..] = length.to_le_bytes();
    let length = usize::from(u16::from_le_bytes([low, high]));
    if !(1..=MAX_INSTRUCTIONS).contains(&length) {
        return Err(Errno::EINVAL);
    }
    // Otherwise a user could make calls fail in a program that has more rights than the user.
    let bound = process::current().credentials().no_new_privileges;
    if !bound && !caller::can(Capabilities::SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    if from == 0 {
        return Err(Errno::EINVAL);
    }
    let mut instructions = Vec::new();
    let room = instructions.try_reserve_exact(length);
    room.map_err(|_| Errno::ENOMEM)?;
    while instructions.len() < length {
        let mut piece = [0; PIECE * Instruction::BYTES];
        let bytes = (length - instructions.len()).min(PIECE) * Instruction::BYTES;
        let at = (instructions.len() * Instruction::BYTES) as u64;
        uaccess::copy_in(&mut piece[..bytes], from.wrapping_add(at))?;
        let (each, _) = piece[..bytes].as_chunks();
        instructions.extend(each.iter().copied().map(Instruction::from_bytes));
    }
    Program::check(instructions)
}
