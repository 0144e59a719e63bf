//! Executes another program.

use super::image::{Loaded, Program};
use super::process::Resources;
use super::used_space::UsedSpace;
use super::{executable, exit, image, limits, table};
use crate::fs::table::FilesOfTask;
use crate::fs::{self, OpenFile};
use crate::process::signal::{Actions, Signal};
use crate::process::{self, TaskRef, futex_pi, ptrace};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::credentials::Credentials;
use logic::elf;
use logic::errno::{Errno, SysResult};
use logic::own::Token;
use logic::path;
use logic::strings::{self, Strings};
use machine::arch::UserFrame;
use machine::console;
use machine::sched;
use machine::sched::work;
use machine::uaccess;

/// The most scripts that run each other in a chain.
const MAX_SCRIPTS: usize = 5;
/// The number of strings that are copied before the task yields the CPU if needed.
const BREATH: usize = 256;

/// The path, the arguments and the environment of a program, as the caller of exec passes them.
#[derive(Debug)]
pub(crate) struct UserStrings {
    pub(crate) path: Vec<u8>,
    /// Address of the vector of arguments; 0 if there is none.
    pub(crate) args: u64,
    /// Address of the vector of the environment; 0 if there is none.
    pub(crate) env: u64,
    /// The path leads through a descriptor that exec closes, so no interpreter can open it.
    pub(crate) closes: bool,
    /// The task's name comes from the executed file, not from `path`.
    pub(crate) by_file: bool,
}

/// Copies of the arguments and the environment, and their common limit, which also holds for the
/// additions of scripts.
struct Gathered {
    args: Strings,
    env: Strings,
    /// The most bytes that the path and all strings may take.
    room: usize,
}

impl UserStrings {
    /// Copies the arguments and the environment from user memory. Fails with `E2BIG` if they are
    /// too long, with `EFAULT` for a bad address, with `ENOMEM`, and with `EINTR` if the task is
    /// being killed.
    fn gather(&self) -> Result<Gathered, Errno> {
        let (args, env) = (count_strings(self.args)?, count_strings(self.env)?);
        let stack = process::current().process().limit(limits::index::STACK);
        let room = strings::room(stack, args, env).ok_or(Errno::E2BIG)?;
        let mut left = room.checked_sub(self.path.len() + 1).ok_or(Errno::E2BIG)?;
        // In Linux's order, which decides the error if there are several.
        let env = copy_strings(self.env, env, &mut left)?;
        let args = copy_strings(self.args, args, &mut left)?;
        Ok(Gathered { args, env, room })
    }
}

/// Yields the CPU now and then in long work. Fails with `EINTR` if the task is being killed.
fn breathe(count: usize) -> Result<(), Errno> {
    if count.is_multiple_of(BREATH) {
        sched::cond_resched();
        if process::current().killed() {
            return Err(Errno::EINTR);
        }
    }
    Ok(())
}

/// Returns the number of strings before a vector's null pointer. Fails with `E2BIG` for too many,
/// with `EFAULT` for a bad address, and with `EINTR` if the task is being killed.
fn count_strings(vector: u64) -> Result<usize, Errno> {
    const WORD: usize = size_of::<u64>();
    /// The number of pointers that are read together.
    const BATCH: usize = 64;
    if vector == 0 {
        return Ok(0);
    }
    let mut count = 0;
    while count < strings::MAX_COUNT {
        let mut words = [0; BATCH * WORD];
        let at = vector.wrapping_add((count * WORD) as u64);
        let bytes = uaccess::copy_in_partial(&mut words, at);
        let mut pointers = words[..bytes].chunks_exact(WORD);
        if let Some(end) = pointers.position(|pointer| pointer == [0; WORD]) {
            return Ok(count + end);
        }
        if bytes < words.len() {
            return Err(Errno::EFAULT);
        }
        count += BATCH;
        breathe(count)?;
    }
    Err(Errno::E2BIG)
}

/// Copies `count` strings and subtracts their bytes from `room`. Fails with `E2BIG` if one is too
/// long or `room` is too small, with `EFAULT` for a bad address, with `ENOMEM`, and with `EINTR` if
/// the task is being killed.
fn copy_strings(vector: u64, count: usize, room: &mut usize) -> Result<Strings, Errno> {
    let mut strings = Strings::default();
    for at in 0..count {
        let mut pointer = [0; size_of::<u64>()];
        let address = vector.wrapping_add((at * pointer.len()) as u64);
        uaccess::copy_in(&mut pointer, address)?;
        let pointer = u64::from_ne_bytes(pointer);
        let string = uaccess::read_cstr(pointer, strings::MAX_STRING);
        let string = string.map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::E2BIG,
            other => other,
        })?;
        *room = room.checked_sub(string.len() + 1).ok_or(Errno::E2BIG)?;
        strings.push(&string).map_err(|_| Errno::ENOMEM)?;
        breathe(at + 1)?;
    }
    Ok(strings)
}

/// Opens the program that runs `file`: the file itself, or the interpreter of a script. Turns
/// `args` into the arguments of that program. `path` is the path of `file`. With `closes`, the path
/// of a script leads nowhere once the program runs. `context` and `who` open the interpreters.
///
/// # Errors
/// Fails with `ENOEXEC` if the file cannot be executed, and with `ENOENT` for a script whose path
/// leads nowhere. Fails with `ETXTBSY` for a file that is open for writing, with `ELOOP` if scripts
/// run each other too often, and with `ENOMEM`. Fails with the errors of opening an interpreter.
pub(super) fn find_program(
    context: &fs::Context,
    who: &Credentials,
    mut file: Arc<OpenFile>,
    (path, closes): (&[u8], bool),
    args: &mut Strings,
) -> Result<Program, Errno> {
    let mut path = copy(path)?;
    for _ in 0..=MAX_SCRIPTS {
        file.forbid_writing()?;
        let mut start = [0; elf::SCRIPT_BYTES];
        let len = usize::try_from(file.metadata().size)
            .unwrap_or(usize::MAX)
            .min(start.len());
        fs::read_exact_at(&file, 0, &mut start[..len])?;
        if !start.starts_with(b"#!") {
            return Program::open(context, who, file);
        }
        let (interpreter, argument) = elf::script(&start[..len]).ok_or(Errno::ENOEXEC)?;
        if closes {
            return Err(Errno::ENOENT);
        }
        if interpreter.is_empty() {
            // As on Linux, where an empty path leads to the working directory here.
            return Err(Errno::EACCES);
        }
        args.drop_first();
        let mut longer = Strings::default();
        let first = [Some(interpreter), argument, Some(&*path)];
        let pushed = first
            .into_iter()
            .flatten()
            .try_for_each(|string| longer.push(string));
        let joined = pushed.and_then(|()| longer.append(args));
        joined.map_err(|_| Errno::ENOMEM)?;
        *args = longer;
        path = copy(interpreter)?;
        file = executable::open(context, who, &path).inspect_err(|error| {
            let path = path::printable(&path);
            console!("exec: the script is run by {path}: {error}");
        })?;
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

/// Returns the name of a task that runs the file at `path`: the part behind the last slash.
pub(super) fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Replaces the current program by the one in `file`. `user` has the arguments and the environment,
/// and `frame` gets the registers with which the new program starts. Ends all other threads of the
/// process. Returns 0.
///
/// # Errors
/// The old program continues after an error. Fails with the errors of [`find_program`]. Fails with
/// `E2BIG` if the strings are too long, with `EFAULT` if they cannot be read, and with `ENOMEM`.
/// Fails with `EINTR` or `EAGAIN` if the task is being killed. Also fails with `EAGAIN` if another
/// task started to share the table of open files during the call; the other threads are then gone.
pub(crate) fn execve(
    file: Arc<OpenFile>,
    user: &UserStrings,
    frame: &mut UserFrame,
    token: &mut Token,
) -> SysResult {
    let task = process::current();
    let process = task.process();
    let path = &user.path;
    let Gathered {
        mut args,
        env,
        room,
    } = user.gather()?;
    if args.count() == 0 {
        // Programs rely on a first argument. Linux adds an empty one, too.
        args.push(b"").map_err(|_| Errno::ENOMEM)?;
    }
    let named = (&**path, user.closes);
    let program = find_program(&task.fs(), &task.credentials(), file, named, &mut args)?;
    // Scripts have added arguments.
    if path.len() + 1 + args.bytes() + env.bytes() > room {
        return Err(Errno::E2BIG);
    }
    let (credentials, secure, gain) = ptrace::credentials_for_program(task);
    let who = (&credentials, secure);
    let loaded = program.load(path, &args, &env, who, &process.limits())?;
    // The table of files and the locks that it owns stay, unless tasks share the table that live
    // on.
    let is_shared = task.files().is_shared();
    let copy = is_shared.then(|| task.files().fork_copy()).transpose()?;
    let actions = Arc::new(process.actions().after_exec());
    drop((args, env));
    let tid = task.tid();
    end_other_threads(task)?;
    let files = if task.files().is_shared() {
        // `None` means that a clone in the meantime has shared the table.
        copy.ok_or(Errno::EAGAIN)?
    } else {
        task.files()
    };
    // From here on nothing fails.
    let (users, groups) = (credentials.users, credentials.groups);
    let own = users.effective == users.real && groups.effective == groups.real;
    let dumpable = own && program.readable;
    if !dumpable {
        // No process may inspect the new program before its credentials are set.
        process.dumpable.store(0, Ordering::Relaxed);
    }
    let own_path = program.file.file.path();
    let name = if user.by_file {
        let name = name_of(&own_path);
        name.strip_suffix(b" (deleted)").unwrap_or(name)
    } else {
        name_of(path)
    };
    replace(name, &program, loaded, files, actions, frame, token);
    process.dumpable.store(dumpable.into(), Ordering::Relaxed);
    process
        .randomized
        .store(image::randomizes(), Ordering::Relaxed);
    process.relations.lock().exit_signal = Signal::SIGCHLD.number();
    // A program with more rights than before becomes non-dumpable.
    task.act_as(credentials, token);
    drop(gain);
    if task.is_traced() {
        drop(program);
        ptrace::executed(task, frame, tid);
    }
    Ok(0)
}

/// Ends all other threads of the process and waits until they are gone. The current thread becomes
/// the main thread. Fails with `EAGAIN` if the process ends, or another thread executes a program.
fn end_other_threads(task: TaskRef) -> Result<(), Errno> {
    let process = task.process();
    {
        let mut group = process.group.lock();
        if group.exit.is_some() || group.exec.is_some() {
            // Another thread was first; this thread has its KILL bit.
            return Err(Errno::EAGAIN);
        }
        if group.tasks.len() > 1 {
            group.exec = Some(core::ptr::from_ref(&*task).addr());
            for other in &group.tasks {
                if !core::ptr::eq(Arc::as_ptr(other), &*task) {
                    sched::notify(other, work::KILL);
                }
            }
        }
    }
    let pid = process.pid();
    let own_tid = task.tid();
    let alone = || {
        let group = process.group.lock();
        if group.tasks.len() > 1 {
            return false;
        }
        drop(group);
        // The main thread's number is free only after the thread has left the table.
        own_tid == pid || table::find_task(pid).is_none()
    };
    let waited = process.thread_events.wait_killable(alone);
    process.group.lock().exec = None;
    waited.map_err(|_| Errno::EAGAIN)?;
    let tid = task.tid();
    if tid != pid {
        let mut table = table::lock();
        let old = ptrace::leader_taken_over(&mut table, process);
        let entry = table.take_over(&task.to_arc(), pid);
        ptrace::note_new_leader(&task);
        drop(table);
        drop((entry, old));
        // The words of its locks still have the thread's former number.
        futex_pi::hand_over(&task, tid);
    }
    Ok(())
}

/// Replaces the program of the current task by `program`, whose image is `loaded`, in a process
/// with one thread. `files` and `actions` are the descriptors and the signal actions from now on.
/// `frame` becomes the state of the new program's first instruction. The task gets `name`.
fn replace(
    name: &[u8],
    program: &Program,
    loaded: Loaded,
    files: Arc<fs::FileTable>,
    actions: Arc<Actions>,
    frame: &mut UserFrame,
    token: &mut Token,
) {
    let task = process::current();
    let process = task.process();
    let Some(user) = &task.user else { return };
    let Loaded { vm, entry, stack } = loaded;
    let resources = Resources {
        vm: Some(vm.clone()),
        files: Some(files.clone()),
        fs: Some(task.fs()),
        exe: Some(program.file.file.clone()),
    };
    if let Some(peak) = task.with_vm(|old| Some(old?.usage().peak_rss)) {
        process.peak_rss.fetch_max(peak, Ordering::Relaxed);
    }
    super::robust::release_list(task);
    futex_pi::hand_over(&task, task.tid());
    super::robust::clear_child_tid(task);
    vm.activate();
    let old_vm = task.replace_vm(Some(UsedSpace::new(vm)), token);
    let old_files = task.replace_files(Some(FilesOfTask::new(files.clone())), token);
    let old = core::mem::replace(&mut *process.resources.lock(), resources);
    drop(old_vm);
    drop(old_files);
    old.release();
    exit::finish_vfork(process);
    files.close_for_exec();
    let old_actions = core::mem::replace(&mut *process.actions.lock(), actions);
    drop(old_actions);
    process.timers.posix.clear();
    {
        let mut group = process.group.lock();
        group.pending.discard_of_timers();
        task.signals().pending().discard_of_timers();
    }
    process.relations.lock().has_execed = true;
    task.set_name(name);
    task.signals().reset_for_exec();
    task.rseq().forget();
    ptrace::breakpoints::forget(task);
    user.set_fs_base(0);
    user.set_gs_base(0);
    sched::current().fpu_reset();
    let number = frame.orig_rax;
    *frame = UserFrame::new_user(entry, stack);
    frame.orig_rax = number;
}
