//! What stands in an image: entries of its layers, one above the other.

use super::entries::{Entries, Entry};
use super::error::ImageError;
use super::section::Section;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tar::EntryType;

/// Entries of all layers together.
pub(super) const ENTRIES_MAX: u32 = 1 << 21;
/// Folders above a file.
const DEPTH_MAX: u16 = 256;
/// Links on one way.
const LINKS_MAX: usize = 40;
pub(super) const NAME_MAX: usize = 255;
const TARGET_MAX: usize = 4095;
/// Bytes of all links' targets together.
const TARGETS_MAX: usize = 256 << 20;
/// Steps on one way, the targets of links on it included. A part of a path is one step, and one
/// more for each [`STEP_BYTES`] of its name. A path of [`TARGET_MAX`] bytes without links has fewer.
pub(super) const WAY_STEPS_MAX: u32 = 1024;
const STEP_BYTES: usize = 32;
/// Steps on the ways to all entries of an image. Each file that a whiteout has looked at is one, too.
pub(super) const STEPS_MAX: u64 = 1 << 27;
/// Bytes of the extensions before all entries of an image.
pub(super) const EXTENSIONS_MAX: u64 = 512 << 20;

/// The number of a file.
pub(super) type Id = u32;
/// The root's.
pub(super) const ROOT: Id = 0;

/// What a file is.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Folder(BTreeMap<Box<[u8]>, Id>),
    File(Section),
    /// Shared by hard links to it.
    Link(Arc<[u8]>),
    Fifo,
}

/// A file, folder or link.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) seconds: i64,
    pub(super) nanos: u32,
    pub(super) body: Body,
    parent: Id,
    depth: u16,
    /// The layer that has it.
    layer: u32,
    /// The last layer that took away what is below it of the layers below.
    pruned: u32,
}

/// All of an image.
#[derive(Debug)]
pub(super) struct Index {
    nodes: Vec<Node>,
    entries: u32,
    /// Bytes of links' targets.
    targets: usize,
    /// Steps on the ways to its entries.
    steps: u64,
    /// Bytes of extensions.
    extensions: u64,
}

/// What names in a layer may mean.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Whiteouts {
    /// `.wh.NAME` takes NAME of the layers below away.
    Honoured,
    /// They are names.
    None,
}

fn folder(parent: Id, depth: u16, layer: u32) -> Node {
    Node {
        mode: 0o755,
        uid: 0,
        gid: 0,
        seconds: 0,
        nanos: 0,
        body: Body::Folder(BTreeMap::new()),
        parent,
        depth,
        layer,
        pruned: 0,
    }
}

/// Why a way leads nowhere.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    Nothing,
    NoFolder,
    TooManyLinks,
    /// It has more than [`WAY_STEPS_MAX`] steps.
    TooLong,
    /// A name on it has more than [`NAME_MAX`] bytes.
    LongName,
}

/// What is left of a path or of a link's target.
struct Rest {
    text: Arc<[u8]>,
    at: usize,
}

/// A part of a path: the text, and where in it the part is.
type Part = (Arc<[u8]>, Range<usize>);

/// A way that is being gone.
struct Way {
    /// What is left of the path and of the targets of links on it; the next part is in the last one.
    rests: Vec<Rest>,
    links: usize,
    steps: u32,
}

impl Way {
    fn of(path: &[u8]) -> Self {
        let mut way = Self {
            rests: Vec::new(),
            links: 0,
            steps: 0,
        };
        way.prepend(path.into());
        way
    }

    fn prepend(&mut self, text: Arc<[u8]>) {
        self.rests.push(Rest { text, at: 0 });
    }

    /// Returns the bytes before the next slash of the last rest, `None` if there is no rest.
    fn peek(&self) -> Result<Option<Range<usize>>, Lost> {
        let Some(Rest { text, at }) = self.rests.last() else {
            return Ok(None);
        };
        let rest = &text[*at..];
        let end = rest.iter().take(NAME_MAX + 1).position(|b| *b == b'/');
        match end {
            None if rest.len() > NAME_MAX => Err(Lost::LongName),
            _ => Ok(Some(*at..end.map_or(text.len(), |end| at + end))),
        }
    }

    /// Passes the part that ends at `end`, and the slash behind it.
    fn pass(&mut self, part: &Range<usize>) -> Result<(), Lost> {
        let steps = 1 + part.len() / STEP_BYTES;
        self.steps += u32::try_from(steps).unwrap_or(WAY_STEPS_MAX);
        if self.steps > WAY_STEPS_MAX {
            return Err(Lost::TooLong);
        }
        if let Some(rest) = self.rests.last_mut() {
            rest.at = part.end + 1;
            if rest.at >= rest.text.len() {
                self.rests.pop();
            }
        }
        Ok(())
    }

    /// Returns whether no part is left. Passes what stands for the folder itself.
    fn is_at_end(&mut self) -> Result<bool, Lost> {
        // Ends: each turn is a step.
        while let Some(part) = self.peek()? {
            let text = self.rests.last().map(|rest| &rest.text[part.clone()]);
            if !matches!(text, Some(b"" | b".")) {
                return Ok(false);
            }
            self.pass(&part)?;
        }
        Ok(true)
    }

    /// Takes the next part, `None` at the end.
    fn next(&mut self) -> Result<Option<Part>, Lost> {
        if self.is_at_end()? {
            return Ok(None);
        }
        let (Some(rest), Some(part)) = (self.rests.last(), self.peek()?) else {
            return Ok(None);
        };
        let text = Arc::clone(&rest.text);
        self.pass(&part)?;
        Ok(Some((text, part)))
    }

    /// Follows a link in the folder `at`. Returns the folder in which its target begins.
    fn follow(&mut self, at: Id, target: &Arc<[u8]>) -> Result<Id, Lost> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Lost::TooManyLinks);
        }
        self.prepend(Arc::clone(target));
        Ok(if target.starts_with(b"/") { ROOT } else { at })
    }
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

impl Index {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![folder(ROOT, 0, 0)],
            entries: 0,
            targets: 0,
            steps: 0,
            extensions: 0,
        }
    }

    /// Returns the steps that the ways to its entries took.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Sets the steps and the bytes of extensions that count as done.
    #[cfg(test)]
    pub(super) fn begin_with(&mut self, steps: u64, extensions: u64) {
        (self.steps, self.extensions) = (steps, extensions);
    }

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    fn children(&self, id: Id) -> Option<&BTreeMap<Box<[u8]>, Id>> {
        match &self.node(id).body {
            Body::Folder(children) => Some(children),
            _ => None,
        }
    }

    fn children_mut(&mut self, id: Id) -> Option<&mut BTreeMap<Box<[u8]>, Id>> {
        match &mut self.nodes[id as usize].body {
            Body::Folder(children) => Some(children),
            _ => None,
        }
    }

    /// What stands at a path; links are followed within the image, one in last place only if `follow`.
    pub(super) fn find(&self, path: &[u8], follow: bool) -> Result<Id, Lost> {
        self.walk(&mut Way::of(path), follow)
    }

    fn walk(&self, way: &mut Way, follow: bool) -> Result<Id, Lost> {
        let mut at = ROOT;
        // Ends: a way has a bounded number of steps.
        while let Some((text, part)) = way.next()? {
            let part = &text[part];
            let children = self.children(at).ok_or(Lost::NoFolder)?;
            if part == b".." {
                at = self.node(at).parent;
                continue;
            }
            let id = *children.get(part).ok_or(Lost::Nothing)?;
            match &self.node(id).body {
                Body::Link(target) if follow || !way.is_at_end()? => {
                    at = way.follow(at, target)?;
                }
                _ => at = id,
            }
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
        self.count(entry, way.steps.into())?;
        match found {
            Err(lost @ (Lost::TooLong | Lost::LongName)) => Err(astray(entry, lost)),
            found => Ok(found),
        }
    }

    /// Counts steps that an entry takes.
    fn count(&mut self, entry: &Entry, steps: u64) -> Result<(), ImageError> {
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
        layer: u32,
        whiteouts: Whiteouts,
    ) -> Result<(), ImageError> {
        let mut entries = Entries::of(archive);
        while let Some(entry) = entries.next(&mut self.extensions, EXTENSIONS_MAX)? {
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                return Err(entry.refuse(format!("the image has more than {ENTRIES_MAX} entries")));
            }
            self.add(&entry, layer, whiteouts)?;
        }
        Ok(())
    }

    fn add(&mut self, entry: &Entry, layer: u32, whiteouts: Whiteouts) -> Result<(), ImageError> {
        let mut parts = parts(entry, &entry.name)?;
        let Some(name) = parts.pop() else {
            // The root itself.
            if entry.kind == EntryType::Directory {
                self.set_facts(ROOT, entry, layer);
            }
            return Ok(());
        };
        if whiteouts == Whiteouts::Honoured
            && let Some(hidden) = name.strip_prefix(b".wh.")
        {
            return self.hide(entry, &parts, hidden, layer);
        }
        let body = match entry.kind {
            EntryType::Regular | EntryType::Continuous => Body::File(entry.content.clone()),
            EntryType::Directory => Body::Folder(BTreeMap::new()),
            EntryType::Symlink => {
                let target = &entry.link;
                if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
                    return Err(entry.refuse("it is a link to no path"));
                }
                self.targets += target.len();
                if self.targets > TARGETS_MAX {
                    return Err(entry.refuse("the targets of all links are too long together"));
                }
                Body::Link(target.as_slice().into())
            }
            EntryType::Link => return self.add_hard_link(entry, &parts, name, layer),
            EntryType::Fifo => Body::Fifo,
            // The guest has devices of its own.
            EntryType::Char | EntryType::Block => return Ok(()),
            kind => {
                let kind = char::from(kind.as_byte()).escape_default();
                return Err(entry.refuse(format!("an entry of type `{kind}`")));
            }
        };
        let parent = self.make_way(entry, &parts, layer)?;
        let depth = self.depth_in(parent, entry)?;
        let there = self.children(parent).and_then(|all| all.get(name).copied());
        if let (Body::Folder(_), Some(id)) = (&body, there)
            && self.children(id).is_some()
        {
            self.set_facts(id, entry, layer);
            return Ok(());
        }
        let node = Node {
            body,
            ..folder(parent, depth, layer)
        };
        let id = self.enter(parent, name, node);
        self.set_facts(id, entry, layer);
        Ok(())
    }

    /// How deep an entry in a folder lies: links may lead deeper than its name is long.
    fn depth_in(&self, parent: Id, entry: &Entry) -> Result<u16, ImageError> {
        let depth = self.node(parent).depth + 1;
        if depth > DEPTH_MAX {
            return Err(entry.refuse(format!("it is more than {DEPTH_MAX} folders deep")));
        }
        Ok(depth)
    }

    fn enter(&mut self, parent: Id, name: &[u8], node: Node) -> Id {
        // At most one of each entry, and the folders on the way to it.
        let id = Id::try_from(self.nodes.len()).expect("an entry has a bounded number of parts");
        self.nodes.push(node);
        if let Some(children) = self.children_mut(parent) {
            children.insert(name.into(), id);
        }
        id
    }

    fn set_facts(&mut self, id: Id, entry: &Entry, layer: u32) {
        let node = &mut self.nodes[id as usize];
        node.mode = entry.mode;
        (node.uid, node.gid) = (entry.uid, entry.gid);
        (node.seconds, node.nanos) = (entry.seconds, entry.nanos);
        node.layer = layer;
    }

    fn add_hard_link(
        &mut self,
        entry: &Entry,
        parts: &[&[u8]],
        name: &[u8],
        layer: u32,
    ) -> Result<(), ImageError> {
        let target = entry.link.escape_ascii();
        let path = self::parts(entry, &entry.link)?.join(&b'/');
        let found = self.find_for(entry, &path, false)?;
        let meant = match found {
            Ok(id) if self.children(id).is_none() => id,
            _ => {
                return Err(entry.refuse(format!(
                    "it is a hard link to {target}, which is no file before it"
                )));
            }
        };
        let parent = self.make_way(entry, parts, layer)?;
        if self.children(parent).and_then(|all| all.get(name)) == Some(&meant) {
            return Ok(());
        }
        let node = Node {
            parent,
            depth: self.depth_in(parent, entry)?,
            layer,
            ..self.node(meant).clone()
        };
        self.enter(parent, name, node);
        Ok(())
    }

    /// The folder with these parts, made where there is none; links on the way are followed.
    fn make_way(&mut self, entry: &Entry, parts: &[&[u8]], layer: u32) -> Result<Id, ImageError> {
        let mut way = Way::of(&parts.join(&b'/'));
        let made = self.make(&mut way, entry, layer);
        self.count(entry, way.steps.into())?;
        made
    }

    fn make(&mut self, way: &mut Way, entry: &Entry, layer: u32) -> Result<Id, ImageError> {
        let mut at = ROOT;
        // As in `walk`.
        while let Some((text, part)) = way.next().map_err(|lost| astray(entry, lost))? {
            let part = &text[part];
            if part == b".." {
                at = self.node(at).parent;
                continue;
            }
            let children = self.children(at);
            let there = children.and_then(|children| children.get(part).copied());
            at = match there {
                Some(id) => match &self.node(id).body {
                    Body::Folder(_) => id,
                    Body::Link(target) => {
                        way.follow(at, target).map_err(|lost| astray(entry, lost))?
                    }
                    _ => return Err(entry.refuse("a file is on the way there")),
                },
                None => {
                    let depth = self.node(at).depth + 1;
                    if depth >= DEPTH_MAX {
                        return Err(
                            entry.refuse(format!("it is more than {DEPTH_MAX} folders deep"))
                        );
                    }
                    if self.nodes.len() >= 2 * ENTRIES_MAX as usize {
                        return Err(entry.refuse("too many folders on the ways to entries"));
                    }
                    self.enter(at, part, folder(at, depth, layer))
                }
            };
        }
        Ok(at)
    }

    /// Takes away what layers below have: `hidden` in the folder with these parts, or all that is in it.
    fn hide(
        &mut self,
        entry: &Entry,
        parts: &[&[u8]],
        hidden: &[u8],
        layer: u32,
    ) -> Result<(), ImageError> {
        let Ok(at) = self.find_for(entry, &parts.join(&b'/'), true)? else {
            return Ok(());
        };
        let mut looked_at = 0;
        match hidden {
            b".wh..opq" => {
                self.prune(at, layer, &mut looked_at);
            }
            // Others are notes of a file system's own.
            _ if hidden.starts_with(b".wh.") => {}
            name => {
                let there = self.children(at).and_then(|all| all.get(name).copied());
                if let Some(id) = there
                    && !self.prune(id, layer, &mut looked_at)
                    && let Some(children) = self.children_mut(at)
                {
                    children.remove(name);
                }
            }
        }
        self.count(entry, looked_at)
    }

    /// Takes away what is not of this layer at and below a file; whether anything stays. As deep as folders are.
    ///
    /// A folder is looked through once for each layer: what comes below it afterwards is the layer's.
    fn prune(&mut self, id: Id, layer: u32, looked_at: &mut u64) -> bool {
        *looked_at += 1;
        let node = &mut self.nodes[id as usize];
        let own = node.layer == layer;
        let done = std::mem::replace(&mut node.pruned, layer) == layer;
        let Body::Folder(children) = &mut node.body else {
            return own;
        };
        if done {
            return own || !children.is_empty();
        }
        let mut kept = std::mem::take(children);
        kept.retain(|_, child| self.prune(*child, layer, looked_at));
        let stays = own || !kept.is_empty();
        if let Some(children) = self.children_mut(id) {
            *children = kept;
        }
        stays
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
        return Err(entry.refuse("its path is too long"));
    }
    if name.contains(&0) {
        return Err(entry.refuse("there is a zero byte in its path"));
    }
    if parts.len() > usize::from(DEPTH_MAX) {
        return Err(entry.refuse(format!("it is more than {DEPTH_MAX} folders deep")));
    }
    Ok(parts)
}
