//! What stands in an image: entries of its layers, one above the other.

use super::archives::ARCHIVES_MAX;
use super::entries::{Entries, Entry};
use super::error::ImageError;
use super::facts::Facts;
use super::nodes::{IMPLIED, Kind, New, Nodes};
use super::section::Section;
use super::table::NUMBERS_MAX;
use super::way::{NAME_MAX, WAY_STEPS_MAX, Way};
use tar::EntryType;

pub(super) use super::nodes::{Id, ROOT};
pub(super) use super::way::Lost;

/// Entries of all layers together.
pub(super) const ENTRIES_MAX: u32 = 1 << 21;
/// Bytes of memory that an image's index takes, with that of the archive that its layers stand in.
pub(super) const INDEX_MAX: usize = 64 << 20;
/// Folders above a file.
const DEPTH_MAX: u16 = 256;
const TARGET_MAX: usize = 4095;
/// Steps on the ways to all entries of an image. Each file that a whiteout has looked at is one,
/// too.
pub(super) const STEPS_MAX: u64 = 1 << 27;
/// Bytes of the extensions before all entries of an image.
pub(super) const EXTENSIONS_MAX: u64 = 512 << 20;

/// What a file is.
#[derive(Clone, Debug)]
pub(super) enum Body<'a> {
    Folder,
    File(Section),
    /// Shared by hard links to it.
    Link(&'a [u8]),
    Fifo,
}

/// A file, folder or link.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) seconds: i64,
    pub(super) nanos: u32,
    pub(super) body: Body<'a>,
}

/// All of an image.
#[derive(Debug)]
pub(super) struct Index {
    nodes: Nodes,
    entries: u32,
    /// Steps on the ways to its entries.
    steps: u64,
    /// Bytes of extensions.
    extensions: u64,
    /// Bytes of memory that another index takes meanwhile.
    beside: usize,
}

/// What names in a layer may mean.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Whiteouts {
    /// `.wh.NAME` takes NAME of the layers below away.
    Honoured,
    /// They are names.
    None,
}

/// Says what is wrong with an entry to which a way leads nowhere.
fn astray(entry: &Entry, lost: Lost) -> ImageError {
    entry.refuse(match lost {
        Lost::TooLong => {
            format!("the way there, links included, has more than {WAY_STEPS_MAX} steps")
        }
        Lost::LongName => format!("a name on the way there has more than {NAME_MAX} bytes"),
        Lost::Nothing | Lost::NoFolder | Lost::TooManyLinks => {
            "links on the way there lead in circles".to_owned()
        }
    })
}

/// What an entry says of its file.
fn facts_of(entry: &Entry) -> Facts {
    Facts {
        seconds: entry.seconds,
        nanos: entry.nanos,
        uid: entry.uid,
        gid: entry.gid,
        // It has twelve bits.
        mode: u16::try_from(entry.mode & 0o7777).unwrap_or(0),
    }
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            nodes: Nodes::new(),
            entries: 0,
            steps: 0,
            extensions: 0,
            beside: 0,
        }
    }

    /// Returns an empty one that counts the memory of this one as its own.
    pub(super) fn beside(&self) -> Self {
        Self {
            beside: self.nodes.bytes(),
            ..Self::new()
        }
    }

    /// Returns the steps that the ways to its entries took.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the bytes of memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.nodes.bytes()
    }

    /// Sets the bytes that another index takes.
    #[cfg(test)]
    pub(super) fn take_beside(&mut self, bytes: usize) {
        self.beside = bytes;
    }

    /// Returns whether another index takes this many `bytes`.
    #[cfg(test)]
    pub(super) fn is_beside(&self, bytes: usize) -> bool {
        self.beside == bytes
    }

    /// Sets the steps and the bytes of extensions that count as done.
    #[cfg(test)]
    pub(super) fn begin_with(&mut self, steps: u64, extensions: u64) {
        (self.steps, self.extensions) = (steps, extensions);
    }

    /// Returns what there is of a file.
    pub(super) fn node(&self, id: Id) -> Node<'_> {
        let Facts {
            seconds,
            nanos,
            uid,
            gid,
            mode,
        } = self.nodes.facts(id);
        Node {
            mode: mode.into(),
            uid,
            gid,
            seconds,
            nanos,
            body: match self.nodes.kind(id) {
                Kind::Folder => Body::Folder,
                Kind::File => Body::File(self.nodes.content(id)),
                Kind::Link => Body::Link(self.nodes.target(id).1),
                Kind::Fifo => Body::Fifo,
            },
        }
    }

    /// Returns the number of files in a folder. All layers must be there, and [`Self::finish`]
    /// called.
    pub(super) fn count(&self, folder: Id) -> u32 {
        self.nodes.count(folder)
    }

    /// Returns the files in a folder from a place on, in order of their names: each one's place,
    /// name and number. See [`Self::count`].
    pub(super) fn children(&self, folder: Id, from: u32) -> impl Iterator<Item = (u32, &[u8], Id)> {
        (from..self.count(folder)).filter_map(move |place| {
            let (name, id) = self.nodes.nth(folder, place)?;
            Some((place, name, id))
        })
    }

    /// Sorts the files of all folders: there are no more layers.
    pub(super) fn finish(&mut self) {
        self.nodes.sort();
    }

    /// What stands at a path; links are followed within the image, one in last place only if
    /// `follow`.
    pub(super) fn find(&self, path: &[u8], follow: bool) -> Result<Id, Lost> {
        self.walk(&mut Way::of(path), follow)
    }

    fn walk(&self, way: &mut Way<'_>, follow: bool) -> Result<Id, Lost> {
        let (nodes, targets) = (&self.nodes, self.nodes.targets());
        let mut at = ROOT;
        // Ends: a way has a bounded number of steps.
        while let Some(part) = way.next(targets)? {
            if nodes.kind(at) != Kind::Folder {
                return Err(Lost::NoFolder);
            }
            if part == b".." {
                at = nodes.parent(at);
                continue;
            }
            let id = nodes.child(at, part).ok_or(Lost::Nothing)?;
            at = match nodes.kind(id) {
                Kind::Link if follow || !way.is_at_end(targets)? => {
                    way.follow(at, nodes.target(id))?
                }
                _ => id,
            };
        }
        Ok(at)
    }

    /// The same as [`Self::find`], counted among the steps of the image.
    fn find_for(
        &mut self,
        entry: &Entry,
        path: &[u8],
        follow: bool,
    ) -> Result<Result<Id, Lost>, ImageError> {
        let mut way = Way::of(path);
        let found = self.walk(&mut way, follow);
        self.count_steps(entry, way.steps.into())?;
        match found {
            Err(lost @ (Lost::TooLong | Lost::LongName)) => Err(astray(entry, lost)),
            found => Ok(found),
        }
    }

    /// Counts steps that an entry takes.
    fn count_steps(&mut self, entry: &Entry, steps: u64) -> Result<(), ImageError> {
        self.steps += steps;
        if self.steps > STEPS_MAX {
            return Err(entry.refuse(format!(
                "the ways to the entries up to it have more than {STEPS_MAX} steps"
            )));
        }
        Ok(())
    }

    /// Puts a layer above what there is.
    pub(super) fn add_layer(
        &mut self,
        archive: Section,
        whiteouts: Whiteouts,
    ) -> Result<(), ImageError> {
        if !self.nodes.begin_layer(&archive)? {
            return Err(ImageError::Image(format!(
                "its layers have more than {} TiB together",
                ARCHIVES_MAX >> 40
            )));
        }
        let mut entries = Entries::of(archive);
        while let Some(entry) = entries.next(&mut self.extensions, EXTENSIONS_MAX)? {
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                return Err(entry.refuse(format!("the image has more than {ENTRIES_MAX} entries")));
            }
            self.add(&entry, whiteouts)?;
            if self.beside + self.nodes.bytes() > INDEX_MAX {
                return Err(entry.refuse(format!(
                    "the index of the entries up to it takes more than {} MiB of memory",
                    INDEX_MAX >> 20
                )));
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: &Entry, whiteouts: Whiteouts) -> Result<(), ImageError> {
        let mut parts = parts(entry, &entry.name)?;
        let Some(name) = parts.pop() else {
            // The root itself.
            if entry.kind == EntryType::Directory {
                self.nodes.set_facts(ROOT, facts_of(entry));
            }
            return Ok(());
        };
        if whiteouts == Whiteouts::Honoured
            && let Some(hidden) = name.strip_prefix(b".wh.")
        {
            return self.hide(entry, &parts, hidden);
        }
        let target = &entry.link;
        match entry.kind {
            EntryType::Regular | EntryType::Continuous | EntryType::Directory | EntryType::Fifo => {
            }
            EntryType::Symlink => {
                if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
                    return Err(entry.refuse("it is a link to no path"));
                }
            }
            EntryType::Link => return self.add_hard_link(entry, &parts, name),
            // The guest has devices of its own.
            EntryType::Char | EntryType::Block => return Ok(()),
            kind => {
                let kind = char::from(kind.as_byte()).escape_default();
                return Err(entry.refuse(format!("an entry of type `{kind}`")));
            }
        }
        let parent = self.make_way(entry, &parts)?;
        let new = match entry.kind {
            EntryType::Directory => {
                let there = self.nodes.child(parent, name);
                if let Some(id) = there.filter(|id| self.nodes.kind(*id) == Kind::Folder) {
                    self.nodes.set_facts(id, facts_of(entry));
                    return Ok(());
                }
                New::FOLDER
            }
            EntryType::Symlink => self.nodes.new_link(target),
            EntryType::Fifo => New::FIFO,
            _ => {
                let new = self.nodes.new_file(&entry.content);
                new.ok_or_else(|| entry.refuse("its bytes do not begin with a block"))?
            }
        };
        self.enter(entry, parent, name, new, facts_of(entry))?;
        Ok(())
    }

    fn enter(
        &mut self,
        entry: &Entry,
        parent: Id,
        name: &[u8],
        new: New,
        facts: Facts,
    ) -> Result<Id, ImageError> {
        if self.nodes.is_full() {
            return Err(entry.refuse(format!(
                "the image has more than {NUMBERS_MAX} files, links and folders"
            )));
        }
        Ok(self.nodes.enter(parent, name, new, facts))
    }

    fn add_hard_link(
        &mut self,
        entry: &Entry,
        parts: &[&[u8]],
        name: &[u8],
    ) -> Result<(), ImageError> {
        let target = entry.link.escape_ascii();
        let path = self::parts(entry, &entry.link)?.join(&b'/');
        let found = self.find_for(entry, &path, false)?;
        let meant = match found {
            Ok(id) if self.nodes.kind(id) != Kind::Folder => id,
            _ => {
                return Err(entry.refuse(format!(
                    "it is a hard link to {target}, which is no file before it"
                )));
            }
        };
        let parent = self.make_way(entry, parts)?;
        if self.nodes.child(parent, name) == Some(meant) {
            return Ok(());
        }
        let (new, facts) = (self.nodes.like(meant), self.nodes.facts(meant));
        self.enter(entry, parent, name, new, facts)?;
        Ok(())
    }

    /// The folder with these parts, made where there is none; links on the way are followed.
    fn make_way(&mut self, entry: &Entry, parts: &[&[u8]]) -> Result<Id, ImageError> {
        let path = parts.join(&b'/');
        let mut way = Way::of(&path);
        let made = self.make(&mut way, entry);
        self.count_steps(entry, way.steps.into())?;
        made
    }

    fn make(&mut self, way: &mut Way<'_>, entry: &Entry) -> Result<Id, ImageError> {
        let lost = |lost| astray(entry, lost);
        let deep = || entry.refuse(format!("it is more than {DEPTH_MAX} folders deep"));
        // Links may lead deeper than a name is long.
        let (mut at, mut depth) = (ROOT, 0_u16);
        // As in `walk`.
        while let Some(name) = way.next(self.nodes.targets()).map_err(lost)? {
            if name == b".." {
                at = self.nodes.parent(at);
                depth = depth.saturating_sub(1);
                continue;
            }
            let there = self.nodes.child(at, name);
            match there.map(|id| (id, self.nodes.kind(id))) {
                Some((id, Kind::Link)) => {
                    let target = self.nodes.target(id);
                    at = way.follow(at, target).map_err(lost)?;
                    if target.1.starts_with(b"/") {
                        depth = 0;
                    }
                    continue;
                }
                Some((id, Kind::Folder)) => at = id,
                Some(_) => return Err(entry.refuse("a file is on the way there")),
                None => {
                    if depth + 1 >= DEPTH_MAX {
                        return Err(deep());
                    }
                    // It may stand among the targets, which the index owns.
                    let name = name.to_vec();
                    at = self.enter(entry, at, &name, New::FOLDER, IMPLIED)?;
                }
            }
            depth += 1;
        }
        // What is in the folder is one deeper.
        if depth + 1 > DEPTH_MAX {
            Err(deep())
        } else {
            Ok(at)
        }
    }

    /// Takes away what layers below have: `hidden` in the folder with these parts, or all that is
    /// in it.
    fn hide(&mut self, entry: &Entry, parts: &[&[u8]], hidden: &[u8]) -> Result<(), ImageError> {
        let Ok(at) = self.find_for(entry, &parts.join(&b'/'), true)? else {
            return Ok(());
        };
        let mut looked_at = 0;
        match hidden {
            b".wh..opq" => {
                self.nodes.prune(at, &mut looked_at);
            }
            // Others are notes of a file system's own.
            _ if hidden.starts_with(b".wh.") => {}
            name => {
                if let Some(id) = self.nodes.child(at, name)
                    && !self.nodes.prune(id, &mut looked_at)
                {
                    self.nodes.remove(id);
                }
            }
        }
        self.count_steps(entry, looked_at)
    }
}

/// The parts of a name; one with a slash before it means the image's root.
fn parts<'a>(entry: &Entry, name: &'a [u8]) -> Result<Vec<&'a [u8]>, ImageError> {
    let parts = name.split(|byte| *byte == b'/');
    let parts: Vec<_> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&&b".."[..]) {
        return Err(entry.refuse("there is `..` in its path"));
    }
    if name.len() > TARGET_MAX || parts.iter().any(|part| part.len() > NAME_MAX) {
        return Err(entry.refuse(format!(
            "its path has more than {TARGET_MAX} bytes, or a name in it more than {NAME_MAX}"
        )));
    }
    if name.contains(&0) {
        return Err(entry.refuse("there is a zero byte in its path"));
    }
    if parts.len() > usize::from(DEPTH_MAX) {
        return Err(entry.refuse(format!("it is more than {DEPTH_MAX} folders deep")));
    }
    Ok(parts)
}
