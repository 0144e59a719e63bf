//! Who wants to know what happens to a node: the watches, by what they are about.
//!
//! Nodes know nothing of this. Whoever changes one says so here, and looks first whether there is any
//! watch at all ([`active`]). A watch keeps its node until the last name of it goes; the node's own
//! end, which [`gone`] is told of, then ends the watch.
//!
//! Locks, in their order: a bucket, what a listener has. They are spin locks, and no node and no file
//! is dropped under them for the last time.

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
    /// What happens, and how it is watched, with Linux's numbers (`IN_*`).
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Events: u32 {
        /// It was read.
        const ACCESS = raw::IN_ACCESS;
        /// It was written, or cut.
        const MODIFY = raw::IN_MODIFY;
        /// Its attributes changed.
        const ATTRIB = raw::IN_ATTRIB;
        /// It was closed, and could be written.
        const CLOSE_WRITE = raw::IN_CLOSE_WRITE;
        /// It was closed, and could not.
        const CLOSE_NOWRITE = raw::IN_CLOSE_NOWRITE;
        /// It was opened.
        const OPEN = raw::IN_OPEN;
        /// An entry went from here.
        const MOVED_FROM = raw::IN_MOVED_FROM;
        /// An entry came here.
        const MOVED_TO = raw::IN_MOVED_TO;
        /// An entry was made.
        const CREATE = raw::IN_CREATE;
        /// An entry was removed.
        const DELETE = raw::IN_DELETE;
        /// It is gone.
        const DELETE_SELF = raw::IN_DELETE_SELF;
        /// It was moved.
        const MOVE_SELF = raw::IN_MOVE_SELF;
        /// Its file system was unmounted.
        const UNMOUNT = raw::IN_UNMOUNT;
        /// Events were lost.
        const OVERFLOW = raw::IN_Q_OVERFLOW;
        /// The watch is gone.
        const IGNORED = raw::IN_IGNORED;
        /// Only a directory may be watched.
        const ONLY_DIRECTORY = raw::IN_ONLYDIR;
        /// A link itself is watched.
        const NO_FOLLOW = raw::IN_DONT_FOLLOW;
        /// Not what happens to files that have left the directory.
        const EXCLUDE_UNLINKED = raw::IN_EXCL_UNLINK;
        /// A watch that is there must not be changed.
        const MASK_CREATE = raw::IN_MASK_CREATE;
        /// A watch that is there is told of more.
        const MASK_ADD = raw::IN_MASK_ADD;
        /// It happened to a directory.
        const DIRECTORY = raw::IN_ISDIR;
        /// The first event ends the watch.
        const ONE_SHOT = raw::IN_ONESHOT;
    }
}

impl Events {
    /// What a program can ask for.
    pub const ALL: Self = Self::from_bits_retain(raw::IN_ALL_EVENTS);
    /// What it asks for, and how the watch behaves.
    const KEPT: Self = Self::ALL
        .union(Self::EXCLUDE_UNLINKED)
        .union(Self::ONE_SHOT);
}

/// One watch.
pub struct Watch {
    id: NodeId,
    /// Its number among those of its listener, from when it is known there.
    number: AtomicI32,
    wanted: AtomicU32,
    /// The one event that it was for has come: it waits to be taken out.
    ended: AtomicBool,
    /// The node, until its last name goes.
    node: SpinLock<Option<NodeRef>>,
    listener: Arc<dyn Listener>,
}

impl Watch {
    /// What it is about.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        // Relaxed, here and below: changed with the bucket locked.
        self.number.load(Ordering::Relaxed)
    }

    /// Gives it its number, before anybody else knows it.
    pub fn set_number(&self, number: i32) {
        self.number.store(number, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// What it is to be told of.
    pub fn wanted(&self) -> Events {
        Events::from_bits_retain(self.wanted.load(Ordering::Relaxed))
    }
}

/// Is told of events. All methods but the first run with a bucket locked: they are quick, take no
/// memory and drop no node.
pub trait Listener: Send + Sync {
    /// Makes room for one watch more.
    fn prepare(&self) -> Result<(), Errno>;
    /// Something happened, to the entry `name` of the watched directory if there is one.
    fn event(&self, watch: &Watch, events: Events, cookie: u32, name: &[u8]);
    /// Adds a watch and gives it its number; `None`: there is no room any more.
    fn enter(&self, watch: &Arc<Watch>) -> Result<Option<i32>, Errno>;
    /// The watch is gone.
    fn leave(&self, number: i32) -> Option<Arc<Watch>>;
}

const BUCKETS: usize = 256;

struct Bucket {
    /// How many watches there are, to be read without the lock.
    count: AtomicUsize,
    /// In the order of what they are about.
    watches: SpinLock<Vec<Arc<Watch>>>,
}

static TABLE: [Bucket; BUCKETS] = [const {
    Bucket {
        count: AtomicUsize::new(0),
        watches: SpinLock::new(Vec::new()),
    }
}; BUCKETS];

/// All watches.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

/// Whether anything is watched.
#[inline]
pub fn active() -> bool {
    // Relaxed: who begins to watch during a call may miss what that call does.
    WATCHES.load(Ordering::Relaxed) != 0
}

/// The same for who has just taken a name away: who begins to watch meanwhile sees that, or is seen.
pub fn active_after_change() -> bool {
    fence(Ordering::SeqCst);
    active()
}

/// How many watches there are.
pub fn count() -> usize {
    WATCHES.load(Ordering::Relaxed)
}

fn bucket(id: NodeId) -> &'static Bucket {
    let mixed = (id.inode ^ id.device << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The upper eight bits.
    &TABLE[usize::from(mixed.to_be_bytes()[0])]
}

/// Where the watches of `id` stand in a bucket.
fn range(watches: &[Arc<Watch>], id: NodeId) -> core::ops::Range<usize> {
    let first = watches.partition_point(|watch| watch.id < id);
    let count = watches[first..].partition_point(|watch| watch.id == id);
    first..first + count
}

impl Bucket {
    /// Takes a watch out, of which the listener has to be told.
    fn take(&self, watches: &mut Vec<Arc<Watch>>, at: usize) -> Arc<Watch> {
        self.count.fetch_sub(1, Ordering::Relaxed);
        WATCHES.fetch_sub(1, Ordering::Relaxed);
        watches.remove(at)
    }
}

/// Makes room for one more in a list behind a lock, with memory that is taken without the lock.
///
/// # Errors
/// `ENOMEM`.
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
    // Others may have come meanwhile, or made it larger.
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

/// Changes the watch of `id` by `listener`, if there is one; gives its number.
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

/// Watches `node`, or changes what is watched of it; gives the watch's number.
///
/// # Errors
/// `EEXIST` for a watch that is there, if `asked` says so; `ENOENT` if the file system is gone; `ENOMEM`, and what [`Listener::enter`] gives.
pub fn add(node: &NodeRef, listener: &Arc<dyn Listener>, asked: Events) -> Result<i32, Errno> {
    let id = node.id();
    let bucket = bucket(id);
    // Whoever takes the last use away ends what is watched then.
    let _hold = node.hold();
    if node.is_unmounted() {
        return Err(Errno::ENOENT);
    }
    if let Some(changed) = change(&bucket.watches.lock(), id, listener, asked) {
        return changed;
    }
    // All memory is taken before a lock is.
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
    // Whoever took the last name away before this may not have seen that there is a watch.
    fence(Ordering::SeqCst);
    unlinked(node);
    Ok(number)
}

/// Ends a watch; with `tell` its listener is told so. False: it has ended already.
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
    // Both, and with them perhaps the node, go without a lock.
    drop((taken, entry));
    !ended
}

/// Tells of an event at `id`, of which the caller holds the node.
fn tell(id: NodeId, events: Events, cookie: u32, name: &[u8], unlinked: bool) {
    let bucket = bucket(id);
    // Relaxed: as in `active`.
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

/// Takes out the watches that have ended, each of which goes without a lock.
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

/// Tells of what happened to a node as such.
#[cold]
pub fn tell_node(node: &NodeRef, events: Events) {
    tell(node.id(), events | of_kind(node), 0, b"", false);
}

/// Tells of what happened to a node, and its directory of the same by its name there.
#[cold]
pub fn tell_both(node: &NodeRef, place: Option<(&NodeRef, &[u8])>, events: Events, open: bool) {
    let events = events | of_kind(node);
    let id = node.id();
    if node.kind() == FileKind::Directory {
        // What is above a bind mount is not above the directory.
        let node = node.inner().unwrap_or(node);
        if let Some(parent) = node.parent().filter(|p| p.id().device == id.device) {
            // Before any bucket is locked: directories have locks of their own.
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

/// As [`tell`]; whether the child is unlinked is looked at without a lock, and only if it matters.
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

/// Tells a directory of what happened to its entry `name`.
#[cold]
pub fn tell_entry(parent: &NodeRef, name: &[u8], events: Events, cookie: u32) {
    tell(parent.id(), events, cookie, name, false);
}

/// Tells of the move of an entry.
#[cold]
pub fn tell_move(from: (&NodeRef, &[u8]), to: (&NodeRef, &[u8]), moved: &NodeRef) {
    static COOKIE: AtomicU32 = AtomicU32::new(1);
    // Relaxed: only the number itself matters.
    let cookie = COOKIE.fetch_add(1, Ordering::Relaxed);
    let kind = of_kind(moved);
    tell_entry(from.0, from.1, Events::MOVED_FROM | kind, cookie);
    tell_entry(to.0, to.1, Events::MOVED_TO | kind, cookie);
}

/// A name of `node`, which the caller holds, has gone: with the last one the watches let go of it.
#[cold]
pub fn unlinked(node: &NodeRef) {
    if node.metadata().links != 0 && !node.is_removed() {
        return;
    }
    let id = node.id();
    let watches = bucket(id).watches.lock();
    for watch in &watches[range(&watches, id)] {
        // Not the last reference: the caller has one.
        drop(watch.node.lock().take());
    }
}

/// The node is gone, and so are its watches.
#[cold]
pub fn gone(id: NodeId) {
    end(id, Events::DELETE_SELF);
}

/// The file system of this device number is unmounted.
#[cold]
pub fn unmounted(device: u64) {
    let mut ids = Vec::new();
    for bucket in &TABLE {
        // Those for which there is no memory end with their nodes.
        let _ = collect(bucket, device, &mut ids);
    }
    // What was made last goes first, as on Linux.
    ids.sort_unstable();
    for id in ids.into_iter().rev() {
        end(id, Events::UNMOUNT);
        machine::sched::cond_resched();
    }
}

/// Adds what is watched on a device to `ids`, which grows without the lock.
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
        // With it, perhaps, the node.
        drop((watch, entry));
    }
}
