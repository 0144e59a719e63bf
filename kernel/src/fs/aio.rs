//! Asynchronous requests of `io_submit(2)`: contexts, their events, and waiting polls.
//!
//! Reads, writes and syncs are done while they are submitted, as Linux does with buffered files. A
//! poll whose file is not ready waits in its context. The file's [`Notifier`] has a kernel thread
//! look at the file, and that thread ends the poll. A context belongs to an address space. It ends
//! when the last task leaves the space, or by `io_destroy(2)`.

use super::epoll::EpollFile;
use super::eventfd::EventFile;
use super::file::OpenFile;
use super::poll::{Notifier, PollMask, Taken, Watcher};
use super::timerfd::{Due, TimerFile};
use crate::vm::AddressSpace;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::sched;
use machine::sync::{Mutex, SpinLock, WaitQueue};

/// The largest value of [`LIMIT`].
pub const MOST: u64 = i64::MAX as u64;
/// The most requests that all contexts together may reserve room for (`fs.aio-max-nr`).
pub static LIMIT: AtomicU64 = AtomicU64::new(1 << 16);
/// The number of requests that all contexts together have reserved room for (`fs.aio-nr`).
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// The number of events that are handed out each time that the lock of a context is held.
const BATCH: usize = 32;
/// The most waiting polls of files that become ready by the passage of time alone. The thread looks
/// at each of them.
const MOST_TIMED: usize = 1024;

/// Polls whose files may be ready. The queue has room for all polls, so adding one allocates
/// nothing.
static DUE: SpinLock<VecDeque<Arc<Poll>>> = SpinLock::new(VecDeque::new());
/// The number of polls that exist, waiting or about to wait.
static POLLS: AtomicUsize = AtomicUsize::new(0);
/// Polls whose files become ready by the passage of time alone.
static TIMED: SpinLock<Vec<Weak<Poll>>> = SpinLock::new(Vec::new());
/// The number of the last poll.
static LAST: AtomicU64 = AtomicU64::new(0);
static WORKER: WaitQueue = WaitQueue::new();

/// Returns the number of requests that all contexts have reserved room for.
pub fn reserved() -> u64 {
    RESERVED.load(Ordering::Relaxed)
}

/// The event of a completed request.
#[derive(Copy, Clone, Debug, Default)]
pub struct Event {
    /// The value that the program chose (`aio_data`).
    pub data: u64,
    /// The address of the request's control block.
    pub object: u64,
    /// The result of the call: a count, or a negated error number.
    pub result: i64,
}

/// A function that receives one batch of events. The first argument is the number of events in
/// earlier batches of the same call.
pub type Put<'a> = dyn FnMut(usize, &[Event]) -> Result<(), Errno> + 'a;

/// The key of a waiting poll: the address of its control block, and a number that no other poll
/// has.
type Key = (u64, u64);

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    polls: BTreeMap<Key, Arc<Poll>>,
    /// The number of requests that are being submitted.
    running: usize,
    /// Whether the context has ended.
    over: bool,
}

/// A context of asynchronous requests.
pub struct Context {
    /// The most requests that may be incomplete or have an event that was not taken.
    most: usize,
    /// The number of requests that this context adds to [`RESERVED`].
    asked: u64,
    state: SpinLock<State>,
    /// Held while a task takes events.
    taking: Mutex<()>,
    queue: WaitQueue,
}

impl Drop for Context {
    fn drop(&mut self) {
        // Relaxed, here and below: the counter orders no other access.
        RESERVED.fetch_sub(self.asked, Ordering::Relaxed);
    }
}

/// A reserved place for the completion event of a request that is being submitted. Dropping this
/// releases the place.
pub struct Room<'a>(&'a Arc<Context>);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
    }
}

impl Room<'_> {
    /// Completes the request: queues `event` in the context, where the program takes it.
    pub fn complete(self, event: Event) {
        self.0.enter(event);
    }

    /// Polls `file` for the events `wanted`, and completes the request when the file is ready. The
    /// completion event then gets the fields `object` and `data`, and the eventfd `signal` is
    /// signaled.
    ///
    /// # Errors
    /// Fails with `EINVAL` if the file is not ready and has no notifier, or if the context has
    /// ended. Fails with `EAGAIN` if memory is short or too many polls wait for timers.
    pub fn poll(
        self,
        file: Arc<OpenFile>,
        wanted: PollMask,
        [object, data]: [u64; 2],
        signal: Option<Arc<OpenFile>>,
    ) -> Result<(), Errno> {
        let ready = file.file().poll() & wanted;
        if !ready.is_empty() {
            self.complete(Event {
                data,
                object,
                result: i64::from(ready.bits()),
            });
            tell(signal.as_deref());
            return Ok(());
        }
        let notifier = file.file().notifier().ok_or(Errno::EINVAL)?;
        let poll = Arc::new_cyclic(|this: &Weak<Poll>| Poll {
            this: this.clone(),
            key: (object, LAST.fetch_add(1, Ordering::Relaxed)),
            data,
            file,
            wanted,
            signal,
            context: Arc::downgrade(self.0),
            notifier: notifier.clone(),
            is_due: AtomicBool::new(false),
        });
        let waiting = POLLS.fetch_add(1, Ordering::Relaxed);
        // From here on the drop of `poll` subtracts it again.
        let room = DUE.lock().try_reserve(waiting + 1);
        room.map_err(|_| Errno::EAGAIN)?;
        poll.enter_timed()?;
        {
            let mut state = self.0.state.lock();
            if state.over {
                return Err(Errno::EINVAL);
            }
            state.polls.insert(poll.key, poll.clone());
        }
        if notifier.watch(poll.clone()).is_err() {
            let ours = self.0.state.lock().polls.remove(&poll.key);
            return if ours.is_some() {
                Err(Errno::EAGAIN)
            } else {
                Ok(())
            };
        }
        // The file may have become ready before it was watched, or the poll may have been ended.
        let waits = self.0.state.lock().polls.contains_key(&poll.key);
        if waits {
            poll.mark_due();
        } else {
            poll.unwatch();
        }
        Ok(())
    }
}

/// Signals the eventfd `signal` that a request is complete. Does nothing if `signal` is `None` or
/// is no eventfd.
pub fn tell(signal: Option<&OpenFile>) {
    if let Some(event) = signal.and_then(|file| file.file().downcast::<EventFile>()) {
        event.signal();
    }
}

impl Context {
    /// Adds `event` and wakes the tasks that wait for events. The caller has reserved the room.
    fn enter(&self, event: Event) {
        let mut state = self.state.lock();
        if !state.over {
            state.events.push_back(event);
        }
        drop(state);
        self.queue.wake_all();
    }

    /// Reserves room for the event of a request.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if memory is short, or if [`Self::most`] requests are incomplete or have
    /// an event that was not taken. Fails with `EINVAL` if the context has ended.
    pub fn room(self: &Arc<Self>) -> Result<Room<'_>, Errno> {
        let mut state = self.state.lock();
        if state.over {
            return Err(Errno::EINVAL);
        }
        let outstanding = state.polls.len() + state.running;
        if outstanding + state.events.len() >= self.most {
            return Err(Errno::EAGAIN);
        }
        state
            .events
            .try_reserve(outstanding + 1)
            .map_err(|_| Errno::EAGAIN)?;
        state.running += 1;
        Ok(Room(self))
    }

    /// Returns the most requests of this context that may be outstanding. A request is outstanding
    /// while it is incomplete or its event was not taken.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Takes up to `most` events and passes them to `put` in batches. Waits until `least` events
    /// were taken or `deadline` has passed. With `None` for `deadline`, waits without a limit.
    /// Returns the number of events taken.
    ///
    /// # Errors
    /// Fails with the errors of `put`, with `EINTR` if a signal came, and with `EINVAL` if the
    /// context has ended. If events were taken before the error, returns their number instead.
    pub fn take(
        &self,
        [least, most]: [usize; 2],
        deadline: Option<Nanos>,
        put: &mut Put<'_>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        // This loop ends: each wait ends with events, at the deadline, by a signal or with the
        // context.
        loop {
            let over = deadline.is_some_and(|deadline| deadline <= clock::now());
            let taken = self.take_ready(&mut done, most, put);
            let ended = match taken {
                Err(error) => Some(error),
                Ok(()) if done >= least || over => return Ok(done),
                Ok(()) => {
                    let ready = || {
                        let state = self.state.lock();
                        state.over || !state.events.is_empty()
                    };
                    let waited = match deadline {
                        Some(deadline) => self.queue.wait_deadline(ready, deadline).map(drop),
                        None => self.queue.wait(ready),
                    };
                    waited.err().map(|_| Errno::EINTR)
                }
            };
            match ended {
                Some(error) if done == 0 => return Err(error),
                Some(_) => return Ok(done),
                None => {}
            }
        }
    }

    fn take_ready(&self, done: &mut usize, most: usize, put: &mut Put<'_>) -> Result<(), Errno> {
        let _alone = self.taking.lock();
        while *done < most {
            let mut batch = [Event::default(); BATCH];
            let mut count = 0;
            {
                let state = self.state.lock();
                if state.over {
                    return Err(Errno::EINVAL);
                }
                let ready = state.events.iter().take((most - *done).min(BATCH));
                for (place, event) in batch.iter_mut().zip(ready) {
                    *place = *event;
                    count += 1;
                }
            }
            if count == 0 {
                break;
            }
            put(*done, &batch[..count])?;
            // `taking` keeps other tasks from taking events, and new events are added behind these.
            let mut state = self.state.lock();
            let there = count.min(state.events.len());
            state.events.drain(..there);
            *done += count;
        }
        Ok(())
    }

    /// Ends a waiting poll whose control block is at the address `object`. The completion event of
    /// the poll has the result 0.
    ///
    /// # Errors
    /// Fails with `EINVAL` if no poll with that control block waits.
    pub fn cancel(&self, object: u64) -> Result<(), Errno> {
        let poll = {
            let state = self.state.lock();
            let mut polls = state.polls.range((object, 0)..=(object, u64::MAX));
            polls.next().map(|(_, poll)| poll.clone())
        };
        match poll {
            Some(poll) if self.end_poll(&poll, PollMask::empty()) => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Ends `poll` with the readiness `ready` of its file. Returns `false` if the poll has ended
    /// before.
    fn end_poll(&self, poll: &Arc<Poll>, ready: PollMask) -> bool {
        let mut state = self.state.lock();
        let Some(ours) = state.polls.remove(&poll.key) else {
            return false;
        };
        state.events.push_back(Event {
            data: poll.data,
            object: poll.key.0,
            result: i64::from(ready.bits()),
        });
        drop(state);
        drop(ours);
        poll.unwatch();
        self.queue.wake_all();
        tell(poll.signal.as_deref());
        true
    }

    /// Ends the context. Drops its waiting polls, which never complete, and its events. Tasks that
    /// wait for events get `EINVAL`. Does not wait for requests that other tasks are submitting.
    fn end(&self) {
        let (polls, events) = {
            let mut state = self.state.lock();
            state.over = true;
            let polls = core::mem::take(&mut state.polls);
            (polls, core::mem::take(&mut state.events))
        };
        drop(events);
        for poll in polls.into_values() {
            poll.unwatch();
            sched::cond_resched();
        }
        self.queue.wake_all();
    }
}

/// A waiting poll.
struct Poll {
    this: Weak<Self>,
    key: Key,
    data: u64,
    file: Arc<OpenFile>,
    wanted: PollMask,
    signal: Option<Arc<OpenFile>>,
    context: Weak<Context>,
    notifier: Arc<Notifier>,
    /// Whether the poll is in [`DUE`].
    is_due: AtomicBool,
}

impl Drop for Poll {
    fn drop(&mut self) {
        POLLS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watcher for Poll {
    fn event(&self, mask: PollMask) -> Taken {
        if mask.is_empty() || mask.intersects(self.wanted) {
            self.mark_due();
        }
        Taken::Shared
    }
    fn is_exclusive(&self) -> bool {
        false
    }
}

impl Poll {
    /// Makes the thread look at the file of this poll.
    fn mark_due(&self) {
        // AcqRel: pairs with the thread's store, so that the thread looks at the file after the
        // change that made the file ready.
        if self.is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(this) = self.this.upgrade() {
            DUE.lock().push_back(this);
            WORKER.wake_one();
        }
    }

    fn unwatch(&self) {
        if let Some(this) = self.this.upgrade() {
            let watcher: Arc<dyn Watcher> = this;
            self.notifier.unwatch(&watcher);
        }
    }

    /// Ends the poll if the file is ready.
    fn look(self: &Arc<Self>) {
        let ready = self.file.file().poll() & self.wanted;
        if ready.is_empty() {
            return;
        }
        if let Some(context) = self.context.upgrade() {
            context.end_poll(self, ready);
        }
    }

    /// Adds the poll to [`TIMED`] if its file becomes ready by the passage of time alone.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if [`MOST_TIMED`] such polls wait or memory is short.
    fn enter_timed(&self) -> Result<(), Errno> {
        let file = self.file.file();
        let is_timed =
            file.downcast::<TimerFile>().is_some() || file.downcast::<EpollFile>().is_some();
        if !is_timed || !self.wanted.intersects(PollMask::READABLE) {
            return Ok(());
        }
        let mut timed = TIMED.lock();
        if timed.len() >= MOST_TIMED {
            timed.retain(|poll| poll.strong_count() > 0);
        }
        if timed.len() >= MOST_TIMED || timed.try_reserve(1).is_err() {
            return Err(Errno::EAGAIN);
        }
        timed.push(self.this.clone());
        Ok(())
    }

    /// Returns the time at which the file becomes ready by itself. Returns `None` if there is no
    /// such time.
    fn due_at(&self) -> Option<Nanos> {
        let file = self.file.file();
        if let Some(set) = file.downcast::<EpollFile>() {
            return set.next_timer();
        }
        match file.downcast::<TimerFile>()?.due_at() {
            Due::Now(_) => Some(Nanos(0)),
            Due::At(at) => Some(at),
            Due::Never => None,
        }
    }
}

/// Starts the kernel thread `kaiod`, which completes waiting polls when their files are ready.
pub fn start_thread() {
    sched::spawn_kernel("kaiod", run);
}

fn run() {
    loop {
        while let Some(poll) = next_due() {
            poll.look();
            drop(poll);
            sched::cond_resched();
        }
        let is_due = || !DUE.lock().is_empty();
        match next_timed() {
            Some(at) => {
                WORKER.wait_uninterruptible_deadline(is_due, at);
            }
            None => WORKER.wait_uninterruptible(is_due),
        }
    }
}

/// Takes the next poll whose file may be ready out of the queue. Returns `None` if the queue is
/// empty.
fn next_due() -> Option<Arc<Poll>> {
    let poll = DUE.lock().pop_front()?;
    // Release: pairs with the swap in `mark_due`.
    poll.is_due.store(false, Ordering::Release);
    Some(poll)
}

/// Marks the timed polls due whose time has come. Returns the earliest time of the others, or
/// `None` if there are no others.
fn next_timed() -> Option<Nanos> {
    let mut next: Option<Nanos> = None;
    // From the last to the first: if `enter_timed` removes polls in between, those that follow move
    // down, so none is passed over. A poll that it adds is due, so the thread looks again.
    let mut at = TIMED.lock().len();
    while at > 0 {
        at -= 1;
        let poll = {
            let mut timed = TIMED.lock();
            let Some(poll) = timed.get(at) else { continue };
            let poll = poll.upgrade();
            if poll.is_none() {
                timed.swap_remove(at);
            }
            poll
        };
        sched::cond_resched();
        let Some(poll) = poll else { continue };
        match poll.due_at() {
            Some(due) if due <= clock::now() => poll.mark_due(),
            Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
            None => {}
        }
    }
    next
}

/// The contexts of an address space, by their numbers.
#[derive(Default)]
struct Contexts(SpinLock<BTreeMap<u64, Arc<Context>>>);

impl Drop for Contexts {
    fn drop(&mut self) {
        // The last reference to a space may be dropped in a walk over the mappers of a file, where
        // no file may be closed.
        debug_assert!(self.0.get_mut().is_empty(), "contexts outlast their tasks");
    }
}

fn contexts(space: &AddressSpace) -> Option<&Contexts> {
    space.requests()?.downcast_ref()
}

/// Creates the context `number` in `space`. At most `most` requests of the context may be
/// outstanding. The context counts as `asked` requests in [`LIMIT`]. Ends an older context with the
/// same number.
///
/// # Errors
/// Fails with `EAGAIN` if all contexts together would reserve more than [`LIMIT`].
pub fn make(space: &AddressSpace, number: u64, asked: u64, most: usize) -> Result<(), Errno> {
    let limit = LIMIT.load(Ordering::Relaxed);
    let reserve = |sum: u64| sum.checked_add(asked).filter(|&sum| sum <= limit);
    let reserved = RESERVED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
    reserved.map_err(|_| Errno::EAGAIN)?;
    let context = Arc::new(Context {
        most,
        asked,
        state: SpinLock::new(State::default()),
        taking: Mutex::new(()),
        queue: WaitQueue::new(),
    });
    space.set_requests(|| Arc::new(Contexts::default()));
    let all = contexts(space).ok_or(Errno::EAGAIN)?;
    // `number` is an address. A context that still has this number has lost its memory to the new
    // one.
    let old = all.0.lock().insert(number, context);
    if let Some(old) = old {
        old.end();
    }
    Ok(())
}

/// Returns the context `number` of `space`.
///
/// # Errors
/// Fails with `EINVAL` if `space` has no such context.
pub fn find(space: &AddressSpace, number: u64) -> Result<Arc<Context>, Errno> {
    let all = contexts(space).ok_or(Errno::EINVAL)?;
    all.0.lock().get(&number).cloned().ok_or(Errno::EINVAL)
}

/// Ends all contexts of `space` as [`destroy`] does, because no task uses `space` any more. The
/// caller holds no spin lock.
pub fn end_all(space: &AddressSpace) {
    let Some(contexts) = contexts(space) else {
        return;
    };
    let all = core::mem::take(&mut *contexts.0.lock());
    for context in all.into_values() {
        context.end();
        sched::cond_resched();
    }
}

/// Ends the context `number` of `space` (`io_destroy(2)`). Drops its waiting polls and its events,
/// and does not wait for them. Tasks that wait for its events get `EINVAL`.
///
/// # Errors
/// Fails with `EINVAL` if `space` has no such context.
pub fn destroy(space: &AddressSpace, number: u64) -> Result<(), Errno> {
    let all = contexts(space).ok_or(Errno::EINVAL)?;
    let context = all.0.lock().remove(&number).ok_or(Errno::EINVAL)?;
    context.end();
    Ok(())
}
