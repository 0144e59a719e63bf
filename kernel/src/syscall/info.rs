//! Identity, limits and facts about the system.

use super::Args;
use super::process::{process_or_current, rusage_words};
use crate::process;
use crate::process::task::limits::{self, INFINITY, Limit};
use crate::process::task::{self, Credentials, Usage};
use crate::process::time::cpu_timers;
use crate::process::uts::{DOMAIN_NAME, FIELD, Field, HOST_NAME, RELEASE, VERSION};
use crate::vm::uaccess::{self, UserPtr};
use linux_raw_sys::general as raw;
use logic::errno::{Errno, SysResult};
use machine::arch::clock;
use machine::arch::random;
use machine::memory;
use machine::sched;

/// `uname(2)`.
pub fn uname(a: &Args) -> SysResult {
    let fields = [
        Field::new("Linux"),
        *HOST_NAME.lock(),
        Field::new(RELEASE),
        Field::new(VERSION),
        Field::new("x86_64"),
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
    let name = read_name(a)?;
    *HOST_NAME.lock() = name;
    Ok(0)
}

/// `setdomainname(2)`.
pub fn setdomainname(a: &Args) -> SysResult {
    let name = read_name(a)?;
    *DOMAIN_NAME.lock() = name;
    Ok(0)
}

/// `sysinfo(2)`.
pub fn sysinfo(a: &Args) -> SysResult {
    let stats = memory::allocator().stats();
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
        0,
        0,
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
    if index == limits::index::NOFILE && maximum > MAX_FILES {
        return Err(Errno::EPERM);
    }
    let new = {
        let mut limits = process.limits.lock();
        limits.0[index] = Limit { current, maximum };
        *limits
    };
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

fn credentials() -> Credentials {
    process::current().process().credentials()
}

/// `getuid(2)`.
pub fn getuid(_a: &Args) -> SysResult {
    Ok(credentials().uid[0] as usize)
}

/// `geteuid(2)`.
pub fn geteuid(_a: &Args) -> SysResult {
    Ok(credentials().uid[1] as usize)
}

/// `getgid(2)`.
pub fn getgid(_a: &Args) -> SysResult {
    Ok(credentials().gid[0] as usize)
}

/// `getegid(2)`.
pub fn getegid(_a: &Args) -> SysResult {
    Ok(credentials().gid[1] as usize)
}

/// "Leave it as it is" in the calls below.
const KEEP: u32 = u32::MAX;

fn change(set: impl FnOnce(&mut Credentials)) -> SysResult {
    set(&mut process::current().process().credentials.lock());
    Ok(0)
}

/// Sets those of real, effective, saved that are given.
fn replace(ids: &mut [u32; 3], new: [u32; 3]) {
    for (id, new) in ids.iter_mut().zip(new) {
        if new != KEEP {
            *id = new;
        }
    }
}

/// `setuid(2)`: numbers are kept and reported, not enforced.
pub fn setuid(a: &Args) -> SysResult {
    if a.uint(0) == KEEP {
        return Err(Errno::EINVAL);
    }
    change(|own| own.uid = [a.uint(0); 3])
}

/// `setgid(2)`.
pub fn setgid(a: &Args) -> SysResult {
    if a.uint(0) == KEEP {
        return Err(Errno::EINVAL);
    }
    change(|own| own.gid = [a.uint(0); 3])
}

/// `setreuid(2)`.
pub fn setreuid(a: &Args) -> SysResult {
    change(|own| replace(&mut own.uid, [a.uint(0), a.uint(1), a.uint(1)]))
}

/// `setregid(2)`.
pub fn setregid(a: &Args) -> SysResult {
    change(|own| replace(&mut own.gid, [a.uint(0), a.uint(1), a.uint(1)]))
}

/// `setresuid(2)`.
pub fn setresuid(a: &Args) -> SysResult {
    change(|own| replace(&mut own.uid, [a.uint(0), a.uint(1), a.uint(2)]))
}

/// `setresgid(2)`.
pub fn setresgid(a: &Args) -> SysResult {
    change(|own| replace(&mut own.gid, [a.uint(0), a.uint(1), a.uint(2)]))
}

fn write_three(a: &Args, ids: [u32; 3]) -> SysResult {
    for (i, id) in ids.into_iter().enumerate() {
        UserPtr::<u32>::new(a.addr(i)).write(&id)?;
    }
    Ok(0)
}

/// `getresuid(2)`.
pub fn getresuid(a: &Args) -> SysResult {
    write_three(a, credentials().uid)
}

/// `getresgid(2)`.
pub fn getresgid(a: &Args) -> SysResult {
    write_three(a, credentials().gid)
}

/// `setfsuid(2)`: gives the old one; it follows the effective one here.
pub fn setfsuid(_a: &Args) -> SysResult {
    Ok(credentials().uid[1] as usize)
}

/// `setfsgid(2)`.
pub fn setfsgid(_a: &Args) -> SysResult {
    Ok(credentials().gid[1] as usize)
}

/// `getgroups(2)`: there are none besides the process's own.
pub fn getgroups(a: &Args) -> SysResult {
    if a.int(0) < 0 {
        Err(Errno::EINVAL)
    } else {
        Ok(0)
    }
}

/// `setgroups(2)`: accepted, not enforced.
pub fn setgroups(a: &Args) -> SysResult {
    const MAX_GROUPS: u32 = 65536;
    if a.uint(0) > MAX_GROUPS {
        Err(Errno::EINVAL)
    } else {
        Ok(0)
    }
}

/// Linux's `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// `capget(2)`: everybody has all capabilities.
pub fn capget(a: &Args) -> SysResult {
    let header = UserPtr::<[u32; 2]>::new(a.addr(0));
    let [version, pid] = header.read()?;
    if version != CAPABILITY_VERSION {
        header.write(&[CAPABILITY_VERSION, pid])?;
        return if a.addr(1) == 0 {
            Ok(0)
        } else {
            Err(Errno::EINVAL)
        };
    }
    process_or_current(pid.cast_signed())?;
    if a.addr(1) != 0 {
        const LOW: u32 = u32::MAX;
        const HIGH: u32 = 0x1ff;
        UserPtr::<[u32; 6]>::new(a.addr(1)).write(&[LOW, LOW, 0, HIGH, HIGH, 0])?;
    }
    Ok(0)
}

/// `capset(2)`: accepted, not enforced.
pub fn capset(a: &Args) -> SysResult {
    let [version, _] = UserPtr::<[u32; 2]>::new(a.addr(0)).read()?;
    if version != CAPABILITY_VERSION {
        return Err(Errno::EINVAL);
    }
    UserPtr::<[u32; 6]>::new(a.addr(1)).read()?;
    Ok(0)
}

/// `syslog(2)`: the kernel's log is on the console, nothing is kept here.
pub fn syslog(a: &Args) -> SysResult {
    match a.int(0) {
        // Read all, clear, size of what is unread: an empty log.
        0..=10 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `reboot(2)`: the VM ends with its program.
pub fn reboot(_a: &Args) -> SysResult {
    Err(Errno::EPERM)
}

/// `vhangup(2)`: there is no terminal.
pub fn vhangup(_a: &Args) -> SysResult {
    Err(Errno::EPERM)
}

/// `acct(2)`.
pub fn acct(_a: &Args) -> SysResult {
    Err(Errno::ENOSYS)
}
