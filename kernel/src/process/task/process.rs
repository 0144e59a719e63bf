//! A process: tasks with one address space, open files and signal handlers.

use super::core_dump::Dump;
use super::limits::{Limits, OwnLimits};
use super::{Scheduling, Task, TaskRef};
use crate::fs;
use crate::fs::poll::{Notifier, PollMask};
use crate::process::signal::{Actions, Pending, SigSet, Signal};
use crate::process::terminal::Terminal;
use crate::process::time::process_timers::ProcessTimers;
use crate::vm::{AddressSpace, CoreFilter};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use logic::credentials::Credentials;
use logic::errno::Errno;
use machine::arch::clock::Nanos;
use machine::sched;
use machine::sched::transfers::Transferred;
use machine::sync::{SpinLock, WaitQueue};

/// A change of a process in Linux's form, for its parent. For an end it is an exit code in bits 8
/// to 15, or a signal in bits 0 to 6. Bit 7 then says whether there is a core file. For a stop,
/// bits 0 to 7 are 0x7f, and the signal is in bits 8 to 15.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WaitStatus(pub u32);

/// The bit in a wait status that says that there is a core file.
const CORE: u32 = 0x80;

impl WaitStatus {
    /// Returns the status of a process that called `exit` with `code`. Only the low 8 bits of
    /// `code` count.
    pub const fn exited(code: i32) -> Self {
        Self((code.cast_unsigned() & 0xff) << 8)
    }

    /// Returns the status of a process that `signal` ended.
    pub const fn signalled(signal: Signal) -> Self {
        Self(signal.number())
    }

    /// Returns the status of a process that `signal` stopped.
    pub const fn stopped(signal: Signal) -> Self {
        Self(signal.number() << 8 | 0x7f)
    }

    /// The status of a process that continues after a stop.
    pub const CONTINUED: Self = Self(0xffff);

    /// Returns the status of an ended process with the bit for a core file.
    pub const fn with_core(self) -> Self {
        Self(self.0 | CORE)
    }

    /// Returns whether a signal ended the process and there is a core file.
    pub const fn has_core(self) -> bool {
        self.signal() != 0x7f && self.0 & CORE != 0
    }

    /// Returns the number of the signal that ended the process, or 0 if the process exited. Returns
    /// 0x7f for a stop or a continuation.
    pub const fn signal(self) -> u32 {
        self.0 & 0x7f
    }

    /// Returns the exit code of a process that exited, 0 to 255. For a stop, returns the number of
    /// the signal.
    pub const fn code(self) -> i32 {
        (self.0 >> 8 & 0xff).cast_signed()
    }
}

/// Whether a process is stopped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The process is not stopped.
    No,
    /// Stopped by this signal. Some threads may still be on their way to the stop.
    By(Signal),
}

/// The resources that threads have used: CPU time, faults and others.
#[derive(Copy, Clone, Debug, Default)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Nanos,
    /// CPU time in system calls.
    pub system: Nanos,
    /// Faults without I/O.
    pub minor_faults: u64,
    /// Faults with I/O.
    pub major_faults: u64,
    /// Context switches because the task blocked.
    pub voluntary: u64,
    /// Other context switches.
    pub involuntary: u64,
    /// Peak resident memory, in bytes.
    pub peak_rss: u64,
    /// Bytes and calls of reads and writes.
    pub transferred: Transferred,
}

impl Usage {
    /// Adds the usage `other` to this one. The peak becomes the larger of both peaks.
    pub fn add(&mut self, other: &Self) {
        self.user = self.user.saturating_add(other.user);
        self.system = self.system.saturating_add(other.system);
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
        self.peak_rss = self.peak_rss.max(other.peak_rss);
        self.transferred.add(&other.transferred);
    }

    /// Returns the usage of `task`. The peak of resident memory, which belongs to the process, is
    /// 0.
    pub(crate) fn of_task(task: &Task) -> Self {
        let account = task.account();
        let (user, system) = account.times();
        let (voluntary, involuntary) = account.switches();
        let (minor_faults, major_faults) = account.faults();
        Self {
            user,
            system,
            minor_faults,
            major_faults,
            voluntary,
            involuntary,
            peak_rss: 0,
            transferred: task.transfers().get(),
        }
    }
}

/// The state that all threads of a process share: the list of them, pending signals, stops and the
/// end.
pub(crate) struct Group {
    /// The live threads, each at the index in its `place`.
    pub(crate) tasks: Vec<Arc<Task>>,
    /// The signals that are pending for the process as a whole.
    pub(crate) pending: Pending,
    /// The status with which the process ends. `None` until it is decided.
    pub(crate) exit: Option<WaitStatus>,
    /// The address of the thread that executes exec and waits for the end of all others. `None`
    /// without exec.
    pub(crate) exec: Option<usize>,
    /// Whether a signal has stopped the process.
    pub(crate) stop: Stop,
    /// The number of threads that have stopped because of `stop`.
    pub(crate) stopped: usize,
    /// Whether the parent was notified of the stop.
    pub(crate) stop_told: bool,
    /// The resources that ended threads have used.
    pub(crate) ended: Usage,
    /// Whether no thread is left and the main thread was the last one.
    pub(crate) leader_was_last: bool,
    /// The state of the core file that is being written, if any.
    pub(crate) dump: Option<Dump>,
}

impl Group {
    /// Adds the new thread `task` to the live threads.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(crate) fn enter(&mut self, task: &Arc<Task>) -> Result<(), Errno> {
        self.tasks.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        // Relaxed (all of `place`): the group's lock is held.
        task.place.store(self.tasks.len(), Ordering::Relaxed);
        self.tasks.push(task.clone());
        Ok(())
    }

    /// Removes the thread `task` from the live threads and returns it. Returns `None` if the thread
    /// is not in the group.
    pub(crate) fn leave(&mut self, task: &Task) -> Option<Arc<Task>> {
        let place = task.place.load(Ordering::Relaxed);
        let known = self.tasks.get(place)?;
        if !core::ptr::eq(Arc::as_ptr(known), task) {
            return None;
        }
        let own = self.tasks.swap_remove(place);
        if let Some(moved) = self.tasks.get(place) {
            moved.place.store(place, Ordering::Relaxed);
        }
        Some(own)
    }
}

/// The relations of a process to other processes. Every change holds the process table's lock, so a
/// reader under that lock sees a consistent picture of several processes.
pub(crate) struct Relations {
    /// The parent. `None` for init, for the kernel's own process and for a reaped process.
    pub(crate) parent: Option<Arc<Process>>,
    /// The first child in the list of children, which `next_sibling` continues. `None` if there is
    /// no child. A child that this process creates or inherits is added at the end. The list needs
    /// no allocation, so a child can always be given to another parent.
    pub(crate) first_child: Option<Arc<Process>>,
    /// The number of the last child; 0 if there is none.
    pub(crate) last_child: u32,
    /// The next child in the list of the parent. `None` if this is the last.
    pub(crate) next_sibling: Option<Arc<Process>>,
    /// The number of the previous sibling; 0 if this is the first.
    pub(crate) previous_sibling: u32,
    /// The number of the process group.
    pub(crate) group: u32,
    /// The number of the session.
    pub(crate) session: u32,
    /// The exit status. `None` until the last thread has ended. It stays after the parent has
    /// waited for the process, which is not in the process table any more then.
    pub(crate) zombie: Option<WaitStatus>,
    /// The signal of a stop that no wait of the parent has reported yet. `None` if there is no such
    /// stop.
    pub(crate) stop_report: Option<Signal>,
    /// Whether the process has continued and no wait of the parent has reported that yet.
    pub(crate) continue_report: bool,
    /// The signal that the parent gets at the end of the process; 0 if none (`clone(2)`).
    pub(crate) exit_signal: u32,
    /// The resources that children have used, of those that were waited for.
    pub(crate) children_usage: Usage,
    /// Whether the process has called exec, so that the parent's `setpgid` is refused.
    pub(crate) has_execed: bool,
    /// The controlling terminal. `None` if there is none.
    pub(crate) terminal: Option<Arc<Terminal>>,
    /// Whether the parent has ended and was in another group of the same session, so that the end
    /// may have orphaned the group of this process.
    pub(crate) lost_parent: bool,
    /// The threads of other processes that threads of this process trace.
    pub(crate) tracees: Vec<Arc<Task>>,
    /// The process that traces the main thread. `None` if no thread traces it.
    pub(crate) tracer: Option<Arc<Process>>,
    /// For a session leader whose terminal was hung up, the foreground group at that time.
    /// Otherwise 0.
    pub(crate) hung_group: u32,
}

/// The resources that a process holds while it lives. Dropping them may block.
#[derive(Default)]
pub(crate) struct Resources {
    /// The address space. `None` for init and the kernel's own process.
    pub(crate) vm: Option<Arc<AddressSpace>>,
    /// The table of descriptors of the main thread, or of the last main thread. Only the tasks' own
    /// uses keep its descriptors open.
    pub(crate) files: Option<Arc<fs::FileTable>>,
    /// The root, the working directory and the umask.
    pub(crate) fs: Option<Arc<fs::Context>>,
    /// The file of the program.
    pub(crate) exe: Option<Arc<fs::OpenFile>>,
}

impl Resources {
    /// Drops the resources. If no task uses the address space any more, its memory is free when
    /// this returns, even if other references to the space remain. Call this where the task may
    /// block.
    pub(super) fn release(self) {
        if let Some(vm) = &self.vm {
            vm.end();
        }
    }
}

/// A process: one or more tasks with one address space, files and signal handlers.
pub struct Process {
    pid: u32,
    start_time: Nanos,
    /// The number of the thread that created the process.
    pub(crate) maker: AtomicU32,
    pub(crate) group: SpinLock<Group>,
    pub(crate) actions: SpinLock<Arc<Actions>>,
    pub(crate) relations: SpinLock<Relations>,
    pub(crate) resources: SpinLock<Resources>,
    pub(crate) limits: OwnLimits,
    /// The credentials of the main thread. They stay after the end of that thread.
    credentials: SpinLock<Arc<Credentials>>,
    /// The queue of tasks that wait for children of this process.
    pub(crate) child_events: WaitQueue,
    /// The queue in which a thread in exec waits for the end of the other threads.
    pub(crate) thread_events: WaitQueue,
    /// The queue in which the parent of a `vfork` waits until this process has released the
    /// parent's memory.
    pub(crate) vfork_done: WaitQueue,
    /// Whether the parent of a `vfork` still waits for this process to release the parent's memory.
    pub(crate) vfork_pending: AtomicBool,
    /// The notifier of descriptors that read signals (signalfd). `None` until the first call of
    /// [`Process::signal_readers`].
    signal_readers: SpinLock<Option<Arc<Notifier>>>,
    has_signal_readers: AtomicBool,
    /// The notifier of pidfds of the process. `None` until the first call of
    /// [`Process::end_readers`].
    end_readers: SpinLock<Option<Arc<Notifier>>>,
    /// Interval and POSIX timers.
    pub(crate) timers: ProcessTimers,
    /// `/proc/PID/oom_score_adj`, -1000 to 1000.
    pub(crate) oom_score_adj: AtomicI32,
    /// The least `oom_score_adj` that a process without `CAP_SYS_RESOURCE` may set: the last value
    /// that a process with this capability has set, or 0.
    pub(crate) least_oom_score_adj: AtomicI32,
    /// Whether the OOM killer has chosen the process.
    pub(crate) oom_victim: AtomicBool,
    /// The value of `PR_SET_DUMPABLE`.
    pub(crate) dumpable: AtomicU32,
    /// `/proc/PID/coredump_filter`.
    pub(crate) core_filter: AtomicU32,
    /// Whether a core file is being written. Threads that end wait for that first.
    pub(crate) dumping: AtomicBool,
    /// Threads that end wait here for the core file.
    pub(crate) dump_done: WaitQueue,
    /// The number of the signal of `PR_SET_PDEATHSIG`; 0 if none.
    pub(crate) death_signal: AtomicU32,
    /// Whether a child of the process has ever set a death signal (`PR_SET_PDEATHSIG`).
    pub(crate) has_mourners: AtomicBool,
    /// Whether orphaned descendants get this process as their parent (`PR_SET_CHILD_SUBREAPER`).
    pub(crate) subreaper: AtomicBool,
    /// `personality(2)`.
    pub(crate) personality: AtomicU32,
    /// Whether the addresses of the program were randomized. A child copies this from its parent.
    pub(crate) randomized: AtomicBool,
    /// The name (`comm`) that the main thread had when it ended, or that a program has set since.
    /// Unused while the main thread lives.
    pub(crate) last_name: SpinLock<super::Name>,
    /// The timer slack of the main thread when it ended, in nanoseconds. Unused while the main
    /// thread lives.
    pub(crate) last_timer_slack: AtomicU64,
    /// The scheduling of the main thread when it ended, without its I/O priority and with the
    /// changes that system calls have made since. Unused while the main thread lives.
    pub(crate) last_scheduling: SpinLock<Scheduling>,
    /// The peak resident memory in bytes of the address spaces that the process has left (exec).
    pub(crate) peak_rss: AtomicU64,
}

impl Process {
    /// Makes a process with the number `pid` and no threads. It has no parent, and leads a group
    /// and a session of the same number.
    pub(crate) fn new(
        pid: u32,
        actions: Arc<Actions>,
        resources: Resources,
        limits: Limits,
        credentials: Arc<Credentials>,
    ) -> Self {
        Self {
            pid,
            start_time: machine::arch::clock::now(),
            maker: AtomicU32::new(0),
            group: SpinLock::new(Group {
                tasks: Vec::new(),
                pending: Pending::new(),
                exit: None,
                exec: None,
                stop: Stop::No,
                stopped: 0,
                stop_told: false,
                ended: Usage::default(),
                leader_was_last: false,
                dump: None,
            }),
            actions: SpinLock::new(actions),
            relations: SpinLock::new(Relations {
                parent: None,
                first_child: None,
                last_child: 0,
                next_sibling: None,
                previous_sibling: 0,
                group: pid,
                session: pid,
                zombie: None,
                stop_report: None,
                continue_report: false,
                exit_signal: Signal::SIGCHLD.number(),
                children_usage: Usage::default(),
                has_execed: false,
                terminal: None,
                lost_parent: false,
                tracees: Vec::new(),
                tracer: None,
                hung_group: 0,
            }),
            resources: SpinLock::new(resources),
            limits: OwnLimits::new(limits),
            credentials: SpinLock::new(credentials),
            child_events: WaitQueue::new(),
            thread_events: WaitQueue::new(),
            vfork_done: WaitQueue::new(),
            vfork_pending: AtomicBool::new(false),
            signal_readers: SpinLock::new(None),
            has_signal_readers: AtomicBool::new(false),
            end_readers: SpinLock::new(None),
            timers: ProcessTimers::new(),
            oom_score_adj: AtomicI32::new(0),
            least_oom_score_adj: AtomicI32::new(0),
            oom_victim: AtomicBool::new(false),
            dumpable: AtomicU32::new(1),
            core_filter: AtomicU32::new(CoreFilter::USUAL.bits()),
            dumping: AtomicBool::new(false),
            dump_done: WaitQueue::new(),
            death_signal: AtomicU32::new(0),
            has_mourners: AtomicBool::new(false),
            subreaper: AtomicBool::new(false),
            personality: AtomicU32::new(0),
            randomized: AtomicBool::new(false),
            last_name: SpinLock::new(super::Name::NONE),
            last_timer_slack: AtomicU64::new(0),
            last_scheduling: SpinLock::new(Scheduling::USUAL),
            peak_rss: AtomicU64::new(0),
        }
    }

    /// Returns the number of the process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns when the process was created, on the monotonic clock.
    pub fn start_time(&self) -> Nanos {
        self.start_time
    }

    /// Returns the address space of the process. Returns `None` for an ended process, init and the
    /// kernel's own process.
    pub fn vm(&self) -> Option<Arc<AddressSpace>> {
        self.resources.lock().vm.clone()
    }

    /// Returns the table of open files of the process. Returns `None` for an ended process, init
    /// and the kernel's own process.
    pub fn files(&self) -> Option<Arc<fs::FileTable>> {
        let resources = self.resources.lock();
        resources.files.clone()
    }

    /// Returns the root, the working directory and the umask of the process. Returns `None` for an
    /// ended process, init and the kernel's own process.
    pub fn fs(&self) -> Option<Arc<fs::Context>> {
        self.resources.lock().fs.clone()
    }

    /// Returns the file of the program that the process runs. Returns `None` for an ended process,
    /// init and the kernel's own process.
    pub fn exe(&self) -> Option<Arc<fs::OpenFile>> {
        self.resources.lock().exe.clone()
    }

    /// Returns the number of the parent process, or 0 if the process has none.
    pub fn ppid(&self) -> u32 {
        self.relations
            .lock()
            .parent
            .as_ref()
            .map_or(0, |parent| parent.pid)
    }

    /// Returns the number of the process group. It is 0 once the process was reaped.
    pub fn pgid(&self) -> u32 {
        self.relations.lock().group
    }

    /// Returns the number of the session. It is 0 once the process was reaped.
    pub fn session(&self) -> u32 {
        self.relations.lock().session
    }

    /// Returns the number of live threads.
    pub fn thread_count(&self) -> usize {
        self.group.lock().tasks.len()
    }

    /// Returns whether all other threads than `task` have ended, or begun to end.
    pub(crate) fn is_last_thread(&self, task: TaskRef) -> bool {
        let group = self.group.lock();
        let mut others = group.tasks.iter().filter(|other| !task.is(other));
        others.all(|other| other.ends())
    }

    /// Returns the number of threads that `/proc` lists: the live ones, and the main thread, which
    /// is listed until the process is reaped.
    pub fn listed_thread_count(&self) -> usize {
        let group = self.group.lock();
        let leader = group.tasks.iter().any(|task| task.tid() == self.pid);
        group.tasks.len() + usize::from(!leader)
    }

    /// Returns the numbers of the threads that `/proc` lists, ascending: the live ones, and the
    /// main thread, which is listed until the process is reaped. Returns an empty list if memory is
    /// out.
    pub fn listed_threads(&self) -> Vec<u32> {
        let mut ids = Vec::new();
        loop {
            let wanted = self.thread_count() + 1;
            if ids.try_reserve(wanted).is_err() {
                return ids;
            }
            let group = self.group.lock();
            if group.tasks.len() + 1 > ids.capacity() {
                continue; // More were made in the meantime; bounded by the number of tasks.
            }
            ids.extend(group.tasks.iter().map(|task| task.tid()));
            drop(group);
            if !ids.contains(&self.pid) {
                ids.push(self.pid);
            }
            ids.sort_unstable();
            return ids;
        }
    }

    /// Returns the live thread of the process with the number `tid`, or `None` if there is none.
    pub fn thread(&self, tid: u32) -> Option<Arc<Task>> {
        self.group
            .lock()
            .tasks
            .iter()
            .find(|task| task.tid() == tid)
            .cloned()
    }

    /// Returns the name of the main thread (`comm`), or its last name if it has ended.
    pub fn name(&self) -> super::Name {
        match self.thread(self.pid) {
            Some(task) => task.name(),
            None => *self.last_name.lock(),
        }
    }

    /// Returns whether the process has ended and no parent has waited for it.
    pub fn is_zombie(&self) -> bool {
        self.relations.lock().zombie.is_some()
    }

    /// Returns whether the process is stopped by a signal, or about to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.group.lock().stop != Stop::No
    }

    /// Returns the letter of the main thread's state for `/proc/PID/stat`. It is `Z` once the main
    /// thread has ended, even if other threads live.
    pub fn state_letter(&self) -> u8 {
        if self.is_zombie() {
            return b'Z';
        }
        let group = self.group.lock();
        match group.tasks.iter().find(|task| task.tid() == self.pid) {
            Some(leader) => leader.state_letter(),
            // The main thread still runs, to release the process's resources.
            None if group.leader_was_last => b'R',
            None => b'Z',
        }
    }

    /// Returns the resources that all threads have used, ended ones included. The peak of resident
    /// memory is that of earlier address spaces, without the present one.
    pub(crate) fn usage_of_tasks(&self) -> Usage {
        let group = self.group.lock();
        let mut usage = group.ended;
        for task in &group.tasks {
            usage.add(&Usage::of_task(task));
        }
        usage.peak_rss = self.peak_rss.load(Ordering::Relaxed);
        usage
    }

    /// Returns the resources that all threads have used, ended ones included. The peak of resident
    /// memory includes the present address space.
    pub fn usage(&self) -> Usage {
        let mut usage = self.usage_of_tasks();
        if let Some(vm) = self.vm() {
            usage.peak_rss = usage.peak_rss.max(vm.usage().peak_rss);
        }
        usage
    }

    /// Returns the numbers of the children that the thread `maker` made, zombies included. Children
    /// whose maker has ended count as the main thread's. If children are reaped in that time,
    /// others may be missing, as on Linux.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub fn children_of(&self, maker: u32) -> Result<Vec<u32>, Errno> {
        /// The most children that are visited under one hold of the process table's lock.
        const STEP: usize = 256;
        let mut numbers = Vec::new();
        let main = maker == self.pid;
        // The last child that was visited. It may be reaped between two steps, so this reference
        // must not be dropped under the table's lock.
        let mut last = None;
        let mut visited = 0;
        // Each turn visits `STEP` children, or ends.
        loop {
            let behind = {
                let table = super::table::lock();
                let has = |thread: u32| {
                    let live = table.task(thread);
                    live.is_some_and(|task| core::ptr::eq(&**task.process(), self))
                };
                let mut next = self.child_behind(last.as_ref(), visited);
                let mut behind = None;
                for _ in 0..STEP {
                    let Some(child) = next else {
                        return Ok(numbers);
                    };
                    // Relaxed: set before the child was entered.
                    let made_by = child.maker.load(Ordering::Relaxed);
                    if made_by == maker || main && !has(made_by) {
                        numbers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                        numbers.push(child.pid);
                    }
                    next = child.relations.lock().next_sibling.clone();
                    behind = Some(child);
                }
                behind
            };
            last = behind;
            visited += STEP;
            sched::give_way();
        }
    }

    /// Returns the child behind `last`, or the first one if `last` is `None`. If `last` is no child
    /// any more, returns the child behind the first `visited` ones. Returns `None` if there is no
    /// such child. The caller holds the process table's lock.
    fn child_behind(&self, last: Option<&Arc<Self>>, visited: usize) -> Option<Arc<Self>> {
        if let Some(last) = last {
            let relations = last.relations.lock();
            let parent = relations.parent.as_ref();
            if parent.is_some_and(|parent| core::ptr::eq(&**parent, self)) {
                return relations.next_sibling.clone();
            }
        }
        let mut child = self.relations.lock().first_child.clone();
        for _ in 0..visited {
            child = child?.relations.lock().next_sibling.clone();
        }
        child
    }

    /// Returns the resources that the children of the process have used, as far as it has waited
    /// for them.
    pub fn children_usage(&self) -> Usage {
        self.relations.lock().children_usage
    }

    /// Returns the limit in force with the index `index` (see [`super::limits::index`]).
    pub fn limit(&self, index: usize) -> u64 {
        self.limits.current(index)
    }

    /// Returns all resource limits of the process.
    pub fn limits(&self) -> Limits {
        self.limits.all()
    }

    /// Returns the notifier for descriptors that read signals. It is called after each signal to
    /// the process or to one of its threads.
    pub fn signal_readers(&self) -> Arc<Notifier> {
        let new = || Arc::new(Notifier::new());
        let readers = self.signal_readers.lock().get_or_insert_with(new).clone();
        // SeqCst: a reader checks the pending signals afterwards. A sender checks this flag after
        // it has added a signal.
        self.has_signal_readers.store(true, Ordering::SeqCst);
        readers
    }

    /// Notifies the descriptors that read signals (signalfd) that a signal has come. Does nothing
    /// before the first call of [`Self::signal_readers`], since no task waits then.
    pub(crate) fn tell_signal_readers(&self) {
        // SeqCst: see `signal_readers`. The signal was added under a lock that readers take, too.
        if self.has_signal_readers.load(Ordering::SeqCst) {
            self.signal_readers().notify(PollMask::READABLE);
        }
    }

    /// Returns the notifier for pidfds of the process. It is called when the process ends.
    pub fn end_readers(&self) -> Arc<Notifier> {
        let new = || Arc::new(Notifier::new());
        self.end_readers.lock().get_or_insert_with(new).clone()
    }

    /// Notifies the pidfds of the process that it has ended. Called after `zombie` is set, which
    /// later waiters check.
    pub(super) fn tell_end_readers(&self) {
        let readers = self.end_readers.lock().clone();
        if let Some(readers) = readers {
            readers.notify(PollMask::READABLE);
        }
    }

    /// Returns the pending signals of the process as a whole, without those of its threads.
    pub fn pending_set(&self) -> SigSet {
        self.group.lock().pending.set()
    }

    /// Returns the actions that the process has chosen for its signals.
    pub fn actions(&self) -> Arc<Actions> {
        self.actions.lock().clone()
    }

    /// Returns the credentials of the main thread. If the thread has ended, they are its last ones.
    pub fn credentials(&self) -> Arc<Credentials> {
        self.credentials.lock().clone()
    }

    /// Stores `credentials` as those of the main thread.
    pub(super) fn set_credentials(&self, credentials: Arc<Credentials>) {
        // The old ones are dropped without the lock.
        let old = core::mem::replace(&mut *self.credentials.lock(), credentials);
        drop(old);
    }

    /// Returns whether other processes of the same user may inspect the process
    /// (`PR_SET_DUMPABLE`).
    pub fn is_dumpable(&self) -> bool {
        self.dumpable.load(Ordering::Relaxed) == 1
    }

    /// Returns the value that `personality(2)` set.
    pub fn personality(&self) -> u32 {
        self.personality.load(Ordering::Relaxed)
    }

    /// Returns the value of `/proc/PID/oom_score_adj`.
    pub fn oom_score_adj(&self) -> i32 {
        self.oom_score_adj.load(Ordering::Relaxed)
    }

    /// Sets `/proc/PID/oom_score_adj`, cut to the range -1000 to 1000. With `privileged`, the
    /// caller has `CAP_SYS_RESOURCE`.
    ///
    /// # Errors
    /// Fails with `EACCES` if `adjustment` is below what a privileged caller has set last, or below
    /// 0 if none has, and the caller is not privileged.
    pub fn set_oom_score_adj(&self, adjustment: i32, privileged: bool) -> Result<(), Errno> {
        let adjustment = adjustment.clamp(-1000, 1000);
        // Relaxed (all): as on Linux, one of two calls at once counts.
        if privileged {
            self.least_oom_score_adj
                .store(adjustment, Ordering::Relaxed);
        } else if adjustment < self.least_oom_score_adj.load(Ordering::Relaxed) {
            return Err(Errno::EACCES);
        }
        self.oom_score_adj.store(adjustment, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}
