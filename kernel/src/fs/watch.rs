//! Watches: requests to learn of events of a node.
//!
//! Nodes and file systems do not know watches. System calls and open files report here what changes
//! a node. They first check whether there is any watch at all ([`active`]), so without watches a
//! change costs one load. Watches are in buckets by a hash of their node. A watch keeps its node
//! until the node's last name is removed. The end of the node, which is reported to [`gone`], then
//! ends the watch.
//!
//! Locks are taken in this order: a bucket, then the listener's locks. They are spin locks, and the
//! last reference to a node or file is never dropped under them.

use super::flags::FileKind;
use super::node::{NodeId, NodeRef, same_mount, unbound};
use alloc::sync::Arc;
use alloc::vec::Vec;
use bitflags::bitflags;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering, fence};
use linux_raw_sys::general as raw;
use logic::errno::Errno;
use machine::sync::SpinLock;

bitflags! {
    /// Events and properties of a watch, with Linux's numbers (`IN_*`).
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Events: u32 {
        /// The node was read.
        const ACCESS = raw::IN_ACCESS;
        /// The node was written or truncated.
        const MODIFY = raw::IN_MODIFY;
        /// The attributes of the node changed.
        const ATTRIB = raw::IN_ATTRIB;
        /// The node was closed after it was open for writing.
        const CLOSE_WRITE = raw::IN_CLOSE_WRITE;
        /// The node was closed after it was not open for writing.
        const CLOSE_NOWRITE = raw::IN_CLOSE_NOWRITE;
        /// The node was opened.
        const OPEN = raw::IN_OPEN;
        /// An entry was moved out of this directory.
        const MOVED_FROM = raw::IN_MOVED_FROM;
        /// An entry was moved into this directory.
        const MOVED_TO = raw::IN_MOVED_TO;
        /// An entry was created.
        const CREATE = raw::IN_CREATE;
        /// An entry was removed.
        const DELETE = raw::IN_DELETE;
        /// The node is gone.
        const DELETE_SELF = raw::IN_DELETE_SELF;
        /// The node was moved.
        const MOVE_SELF = raw::IN_MOVE_SELF;
        /// The file system was unmounted.
        const UNMOUNT = raw::IN_UNMOUNT;
        /// Events were lost.
        const OVERFLOW = raw::IN_Q_OVERFLOW;
        /// The watch has ended.
        const IGNORED = raw::IN_IGNORED;
        /// Only a directory may be watched.
        const ONLY_DIRECTORY = raw::IN_ONLYDIR;
        /// A symbolic link itself is watched.
        const NO_FOLLOW = raw::IN_DONT_FOLLOW;
        /// Events of files that have left the directory are not reported.
        const EXCLUDE_UNLINKED = raw::IN_EXCL_UNLINK;
        /// Fails if the watch exists.
        const MASK_CREATE = raw::IN_MASK_CREATE;
        /// Adds the events to a watch that exists.
        const MASK_ADD = raw::IN_MASK_ADD;
        /// The event happened to a directory.
        const DIRECTORY = raw::IN_ISDIR;
        /// The first event ends the watch.
        const ONE_SHOT = raw::IN_ONESHOT;
    }
}

impl Events {
    /// The events that a program can ask for.
    pub const ALL: Self = Self::from_bits_retain(raw::IN_ALL_EVENTS);
    /// The bits that a watch stores: its events, and its own properties.
    const KEPT: Self = Self::ALL
        .union(Self::EXCLUDE_UNLINKED)
        .union(Self::ONE_SHOT);
}

/// The watch of one listener on one node.
pub struct Watch {
    id: NodeId,
    /// The number among the watches of its listener, set when the listener adds the watch.
    number: AtomicI32,
    wanted: AtomicU32,
    /// Whether the event of a one-shot watch has come. The watch will be removed.
    ended: AtomicBool,
    /// The node, until its last name is removed.
    node: SpinLock<Option<NodeRef>>,
    listener: Arc<dyn Listener>,
}

impl Watch {
    /// Returns the identity of the node that is watched.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the number that the listener knows the watch by.
    pub fn number(&self) -> i32 {
        // Relaxed, here and below: changed with the bucket locked.
        self.number.load(Ordering::Relaxed)
    }

    /// Sets the number, before another task knows the watch.
    pub fn set_number(&self, number: i32) {
        self.number.store(number, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the events that the listener wants.
    pub fn wanted(&self) -> Events {
        Events::from_bits_retain(self.wanted.load(Ordering::Relaxed))
    }
}

/// Receives events. All methods except the first run with a bucket locked: they are quick, allocate
/// nothing and drop no node.
pub trait Listener: Send + Sync {
    /// Makes room for another watch.
    ///
    /// # Errors
    /// Fails with `ENOSPC` if there are too many watches, and with `ENOMEM`.
    fn prepare(&self) -> Result<(), Errno>;
    /// Handles `events` of the node of `watch`, or of the node's entry `name` if that is not empty.
    /// The two events of one move have the same `cookie`, which is 0 for other events.
    fn event(&self, watch: &Watch, events: Events, cookie: u32, name: &[u8]);
    /// Adds a watch, sets its number, and returns the number. Returns `None` if the room of
    /// [`Self::prepare`] is used up.
    ///
    /// # Errors
    /// Fails with `ENOSPC` if no number is left.
    fn enter(&self, watch: &Arc<Watch>) -> Result<Option<i32>, Errno>;
    /// Removes the watch `number`, which has ended, and returns it. Returns `None` if there is no
    /// such watch.
    fn leave(&self, number: i32) -> Option<Arc<Watch>>;
}

const BUCKETS: usize = 256;

struct Bucket {
    /// The number of watches, to be read without the lock.
    count: AtomicUsize,
    /// The watches, sorted by the identity of the node.
    watches: SpinLock<Vec<Arc<Watch>>>,
}

static TABLE: [Bucket; BUCKETS] = [const {
    Bucket {
        count: AtomicUsize::new(0),
        watches: SpinLock::new(Vec::new()),
    }
}; BUCKETS];

/// The number of all watches.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any node is watched.
#[inline]
pub fn active() -> bool {
    // Relaxed: a watch that is added during a call may miss what that call does.
    WATCHES.load(Ordering::Relaxed) != 0
}

/// Returns whether any node is watched, for a caller that has just removed a name. A task that adds
/// a watch at the same time sees the removal, or its watch is seen here.
pub fn active_after_change() -> bool {
    fence(Ordering::SeqCst);
    active()
}

/// Returns the number of watches.
pub fn count() -> usize {
    WATCHES.load(Ordering::Relaxed)
}

fn bucket(id: NodeId) -> &'static Bucket {
    let mixed = (id.inode ^ id.device << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The upper eight bits.
    &TABLE[usize::from(mixed.to_be_bytes()[0])]
}

/// Returns the range of the watches of `id` in a bucket.
fn range(watches: &[Arc<Watch>], id: NodeId) -> core::ops::Range<usize> {
    let first = watches.partition_point(|watch| watch.id < id);
    let count = watches[first..].partition_point(|watch| watch.id == id);
    first..first + count
}

impl Bucket {
    /// Removes the watch at the index `at` from the bucket and returns it. The caller must remove
    /// it from its listener too.
    fn take(&self, watches: &mut Vec<Arc<Watch>>, at: usize) -> Arc<Watch> {
        self.count.fetch_sub(1, Ordering::Relaxed);
        WATCHES.fetch_sub(1, Ordering::Relaxed);
        watches.remove(at)
    }
}

/// Makes room for one more element in a list behind a lock. The memory is allocated without the
/// lock.
///
/// # Errors
/// Fails with `ENOMEM`.
pub(super) fn make_room<S, T>(
    lock: &SpinLock<S>,
    list: impl Fn(&mut S) -> &mut Vec<T>,
) -> Result<(), Errno> {
    let length = {
        let mut locked = lock.lock();
        let list = list(&mut locked);
        if list.len() < list.capacity() {
            return Ok(());
        }
        list.len()
    };
    let mut larger = Vec::new();
    larger
        .try_reserve_exact((length * 2).max(4))
        .map_err(|_| Errno::ENOMEM)?;
    let mut locked = lock.lock();
    let list = list(&mut locked);
    // Other tasks may have added elements in between, or enlarged the list.
    if list.len() == list.capacity() && list.len() < larger.capacity() {
        larger.append(list);
        core::mem::swap(list, &mut larger);
    }
    drop(locked);
    Ok(())
}

fn same(a: &Arc<dyn Listener>, b: &Arc<dyn Listener>) -> bool {
    let address = |listener: &Arc<dyn Listener>| Arc::as_ptr(listener).cast::<()>();
    core::ptr::eq(address(a), address(b))
}

/// Changes the watch of `id` by `listener`. Returns the watch's number, or `None` if there is no
/// such watch. Fails with `EEXIST` if `asked` has `MASK_CREATE`.
fn change(
    watches: &[Arc<Watch>],
    id: NodeId,
    listener: &Arc<dyn Listener>,
    asked: Events,
) -> Option<Result<i32, Errno>> {
    let watch = watches[range(watches, id)]
        .iter()
        .find(|watch| same(&watch.listener, listener) && !watch.has_ended())?;
    if asked.contains(Events::MASK_CREATE) {
        return Some(Err(Errno::EEXIST));
    }
    let before = if asked.contains(Events::MASK_ADD) {
        watch.wanted()
    } else {
        Events::empty()
    };
    let wanted = before | asked & Events::KEPT;
    watch.wanted.store(wanted.bits(), Ordering::Relaxed);
    Some(Ok(watch.number()))
}

/// Watches `node` for the events `asked`, which go to `listener`. If the listener watches the node
/// already, changes the events of that watch. Returns the number of the watch.
///
/// # Errors
/// Fails with `EEXIST` if the watch exists and `asked` has `MASK_CREATE`. Fails with `ENOENT` if
/// the file system is gone, with `ENOMEM`, and with the errors of [`Listener::prepare`] and
/// [`Listener::enter`].
pub fn add(node: &NodeRef, listener: &Arc<dyn Listener>, asked: Events) -> Result<i32, Errno> {
    let id = node.id();
    let bucket = bucket(id);
    // The end of the last use ends the watches.
    let _hold = node.hold();
    if node.is_unmounted() {
        return Err(Errno::ENOENT);
    }
    if let Some(changed) = change(&bucket.watches.lock(), id, listener, asked) {
        return changed;
    }
    // Memory is allocated before the bucket is locked.
    let watch = Arc::new(Watch {
        id,
        number: AtomicI32::new(0),
        wanted: AtomicU32::new((asked & Events::KEPT).bits()),
        ended: AtomicBool::new(false),
        node: SpinLock::new(Some(unbound(node.clone()))),
        listener: listener.clone(),
    });
    let number = loop {
        listener.prepare()?;
        make_room(&bucket.watches, |watches| watches)?;
        let mut watches = bucket.watches.lock();
        if let Some(changed) = change(&watches, id, listener, asked) {
            return changed;
        }
        if watches.len() == watches.capacity() {
            continue;
        }
        let Some(number) = listener.enter(&watch)? else {
            continue;
        };
        let end = range(&watches, id).end;
        watches.insert(end, watch.clone());
        bucket.count.fetch_add(1, Ordering::Relaxed);
        WATCHES.fetch_add(1, Ordering::Relaxed);
        break number;
    };
    // A task that removed the last name just before may not have seen the watch.
    fence(Ordering::SeqCst);
    unlinked(node);
    Ok(number)
}

/// Ends a watch. With `tell`, its listener gets an `IGNORED` event. Returns `false` if the watch
/// has ended already.
pub fn remove(watch: &Watch, tell: bool) -> bool {
    let bucket = bucket(watch.id);
    let mut watches = bucket.watches.lock();
    let mut range = range(&watches, watch.id);
    let Some(at) = range.find(|&at| core::ptr::eq(Arc::as_ptr(&watches[at]), watch)) else {
        return false;
    };
    let ended = watch.has_ended();
    if tell && !ended {
        watch.listener.event(watch, Events::IGNORED, 0, b"");
    }
    let taken = bucket.take(&mut watches, at);
    let entry = watch.listener.leave(watch.number());
    drop(watches);
    // The watch, and with it perhaps the node, is dropped without a lock.
    drop((taken, entry));
    !ended
}

/// Reports `events` of the node `id`, or of its entry `name` if that is not empty, to the watches
/// of the node. The two events of one move have the same `cookie`, which is 0 for other events.
/// `unlinked` says that the entry has lost its name: watches with `EXCLUDE_UNLINKED` are skipped
/// then. The caller holds a reference to the node.
fn tell(id: NodeId, events: Events, cookie: u32, name: &[u8], unlinked: bool) {
    let bucket = bucket(id);
    // Relaxed, as in `active`.
    if bucket.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut any_ended = false;
    let watches = bucket.watches.lock();
    for watch in &watches[range(&watches, id)] {
        let wanted = watch.wanted();
        let excluded = wanted.contains(Events::EXCLUDE_UNLINKED) && unlinked;
        if !wanted.intersects(events & Events::ALL) || excluded || watch.has_ended() {
            continue;
        }
        watch.listener.event(watch, events, cookie, name);
        if wanted.contains(Events::ONE_SHOT) {
            watch.listener.event(watch, Events::IGNORED, 0, b"");
            watch.ended.store(true, Ordering::Relaxed);
            any_ended = true;
        }
    }
    drop(watches);
    if any_ended {
        take_ended(bucket, id);
    }
}

/// Removes the watches that have ended. Each is dropped without a lock.
#[cold]
fn take_ended(bucket: &Bucket, id: NodeId) {
    loop {
        let mut watches = bucket.watches.lock();
        let Some(at) = range(&watches, id).find(|&at| watches[at].has_ended()) else {
            return;
        };
        let watch = bucket.take(&mut watches, at);
        let entry = watch.listener.leave(watch.number());
        drop(watches);
        drop((watch, entry));
    }
}

fn of_kind(node: &NodeRef) -> Events {
    if node.kind() == FileKind::Directory {
        Events::DIRECTORY
    } else {
        Events::empty()
    }
}

/// Reports events of a node to the watches of the node only.
#[cold]
pub fn tell_node(node: &NodeRef, events: Events) {
    tell(node.id(), events | of_kind(node), 0, b"", false);
}

/// Reports events of `node` to its watches, and under its name to the watches of its directory.
/// `place` is the directory and the name of a node that is no directory. `open` says that the
/// events are those of an open file, whose name may have been removed.
#[cold]
pub fn tell_both(node: &NodeRef, place: Option<(&NodeRef, &[u8])>, events: Events, open: bool) {
    let events = events | of_kind(node);
    let id = node.id();
    if node.kind() == FileKind::Directory {
        // The directory above a bind mount is not the parent of the directory that it shows.
        let node = node.inner().unwrap_or(node);
        if let Some(parent) = node.parent().filter(|p| p.id().device == id.device) {
            // Before a bucket is locked, because directories have locks of their own.
            let removed = open && node.is_removed();
            tell(parent.id(), events, 0, &node.name(), removed);
        }
    } else if let Some((parent, name)) = place
        && same_mount(parent, node)
    {
        let unlinked = || {
            open && !parent
                .lookup(name)
                .is_ok_and(|found| found.id() == node.id())
        };
        tell_of_child(parent, name, events, &unlinked);
    }
    tell(id, events, 0, b"", false);
}

/// Reports the change `events` of the entry `name` to the watches of the directory `parent`, as
/// [`tell`] does. `unlinked` returns whether the entry has no name any more. It is called without a
/// lock, and only if a watch depends on the answer.
fn tell_of_child(parent: &NodeRef, name: &[u8], events: Events, unlinked: &dyn Fn() -> bool) {
    let id = parent.id();
    let bucket = bucket(id);
    if bucket.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    let matters = {
        let watches = bucket.watches.lock();
        let range = range(&watches, id);
        watches[range]
            .iter()
            .any(|watch| watch.wanted().contains(Events::EXCLUDE_UNLINKED))
    };
    let unlinked = matters && unlinked();
    tell(id, events, 0, name, unlinked);
}

/// Reports events of the entry `name` to the watches of its directory `parent`. `cookie` is 0
/// except for a move.
#[cold]
pub fn tell_entry(parent: &NodeRef, name: &[u8], events: Events, cookie: u32) {
    tell(parent.id(), events, cookie, name, false);
}

/// Reports that `moved` was moved from the directory and name `from` to the directory and name
/// `to`, to the watches of both directories.
#[cold]
pub fn tell_move(from: (&NodeRef, &[u8]), to: (&NodeRef, &[u8]), moved: &NodeRef) {
    static COOKIE: AtomicU32 = AtomicU32::new(1);
    // Relaxed: the number orders no other access.
    let cookie = COOKIE.fetch_add(1, Ordering::Relaxed);
    let kind = of_kind(moved);
    tell_entry(from.0, from.1, Events::MOVED_FROM | kind, cookie);
    tell_entry(to.0, to.1, Events::MOVED_TO | kind, cookie);
}

/// Drops the references of the watches to `node` if it has lost its last name. Call this after a
/// name was removed, with a reference to `node`.
#[cold]
pub fn unlinked(node: &NodeRef) {
    if node.metadata().links != 0 && !node.is_removed() {
        return;
    }
    let id = node.id();
    let watches = bucket(id).watches.lock();
    for watch in &watches[range(&watches, id)] {
        // This is not the last reference: the caller has one.
        drop(watch.node.lock().take());
    }
}

/// Ends the watches of a node that is gone, with a `DELETE_SELF` event.
#[cold]
pub fn gone(id: NodeId) {
    end(id, Events::DELETE_SELF);
}

/// Ends the watches of a file system that was unmounted, with an `UNMOUNT` event.
#[cold]
pub fn unmounted(device: u64) {
    let mut ids = Vec::new();
    for bucket in &TABLE {
        // If there is no memory for some of the watches, they end with their nodes.
        let _ = collect(bucket, device, &mut ids);
    }
    // As on Linux, the newest nodes come first.
    ids.sort_unstable();
    for id in ids.into_iter().rev() {
        end(id, Events::UNMOUNT);
        machine::sched::cond_resched();
    }
}

/// Adds the IDs of the watched nodes of a device to `ids`. Memory for them is allocated without the
/// lock. Fails with `ENOMEM`.
fn collect(bucket: &Bucket, device: u64, ids: &mut Vec<NodeId>) -> Result<(), Errno> {
    loop {
        let watches = bucket.watches.lock();
        let found = watches.iter().filter(|watch| watch.id.device == device);
        let count = found.clone().count();
        if count <= ids.capacity() - ids.len() {
            ids.extend(found.map(|watch| watch.id));
            return Ok(());
        }
        drop(watches);
        ids.try_reserve(count).map_err(|_| Errno::ENOMEM)?;
    }
}

fn end(id: NodeId, why: Events) {
    let bucket = bucket(id);
    if bucket.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    loop {
        let mut watches = bucket.watches.lock();
        let range = range(&watches, id);
        let Some(watch) = watches.get(range.start).filter(|_| !range.is_empty()) else {
            return;
        };
        if !watch.has_ended() {
            if watch.wanted().intersects(why) || why == Events::UNMOUNT {
                let kind = watch.node.lock().as_ref().map_or(Events::empty(), of_kind);
                watch.listener.event(watch, why | kind, 0, b"");
            }
            watch.listener.event(watch, Events::IGNORED, 0, b"");
        }
        let watch = bucket.take(&mut watches, range.start);
        let entry = watch.listener.leave(watch.number());
        drop(watches);
        // The drop may also drop the node.
        drop((watch, entry));
    }
}
