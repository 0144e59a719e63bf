//! Calls on directories and names.

use super::Args;
use super::at;
use crate::fs::covers;
use crate::fs::lookup::{self, Found, LastLink, LastName};
use crate::fs::node::{DirEntry, LinkTarget, NewNode, RenameMode, Renamed, same_mount};
use crate::fs::permission;
use crate::fs::viewpoint::Viewpoint;
use crate::fs::watch::{self, Events};
use crate::fs::{Context, FileKind, NodeRef};
use crate::process::{self, caller};
use alloc::vec::Vec;
use linux_raw_sys::general::{
    AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE,
};
use logic::credentials::{Capabilities, Wanted};
use logic::errno::{Errno, SysResult};
use logic::path::PATH_MAX;
use machine::uaccess;

/// The most bytes of entries that one call collects.
const LISTING_BYTES: usize = 32 << 10;

/// Lists the directory behind argument 0 into the buffer in arguments 1 and 2. `encode` appends an
/// entry, or returns `false` if the entry does not fit. Returns the number of bytes. Fails as
/// `getdents(2)` does.
fn list(a: &Args, mut encode: impl FnMut(&mut Vec<u8>, &DirEntry<'_>, usize) -> bool) -> SysResult {
    let file = caller::file(a.int(0))?;
    if file.node().kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    if file.node().is_removed() {
        return Err(Errno::ENOENT);
    }
    let room = (a.uint(2) as usize).min(LISTING_BYTES);
    let mut records = Vec::new();
    records.try_reserve_exact(room).map_err(|_| Errno::ENOMEM)?;
    file.with_offset(|offset| {
        let before = *offset;
        let mut too_small = false;
        file.file().list(offset, &mut |entry| {
            let fits = encode(&mut records, entry, room);
            too_small = !fits && records.is_empty();
            fits
        })?;
        if too_small {
            return Err(Errno::EINVAL);
        }
        file.tell(Events::ACCESS);
        match uaccess::copy_out(a.addr(1), &records) {
            Ok(()) => Ok(records.len()),
            Err(error) => {
                let (copied, next) = copy_whole_entries(a.addr(1), &records);
                *offset = next.unwrap_or(before);
                if copied == 0 { Err(error) } else { Ok(copied) }
            }
        }
    })
}

/// Copies entries to `address` up to the first one that cannot be written. Returns the number of
/// bytes copied, and the offset behind the last copied entry, or `None` if none was copied.
fn copy_whole_entries(address: u64, records: &[u8]) -> (usize, Option<u64>) {
    /// Offsets of `d_off` and `d_reclen`, in both kinds of entries.
    const NEXT: core::ops::Range<usize> = 8..16;
    const LENGTH: core::ops::Range<usize> = 16..18;
    let (mut copied, mut next) = (0, None);
    // Ends: each entry has a length, which `encode` wrote.
    while let Some(rest) = records.get(copied..).filter(|rest| rest.len() > LENGTH.end) {
        let length = usize::from(u16::from_le_bytes([
            rest[LENGTH.start],
            rest[LENGTH.start + 1],
        ]));
        let entry = &rest[..length];
        if uaccess::copy_out(address + copied as u64, entry).is_err() {
            break;
        }
        next = entry[NEXT].try_into().ok().map(u64::from_le_bytes);
        copied += length;
    }
    (copied, next)
}

/// `getdents(2)`.
pub fn getdents(a: &Args) -> SysResult {
    list(a, |records, entry, room| {
        // inode, offset, length, name, NUL, padding, kind in the last byte
        let length = (18 + entry.name.len() + 2).next_multiple_of(8);
        if records.len() + length > room {
            return false;
        }
        let start = records.len();
        records.extend_from_slice(&entry.inode.to_le_bytes());
        records.extend_from_slice(&entry.next.to_le_bytes());
        // Names are at most 255 bytes long.
        records.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
        records.extend_from_slice(entry.name);
        records.resize(start + length - 1, 0);
        records.push(entry.kind.dirent_type());
        true
    })
}

/// `getdents64(2)`.
pub fn getdents64(a: &Args) -> SysResult {
    list(a, |records, entry, room| {
        // inode, offset, length, kind, name, NUL, padding
        let length = (19 + entry.name.len() + 1).next_multiple_of(8);
        if records.len() + length > room {
            return false;
        }
        let start = records.len();
        records.extend_from_slice(&entry.inode.to_le_bytes());
        records.extend_from_slice(&entry.next.to_le_bytes());
        records.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
        records.push(entry.kind.dirent_type());
        records.extend_from_slice(entry.name);
        records.resize(start + length, 0);
        true
    })
}

/// Checks that a file, or with `directory` a directory, can be created at `found`. Fails with
/// `EEXIST` if a file is there, and with `ENOENT` if the path requires a directory.
fn check_free(found: &Found, directory: bool) -> Result<(), Errno> {
    if found.node.is_some() {
        return Err(Errno::EEXIST);
    }
    if found.must_be_directory && !directory {
        return Err(Errno::ENOENT);
    }
    Ok(())
}

fn make(fd: i32, path: u64, new: NewNode<'_>, permissions: u32) -> SysResult {
    let found = at::find(fd, path, LastLink::Entry)?;
    check_free(&found, matches!(new, NewNode::Directory))?;
    let mask = caller::with_context(Context::umask);
    let name = found.new_name(Errno::EEXIST)?;
    let directory = matches!(new, NewNode::Directory);
    let who = &process::current().credentials();
    found.parent.check_writable()?;
    permission::check_change(who, &*found.parent)?;
    if matches!(new, NewNode::Character(_) | NewNode::Block(_)) {
        who.need(Capabilities::MKNOD)?;
    }
    let beginning = permission::beginning(who, &*found.parent, permissions, mask, directory);
    found.parent.create(name, new, beginning)?;
    tell_made(&found, name, directory);
    Ok(0)
}

fn tell_made(found: &Found, name: &[u8], directory: bool) {
    if watch::active() {
        let mut events = Events::CREATE;
        events.set(Events::DIRECTORY, directory);
        watch::tell_entry(&found.parent, name, events, 0);
    }
}

fn make_directory(fd: i32, path: u64, mode: u32) -> SysResult {
    make(fd, path, NewNode::Directory, mode & 0o1777)
}

/// `mkdir(2)`.
pub fn mkdir(a: &Args) -> SysResult {
    make_directory(AT_FDCWD, a.addr(0), a.uint(1))
}

/// `mkdirat(2)`.
pub fn mkdirat(a: &Args) -> SysResult {
    make_directory(a.int(0), a.addr(1), a.uint(2))
}

fn make_node(fd: i32, path: u64, mode: u32, device: u64) -> SysResult {
    let kind = if mode & linux_raw_sys::general::S_IFMT == 0 {
        Some(FileKind::Regular)
    } else {
        FileKind::from_mode(mode)
    };
    let new = match kind {
        Some(FileKind::Regular) => NewNode::Regular,
        Some(FileKind::Fifo) => NewNode::Fifo,
        Some(FileKind::Character) => NewNode::Character(device),
        Some(FileKind::Block) => NewNode::Block(device),
        Some(FileKind::Socket) => NewNode::Socket,
        Some(FileKind::Directory) => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    make(fd, path, new, mode & 0o7777)
}

/// `mknod(2)`.
pub fn mknod(a: &Args) -> SysResult {
    make_node(AT_FDCWD, a.addr(0), a.uint(1), a.uint(2).into())
}

/// `mknodat(2)`.
pub fn mknodat(a: &Args) -> SysResult {
    make_node(a.int(0), a.addr(1), a.uint(2), a.uint(3).into())
}

fn remove_directory(fd: i32, path: u64) -> SysResult {
    let found = at::find(fd, path, LastLink::Entry)?;
    let name = match found.name {
        LastName::Name(name) => name,
        LastName::Current => return Err(Errno::EINVAL),
        LastName::Parent => return Err(Errno::ENOTEMPTY),
        LastName::Root | LastName::Jump => return Err(Errno::EBUSY),
    };
    let parent = found.parent;
    parent.check_writable()?;
    let node = found.node.ok_or(Errno::ENOENT)?;
    if node.kind() != FileKind::Directory {
        caller::with_credentials(|who| permission::check_remove(who, &*parent, &*node))?;
        return Err(Errno::ENOTDIR);
    }
    if !same_mount(&node, &parent) {
        // The root of a mount.
        return Err(Errno::EBUSY);
    }
    caller::with_credentials(|who| permission::check_remove(who, &*parent, &*node))?;
    covers::check_free(&parent, &name, &node)?;
    // Another file may have taken the name since the lookup.
    let removed = parent.remove_directory(&name, node.id())?;
    drop(node);
    if watch::active_after_change() {
        watch::unlinked(&removed);
        // If this is the last reference, the event of the directory's end comes before that of its
        // name.
        drop(removed);
        watch::tell_entry(&parent, &name, Events::DELETE | Events::DIRECTORY, 0);
    }
    Ok(0)
}

fn remove_file(fd: i32, path: u64) -> SysResult {
    lookup::with_entries(|| {
        let found = at::find(fd, path, LastLink::Entry)?;
        caller::with_credentials(|who| found.unlink(who))
    })?;
    Ok(0)
}

/// `rmdir(2)`.
pub fn rmdir(a: &Args) -> SysResult {
    lookup::with_entries(|| remove_directory(AT_FDCWD, a.addr(0)))
}

/// `unlink(2)`.
pub fn unlink(a: &Args) -> SysResult {
    remove_file(AT_FDCWD, a.addr(0))
}

/// `unlinkat(2)`.
pub fn unlinkat(a: &Args) -> SysResult {
    match a.uint(2) {
        0 => remove_file(a.int(0), a.addr(1)),
        AT_REMOVEDIR => lookup::with_entries(|| remove_directory(a.int(0), a.addr(1))),
        _ => Err(Errno::EINVAL),
    }
}

fn rename_path(from: (i32, u64), to: (i32, u64), flags: u32) -> SysResult {
    lookup::with_entries(|| rename_entry(from, to, flags))
}

fn rename_entry(from: (i32, u64), to: (i32, u64), flags: u32) -> SysResult {
    let how = match flags {
        0 => RenameMode::Replace,
        RENAME_NOREPLACE => RenameMode::KeepExisting,
        RENAME_EXCHANGE => RenameMode::Exchange,
        _ => return Err(Errno::EINVAL),
    };
    let source = at::find(from.0, from.1, LastLink::Entry)?;
    let target = at::find(to.0, to.1, LastLink::Entry)?;
    if !same_mount(&source.parent, &target.parent) {
        return Err(Errno::EXDEV);
    }
    source.parent.check_writable()?;
    let node = source.node.as_ref().ok_or(Errno::ENOENT)?;
    let (name, new_name) = (
        source.new_name(Errno::EBUSY)?,
        target.new_name(Errno::EBUSY)?,
    );
    let directory_meant =
        source.must_be_directory || (target.must_be_directory && how != RenameMode::Exchange);
    if directory_meant && node.kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    if !same_mount(node, &source.parent) {
        return Err(Errno::EBUSY);
    }
    check_rename(&source, &target, node, how)?;
    covers::check_free(&source.parent, name, node)?;
    if let Some(other) = &target.node
        && how != RenameMode::KeepExisting
    {
        covers::check_free(&target.parent, new_name, other)?;
    }
    let meant = (node.id(), target.node.as_ref().map(|node| node.id()));
    let renamed = source
        .parent
        .rename(name, &target.parent, new_name, how, meant)?;
    let Some(renamed) = renamed else { return Ok(0) };
    if watch::active_after_change() {
        tell_renamed(&source, name, &target, new_name, (&renamed, how));
    }
    drop((source, target));
    if let Some(other) = renamed.other {
        other.release_if_last(1);
    }
    Ok(0)
}

/// Checks that the caller may move the node at `source`, and replace the one at `target`. Fails
/// with `EEXIST` or `ENOENT` if `how` and the target do not agree, and otherwise with the error of
/// a missing permission.
fn check_rename(
    source: &Found,
    target: &Found,
    node: &NodeRef,
    how: RenameMode,
) -> Result<(), Errno> {
    let who = &process::current().credentials();
    if who.can(Capabilities::DAC_OVERRIDE | Capabilities::FOWNER) {
        return Ok(());
    }
    if target
        .node
        .as_ref()
        .is_some_and(|other| lookup::same(other, node))
    {
        return Ok(());
    }
    match (&target.node, how) {
        (Some(_), RenameMode::KeepExisting) => return Err(Errno::EEXIST),
        (None, RenameMode::Exchange) => return Err(Errno::ENOENT),
        _ => {}
    }
    permission::check_remove(who, &*source.parent, &**node)?;
    match &target.node {
        Some(other) => permission::check_remove(who, &*target.parent, &**other)?,
        None => permission::check_change(who, &*target.parent)?,
    }
    // A directory in another one has another `..`.
    let moves = !lookup::same(&source.parent, &target.parent);
    let changes = |node: &NodeRef| {
        if moves && node.kind() == FileKind::Directory {
            permission::check(who, &**node, Wanted::WRITE)
        } else {
            Ok(())
        }
    };
    changes(node)?;
    match &target.node {
        Some(other) if how == RenameMode::Exchange => changes(other),
        _ => Ok(()),
    }
}

#[cold]
fn tell_renamed(
    source: &Found,
    name: &[u8],
    target: &Found,
    new_name: &[u8],
    (renamed, how): (&Renamed, RenameMode),
) {
    let (from, to) = ((&source.parent, name), (&target.parent, new_name));
    let (moved, other) = (&renamed.moved, renamed.other.as_ref());
    watch::tell_move(from, to, moved);
    if let Some(replaced) = other.filter(|_| how != RenameMode::Exchange) {
        watch::tell_node(replaced, Events::ATTRIB);
        watch::unlinked(replaced);
    }
    watch::tell_node(moved, Events::MOVE_SELF);
    if let Some(other) = other.filter(|_| how == RenameMode::Exchange) {
        watch::tell_move(to, from, other);
        watch::tell_node(other, Events::MOVE_SELF);
    }
}

/// `rename(2)`.
pub fn rename(a: &Args) -> SysResult {
    rename_path((AT_FDCWD, a.addr(0)), (AT_FDCWD, a.addr(1)), 0)
}

/// `renameat(2)`.
pub fn renameat(a: &Args) -> SysResult {
    rename_path((a.int(0), a.addr(1)), (a.int(2), a.addr(3)), 0)
}

/// `renameat2(2)`.
pub fn renameat2(a: &Args) -> SysResult {
    rename_path((a.int(0), a.addr(1)), (a.int(2), a.addr(3)), a.uint(4))
}

fn link_node(node: &NodeRef, fd: i32, path: u64) -> SysResult {
    let found = at::find(fd, path, LastLink::Entry)?;
    check_free(&found, false)?;
    let name = found.new_name(Errno::EEXIST)?;
    let who = &process::current().credentials();
    if !same_mount(&found.parent, node) {
        return Err(Errno::EXDEV);
    }
    found.parent.check_writable()?;
    permission::check_link(who, &**node)?;
    permission::check_change(who, &*found.parent)?;
    found.parent.link(name, node)?;
    if watch::active() {
        watch::tell_node(node, Events::ATTRIB);
    }
    tell_made(&found, name, false);
    Ok(0)
}

/// `link(2)`.
pub fn link(a: &Args) -> SysResult {
    let node = at::find(AT_FDCWD, a.addr(0), LastLink::Keep)?.existing()?;
    link_node(&node, AT_FDCWD, a.addr(1))
}

/// `linkat(2)`.
pub fn linkat(a: &Args) -> SysResult {
    let flags = a.uint(4);
    if flags & !(AT_SYMLINK_FOLLOW | linux_raw_sys::general::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & linux_raw_sys::general::AT_EMPTY_PATH != 0
        && !caller::can(Capabilities::DAC_READ_SEARCH)
    {
        return Err(Errno::ENOENT);
    }
    let last_link = if flags & AT_SYMLINK_FOLLOW != 0 {
        LastLink::Follow
    } else {
        LastLink::Keep
    };
    let target = at::target(a.int(0), a.addr(1), flags, last_link)?;
    link_node(target.node(), a.int(2), a.addr(3))
}

fn make_link(text: u64, fd: i32, path: u64) -> SysResult {
    let text = at::read_path(text)?;
    if text.is_empty() {
        return Err(Errno::ENOENT);
    }
    let found = at::find(fd, path, LastLink::Entry)?;
    check_free(&found, false)?;
    let name = found.new_name(Errno::EEXIST)?;
    let who = &process::current().credentials();
    found.parent.check_writable()?;
    permission::check_change(who, &*found.parent)?;
    let beginning = permission::beginning(who, &*found.parent, 0o777, 0, false);
    found
        .parent
        .create(name, NewNode::Symlink(&text), beginning)?;
    tell_made(&found, name, false);
    Ok(0)
}

/// `symlink(2)`.
pub fn symlink(a: &Args) -> SysResult {
    make_link(a.addr(0), AT_FDCWD, a.addr(1))
}

/// `symlinkat(2)`.
pub fn symlinkat(a: &Args) -> SysResult {
    make_link(a.addr(0), a.int(1), a.addr(2))
}

fn read_link(fd: i32, path: u64, buffer: u64, room: i32) -> SysResult {
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    if room == 0 {
        return Err(Errno::EINVAL);
    }
    let flags = linux_raw_sys::general::AT_EMPTY_PATH;
    let target = at::target(fd, path, flags, LastLink::Keep)?;
    let node = target.node();
    if node.kind() != FileKind::Symlink {
        return Err(match at::read_path(path)?.is_empty() {
            true => Errno::ENOENT,
            false => Errno::EINVAL,
        });
    }
    let text = match node.link_target()? {
        LinkTarget::Path(path) => path,
        LinkTarget::Node(node, place) => {
            let path = lookup::describe(&node, place.as_ref());
            let view = Viewpoint::of(&caller::context().root());
            view.show(&path).to_vec()
        }
    };
    let count = text.len().min(room);
    uaccess::copy_out(buffer, &text[..count])?;
    Ok(count)
}

/// `readlink(2)`.
pub fn readlink(a: &Args) -> SysResult {
    read_link(AT_FDCWD, a.addr(0), a.addr(1), a.int(2))
}

/// `readlinkat(2)`.
pub fn readlinkat(a: &Args) -> SysResult {
    read_link(a.int(0), a.addr(1), a.addr(2), a.int(3))
}

/// `getcwd(2)`.
pub fn getcwd(a: &Args) -> SysResult {
    let context = caller::context();
    let mut path = lookup::directory_path(&context.cwd(), &context.root())?;
    path.push(0);
    if path.len() > PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if path.len() > a.size(1) {
        return Err(Errno::ERANGE);
    }
    uaccess::copy_out(a.addr(0), &path)?;
    Ok(path.len())
}

fn directory(path: u64) -> Result<NodeRef, Errno> {
    let node = at::find(AT_FDCWD, path, LastLink::Follow)?.existing()?;
    if node.kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    caller::with_credentials(|who| permission::check_search(who, &*node))?;
    Ok(node)
}

/// `chdir(2)`.
pub fn chdir(a: &Args) -> SysResult {
    caller::context().set_cwd(directory(a.addr(0))?);
    Ok(0)
}

/// `fchdir(2)`.
pub fn fchdir(a: &Args) -> SysResult {
    let file = caller::place(a.int(0))?;
    if file.node().kind() != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    caller::with_credentials(|who| permission::check_search(who, &**file.node()))?;
    caller::context().set_cwd(file.node().clone());
    Ok(0)
}

/// `chroot(2)`.
pub fn chroot(a: &Args) -> SysResult {
    let root = directory(a.addr(0))?;
    caller::need(Capabilities::SYS_CHROOT)?;
    caller::context().set_root(root);
    Ok(0)
}

/// `umask(2)`.
pub fn umask(a: &Args) -> SysResult {
    Ok(caller::context().set_umask(a.uint(0)) as usize)
}
