//! What stands in an image: entries of its layers, one above the other.

use super::entries::{Entries, Entry};
use super::error::ImageError;
use super::section::Section;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tar::EntryType;

/// Entries of all layers together.
const ENTRIES_MAX: u32 = 1 << 21;
/// Folders above a file.
const DEPTH_MAX: u16 = 256;
/// Links on one way.
const LINKS_MAX: usize = 40;
const NAME_MAX: usize = 255;
const TARGET_MAX: usize = 4095;
/// Bytes of all links' targets together.
const TARGETS_MAX: usize = 256 << 20;

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
}

/// All of an image.
#[derive(Debug)]
pub(super) struct Index {
    nodes: Vec<Node>,
    entries: u32,
    /// Bytes of links' targets.
    targets: usize,
    /// What has nothing of the layers below a layer any more.
    pruned: HashSet<(Id, u32)>,
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
    }
}

/// Why a way leads nowhere.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    Nothing,
    NoFolder,
    TooManyLinks,
}

/// A way that is being gone: parts that are left, the next one last.
struct Way {
    left: Vec<Box<[u8]>>,
    links: usize,
}

impl Way {
    fn of(path: &[u8]) -> Self {
        let mut way = Self {
            left: Vec::new(),
            links: 0,
        };
        way.prepend(path);
        way
    }

    fn prepend(&mut self, path: &[u8]) {
        let parts = path.rsplit(|byte| *byte == b'/');
        let parts = parts.filter(|part| !matches!(*part, b"" | b"."));
        self.left.extend(parts.map(Box::from));
    }
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![folder(ROOT, 0, 0)],
            entries: 0,
            targets: 0,
            pruned: HashSet::new(),
        }
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
        let mut way = Way::of(path);
        let mut at = ROOT;
        // Ends: each turn takes a part, and links that bring new ones are counted.
        while let Some(part) = way.left.pop() {
            let children = self.children(at).ok_or(Lost::NoFolder)?;
            if &*part == b".." {
                at = self.node(at).parent;
                continue;
            }
            let id = *children.get(&part).ok_or(Lost::Nothing)?;
            match &self.node(id).body {
                Body::Link(target) if follow || !way.left.is_empty() => {
                    at = self.step(&mut way, at, target)?;
                }
                _ => at = id,
            }
        }
        Ok(at)
    }

    /// Follows a link in the folder `at`.
    fn step(&self, way: &mut Way, at: Id, target: &[u8]) -> Result<Id, Lost> {
        way.links += 1;
        if way.links > LINKS_MAX {
            return Err(Lost::TooManyLinks);
        }
        way.prepend(target);
        Ok(if target.starts_with(b"/") { ROOT } else { at })
    }

    /// Puts a layer above what there is.
    pub(super) fn add_layer(
        &mut self,
        archive: Section,
        layer: u32,
        whiteouts: Whiteouts,
    ) -> Result<(), ImageError> {
        let mut entries = Entries::of(archive);
        while let Some(entry) = entries.next()? {
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
            self.hide(&parts, hidden, layer);
            return Ok(());
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
        let found = self.find(&self::parts(entry, &entry.link)?.join(&b'/'), false);
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
        let mut at = ROOT;
        // As in `find`.
        while let Some(part) = way.left.pop() {
            if &*part == b".." {
                at = self.node(at).parent;
                continue;
            }
            let children = self.children(at);
            let there = children.and_then(|children| children.get(&part).copied());
            at = match there {
                Some(id) => match &self.node(id).body {
                    Body::Folder(_) => id,
                    Body::Link(target) => {
                        let target = target.clone();
                        let step = self.step(&mut way, at, &target);
                        step.map_err(|_| entry.refuse("links on the way there lead in circles"))?
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
                    self.enter(at, &part, folder(at, depth, layer))
                }
            };
        }
        Ok(at)
    }

    /// Takes away what layers below have: `hidden` in the folder with these parts, or all that is in it.
    fn hide(&mut self, parts: &[&[u8]], hidden: &[u8], layer: u32) {
        let Ok(at) = self.find(&parts.join(&b'/'), true) else {
            return;
        };
        match hidden {
            b".wh..opq" => {
                self.prune_once(at, layer);
            }
            // Others are notes of a file system's own.
            _ if hidden.starts_with(b".wh.") => {}
            name => {
                let there = self.children(at).and_then(|all| all.get(name).copied());
                if let Some(id) = there
                    && !self.prune_once(id, layer)
                    && let Some(children) = self.children_mut(at)
                {
                    children.remove(name);
                }
            }
        }
    }

    /// The same as [`Self::prune`]; what was looked at for this layer is not looked through again.
    fn prune_once(&mut self, id: Id, layer: u32) -> bool {
        !self.pruned.insert((id, layer)) || self.prune(id, layer)
    }

    /// Takes away what is not of this layer at and below a file; whether anything stays. As deep as folders are.
    fn prune(&mut self, id: Id, layer: u32) -> bool {
        let own = self.node(id).layer == layer;
        let Some(children) = self.children_mut(id).map(std::mem::take) else {
            return own;
        };
        let kept: BTreeMap<_, _> = children
            .into_iter()
            .filter(|(_, child)| self.prune(*child, layer))
            .collect();
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
