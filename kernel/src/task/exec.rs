//! Running another program.

use super::image::{Loaded, Program, Strings};
use super::process::Resources;
use super::{elf, exit, limits, table, work};
use crate::arch::UserFrame;
use crate::errno::{Errno, SysResult};
use crate::fs::table::FilesOfProcess;
use crate::fs::{self, FileKind, OpenFile, OpenFlags};
use crate::sched::{self, TaskRef};
use crate::signal::Actions;
use crate::uaccess;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

/// Scripts that may be run by scripts.
const MAX_SCRIPTS: usize = 4;
/// Bytes of one argument; Linux's `MAX_ARG_STRLEN`.
const MAX_STRING: usize = 128 << 10;
/// Bytes of all arguments that are always allowed; Linux's `ARG_MAX`.
const MIN_TOTAL: u64 = 128 << 10;
/// Bytes of all arguments that are never exceeded.
const MAX_TOTAL: u64 = 6 << 20;
/// Strings between two looks at whether others wait.
const BREATH: usize = 256;

/// Reads a program's argument or environment vector.
///
/// # Errors
/// `E2BIG`, `EFAULT`, `ENOMEM`.
pub(crate) fn read_strings(mut vector: u64, room: &mut usize) -> Result<Strings, Errno> {
    let mut strings = Strings::default();
    if vector == 0 {
        return Ok(strings);
    }
    // Ends: each turn uses up room.
    loop {
        let mut pointer = [0; 8];
        uaccess::copy_in(&mut pointer, vector)?;
        let pointer = u64::from_ne_bytes(pointer);
        if pointer == 0 {
            return Ok(strings);
        }
        let string = uaccess::read_cstr(pointer, MAX_STRING).map_err(|error| {
            if error == Errno::ENAMETOOLONG {
                Errno::E2BIG
            } else {
                error
            }
        })?;
        let bytes = string.len() + 1 + size_of::<u64>();
        *room = room.checked_sub(bytes).ok_or(Errno::E2BIG)?;
        strings.push(&string)?;
        vector = vector.wrapping_add(size_of::<u64>() as u64);
        if strings.count.is_multiple_of(BREATH) {
            sched::cond_resched();
            if sched::current().killed() {
                return Err(Errno::EINTR);
            }
        }
    }
}

/// Bytes that arguments and environment of a new program may take.
pub(crate) fn strings_room() -> usize {
    let stack = sched::current().process().limit(limits::index::STACK);
    let room = (stack / 4).clamp(MIN_TOTAL, MAX_TOTAL);
    usize::try_from(room).unwrap_or(0)
}

/// Opens a file to run it.
pub(super) fn open(context: &fs::Context, path: &[u8]) -> Result<Arc<OpenFile>, Errno> {
    let file = fs::open_path(context, path, OpenFlags::empty(), 0)?;
    check(&file)?;
    Ok(file)
}

/// Whether a file may be run.
pub(crate) fn check(file: &OpenFile) -> Result<(), Errno> {
    let metadata = file.metadata();
    if metadata.kind != FileKind::Regular || metadata.mode() & 0o111 == 0 {
        return Err(Errno::EACCES);
    }
    Ok(())
}

/// Follows scripts to the program that runs them; `args` become that program's.
pub(super) fn find_program(
    context: &fs::Context,
    mut file: Arc<OpenFile>,
    path: &[u8],
    args: &mut Strings,
) -> Result<Program, Errno> {
    let mut path = copy(path)?;
    for _ in 0..=MAX_SCRIPTS {
        let mut start = [0; elf::SCRIPT_BYTES];
        let len = usize::try_from(file.metadata().size)
            .unwrap_or(usize::MAX)
            .min(start.len());
        fs::read_exact_at(&file, 0, &mut start[..len])?;
        if !start.starts_with(b"#!") {
            return Program::open(file);
        }
        let (interpreter, argument) = elf::script(&start[..len]).ok_or(Errno::ENOEXEC)?;
        args.drop_first();
        let mut longer = Strings::default();
        longer.push(interpreter)?;
        if let Some(argument) = argument {
            longer.push(argument)?;
        }
        longer.push(&path)?;
        longer
            .bytes
            .try_reserve(args.bytes.len())
            .map_err(|_| Errno::ENOMEM)?;
        longer.bytes.extend_from_slice(&args.bytes);
        longer.count += args.count;
        *args = longer;
        path = copy(interpreter)?;
        file = open(context, &path)?;
    }
    Err(Errno::ELOOP)
}

fn copy(path: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(path.len())
        .map_err(|_| Errno::ENOMEM)?;
    bytes.extend_from_slice(path);
    Ok(bytes)
}

/// The name of a task that runs the file at `path`.
pub(super) fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Replaces the current program by the one in `file`, known as `path`.
///
/// # Errors
/// As `execve(2)`; the old program goes on then.
pub(crate) fn execve(
    file: Arc<OpenFile>,
    path: &[u8],
    mut args: Strings,
    env: &Strings,
    frame: &mut UserFrame,
) -> SysResult {
    let task = sched::current();
    let process = task.process();
    if args.count == 0 {
        // Programs rely on a name; Linux gives an empty one too.
        args.push(b"")?;
    }
    let program = find_program(task.fs(), file, path, &mut args)?;
    if args.stack_bytes() + env.stack_bytes() > usize::try_from(MAX_TOTAL).unwrap_or(0) {
        return Err(Errno::E2BIG);
    }
    let loaded = program.load(path, &args, env, &process.credentials(), &process.limits())?;
    // The table stays, and with it the locks that it owns, unless other processes share it.
    let is_shared = task.files().is_shared();
    let copy = is_shared.then(|| task.files().fork_copy()).transpose()?;
    let actions = Arc::new(process.actions().after_exec());
    drop(args);
    end_other_threads(task)?;
    let files = if task.files().is_shared() {
        // None: another thread shared it meanwhile, by a clone of its own.
        copy.ok_or(Errno::EAGAIN)?
    } else {
        task.files().clone()
    };
    // From here on nothing fails.
    replace(task, path, &program, loaded, files, actions, frame);
    Ok(0)
}

/// Ends all other threads of the process and waits until they are gone; this one becomes its main
/// thread.
fn end_other_threads(task: TaskRef) -> Result<(), Errno> {
    let process = task.process();
    {
        let mut group = process.group.lock();
        if group.exit.is_some() || group.exec.is_some() {
            // Somebody else was first; this thread has its KILL bit.
            return Err(Errno::EAGAIN);
        }
        if group.tasks.len() > 1 {
            group.exec = Some(task.as_non_null().as_ptr() as usize);
            for other in &group.tasks {
                if !core::ptr::eq(Arc::as_ptr(other), &*task) {
                    sched::notify(other, work::KILL);
                }
            }
        }
    }
    let pid = process.pid();
    let alone = || {
        let group = process.group.lock();
        if group.tasks.len() > 1 {
            return false;
        }
        drop(group);
        // The main thread's number is free only when it is out of the table.
        task.tid() == pid || table::find_task(pid).is_none()
    };
    let waited = process.thread_events.wait_killable(alone);
    process.group.lock().exec = None;
    waited.map_err(|_| Errno::EAGAIN)?;
    if task.tid() != pid {
        let mut table = table::lock();
        let entry = table.take_over(&task.to_arc(), pid);
        drop(table);
        drop(entry);
    }
    process.group.lock().main_exit = None;
    Ok(())
}

fn replace(
    task: TaskRef,
    path: &[u8],
    program: &Program,
    loaded: Loaded,
    files: Arc<fs::FileTable>,
    actions: Arc<Actions>,
    frame: &mut UserFrame,
) {
    let process = task.process();
    let Some(user) = &task.user else { return };
    let Loaded { vm, entry, stack } = loaded;
    let fs = task.fs().clone();
    let resources = Resources {
        vm: Some(vm.clone()),
        files: Some(FilesOfProcess::new(files.clone())),
        fs: Some(fs),
        exe: Some(program.file.clone()),
    };
    if let Some(old) = task.vm() {
        process
            .peak_rss
            .fetch_max(old.usage().peak_rss, Ordering::Relaxed);
    }
    super::robust::release_list(task);
    super::robust::clear_child_tid(task);
    vm.activate();
    // SAFETY: we are the task, and no reference from `TaskRef::vm` or `files` is in use.
    let (old_vm, old_files) = unsafe {
        (
            user.vm.get().replace(vm),
            user.files.get().replace(files.clone()),
        )
    };
    let old = core::mem::replace(&mut *process.resources.lock(), resources);
    drop(old);
    drop(old_vm);
    drop(old_files);
    exit::finish_vfork(process);
    files.close_for_exec();
    let old_actions = core::mem::replace(&mut *process.actions.lock(), actions);
    drop(old_actions);
    process.timers.posix.clear();
    process.relations.lock().has_execed = true;
    process.dumpable.store(1, Ordering::Relaxed);
    task.set_name(name_of(path));
    *task.alt_stack.lock() = super::AltStack::default();
    *task.restart.lock() = None;
    task.set_fs_base(0);
    task.set_gs_base(0);
    // SAFETY: we are the task.
    unsafe { user.fpu.get() }.reset();
    *frame = UserFrame::new_user(entry, stack);
}
