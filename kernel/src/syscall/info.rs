//! Identity, limits and facts about the system.

use super::Args;
use super::process::{process_or_current, rusage_words};
use crate::process;
use crate::process::task::limits::{self, INFINITY, Limit};
use crate::process::task::{self, Usage};
use crate::process::time::cpu_timers;
use crate::process::uts::{
    DOMAIN_CHANGES, DOMAIN_NAME, FIELD, Field, HOST_CHANGES, HOST_NAME, RELEASE, VERSION,
};
use linux_raw_sys::general as raw;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::arch::clock;
use machine::arch::random;
use machine::memory;
use machine::sched;
use machine::uaccess::{self, UserPtr};

/// `<linux/personality.h>`.
mod raw_personality {
    /// The bits of the execution domain.
    pub(super) const PER_MASK: u32 = 0xff;
    /// The domain of programs that expect a machine of 32 bits.
    pub(super) const PER_LINUX32: u32 = 8;
}

/// `uname(2)`.
pub fn uname(a: &Args) -> SysResult {
    let personality = process::current().process().personality();
    let fields = [
        Field::new("Linux"),
        *HOST_NAME.lock(),
        Field::new(RELEASE),
        Field::new(VERSION),
        Field::new(match personality & raw_personality::PER_MASK {
            raw_personality::PER_LINUX32 => "i686",
            _ => "x86_64",
        }),
        *DOMAIN_NAME.lock(),
    ];
    let mut bytes = [0; FIELD * 6];
    for (place, field) in bytes.chunks_exact_mut(FIELD).zip(fields) {
        place.copy_from_slice(&field.0);
    }
    uaccess::copy_out(a.addr(0), &bytes)?;
    Ok(0)
}

fn read_name(a: &Args) -> Result<Field, Errno> {
    let len = usize::try_from(a.int(1)).map_err(|_| Errno::EINVAL)?;
    if len > FIELD - 1 {
        return Err(Errno::EINVAL);
    }
    let mut field = Field([0; FIELD]);
    uaccess::copy_in(&mut field.0[..len], a.addr(0))?;
    Ok(field)
}

/// `sethostname(2)`.
pub fn sethostname(a: &Args) -> SysResult {
    process::caller::need(Capabilities::SYS_ADMIN)?;
    let name = read_name(a)?;
    *HOST_NAME.lock() = name;
    HOST_CHANGES.note();
    Ok(0)
}

/// `setdomainname(2)`.
pub fn setdomainname(a: &Args) -> SysResult {
    process::caller::need(Capabilities::SYS_ADMIN)?;
    let name = read_name(a)?;
    *DOMAIN_NAME.lock() = name;
    DOMAIN_CHANGES.note();
    Ok(0)
}

/// `sysinfo(2)`.
pub fn sysinfo(a: &Args) -> SysResult {
    let stats = memory::allocator().stats();
    let [shared, buffers] = memory::stats::shared_and_buffers();
    let load = sched::load::averages();
    let (tasks, _) = task::task_count();
    // Linux's fixed point has 16 bits, ours 11.
    let load = load.map(|average| average << 5);
    let words = [
        clock::now().0 / 1_000_000_000,
        load[0],
        load[1],
        load[2],
        stats.managed_frames * memory::PAGE_SIZE as u64,
        stats.free_frames * memory::PAGE_SIZE as u64,
        shared,
        buffers,
        0,
        0,
        tasks as u64 & 0xffff,
        0,
        0,
        1,
    ];
    let mut bytes = [0; 112];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    uaccess::copy_out(a.addr(0), &bytes)?;
    Ok(0)
}

/// `getrandom(2)`.
pub fn getrandom(a: &Args) -> SysResult {
    /// Linux's `MAX_RW_COUNT`-like bound of one call.
    const MAX_BYTES: usize = i32::MAX as usize & !4095;
    const KNOWN: u32 = raw::GRND_NONBLOCK | raw::GRND_RANDOM | raw::GRND_INSECURE;
    let flags = a.uint(2);
    if flags & !KNOWN != 0
        || flags & (raw::GRND_RANDOM | raw::GRND_INSECURE) == raw::GRND_RANDOM | raw::GRND_INSECURE
    {
        return Err(Errno::EINVAL);
    }
    let wanted = a.size(1).min(MAX_BYTES);
    let mut done = 0;
    let mut chunk = [0; 256];
    while done < wanted {
        let len = chunk.len().min(wanted - done);
        random::fill(&mut chunk[..len]);
        let copied = uaccess::copy_out_partial(a.addr(0).wrapping_add(done as u64), &chunk[..len]);
        done += copied;
        if copied < len {
            return if done == 0 {
                Err(Errno::EFAULT)
            } else {
                Ok(done)
            };
        }
        sched::cond_resched();
        if process::current().signal_pending() && done < wanted {
            return Ok(done);
        }
    }
    Ok(done)
}

fn resource(a: &Args, i: usize) -> Result<usize, Errno> {
    let index = a.uint(i) as usize;
    if index < limits::COUNT {
        Ok(index)
    } else {
        Err(Errno::EINVAL)
    }
}

fn get_limit(process: &task::Process, index: usize) -> [u64; 2] {
    let limit = process.limits().0[index];
    [limit.current, limit.maximum]
}

fn set_limit(process: &task::Process, index: usize, [current, maximum]: [u64; 2]) -> SysResult {
    /// Linux's `fs.nr_open`.
    const MAX_FILES: u64 = 1 << 20;
    if current > maximum {
        return Err(Errno::EINVAL);
    }
    let raises = maximum > process.limits().0[index].maximum;
    if raises && !process::caller::can(Capabilities::SYS_RESOURCE) {
        return Err(Errno::EPERM);
    }
    if index == limits::index::NOFILE && maximum > MAX_FILES {
        return Err(Errno::EPERM);
    }
    let new = process.limits.set(index, Limit { current, maximum });
    if let Some(vm) = process.vm() {
        vm.set_limits(crate::vm::Limits {
            address_space: new.current(limits::index::AS),
            data: new.current(limits::index::DATA),
            stack: new.current(limits::index::STACK),
        });
    }
    if index == limits::index::CPU && current != INFINITY {
        cpu_timers::arm(process);
    }
    Ok(0)
}

/// `getrlimit(2)`.
pub fn getrlimit(a: &Args) -> SysResult {
    let index = resource(a, 0)?;
    let limit = get_limit(process::current().process(), index);
    UserPtr::new(a.addr(1)).write(&limit)?;
    Ok(0)
}

/// `setrlimit(2)`.
pub fn setrlimit(a: &Args) -> SysResult {
    let index = resource(a, 0)?;
    let limit = UserPtr::<[u64; 2]>::new(a.addr(1)).read()?;
    set_limit(process::current().process(), index, limit)
}

/// `prlimit64(2)`.
pub fn prlimit64(a: &Args) -> SysResult {
    let index = resource(a, 1)?;
    let process = process_or_current(a.int(0))?;
    let own = process::current();
    if !alloc::sync::Arc::ptr_eq(&process, own.process())
        && !own.credentials().may_limit(&process.credentials())
    {
        return Err(Errno::EPERM);
    }
    let new = match a.addr(2) {
        0 => None,
        address => Some(UserPtr::<[u64; 2]>::new(address).read()?),
    };
    let old = get_limit(&process, index);
    if let Some(new) = new {
        set_limit(&process, index, new)?;
    }
    if a.addr(3) != 0 {
        UserPtr::new(a.addr(3)).write(&old)?;
    }
    Ok(0)
}

/// `getrusage(2)`.
pub fn getrusage(a: &Args) -> SysResult {
    const CHILDREN: i32 = -1;
    const THREAD: i32 = 1;
    let current = process::current();
    let usage = match a.int(0) {
        0 => current.process().usage(),
        CHILDREN => current.process().children_usage(),
        THREAD => {
            let peak_rss = current.process().usage().peak_rss;
            Usage {
                peak_rss,
                ..Usage::of_task(&current)
            }
        }
        _ => return Err(Errno::EINVAL),
    };
    UserPtr::new(a.addr(1)).write(&rusage_words(&usage))?;
    Ok(0)
}

/// `reboot(2)`. Fails with `EPERM` for a restart or a halt: the VM ends when its program ends.
pub fn reboot(a: &Args) -> SysResult {
    process::caller::need(Capabilities::SYS_BOOT)?;
    if a.uint(0) != REBOOT_MAGIC || !REBOOT_MAGICS.contains(&a.uint(1)) {
        return Err(Errno::EINVAL);
    }
    match a.uint(2) {
        // The guest has no keyboard with these keys.
        CAD_ON | CAD_OFF => Ok(0),
        RESTART | HALT | POWER_OFF | RESTART_BY_COMMAND => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// `LINUX_REBOOT_CMD_CAD_ON`: Ctrl-Alt-Del restarts the system.
const CAD_ON: u32 = 0x89ab_cdef;
/// `LINUX_REBOOT_CMD_CAD_OFF`: Ctrl-Alt-Del sends a signal to init.
const CAD_OFF: u32 = 0;
const RESTART: u32 = 0x0123_4567;
const HALT: u32 = 0xcdef_0123;
const POWER_OFF: u32 = 0x4321_fedc;
const RESTART_BY_COMMAND: u32 = 0xa1b2_c3d4;

/// The first of the two magic words that a call must pass.
const REBOOT_MAGIC: u32 = 0xfee1_dead;
/// The values that the second magic word may have.
const REBOOT_MAGICS: [u32; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];

/// `vhangup(2)`.
pub fn vhangup(_a: &Args) -> SysResult {
    process::caller::need(Capabilities::SYS_TTY_CONFIG)?;
    process::terminal::hang_up_own();
    Ok(0)
}

/// `acct(2)`. Not supported: fails with `ENOSYS`.
pub fn acct(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
