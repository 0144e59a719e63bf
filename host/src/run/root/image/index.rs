//! The index of an image: the nodes that result from the entries of its layers, one layer above the
//! other.

use super::archives::ARCHIVES_MAX;
use super::entries::{Entries, Entry};
use super::error::ImageError;
use super::facts::Facts;
use super::nodes::{IMPLIED, Kind, New, Nodes};
use super::section::Section;
use super::table::NUMBERS_MAX;
use super::walk::{NAME_MAX, PathWalk, WALK_STEPS_MAX};
use tar::EntryType;

pub(super) use super::nodes::{Id, ROOT};
pub(super) use super::walk::WalkError;

/// The most entries of all layers of an image together.
pub(super) const ENTRIES_MAX: u32 = 1 << 21;
/// The most bytes of memory for an image's index. The index of the outer archive, which holds the
/// layers, counts too.
pub(super) const INDEX_MAX: usize = 64 << 20;
/// The most directories above a node.
const DEPTH_MAX: u16 = 256;
const TARGET_MAX: usize = 4095;
/// The most steps to resolve the paths of all entries of an image together. A component of a path
/// is a step, and each node that a whiteout looks at is one, too.
pub(super) const STEPS_MAX: u64 = 1 << 27;
/// The most bytes of extended headers (long names, pax headers) of all entries of an image.
pub(super) const EXTENSIONS_MAX: u64 = 512 << 20;

/// The kind of a node with its content: a file's bytes or a link's target.
#[derive(Clone, Debug)]
pub(super) enum Body<'a> {
    Folder,
    File(Section),
    /// A symbolic link and its target. Hard links to it share the target.
    Link(&'a [u8]),
    Fifo,
}

/// A file, directory, symbolic link or FIFO of an image, with its owner, mode and time.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) seconds: i64,
    pub(super) nanos: u32,
    pub(super) body: Body<'a>,
}

/// The index of an image: a tree of nodes that results from the entries of its layers.
#[derive(Debug)]
pub(super) struct Index {
    nodes: Nodes,
    entries: u32,
    /// Steps of all path walks so far.
    steps: u64,
    /// Bytes of extended headers so far.
    extensions: u64,
    /// Bytes of memory of the index of the outer archive, which exists at the same time.
    beside: usize,
}

/// How names of entries that begin with `.wh.` are understood.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Whiteouts {
    /// As whiteouts: `.wh.NAME` removes NAME of lower layers.
    Honoured,
    /// As plain names.
    None,
}

/// Makes the error for an entry whose path cannot be resolved.
fn path_error(entry: &Entry, lost: WalkError) -> ImageError {
    entry.refuse(match lost {
        WalkError::TooLong => {
            format!("the way there, links included, has more than {WALK_STEPS_MAX} steps")
        }
        WalkError::LongName => format!("a name on the way there has more than {NAME_MAX} bytes"),
        WalkError::Nothing | WalkError::NotADirectory | WalkError::TooManyLinks => {
            "links on the way there lead in circles".to_owned()
        }
    })
}

/// Returns the owner, mode and time of an entry.
fn facts_of(entry: &Entry) -> Facts {
    Facts {
        seconds: entry.seconds,
        nanos: entry.nanos,
        uid: entry.uid,
        gid: entry.gid,
        // It has twelve bits, so it fits.
        mode: u16::try_from(entry.mode & 0o7777).unwrap_or(0),
    }
}

impl Index {
    /// Creates an index with only the root directory.
    pub(super) fn new() -> Self {
        Self {
            nodes: Nodes::new(),
            entries: 0,
            steps: 0,
            extensions: 0,
            beside: 0,
        }
    }

    /// Creates an index with only the root directory. The memory that this one takes now counts for
    /// the limit of the new one.
    pub(super) fn beside(&self) -> Self {
        Self {
            beside: self.nodes.bytes(),
            ..Self::new()
        }
    }

    /// Returns the number of steps of all path walks so far.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the number of bytes of memory that are reserved for the nodes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.nodes.bytes()
    }

    /// Sets the number of bytes that count for the index of the outer archive.
    #[cfg(test)]
    pub(super) fn take_beside(&mut self, bytes: usize) {
        self.beside = bytes;
    }

    /// Returns whether exactly `bytes` bytes count for the index of the outer archive.
    #[cfg(test)]
    pub(super) fn is_beside(&self, bytes: usize) -> bool {
        self.beside == bytes
    }

    /// Sets the number of steps and the bytes of extended headers that count as used.
    #[cfg(test)]
    pub(super) fn begin_with(&mut self, steps: u64, extensions: u64) {
        (self.steps, self.extensions) = (steps, extensions);
    }

    /// Returns mode, owner, time and content of node `id`.
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

    /// Returns the number of entries in the directory `folder`. [`Self::finish`] must have been
    /// called.
    pub(super) fn count(&self, folder: Id) -> u32 {
        self.nodes.count(folder)
    }

    /// Returns the entries of the directory `folder` in order of their names, from the index `from`
    /// on. Each has its index, its name and its node. [`Self::finish`] must have been called.
    pub(super) fn children(&self, folder: Id, from: u32) -> impl Iterator<Item = (u32, &[u8], Id)> {
        (from..self.count(folder)).filter_map(move |place| {
            let (name, id) = self.nodes.nth(folder, place)?;
            Some((place, name, id))
        })
    }

    /// Sorts the entries of all directories. Call this once, after the last [`Self::add_layer`].
    pub(super) fn finish(&mut self) {
        self.nodes.sort();
    }

    /// Returns the node at `path`, which starts at the image's root with or without a slash.
    /// Symbolic links are followed within the image, and one at the end of `path` only if `follow`.
    ///
    /// # Errors
    /// Fails with the reason: a component does not exist or is no directory, there are too many
    /// links or steps, or a name is too long.
    pub(super) fn find(&self, path: &[u8], follow: bool) -> Result<Id, WalkError> {
        self.walk(&mut PathWalk::of(path), follow)
    }

    fn walk(&self, walk: &mut PathWalk<'_>, follow: bool) -> Result<Id, WalkError> {
        let (nodes, targets) = (&self.nodes, self.nodes.targets());
        let mut at = ROOT;
        // Ends, because a walk has a bounded number of steps.
        while let Some(part) = walk.next(targets)? {
            if nodes.kind(at) != Kind::Folder {
                return Err(WalkError::NotADirectory);
            }
            if part == b".." {
                at = nodes.parent(at);
                continue;
            }
            let id = nodes.child(at, part).ok_or(WalkError::Nothing)?;
            at = match nodes.kind(id) {
                Kind::Link if follow || !walk.is_at_end(targets)? => {
                    walk.follow(at, nodes.target(id))?
                }
                _ => id,
            };
        }
        Ok(at)
    }

    /// Does the same as [`Self::find`] for `entry`, and counts the steps. Fails for the image as a
    /// whole only if the walk or all walks together are too long.
    fn find_for(
        &mut self,
        entry: &Entry,
        path: &[u8],
        follow: bool,
    ) -> Result<Result<Id, WalkError>, ImageError> {
        let mut walk = PathWalk::of(path);
        let found = self.walk(&mut walk, follow);
        self.count_steps(entry, walk.steps.into())?;
        match found {
            Err(lost @ (WalkError::TooLong | WalkError::LongName)) => Err(path_error(entry, lost)),
            found => Ok(found),
        }
    }

    /// Counts `steps` of a path walk for `entry`. Fails if the image has more than [`STEPS_MAX`].
    fn count_steps(&mut self, entry: &Entry, steps: u64) -> Result<(), ImageError> {
        self.steps += steps;
        if self.steps > STEPS_MAX {
            return Err(entry.refuse(format!(
                "the ways to the entries up to it have more than {STEPS_MAX} steps"
            )));
        }
        Ok(())
    }

    /// Adds the entries of the tar archive `archive` as a layer above all others. `whiteouts` says
    /// whether names with `.wh.` remove files of lower layers. Device files are left out.
    ///
    /// # Errors
    /// Fails if the archive is malformed, has an entry that is not supported or leads to no path,
    /// or if a limit of the image is exceeded. The index may then have a part of the entries.
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
            // The entry is the root itself.
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
            // Device files are left out, since the guest has its own.
            EntryType::Char | EntryType::Block => return Ok(()),
            kind => {
                let kind = char::from(kind.as_byte()).escape_default();
                return Err(entry.refuse(format!("an entry of type `{kind}`")));
            }
        }
        let parent = self.make_path(entry, &parts)?;
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

    /// Adds a node called `name` to the directory `parent`. Fails if the image has too many nodes.
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
        let parent = self.make_path(entry, parts)?;
        if self.nodes.child(parent, name) == Some(meant) {
            return Ok(());
        }
        let (new, facts) = (self.nodes.like(meant), self.nodes.facts(meant));
        self.enter(entry, parent, name, new, facts)?;
        Ok(())
    }

    /// Returns the directory at the path of `parts`, and makes missing ones. Links are followed.
    fn make_path(&mut self, entry: &Entry, parts: &[&[u8]]) -> Result<Id, ImageError> {
        let path = parts.join(&b'/');
        let mut walk = PathWalk::of(&path);
        let made = self.make(&mut walk, entry);
        self.count_steps(entry, walk.steps.into())?;
        made
    }

    fn make(&mut self, walk: &mut PathWalk<'_>, entry: &Entry) -> Result<Id, ImageError> {
        let lost = |lost| path_error(entry, lost);
        let deep = || entry.refuse(format!("it is more than {DEPTH_MAX} folders deep"));
        // Counted on the way, since links may lead deeper than the path has components.
        let (mut at, mut depth) = (ROOT, 0_u16);
        // Ends like the loop in `walk`.
        while let Some(name) = walk.next(self.nodes.targets()).map_err(lost)? {
            if name == b".." {
                at = self.nodes.parent(at);
                depth = depth.saturating_sub(1);
                continue;
            }
            let there = self.nodes.child(at, name);
            match there.map(|id| (id, self.nodes.kind(id))) {
                Some((id, Kind::Link)) => {
                    let target = self.nodes.target(id);
                    at = walk.follow(at, target).map_err(lost)?;
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
                    // Copied, because the name may be in the vector of targets, which the index
                    // owns.
                    let name = name.to_vec();
                    at = self.enter(entry, at, &name, New::FOLDER, IMPLIED)?;
                }
            }
            depth += 1;
        }
        // The new entry is one level deeper than this directory.
        if depth + 1 > DEPTH_MAX {
            Err(deep())
        } else {
            Ok(at)
        }
    }

    /// Applies a whiteout: removes what lower layers have as `hidden` in the directory of `parts`,
    /// or all that they have there.
    fn hide(&mut self, entry: &Entry, parts: &[&[u8]], hidden: &[u8]) -> Result<(), ImageError> {
        let Ok(at) = self.find_for(entry, &parts.join(&b'/'), true)? else {
            return Ok(());
        };
        let mut looked_at = 0;
        match hidden {
            b".wh..opq" => {
                self.nodes.prune(at, &mut looked_at);
            }
            // Other names with this beginning are notes of a storage driver.
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

/// Splits the path of an entry into its components. A slash at the beginning means the image's
/// root.
///
/// # Errors
/// Fails if the path has `..` or a zero byte, or if it is too long or too deep.
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
