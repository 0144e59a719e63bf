//! Finds the node of a path, and the path of a node.
//!
//! The walk is compiled twice: without rules, for nearly all calls, and with those of `openat2`.

use super::context::Context;
use super::covers;
use super::file::{OpenFile, Place};
use super::flags::{FileKind, OpenFlags};
use super::node::{AttributeChange, LinkTarget, NewNode, Node, NodeRef, change_by, same_place};
use super::permission;
use super::walk_rules::Rules;
use super::watch::{self, Events};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::credentials::{Capabilities, Credentials, Wanted};
use logic::errno::Errno;
use logic::path::{self, Component, NAME_MAX, PATH_MAX};
use machine::sched;

/// The most symbolic links that one lookup follows.
const MAX_LINKS: usize = 40;
/// The most times that a call looks a name up whose entry other tasks change at the same time. Each
/// lost attempt means that another task has changed the entry.
const ATTEMPTS: usize = 4_000;
/// The most steps upwards that a description of a directory takes. Deeper directories have no path
/// that a call could return.
const MAX_DEPTH: usize = PATH_MAX;

/// Mode bits of a directory that every user may write and that is sticky.
const STICKY_OF_ALL: u32 = 0o1002;

/// How a symbolic link in the last component is treated.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// The link is followed.
    Follow,
    /// The link itself is found, unless a slash behind it asks for a directory.
    Keep,
    /// The entry itself is found, to be created, moved or removed. A link is never followed, even
    /// with a slash behind it.
    Entry,
}

/// The kind of the last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastName {
    /// The name of an entry of [`Found::parent`].
    Name(Box<[u8]>),
    /// The path leads to the root without a name after it, such as `/`, or is empty with
    /// `AT_EMPTY_PATH`.
    Root,
    /// `.`.
    Current,
    /// `..`.
    Parent,
    /// A magic link (`/proc/PID/fd/N`), which leads to a node without a path.
    Jump,
}

/// The result of a lookup.
#[derive(Clone, Debug)]
pub struct Found {
    /// The directory in which the last component was looked up.
    pub parent: NodeRef,
    /// The last component of the path.
    pub name: LastName,
    /// The node with that name, if it exists.
    pub node: Option<NodeRef>,
    /// Whether the path ended in a slash, so that it can only name a directory.
    pub must_be_directory: bool,
    /// The name under which `node` is in the tree, if a magic link led to it ([`LastName::Jump`]).
    jumped_to: Option<Place>,
}

impl Found {
    /// Returns the node that was found.
    ///
    /// # Errors
    /// Fails with `ENOENT` if there is none.
    pub fn existing(self) -> Result<NodeRef, Errno> {
        self.node.ok_or(Errno::ENOENT)
    }

    /// Returns the directory and the name of the node. Returns `None` if the path has no last name
    /// ([`LastName::Root`]), if its last component is `.` or `..`, or if a magic link led to a node
    /// without a name.
    pub fn place(&self) -> Option<Place> {
        match &self.name {
            LastName::Name(name) => Some(Place {
                parent: self.parent.clone(),
                name: name.clone(),
            }),
            LastName::Jump => self.jumped_to.clone(),
            _ => None,
        }
    }

    /// Reports `events` to the watches (inotify) of the node and of the directory that it is in.
    #[inline]
    pub fn tell(&self, events: Events) {
        if watch::active() {
            self.tell_watches(events);
        }
    }

    #[cold]
    fn tell_watches(&self, events: Events) {
        if let Some(node) = &self.node {
            let place = self.place();
            let place = place.as_ref().map(|at| (&at.parent, &*at.name));
            watch::tell_both(node, place, events, false);
        }
    }

    /// Returns the name for a new entry of [`Self::parent`].
    ///
    /// # Errors
    /// Fails with `taken` if the path ended in no name, as `/`, `.` and `..` do.
    pub fn new_name(&self, taken: Errno) -> Result<&[u8], Errno> {
        match &self.name {
            LastName::Name(name) => Ok(name),
            _ => Err(taken),
        }
    }

    /// Removes the entry that was found, which must not be a directory (`unlink(2)`).
    ///
    /// # Errors
    /// Fails as `unlink(2)` does, and with `ESTALE` if the name has another node now and must be
    /// looked up again.
    pub fn unlink(self, who: &Credentials) -> Result<(), Errno> {
        let name = self.new_name(Errno::EISDIR)?;
        self.parent.check_writable()?;
        let node = self.node.as_ref().ok_or(Errno::ENOENT)?;
        if !self.must_be_directory {
            permission::check_remove(who, &*self.parent, &**node)?;
        }
        if node.kind() == FileKind::Directory {
            return Err(Errno::EISDIR);
        }
        if self.must_be_directory {
            return Err(Errno::ENOTDIR);
        }
        covers::check_free(&self.parent, name, node)?;
        // Another task may have removed the name since it was looked up, or given it to another
        // node.
        let removed = self.parent.unlink(name, node.id())?;
        let watched = watch::active_after_change();
        if watched {
            watch::tell_node(&removed, Events::ATTRIB);
            watch::unlinked(&removed);
        }
        let name: Box<[u8]> = if watched { name.into() } else { Box::default() };
        drop(self.node);
        removed.release_if_last(1);
        // If this was the last name, the end of the node is reported before the removal of the
        // name.
        if watched {
            watch::tell_entry(&self.parent, &name, Events::DELETE, 0);
        }
        Ok(())
    }
}

/// Runs `attempt`, which looks up names, checks their nodes and changes them. Runs it again if it
/// fails with `ESTALE`, because a name had got another node in between. Returns its result.
///
/// # Errors
/// Fails with the errors of `attempt`: with `ESTALE` only after [`ATTEMPTS`] attempts. Fails with
/// `EINTR` if the task is killed meanwhile.
pub fn with_entries<R>(mut attempt: impl FnMut() -> Result<R, Errno>) -> Result<R, Errno> {
    for _ in 0..ATTEMPTS {
        match attempt() {
            Err(Errno::ESTALE) if sched::current().killed() => return Err(Errno::EINTR),
            Err(Errno::ESTALE) => sched::cond_resched(),
            result => return result,
        }
    }
    Err(Errno::ESTALE)
}

/// Returns whether `a` and `b` are the same node, even if they are seen through different mounts.
pub fn same(a: &NodeRef, b: &NodeRef) -> bool {
    a.id() == b.id()
}

/// Returns the root of the topmost mount on `node`, or `node` if nothing is mounted on it.
pub fn through_mounts(mut node: NodeRef) -> NodeRef {
    while let Some(top) = node.covered_by() {
        node = top;
    }
    node
}

/// Returns the root of the topmost mount on the entry `name` of `directory`, or `node` if nothing
/// is mounted there. `node` has that name.
pub fn mounted_at(directory: &NodeRef, name: &[u8], node: NodeRef) -> NodeRef {
    let node = through_mounts(node);
    if !covers::any_named() {
        return node;
    }
    through_name(directory, name, Ok(node.clone())).unwrap_or(node)
}

/// Returns the root of the topmost mount on the name of a file. Without a mount, returns
/// `looked_up`, the result of the lookup of that name. A directory is not covered by name. A
/// covered file may be gone on the host, so an `ENOENT` of the lookup does not matter.
#[cold]
fn through_name(
    directory: &NodeRef,
    name: &[u8],
    looked_up: Result<NodeRef, Errno>,
) -> Result<NodeRef, Errno> {
    match &looked_up {
        Ok(node) if node.kind() == FileKind::Directory => return looked_up,
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(_) => return looked_up,
    }
    covers::on_name(&**directory, name).map_or(looked_up, |top| Ok(through_mounts(top)))
}

/// The text of a symbolic link that a walk follows, and the offset of the next byte to walk.
struct Leg {
    text: Vec<u8>,
    at: usize,
}

/// A path walk in progress: the remaining part of the caller's path, and the remaining parts of the
/// symbolic links that it follows, the innermost link last. Without links nothing is allocated, and
/// nested links cause no recursion.
struct Walk<'a> {
    path: &'a [u8],
    legs: Vec<Leg>,
    /// Whether a finished text ended in a slash, so that only a directory can be found.
    wants_directory: bool,
}

impl Walk<'_> {
    /// Returns whether no component is left in any of the texts.
    fn is_finished(&self) -> bool {
        path::is_finished(self.path) && self.legs.iter().all(|leg| path::is_finished(leg.rest()))
    }
}

impl Leg {
    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }
}

impl Found {
    /// Returns a result that is not an entry of a directory by name.
    fn special(parent: NodeRef, name: LastName, node: NodeRef) -> Self {
        Self {
            parent,
            name,
            node: Some(node),
            must_be_directory: true,
            jumped_to: None,
        }
    }
}

/// Walks `path` from `start`, or from `root` if `path` is absolute, with the permissions of `who`.
/// Returns the directory and the name that the path leads to, and the node if there is one.
/// `last_link` says whether a link at the end is followed.
///
/// # Errors
/// Fails with `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP` or `ENAMETOOLONG` as a path walk on Linux. A
/// last name without a node is no error.
#[inline]
pub fn resolve(
    who: &Credentials,
    root: &NodeRef,
    start: &NodeRef,
    path: &[u8],
    last_link: LastLink,
) -> Result<Found, Errno> {
    walk::<false>(who, root, start, path, last_link, &Rules::NONE)
}

/// Walks `path` as [`resolve`] does, restricted by `rules`. With scoped rules `root` is the same as
/// `start`. Fails as [`resolve`] does, and if the walk breaks a rule.
#[inline(always)]
fn resolve_by(
    who: &Credentials,
    root: &NodeRef,
    start: &NodeRef,
    path: &[u8],
    last_link: LastLink,
    rules: Option<&Rules>,
) -> Result<Found, Errno> {
    match rules {
        None => walk::<false>(who, root, start, path, last_link, &Rules::NONE),
        Some(rules) => resolve_ruled(who, root, start, path, last_link, rules),
    }
}

/// Checks that `here` is still below `root`, if the rules are scoped. Other tasks may have moved
/// the directory since the walk passed it.
///
/// # Errors
/// Fails with `EAGAIN` if it is not, so that the caller may try again.
fn check_inside(rules: &Rules, root: &NodeRef, here: &NodeRef) -> Result<(), Errno> {
    if !rules.scoped() {
        return Ok(());
    }
    // The way up may be long, and one path may contain many `..`.
    sched::cond_resched();
    let mut here = here.clone();
    for _ in 0..MAX_DEPTH {
        if same_place(&here, root) {
            return Ok(());
        }
        here = here.parent().ok_or(Errno::EAGAIN)?;
    }
    Err(Errno::EAGAIN)
}

#[cold]
fn resolve_ruled(
    who: &Credentials,
    root: &NodeRef,
    start: &NodeRef,
    path: &[u8],
    last_link: LastLink,
    rules: &Rules,
) -> Result<Found, Errno> {
    if rules.beneath && path::is_absolute(path) {
        return Err(Errno::EXDEV);
    }
    let found = walk::<true>(who, root, start, path, last_link, rules)?;
    let directory = found
        .node
        .as_ref()
        .filter(|n| n.kind() == FileKind::Directory);
    check_inside(rules, root, directory.unwrap_or(&found.parent))?;
    Ok(found)
}

/// Walks `path` as [`resolve`] does. `rules` apply only if `RULED` is `true`.
fn walk<const RULED: bool>(
    who: &Credentials,
    root: &NodeRef,
    start: &NodeRef,
    path: &[u8],
    last_link: LastLink,
    rules: &Rules,
) -> Result<Found, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    if path.len() >= PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    // The caller's references are borrowed, not counted again: all tasks that walk paths would
    // share the counter.
    let mut here = Cow::Borrowed(if path::is_absolute(path) { root } else { start });
    let mut walk = Walk {
        path,
        legs: Vec::new(),
        wants_directory: path::names_directory(path),
    };
    let mut links = 0;
    let mut root_known = rules.in_root || path::is_absolute(path);
    // The kind of the last component, if the walk ends before the next name.
    let mut special = LastName::Root;
    let mut above = None;
    loop {
        // One component of the innermost text, which is borrowed. Only `here` changes.
        let (text, leg) = match walk.legs.last() {
            Some(leg) => (leg.rest(), true),
            None => (walk.path, false),
        };
        let Some((component, rest)) = path::split_first(text) else {
            if walk.legs.pop().is_some() {
                continue;
            }
            let parent = above.unwrap_or_else(|| here.clone()).into_owned();
            return Ok(Found::special(parent, special, here.into_owned()));
        };
        let advance = text.len() - rest.len();
        if here.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        permission::check_search(who, &**here)?;
        let name = match component {
            Component::Current => {
                walk.skip(leg, advance);
                special = LastName::Current;
                above = None;
                continue;
            }
            Component::Parent => {
                walk.skip(leg, advance);
                special = LastName::Parent;
                above = Some(here.clone());
                root_known = true;
                if !same_place(&here, root) {
                    let parent = here.parent();
                    if parent
                        .as_ref()
                        .is_some_and(|parent| !parent.is_within_mount())
                    {
                        return Err(Errno::ENOENT);
                    }
                    if RULED && let Some(parent) = &parent {
                        // The scope comes first, so that the walk reveals nothing about nodes
                        // outside of it.
                        check_inside(rules, root, parent)?;
                        rules.crossing(&here, parent)?;
                    }
                    here = parent.map_or(here, Cow::Owned);
                } else if RULED && rules.beneath {
                    return Err(Errno::EXDEV);
                }
                continue;
            }
            Component::Name(name) => name,
        };
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut looked_up = here.lookup(name).map(through_mounts);
        if covers::any_named() {
            looked_up = through_name(&here, name, looked_up);
        }
        let kept: Option<Box<[u8]>> = path::is_finished(rest).then(|| name.into());
        walk.skip(leg, advance);
        // Only a name that ends its own text can end the walk.
        let last = kept.filter(|_| walk.is_finished());
        let next = match (looked_up, &last) {
            (Ok(next), _) => next,
            (Err(Errno::ENOENT), Some(name)) => {
                return Ok(Found {
                    parent: here.into_owned(),
                    name: LastName::Name(name.clone()),
                    node: None,
                    must_be_directory: walk.wants_directory,
                    jumped_to: None,
                });
            }
            (Err(error), _) => return Err(error),
        };
        if RULED {
            rules.crossing(&here, &next)?;
        }
        let follow = match last_link {
            _ if last.is_none() => true,
            LastLink::Follow => true,
            LastLink::Keep => walk.wants_directory,
            LastLink::Entry => false,
        };
        if next.kind() == FileKind::Symlink && follow {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::ELOOP);
            }
            if last.is_some() {
                let above = here.owned();
                // In directories without these bits, all links are followed.
                if above.permissions & STICKY_OF_ALL == STICKY_OF_ALL {
                    who.may_follow(&above, next.owned().uid)?;
                }
            }
            if RULED && rules.no_links {
                return Err(Errno::ELOOP);
            }
            match next.link_target()? {
                LinkTarget::Path(target) => {
                    if target.is_empty() {
                        return Err(Errno::ENOENT);
                    }
                    if path::is_absolute(&target) {
                        if RULED {
                            rules.absolute(&here, root, root_known)?;
                        }
                        here = Cow::Borrowed(root);
                        special = LastName::Root;
                        above = None;
                    }
                    // A slash at the end of the target counts if nothing follows the link.
                    walk.wants_directory |= last.is_some() && path::names_directory(&target);
                    walk.legs.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                    walk.legs.push(Leg {
                        text: target,
                        at: 0,
                    });
                }
                LinkTarget::Node(node, place) => {
                    if RULED {
                        rules.jump(&here, &node)?;
                    }
                    if last.is_some() {
                        let here = here.into_owned();
                        return finish(&walk, here, LastName::Jump, node, place, true);
                    }
                    here = Cow::Owned(node);
                }
            }
            continue;
        }
        if let Some(name) = last {
            let checked = last_link != LastLink::Entry;
            let here = here.into_owned();
            return finish(&walk, here, LastName::Name(name), next, None, checked);
        }
        here = Cow::Owned(next);
    }
}

impl Walk<'_> {
    /// Advances by `by` bytes in the text that is being walked: that of the innermost link if `leg`
    /// is `true`, else the caller's path.
    fn skip(&mut self, leg: bool, by: usize) {
        match self.legs.last_mut() {
            Some(innermost) if leg => innermost.at += by,
            _ => self.path = &self.path[by..],
        }
    }
}

fn finish(
    walk: &Walk<'_>,
    parent: NodeRef,
    name: LastName,
    node: NodeRef,
    jumped_to: Option<Place>,
    checked: bool,
) -> Result<Found, Errno> {
    if checked && walk.wants_directory && node.kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    Ok(Found {
        parent,
        name,
        node: Some(node),
        must_be_directory: walk.wants_directory,
        jumped_to,
    })
}

/// Opens the node of `path`, which starts at the context's working directory. Does the rest as
/// [`open_at`] does.
///
/// # Errors
/// Fails as `open(2)`.
pub fn open_path(
    context: &Context,
    who: &Credentials,
    path: &[u8],
    flags: OpenFlags,
    permissions: u32,
) -> Result<Arc<OpenFile>, Errno> {
    open_at(context, who, context.cwd(), path, flags, permissions)
}

/// Opens the node of `path`, which starts at `start`, and returns the open file. Creates a file
/// with `permissions` if `flags` ask for it.
///
/// # Errors
/// Fails as `openat(2)`.
pub fn open_at(
    context: &Context,
    who: &Credentials,
    start: NodeRef,
    path: &[u8],
    flags: OpenFlags,
    permissions: u32,
) -> Result<Arc<OpenFile>, Errno> {
    open_by(context, who, start, path, flags, permissions, None)
}

/// Opens a path as [`open_at`] does, restricted by `rules`.
///
/// # Errors
/// Fails as `openat2(2)`.
#[inline]
pub fn open_by(
    context: &Context,
    who: &Credentials,
    start: NodeRef,
    path: &[u8],
    flags: OpenFlags,
    permissions: u32,
    rules: Option<&Rules>,
) -> Result<Arc<OpenFile>, Errno> {
    let root = if rules.is_some_and(Rules::scoped) {
        start.clone()
    } else {
        context.root()
    };
    let (permissions, mask) = (permissions & 0o7777, context.umask());
    if flags.contains(OpenFlags::TEMPORARY) {
        if !flags.writable() || flags.contains(OpenFlags::CREATE) {
            return Err(Errno::EINVAL);
        }
        let directory =
            resolve_by(who, &root, &start, path, LastLink::Follow, rules)?.existing()?;
        return open_nameless(who, &directory, flags, [permissions, mask]);
    }
    let create = flags.contains(OpenFlags::CREATE) && !flags.contains(OpenFlags::PATH);
    if create && flags.contains(OpenFlags::DIRECTORY) {
        return Err(Errno::EINVAL);
    }
    if create && path::names_directory(path) {
        // A path with a slash at the end cannot create a file, and `open` creates no directories.
        // An error on the way there comes first.
        resolve_by(who, &root, &start, path, LastLink::Entry, rules)?;
        return Err(Errno::EISDIR);
    }
    let keep =
        flags.contains(OpenFlags::NO_FOLLOW) || (create && flags.contains(OpenFlags::EXCLUSIVE));
    let last_link = if keep {
        LastLink::Keep
    } else {
        LastLink::Follow
    };
    // Another attempt is due if another task created or removed the file since the lookup. The call
    // fails with `ELOOP` if it loses that race every time.
    for _ in 0..ATTEMPTS {
        let found = resolve_by(who, &root, &start, path, last_link, rules)?;
        match &found.node {
            Some(_) if create && flags.contains(OpenFlags::EXCLUSIVE) => return Err(Errno::EEXIST),
            Some(node) => return open_found(who, &found, node.clone(), flags),
            None if !create => return Err(Errno::ENOENT),
            // A link led to a name with a slash behind it.
            None if found.must_be_directory => return Err(Errno::EISDIR),
            None => {}
        }
        let name = found.new_name(Errno::EISDIR)?;
        permission::check_change(who, &*found.parent)?;
        let beginning = permission::beginning(who, &*found.parent, permissions, mask, false);
        match found.parent.create(name, NewNode::Regular, beginning) {
            Ok(node) => {
                if watch::active() {
                    watch::tell_entry(&found.parent, name, Events::CREATE, 0);
                }
                // A new file is opened as requested, regardless of its permissions.
                let file = OpenFile::open(node, found.place(), flags - OpenFlags::TRUNCATE)?;
                file.tell(Events::OPEN);
                return Ok(file);
            }
            Err(Errno::EEXIST) if sched::current().killed() => return Err(Errno::EINTR),
            Err(Errno::EEXIST) => sched::cond_resched(),
            Err(error) => return Err(error),
        }
    }
    Err(Errno::ELOOP)
}

/// Returns the access to the file that an open with `flags` needs.
fn wanted(flags: OpenFlags) -> Wanted {
    if flags.contains(OpenFlags::PATH) {
        return Wanted::NOTHING;
    }
    let mut wanted = match flags.bits() & linux_raw_sys::general::O_ACCMODE {
        0 => Wanted::READ,
        1 => Wanted::WRITE,
        _ => Wanted::READ | Wanted::WRITE,
    };
    if flags.contains(OpenFlags::TRUNCATE) {
        wanted = wanted | Wanted::WRITE;
    }
    wanted
}

/// Opens the file at `path`, which starts at `start`, to run it. `check` decides whether the file
/// may run. Of `flags` only `NO_FOLLOW` has a meaning.
///
/// # Errors
/// Fails with the errors of [`resolve`] and of `check`, with `ENOENT` if there is no file, and with
/// `ELOOP` if the path leads to a symbolic link.
pub fn open_to_execute(
    context: &Context,
    who: &Credentials,
    start: NodeRef,
    path: &[u8],
    flags: OpenFlags,
    check: impl FnOnce(&NodeRef) -> Result<(), Errno>,
) -> Result<Arc<OpenFile>, Errno> {
    let last_link = if flags.contains(OpenFlags::NO_FOLLOW) {
        LastLink::Keep
    } else {
        LastLink::Follow
    };
    let found = resolve(who, &context.root(), &start, path, last_link)?;
    let node = found.node.clone().ok_or(Errno::ENOENT)?;
    if node.kind() == FileKind::Symlink {
        return Err(Errno::ELOOP);
    }
    check(&node)?;
    let file = OpenFile::open(node, found.place(), OpenFlags::empty())?;
    file.tell(Events::OPEN);
    Ok(file)
}

fn open_found(
    who: &Credentials,
    found: &Found,
    node: NodeRef,
    flags: OpenFlags,
) -> Result<Arc<OpenFile>, Errno> {
    let kind = node.kind();
    if kind == FileKind::Symlink && !flags.contains(OpenFlags::PATH) {
        return Err(Errno::ELOOP);
    }
    if kind == FileKind::Directory {
        if wanted(flags).contains(Wanted::WRITE) || flags.intersects(OpenFlags::CREATE) {
            return Err(Errno::EISDIR);
        }
    } else if flags.contains(OpenFlags::DIRECTORY) {
        return Err(Errno::ENOTDIR);
    }
    permission::check(who, &*node, wanted(flags))?;
    if flags.contains(OpenFlags::NO_ATIME) && !who.owns(&node.owned()) {
        return Err(Errno::EPERM);
    }
    let truncate = flags.contains(OpenFlags::TRUNCATE)
        && !flags.contains(OpenFlags::PATH)
        && kind == FileKind::Regular;
    if truncate {
        node.set_size(0)?;
        forget_set_ids(who, &*node);
        found.tell(Events::MODIFY);
    }
    let file = OpenFile::open(node, found.place(), flags)?;
    file.tell(Events::OPEN);
    Ok(file)
}

/// Opens `node`, which was found without a path, and returns the open file.
///
/// # Errors
/// Fails as `open(2)` does.
pub fn open_node(
    who: &Credentials,
    node: NodeRef,
    flags: OpenFlags,
) -> Result<Arc<OpenFile>, Errno> {
    let found = Found::special(node.clone(), LastName::Root, node.clone());
    open_found(who, &found, node, flags)
}

/// Clears the set-id bits and the file capabilities of the regular file `node`, because its bytes
/// change. The set-id bits stay if `who` has `CAP_FSETID`. Does nothing for other nodes.
pub fn forget_set_ids(who: &Credentials, node: &dyn Node) {
    if node.kind() != FileKind::Regular {
        return;
    }
    node.forget_capabilities();
    if who.can(Capabilities::FSETID) {
        return;
    }
    // The node was writable a moment ago. An error of the closure means that there is nothing to
    // clear.
    let _ = change_by(node, |owned| {
        let left = who.after_write(owned).ok_or(Errno::ENODATA)?;
        Ok(AttributeChange {
            permissions: Some(left),
            ..AttributeChange::default()
        })
    });
}

fn open_nameless(
    who: &Credentials,
    directory: &NodeRef,
    flags: OpenFlags,
    [permissions, mask]: [u32; 2],
) -> Result<Arc<OpenFile>, Errno> {
    if directory.kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    permission::check_change(who, &**directory)?;
    let beginning = permission::beginning(who, &**directory, permissions, mask, false);
    let node = directory.create_nameless(beginning, !flags.contains(OpenFlags::EXCLUSIVE))?;
    let hold = node.hold_open(flags)?;
    let file = node.clone().open(flags - OpenFlags::TEMPORARY)?;
    // The open file shows `TEMPORARY` among its flags.
    Ok(OpenFile::with_hold(node, file, None, flags, hold))
}

/// Returns the path of `node`, which was found at `place`, from the root of the tree, as `/proc`
/// shows it.
pub fn describe(node: &NodeRef, place: Option<&Place>) -> Vec<u8> {
    const DELETED: &[u8] = b" (deleted)";
    if node.kind() == FileKind::Directory {
        let Ok((mut path, removed)) = way_up(node, None) else {
            return b"(unreachable)".to_vec();
        };
        if removed {
            path.extend_from_slice(DELETED);
        }
        return path;
    }
    let Some(place) = place else {
        return node.label().unwrap_or_else(|| b"(deleted)".to_vec());
    };
    let (mut path, _) = way_up(&place.parent, None).unwrap_or_default();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(&place.name);
    if !place
        .parent
        .lookup(&place.name)
        .is_ok_and(|found| same(&mounted_at(&place.parent, &place.name, found), node))
    {
        path.extend_from_slice(DELETED);
    }
    path
}

/// Returns the path of a directory from `root`. If the directory is outside of `root`, returns its
/// path from the root of the tree behind `(unreachable)`.
///
/// # Errors
/// Fails with `ENOENT` if the directory was removed, and with `ENAMETOOLONG` if it is too deep for
/// a path.
pub fn directory_path(directory: &NodeRef, root: &NodeRef) -> Result<Vec<u8>, Errno> {
    let (path, removed) = match way_up(directory, Some(root)) {
        Err(Errno::ENOENT) => {
            let (path, removed) = way_up(directory, None)?;
            ([b"(unreachable)", path.as_slice()].concat(), removed)
        }
        other => other?,
    };
    if removed {
        return Err(Errno::ENOENT);
    }
    Ok(path)
}

/// Returns the path from `root`, or from the root of the tree, down to a directory, and whether the
/// directory was removed.
///
/// # Errors
/// Fails with `ENOENT` if the way up does not lead to `root`, and with `ENAMETOOLONG` if the path
/// is too long.
fn way_up(directory: &NodeRef, root: Option<&NodeRef>) -> Result<(Vec<u8>, bool), Errno> {
    let mut names: Vec<Box<[u8]>> = Vec::new();
    let mut here = directory.clone();
    let mut length = 0;
    while !root.is_some_and(|root| same_place(&here, root)) {
        let Some(parent) = here.parent() else {
            // Only the root of the tree has an empty name and no parent. Another directory without
            // a parent has lost it for good.
            if root.is_some() || here.inner().is_some() || !here.name().is_empty() {
                return Err(Errno::ENOENT);
            }
            break;
        };
        let name = here.name();
        length += name.len() + 1;
        if names.len() >= MAX_DEPTH || length >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        names.push(name);
        here = parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Ok((path, directory.is_removed()))
}

impl OpenFile {
    /// Returns the path of the file as `/proc/PID/fd` shows it.
    pub fn path(&self) -> Vec<u8> {
        describe(self.node(), self.place())
    }
}
