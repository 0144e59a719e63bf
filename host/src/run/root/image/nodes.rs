//! The files of an image, in few bytes each.
//!
//! | for each file | bytes |
//! |---|---|
//! | its folder, its place among the files there, where its bytes stand, their number, number of its facts | 20 |
//! | its name | its length and 1½ |
//! | a slot of the table by which it is found | 4½ to 5½ |
//! | whether its layer is the last one, and whether that was looked through | ¼ |
//!
//! Facts take 24 bytes where they are not those of a file shortly before.

use super::archives::Archives;
use super::facts::{AllFacts, Facts};
use super::growth::{Marks, push_all};
use super::names::Names;
use super::section::Section;
use super::table::{NUMBERS_MAX, Table};
use std::io;

/// The number of a file.
pub(super) type Id = u32;
/// The root's. No folder has it, so it also means that there is none.
pub(super) const ROOT: Id = 0;

/// What a file is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link,
    Fifo,
}

/// In [`Raw::word`], behind the number of the facts.
const KIND_SHIFT: u32 = 24;
const FACTS: u32 = (1 << KIND_SHIFT) - 1;
/// The file is not there any more.
const REMOVED: u32 = 1 << 26;
/// In [`Raw::second`] of a file: the rest is the place of its length among those that have more
/// bits.
const LARGE: u32 = 1 << 31;

/// What there is for each file.
#[derive(Copy, Clone, Debug)]
struct Raw {
    parent: Id,
    /// The next file in the same folder. Once all are sorted: the file at this place of the list of
    /// all folders' files.
    next: Id,
    /// A folder: the first file in it, then its place in that list. A file: its first block. A
    /// link: where its target stands.
    first: u32,
    /// A folder, once all are sorted: the number of files in it. A file or a link: the number of
    /// bytes.
    second: u32,
    word: u32,
}

/// A file that is new.
#[derive(Copy, Clone, Debug)]
pub(super) struct New {
    kind: Kind,
    first: u32,
    second: u32,
}

impl New {
    pub(super) const FOLDER: Self = Self::empty(Kind::Folder);
    pub(super) const FIFO: Self = Self::empty(Kind::Fifo);

    const fn empty(kind: Kind) -> Self {
        Self {
            kind,
            first: 0,
            second: 0,
        }
    }
}

/// All files.
#[derive(Debug)]
pub(super) struct Nodes {
    raw: Vec<Raw>,
    names: Names,
    /// Targets of links.
    targets: Vec<u8>,
    table: Table,
    facts: AllFacts,
    /// Lengths of large files.
    large: Vec<u64>,
    archives: Archives,
    /// Files that are there.
    live: usize,
    /// Files that the last layer has.
    own: Marks,
    /// Files at and below which nothing is left of the layers below the last one.
    pruned: Marks,
}

/// What a folder has that no entry is for.
pub(super) const IMPLIED: Facts = Facts {
    seconds: 0,
    nanos: 0,
    uid: 0,
    gid: 0,
    mode: 0o755,
};

impl Nodes {
    /// Only the root.
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
            own: Marks::default(),
            pruned: Marks::default(),
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

    /// Begins a layer above what there is. Files of its own stand in `archive`. Returns `false` if
    /// there is no room for that.
    ///
    /// # Errors
    /// The size of the archive cannot be had.
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

    /// Returns what a file is.
    pub(super) fn kind(&self, id: Id) -> Kind {
        match self.raw(id).word >> KIND_SHIFT & 3 {
            0 => Kind::File,
            1 => Kind::Folder,
            2 => Kind::Link,
            _ => Kind::Fifo,
        }
    }

    /// Returns the folder of a file; the root's is the root.
    pub(super) fn parent(&self, id: Id) -> Id {
        self.raw(id).parent
    }

    /// Returns the facts of a file.
    pub(super) fn facts(&self, id: Id) -> Facts {
        self.facts.get(self.raw(id).word & FACTS)
    }

    /// Returns the bytes of a file; of no use for what is none.
    pub(super) fn content(&self, id: Id) -> Section {
        let Raw { first, second, .. } = *self.raw(id);
        let len = match second & LARGE {
            0 => u64::from(second),
            _ => self.large[(second & !LARGE) as usize],
        };
        self.archives.section(first, len)
    }

    /// Returns the target of a link, and where among all targets it stands; of no use for what is
    /// no link.
    pub(super) fn target(&self, id: Id) -> (usize, &[u8]) {
        let Raw { first, second, .. } = *self.raw(id);
        let from = first as usize;
        (from, &self.targets[from..from + second as usize])
    }

    /// Returns all targets of links.
    pub(super) fn targets(&self) -> &[u8] {
        &self.targets
    }

    /// Returns the file of a name in a folder.
    pub(super) fn child(&self, folder: Id, name: &[u8]) -> Option<Id> {
        self.table.find(folder, name, |id| {
            let raw = self.raw(id);
            raw.parent == folder && raw.word & REMOVED == 0 && self.names.get(id) == name
        })
    }

    /// Returns whether there is no room for another file.
    pub(super) fn is_full(&self) -> bool {
        self.raw.len() >= NUMBERS_MAX
    }

    /// Makes a new file of bytes. Returns `None` if they do not stand in an archive of an image.
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

    /// Makes a new link. The target must not be longer than a path.
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

    /// Returns a file like another one, which must be no folder.
    pub(super) fn like(&self, id: Id) -> New {
        let Raw { first, second, .. } = *self.raw(id);
        New {
            kind: self.kind(id),
            first,
            second,
        }
    }

    /// Puts a file into a folder, in the place of the one that has this name. The name has at most
    /// 255 bytes, and there must be room ([`Self::is_full`]).
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

    /// Says of a file that the last layer has it, with these facts.
    pub(super) fn set_facts(&mut self, id: Id, facts: Facts) {
        let number = self.facts.number(facts);
        let raw = self.raw_mut(id);
        raw.word = raw.word & !FACTS | number;
        self.own.set(id);
    }

    /// Takes a file away, with all below it.
    pub(super) fn remove(&mut self, id: Id) {
        self.raw_mut(id).word |= REMOVED;
        self.live -= 1;
    }

    /// Takes away what is not of the last layer at and below a file. Returns whether anything
    /// stays. As deep as folders are. Counts the files that were looked at.
    ///
    /// A folder is looked through once for each layer: what comes below it afterwards is the
    /// layer's.
    pub(super) fn prune(&mut self, id: Id, looked_at: &mut u64) -> bool {
        *looked_at += 1;
        let own = self.own.get(id);
        let done = self.pruned.set(id);
        if self.kind(id) != Kind::Folder {
            return own;
        }
        let mut at = self.raw(id).first;
        if done {
            // Ends: each is further in the list.
            while at != ROOT && self.is_removed(at) {
                *looked_at += 1;
                at = self.raw(at).next;
            }
            return own || at != ROOT;
        }
        self.raw_mut(id).first = ROOT;
        let mut last = ROOT;
        // Ends: each is further in the list.
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

    /// Sorts the files of all folders by their names. No file may come after that.
    pub(super) fn sort(&mut self) {
        // While there is a list besides, there is no table.
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

    /// Returns the number of files in a folder. All must be sorted.
    pub(super) fn count(&self, folder: Id) -> u32 {
        self.raw(folder).second
    }

    /// Returns a file of a folder by its place, and its name. All must be sorted.
    pub(super) fn nth(&self, folder: Id, place: u32) -> Option<(&[u8], Id)> {
        let Raw { first, second, .. } = *self.raw(folder);
        let id = (place < second).then(|| self.raw(first + place).next)?;
        Some((self.names.get(id), id))
    }

    /// Returns the bytes of memory that it takes.
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
