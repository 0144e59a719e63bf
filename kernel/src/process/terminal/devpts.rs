//! `/dev/ptmx` and `/dev/pts`: pseudo-terminals and their numbers.

use super::device::{Kind, Terminal};
use super::line::Line;
use super::master::Master;
use super::{console, jobs};
use crate::fs::devices::{self, number, parts};
use crate::fs::directory::{Listing, OpenDirectory};
use crate::fs::node::{AttributeChange, DirEntry, FsStats, NodeId};
use crate::fs::synthetic::FIRST;
use crate::fs::volume::MountFlags;
use crate::fs::{
    self, File, FileKind, Metadata, Node, NodeRef, OpenFile, OpenFlags, Place, Timestamp, list_dots,
};
use crate::process::caller;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use logic::errno::Errno;
use logic::tty::Termios;
use machine::sync::{Once, SpinLock};

/// The major device number of the program's sides of pseudo-terminals.
pub(super) const MAJOR: u64 = 136;
/// The device number of `/dev/ptmx`, whose open creates a pseudo-terminal and its master.
pub(super) const MASTER: u64 = number(5, 2);
/// The device number of `/dev/tty`.
const OWN: u64 = number(5, 0);
/// The device number of `/dev/console`.
const CONSOLE: u64 = number(5, 1);
/// The most pseudo-terminals (`kernel.pty.max`).
const MOST: usize = 4096;
/// Linux's magic number of the file system.
const MAGIC: u64 = 0x1cd1;
/// Inode numbers: of the directory, of `ptmx`, and of terminal 0.
const DIRECTORY_INODE: u64 = 1;
const MASTER_INODE: u64 = 2;
const FIRST_INODE: u64 = 3;
/// The block size that `stat` shows.
const BLOCK_SIZE: u32 = 1024;
/// The group `tty`, which may write to terminals.
const TTY_GROUP: u32 = 5;

/// Permission bits, user, group, and the time when the terminal was created.
#[derive(Copy, Clone, Debug)]
struct Attributes {
    permissions: u32,
    uid: u32,
    gid: u32,
    made: Timestamp,
}

#[derive(Debug)]
struct Slot {
    terminal: Weak<Terminal>,
    attributes: Attributes,
}

/// Terminals by their numbers. A number is free once the terminal has been dropped.
static TERMINALS: SpinLock<Vec<Option<Slot>>> = SpinLock::new(Vec::new());

static DIRECTORY: Once<Arc<Directory>> = Once::new();

/// Frees the number `number` of a pseudo-terminal that has been dropped.
pub(super) fn free(number: u32) {
    let mut slots = TERMINALS.lock();
    if let Some(slot) = slots.get_mut(number as usize) {
        *slot = None;
    }
    while slots.last().is_some_and(Option::is_none) {
        slots.pop();
    }
}

fn make() -> Result<Arc<Terminal>, Errno> {
    let number = {
        let mut slots = TERMINALS.lock();
        let free = slots.iter().position(Option::is_none);
        let at = free.unwrap_or(slots.len());
        if at >= MOST {
            return Err(Errno::ENOSPC);
        }
        let slot = Slot {
            terminal: Weak::new(),
            attributes: Attributes {
                permissions: 0o620,
                uid: caller::file_owner()[0],
                gid: TTY_GROUP,
                made: Timestamp::now(),
            },
        };
        if at == slots.len() {
            slots.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            slots.push(Some(slot));
        } else {
            slots[at] = Some(slot);
        }
        // Below `MOST`.
        u32::try_from(at).unwrap_or(u32::MAX)
    };
    let terminal = match Terminal::new(Kind::Pseudo(number), Termios::usual()) {
        Ok(terminal) => Arc::new(terminal),
        Err(error) => {
            free(number);
            return Err(error);
        }
    };
    if let Some(Some(slot)) = TERMINALS.lock().get_mut(number as usize) {
        slot.terminal = Arc::downgrade(&terminal);
    }
    Ok(terminal)
}

/// Returns the terminal with this number and its attributes. Returns `None` if it does not exist or
/// its master is closed.
fn find(number: u32) -> Option<(Arc<Terminal>, Attributes)> {
    let (terminal, attributes) = {
        let slots = TERMINALS.lock();
        let slot = slots.get(number as usize)?.as_ref()?;
        (slot.terminal.upgrade()?, slot.attributes)
    };
    (!terminal.is_master_gone()).then_some((terminal, attributes))
}

/// Returns the lowest number of an existing terminal that is at least `number`. Returns `None` if
/// there is none.
fn next(number: u32) -> Option<u32> {
    let count = TERMINALS.lock().len();
    let count = u32::try_from(count).unwrap_or(0);
    (number..count).find(|&number| find(number).is_some())
}

/// Opens the terminal device with the number `device`. Fails with `ENXIO` if there is no such
/// device or the process has no terminal, with `EIO` if the terminal is gone, and with the errors
/// of opening a terminal.
fn open_device(device: u64, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
    match device {
        MASTER => Ok(Arc::new(Master(make()?))),
        OWN => {
            let own = jobs::own().ok_or(Errno::ENXIO)?;
            Ok(Line::open(own, false)?)
        }
        CONSOLE => console::open_console(flags),
        console::DEVICE => Line::open_as_own(console::terminal().ok_or(Errno::ENXIO)?, flags),
        _ => {
            let (major, minor) = parts(device);
            let minor = u32::try_from(minor).map_err(|_| Errno::ENXIO)?;
            if major != MAJOR {
                return Err(Errno::ENXIO);
            }
            let (terminal, _) = find(minor).ok_or(Errno::EIO)?;
            Line::open_as_own(&terminal, flags)
        }
    }
}

/// Opens the program's side of `terminal` without a path lookup (`TIOCGPTPEER`).
///
/// # Errors
/// Fails with `ENOTTY` if `terminal` is no pseudo-terminal, and with the errors of opening the
/// program's side.
pub(super) fn open_peer(
    terminal: &Arc<Terminal>,
    flags: OpenFlags,
) -> Result<Arc<OpenFile>, Errno> {
    let Kind::Pseudo(number) = terminal.kind else {
        return Err(Errno::ENOTTY);
    };
    let parent: NodeRef = DIRECTORY.get().ok_or(Errno::EIO)?.clone();
    let place = Place {
        parent: parent.clone(),
        name: format!("{number}").into_bytes().into(),
    };
    OpenFile::open(parent.lookup(&place.name)?, Some(place), flags)
}

/// Mounts `/dev/pts`, and makes device files in `/dev` open terminals.
///
/// # Panics
/// Panics if `/dev/pts` cannot be mounted.
pub fn mount() {
    fs::dev::set_terminals(open_device);
    let dev = fs::root().lookup(b"dev").map(fs::lookup::through_mounts);
    let mounted = dev.and_then(|dev| {
        let directory = Arc::new(Directory { above: dev.clone() });
        let top: NodeRef = directory.clone();
        let _ = DIRECTORY.set(directory);
        fs::mounts::mount_permanent("devpts", &dev, b"pts", top, None)
    });
    if let Err(error) = mounted {
        panic!("/dev/pts cannot be mounted: {error}");
    }
}

fn id(inode: u64) -> NodeId {
    NodeId {
        device: devices::PTS,
        inode,
    }
}

fn stats() -> FsStats {
    FsStats {
        magic: MAGIC,
        blocks: 0,
        free_blocks: 0,
        files: 0,
        free_files: 0,
        flags: MountFlags::RELATIVE_TIMES.bits(),
    }
}

/// `/dev/pts`.
struct Directory {
    above: NodeRef,
}

impl Node for Directory {
    fn id(&self) -> NodeId {
        id(DIRECTORY_INODE)
    }
    fn kind(&self) -> FileKind {
        FileKind::Directory
    }
    fn metadata(&self) -> Metadata {
        metadata(
            DIRECTORY_INODE,
            FileKind::Directory,
            0,
            Attributes {
                permissions: 0o755,
                uid: 0,
                gid: 0,
                made: Timestamp::default(),
            },
        )
    }
    fn fs_stats(&self) -> FsStats {
        stats()
    }
    fn open(self: Arc<Self>, _: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        Ok(Arc::new(OpenDirectory(self)))
    }
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        if name == b"ptmx" {
            return Ok(Arc::new(MasterNode));
        }
        // Only the form in which a number is listed.
        let text = core::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        let number: u32 = text.parse().map_err(|_| Errno::ENOENT)?;
        let canonical = text == "0" || !text.starts_with(['0', '+']);
        if !canonical || find(number).is_none() {
            return Err(Errno::ENOENT);
        }
        Ok(Arc::new(LineNode { number }))
    }
    fn parent(&self) -> Option<NodeRef> {
        Some(self.above.clone())
    }
    fn name(&self) -> Box<[u8]> {
        b"pts"[..].into()
    }
}

impl Listing for Directory {
    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        if !list_dots(self, offset, emit) {
            return Ok(());
        }
        if *offset == FIRST {
            let entry = DirEntry {
                name: b"ptmx",
                inode: MASTER_INODE,
                kind: FileKind::Character,
                next: FIRST + 1,
            };
            if !emit(&entry) {
                return Ok(());
            }
            *offset = FIRST + 1;
        }
        loop {
            let from = u32::try_from(*offset - FIRST - 1).unwrap_or(u32::MAX);
            let Some(number) = next(from) else {
                return Ok(());
            };
            let name = format!("{number}");
            let after = FIRST + 2 + u64::from(number);
            let entry = DirEntry {
                name: name.as_bytes(),
                inode: FIRST_INODE + u64::from(number),
                kind: FileKind::Character,
                next: after,
            };
            if !emit(&entry) {
                return Ok(());
            }
            *offset = after;
        }
    }
}

fn metadata(inode: u64, kind: FileKind, rdev: u64, attributes: Attributes) -> Metadata {
    let Attributes {
        permissions,
        uid,
        gid,
        made,
    } = attributes;
    Metadata {
        id: id(inode),
        kind,
        permissions,
        links: if kind == FileKind::Directory { 2 } else { 1 },
        uid,
        gid,
        rdev,
        size: 0,
        blocks: 0,
        accessed: made,
        modified: made,
        changed: made,
    }
}

/// `/dev/pts/ptmx`.
struct MasterNode;

impl Node for MasterNode {
    fn id(&self) -> NodeId {
        id(MASTER_INODE)
    }
    fn kind(&self) -> FileKind {
        FileKind::Character
    }
    fn metadata(&self) -> Metadata {
        let attributes = Attributes {
            permissions: 0,
            uid: 0,
            gid: 0,
            made: Timestamp::default(),
        };
        metadata(MASTER_INODE, FileKind::Character, MASTER, attributes)
    }
    fn fs_stats(&self) -> FsStats {
        stats()
    }
    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        open_device(MASTER, flags)
    }
}

/// `/dev/pts/N`.
struct LineNode {
    number: u32,
}

impl Node for LineNode {
    fn id(&self) -> NodeId {
        id(FIRST_INODE + u64::from(self.number))
    }
    fn kind(&self) -> FileKind {
        FileKind::Character
    }
    fn metadata(&self) -> Metadata {
        let gone = Attributes {
            permissions: 0o620,
            uid: 0,
            gid: TTY_GROUP,
            made: Timestamp::default(),
        };
        let attributes = {
            let slots = TERMINALS.lock();
            let slot = slots.get(self.number as usize).and_then(Option::as_ref);
            slot.map_or(gone, |slot| slot.attributes)
        };
        let device = number(MAJOR, self.number.into());
        let inode = FIRST_INODE + u64::from(self.number);
        metadata(inode, FileKind::Character, device, attributes)
    }
    fn block_size(&self) -> u32 {
        BLOCK_SIZE
    }
    fn fs_stats(&self) -> FsStats {
        stats()
    }
    fn open(self: Arc<Self>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        open_device(number(MAJOR, self.number.into()), flags)
    }
    fn change(&self, change: &AttributeChange) -> Result<(), Errno> {
        let mut slots = TERMINALS.lock();
        let slot = slots.get_mut(self.number as usize);
        let slot = slot.and_then(Option::as_mut).ok_or(Errno::EIO)?;
        let attributes = &mut slot.attributes;
        change.check(attributes.permissions, attributes.uid, attributes.gid)?;
        attributes.permissions = change.permissions.unwrap_or(attributes.permissions) & 0o7777;
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        Ok(())
    }
}
