//! The first processes: init (1), and the VM's program (2).

use super::image::{self, Loaded, Program};
use super::limits::Limits;
use super::out::Sender;
use super::process::Resources;
use super::task::NewTask;
use super::{
    Process, Task, UserState, WaitFor, WaitOptions, WaitStatus, exec, executable, kthread,
    root_credentials, table,
};
use crate::drivers;
use crate::fs::lookup::{self, LastLink};
use crate::fs::table::FilesOfTask;
use crate::fs::{self, OpenFlags};
use crate::process::signal::{Actions, SigInfo, Signal, send_to_one_of_many};
use crate::process::terminal::{self, Terminal};
use crate::process::{self, uts};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use ebb_wire::boot::{ARGUMENTS, ENVIRONMENT, HOST_NAME};
use ebb_wire::root::FOLDER;
use ebb_wire::user::{USER, User};
use ebb_wire::volume::LIST;
use logic::credentials::{Capabilities, Credentials};
use logic::errno::Errno;
use logic::path;
use logic::strings::Strings;
use machine::arch::{self, BootInfo, ExitRecord, UserFrame};
use machine::console;
use machine::memory::{self, KernelStack};
use machine::sched;
use machine::sync::Once;

/// Linux wait status if the program cannot be run, as in shells: 127 if it does not exist, 126 if
/// it cannot be executed.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;
/// The exit code if the boot line has an unknown setting, as for failures of `ebb` itself.
const NOT_SET_UP: i32 = 125;

/// The program's number.
const PROGRAM: u32 = 2;

/// The least number of frames that a task takes, for its stack, page tables and descriptors. It
/// bounds the number of tasks.
const FRAMES_PER_TASK: u64 = 24;

/// The most bytes of `/.ebb/argv` and `/.ebb/env` that are read.
const MAX_STRINGS: u64 = 4 << 20;

/// Words for each volume in `/.ebb/volumes`.
const VOLUME_WORDS: usize = 3;

static INIT: Once<Arc<Process>> = Once::new();

/// Returns process 1, the parent of orphans.
pub(crate) fn init_process() -> &'static Arc<Process> {
    INIT.get().expect("init is made before any other process")
}

/// Applies the settings of the boot line, in init before the program starts. After an error, which
/// it has named on the console, the program does not start.
type Settings = fn() -> Result<(), Errno>;
static SETTINGS: Once<Settings> = Once::new();

/// Creates init (process 1) and starts the first tasks on the first CPU, which runs its idle loop
/// from then on. init calls `settings`, and then starts the program that `/.ebb/argv` names as
/// process 2. If `settings` fails, the VM ends instead.
pub fn start(boot: &'static BootInfo, settings: Settings) -> ! {
    assert!(SETTINGS.set(settings).is_ok(), "tasks are started once");
    if let Some(name) = boot.option(HOST_NAME) {
        uts::set_host_name(name.as_bytes());
    }
    image::set_randomize(boot.option("ebb.aslr") != Some("off"));
    let frames = memory::allocator().managed_frames();
    let max = usize::try_from(frames / FRAMES_PER_TASK).unwrap_or(usize::MAX);
    let mut table = table::lock();
    table.set_max_tasks(max.max(16));
    let pid = table.reserve(0, u64::MAX).expect("an empty table has room");
    let limits = Limits::initial(table.max_tasks() as u64 / 2);
    drop(table);
    assert!(pid == 1, "init is the first process");
    let process = Arc::new(Process::new(
        1,
        Arc::new(Actions::new()),
        Resources::default(),
        limits,
        root_credentials(),
    ));
    assert!(INIT.set(process.clone()).is_ok(), "tasks are started once");
    let task = kthread::new(process.clone(), 1, b"init", init);
    let entered = process.group.lock().enter(&task);
    entered.expect("there is memory at the start");
    let mut table = table::lock();
    table.enter(&task, true);
    table.count_group(1, true);
    table.count_session(1, true);
    drop(table);
    FIRST.set(task).expect("set once");
    sched::start_cpu_with(|| {
        drivers::start_threads(signal_program, fs::drop_caches);
        fs::block::start_thread();
        if drivers::root::is_there() {
            fs::cold::start();
        }
        fs::aio::start_thread();
        crate::vm::compaction::daemon::start();
        crate::vm::khugepaged::start();
        fs::socket::start(
            [
                process::caller::credentials,
                process::caller::acting_credentials,
            ],
            || process::caller::can(Capabilities::NET_ADMIN),
        );
        terminal::start(boot);
        if let Some(task) = FIRST.get() {
            sched::start_new(sched::Owned::new(task.clone()));
        }
    })
}

static FIRST: Once<Arc<Task>> = Once::new();

/// Runs init: starts the program, reaps orphans, and ends the VM with the program.
fn init() {
    if SETTINGS.get().is_some_and(|settings| settings().is_err()) {
        end(WaitStatus::exited(NOT_SET_UP));
    }
    let sender = Sender::prepare();
    if let Err((status, what)) = start_program() {
        console!("init: {what}");
        end(WaitStatus::exited(status));
    }
    let process = process::current().process().clone();
    let options = WaitOptions::EXITED | WaitOptions::ALL;
    loop {
        match super::wait_for_child(&process, WaitFor::Any, options) {
            Ok(Some(waited)) if waited.pid == PROGRAM => {
                if let Some(sender) = sender {
                    arch::note_program_end();
                    sender.run();
                }
                end(waited.status)
            }
            Ok(_) => {}
            Err(error) => {
                console!("init: no children: {error}");
                end(WaitStatus::exited(NOT_EXECUTABLE));
            }
        }
    }
}

fn end(status: WaitStatus) -> ! {
    // No task is left that could handle errors.
    let _ = fs::hostfs::sync_all();
    fs::block::sync_for_the_last_time();
    arch::power_off(ExitRecord {
        wait_status: status.0,
    })
}

type StartError = (i32, &'static str);

fn start_program() -> Result<(), StartError> {
    let context = fs::Context::new(fs::root());
    let args = read_strings(&context, ARGUMENTS.as_bytes())
        .map_err(|_| (NOT_FOUND, "/.ebb/argv cannot be read"))?;
    let env = read_strings(&context, ENVIRONMENT.as_bytes()).unwrap_or_default();
    if args.count() == 0 {
        return Err((NOT_FOUND, "/.ebb/argv names no program"));
    }
    let who = user(&context)?;
    mount_volumes(&context)?;
    go_to_folder(&context, &who);
    let path = args.first().to_vec();
    spawn(context.clone(), &path, args, &env, who.clone()).map_err(|error| {
        let shown = path::printable(&path);
        if error == Errno::EACCES {
            say_what_is_closed(&context, &who, &path);
        }
        // The host looks for these words and shows the user the rest of the line.
        console!("init: cannot run {shown}: {error}");
        if error == Errno::ENOENT {
            (NOT_FOUND, "the program is missing")
        } else {
            (NOT_EXECUTABLE, "the program cannot be run")
        }
    })
}

/// Prints on the console which folder on the way to `path`, or whether the file itself, is closed
/// to `who`.
fn say_what_is_closed(context: &fs::Context, who: &Credentials, path: &[u8]) {
    let root = context.root();
    let find = |path: &[u8]| {
        lookup::resolve(&root_credentials(), &root, &root, path, LastLink::Follow)
            .and_then(lookup::Found::existing)
    };
    let user = who.users.effective;
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    for (at, _) in slashes {
        // Up to the first slash the path is empty; the root folder includes the slash.
        let folder = &path[..at.max(1)];
        let Ok(node) = find(folder) else { return };
        if fs::permission::check_search(who, &*node).is_err() {
            let mode = node.metadata().permissions;
            let folder = path::printable(folder);
            console!("init: the folder {folder} has mode {mode:04o} and is closed to user {user}");
            return;
        }
    }
    if let Ok(node) = find(path)
        && executable::check(who, &node).is_err()
    {
        let mode = node.metadata().permissions;
        let file = path::printable(path);
        console!("init: the file {file} has mode {mode:04o} and user {user} may not execute it");
    }
}

/// Returns the program's credentials: root's, unless the host names another user. Fails if the file
/// with the user cannot be read or is malformed.
fn user(context: &fs::Context) -> Result<Arc<Credentials>, StartError> {
    let strings = match read_strings(context, USER.as_bytes()) {
        Err(Errno::ENOENT) => return Ok(root_credentials()),
        Err(_) => return Err((NOT_EXECUTABLE, "/.ebb/user cannot be read")),
        Ok(strings) => strings,
    };
    let user = User::parse(strings.first());
    let user = user.ok_or((NOT_EXECUTABLE, "/.ebb/user names no user"))?;
    let who = Credentials::of_user(user.uid, user.gid, user.groups().collect());
    Ok(Arc::new(who))
}

/// Mounts the volumes that the host lists. Fails if the list cannot be read or a volume cannot be
/// mounted.
fn mount_volumes(context: &fs::Context) -> Result<(), StartError> {
    if !drivers::volume::is_there() {
        return Ok(());
    }
    let mut list = match read_strings(context, LIST.as_bytes()) {
        Ok(list) => list,
        Err(Errno::ENOENT) => return Ok(()),
        Err(_) => return Err((NOT_EXECUTABLE, "/.ebb/volumes cannot be read")),
    };
    let mut number = 0;
    while list.count() >= VOLUME_WORDS {
        let mut words = [const { Vec::new() }; VOLUME_WORDS];
        for word in &mut words {
            *word = list.first().to_vec();
            list.drop_first();
        }
        let [access, path, source] = words;
        let mounted = fs::hostfs::mount(number, &path, &source, access == b"ro");
        mounted.map_err(|error| {
            let shown = path::printable(&path);
            console!("init: cannot have a volume at {shown}: {error}");
            (NOT_EXECUTABLE, "a volume is missing")
        })?;
        number += 1;
    }
    if number > 0 {
        fs::hostfs::start_thread();
        fs::cold::start();
    }
    Ok(())
}

/// Makes the program start in the folder that the host names, or in the root if that is not found.
fn go_to_folder(context: &fs::Context, who: &Credentials) {
    let root = context.root();
    let found = read_strings(context, FOLDER.as_bytes())
        .and_then(|strings| lookup::resolve(who, &root, &root, strings.first(), LastLink::Follow))
        .and_then(lookup::Found::existing);
    if let Ok(folder) = found
        && folder.kind() == fs::FileKind::Directory
        && fs::permission::check_search(who, &*folder).is_ok()
    {
        context.set_cwd(folder);
    }
}

/// Returns the strings in the file at `path`, each ended by a NUL. The file is opened as root, from
/// the root and working directory in `context`. At most [`MAX_STRINGS`] bytes are read.
///
/// # Errors
/// Fails with the errors of opening and reading the file, and with `ENOMEM`.
pub(super) fn read_strings(context: &fs::Context, path: &[u8]) -> Result<Strings, Errno> {
    let file = fs::open_path(context, &root_credentials(), path, OpenFlags::empty(), 0)?;
    let size = file.metadata().size.min(MAX_STRINGS);
    let size = usize::try_from(size).map_err(|_| Errno::E2BIG)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(size, 0);
    fs::read_exact_at(&file, 0, &mut bytes)?;
    let mut strings = Strings::default();
    for string in bytes.split_inclusive(|&byte| byte == 0) {
        let string = string.strip_suffix(&[0]).unwrap_or(string);
        strings.push(string).map_err(|_| Errno::ENOMEM)?;
    }
    Ok(strings)
}

/// Makes process 2 with the program at `path`. Fails as opening and executing the program does.
fn spawn(
    context: Arc<fs::Context>,
    path: &[u8],
    mut args: Strings,
    env: &Strings,
    who: Arc<Credentials>,
) -> Result<(), Errno> {
    let file = executable::open(&context, &who, path)?;
    let program = exec::find_program(&context, &who, file, (path, false), &mut args)?;
    let owner = [who.users.file, who.groups.file];
    let own = terminal::open_for_program(&context, &who)?;
    let (own, streams) = match own {
        Some((own, file)) => (Some(own), [file.clone(), file.clone(), file]),
        None => (None, fs::stdio::open_program_streams(owner)),
    };
    let pid = start_process(&program, context, path, [&args, env], streams, own, who)?;
    assert!(pid == PROGRAM, "the program is the second process");
    Ok(())
}

/// Creates and starts a process that runs `program`, and returns its number. `path` is the path
/// that the program sees. `args` and `env` are its arguments and environment, `streams` its
/// descriptors 0 to 2, and `who` its credentials. `context` is its root and working directory. The
/// process is init's only child and leads a new session. The terminal `own`, if given, controls the
/// session.
///
/// # Errors
/// Fails with the errors of loading `program`, with `EAGAIN` if no number is left, and with
/// `ENOMEM`.
pub(super) fn start_process(
    program: &Program,
    context: Arc<fs::Context>,
    path: &[u8],
    [args, env]: [&Strings; 2],
    streams: [Arc<fs::OpenFile>; 3],
    own: Option<Arc<Terminal>>,
    who: Arc<Credentials>,
) -> Result<u32, Errno> {
    let limits = init_process().limits();
    let Loaded { vm, entry, stack } = program.load(path, args, env, (&who, false), &limits)?;
    let files = fs::FileTable::new();
    for file in streams {
        files.insert(file, false, 0, 3)?;
    }
    let resources = Resources {
        vm: Some(vm.clone()),
        files: Some(files.clone()),
        fs: Some(context.clone()),
        exe: Some(program.file.file.clone()),
    };
    let kernel_stack = KernelStack::new()?;
    let pid = table::lock().reserve(who.users.real, u64::MAX)?;
    let process = Arc::new(Process::new(
        pid,
        Arc::new(Actions::new()),
        resources,
        limits,
        who.clone(),
    ));
    // As if it had called exec.
    process.relations.lock().has_execed = true;
    process
        .randomized
        .store(image::randomizes(), Ordering::Relaxed);
    let new = NewTask {
        process: process.clone(),
        tid: pid,
        name: exec::name_of(path),
        credentials: who,
    };
    let files = FilesOfTask::new(files);
    let user = UserState::new(vm, files, context, None, [0; 2]);
    let frame = UserFrame::new_user(entry, stack);
    let task = Arc::new(Task::user(new, user, kernel_stack, frame, Box::default()));
    let uid = task.credentials_for_others().users.real;
    let entered = process.group.lock().enter(&task);
    if let Err(error) = entered {
        table::lock().unreserve(uid, pid);
        return Err(error);
    }
    let mut table = table::lock();
    {
        let init = init_process();
        table.append_children(init, &process, pid);
        process.relations.lock().parent = Some(init.clone());
    }
    table.enter(&task, true);
    table.count_group(pid, true);
    table.count_session(pid, true);
    if let Some(terminal) = own {
        terminal.begin_session(pid);
        process.relations.lock().terminal = Some(terminal);
    }
    drop(table);
    sched::start_new(sched::Owned::new(task));
    Ok(pid)
}

/// Sends a signal to the process group of the VM's program (the host's Ctrl-C).
fn signal_program(signo: u32) {
    let Some(signal) = Signal::new(signo) else {
        return;
    };
    let table = table::lock();
    for process in table.members(PROGRAM) {
        let _ = send_to_one_of_many(&table, process, SigInfo::kernel(signal));
    }
}
