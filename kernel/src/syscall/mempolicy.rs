//! Calls on memory policies and on the places of pages. There is one memory node.

use super::Args;
use super::process::of_number;
use crate::process::{self, caller};
use crate::vm::AddressSpace;
use alloc::sync::Arc;
use logic::credentials::Capabilities;
use logic::credentials::others::LooksAs;
use logic::errno::{Errno, SysResult};
use logic::mempolicy::{Nodes, Policy};
use machine::memory::PAGE_SIZE;
use machine::sched;
use machine::uaccess::{self, UserPtr};

/// The number of nodes that a mask may name, as in Debian's Linux.
const MOST_NODES: u64 = 1024;
/// The number of bits of the longest mask that is read.
const MOST_BITS: u64 = PAGE_SIZE as u64 * 8;
const WORD_BITS: u64 = 64;

/// `MPOL_F_NODE` of `get_mempolicy`: return the node of a page, or the next node of a policy.
const F_NODE: u32 = 1;
/// `MPOL_F_ADDR`: return the policy of an address.
const F_ADDR: u32 = 2;
/// `MPOL_F_MEMS_ALLOWED`: return the nodes that the thread may use.
const F_MEMS_ALLOWED: u32 = 4;

/// `MPOL_MF_*` of `mbind` and `move_pages`: pages on other nodes are an error, move, or move even
/// if shared.
const MF_STRICT: u32 = 1;
const MF_MOVE: u32 = 2;
const MF_MOVE_ALL: u32 = 4;

/// Reads the mask of nodes at `address`, which has `bits - 1` bits: as on Linux, the program passes
/// one bit too many. Fails with `EINVAL` if the mask is too long or names unknown nodes.
fn read_nodes(address: u64, bits: u64) -> Result<Nodes, Errno> {
    let mut nodes = Nodes::default();
    let bits = bits.wrapping_sub(1);
    if bits == 0 || address == 0 {
        return Ok(nodes);
    }
    if bits > MOST_BITS {
        return Err(Errno::EINVAL);
    }
    // From the last word down, as on Linux, since that determines which error comes first.
    for index in (0..bits.div_ceil(WORD_BITS)).rev() {
        let at = address
            .checked_add(index * size_of::<u64>() as u64)
            .ok_or(Errno::EFAULT)?;
        let mut word = UserPtr::<u64>::new(at).read()?;
        let left = bits - index * WORD_BITS;
        if left < WORD_BITS {
            word &= (1 << left) - 1;
        }
        if word != 0 && index * WORD_BITS >= MOST_NODES {
            return Err(Errno::EINVAL);
        }
        nodes.first |= index == 0 && word & 1 != 0;
        nodes.others |= word & !u64::from(index == 0) != 0;
    }
    Ok(nodes)
}

/// Writes a mask of nodes to `address`, which has room for `bits - 1` bits, rounded up to words.
/// Writes nothing if there is no room. Fails with `EINVAL` if the room is larger than a page, and
/// with `EFAULT` for a bad address.
fn write_nodes(address: u64, bits: u64, nodes: Nodes) -> Result<(), Errno> {
    let bytes = bits.wrapping_sub(1).div_ceil(WORD_BITS) * size_of::<u64>() as u64;
    if bytes == 0 {
        return Ok(());
    }
    if bytes > PAGE_SIZE as u64 {
        return Err(Errno::EINVAL);
    }
    UserPtr::new(address).write(&u64::from(nodes.first))?;
    let rest = usize::try_from(bytes).map_or(0, |bytes| bytes - size_of::<u64>());
    uaccess::zero(address + size_of::<u64>() as u64, rest)
}

/// `set_mempolicy(2)`.
pub fn set_mempolicy(a: &Args) -> SysResult {
    Policy::check_mode(a.uint(0))?;
    let nodes = read_nodes(a.addr(1), a.0[2])?;
    let policy = Policy::new(a.uint(0), nodes)?;
    process::current().set_memory_policy(policy);
    Ok(0)
}

/// `get_mempolicy(2)`.
pub fn get_mempolicy(a: &Args) -> SysResult {
    let (to, mask, bits, address, flags) = (a.addr(0), a.addr(1), a.0[2], a.addr(3), a.0[4]);
    let flags = u32::try_from(flags).map_err(|_| Errno::EINVAL)?;
    if mask != 0 && bits == 0 || flags & !(F_NODE | F_ADDR | F_MEMS_ALLOWED) != 0 {
        return Err(Errno::EINVAL);
    }
    let task = process::current();
    let (mode, nodes) = if flags & F_MEMS_ALLOWED != 0 {
        if flags != F_MEMS_ALLOWED {
            return Err(Errno::EINVAL);
        }
        (0, Nodes::FIRST)
    } else {
        let own = task.memory_policy();
        let policy = if flags & F_ADDR != 0 {
            let space = task.vm().ok_or(Errno::EFAULT)?;
            let of_area = space.policy_at(address)?;
            if of_area.is_default() { own } else { of_area }
        } else if address != 0 {
            return Err(Errno::EINVAL);
        } else {
            own
        };
        let mode = if flags & F_NODE == 0 {
            policy.mode()
        } else if flags & F_ADDR != 0 {
            // The page is faulted in if it is missing. It is on node 0.
            task.vm()
                .ok_or(Errno::EFAULT)?
                .pin_page(address, false)
                .map_err(|_| Errno::EFAULT)?;
            0
        } else if policy.interleaves() {
            0
        } else {
            return Err(Errno::EINVAL);
        };
        (mode, policy.nodes())
    };
    if to != 0 {
        UserPtr::new(to).write(&mode)?;
    }
    if mask != 0 {
        write_nodes(mask, bits, nodes)?;
    }
    Ok(0)
}

/// `mbind(2)`. All pages are on the one node, so no page is moved.
pub fn mbind(a: &Args) -> SysResult {
    Policy::check_mode(a.uint(2))?;
    let nodes = read_nodes(a.addr(3), a.0[4])?;
    let flags = a.uint(5);
    // Checked before the capability, as on Linux.
    if flags & !(MF_STRICT | MF_MOVE | MF_MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MF_MOVE_ALL != 0 {
        caller::need(Capabilities::SYS_NICE)?;
    }
    let policy = Policy::new(a.uint(2), nodes)?;
    let space = process::current().vm().ok_or(Errno::EFAULT)?;
    space.set_policy(a.addr(0), a.0[1], policy)?;
    Ok(0)
}

/// `set_mempolicy_home_node(2)`. Only checks its arguments: the search for memory always begins at
/// node 0.
pub fn set_mempolicy_home_node(a: &Args) -> SysResult {
    let (start, bytes, node, flags) = (a.addr(0), a.0[1], a.0[2], a.0[3]);
    if !start.is_multiple_of(PAGE_SIZE as u64) || flags != 0 || node != 0 {
        return Err(Errno::EINVAL);
    }
    let space = process::current().vm().ok_or(Errno::EFAULT)?;
    space.check_home_node(start, bytes)?;
    Ok(0)
}

/// Returns the address space of the process `number`, or the caller's for 0. Fails with `EPERM` if
/// the caller may not inspect the process, with `EINVAL` if it has ended, and with `ESRCH`.
fn space_of(number: u32) -> Result<Arc<AddressSpace>, Errno> {
    if number == 0 {
        return process::current().vm().ok_or(Errno::EINVAL);
    }
    let process = of_number(number)?;
    caller::space_of(&process, LooksAs::Real).map_err(|error| match error {
        // The process has ended and is not reaped yet.
        Errno::ESRCH => Errno::EINVAL,
        other => other,
    })
}

/// `migrate_pages(2)`. Only checks its arguments: all pages are on the one node. Returns 0, the
/// number of pages that could not be moved.
pub fn migrate_pages(a: &Args) -> SysResult {
    read_nodes(a.addr(2), a.0[1])?;
    let to = read_nodes(a.addr(3), a.0[1])?;
    space_of(a.uint(0))?;
    if to.others && !caller::can(Capabilities::SYS_NICE) {
        return Err(Errno::EPERM);
    }
    if !to.first {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// Returns the entry `index` of the program's table at `table`. Fails with `EFAULT` if its address
/// overflows.
fn entry<T>(table: u64, index: u64) -> Result<UserPtr<T>, Errno> {
    let at = index
        .checked_mul(size_of::<T>() as u64)
        .and_then(|offset| table.checked_add(offset));
    Ok(UserPtr::new(at.ok_or(Errno::EFAULT)?))
}

/// `move_pages(2)`. Writes the node of each page, or the negated error for it, to the program.
/// Moves no page, and fails with `ENODEV` if a page shall move to another node than 0.
pub fn move_pages(a: &Args) -> SysResult {
    let (count, pages, nodes, status) = (a.0[1], a.addr(2), a.addr(3), a.addr(4));
    let flags = a.uint(5);
    if flags & !(MF_MOVE | MF_MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MF_MOVE_ALL != 0 {
        caller::need(Capabilities::SYS_NICE)?;
    }
    let space = space_of(a.uint(0))?;
    // Ends at the latest where the program's tables end, or when the task is killed.
    for index in 0..count {
        let address = entry::<u64>(pages, index)?.read()?;
        if nodes != 0 && entry::<i32>(nodes, index)?.read()? != 0 {
            return Err(Errno::ENODEV);
        }
        let there = space.check_page_is_there(address);
        let node = there.map_or_else(Errno::negated, |()| 0);
        entry::<i32>(status, index)?.write(&node)?;
        if index % 512 == 511 {
            sched::cond_resched();
            if sched::current().killed() {
                return Err(Errno::EINTR);
            }
        }
    }
    Ok(0)
}
