//! Extended attributes.
//!
//! As on Linux 6.1, files in memory have attributes of `trusted.` and `security.`, and access lists
//! (`system.posix_acl_*`). No file has attributes of `user.`.

use super::Args;
use super::at::{self, Target};
use crate::fs::FileKind;
use crate::fs::lookup::LastLink;
use crate::fs::node::AttributeChange;
use crate::fs::watch::Events;
use crate::fs::xattr::{CAPABILITY, Slot};
use crate::process::{self, caller};
use alloc::boxed::Box;
use alloc::vec::Vec;
use linux_raw_sys::general::AT_FDCWD;
use logic::access_list::{ACCESS, DEFAULT, List};
use logic::credentials::{Capabilities, Wanted};
use logic::errno::{Errno, SysResult};
use logic::xattrs::{Attribute, LIST_MAX, NAME_MAX, VALUE_MAX, When};
use machine::uaccess;

/// `XATTR_CREATE`.
const CREATE: u32 = 1;
/// `XATTR_REPLACE`.
const REPLACE: u32 = 2;
/// The attribute with the protocol of a socket. It cannot be set.
const SOCKET_PROTOCOL: &[u8] = b"system.sockprotoname";

fn path(a: &Args, last_link: LastLink) -> Result<Target, Errno> {
    at::path_target(AT_FDCWD, a.addr(0), last_link)
}

fn descriptor(a: &Args) -> Result<Target, Errno> {
    Ok(Target::File(caller::file(a.int(0))?))
}

/// Reads the name of an attribute. Fails with `ERANGE` if it is empty or too long, with `EFAULT`,
/// and with `ENOMEM`.
fn name(address: u64) -> Result<Vec<u8>, Errno> {
    let name = uaccess::read_cstr(address, NAME_MAX + 1).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::ERANGE,
        other => other,
    })?;
    if name.is_empty() {
        return Err(Errno::ERANGE);
    }
    Ok(name)
}

/// Reads the value of an attribute. Fails with `EFAULT` and with `ENOMEM`.
fn value(address: u64, size: usize) -> Result<Box<[u8]>, Errno> {
    let mut value = buffer(size)?;
    value.resize(size, 0);
    uaccess::copy_in(&mut value, address)?;
    Ok(value.into_boxed_slice())
}

fn buffer(size: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
    Ok(bytes)
}

/// Checks that the file can have an attribute `name`, and that the caller may use it. `refused` is
/// the error for attributes that the file or the caller may not have: `EPERM` in calls that write,
/// `ENODATA` in calls that read.
fn check(target: &Target, name: &[u8], refused: Errno) -> Result<(), Errno> {
    let writes = refused == Errno::EPERM;
    if writes {
        target.node().check_writable()?;
    }
    if name.starts_with(b"user.") {
        let kind = target.node().kind();
        if !matches!(kind, FileKind::Regular | FileKind::Directory) {
            return Err(refused);
        }
        target.check(if writes { Wanted::WRITE } else { Wanted::READ })?;
        return Err(Errno::EOPNOTSUPP);
    }
    if name.starts_with(b"trusted.") && !caller::can(Capabilities::SYS_ADMIN) {
        return Err(refused);
    }
    if writes && name.starts_with(b"security.") {
        caller::need(if name == CAPABILITY {
            Capabilities::SETFCAP
        } else {
            Capabilities::SYS_ADMIN
        })?;
    }
    // Files without attributes are refused before the rest of the name is checked.
    target.node().extended(&mut |_| ())?;
    if is_list(name) {
        return if target.node().has_lists() {
            Ok(())
        } else {
            Err(Errno::EOPNOTSUPP)
        };
    }
    let prefix = [&b"trusted."[..], b"security."]
        .into_iter()
        .find(|prefix| name.starts_with(prefix))
        .ok_or(Errno::EOPNOTSUPP)?;
    if name.len() == prefix.len() {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Returns whether `value` is a valid set of capabilities of a program, of version 2 or 3 (`struct
/// vfs_cap_data`).
fn is_capability(value: &[u8]) -> bool {
    let version = value.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    /// The bits of the version. The lowest bit is a flag.
    const VERSION: u32 = 0xff00_0000;
    matches!(
        (version.map(|version| version & VERSION), value.len()),
        (Some(0x0200_0000), 20) | (Some(0x0300_0000), 24)
    )
}

/// Returns whether an attribute is an access list.
fn is_list(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// Sets an access list of a file, or removes it if there is no `value`. Returns 0. Fails with
/// `EACCES` for a default list of a file that is no directory, with `EPERM` if the caller does not
/// own the file, with the error of a malformed list, and with that of the file system.
fn set_list(target: &Target, name: &[u8], value: Option<Box<[u8]>>) -> SysResult {
    let node = target.node();
    let default = name == DEFAULT;
    let list = match &value {
        Some(value) => List::read(value)?,
        None => None,
    };
    if default && node.kind() != FileKind::Directory {
        return match list {
            Some(_) => Err(Errno::EACCES),
            None => Ok(0),
        };
    }
    let bits = list.filter(|_| !default).map(List::permissions);
    // A plain access list says no more than the permission bits, and is not stored.
    let kept = list.is_some_and(|list| default || !list.is_plain());
    let value = value.filter(|_| kept);
    let who = process::current().credentials();
    // Ends: another round follows only if another task has changed the owner or the bits in
    // between.
    loop {
        let owned = node.owned();
        if !who.owns(&owned) {
            return Err(Errno::EPERM);
        }
        let permissions = match bits {
            Some(bits) => Some(who.new_permissions(&owned, owned.permissions & !0o777 | bits)?),
            None => None,
        };
        let change = AttributeChange {
            permissions,
            decided_by: Some(owned),
            ..AttributeChange::default()
        };
        let list = match &value {
            Some(list) => {
                let mut copy = buffer(list.len())?;
                copy.extend_from_slice(list);
                Some(copy.into_boxed_slice())
            }
            None => None,
        };
        match node.set_list(default, list, &change) {
            Err(Errno::EAGAIN) => machine::sched::cond_resched(),
            result => {
                result?;
                break;
            }
        }
    }
    target.tell(Events::ATTRIB);
    Ok(0)
}

fn set(target: Result<Target, Errno>, a: &Args) -> SysResult {
    let target = target?;
    let flags = a.uint(4);
    if flags & !(CREATE | REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    let name = name(a.addr(1))?;
    let size = a.size(3);
    if size > VALUE_MAX {
        return Err(Errno::E2BIG);
    }
    let value = value(a.addr(2), size)?;
    if name == CAPABILITY && size != 0 && !is_capability(&value) {
        return Err(Errno::EINVAL);
    }
    check(&target, &name, Errno::EPERM)?;
    if is_list(&name) {
        return set_list(&target, &name, Some(value));
    }
    let when = When {
        create: flags & CREATE != 0,
        replace: flags & REPLACE != 0,
    };
    let mut new = Some(Attribute {
        name: name.into_boxed_slice(),
        value,
    });
    let mut fresh: Slot = Some(Box::default());
    let mut result = Ok(());
    let mut old = None;
    target.node().change_extended(&mut |slot: &mut Slot| {
        let place = slot.as_mut().or(fresh.as_mut());
        if let (Some(new), Some(place)) = (new.take(), place) {
            (old, result) = place.set(new, when);
            if slot.is_none() && result.is_ok() {
                *slot = fresh.take();
            }
        }
    })?;
    drop((old, fresh));
    result?;
    target.tell(Events::ATTRIB);
    Ok(0)
}

/// `setxattr(2)`.
pub fn setxattr(a: &Args) -> SysResult {
    set(path(a, LastLink::Follow), a)
}

/// `lsetxattr(2)`.
pub fn lsetxattr(a: &Args) -> SysResult {
    set(path(a, LastLink::Keep), a)
}

/// `fsetxattr(2)`.
pub fn fsetxattr(a: &Args) -> SysResult {
    set(descriptor(a), a)
}

/// Writes `bytes` to the program's buffer of `size` bytes, and returns their number. With size 0,
/// only returns the number. Fails with `ERANGE` if the buffer is too small, and with `EFAULT`.
fn give(bytes: &[u8], address: u64, size: usize) -> SysResult {
    if size != 0 {
        if bytes.len() > size {
            return Err(Errno::ERANGE);
        }
        uaccess::copy_out(address, bytes)?;
    }
    Ok(bytes.len())
}

fn get(target: Result<Target, Errno>, a: &Args) -> SysResult {
    let target = target?;
    let name = name(a.addr(1))?;
    if let Some(protocol) = target.node().protocol_name()
        && name == SOCKET_PROTOCOL
    {
        let mut value = buffer(protocol.len() + 1)?;
        value.extend_from_slice(protocol.as_bytes());
        value.push(0);
        return give(&value, a.addr(2), a.size(3));
    }
    check(&target, &name, Errno::ENODATA)?;
    let mut bytes = buffer(a.size(3).min(VALUE_MAX))?;
    let mut found = Err(Errno::ENODATA);
    target.node().extended(&mut |slot: &Slot| {
        let value = slot.as_ref().and_then(|slot| slot.all().get(&name));
        if let Some(value) = value {
            found = Ok(value.len());
            if value.len() <= bytes.capacity() {
                bytes.extend_from_slice(value);
            }
        }
    })?;
    let length = found?;
    if a.size(3) == 0 {
        return Ok(length);
    }
    if length > bytes.len() {
        return Err(Errno::ERANGE);
    }
    give(&bytes, a.addr(2), a.size(3))
}

/// `getxattr(2)`.
pub fn getxattr(a: &Args) -> SysResult {
    get(path(a, LastLink::Follow), a)
}

/// `lgetxattr(2)`.
pub fn lgetxattr(a: &Args) -> SysResult {
    get(path(a, LastLink::Keep), a)
}

/// `fgetxattr(2)`.
pub fn fgetxattr(a: &Args) -> SysResult {
    get(descriptor(a), a)
}

fn list(target: Result<Target, Errno>, a: &Args) -> SysResult {
    let target = target?;
    if target.node().protocol_name().is_some() {
        let mut names = buffer(SOCKET_PROTOCOL.len() + 1)?;
        names.extend_from_slice(SOCKET_PROTOCOL);
        names.push(0);
        return give(&names, a.addr(1), a.size(2));
    }
    let mut names = buffer(a.size(2).min(LIST_MAX))?;
    let mut length = 0;
    let trusted = caller::can(Capabilities::SYS_ADMIN);
    let looked = target.node().extended(&mut |slot: &Slot| {
        let all = || slot.iter().flat_map(|slot| slot.all().names());
        let others = all().filter(|name| trusted || !name.starts_with(b"trusted."));
        let others = others.filter(|name| !is_list(name));
        // Lists come first, as on Linux.
        let lists = [ACCESS, DEFAULT].into_iter();
        let lists = lists.filter(|list| all().any(|name| name == *list));
        for name in lists.chain(others) {
            length += name.len() + 1;
            if length <= names.capacity() {
                names.extend_from_slice(name);
                names.push(0);
            }
        }
    });
    if looked.is_err() {
        // The file can have no attributes.
        return Ok(0);
    }
    match (length > names.len(), a.size(2)) {
        (_, 0) if length > LIST_MAX => Err(Errno::E2BIG),
        (_, 0) => Ok(length),
        (true, size) if size >= LIST_MAX => Err(Errno::E2BIG),
        (true, _) => Err(Errno::ERANGE),
        (false, size) => give(&names, a.addr(1), size),
    }
}

/// `listxattr(2)`.
pub fn listxattr(a: &Args) -> SysResult {
    list(path(a, LastLink::Follow), a)
}

/// `llistxattr(2)`.
pub fn llistxattr(a: &Args) -> SysResult {
    list(path(a, LastLink::Keep), a)
}

/// `flistxattr(2)`.
pub fn flistxattr(a: &Args) -> SysResult {
    list(descriptor(a), a)
}

fn remove(target: Result<Target, Errno>, a: &Args) -> SysResult {
    let target = target?;
    let name = name(a.addr(1))?;
    check(&target, &name, Errno::EPERM)?;
    if is_list(&name) {
        return set_list(&target, &name, None);
    }
    let mut gone = None;
    target.node().change_extended(&mut |slot: &mut Slot| {
        gone = slot.as_mut().and_then(|slot| slot.remove(&name));
    })?;
    gone.ok_or(Errno::ENODATA)?;
    target.tell(Events::ATTRIB);
    Ok(0)
}

/// `removexattr(2)`.
pub fn removexattr(a: &Args) -> SysResult {
    remove(path(a, LastLink::Follow), a)
}

/// `lremovexattr(2)`.
pub fn lremovexattr(a: &Args) -> SysResult {
    remove(path(a, LastLink::Keep), a)
}

/// `fremovexattr(2)`.
pub fn fremovexattr(a: &Args) -> SysResult {
    remove(descriptor(a), a)
}
