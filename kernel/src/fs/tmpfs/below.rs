//! What a file system in memory shows of the host's tree, which lies below it ([`crate::drivers::root`]).
//!
//! A directory that has one below it gets that one's entries when they are asked for, each once; from then on they are like any
//! other. So nothing tells a file that was changed from one that was not, and what was removed is a name that the host is not
//! asked for again. A file's pages come when they are read, and those of a file that nobody has opened for writing may go again;
//! so may entries that nobody has changed.

use super::beside::Beside;
use super::directory::Directory;
use super::regular::{Content, PAGE, Regular};
use super::renew::Asked;
use super::{Body, TmpNode, Tmpfs};
use crate::drivers::root::{self, Entry, FRAMES_MAX, Names};
use crate::fs::FileKind;
use crate::fs::node::{Node, Timestamp, downcast};
use crate::fs::used::{self, Cold, Used};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use logic::path::PATH_MAX;
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE, stats};
use machine::sched;
use machine::sync::{Mutex, Once, SpinLock};

/// Pages that are dropped for one allocation that found nothing.
const RELIEF: usize = 512;

/// Bytes of a file that keeps its pages while a program has it open: a script that waits and goes on reads the file that it
/// began with, though the host has another one by then.
const SMALL: u64 = 1 << 20;

/// The directory of the host's below one.
#[derive(Clone, Debug)]
pub(super) enum Below {
    /// Nobody has asked yet.
    Unknown,
    /// None.
    Nothing,
    /// The one with this path, of which entries may still come.
    Folder(Arc<[u8]>),
    /// The one with this path, of which all entries are here.
    Whole(Arc<[u8]>),
}

/// The file of the host's that a regular file was.
#[derive(Debug)]
pub(super) struct FileBelow {
    /// The path of the folder that it lies in, which all files there have in common.
    pub(super) folder: Arc<[u8]>,
    pub(super) name: Arc<[u8]>,
    pub(super) version: u64,
    pub(super) asked: Asked,
    /// It is among those that may have pages to drop.
    noted: AtomicBool,
    used: Used,
    /// Open files that read it.
    readers: AtomicI32,
}

/// Entries that are forgotten for one allocation that found nothing.
const FORGOTTEN: usize = 2048;

/// Directories from the root down that are looked at for entries to forget.
const DEPTH: usize = 64;

/// A directory on the way to another, and where in it to go on.
type Stop = (Arc<TmpNode>, u64);

/// The way to the directory that is looked at.
type Way = [Option<Stop>; DEPTH];

/// The way to the directory whose entries are forgotten. Who holds it gives up pages or entries that the host still has.
static WAY: Mutex<Way> = Mutex::new([const { None }; DEPTH]);

/// Whether the last holder of [`WAY`] gave something up.
static GAVE_UP: AtomicBool = AtomicBool::new(false);

/// The roots that have a folder of the host's below them: that of all, and that of `/tmp`.
static TOPS: [Once<Arc<TmpNode>>; 2] = [const { Once::new() }; 2];

/// The file whose pages are the next to be dropped.
static HAND: AtomicUsize = AtomicUsize::new(0);

/// Files that may have pages to drop.
static FILES: SpinLock<Vec<Weak<TmpNode>>> = SpinLock::new(Vec::new());

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

/// Whether the host says that there is nothing.
pub(super) fn is_nothing(error: Errno) -> bool {
    matches!(error, Errno::ENOENT | Errno::ENOTDIR)
}

impl Tmpfs {
    /// Whether a tree of the host's is below it.
    pub(super) fn has_below(&self) -> bool {
        // Relaxed: set once, before there are tasks.
        self.below.load(Ordering::Relaxed)
    }
}

impl TmpNode {
    /// Has a folder of the host's be below this root of a file system. What is in it stays, and hides what is below.
    ///
    /// # Panics
    /// If there are as many as may be already: nothing would ever be forgotten of another one.
    pub fn show_below(&self, folder: &[u8]) {
        if let (Ok(directory), Some(top)) = (self.directory(), self.this.upgrade()) {
            directory.set_below(Below::Folder(folder.into()));
            self.fs.below.store(true, Ordering::Relaxed);
            let place = TOPS.iter().find(|place| place.get().is_none());
            let entered = place.is_some_and(|place| place.set(top).is_ok());
            assert!(entered, "too many roots have something below them");
        }
    }

    /// The directory of the host's below this one.
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
            // Somebody else may have been faster, by another name that it had.
            folder = match node.directory()?.below() {
                Below::Folder(path) | Below::Whole(path) => Some(path),
                Below::Unknown | Below::Nothing => None,
            };
        }
        Ok(folder)
    }

    /// Has the entry `name` be here, if there is one below.
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

    /// The same for an entry that is to be removed: it is known then whether the host could bring it back.
    pub(super) fn fetch_to_remove(&self, name: &[u8]) -> Result<(), Errno> {
        self.fetch_entry(name)?;
        if self.fs.has_below() {
            self.folder_below()?;
        }
        Ok(())
    }

    /// Has all entries be here that there are below.
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
        // Ends: the numbers grow.
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
                // The host has removed it: what is here is all.
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

    /// Enters what the host has in `folder`, which is below this directory, unless something is here already.
    fn enter_entry(&self, folder: &Arc<[u8]>, entry: &Entry<'_>) -> Result<(), Errno> {
        let directory = self.directory()?;
        if !directory.knows(entry.name) {
            let name: Arc<[u8]> = entry.name.into();
            let node = self.node_of(folder, &name, entry)?;
            directory.enter_below(name, node);
        }
        Ok(())
    }

    /// Has all entries of the directory `name` be here: it can only go, or be replaced, if there are none.
    pub(super) fn fetch_all_of(&self, name: &[u8]) -> Result<(), Errno> {
        match self.directory()?.get(name) {
            Some(node) if node.directory().is_ok() => node.fetch_all(),
            _ => Ok(()),
        }
    }

    /// Has the entry `name` be here, with what is below it known: it can move.
    pub(super) fn settle_entry(&self, name: &[u8]) -> Result<(), Errno> {
        self.fetch_to_remove(name)?;
        match self.directory()?.get(name) {
            Some(node) if node.directory().is_ok() && self.fs.has_below() => {
                node.folder_below().map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The node for what the host has in `folder` under `name`.
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
            FileKind::Symlink => Body::Symlink(entry.target.into()),
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
        // Relaxed: nobody else has the node.
        node.as_below.store(true, Ordering::Relaxed);
        Ok(node)
    }

    /// Notes that it is not as the host has it any more, or not where.
    pub(super) fn keep(&self) {
        // Relaxed: who forgets nodes looks while nobody else has them, under the lock by which it was found.
        if self.as_below.load(Ordering::Relaxed) {
            self.as_below.store(false, Ordering::Relaxed);
        }
    }

    /// Whether it can be had again.
    pub(super) fn is_as_below(&self) -> bool {
        self.as_below.load(Ordering::Relaxed)
    }
}

/// Forgets about `most` entries that the host still has and no program uses. `way` is locked by the caller. Returns how
/// many entries it forgot.
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

/// Calls `work`, which gives up pages or entries and returns how many, or waits while another thread does such work.
/// Returns whether something was given up, by this thread or by the other.
fn give_up(work: impl FnOnce(&mut Way) -> usize) -> bool {
    if let Some(mut way) = WAY.try_lock() {
        let some = work(&mut way) > 0;
        // Relaxed (here and below): the lock orders it.
        GAVE_UP.store(some, Ordering::Relaxed);
        return some;
    }
    // If this returned false while another thread frees memory, a program would be killed for nothing.
    let _way = WAY.lock();
    GAVE_UP.load(Ordering::Relaxed)
}

/// Forgets about `most` entries below `top` that the host still has and no program uses. Returns how many it forgot.
/// Allocates nothing, since memory may be short.
fn forget_some(way: &mut Way, top: &Arc<TmpNode>, most: usize) -> usize {
    // Of a directory the parent has two references, and the way there one.
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
        // The root is in everybody's hands; its own few entries stay.
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

    /// Notes that somebody may change the file from now on.
    pub(super) fn will_change(&self) {
        if self.below.is_some() {
            let mut content = self.content.lock();
            content.changes = true;
            content.forget_clean(u64::MAX);
        }
    }

    /// Counts an open file that reads this one (1), or does no more (-1).
    pub(super) fn count_reader(&self, change: i32) {
        if let Some(below) = &self.below {
            // Relaxed: a count of its own.
            below.readers.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Whether its pages had better stay though no program used them lately: one has it open, and it is small.
    fn is_script(&self) -> bool {
        let open = |below: &FileBelow| below.readers.load(Ordering::Relaxed) > 0;
        self.below.as_ref().is_some_and(open) && self.content.lock().below_bytes <= SMALL
    }

    /// Notes that the file's pages are used.
    pub(super) fn renew(&self) {
        if let Some(below) = &self.below {
            below.used.renew();
        }
    }

    /// Has the page at `index` be here if the host has it, and some of those behind it.
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
                // Those behind the page can come another time.
                Err(_) if !frames.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let expected = expected.min((frames.len() * PAGE_SIZE) as u64);
        let path = join(&below.folder, &below.name)?;
        let came = root::read(&path, below.version, index * PAGE, &frames);
        // Fewer bytes, or more, are not those of the file as it was.
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
        // Those behind the page may go again at once, and it too; whoever asked has it all the same.
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

    /// Enters a page that came, unless the file was cut or has the page meanwhile; the page that it has now.
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

    /// Has all of the file be here; `writing` is held.
    pub(super) fn fetch_whole(&self, node: &TmpNode) -> Result<(), Errno> {
        let end = self.content.lock().below_bytes.div_ceil(PAGE);
        for index in 0..end {
            self.fetch(node, index)?;
            crate::fs::io::breathe(PAGE_SIZE);
        }
        self.content.lock().below_bytes = 0;
        Ok(())
    }

    /// Drops pages that the host still has and nobody uses; how many.
    fn drop_unused(&self, fs: &Tmpfs, most: usize) -> usize {
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
                let unused = content
                    .pages
                    .get(index)
                    .is_some_and(|f| f.references() == 1);
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
    /// Whether the page at `index`, if it is not here, is to come from the host.
    pub(super) fn comes_from_below(&self, index: u64) -> bool {
        index < self.below_bytes.div_ceil(PAGE)
    }

    /// Notes that up to `pages` clean pages went, or are the file's own from here on.
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

    /// Nothing: the host may have another file there by now, and a program needs the one that it maps.
    fn unmap(&self) {}

    fn drop_unused(&self) -> usize {
        match self.regular() {
            Some(regular) if !regular.is_script() => regular.drop_unused(&self.fs, usize::MAX),
            _ => 0,
        }
    }
}

/// Calls `visit` with each file that may have pages to drop; the sum of what it returns. No spin lock is held.
pub(in super::super) fn each_cold(visit: &mut dyn FnMut(&dyn Cold) -> usize) -> usize {
    let mut sum = 0;
    // Files that come meanwhile are young.
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

/// Notes a file of which pages came; false: there is no memory for that.
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

/// Drops up to `most` pages that the host still has and nobody uses; how many.
fn drop_some(most: usize) -> usize {
    let mut dropped = 0;
    let count = FILES.lock().len();
    for _ in 0..count {
        if dropped >= most {
            break;
        }
        // In turn, so that no file's pages go first each time.
        let file = {
            let files = FILES.lock();
            if files.is_empty() {
                break;
            }
            // Relaxed: a place to begin.
            let at = HAND.fetch_add(1, Ordering::Relaxed) % files.len();
            files[at].upgrade()
        };
        if let Some(node) = file
            && let Some(regular) = node.regular()
        {
            dropped += regular.drop_unused(&node.fs, most - dropped);
        }
    }
    dropped
}

/// For a file system that is full: gives up pages that the host still has.
pub(super) fn make_page_room(fs: &Tmpfs) -> bool {
    fs.has_below() && give_up(|_| drop_some(RELIEF))
}

/// For a file system that has no room for another file: forgets entries that the host still has.
pub(super) fn make_node_room(fs: &Tmpfs) -> bool {
    fs.has_below() && give_up(|way| forget(way, FORGOTTEN))
}

/// For an allocation that found nothing. True when it may help to try again. No spin lock is held.
pub fn relieve() -> bool {
    give_up(|way| match drop_some(RELIEF) {
        0 => forget(way, FORGOTTEN),
        dropped => dropped,
    })
}

/// Drops all pages that the host still has and nobody uses.
pub fn drop_clean() {
    let _way = WAY.lock();
    GAVE_UP.store(drop_some(usize::MAX) > 0, Ordering::Relaxed);
}

/// Forgets all entries that the host still has and nobody uses.
pub fn forget_unused() {
    let mut way = WAY.lock();
    GAVE_UP.store(forget(&mut way, usize::MAX) > 0, Ordering::Relaxed);
}
