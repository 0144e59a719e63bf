//! One process: tasks with one address space, open files and signal handlers.

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
use machine::sched::transfers::Transferred;
use machine::sync::{SpinLock, WaitQueue};

/// How a process ended, in Linux's form: exit code in bits 8 to 15, or a signal in bits 0 to 6 and in bit
/// 7 whether there is a core file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WaitStatus(pub u32);

/// In a status: there is a core file.
const CORE: u32 = 0x80;

impl WaitStatus {
    /// It called `exit` with this code.
    pub const fn exited(code: i32) -> Self {
        Self((code.cast_unsigned() & 0xff) << 8)
    }

    /// A signal ended it.
    pub const fn signalled(signal: Signal) -> Self {
        Self(signal.number())
    }

    /// A signal stopped it.
    pub const fn stopped(signal: Signal) -> Self {
        Self(signal.number() << 8 | 0x7f)
    }

    /// It goes on after a stop.
    pub const CONTINUED: Self = Self(0xffff);

    /// The same, with a core file.
    pub const fn with_core(self) -> Self {
        Self(self.0 | CORE)
    }

    /// Whether there is a core file of it.
    pub const fn has_core(self) -> bool {
        self.signal() != 0x7f && self.0 & CORE != 0
    }

    /// The signal that ended it, if one did.
    pub const fn signal(self) -> u32 {
        self.0 & 0x7f
    }

    /// Its exit code.
    pub const fn code(self) -> i32 {
        (self.0 >> 8 & 0xff).cast_signed()
    }
}

/// Whether a process is stopped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It runs.
    No,
    /// By this signal; some threads may be on their way to the stop still.
    By(Signal),
}

/// CPU time and faults, summed.
#[derive(Copy, Clone, Debug, Default)]
pub struct Usage {
    /// In user mode.
    pub user: Nanos,
    /// In system calls.
    pub system: Nanos,
    /// Faults without I/O.
    pub minor_faults: u64,
    /// Faults with I/O.
    pub major_faults: u64,
    /// Switches because the task waited.
    pub voluntary: u64,
    /// Other switches.
    pub involuntary: u64,
    /// Most resident memory, in bytes.
    pub peak_rss: u64,
    /// What was read and written.
    pub transferred: Transferred,
}

impl Usage {
    /// Adds another's.
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

/// What concerns all threads together: who they are, what waits for them, how they end.
pub(crate) struct Group {
    /// The live threads, each at the place that it knows.
    pub(crate) tasks: Vec<Arc<Task>>,
    /// Signals for the process.
    pub(crate) pending: Pending,
    /// How it ends, once that is settled.
    pub(crate) exit: Option<WaitStatus>,
    /// The thread that is in exec and waits until it is alone; its address.
    pub(crate) exec: Option<usize>,
    pub(crate) stop: Stop,
    /// Threads that stand still because of `stop`.
    pub(crate) stopped: usize,
    /// The parent was told of it.
    pub(crate) stop_told: bool,
    /// Of threads that have ended.
    pub(crate) ended: Usage,
    /// Whether no thread is left and the leader was the last that went.
    pub(crate) leader_was_last: bool,
    /// The core file that is being written.
    pub(crate) dump: Option<Dump>,
}

impl Group {
    /// A new thread comes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn enter(&mut self, task: &Arc<Task>) -> Result<(), Errno> {
        self.tasks.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        // Relaxed (all of `place`): the group's lock is held.
        task.place.store(self.tasks.len(), Ordering::Relaxed);
        self.tasks.push(task.clone());
        Ok(())
    }

    /// A thread goes, if it is one.
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

/// How processes hang together. The table's lock is held for every change, so that a look at
/// several processes under it sees one picture.
pub(crate) struct Relations {
    pub(crate) parent: Option<Arc<Process>>,
    /// The children hang together by `next_sibling`: no allocation, so a child can always be
    /// handed to another parent.
    pub(crate) first_child: Option<Arc<Process>>,
    pub(crate) next_sibling: Option<Arc<Process>>,
    /// The number of the sibling before it; 0: it is the first.
    pub(crate) previous_sibling: u32,
    /// Process group.
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// How it ended, when all its threads have and nobody has waited for it.
    pub(crate) zombie: Option<WaitStatus>,
    /// A stop that the parent has not been told of by wait.
    pub(crate) stop_report: Option<Signal>,
    /// A continuation that the parent has not been told of.
    pub(crate) continue_report: bool,
    /// The signal for the parent at the end; 0: none (clone).
    pub(crate) exit_signal: u32,
    /// Resources of children that were waited for.
    pub(crate) children_usage: Usage,
    /// It has called exec (setpgid by the parent is then refused).
    pub(crate) has_execed: bool,
    /// The terminal that controls it.
    pub(crate) terminal: Option<Arc<Terminal>>,
    /// Its parent, of another group in the same session, ended: its group may have nobody any more who could
    /// let it go on.
    pub(crate) lost_parent: bool,
    /// Threads that its threads trace.
    pub(crate) tracees: Vec<Arc<Task>>,
    /// Who traces its main thread.
    pub(crate) tracer: Option<Arc<Process>>,
    /// Of a leader whose terminal was hung up: the group that was in the foreground; else 0.
    pub(crate) hung_group: u32,
}

/// What the process holds while it lives. Drop it where the task may wait.
#[derive(Default)]
pub(crate) struct Resources {
    pub(crate) vm: Option<Arc<AddressSpace>>,
    /// The table of its main thread, or of the last one that was. Its tasks keep it open.
    pub(crate) files: Option<Arc<fs::FileTable>>,
    pub(crate) fs: Option<Arc<fs::Context>>,
    pub(crate) exe: Option<Arc<fs::OpenFile>>,
}

/// A process: one or more tasks with one address space, files and signal handlers.
pub struct Process {
    pid: u32,
    start_time: Nanos,
    /// The thread that made it.
    pub(crate) maker: AtomicU32,
    pub(crate) group: SpinLock<Group>,
    pub(crate) actions: SpinLock<Arc<Actions>>,
    pub(crate) relations: SpinLock<Relations>,
    pub(crate) resources: SpinLock<Resources>,
    pub(crate) limits: OwnLimits,
    /// Those of its main thread, which outlast it.
    credentials: SpinLock<Arc<Credentials>>,
    /// Tasks that wait for children.
    pub(crate) child_events: WaitQueue,
    /// A thread in exec that waits for the others' end.
    pub(crate) thread_events: WaitQueue,
    /// The parent of a vfork waits here until the child has let go of its memory.
    pub(crate) vfork_done: WaitQueue,
    pub(crate) vfork_pending: AtomicBool,
    /// Told of each signal, once somebody has waited for one at a descriptor.
    signal_readers: SpinLock<Option<Arc<Notifier>>>,
    has_signal_readers: AtomicBool,
    /// Told of the end, once somebody has a descriptor of the process.
    end_readers: SpinLock<Option<Arc<Notifier>>>,
    /// Interval and POSIX timers.
    pub(crate) timers: ProcessTimers,
    /// `/proc/PID/oom_score_adj`, -1000 to 1000.
    pub(crate) oom_score_adj: AtomicI32,
    /// It is being killed for its memory.
    pub(crate) oom_victim: AtomicBool,
    /// `PR_SET_DUMPABLE`.
    pub(crate) dumpable: AtomicU32,
    /// `/proc/PID/coredump_filter`.
    pub(crate) core_filter: AtomicU32,
    /// A core file is being written: threads that end wait for that first.
    pub(crate) dumping: AtomicBool,
    /// They wait here.
    pub(crate) dump_done: WaitQueue,
    /// `PR_SET_PDEATHSIG`.
    pub(crate) death_signal: AtomicU32,
    /// A child of it has asked for such a signal, once.
    pub(crate) has_mourners: AtomicBool,
    /// `PR_SET_CHILD_SUBREAPER`.
    pub(crate) subreaper: AtomicBool,
    /// `personality(2)`.
    pub(crate) personality: AtomicU32,
    /// The last thread's name, for the zombie.
    pub(crate) last_name: SpinLock<[u8; super::task::NAME_BYTES]>,
    /// How its main thread was scheduled when that ended.
    pub(crate) last_scheduling: SpinLock<Scheduling>,
    /// Peak resident memory of address spaces it has left.
    pub(crate) peak_rss: AtomicU64,
}

impl Process {
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
            oom_victim: AtomicBool::new(false),
            dumpable: AtomicU32::new(1),
            core_filter: AtomicU32::new(CoreFilter::USUAL.bits()),
            dumping: AtomicBool::new(false),
            dump_done: WaitQueue::new(),
            death_signal: AtomicU32::new(0),
            has_mourners: AtomicBool::new(false),
            subreaper: AtomicBool::new(false),
            personality: AtomicU32::new(0),
            last_name: SpinLock::new([0; super::task::NAME_BYTES]),
            last_scheduling: SpinLock::new(Scheduling::USUAL),
            peak_rss: AtomicU64::new(0),
        }
    }

    /// Process number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it was made, on the monotonic clock.
    pub fn start_time(&self) -> Nanos {
        self.start_time
    }

    /// Its address space; none: a zombie or the kernel.
    pub fn vm(&self) -> Option<Arc<AddressSpace>> {
        self.resources.lock().vm.clone()
    }

    /// Its open files.
    pub fn files(&self) -> Option<Arc<fs::FileTable>> {
        let resources = self.resources.lock();
        resources.files.clone()
    }

    /// Its root, working directory and umask.
    pub fn fs(&self) -> Option<Arc<fs::Context>> {
        self.resources.lock().fs.clone()
    }

    /// The program that it runs.
    pub fn exe(&self) -> Option<Arc<fs::OpenFile>> {
        self.resources.lock().exe.clone()
    }

    /// Its parent's number; 0: none.
    pub fn ppid(&self) -> u32 {
        self.relations
            .lock()
            .parent
            .as_ref()
            .map_or(0, |parent| parent.pid)
    }

    /// Its process group.
    pub fn pgid(&self) -> u32 {
        self.relations.lock().group
    }

    /// Its session.
    pub fn session(&self) -> u32 {
        self.relations.lock().session
    }

    /// How many threads live.
    pub fn thread_count(&self) -> usize {
        self.group.lock().tasks.len()
    }

    /// Whether all threads but this one have ended, or begun to.
    pub(crate) fn is_last_thread(&self, task: TaskRef) -> bool {
        let group = self.group.lock();
        let mut others = group.tasks.iter().filter(|other| !task.is(other));
        others.all(|other| other.ends())
    }

    /// The number of threads that `/proc` lists: those that live, and the leader, which is listed
    /// until the process is reaped.
    pub fn listed_thread_count(&self) -> usize {
        let group = self.group.lock();
        let leader = group.tasks.iter().any(|task| task.tid() == self.pid);
        group.tasks.len() + usize::from(!leader)
    }

    /// Returns the numbers of the threads that `/proc` lists, ascending: those that live, and the
    /// leader, which is listed until the process is reaped. None where there is no memory for the
    /// list.
    pub fn listed_threads(&self) -> Vec<u32> {
        let mut ids = Vec::new();
        loop {
            let wanted = self.thread_count() + 1;
            if ids.try_reserve(wanted).is_err() {
                return ids;
            }
            let group = self.group.lock();
            if group.tasks.len() + 1 > ids.capacity() {
                continue; // More were made meanwhile; bounded by the number of tasks.
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

    /// The live thread with this number.
    pub fn thread(&self, tid: u32) -> Option<Arc<Task>> {
        self.group
            .lock()
            .tasks
            .iter()
            .find(|task| task.tid() == tid)
            .cloned()
    }

    /// A live thread: the one whose number is the process's, or any.
    pub fn main_thread(&self) -> Option<Arc<Task>> {
        let group = self.group.lock();
        let main = group.tasks.iter().find(|task| task.tid() == self.pid);
        main.or(group.tasks.first()).cloned()
    }

    /// Its name (`comm`).
    pub fn name(&self) -> super::Name {
        match self.main_thread() {
            Some(task) => task.name(),
            None => super::Name::from_padded(*self.last_name.lock()),
        }
    }

    /// Whether it has ended and nobody has waited for it yet.
    pub fn is_zombie(&self) -> bool {
        self.relations.lock().zombie.is_some()
    }

    /// Whether it is stopped, or about to be.
    pub(crate) fn is_stopped(&self) -> bool {
        self.group.lock().stop != Stop::No
    }

    /// The letter of its leader's state in `/proc/PID/stat`: `Z` once the leader has ended, whether
    /// other threads live or not.
    pub fn state_letter(&self) -> u8 {
        if self.is_zombie() {
            return b'Z';
        }
        let group = self.group.lock();
        match group.tasks.iter().find(|task| task.tid() == self.pid) {
            Some(leader) => leader.state_letter(),
            // It still runs, to give up what the process holds.
            None if group.leader_was_last => b'R',
            None => b'Z',
        }
    }

    /// What its threads have used, those that ended too, without a look at the present address
    /// space.
    pub(crate) fn usage_of_tasks(&self) -> Usage {
        let group = self.group.lock();
        let mut usage = group.ended;
        for task in &group.tasks {
            usage.add(&Usage::of_task(task));
        }
        usage.peak_rss = self.peak_rss.load(Ordering::Relaxed);
        usage
    }

    /// What its threads have used, those that ended too.
    pub fn usage(&self) -> Usage {
        let mut usage = self.usage_of_tasks();
        if let Some(vm) = self.vm() {
            usage.peak_rss = usage.peak_rss.max(vm.usage().peak_rss);
        }
        usage
    }

    /// The numbers of the children that its thread `maker` made, zombies too. Children whose maker
    /// has ended are the main thread's.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn children_of(&self, maker: u32) -> Result<Vec<u32>, Errno> {
        let mut numbers = Vec::new();
        let main = maker == self.pid;
        let _table = super::table::lock();
        let mut next = self.relations.lock().first_child.clone();
        // One turn for each child; the table's lock keeps them together.
        while let Some(child) = next {
            // Relaxed: set before the child was entered.
            let made_by = child.maker.load(Ordering::Relaxed);
            if made_by == maker || main && self.thread(made_by).is_none() {
                numbers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                numbers.push(child.pid);
            }
            next = child.relations.lock().next_sibling.clone();
        }
        numbers.reverse();
        Ok(numbers)
    }

    /// What the children have used that it has waited for.
    pub fn children_usage(&self) -> Usage {
        self.relations.lock().children_usage
    }

    /// One of its limits (see [`super::limits::index`]).
    pub fn limit(&self, index: usize) -> u64 {
        self.limits.current(index)
    }

    /// All its limits.
    pub fn limits(&self) -> Limits {
        self.limits.all()
    }

    /// Where is told of each signal.
    pub fn signal_readers(&self) -> Arc<Notifier> {
        let new = || Arc::new(Notifier::new());
        let readers = self.signal_readers.lock().get_or_insert_with(new).clone();
        // SeqCst: a reader looks at what waits afterwards, a sender at this after it has added a signal.
        self.has_signal_readers.store(true, Ordering::SeqCst);
        readers
    }

    /// Tells those who read signals from a descriptor that there is one.
    pub(crate) fn tell_signal_readers(&self) {
        // SeqCst: see `signal_readers`; the signal was added under a lock that readers take, too.
        if self.has_signal_readers.load(Ordering::SeqCst) {
            self.signal_readers().notify(PollMask::READABLE);
        }
    }

    /// Where is told of the end.
    pub fn end_readers(&self) -> Arc<Notifier> {
        let new = || Arc::new(Notifier::new());
        self.end_readers.lock().get_or_insert_with(new).clone()
    }

    /// Tells those who wait for the end at a descriptor, when `zombie` is set: who comes later looks at
    /// that.
    pub(super) fn tell_end_readers(&self) {
        let readers = self.end_readers.lock().clone();
        if let Some(readers) = readers {
            readers.notify(PollMask::READABLE);
        }
    }

    /// Signals that wait for the process as a whole.
    pub fn pending_set(&self) -> SigSet {
        self.group.lock().pending.set()
    }

    /// Its signal handlers.
    pub fn actions(&self) -> Arc<Actions> {
        self.actions.lock().clone()
    }

    /// Who its main thread acts as.
    pub fn credentials(&self) -> Arc<Credentials> {
        self.credentials.lock().clone()
    }

    /// Its main thread acts as somebody else from now on.
    pub(super) fn set_credentials(&self, credentials: Arc<Credentials>) {
        // The old ones go without the lock.
        let old = core::mem::replace(&mut *self.credentials.lock(), credentials);
        drop(old);
    }

    /// Whether those who act as its user may look into it (`PR_SET_DUMPABLE`).
    pub fn is_dumpable(&self) -> bool {
        self.dumpable.load(Ordering::Relaxed) == 1
    }

    /// What `personality(2)` set.
    pub fn personality(&self) -> u32 {
        self.personality.load(Ordering::Relaxed)
    }

    /// `/proc/PID/oom_score_adj`.
    pub fn oom_score_adj(&self) -> i32 {
        self.oom_score_adj.load(Ordering::Relaxed)
    }

    /// Sets `/proc/PID/oom_score_adj`; the caller has checked the range -1000 to 1000.
    pub fn set_oom_score_adj(&self, adjustment: i32) {
        self.oom_score_adj
            .store(adjustment.clamp(-1000, 1000), Ordering::Relaxed);
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}
