//! Directories of tmpfs.
//!
//! Locks: an operation on one directory takes that directory's lock alone. One that needs several
//! (rename, rmdir) holds [`SEVERAL`] first, so two of them never wait for each other. A holder of
//! one lock never waits for a second without it. A move of a directory to another directory takes
//! the lock `moving` of the file system before these, looks at all directories above, and keeps
//! that lock to its end.

use super::super::covers;
use super::super::directory::Listing;
use super::super::node::{DirEntry, Node, NodeId, NodeRef, RenameMode, Renamed, downcast};
use super::below::Below;
use super::{Body, TmpNode};
use crate::fs::FileKind;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Bound;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use logic::by_name::{ByName, Named};
use logic::errno::Errno;
use machine::arch::random;
use machine::sched;
use machine::sync::{Once, SpinLock};

/// Held while a task takes more than one directory's lock.
static SEVERAL: SpinLock<()> = SpinLock::new(());

/// The key with which names are hashed.
static KEY: Once<u64> = Once::new();

fn key() -> u64 {
    let mut key = [0; 8];
    random::fill(&mut key);
    u64::from_le_bytes(key)
}

/// Entries that are examined in one hold of the lock.
const LOOKS: usize = 256;

/// A name that the host lacks is added to `hidden` only while the directory's `hidden` has fewer
/// names than this. Removed entries in it count, too, but are always added.
const MAX_ABSENT: usize = 1024;

/// Listing offsets 0 and 1 are `.` and `..`; entries come behind.
const FIRST_COOKIE: u64 = 2;

#[derive(Clone, Debug)]
struct Entry {
    name: Arc<[u8]>,
    node: Arc<TmpNode>,
    /// The offset of the entry in listings. It never changes.
    cookie: u64,
    /// Whether the host may have an entry of this name. If the entry is removed, the name is added
    /// to `hidden`, so that the host's entry does not appear.
    may_return: bool,
}

#[derive(Debug)]
struct State {
    by_name: ByName<Entry>,
    by_cookie: BTreeMap<u64, (Arc<[u8]>, Arc<TmpNode>)>,
    next_cookie: u64,
    /// The directory above; `None` for the tree's root.
    above: Option<Weak<dyn Node>>,
    /// The directory's own name in the directory above.
    name: Box<[u8]>,
    /// Whether the directory was removed. No entry can be added then.
    removed: bool,
    /// The root of the file system that is mounted here. [`Directory::is_covered`] says whether
    /// there is one.
    covered_by: Option<NodeRef>,
    /// The host's directory whose entries appear in this one.
    below: Below,
    /// The names that are not looked up on the host: entries that a program has removed, and names
    /// that the host does not have.
    hidden: BTreeSet<Box<[u8]>>,
}

/// A directory's entries and its place in the tree.
#[derive(Debug)]
pub(super) struct Directory {
    state: SpinLock<State>,
    /// Whether a file system is mounted on this directory. Every path walk checks this flag, so
    /// that it need not take the lock of `state` for other directories.
    is_covered: AtomicBool,
    /// The number of subdirectories whose entries were all fetched from the host.
    listings: AtomicUsize,
}

impl Named for Entry {
    fn name(&self) -> &[u8] {
        &self.name
    }
}

impl State {
    /// Enters a node. `came` says that it is from the host.
    fn insert(&mut self, name: Arc<[u8]>, node: Arc<TmpNode>, came: bool) {
        // An entry that was packed hides one of the host that is not known yet.
        let may_return = came || matches!(self.below, Below::Unknown);
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_cookie.insert(cookie, (name.clone(), node.clone()));
        self.by_name.insert(Entry {
            name,
            node,
            cookie,
            may_return,
        });
    }

    fn remove(&mut self, name: &[u8]) -> Option<Arc<TmpNode>> {
        let entry = self.by_name.remove(name)?;
        self.by_cookie.remove(&entry.cookie);
        let has_below = matches!(self.below, Below::Folder(_) | Below::Whole(_));
        if entry.may_return && has_below {
            self.hidden.insert(name.into());
        }
        Some(entry.node)
    }

    /// Makes the entry `name` lead to `node`. Returns the two old references, or `None` if there is
    /// no such entry.
    fn exchange(&mut self, name: &[u8], node: &Arc<TmpNode>) -> Option<[Arc<TmpNode>; 2]> {
        let entry = self.by_name.get_mut(name)?;
        let listed = self.by_cookie.get_mut(&entry.cookie)?;
        Some([&mut entry.node, &mut listed.1].map(|old| core::mem::replace(old, node.clone())))
    }
}

impl Directory {
    /// Returns an empty directory, whose name is `name` in the directory `above`. The root of a
    /// tree has `None` for `above`.
    pub(super) fn new(above: Option<Weak<dyn Node>>, name: &[u8]) -> Self {
        Self {
            state: SpinLock::new(State {
                by_name: ByName::new(*KEY.get_or_init(key)),
                by_cookie: BTreeMap::new(),
                next_cookie: FIRST_COOKIE,
                above,
                name: name.into(),
                removed: false,
                covered_by: None,
                below: Below::Unknown,
                hidden: BTreeSet::new(),
            }),
            is_covered: AtomicBool::new(false),
            listings: AtomicUsize::new(0),
        }
    }

    /// Returns the path of the host's directory whose entries appear in this one, if it is known.
    pub(super) fn below(&self) -> Below {
        self.state.lock().below.clone()
    }

    /// Stores what is known of the host's directory below this one. Only adds knowledge: replaces
    /// [`Below::Unknown`] by any value, and [`Below::Folder`] by [`Below::Whole`]. Ignores other
    /// changes.
    pub(super) fn set_below(&self, below: Below) {
        let mut state = self.state.lock();
        let is_news = match state.below {
            Below::Unknown => true,
            Below::Folder(_) => matches!(below, Below::Whole(_)),
            Below::Nothing | Below::Whole(_) => false,
        };
        if is_news {
            let old = core::mem::replace(&mut state.below, below);
            drop(state);
            drop(old);
        }
    }

    /// Returns whether a lookup of `name` needs no request to the host: the entry exists here, was
    /// removed, or is known to be absent on the host.
    pub(super) fn knows(&self, name: &[u8]) -> bool {
        let state = self.state.lock();
        matches!(state.below, Below::Nothing | Below::Whole(_))
            || state.by_name.get(name).is_some()
            || state.hidden.contains(name)
    }

    /// Adds `node`, a copy of the host's file, as the entry `name`. Drops `node` instead if the
    /// name exists or is hidden by now, or if the directory was removed.
    pub(super) fn enter_below(&self, name: Arc<[u8]>, node: Arc<TmpNode>) {
        let mut state = self.state.lock();
        let stands = matches!(state.below, Below::Folder(_))
            && !state.removed
            && state.by_name.get(&name).is_none()
            && !state.hidden.contains(&*name);
        if stands {
            state.insert(name, node, true);
        } else {
            drop(state);
            drop(node);
        }
    }

    /// Records that the host has no entry `name`, so that a lookup does not ask the host again.
    /// Does nothing if too many names are recorded.
    pub(super) fn note_absent(&self, name: &[u8]) {
        let mut state = self.state.lock();
        if matches!(state.below, Below::Folder(_)) && state.hidden.len() < MAX_ABSENT {
            state.hidden.insert(name.into());
        }
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.state.lock().by_name.len()
    }

    /// Returns the node of the entry `name`, or `None` if there is no such entry here.
    pub(super) fn get(&self, name: &[u8]) -> Option<Arc<TmpNode>> {
        self.state
            .lock()
            .by_name
            .get(name)
            .map(|entry| entry.node.clone())
    }

    /// Adds the entry `name`, which leads to `node`.
    ///
    /// # Errors
    /// Fails with `ENOENT` if the directory was removed, and with `EEXIST` if it has such an entry.
    pub(super) fn insert(&self, name: &[u8], node: Arc<TmpNode>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let error = if state.removed {
            Errno::ENOENT
        } else if state.by_name.get(name).is_some() {
            Errno::EEXIST
        } else {
            state.insert(name.into(), node, false);
            return Ok(());
        };
        // The lock is released before the node is dropped.
        drop(state);
        drop(node);
        Err(error)
    }

    /// Removes the entry `name`, which must lead to the node `meant` and not to a directory.
    /// Returns the node.
    ///
    /// # Errors
    /// Fails with `ENOENT` if there is no such entry, with `EISDIR` if it is a directory, and with
    /// `ESTALE` if it leads to another node by now.
    pub(super) fn remove_file(&self, name: &[u8], meant: NodeId) -> Result<Arc<TmpNode>, Errno> {
        let mut state = self.state.lock();
        let entry = state.by_name.get(name).ok_or(Errno::ENOENT)?;
        if entry.node.directory().is_ok() {
            return Err(Errno::EISDIR);
        }
        if entry.node.id() != meant {
            return Err(Errno::ESTALE);
        }
        state.remove(name).ok_or(Errno::ENOENT)
    }

    /// Removes the empty directory `name`, whose node must be `meant`. Returns the node.
    ///
    /// # Errors
    /// Fails with `ENOENT` if there is no such entry, with `ESTALE` if it leads to another node by
    /// now, and with `ENOTDIR` if it is no directory. Fails with `ENOTEMPTY` if the directory has
    /// entries, and with `EBUSY` if a file system is mounted there. Fails with `EAGAIN` if the
    /// host's entries must be fetched first.
    pub(super) fn remove_directory(
        &self,
        name: &[u8],
        meant: NodeId,
    ) -> Result<Arc<TmpNode>, Errno> {
        let _several = SEVERAL.lock();
        let mut state = self.state.lock();
        let node = state.by_name.get(name).ok_or(Errno::ENOENT)?.node.clone();
        if node.id() != meant {
            return Err(Errno::ESTALE);
        }
        node.directory()?.retire(node.id())?;
        state.remove(name);
        Ok(node)
    }

    /// Takes an empty directory, whose identity is `id`, out of the tree. The caller holds
    /// `SEVERAL`. Fails with `EBUSY` if a file system is mounted there, with `ENOTEMPTY` if the
    /// directory has entries, and with `EAGAIN` if the host's entries must be fetched again.
    fn retire(&self, id: NodeId) -> Result<(), Errno> {
        let mut state = self.state.lock();
        // A mount through a bind mount registers first, and then checks whether the directory is
        // removed.
        if state.covered_by.is_some() || covers::anywhere_on(id) {
            return Err(Errno::EBUSY);
        }
        if !state.by_name.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        if matches!(state.below, Below::Folder(_)) {
            // Another directory took this name since the entries were fetched.
            return Err(Errno::EAGAIN);
        }
        // `above` stays: `..` of a removed working directory still leads there. It is weak, so a
        // removed directory does not keep another one allocated.
        state.removed = true;
        Ok(())
    }

    /// Returns the first directory with a cookie of at least `from`, and its cookie. Returns `None`
    /// if there is none.
    pub(super) fn next_directory(&self, mut from: u64) -> Option<(u64, Arc<TmpNode>)> {
        loop {
            let state = self.state.lock();
            let mut entries = state.by_cookie.range(from..).take(LOOKS);
            let mut last = None;
            let found = entries.find(|(cookie, (_, node))| {
                last = Some(**cookie);
                node.directory().is_ok()
            });
            if let Some((cookie, (_, node))) = found {
                return Some((*cookie, node.clone()));
            }
            // Ends with the last entry.
            from = last? + 1;
        }
    }

    /// Counts a directory in this one whose entries were all fetched from the host. Returns the
    /// number before.
    pub(super) fn count_listing(&self) -> usize {
        // Relaxed: the number only says how much to fetch at once.
        self.listings.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of directories that [`Self::count_listing`] has counted.
    pub(super) fn listings(&self) -> usize {
        // Relaxed: see `count_listing`.
        self.listings.load(Ordering::Relaxed)
    }

    /// Adds directories that follow the entry `name` in a listing to `found`, up to `most` of them.
    /// `found` must have room for them.
    pub(super) fn directories_behind(
        &self,
        name: &[u8],
        most: usize,
        found: &mut Vec<Arc<TmpNode>>,
    ) {
        let state = self.state.lock();
        let Some(cookie) = state.by_name.get(name).map(|entry| entry.cookie) else {
            return;
        };
        let behind = state.by_cookie.range(cookie + 1..).take(LOOKS);
        let directories = behind.filter(|(_, (_, node))| node.directory().is_ok());
        found.extend(directories.take(most).map(|(_, (_, node))| node.clone()));
    }

    /// Drops entries of this directory that the host still has and no program uses. Returns the
    /// number of dropped entries. `this` is the node of this directory. Does nothing if `this` has
    /// more than `holders` references: a program that lists the directory must not meet an entry
    /// twice.
    pub(super) fn forget(&self, this: &Arc<TmpNode>, holders: usize) -> usize {
        let (mut forgotten, mut from) = (0, 0);
        loop {
            let mut batch = [const { None }; LISTED_AT_ONCE];
            let mut taken = 0;
            let several = SEVERAL.lock();
            let mut state = self.state.lock();
            let (Below::Folder(path) | Below::Whole(path)) = &state.below else {
                return forgotten;
            };
            if Arc::strong_count(this) > holders {
                return forgotten;
            }
            let folder = Below::Folder(path.clone());
            let mut names = [const { None }; LISTED_AT_ONCE];
            let mut last = None;
            for (cookie, (name, node)) in state.by_cookie.range(from..).take(LOOKS) {
                last = Some(*cookie);
                // One reference by the name, one by the cookie.
                let unused = Arc::strong_count(node) == 2 && node.is_as_below();
                let holds = |node: &TmpNode| node.directory().is_ok_and(|inner| inner.len() > 0);
                if unused && !holds(node) {
                    names[taken] = Some(name.clone());
                    taken += 1;
                    if taken == names.len() {
                        break;
                    }
                }
            }
            for (name, place) in names.iter().flatten().zip(&mut batch) {
                if let Some(entry) = state.by_name.remove(name) {
                    *place = state.by_cookie.remove(&entry.cookie);
                }
            }
            if taken > 0 {
                state.below = folder;
            }
            drop(state);
            drop(several);
            drop(batch);
            forgotten += taken;
            match last {
                Some(last) => from = last + 1,
                None => return forgotten,
            }
        }
    }

    /// Makes the entry `name` lead to `new` if it leads to `old`. `new` gets the attributes that a
    /// program has set on `old`. Returns the node to which the entry leads then, which is another
    /// one if it did not lead to `old`. Returns `None` if there is no such entry.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn replace(
        &self,
        name: &[u8],
        old: &Arc<TmpNode>,
        new: &Arc<TmpNode>,
    ) -> Result<Option<Arc<TmpNode>>, Errno> {
        let mut state = self.state.lock();
        let Some(entry) = state.by_name.get(name) else {
            return Ok(None);
        };
        let now = entry.node.clone();
        if !Arc::ptr_eq(&now, old) {
            drop(state);
            return Ok(Some(now));
        }
        // Under the lock, so that no other lookup enters a node without these attributes.
        new.copy_attributes_of(old)?;
        let gone = state.exchange(name, new);
        drop(state);
        drop(gone);
        old.subtract_link();
        Ok(Some(new.clone()))
    }

    /// Drops the entry `name` if it leads to `node`, so that the next lookup asks the host. Returns
    /// `None` then, or if there is no such entry. Otherwise changes nothing and returns the node to
    /// which the entry leads.
    pub(super) fn forget_entry(&self, name: &[u8], node: &Arc<TmpNode>) -> Option<Arc<TmpNode>> {
        let mut state = self.state.lock();
        let now = state.by_name.get(name)?.node.clone();
        if !Arc::ptr_eq(&now, node) {
            drop(state);
            return Some(now);
        }
        if let Below::Whole(path) = &state.below {
            state.below = Below::Folder(path.clone());
        }
        let entry = state.by_name.remove(name)?;
        let listed = state.by_cookie.remove(&entry.cookie);
        drop(state);
        drop((entry, listed, now));
        node.subtract_link();
        None
    }

    /// Returns the directory above. Returns `None` for the root of the tree, and once that
    /// directory is gone.
    pub(super) fn parent(&self) -> Option<NodeRef> {
        self.state.lock().above.as_ref()?.upgrade()
    }

    /// Returns whether the directory was removed.
    pub(super) fn is_removed(&self) -> bool {
        self.state.lock().removed
    }

    /// Returns the directory's own name in the directory above.
    pub(super) fn name(&self) -> Box<[u8]> {
        self.state.lock().name.clone()
    }

    /// Returns the root of the file system that is mounted on this directory, or `None` if there is
    /// none.
    pub(super) fn covered_by(&self) -> Option<NodeRef> {
        // Relaxed: a path walk during a mount may come before it or after.
        if !self.is_covered.load(Ordering::Relaxed) {
            return None;
        }
        self.state.lock().covered_by.clone()
    }

    /// Sets the root of the file system that is mounted on this directory. `None` ends the mount.
    ///
    /// # Errors
    /// Fails with `ENOENT` if the directory was removed.
    pub(super) fn cover(&self, top: Option<NodeRef>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.removed {
            return Err(Errno::ENOENT);
        }
        self.is_covered.store(top.is_some(), Ordering::Relaxed);
        let old = core::mem::replace(&mut state.covered_by, top);
        drop(state);
        drop(old);
        Ok(())
    }

    /// Sets the directory's place in the tree: its name is `name` in the directory `above`.
    pub(super) fn set_place(&self, above: Option<Weak<dyn Node>>, name: &[u8]) {
        let mut state = self.state.lock();
        state.above = above;
        state.name = name.into();
    }

    /// Takes all entries out of a directory that no task can reach any more.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Arc<TmpNode>> + use<> {
        let state = self.state.get_mut();
        state.by_cookie.clear();
        state.by_name.take_all().map(|entry| entry.node)
    }
}

/// Returns whether `directory` is `ancestor` or lies below it. The caller holds the lock
/// `moving` of their file system, so the directories above `directory` stay the same. Yields the
/// CPU at each level.
fn lies_in(directory: &TmpNode, ancestor: &TmpNode) -> bool {
    let mut here = directory.this.upgrade();
    // Each step goes up one level of a finite tree.
    while let Some(node) = here {
        if core::ptr::eq(Arc::as_ptr(&node), ancestor) {
            return true;
        }
        here = Node::parent(&*node).and_then(downcast);
        sched::give_way();
    }
    false
}

/// Renames the entry `name` of `from` to `new_name` of `to`, in the same file system, as `how`
/// says. `meant` are the nodes that the caller found at the old and the new name. Returns the nodes
/// that were moved or replaced, or `None` if both names lead to the same node.
///
/// # Errors
/// Fails with `ESTALE` if a name leads to another node by now. Fails with `ENOENT`, `EINVAL`,
/// `EBUSY`, `EISDIR`, `ENOTDIR` or `ENOTEMPTY` as `rename(2)`.
pub(super) fn rename(
    from: &TmpNode,
    name: &[u8],
    to: &TmpNode,
    new_name: &[u8],
    how: RenameMode,
    meant: (NodeId, Option<NodeId>),
) -> Result<Option<Renamed>, Errno> {
    let (source_dir, target_dir) = (from.directory()?, to.directory()?);
    let source = source_dir.get(name).ok_or(Errno::ENOENT)?;
    let target = target_dir.get(new_name);
    let source_is_dir = source.directory().is_ok();
    let target_is_dir = target
        .as_ref()
        .is_some_and(|target| target.directory().is_ok());
    // No directory lies in one of its own entries, so a rename within it needs no look.
    let changes_tree = !core::ptr::eq(source_dir, target_dir) && (source_is_dir || target_is_dir);
    let moving = changes_tree.then(|| from.fs.moving.lock());
    let goes_into_itself = moving.is_some() && source_is_dir && lies_in(to, &source);
    let comes_from_target = moving.is_some()
        && target_is_dir
        && target.as_ref().is_some_and(|target| lies_in(from, target));
    let is_of = |state: &State, name: &[u8], node: Option<&Arc<TmpNode>>| {
        let now = state.by_name.get(name).map(|entry| &entry.node);
        now.map(Arc::as_ptr) == node.map(Arc::as_ptr)
    };
    let leads_to = |directory: &Directory, name: &[u8], node: Option<&Arc<TmpNode>>| {
        is_of(&directory.state.lock(), name, node)
    };
    let several = SEVERAL.lock();
    // From here on no other task moves or removes a directory.
    if !leads_to(source_dir, name, Some(&source))
        || !leads_to(target_dir, new_name, target.as_ref())
    {
        return Err(Errno::ESTALE);
    }
    if goes_into_itself {
        return Err(Errno::EINVAL);
    }
    match (&target, how) {
        (Some(_), RenameMode::KeepExisting) => return Err(Errno::EEXIST),
        (None, RenameMode::Exchange) => return Err(Errno::ENOENT),
        _ => {}
    }
    let is_covered = |node: &TmpNode| node.covered_by().is_some();
    if is_covered(&source) || target.as_ref().is_some_and(|node| is_covered(node)) {
        return Err(Errno::EBUSY);
    }
    if (source.id(), target.as_ref().map(|node| node.id())) != meant {
        return Err(Errno::ESTALE);
    }
    if target
        .as_ref()
        .is_some_and(|target| Arc::ptr_eq(target, &source))
    {
        return Ok(None);
    }
    if how == RenameMode::Exchange {
        let Some(target) = target else {
            return Err(Errno::ENOENT);
        };
        if comes_from_target {
            return Err(Errno::EINVAL);
        }
        exchange(from, name, to, new_name, &source, &target)?;
        return Ok(Some(Renamed {
            moved: source,
            other: Some(target),
        }));
    }
    if let Some(target) = &target {
        if comes_from_target {
            return Err(Errno::ENOTEMPTY);
        }
        match (source_is_dir, target_is_dir) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) => target.directory()?.retire(target.id())?,
            (false, false) => {}
        }
    }
    // Only this function and `remove_directory` can retire `to`, and both hold `SEVERAL`. But a
    // file may be added or removed under the lock of its directory alone, so both names are checked
    // again under the locks of both directories.
    if target_dir.state.lock().removed {
        return Err(Errno::ENOENT);
    }
    let mut source_state = source_dir.state.lock();
    // Only holders of `SEVERAL` take the locks of two directories.
    let mut apart = if core::ptr::eq(source_dir, target_dir) {
        None
    } else {
        Some(target_dir.state.lock())
    };
    let into = apart.as_deref().unwrap_or(&source_state);
    if !is_of(&source_state, name, Some(&source)) || !is_of(into, new_name, target.as_ref()) {
        return Err(Errno::ESTALE);
    }
    let moved = source_state.remove(name).ok_or(Errno::ENOENT)?;
    let into = match &mut apart {
        Some(state) => &mut **state,
        None => &mut *source_state,
    };
    let replaced = into.remove(new_name);
    into.insert(new_name.into(), moved.clone(), false);
    drop(apart);
    drop(source_state);
    if let Ok(directory) = moved.directory() {
        directory.set_place(Some(to.this.clone()), new_name);
        from.add_links(-1);
        to.add_links(1);
    }
    if let Some(replaced) = &replaced {
        if replaced.directory().is_ok() {
            replaced.add_links(-2);
            to.add_links(-1);
        } else {
            replaced.add_links(-1);
        }
    }
    drop(several);
    moved.add_links(0);
    from.touch_modified();
    to.touch_modified();
    Ok(Some(Renamed {
        moved,
        other: replaced.map(|node| -> NodeRef { node }),
    }))
}

/// Swaps two entries: `name` of `from`, which is `source`, and `new_name` of `to`, which is
/// `target`. The caller holds `SEVERAL`. Fails with `ENOENT` if an entry is gone.
fn exchange(
    from: &TmpNode,
    name: &[u8],
    to: &TmpNode,
    new_name: &[u8],
    source: &Arc<TmpNode>,
    target: &Arc<TmpNode>,
) -> Result<(), Errno> {
    let swap = |at: &TmpNode, name: &[u8], node: &Arc<TmpNode>| -> Result<(), Errno> {
        let directory = at.directory()?;
        let mut state = directory.state.lock();
        let old = state.exchange(name, node).ok_or(Errno::ENOENT)?;
        drop(state);
        drop(old);
        if let Ok(directory) = node.directory() {
            directory.set_place(Some(at.this.clone()), name);
            at.add_links(1);
        }
        Ok(())
    };
    // This also notes that they are not where the host has them any more.
    source.add_links(0);
    target.add_links(0);
    swap(from, name, target)?;
    swap(to, new_name, source)?;
    for (node, left) in [(source, from), (target, to)] {
        if node.directory().is_ok() {
            left.add_links(-1);
        }
        left.touch_modified();
    }
    Ok(())
}

/// Frees the nodes of `entries` that have no other reference, and those in the trees below them.
/// Uses a list, because a tree may be deeper than a stack. Calls `each` before a node is freed.
pub(super) fn free_trees(
    entries: impl Iterator<Item = Arc<TmpNode>>,
    mut each: impl FnMut(&TmpNode),
) {
    let mut left: Vec<Arc<TmpNode>> = entries.collect();
    // Ends with the last node below those given.
    while let Some(node) = left.pop() {
        let Some(mut node) = Arc::into_inner(node) else {
            continue;
        };
        if let Body::Directory(directory) = &mut node.body {
            left.extend(directory.take_all());
        }
        each(&node);
    }
}

/// Entries that a listing takes in one hold of the lock.
const LISTED_AT_ONCE: usize = 16;

/// An entry of a listing: its cookie, name, inode number and file type.
type Listed = (u64, Arc<[u8]>, u64, FileKind);

impl TmpNode {
    /// Returns the first entries with a cookie of at least `cookie`. The rest of the array is
    /// `None` if there are fewer.
    fn entries_from(&self, cookie: u64) -> [Option<Listed>; LISTED_AT_ONCE] {
        let mut listed = [const { None }; LISTED_AT_ONCE];
        if let Ok(directory) = self.directory() {
            let state = directory.state.lock();
            let entries = state
                .by_cookie
                .range((Bound::Included(cookie), Bound::Unbounded));
            for (place, (&at, (name, node))) in listed.iter_mut().zip(entries) {
                *place = Some((at, name.clone(), node.inode, node.kind()));
            }
        }
        listed
    }
}

impl Listing for TmpNode {
    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        self.fetch_all()?;
        if !super::super::node::list_dots(self, offset, emit) {
            return Ok(());
        }
        loop {
            let listed = self.entries_from(*offset);
            for place in &listed {
                let Some((cookie, name, inode, kind)) = place else {
                    return Ok(());
                };
                let entry = DirEntry {
                    name,
                    inode: *inode,
                    kind: *kind,
                    next: cookie + 1,
                };
                if !emit(&entry) {
                    return Ok(());
                }
                *offset = cookie + 1;
            }
        }
    }
}
