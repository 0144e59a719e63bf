//! Core files: the state of a process when a signal ended it.
//!
//! The thread that takes the signal ends the process as any other signal would. But first it waits
//! until the other threads have reached their end. Each of them notes its registers there and waits
//! until the file is written. SIGKILL to the process, also from the OOM killer, aborts this:
//! threads then wait only for a thread that is on its way to its end.

use super::exit::kill_others;
use super::{Process, Scheduled, Task, Usage, WaitStatus, exit_group, limits};
use crate::fs::io::SliceSource;
use crate::fs::lookup::{self, LastLink};
use crate::fs::{FileKind, OpenFile, OpenFlags};
use crate::process::signal::{SigInfo, Signal};
use crate::process::{TaskRef, caller, uts};
use crate::vm::{AddressSpace, CoreFilter, VmaFlags, VmaInfo};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::core_file::{self, Kin, MainThread, Mapped, Notes, Segment, Thread};
use logic::core_name::{self, Facts, PATTERN_BYTES};
use logic::errno::Errno;
use logic::own::Token;
use machine::arch::UserFrame;
use machine::arch::clock;
use machine::memory::PAGE_SIZE;
use machine::sched;
use machine::sync::SpinLock;

/// The pattern of core files' names (`kernel.core_pattern`).
#[derive(Copy, Clone, Debug)]
pub(crate) struct Pattern {
    bytes: [u8; PATTERN_BYTES],
    len: usize,
}

impl Pattern {
    const fn new(text: &[u8]) -> Self {
        let mut bytes = [0; PATTERN_BYTES];
        let mut len = 0;
        while len < text.len() && len < PATTERN_BYTES - 1 {
            bytes[len] = text[len];
            len += 1;
        }
        Self { bytes, len }
    }

    /// Returns the bytes of the pattern.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

static PATTERN: SpinLock<Pattern> = SpinLock::new(Pattern::new(b"core"));

/// `kernel.core_uses_pid`: 0 if the process number is not appended to core files' names.
pub(crate) static USES_PID: AtomicU64 = AtomicU64::new(0);

/// Returns the pattern of core files' names (`kernel.core_pattern`).
pub(crate) fn pattern() -> Pattern {
    *PATTERN.lock()
}

/// Sets the pattern of core files' names to `text`, cut to 127 bytes, as on Linux.
///
/// # Errors
/// Fails with `EINVAL` if `text` names a program to pipe core files to.
pub(crate) fn set_pattern(text: &[u8]) -> Result<(), Errno> {
    if text.starts_with(b"|") {
        return Err(Errno::EINVAL);
    }
    *PATTERN.lock() = Pattern::new(text);
    Ok(())
}

/// The state of a core file that is being written, shared by the process's threads.
#[derive(Debug)]
pub(crate) struct Dump {
    signal: Signal,
    /// The number of threads that wait for the file.
    standing: usize,
    /// The notes of these threads, as far as memory allowed.
    notes: Vec<Notes>,
}

/// Ends the current process by the signal `info`, whose default action is a core file. Writes the
/// core file first if the process may have one. `task` is the current thread, with its registers in
/// `frame`.
pub(crate) fn end(task: TaskRef, frame: &mut UserFrame, info: &SigInfo, token: &mut Token) -> ! {
    let status = WaitStatus::signalled(info.signal);
    if is_wanted(task.process()) && stop_others(task, info.signal, status) {
        let written = write(task, frame, info).is_ok();
        let process = task.process();
        let dump = {
            let mut group = process.group.lock();
            // Otherwise SIGKILL has arrived.
            if written && group.exit == Some(status) {
                group.exit = Some(status.with_core());
            }
            group.dump.take()
        };
        drop(dump);
        process.dump_done.wake_all();
    }
    // This function owns nothing here, because `exit_group` does not return.
    exit_group(status, frame, token)
}

/// Returns whether the process may have a core file at all.
fn is_wanted(process: &Process) -> bool {
    // Like Linux, write no core file of less than a page.
    process.dumpable.load(Ordering::Relaxed) == 1
        && process.limit(limits::index::CORE) >= PAGE_SIZE as u64
}

/// Decides the process's status, and waits until all its other threads have stopped. Returns
/// `false` if the process already ends for another reason.
fn stop_others(task: TaskRef, signal: Signal, status: WaitStatus) -> bool {
    let process = task.process();
    let mut notes = Vec::new();
    let threads = process.thread_count();
    // Threads that are created in the meantime have no note.
    let _ = notes.try_reserve_exact(threads);
    let mut group = process.group.lock();
    if group.exit.is_some() || group.exec.is_some() {
        return false;
    }
    group.dump = Some(Dump {
        signal,
        standing: 0,
        notes,
    });
    // Release: a thread that sees this flag sees the dump; pairs with `stand_by`.
    process.dumping.store(true, Ordering::Release);
    kill_others(&mut group, status, Some(&task));
    drop(group);
    let all_stand = || {
        let group = process.group.lock();
        let standing = group.dump.as_ref().map_or(0, |dump| dump.standing);
        standing + 1 >= group.tasks.len()
    };
    // If the process is killed, there is no file; `write` notices that.
    let _ = process.thread_events.wait_killable(all_stand);
    true
}

/// Waits until the core file of the process is written, if one is being written, and first hands
/// over the registers of the current thread `task`, which are in `frame`. A thread that ends calls
/// this first.
pub(super) fn stand_by(task: TaskRef, frame: &UserFrame) {
    let process = task.process();
    // Acquire: pairs with the Release in `stop_others`. A thread that reads the flag too early
    // leaves the group and is not waited for.
    if !process.dumping.load(Ordering::Acquire) {
        return;
    }
    let signal = process.group.lock().dump.as_ref().map(|dump| dump.signal);
    let Some(signal) = signal else { return };
    let mut notes = Notes::default();
    let noted = note_thread(&mut notes, task, frame, signal)
        .and_then(|()| note_floats(&mut notes, frame))
        .is_ok();
    {
        let mut group = process.group.lock();
        let Some(dump) = &mut group.dump else { return };
        dump.standing += 1;
        if noted && dump.notes.len() < dump.notes.capacity() {
            dump.notes.push(notes);
        }
    }
    process.thread_events.wake_all();
    process
        .dump_done
        .wait_uninterruptible(|| process.group.lock().dump.is_none());
}

/// Returns a task's number with the numbers of its parent, group and session.
fn kin(task: &Task, number: u32) -> Kin {
    let process = task.process();
    Kin {
        number,
        parent: process.ppid(),
        group: process.pgid(),
        session: process.session(),
    }
}

/// Adds a note with the current thread's registers. Fails with `ENOMEM`.
fn note_thread(
    notes: &mut Notes,
    task: TaskRef,
    frame: &UserFrame,
    signal: Signal,
) -> Result<(), Errno> {
    let user = task.user_state().expect("a user task");
    let registers = user.registers(frame);
    let process = task.process();
    let pending = task.signals().pending().set();
    let usage = Usage::of_task(&task);
    let children = process.children_usage();
    let thread = Thread {
        kin: kin(&task, task.tid()),
        signal: signal.number(),
        pending: pending.0,
        blocked: task.blocked().0,
        times: [
            usage.user.0,
            usage.system.0,
            children.user.0,
            children.system.0,
        ],
        registers: &registers,
    };
    notes.thread(&thread).map_err(|_| Errno::ENOMEM)
}

/// Adds a note with the current thread's floating-point registers. Fails with `ENOMEM`.
fn note_floats(notes: &mut Notes, frame: &UserFrame) -> Result<(), Errno> {
    let image = sched::current().fpu_trace_image(frame);
    notes.floats(&image.legacy()).map_err(|_| Errno::ENOMEM)
}

/// Adds a note with the state of the process as a whole. Fails with `ENOMEM`.
fn note_process(notes: &mut Notes, task: TaskRef, space: &AddressSpace) -> Result<(), Errno> {
    let process = task.process();
    let mut arguments = [0; 79];
    let range = space.arg_range();
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let arguments = &mut arguments[..len.min(79)];
    if space.read_bytes(range.start, arguments).is_err() {
        // The program has unmapped them.
        arguments.fill(0);
    }
    let (credentials, name) = (process.credentials(), process.name());
    let main = Scheduled::find(process.pid());
    let nice = main.as_ref().map_or(0, |main| main.get().nice);
    let main = match main {
        _ if task.tid() == process.pid() => MainThread::Dumps,
        Some(main) if main.task().is_some() => MainThread::Waits,
        _ => MainThread::Ended,
    };
    let about = core_file::Process {
        kin: kin(&task, process.pid()),
        owner: [credentials.users.real, credentials.groups.real],
        main,
        nice: i8::try_from(nice).unwrap_or(0),
        name: name.padded(),
        arguments,
    };
    notes.process(&about).map_err(|_| Errno::ENOMEM)
}

/// Adds a note with the auxiliary vector of the program. Adds none if the vector's memory is not
/// mapped any more. Fails with `ENOMEM`.
fn note_auxiliary(notes: &mut Notes, space: &AddressSpace) -> Result<(), Errno> {
    let range = space.aux_range();
    let mut words = [0; 512];
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let words = &mut words[..len.min(512)];
    if space.read_bytes(range.start, words).is_err() {
        return Ok(());
    }
    notes.auxiliary(words).map_err(|_| Errno::ENOMEM)
}

/// Returns the areas of a space, at most the number that a core file can have. Fails with `ENOMEM`.
fn areas(space: &AddressSpace) -> Result<Vec<VmaInfo>, Errno> {
    let mut areas = Vec::new();
    let mut all = true;
    space.for_each_vma(|area| {
        if areas.len() == core_file::MAX_SEGMENTS {
            return;
        }
        all &= areas.try_reserve(1).is_ok();
        if all {
            areas.push(area.clone());
        }
    });
    if all { Ok(areas) } else { Err(Errno::ENOMEM) }
}

/// Creates the core file. Removes a file that has its name. Fails as the creation of a file does,
/// with `EINVAL` if it is no regular file, and with `ENOMEM`.
fn create(task: TaskRef, signal: Signal) -> Result<Arc<OpenFile>, Errno> {
    let process = task.process();
    let credentials = process.credentials();
    let program = process
        .exe()
        .map(|file| lookup::describe(file.node(), file.place()))
        .unwrap_or_default();
    let now = clock::wall_now();
    let own_name = task.name();
    let host = uts::with_host_name(|host| {
        let mut copy = [0; 64];
        copy[..host.len()].copy_from_slice(host);
        (copy, host.len())
    });
    let name = {
        let facts = Facts {
            pid: process.pid(),
            tid: task.tid(),
            uid: credentials.users.real,
            gid: credentials.groups.real,
            dumpable: process.dumpable.load(Ordering::Relaxed),
            signal: signal.number(),
            seconds: now.0 / 1_000_000_000,
            limit: process.limit(limits::index::CORE),
            host: &host.0[..host.1],
            name: own_name.as_bytes(),
            program: &program,
        };
        let uses_pid = USES_PID.load(Ordering::Relaxed) != 0;
        core_name::fill(pattern().bytes(), uses_pid, &facts)
    }
    .map_err(|_| Errno::ENOMEM)?;
    let (context, who) = (task.fs(), task.credentials());
    // If this fails, the creation fails, too.
    let _ = lookup::resolve(
        &who,
        &context.root(),
        &context.cwd(),
        &name,
        LastLink::Entry,
    )
    .and_then(|found| found.unlink(&who));
    let flags = OpenFlags::CREATE
        | OpenFlags::WRITE_ONLY
        | OpenFlags::NO_FOLLOW
        | OpenFlags::EXCLUSIVE
        | OpenFlags::LARGE;
    let file = crate::fs::open_path(&context, &who, &name, flags, 0o600)?;
    if file.metadata().kind != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    Ok(file)
}

/// The position in a core file and the space left.
struct Writer<'a> {
    task: TaskRef,
    file: &'a OpenFile,
    at: u64,
    /// The bytes that `RLIMIT_CORE` leaves; holes are free.
    left: u64,
}

/// The core file must end early: its limit is reached, its file system is full, or the process was
/// killed.
#[derive(Debug)]
struct Cut;

impl Writer<'_> {
    /// Writes bytes that a reader can use only in units of `unit` bytes. If the limit does not
    /// allow all of `bytes`, writes the whole units that fit. Fails if not all bytes were written,
    /// or the task is being killed.
    fn put(&mut self, bytes: &[u8], unit: usize) -> Result<(), Cut> {
        if self.task.killed() {
            return Err(Cut);
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX);
        let fits = bytes.len().min(room / unit * unit);
        let mut source = SliceSource::new(&bytes[..fits], caller::file_size_limit);
        let written = self.file.write_at(self.at, &mut source).map_err(|_| Cut)?;
        self.at += written as u64;
        self.left -= written as u64;
        if written == bytes.len() {
            Ok(())
        } else {
            Err(Cut)
        }
    }

    /// Writes the present pages of a range; absent ones stay holes. Untouched pages of a private
    /// file mapping are read from the file. Fails as [`Self::put`] does.
    fn put_pages(
        &mut self,
        space: &AddressSpace,
        area: &VmaInfo,
        bytes: u64,
        buffer: &mut [u8],
    ) -> Result<(), Cut> {
        let fills =
            area.file.is_some() && !area.flags.intersects(VmaFlags::SHARED | VmaFlags::HUGETLB);
        let (page, buffer) = buffer.split_at_mut(PAGE_SIZE);
        let start = self.at;
        let end = area.start + bytes;
        let mut at = area.start;
        // Ends: each turn advances by at least a page.
        while at < end {
            let found = space.copy_present(at..end, buffer);
            if fills {
                while at < found.at {
                    self.at = start + (at - area.start);
                    // The read fails behind the file's end.
                    if space.read_bytes(at, page).is_ok() {
                        self.put(page, PAGE_SIZE)?;
                    }
                    at += PAGE_SIZE as u64;
                    sched::cond_resched();
                }
            }
            if found.bytes != 0 {
                self.at = start + (found.at - area.start);
                self.put(&buffer[..found.bytes], PAGE_SIZE)?;
            }
            at = found.next;
            sched::cond_resched();
            if self.task.killed() {
                return Err(Cut);
            }
        }
        self.at = start + bytes;
        Ok(())
    }
}

/// Writes the core file of the current process, whose other threads have stopped. A file that ends
/// early is no error.
///
/// # Errors
/// Fails if no file could be made.
fn write(task: TaskRef, frame: &UserFrame, info: &SigInfo) -> Result<(), Errno> {
    /// The number of bytes of memory that are written together, plus a page.
    const PIECE: usize = 17 * PAGE_SIZE;
    if task.killed() {
        return Err(Errno::EINTR);
    }
    let process = task.process();
    let space = task.vm().ok_or(Errno::ESRCH)?;
    let file = create(task, info.signal)?;
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(PIECE).map_err(|_| Errno::ENOMEM)?;
    buffer.resize(PIECE, 0);

    let areas = areas(&space)?;
    let filter = CoreFilter::from_bits_retain(process.core_filter.load(Ordering::Relaxed));
    let mut segments = Vec::new();
    segments
        .try_reserve_exact(areas.len())
        .map_err(|_| Errno::ENOMEM)?;
    segments.extend(areas.iter().map(|area| Segment {
        start: area.start,
        end: area.end,
        file_bytes: space.core_bytes(area, filter),
        read: area.flags.contains(VmaFlags::READ),
        write: area.flags.contains(VmaFlags::WRITE),
        execute: area.flags.contains(VmaFlags::EXEC),
    }));
    let mut notes = Notes::default();
    note_thread(&mut notes, task, frame, info.signal)?;
    note_process(&mut notes, task, &space)?;
    notes.signal(&info.to_bytes()).map_err(|_| Errno::ENOMEM)?;
    note_auxiliary(&mut notes, &space)?;
    let mapped = areas.iter().filter_map(|area| {
        Some(Mapped {
            start: area.start,
            end: area.end,
            offset: area.offset,
            path: area
                .file
                .as_ref()
                .map(|file| &file.path)
                .filter(|path| path.starts_with(b"/"))?,
        })
    });
    notes.files(mapped).map_err(|_| Errno::ENOMEM)?;
    note_floats(&mut notes, frame)?;
    let others = {
        let mut group = process.group.lock();
        let dump = group.dump.as_mut();
        dump.map(|dump| core::mem::take(&mut dump.notes))
    }
    .unwrap_or_default();
    let all_notes = notes.len() + others.iter().map(Notes::len).sum::<usize>();
    let headers = core_file::headers(&segments, all_notes).map_err(|_| Errno::ENOMEM)?;
    let mut writer = Writer {
        task,
        file: &file,
        at: 0,
        left: process.limit(limits::index::CORE),
    };
    let mut fill = || -> Result<(), Cut> {
        writer.put(&headers, 1)?;
        writer.put(notes.as_ref(), 1)?;
        for other in &others {
            writer.put(other.as_ref(), 1)?;
        }
        writer.at = core_file::data_offset(segments.len(), all_notes);
        for (area, segment) in areas.iter().zip(&segments) {
            writer.put_pages(&space, area, segment.file_bytes, &mut buffer)?;
        }
        // The last pages may be a hole.
        file.node().set_size(writer.at).map_err(|_| Cut)
    };
    // A file that ends early is useful, too.
    let _ = fill();
    Ok(())
}
