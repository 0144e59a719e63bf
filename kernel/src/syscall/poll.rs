//! Calls that wait for several files.

use super::record::{PollFd, Time};
use super::{Args, time};
use crate::fs::epoll::{Epoll, EpollFile, Event};
use crate::fs::eventfd::EventFile;
use crate::fs::select::{Interest, wait};
use crate::fs::table::Looked;
use crate::fs::timerfd::{Setting, TimerFile};
use crate::fs::{File, FileKind, OpenFile, OpenFlags, PollMask, anonymous};
use crate::process::{self, caller, signal};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::offset_of;
use linux_raw_sys::general::{
    CLOCK_BOOTTIME, CLOCK_BOOTTIME_ALARM, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_REALTIME_ALARM,
    EFD_SEMAPHORE, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLET, EPOLLEXCLUSIVE,
    EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLWAKEUP, TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET,
};
use logic::errno::{Errno, SysResult};
use machine::arch::clock::{self, Nanos};
use machine::uaccess::{self, UserPtr};
use zerocopy::{FromZeros, IntoBytes};

const SECOND: u64 = 1_000_000_000;

/// Converts seconds and a fraction to nanoseconds. Fails with `EINVAL` for negative values and for
/// a fraction of a second or more.
fn span(seconds: u64, fraction: u64, unit_nanos: u64) -> Result<Nanos, Errno> {
    if seconds > i64::MAX as u64 || fraction >= SECOND / unit_nanos {
        return Err(Errno::EINVAL);
    }
    Ok(Nanos(
        seconds
            .saturating_mul(SECOND)
            .saturating_add(fraction * unit_nanos),
    ))
}

/// Returns the time on the monotonic clock at the end of `span` from now.
pub(super) fn deadline(span: Nanos) -> Nanos {
    clock::now().saturating_add(span)
}

/// Reads a `struct timespec`. Returns `None` for a null pointer.
///
/// # Errors
/// Fails with `EFAULT`, and with `EINVAL` for a negative time or a billion nanoseconds or more.
pub(super) fn read_timespec(address: u64) -> Result<Option<Nanos>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let [seconds, nanos] = UserPtr::<Time>::new(address).read()?;
    span(seconds, nanos, 1).map(Some)
}

/// Writes the time left until `deadline` as seconds and a fraction in `unit_nanos`, unless the
/// program's personality keeps times unchanged. Linux does not fail a call whose time cannot be
/// written back.
fn write_left(address: u64, deadline: Option<Nanos>, unit_nanos: u64) {
    /// The flag of `personality(2)` with which calls do not write the time left back.
    const STICKY_TIMEOUTS: u32 = 0x0400_0000;
    if process::current().process().personality() & STICKY_TIMEOUTS != 0 {
        return;
    }
    if let (Some(deadline), true) = (deadline, address != 0) {
        let left = deadline.saturating_sub(clock::now()).0;
        let raw: Time = [left / SECOND, left % SECOND / unit_nanos];
        let _ = UserPtr::new(address).write(&raw);
    }
}

/// Returns the deadline after `value` milliseconds. Returns `None` if `value` is negative: the call
/// then waits without a deadline.
fn milliseconds(value: i32) -> Option<Nanos> {
    u64::try_from(value)
        .ok()
        .map(|millis| deadline(Nanos::from_millis(millis)))
}

/// The number of files that are polled without a list in the heap.
const FEW: usize = 4;

fn poll_until(a: &Args, deadline: Option<Nanos>) -> SysResult {
    let (address, count) = (a.addr(0), a.uint(1) as usize);
    if count > caller::descriptor_limit() {
        return Err(Errno::EINVAL);
    }
    if count <= FEW {
        // Most calls are about one file or two, which need no memory from the heap.
        let mut raw = [PollFd::new_zeroed(); FEW];
        let mut interests = [const { Interest::nothing() }; FEW];
        let (raw, interests) = (&mut raw[..count], &mut interests[..count]);
        uaccess::copy_in(raw.as_mut_bytes(), address)?;
        caller::with_files(|files| {
            files.look_up(|table| {
                for (entry, interest) in raw.iter().zip(interests.iter_mut()) {
                    *interest = interest_of(&table, entry);
                }
            });
        });
        return poll_all(address, raw, interests, deadline);
    }
    let mut raw = Vec::new();
    raw.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    raw.resize(count, PollFd::new_zeroed());
    uaccess::copy_in(raw.as_mut_bytes(), address)?;
    let mut interests = Vec::new();
    // All of it now: nothing is allocated while the table is locked.
    interests
        .try_reserve_exact(count)
        .map_err(|_| Errno::ENOMEM)?;
    caller::with_files(|files| {
        files.look_up(|table| {
            interests.extend(raw.iter().map(|entry| interest_of(&table, entry)));
        });
    });
    poll_all(address, &mut raw, &mut interests, deadline)
}

/// Returns what the record `entry` asks for. A negative descriptor is not looked up, and its record
/// reports no event.
#[inline]
fn interest_of(table: &Looked<'_>, entry: &PollFd) -> Interest {
    if entry.fd < 0 {
        return Interest::nothing();
    }
    match table.get(entry.fd) {
        Some(file) => Interest::new(file, PollMask::from_bits_truncate(entry.events.into())),
        None => Interest::settled(PollMask::NVAL),
    }
}

/// Waits for the files of `interests` until `deadline`, and writes the events found into the
/// records at `address`, whose copies are `raw`. Returns the number of ready files. Fails with
/// `EFAULT` for a bad address, and with the error of the wait.
fn poll_all(
    address: u64,
    raw: &mut [PollFd],
    interests: &mut [Interest],
    deadline: Option<Nanos>,
) -> SysResult {
    let ready = wait(interests, deadline);
    for (entry, interest) in raw.iter_mut().zip(interests.iter()) {
        // All readiness bits lie in the low 16.
        entry.found = u16::try_from(interest.found().bits()).unwrap_or(0);
    }
    // As on Linux, also if a signal ended the wait. Only this field is written, because another
    // thread may have changed the others.
    uaccess::copy_out_fields(address, raw, offset_of!(PollFd, found))?;
    ready
}

/// `poll(2)`.
pub fn poll(a: &Args) -> SysResult {
    poll_until(a, milliseconds(a.int(2)))
}

/// `ppoll(2)`.
pub fn ppoll(a: &Args) -> SysResult {
    let until = read_timespec(a.addr(2))?.map(deadline);
    if a.addr(3) != 0 {
        signal::block_for_call(a.addr(3), a.size(4))?;
    }
    let result = poll_until(a, until);
    write_left(a.addr(2), until, 1);
    result
}

/// The readiness that each of the three sets of `select` requests.
const SETS: [PollMask; 3] = [
    PollMask::READABLE.union(PollMask::HUP).union(PollMask::ERR),
    PollMask::WRITABLE.union(PollMask::ERR),
    PollMask::PRI,
];

fn select_until(a: &Args, deadline: Option<Nanos>) -> SysResult {
    let count = usize::try_from(a.int(0)).map_err(|_| Errno::EINVAL)?;
    let files = caller::files();
    // As on Linux, bits of descriptors beyond the table are ignored, and stay as they are.
    let count = count.min(files.size());
    let bytes = count.div_ceil(64) * 8;
    let mut sets: [Vec<u8>; 3] = Default::default();
    for (n, set) in sets.iter_mut().enumerate() {
        set.try_reserve_exact(bytes).map_err(|_| Errno::ENOMEM)?;
        set.resize(bytes, 0);
        if a.addr(n + 1) != 0 {
            uaccess::copy_in(set, a.addr(n + 1))?;
        }
    }
    let has = |set: &[u8], fd: usize| set[fd / 8] & (1 << (fd % 8)) != 0;
    let mut interests = Vec::new();
    let mut numbers = Vec::new();
    for fd in 0..count {
        let mut wanted = PollMask::empty();
        for (set, mask) in sets.iter().zip(SETS) {
            if has(set, fd) {
                wanted |= mask;
            }
        }
        if wanted.is_empty() {
            continue;
        }
        let file = files.get(i32::try_from(fd).map_err(|_| Errno::EBADF)?)?;
        interests.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        numbers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        interests.push(Interest::new(file, wanted));
        numbers.push(fd);
    }
    wait(&mut interests, deadline)?;
    let mut results: [Vec<u8>; 3] = Default::default();
    let mut ready = 0;
    for ((result, set), mask) in results.iter_mut().zip(&sets).zip(SETS) {
        result.try_reserve_exact(bytes).map_err(|_| Errno::ENOMEM)?;
        result.resize(bytes, 0);
        for (&fd, interest) in numbers.iter().zip(&interests) {
            if has(set, fd) && interest.state().intersects(mask) {
                result[fd / 8] |= 1 << (fd % 8);
                ready += 1;
            }
        }
    }
    for (n, result) in results.iter().enumerate() {
        if a.addr(n + 1) != 0 {
            uaccess::copy_out(a.addr(n + 1), result)?;
        }
    }
    Ok(ready)
}

/// `select(2)`.
pub fn select(a: &Args) -> SysResult {
    const MICROSECOND: u64 = 1000;
    let until = match a.addr(4) {
        0 => None,
        address => {
            // A program may pass a million microseconds and more.
            let [seconds, micros] = UserPtr::<Time>::new(address).read()?;
            if seconds > i64::MAX as u64 || micros > i64::MAX as u64 {
                return Err(Errno::EINVAL);
            }
            let seconds = seconds.saturating_add(micros / 1_000_000);
            Some(deadline(span(seconds, micros % 1_000_000, MICROSECOND)?))
        }
    };
    let result = select_until(a, until);
    write_left(a.addr(4), until, MICROSECOND);
    result
}

/// `pselect6(2)`.
pub fn pselect6(a: &Args) -> SysResult {
    let until = read_timespec(a.addr(4))?.map(deadline);
    if a.addr(5) != 0 {
        let [mask, size] = UserPtr::<[u64; 2]>::new(a.addr(5)).read()?;
        if mask != 0 {
            let size = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
            signal::block_for_call(mask, size)?;
        }
    }
    let result = select_until(a, until);
    write_left(a.addr(4), until, 1);
    result
}

fn install(file: Arc<dyn File>, label: &'static str, flags: OpenFlags) -> SysResult {
    let open = (flags & OpenFlags::NONBLOCK) | OpenFlags::READ_WRITE;
    let file = anonymous::open(file, FileKind::Anonymous, label, open);
    caller::install(file, flags.contains(OpenFlags::CLOSE_ON_EXEC))
}

/// Returns the flags in `bits`. Fails with `EINVAL` for flags other than close-on-exec and
/// non-blocking.
fn creation_flags(bits: u32) -> Result<OpenFlags, Errno> {
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NONBLOCK;
    OpenFlags::from_bits(bits)
        .filter(|flags| known.contains(*flags))
        .ok_or(Errno::EINVAL)
}

/// `epoll_create(2)`.
pub fn epoll_create(a: &Args) -> SysResult {
    if a.int(0) <= 0 {
        return Err(Errno::EINVAL);
    }
    install(
        Arc::new(EpollFile(Epoll::new())),
        "eventpoll",
        OpenFlags::empty(),
    )
}

/// `epoll_create1(2)`.
pub fn epoll_create1(a: &Args) -> SysResult {
    let flags = creation_flags(a.uint(0))?;
    if flags.contains(OpenFlags::NONBLOCK) {
        return Err(Errno::EINVAL);
    }
    install(Arc::new(EpollFile(Epoll::new())), "eventpoll", flags)
}

/// `epoll_ctl(2)`.
pub fn epoll_ctl(a: &Args) -> SysResult {
    let (operation, fd) = (a.uint(1), a.int(2));
    let event = if operation == EPOLL_CTL_DEL {
        Event { events: 0, data: 0 }
    } else {
        UserPtr::<Event>::new(a.addr(3)).read()?
    };
    let set = caller::file(a.int(0))?;
    let file = caller::file(fd)?;
    let epoll = set
        .file()
        .downcast::<EpollFile>()
        .map(|file| &*file.0)
        .ok_or(Errno::EINVAL)?;
    if Arc::ptr_eq(&set, &file) {
        return Err(Errno::EINVAL);
    }
    let exclusive = event.events & EPOLLEXCLUSIVE != 0;
    if exclusive {
        const FIT: u32 =
            EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
        let unfit = event.events & !FIT != 0 || file.file().downcast::<EpollFile>().is_some();
        if operation == EPOLL_CTL_MOD || operation == EPOLL_CTL_ADD && unfit {
            return Err(Errno::EINVAL);
        }
    }
    match operation {
        EPOLL_CTL_ADD => epoll.add(fd, &file, event)?,
        EPOLL_CTL_MOD => epoll.modify(fd, &file, event)?,
        EPOLL_CTL_DEL => epoll.remove(fd, &file)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

fn epoll_wait_until(a: &Args, deadline: Option<Nanos>) -> SysResult {
    let most = usize::try_from(a.int(2)).map_err(|_| Errno::EINVAL)?;
    if most == 0 || most > i32::MAX as usize / size_of::<Event>() {
        return Err(Errno::EINVAL);
    }
    let set: Arc<OpenFile> = caller::file(a.int(0))?;
    let epoll = set
        .file()
        .downcast::<EpollFile>()
        .map(|file| &*file.0)
        .ok_or(Errno::EINVAL)?;
    let to = a.addr(1);
    epoll.wait(most, deadline, |before, events| {
        let at = to.wrapping_add((before * size_of::<Event>()) as u64);
        uaccess::copy_out(at, events.as_bytes())
    })
}

/// `epoll_wait(2)`.
pub fn epoll_wait(a: &Args) -> SysResult {
    epoll_wait_until(a, milliseconds(a.int(3)))
}

/// `epoll_pwait(2)`.
pub fn epoll_pwait(a: &Args) -> SysResult {
    if a.addr(4) != 0 {
        signal::block_for_call(a.addr(4), a.size(5))?;
    }
    epoll_wait(a)
}

/// `epoll_pwait2(2)`.
pub fn epoll_pwait2(a: &Args) -> SysResult {
    let until = read_timespec(a.addr(3))?.map(deadline);
    if a.addr(4) != 0 {
        signal::block_for_call(a.addr(4), a.size(5))?;
    }
    epoll_wait_until(a, until)
}

/// `eventfd(2)`.
pub fn eventfd(a: &Args) -> SysResult {
    let file = EventFile::new(a.uint(0).into(), false);
    install(Arc::new(file), "eventfd", OpenFlags::empty())
}

/// `eventfd2(2)`.
pub fn eventfd2(a: &Args) -> SysResult {
    let semaphore = a.uint(1) & EFD_SEMAPHORE != 0;
    let flags = creation_flags(a.uint(1) & !EFD_SEMAPHORE)?;
    install(
        Arc::new(EventFile::new(a.uint(0).into(), semaphore)),
        "eventfd",
        flags,
    )
}

/// `timerfd_create(2)`.
pub fn timerfd_create(a: &Args) -> SysResult {
    let clock = a.uint(0);
    if !matches!(
        clock,
        CLOCK_REALTIME
            | CLOCK_REALTIME_ALARM
            | CLOCK_MONOTONIC
            | CLOCK_BOOTTIME
            | CLOCK_BOOTTIME_ALARM
    ) {
        return Err(Errno::EINVAL);
    }
    let flags = creation_flags(a.uint(1))?;
    time::may_wait_for(clock)?;
    install(TimerFile::new(clock), "timerfd", flags)
}

fn with_timer<R>(a: &Args, call: impl FnOnce(&TimerFile) -> R) -> Result<R, Errno> {
    let file = caller::file(a.int(0))?;
    Ok(call(
        file.file().downcast::<TimerFile>().ok_or(Errno::EINVAL)?,
    ))
}

/// Writes a `struct itimerspec`: the interval and the time left. Fails with `EFAULT` for a bad
/// address.
fn write_setting(address: u64, setting: Setting) -> Result<(), Errno> {
    let left = setting
        .next
        .map_or(0, |next| next.saturating_sub(clock::now()).0.max(1));
    let raw: [Time; 2] = [setting.interval.0, left].map(|nanos| [nanos / SECOND, nanos % SECOND]);
    UserPtr::new(address).write(&raw)
}

/// `timerfd_settime(2)`.
pub fn timerfd_settime(a: &Args) -> SysResult {
    let flags = a.uint(1);
    if flags & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let raw = UserPtr::<[Time; 2]>::new(a.addr(2)).read()?;
    let [interval, value] = raw.map(|[seconds, nanos]| span(seconds, nanos, 1));
    let (interval, value) = (interval?, value?);
    let absolute = flags & TFD_TIMER_ABSTIME != 0;
    let old = with_timer(a, |timer| {
        // As on Linux, the caller needs the right too: it may have got the timer from another task.
        time::may_wait_for(timer.clock)?;
        let by_wall = timer.is_realtime() && absolute;
        let next = match value {
            Nanos(0) => None,
            _ if absolute => Some(value),
            _ => Some(deadline(value)),
        };
        let at_wall = next.filter(|_| by_wall);
        let cancels = by_wall && flags & TFD_TIMER_CANCEL_ON_SET != 0;
        timer.set(Setting { next, interval }, at_wall, cancels)
    })??;
    if a.addr(3) != 0 {
        write_setting(a.addr(3), old)?;
    }
    Ok(0)
}

/// `timerfd_gettime(2)`.
pub fn timerfd_gettime(a: &Args) -> SysResult {
    write_setting(a.addr(1), with_timer(a, TimerFile::get)?)?;
    Ok(0)
}
