//! The nodes of an image's index: files, directories, symbolic links and FIFOs, stored in little
//! memory.
//!
//! | for each node | bytes |
//! |---|---|
//! | parent, next sibling, place and length of the content, kind and number of facts | 20 |
//! | name | its length and 1½ |
//! | slot of the hash table by which it is found | 4½ to 5½ |
//! | whether the newest layer has it, and whether it was pruned in that layer | ¼ |
//!
//! Facts (owner, mode, time) take 24 bytes, unless a node shortly before has the same.

use super::archives::Archives;
use super::facts::{AllFacts, Facts};
use super::growth::{Bitmap, push_all};
use super::names::Names;
use super::section::Section;
use super::table::{NUMBERS_MAX, Table};
use std::io;

/// The number of a node in an image's index. Numbers are never used again.
pub(super) type Id = u32;
/// The number of the root directory. No directory contains it as an entry, so it ends lists of
/// entries.
pub(super) const ROOT: Id = 0;

/// The kind of a node: regular file, directory, symbolic link or FIFO.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link,
    Fifo,
}

/// Position of the [`Kind`] in [`Raw::word`]. The bits below have the number of the facts.
const KIND_SHIFT: u32 = 24;
const FACTS: u32 = (1 << KIND_SHIFT) - 1;
/// The node was removed.
const REMOVED: u32 = 1 << 26;
/// A bit of [`Raw::second`] of a file: the other bits are the index of its length in
/// [`Nodes::large`].
const LARGE: u32 = 1 << 31;

/// The fixed-size data of a node.
#[derive(Copy, Clone, Debug)]
struct Raw {
    parent: Id,
    /// The next node in the same directory. After sorting, this field has another use: element n of
    /// the vector holds the n-th node of the list of all directories' entries.
    next: Id,
    /// Of a directory: its first node, and after sorting its position in that list. Of a file: its
    /// first block. Of a link: the offset of its target.
    first: u32,
    /// Of a directory: the number of entries, after sorting. Of a file or link: the number of
    /// bytes.
    second: u32,
    /// The number of the facts, the [`Kind`] and [`REMOVED`].
    word: u32,
}

/// The kind and the content of a node that is not added yet. [`Nodes::enter`] adds it.
#[derive(Copy, Clone, Debug)]
pub(super) struct New {
    kind: Kind,
    first: u32,
    second: u32,
}

impl New {
    /// A new directory without entries.
    pub(super) const FOLDER: Self = Self::empty(Kind::Folder);
    /// A new FIFO.
    pub(super) const FIFO: Self = Self::empty(Kind::Fifo);

    const fn empty(kind: Kind) -> Self {
        Self {
            kind,
            first: 0,
            second: 0,
        }
    }
}

/// All nodes of an image, stored in little memory.
#[derive(Debug)]
pub(super) struct Nodes {
    raw: Vec<Raw>,
    names: Names,
    /// The targets of all links, one behind the other.
    targets: Vec<u8>,
    table: Table,
    facts: AllFacts,
    /// Lengths of files with 2 GiB or more.
    large: Vec<u64>,
    archives: Archives,
    /// Number of nodes that are not removed.
    live: usize,
    /// Nodes that the newest layer has.
    own: Bitmap,
    /// Nodes whose subtree has nothing left of lower layers.
    pruned: Bitmap,
}

/// Owner, mode and time of a directory that no entry of the archive describes: root, `0o755`, and
/// time 0.
pub(super) const IMPLIED: Facts = Facts {
    seconds: 0,
    nanos: 0,
    uid: 0,
    gid: 0,
    mode: 0o755,
};

impl Nodes {
    /// Creates the store with only the root directory, which has the facts [`IMPLIED`].
    pub(super) fn new() -> Self {
        let mut nodes = Self {
            raw: Vec::new(),
            names: Names::default(),
            targets: Vec::new(),
            table: Table::new(),
            facts: AllFacts::new(),
            large: Vec::new(),
            archives: Archives::default(),
            live: 1,
            own: Bitmap::default(),
            pruned: Bitmap::default(),
        };
        let root = Raw {
            parent: ROOT,
            next: 0,
            first: 0,
            second: 0,
            word: nodes.facts.number(IMPLIED) | (Kind::Folder as u32) << KIND_SHIFT,
        };
        nodes.names.push(b"");
        nodes.raw.push(root);
        nodes
    }

    /// Begins a new layer above all others. The contents of its files are in `archive`. Returns
    /// `false` if the archives of the image together exceed their limit, and adds nothing to them
    /// then.
    ///
    /// # Errors
    /// Fails if the host cannot tell the size of the file of `archive`.
    pub(super) fn begin_layer(&mut self, archive: &Section) -> io::Result<bool> {
        self.own.clear();
        self.pruned.clear();
        self.archives.add(archive)
    }

    fn raw(&self, id: Id) -> &Raw {
        &self.raw[id as usize]
    }

    fn raw_mut(&mut self, id: Id) -> &mut Raw {
        &mut self.raw[id as usize]
    }

    fn is_removed(&self, id: Id) -> bool {
        self.raw(id).word & REMOVED != 0
    }

    /// Returns the kind of node `id`, also of a removed one.
    pub(super) fn kind(&self, id: Id) -> Kind {
        match self.raw(id).word >> KIND_SHIFT & 3 {
            0 => Kind::File,
            1 => Kind::Folder,
            2 => Kind::Link,
            _ => Kind::Fifo,
        }
    }

    /// Returns the directory that contains node `id`. The root contains itself.
    pub(super) fn parent(&self, id: Id) -> Id {
        self.raw(id).parent
    }

    /// Returns owner, mode and time of node `id`.
    pub(super) fn facts(&self, id: Id) -> Facts {
        self.facts.get(self.raw(id).word & FACTS)
    }

    /// Returns the range of bytes of an archive that is the content of the file `id`. The node must
    /// be a file.
    pub(super) fn content(&self, id: Id) -> Section {
        let Raw { first, second, .. } = *self.raw(id);
        let len = match second & LARGE {
            0 => u64::from(second),
            _ => self.large[(second & !LARGE) as usize],
        };
        self.archives.section(first, len)
    }

    /// Returns the byte offset of the target of the symbolic link `id` in [`Self::targets`], and
    /// the target. The node must be a symbolic link.
    pub(super) fn target(&self, id: Id) -> (usize, &[u8]) {
        let Raw { first, second, .. } = *self.raw(id);
        let from = first as usize;
        (from, &self.targets[from..from + second as usize])
    }

    /// Returns the targets of all symbolic links in one vector, one behind the other.
    pub(super) fn targets(&self) -> &[u8] {
        &self.targets
    }

    /// Returns the node called `name` in the directory `folder`. Returns `None` if there is none,
    /// or if it was removed.
    pub(super) fn child(&self, folder: Id, name: &[u8]) -> Option<Id> {
        self.table.find(folder, name, |id| {
            let raw = self.raw(id);
            raw.parent == folder && raw.word & REMOVED == 0 && self.names.get(id) == name
        })
    }

    /// Returns whether no node can be added, because all 2^22 numbers are in use. Numbers of
    /// removed nodes count too.
    pub(super) fn is_full(&self) -> bool {
        self.raw.len() >= NUMBERS_MAX
    }

    /// Prepares a regular file whose bytes are `content`, for [`Self::enter`]. Returns `None` if
    /// `content` does not begin with a 512-byte block of the newest layer's archive.
    pub(super) fn new_file(&mut self, content: &Section) -> Option<New> {
        let second = match u32::try_from(content.len()) {
            Ok(len) if len & LARGE == 0 => len,
            _ => {
                let place = u32::try_from(self.large.len()).ok()?;
                push_all(&mut self.large, &[content.len()]);
                place | LARGE
            }
        };
        Some(New {
            kind: Kind::File,
            first: self.archives.block_of(content)?,
            second,
        })
    }

    /// Prepares a symbolic link to `target` for [`Self::enter`], and stores the target. `target`
    /// must not be longer than a path.
    ///
    /// # Panics
    /// If all targets together have 4 GiB or more.
    pub(super) fn new_link(&mut self, target: &[u8]) -> New {
        let number = |count: usize| u32::try_from(count).expect("an index has a bounded size");
        let first = number(self.targets.len());
        push_all(&mut self.targets, target);
        New {
            kind: Kind::Link,
            first,
            second: number(target.len()),
        }
    }

    /// Prepares a hard link to node `id` for [`Self::enter`], which shares its kind and content.
    /// The node must not be a directory.
    pub(super) fn like(&self, id: Id) -> New {
        let Raw { first, second, .. } = *self.raw(id);
        New {
            kind: self.kind(id),
            first,
            second,
        }
    }

    /// Adds the node `new` called `name` to the directory `parent`, and removes the node that had
    /// this name. Returns the number of the new node, which belongs to the newest layer.
    ///
    /// [`Self::is_full`] must be `false`.
    ///
    /// # Panics
    /// If `name` has more than 255 bytes.
    pub(super) fn enter(&mut self, parent: Id, name: &[u8], new: New, facts: Facts) -> Id {
        if let Some(there) = self.child(parent, name) {
            self.remove(there);
        }
        if self.table.is_full() {
            self.fill_table();
        }
        let id = Id::try_from(self.raw.len()).expect("there is room");
        let word = self.facts.number(facts) | (new.kind as u32) << KIND_SHIFT;
        let before = std::mem::replace(&mut self.raw_mut(parent).first, id);
        let raw = Raw {
            parent,
            next: before,
            first: new.first,
            second: new.second,
            word,
        };
        push_all(&mut self.raw, &[raw]);
        self.names.push(name);
        self.table.insert(parent, name, id);
        self.own.set(id);
        self.live += 1;
        id
    }

    fn fill_table(&mut self) {
        self.table.clear_for(self.live);
        for (id, raw) in (0..).zip(&self.raw).skip(1) {
            if raw.word & REMOVED == 0 {
                self.table.insert(raw.parent, self.names.get(id), id);
            }
        }
    }

    /// Replaces owner, mode and time of node `id`, and marks it as part of the newest layer.
    pub(super) fn set_facts(&mut self, id: Id, facts: Facts) {
        let number = self.facts.number(facts);
        let raw = self.raw_mut(id);
        raw.word = raw.word & !FACTS | number;
        self.own.set(id);
    }

    /// Marks node `id`, which must not be removed yet, as removed. Paths then do not lead to it or
    /// its subtree any more. Memory is not freed.
    pub(super) fn remove(&mut self, id: Id) {
        self.raw_mut(id).word |= REMOVED;
        self.live -= 1;
    }

    /// Removes from the subtree of `id` all nodes that the newest layer does not have. Node `id`
    /// itself is not removed. Returns `true` if it or a node in its subtree belongs to the newest
    /// layer, so that the caller must keep `id`. Adds the number of nodes looked at to `looked_at`.
    ///
    /// The recursion is as deep as the directories. A directory is searched only once for each
    /// layer, since later nodes in it belong to that layer.
    pub(super) fn prune(&mut self, id: Id, looked_at: &mut u64) -> bool {
        *looked_at += 1;
        let own = self.own.get(id);
        let done = self.pruned.set(id);
        if self.kind(id) != Kind::Folder {
            return own;
        }
        let mut at = self.raw(id).first;
        if done {
            // Ends, because each node is further down the list.
            while at != ROOT && self.is_removed(at) {
                *looked_at += 1;
                at = self.raw(at).next;
            }
            return own || at != ROOT;
        }
        self.raw_mut(id).first = ROOT;
        let mut last = ROOT;
        // Ends, because each node is further down the list.
        while at != ROOT {
            let next = self.raw(at).next;
            if self.is_removed(at) {
                *looked_at += 1;
            } else if self.prune(at, looked_at) {
                self.raw_mut(at).next = ROOT;
                match last {
                    ROOT => self.raw_mut(id).first = at,
                    last => self.raw_mut(last).next = at,
                }
                last = at;
            } else {
                self.remove(at);
            }
            at = next;
        }
        own || last != ROOT
    }

    /// Sorts the entries of all directories by name. No node may be added or removed after that.
    pub(super) fn sort(&mut self) {
        // The table is freed first, so that list and table do not take memory at the same time.
        self.table.clear_for(0);
        let mut list = Vec::with_capacity(self.raw.len());
        for folder in 0..self.raw.len() {
            let id = Id::try_from(folder).expect("it is the number of a file");
            if self.kind(id) != Kind::Folder || self.is_removed(id) {
                continue;
            }
            let start = list.len();
            let mut at = self.raw(id).first;
            while at != ROOT {
                if !self.is_removed(at) {
                    list.push(self.names.place(at));
                }
                at = self.raw(at).next;
            }
            list[start..].sort_unstable_by_key(|place| self.names.at(*place));
            for place in &mut list[start..] {
                *place = self.names.number_at(*place);
            }
            let number = |count: usize| u32::try_from(count).expect("it is a number of files");
            let count = number(list.len() - start);
            let raw = self.raw_mut(id);
            (raw.first, raw.second) = (number(start), count);
        }
        for (raw, id) in self.raw.iter_mut().zip(&list) {
            raw.next = *id;
        }
        drop(list);
        self.fill_table();
    }

    /// Returns the number of entries in the directory `folder`. [`Self::sort`] must have been
    /// called.
    pub(super) fn count(&self, folder: Id) -> u32 {
        self.raw(folder).second
    }

    /// Returns the name and the number of the entry at the index `place` of the directory `folder`,
    /// in order of names. Returns `None` behind the last one. [`Self::sort`] must have been called.
    pub(super) fn nth(&self, folder: Id, place: u32) -> Option<(&[u8], Id)> {
        let Raw { first, second, .. } = *self.raw(folder);
        let id = (place < second).then(|| self.raw(first + place).next)?;
        Some((self.names.get(id), id))
    }

    /// Returns the number of bytes of memory that are reserved for all nodes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Raw>() * self.raw.capacity()
            + self.names.bytes()
            + self.targets.capacity()
            + self.table.bytes()
            + self.facts.bytes()
            + size_of::<u64>() * self.large.capacity()
            + self.archives.bytes()
            + self.own.bytes()
            + self.pruned.bytes()
    }
}
