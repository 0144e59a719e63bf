//! The host's tree that lies below a file system in memory ([`crate::drivers::root`]).
//!
//! A directory with a host directory below it fetches each entry once, when it is needed. From then
//! on the entry is like any other. So a changed file is like an unchanged one, and a removed name
//! is not fetched again. A file's pages are read when they are needed. They may be dropped again if
//! no program has opened the file for writing. Entries may be dropped again if no program has
//! changed them.

use super::beside::Beside;
use super::directory::Directory;
use super::regular::{Content, PAGE, Regular};
use super::renew::Asked;
use super::{Body, TmpNode, Tmpfs, text_pages};
use crate::drivers::root::{self, Entry, FRAMES_MAX, Names};
use crate::fs::FileKind;
use crate::fs::node::{Node, Timestamp, downcast};
use crate::fs::used::{self, Cold, Used};
use crate::vm;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use logic::path::PATH_MAX;
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE, stats};
use machine::sched;
use machine::sync::{Mutex, Once, SpinLock};

/// Pages that are dropped after a failed allocation.
const RELIEF: usize = 512;

/// The most bytes of a file that keeps its pages while a program has it open. So a script that
/// waits and goes on reads the file that it began with, even if the host has another one by then.
const SMALL: u64 = 1 << 20;

/// The host's directory whose entries a tmpfs directory also shows, as far as it is known.
#[derive(Clone, Debug)]
pub(super) enum Below {
    /// The host has not been asked whether it has such a directory.
    Unknown,
    /// The host has no such directory.
    Nothing,
    /// The host has this directory. Some of its entries may not have been fetched yet. The value is
    /// the path.
    Folder(Arc<[u8]>),
    /// The host has this directory, and all of its entries have been fetched. The value is the
    /// path.
    Whole(Arc<[u8]>),
}

/// The host's file of which a regular file of tmpfs is a copy.
#[derive(Debug)]
pub(super) struct FileBelow {
    /// The path of the host's folder that contains the file. All files of a folder share the
    /// allocation.
    pub(super) folder: Arc<[u8]>,
    /// The name of the file in `folder`.
    pub(super) name: Arc<[u8]>,
    /// The version that the host reported. If the host's file has another version, its bytes may
    /// differ.
    pub(super) version: u64,
    /// When the host was last asked about the file.
    pub(super) asked: Asked,
    /// Whether the file is in [`FILES`].
    noted: AtomicBool,
    used: Used,
    /// The number of open files that only read the tmpfs file.
    readers: AtomicI32,
}

/// The unused pages that are dropped.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Drops {
    /// Those that no program needs. A page that was unmapped to be moved is needed as long as a
    /// program maps its file, because the host may have another file by now.
    Unneeded,
    /// All, because memory or room is short.
    All,
}

/// Entries that are forgotten after a failed allocation.
const FORGOTTEN: usize = 2048;

/// The most levels of directories that are searched for entries to forget.
const DEPTH: usize = 64;

/// A directory on the way down to the one that is being searched, and the cookie at which its own
/// search continues.
type Stop = (Arc<TmpNode>, u64);

/// The directories from a root down to the one that is being searched.
type Way = [Option<Stop>; DEPTH];

/// The path to the directory whose entries are being forgotten. Its holder drops pages or entries
/// that the host still has.
static WAY: Mutex<Way> = Mutex::new([const { None }; DEPTH]);

/// Whether the last holder of [`WAY`] dropped anything.
static GAVE_UP: AtomicBool = AtomicBool::new(false);

/// The roots with a folder of the host below them: that of the whole tree, and that of `/tmp`.
static TOPS: [Once<Arc<TmpNode>>; 2] = [const { Once::new() }; 2];

/// The index of the next file to drop pages of.
static HAND: AtomicUsize = AtomicUsize::new(0);

/// Files that may have pages to drop.
static FILES: SpinLock<Vec<Weak<TmpNode>>> = SpinLock::new(Vec::new());

/// Returns the host path `folder`, a slash and `name`. If `folder` is empty, returns `name` alone.
///
/// # Errors
/// Fails with `ENAMETOOLONG` if the path would have `PATH_MAX` bytes or more, and with `ENOMEM`.
pub(super) fn join(folder: &[u8], name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut path = Vec::new();
    let length = folder.len() + 1 + name.len();
    if length >= PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    path.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    path.extend_from_slice(folder);
    if !folder.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Ok(path)
}

/// Returns whether `error`, an answer of the host, means that the host has no such file.
pub(super) fn is_nothing(error: Errno) -> bool {
    matches!(error, Errno::ENOENT | Errno::ENOTDIR)
}

impl Tmpfs {
    /// Returns whether a tree of the host is below the file system.
    pub(super) fn has_below(&self) -> bool {
        // Relaxed: set once, before there are tasks.
        self.below.load(Ordering::Relaxed)
    }
}

impl TmpNode {
    /// Makes the entries of the host's folder `folder` appear in this root of a file system.
    /// Entries that exist here stay, and hide those of the same name on the host.
    ///
    /// # Panics
    /// If there are too many such roots. The entries of another one would never be forgotten.
    pub fn show_below(&self, folder: &[u8]) {
        if let (Ok(directory), Some(top)) = (self.directory(), self.this.upgrade()) {
            directory.set_below(Below::Folder(folder.into()));
            self.fs.below.store(true, Ordering::Relaxed);
            let place = TOPS.iter().find(|place| place.get().is_none());
            let entered = place.is_some_and(|place| place.set(top).is_ok());
            assert!(entered, "too many roots have something below them");
        }
    }

    /// Returns the path of the host's directory whose entries appear in this directory, or `None`
    /// if there is none. Asks the host if that is not known.
    ///
    /// # Errors
    /// Fails with `ENOTDIR` if this is no directory, with `ENAMETOOLONG` or `ENOMEM`, and with the
    /// host's error.
    pub(super) fn folder_below(&self) -> Result<Option<Arc<[u8]>>, Errno> {
        let mut unknown: Vec<Arc<Self>> = Vec::new();
        let mut here = self.this.upgrade().ok_or(Errno::ENOENT)?;
        // Each turn goes up one level of a finite tree.
        let mut folder = loop {
            match here.directory()?.below() {
                Below::Nothing => break None,
                Below::Folder(path) | Below::Whole(path) => break Some(path),
                Below::Unknown => {}
            }
            let above = Node::parent(&*here).and_then(downcast::<Self>);
            unknown.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            unknown.push(here);
            match above {
                Some(above) if Arc::ptr_eq(&above.fs, &self.fs) => here = above,
                _ => break None,
            }
        };
        for node in unknown.into_iter().rev() {
            if let Some(path) = &folder {
                let path = join(path, &node.name())?;
                let is_folder = root::look(&path, true, |entry| {
                    Ok(FileKind::from_mode(entry.attributes.mode) == Some(FileKind::Directory))
                });
                folder = match is_folder {
                    Ok(true) => Some(path.into()),
                    Ok(false) | Err(Errno::EACCES | Errno::ELOOP) => None,
                    Err(error) if is_nothing(error) => None,
                    Err(error) => return Err(error),
                };
            }
            let below = folder.clone().map_or(Below::Nothing, Below::Folder);
            node.directory()?.set_below(below);
            // Another task may have set it before, by another name of the directory.
            folder = match node.directory()?.below() {
                Below::Folder(path) | Below::Whole(path) => Some(path),
                Below::Unknown | Below::Nothing => None,
            };
        }
        Ok(folder)
    }

    /// Adds the host's entry `name` to this directory, unless it is known here already. If the host
    /// has no such entry, notes that.
    ///
    /// # Errors
    /// Fails with `ENOTDIR` if this is no directory, with `ENAMETOOLONG` or `ENOMEM`, and with the
    /// host's error.
    pub(super) fn fetch_entry(&self, name: &[u8]) -> Result<(), Errno> {
        if !self.fs.has_below() {
            return Ok(());
        }
        let directory = self.directory()?;
        if directory.knows(name) {
            return Ok(());
        }
        let Some(folder) = self.folder_below()? else {
            return Ok(());
        };
        let path = join(&folder, name)?;
        let own: Arc<[u8]> = name.into();
        match root::look(&path, false, |entry| self.node_of(&folder, &own, entry)) {
            Ok(node) => directory.enter_below(own, node),
            Err(error) if is_nothing(error) => directory.note_absent(name),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Does the same as [`Self::fetch_entry`] for an entry that will be removed. Also finds the
    /// host's directory below this one, so it is known whether the host could bring the entry back.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::fetch_entry`].
    pub(super) fn fetch_to_remove(&self, name: &[u8]) -> Result<(), Errno> {
        self.fetch_entry(name)?;
        if self.fs.has_below() {
            self.folder_below()?;
        }
        Ok(())
    }

    /// Adds all entries of the host's directory to this one, unless that was done before. Entries
    /// that are known here already stay.
    ///
    /// # Errors
    /// Fails with `ENOTDIR` if this is no directory, with `ENOMEM`, and with the host's error.
    pub(super) fn fetch_all(&self) -> Result<(), Errno> {
        if !self.fs.has_below() {
            return Ok(());
        }
        let directory = self.directory()?;
        if matches!(directory.below(), Below::Whole(_)) {
            return Ok(());
        }
        let Some(folder) = self.folder_below()? else {
            return Ok(());
        };
        let beside = &mut Beside::of(self, &folder);
        let names = beside.take_names();
        let mut from = 0;
        // Ends: `from` grows.
        loop {
            let mut of_this = true;
            let listed = root::list(&folder, from, Names::new(&names), |entry| {
                if entry.name.is_empty() {
                    of_this = false;
                    beside.turn_to(entry.target);
                } else if of_this {
                    self.enter_entry(&folder, entry)?;
                } else if let Some((node, path)) = beside.current()
                    && node.enter_entry(path, entry).is_err()
                {
                    beside.give_up();
                }
                Ok(())
            });
            from = match listed {
                // The host has removed the folder, so no more entries come.
                Err(error) if is_nothing(error) => 0,
                other => other?,
            };
            if from == 0 {
                beside.finish();
                directory.set_below(Below::Whole(folder));
                return Ok(());
            }
        }
    }

    /// Enters `entry` of the host's `folder`, which is below this directory, unless the name is
    /// known here. Fails with `EIO` if the file type is unknown, and with `ENAMETOOLONG` or
    /// `ENOMEM`.
    fn enter_entry(&self, folder: &Arc<[u8]>, entry: &Entry<'_>) -> Result<(), Errno> {
        let directory = self.directory()?;
        if !directory.knows(entry.name) {
            let name: Arc<[u8]> = entry.name.into();
            let node = self.node_of(folder, &name, entry)?;
            directory.enter_below(name, node);
        }
        Ok(())
    }

    /// Adds all of the host's entries to the subdirectory `name`, because only an empty directory
    /// can be removed or replaced. Does nothing if `name` is no directory.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::fetch_all`].
    pub(super) fn fetch_all_of(&self, name: &[u8]) -> Result<(), Errno> {
        match self.directory()?.get(name) {
            Some(node) if node.directory().is_ok() => node.fetch_all(),
            _ => Ok(()),
        }
    }

    /// Prepares the entry `name` to be moved: fetches it from the host, and finds the host's
    /// directory that it shows, if any, because the path no longer leads there after the move.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::fetch_entry`].
    pub(super) fn settle_entry(&self, name: &[u8]) -> Result<(), Errno> {
        self.fetch_to_remove(name)?;
        match self.directory()?.get(name) {
            Some(node) if node.directory().is_ok() && self.fs.has_below() => {
                node.folder_below().map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Creates the node of the host's `entry`, which has the name `name` in `folder`. Fails with
    /// `EIO` if the file type is unknown, and with `ENAMETOOLONG` or `ENOMEM`.
    pub(super) fn node_of(
        &self,
        folder: &Arc<[u8]>,
        name: &Arc<[u8]>,
        entry: &Entry<'_>,
    ) -> Result<Arc<Self>, Errno> {
        let given = &entry.attributes;
        let body = match FileKind::from_mode(given.mode).ok_or(Errno::EIO)? {
            FileKind::Regular => {
                let below = FileBelow {
                    folder: folder.clone(),
                    name: name.clone(),
                    version: given.version,
                    asked: Asked::now(),
                    noted: AtomicBool::new(false),
                    used: Used::now(),
                    readers: AtomicI32::new(0),
                };
                Body::Regular(Regular::of_below(below, given.size))
            }
            FileKind::Directory => {
                let directory = Directory::new(Some(self.this.clone()), name);
                directory.set_below(Below::Folder(join(folder, name)?.into()));
                Body::Directory(directory)
            }
            FileKind::Symlink => {
                // Counted even if the limit does not allow it, as the pages of host files are.
                let pages = text_pages(entry.target);
                self.fs.pages.fetch_add(pages, Ordering::Relaxed);
                Body::Symlink(entry.target.into())
            }
            FileKind::Fifo => Body::Fifo(SpinLock::new(Weak::new())),
            kind @ (FileKind::Character | FileKind::Block) => Body::Device {
                block: kind == FileKind::Block,
                number: (given.device >> 32) << 8 | given.device & 0xff,
            },
            FileKind::Socket => Body::Socket,
            FileKind::Anonymous => return Err(Errno::EIO),
        };
        let node = Self::new(&self.fs, body, Beginning::of_root(given.mode));
        let time = Timestamp {
            seconds: given.seconds,
            nanos: given.nanos.min(999_999_999),
        };
        {
            let mut attributes = node.attributes.lock();
            (attributes.uid, attributes.gid) = (given.uid, given.gid);
            attributes.accessed = time;
            attributes.modified = time;
            attributes.changed = time;
        }
        // Relaxed: no other task has the node.
        node.as_below.store(true, Ordering::Relaxed);
        Ok(node)
    }

    /// Marks the node as one that differs from the host's file: it was changed, or moved from its
    /// place. It is then never dropped to be fetched again.
    pub(super) fn keep(&self) {
        // Relaxed: a node is forgotten only while no other task has it, under the lock that a
        // lookup takes.
        if self.as_below.load(Ordering::Relaxed) {
            self.as_below.store(false, Ordering::Relaxed);
        }
    }

    /// Returns whether the node is an unmodified copy of the host's file at the same place, so that
    /// it can be dropped and fetched again.
    pub(super) fn is_as_below(&self) -> bool {
        self.as_below.load(Ordering::Relaxed)
    }
}

/// Forgets about `most` entries that the host still has and no program uses. The caller holds the
/// lock of `way`. Returns how many entries it forgot.
fn forget(way: &mut Way, most: usize) -> usize {
    let tops = TOPS.iter().filter_map(Once::get);
    tops.fold(0, |done, top| {
        if done < most {
            done + forget_some(way, top, most - done)
        } else {
            done
        }
    })
}

/// Calls `work`, which drops pages or entries and returns their number. If another thread is doing
/// such work, only waits until that thread has finished. Returns whether this thread or the other
/// one dropped anything.
fn give_up(work: impl FnOnce(&mut Way) -> usize) -> bool {
    if let Some(mut way) = WAY.try_lock() {
        let some = work(&mut way) > 0;
        // Relaxed (here and below): the lock orders it.
        GAVE_UP.store(some, Ordering::Relaxed);
        return some;
    }
    // If this returned `false` while another thread frees memory, a program would be killed for
    // nothing.
    let _way = WAY.lock();
    GAVE_UP.load(Ordering::Relaxed)
}

/// Forgets about `most` entries below `top` that the host still has and no program uses. Returns
/// how many it forgot. Allocates nothing, since memory may be short.
fn forget_some(way: &mut Way, top: &Arc<TmpNode>, most: usize) -> usize {
    // A directory has two references from its parent, and one from `way`.
    const HOLDERS: usize = 3;
    let mut depth = 0;
    way[0] = Some((top.clone(), 0));
    let mut forgotten = 0;
    // Ends: each turn goes into a directory of a finite tree, or out of one.
    while forgotten < most {
        let Some((node, from)) = &mut way[depth] else {
            break;
        };
        let Ok(directory) = node.directory() else {
            break;
        };
        if depth + 1 < DEPTH
            && let Some((cookie, inner)) = directory.next_directory(*from)
        {
            *from = cookie + 1;
            depth += 1;
            way[depth] = Some((inner, 0));
            continue;
        }
        // All programs use the root, so its own few entries stay.
        if depth == 0 {
            break;
        }
        forgotten += directory.forget(node, HOLDERS);
        way[depth] = None;
        depth -= 1;
    }
    way.iter_mut().for_each(|place| *place = None);
    forgotten
}

impl Regular {
    fn of_below(below: FileBelow, size: u64) -> Self {
        let mut regular = Self::new();
        regular.below = Some(below);
        let content = regular.content.get_mut();
        content.size = size.min(i64::MAX as u64);
        content.below_bytes = content.size;
        regular
    }

    /// Records that a program may change the file from now on. Pages that came from the host then
    /// stay in memory.
    pub(super) fn will_change(&self) {
        if self.below.is_some() {
            let mut content = self.content.lock();
            content.changes = true;
            content.forget_clean(u64::MAX);
        }
    }

    /// Adds `change`, 1 or -1, to the number of open files that only read this file. Does nothing
    /// if the file is no copy of a host file.
    pub(super) fn count_reader(&self, change: i32) {
        if let Some(below) = &self.below {
            // Relaxed: a count that orders nothing.
            below.readers.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Returns whether the pages should stay even if no program has used them lately: the file is
    /// open and small.
    fn is_script(&self) -> bool {
        let open = |below: &FileBelow| below.readers.load(Ordering::Relaxed) > 0;
        self.below.as_ref().is_some_and(open) && self.content.lock().below_bytes <= SMALL
    }

    /// Records a use of the file's pages now, which keeps them in memory for a while. Does nothing
    /// if the file is no copy of a host file.
    pub(super) fn renew(&self) {
        if let Some(below) = &self.below {
            below.used.renew();
        }
    }

    /// Returns the page at `index`. If the page is not in memory and the host has it, reads it and
    /// some pages behind it. Returns `None` if the page is neither in memory nor on the host.
    ///
    /// # Errors
    /// Fails with `ESTALE` if the host has another file by now, with `ENOMEM`, and with the host's
    /// error.
    pub(super) fn fetch(&self, node: &TmpNode, index: u64) -> Result<Option<FrameRef>, Errno> {
        let Some(below) = &self.below else {
            return Ok(None);
        };
        let (count, expected) = {
            let content = self.content.lock();
            if let Some(frame) = content.pages.get(index) {
                return Ok(Some(frame.clone()));
            }
            if !content.comes_from_below(index) {
                return Ok(None);
            }
            let end = content.below_bytes.div_ceil(PAGE);
            let next = content.pages.next_from(index).unwrap_or(end).min(end);
            let count = (next - index).min(FRAMES_MAX as u64);
            (
                count,
                (content.below_bytes - index * PAGE).min(count * PAGE),
            )
        };
        node.let_move(self);
        let mut frames: Vec<FrameRef> = Vec::new();
        let room = usize::try_from(count).unwrap_or(0);
        frames.try_reserve_exact(room).map_err(|_| Errno::ENOMEM)?;
        for _ in 0..count {
            match memory::alloc_zeroed(Mobility::Movable) {
                Ok(frame) => frames.push(frame),
                // The pages behind it can be read another time.
                Err(_) if !frames.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let expected = expected.min((frames.len() * PAGE_SIZE) as u64);
        let path = join(&below.folder, &below.name)?;
        let came = root::read(&path, below.version, index * PAGE, &frames);
        // If there are fewer bytes, or more, the host has another file.
        let is_other = came.is_ok_and(|came| came as u64 != expected);
        if is_other || matches!(came, Err(Errno::ESTALE | Errno::ENOENT)) {
            below.asked.doubt();
            return Err(Errno::ESTALE);
        }
        came?;
        if !below.noted.swap(true, Ordering::Relaxed) && !note(node) {
            below.noted.store(false, Ordering::Relaxed);
        }
        below.used.renew();
        // These pages may be dropped again at once. The caller gets its page all the same.
        let mut pages = (index..).zip(frames);
        let wanted = match pages.next() {
            Some((index, frame)) => self.enter_fetched(&node.fs, index, frame)?,
            None => None,
        };
        for (index, frame) in pages {
            if self.enter_fetched(&node.fs, index, frame).is_err() {
                break;
            }
        }
        used::pages_came();
        Ok(wanted)
    }

    /// Enters the page `frame`, which was read from the host, at `index`. Returns the page that the
    /// file has now, which may be another one, or `None` if the file was cut. Fails with `ENOMEM`.
    fn enter_fetched(
        &self,
        fs: &Tmpfs,
        index: u64,
        frame: FrameRef,
    ) -> Result<Option<FrameRef>, Errno> {
        self.mappings.own(&frame, index);
        let mut content = self.content.lock();
        if let Some(there) = content.pages.get(index) {
            return Ok(Some(there.clone()));
        }
        if !content.comes_from_below(index) {
            return Ok(None);
        }
        fs.count_page();
        let entered = content.pages.insert(index, frame.clone());
        if entered.is_ok() && !content.changes {
            content.clean += 1;
            stats::count_host_pages(1);
        }
        drop(content);
        if entered.is_err() {
            fs.discharge_pages(1);
            return Err(Errno::ENOMEM);
        }
        Ok(Some(frame))
    }

    /// Reads the whole file from the host, so the host is not needed for it any more. The caller
    /// holds `writing`.
    ///
    /// # Errors
    /// Fails with the host's error, with `ESTALE` if the host has another file there by now, and
    /// with `ENOMEM`.
    pub(super) fn fetch_whole(&self, node: &TmpNode) -> Result<(), Errno> {
        let end = self.content.lock().below_bytes.div_ceil(PAGE);
        for index in 0..end {
            self.fetch(node, index)?;
            sched::cond_resched();
        }
        self.content.lock().below_bytes = 0;
        Ok(())
    }

    /// Unmaps `pages` of `node`, whose content this is, so that they can be moved. Pages that could
    /// be dropped, because the host has them, stay mapped in locked memory.
    pub(super) fn unmap_to_move(&self, node: &TmpNode, pages: Range<u64>) {
        if self.below.is_none() || !self.mark_needed(pages.clone()) {
            return self.mappings.invalidate(node, pages);
        }
        self.mappings.ask_again(node, pages);
    }

    /// Marks `pages` as needed by programs, see [`Drops::Unneeded`]. Returns `false` if none of the
    /// file's pages can be dropped.
    fn mark_needed(&self, pages: Range<u64>) -> bool {
        let content = self.content.lock();
        if content.changes || content.below_bytes == 0 {
            return false;
        }
        for frame in pages.filter_map(|index| content.pages.get(index)) {
            vm::keep(frame);
        }
        true
    }

    /// Drops up to `most` unused pages of the kind `drops` that the host still has. Returns their
    /// number.
    fn drop_unused(&self, fs: &Tmpfs, most: usize, drops: Drops) -> usize {
        if self.below.is_none() {
            return 0;
        }
        let (mut from, mut dropped) = (0, 0);
        while dropped < most {
            let mut batch = [const { None }; 32];
            let mut taken = 0;
            let mut looks = 0;
            let mut content = self.content.lock();
            if content.changes {
                break;
            }
            while taken < batch.len() && looks < 256 {
                let Some(index) = content.pages.next_from(from) else {
                    from = u64::MAX;
                    break;
                };
                looks += 1;
                from = index + 1;
                let unused = content.pages.get(index).is_some_and(|frame| {
                    // In this order: a page is kept before it loses its references.
                    let needed = || vm::is_kept(frame) && self.mappings.is_used();
                    frame.references() == 1 && (drops == Drops::All || !needed())
                });
                if unused && content.comes_from_below(index) {
                    content
                        .pages
                        .take_batch(index, index + 1, &mut batch[taken..=taken]);
                    taken += 1;
                }
            }
            content.forget_clean(taken as u64);
            drop(content);
            drop(batch);
            fs.discharge_pages(taken as u64);
            dropped += taken;
            if from == u64::MAX {
                break;
            }
            if most == usize::MAX {
                sched::give_way();
            }
        }
        dropped
    }
}

impl Content {
    /// Returns whether the page at `index` must be read from the host if it is not in memory.
    pub(super) fn comes_from_below(&self, index: u64) -> bool {
        index < self.below_bytes.div_ceil(PAGE)
    }

    /// Subtracts `pages` from the number of clean pages, down to 0. The pages were dropped, or may
    /// be changed by the guest from now on.
    pub(super) fn forget_clean(&mut self, pages: u64) {
        let gone = self.clean.min(pages);
        if gone > 0 {
            self.clean -= gone;
            stats::count_host_pages(-gone.cast_signed());
        }
    }
}

impl Cold for TmpNode {
    fn age(&self) -> u32 {
        let below = self.regular().and_then(|regular| regular.below.as_ref());
        below.map_or(0, |below| below.used.age())
    }

    /// Does nothing. The host may have another file there by now, and a program needs the one that
    /// it maps.
    fn unmap(&self) {}

    fn drop_unused(&self) -> usize {
        match self.regular() {
            Some(regular) if !regular.is_script() => {
                regular.drop_unused(&self.fs, usize::MAX, Drops::Unneeded)
            }
            _ => 0,
        }
    }
}

/// Calls `visit` with each file that may have pages to drop. Returns the sum of the results of
/// `visit`. No spin lock is held.
pub(in super::super) fn each_cold(visit: &mut dyn FnMut(&dyn Cold) -> usize) -> usize {
    let mut sum = 0;
    // Files that are added from here on are young.
    let count = FILES.lock().len();
    for at in 0..count {
        let file = FILES.lock().get(at).and_then(Weak::upgrade);
        if let Some(node) = file {
            sum += visit(&*node);
        }
        sched::cond_resched();
    }
    sum
}

/// Adds `node`, whose pages were read, to the list of files that may have pages to drop. Returns
/// `false` if memory is short.
fn note(node: &TmpNode) -> bool {
    let mut files = FILES.lock();
    if files.len() == files.capacity() {
        files.retain(|file| file.strong_count() != 0);
    }
    let room = files.try_reserve(1).is_ok();
    if room {
        files.push(node.this.clone());
    }
    room
}

/// Drops up to `most` unused pages of the kind `drops` that the host still has. Returns their
/// number.
fn drop_some(most: usize, drops: Drops) -> usize {
    let mut dropped = 0;
    let count = FILES.lock().len();
    for _ in 0..count {
        if dropped >= most {
            break;
        }
        // In turn, so that another file's pages are the first to be dropped each time.
        let file = {
            let files = FILES.lock();
            if files.is_empty() {
                break;
            }
            // Relaxed: only a place to begin.
            let at = HAND.fetch_add(1, Ordering::Relaxed) % files.len();
            files[at].upgrade()
        };
        if let Some(node) = file
            && let Some(regular) = node.regular()
        {
            dropped += regular.drop_unused(&node.fs, most - dropped, drops);
        }
    }
    dropped
}

/// Drops some unused pages, in any tmpfs, that can be read from the host again. Call this if `fs`
/// is full, without a spin lock. If another thread is dropping pages or entries, only waits until
/// that thread has finished. Returns whether this thread or the other one dropped anything. Does
/// nothing and returns `false` if `fs` has no files of the host.
pub(super) fn make_page_room(fs: &Tmpfs) -> bool {
    fs.has_below() && give_up(|_| drop_some(RELIEF, Drops::All))
}

/// Drops some unused directory entries, in any tmpfs, that can be fetched from the host again. Call
/// this if `fs` has no room for another file, without a spin lock. If another thread is dropping
/// pages or entries, only waits until that thread has finished. Returns whether this thread or the
/// other one dropped anything. Does nothing and returns `false` if `fs` has no files of the host.
pub(super) fn make_node_room(fs: &Tmpfs) -> bool {
    fs.has_below() && give_up(|way| forget(way, FORGOTTEN))
}

/// Drops some unused pages of tmpfs that can be read from the host again, after a failed
/// allocation. If there are none, drops unused directory entries that can be fetched again. If
/// another thread is doing so, only waits until that thread has finished. Returns `true` if trying
/// the allocation again may help. No spin lock may be held.
pub fn relieve() -> bool {
    give_up(|way| match drop_some(RELIEF, Drops::All) {
        0 => forget(way, FORGOTTEN),
        dropped => dropped,
    })
}

/// Drops all unused pages, in every tmpfs, that can be read from the host again.
pub fn drop_clean() {
    let _way = WAY.lock();
    GAVE_UP.store(
        drop_some(usize::MAX, Drops::Unneeded) > 0,
        Ordering::Relaxed,
    );
}

/// Drops all unused directory entries, in every tmpfs, that can be fetched from the host again.
pub fn forget_unused() {
    let mut way = WAY.lock();
    GAVE_UP.store(forget(&mut way, usize::MAX) > 0, Ordering::Relaxed);
}
