//! The host's file tree, the lower layer of the guest's root. Its files do not change, so Linux may
//! cache everything.

use super::listing;
use super::message::{Attributes, DOTS, Reply, Request, TOP, Trust, UNKNOWN, can, keep, opcode};
use super::serve::FileSystem;
use crate::host_port::HostPort;
use ebb_wire::root::{
    Attributes as HostAttributes, Entry, FRAME, Frames, Names, Opcode, Question, entries,
    leading_number,
};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Lets Linux cache names and attributes for a year.
const LONG: Trust = Trust {
    name: Duration::from_secs(31_536_000),
    attributes: Duration::from_secs(31_536_000),
};

/// A file that Linux has a reference to.
#[derive(Debug)]
struct Node {
    path: Arc<[u8]>,
    host_attributes: HostAttributes,
    target: Box<[u8]>,
    /// Number of Linux's references to the node.
    given: u64,
}

/// An entry of a folder that is being listed.
#[derive(Debug)]
struct Name {
    name: Box<[u8]>,
    host_attributes: HostAttributes,
    target: Box<[u8]>,
}

impl Name {
    /// Returns an entry for the folder `name` without further attributes.
    fn of_folder(name: &[u8]) -> Self {
        Self {
            name: name.into(),
            host_attributes: HostAttributes {
                mode: FileType::Directory.as_raw_mode(),
                ..HostAttributes::default()
            },
            target: Box::default(),
        }
    }
}

impl From<Entry<'_>> for Name {
    fn from(entry: Entry<'_>) -> Self {
        Self {
            name: entry.name.into(),
            host_attributes: entry.attributes,
            target: entry.target.into(),
        }
    }
}

/// The file system (FUSE) that shows the host's file tree in the guest.
#[derive(Debug)]
pub(crate) struct Tree {
    host_port: Arc<HostPort>,
    nodes: HashMap<u64, Node>,
    numbers: HashMap<Arc<[u8]>, u64>,
    /// The entries of open folders, by the number of the open folder.
    listings: HashMap<u64, Vec<Name>>,
    /// The next unused number for a node or an open folder.
    next: u64,
}

/// Asks the host a question and returns the result of `read` for the answer. Fails as
/// [`HostPort::ask`] does.
fn ask<R>(
    host_port: &HostPort,
    question: &Question<'_>,
    read: impl FnOnce(&[u8]) -> Result<R, Errno>,
) -> Result<R, Errno> {
    host_port.ask(|buffer, _| question.write(buffer), |rest, _| read(rest))
}

/// Returns a question that needs no more than a path.
fn about(opcode: Opcode, path: &[u8]) -> Question<'_> {
    Question {
        opcode,
        path,
        from: 0,
        version: 0,
        frames: Frames::Addresses(&[]),
        siblings: Names::default(),
    }
}

impl Tree {
    /// Asks the host for the root and returns the file system. Fails as [`Self::look`] does.
    pub(crate) fn new(host_port: Arc<HostPort>) -> Result<Self, Errno> {
        let mut tree = Self {
            host_port,
            nodes: HashMap::new(),
            numbers: HashMap::new(),
            listings: HashMap::new(),
            next: TOP,
        };
        let top = tree.look(b"")?;
        tree.enter(b"".as_slice().into(), &top);
        Ok(tree)
    }

    /// Asks the host for the file at `path`. Fails with `EIO` if the answer is malformed, and as
    /// [`HostPort::ask`], for example with `ENOENT`.
    fn look(&self, path: &[u8]) -> Result<Name, Errno> {
        ask(&self.host_port, &about(Opcode::Lookup, path), |rest| {
            entries(rest).next().map(Name::from).ok_or(Errno::IO)
        })
    }

    /// Returns the node with this number. Fails with `ESTALE` if there is none.
    fn node(&self, number: u64) -> Result<&Node, Errno> {
        self.nodes.get(&number).ok_or(Errno::STALE)
    }

    /// Returns the path of `name` in the folder `folder`. Fails with `ESTALE` if there is no node
    /// `folder`.
    fn path(&self, folder: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let folder = &self.node(folder)?.path;
        let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        Ok([folder, slash, name].concat())
    }

    /// Returns the number of the node at `path`, created if need be, and counts one more reference
    /// by Linux.
    fn enter(&mut self, path: Arc<[u8]>, what: &Name) -> u64 {
        let number = *self.numbers.entry(path.clone()).or_insert(self.next);
        if number == self.next {
            self.next += 1;
        }
        let node = self.nodes.entry(number).or_insert_with(|| Node {
            path,
            host_attributes: what.host_attributes,
            target: what.target.clone(),
            given: 0,
        });
        node.given += 1;
        number
    }

    fn attributes(&self, number: u64) -> Result<Attributes, Errno> {
        let host_attributes = &self.node(number)?.host_attributes;
        let (major, minor) = (
            host_attributes.device >> 32,
            host_attributes.device & 0xffff_ffff,
        );
        // The encoding of `new_encode_dev` in Linux.
        let device = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
        Ok(Attributes {
            inode: number,
            size: host_attributes.size,
            blocks: host_attributes.size.div_ceil(512),
            times: [(host_attributes.seconds, host_attributes.nanos); 3],
            mode: host_attributes.mode,
            links: 1,
            uid: host_attributes.uid,
            gid: host_attributes.gid,
            device: u32::try_from(device).unwrap_or(0),
        })
    }

    fn lookup(&mut self, folder: u64, name: &[u8], reply: &mut Reply) -> Result<(), Errno> {
        let path = self.path(folder, name)?;
        let found = match self.look(&path) {
            Ok(found) => found,
            Err(Errno::NOENT) => {
                // Node number 0 makes Linux cache that the name does not exist.
                reply.entry(0, &Attributes::default(), LONG);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let number = self.enter(path.into(), &found);
        reply.entry(number, &self.attributes(number)?, LONG);
        Ok(())
    }

    /// Reads all entries of a folder from the host, with `.` and `..`. Fails with `ESTALE` if there
    /// is no node `folder`, with `EIO` if the answer is malformed, and as [`HostPort::ask`].
    fn names(&self, folder: u64) -> Result<Vec<Name>, Errno> {
        let path = &self.node(folder)?.path;
        let dots = DOTS.map(Name::of_folder).into();
        listing::whole(dots, |from, names| {
            let question = Question {
                from,
                ..about(Opcode::List, path)
            };
            ask(&self.host_port, &question, |rest| {
                listing::piece(rest, names)
            })
        })
    }

    /// Answers `READDIR` and `READDIRPLUS`: writes the entries of an open folder from an index on.
    /// With `READDIRPLUS` each entry has its attributes. The entries are read from the host when a
    /// listing begins. Fails with `EIO` if the request is too short, and as [`Self::names`].
    fn list(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let (handle, from, most) = (request.u64_at(0)?, request.u64_at(8)?, request.u32_at(16)?);
        let most = usize::try_from(most).map_err(|_| Errno::INVAL)?;
        let mut names = self.listings.remove(&handle).unwrap_or_default();
        if from == 0 || names.is_empty() {
            names = self.names(request.node)?;
        }
        let result = self.write_names(request, &names, (from, most), reply);
        self.listings.insert(handle, names);
        result
    }

    /// Writes the entries of `names` from the index `from` on, until the next one would make the
    /// body longer than `most` bytes. Fails with `ESTALE` if there is no node for the folder.
    fn write_names(
        &mut self,
        request: &Request<'_>,
        names: &[Name],
        (from, most): (u64, usize),
        reply: &mut Reply,
    ) -> Result<(), Errno> {
        let first = usize::try_from(from).map_err(|_| Errno::INVAL)?;
        for (at, name) in names.iter().enumerate().skip(first) {
            let next = at as u64 + 1;
            let path = self.path(request.node, &name.name)?;
            // The node number that Linux has for the path already, if any.
            let known = self.numbers.get(path.as_slice()).copied();
            let before = reply.len();
            let given = match request.opcode {
                opcode::READDIR => None,
                // Node number 0: Linux knows `.` and `..` itself.
                _ if DOTS.contains(&&*name.name) => {
                    reply.entry(0, &Attributes::default(), LONG);
                    None
                }
                _ => {
                    let number = self.enter(path.into(), name);
                    reply.entry(number, &self.attributes(number)?, LONG);
                    Some(number)
                }
            };
            let inode = given.or(known).unwrap_or(UNKNOWN);
            if !reply.name(&name.name, inode, name.host_attributes.mode, next, most) {
                reply.truncate(before);
                if let Some(number) = given {
                    self.forget(number, 1);
                }
                break;
            }
        }
        Ok(())
    }

    fn read(&self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let node = self.node(request.node)?;
        let (from, most) = (request.u64_at(8)?, request.u32_at(16)?);
        let most = usize::try_from(most).map_err(|_| Errno::INVAL)?;
        self.host_port.ask(
            |buffer, frames| {
                let question = Question {
                    from,
                    version: node.host_attributes.version,
                    frames: Frames::Addresses(frames.for_bytes(most)),
                    ..about(Opcode::Read, &node.path)
                };
                question.write(buffer)
            },
            |rest, frames| {
                let (count, _) = leading_number(rest).ok_or(Errno::IO)?;
                let count = usize::try_from(count).map_err(|_| Errno::IO)?;
                reply.bytes(frames.bytes(count.min(most)));
                Ok(())
            },
        )
    }
}

impl FileSystem for Tree {
    const ABILITIES: u32 = can::DO_READDIRPLUS | can::READDIRPLUS_AUTO | can::CACHE_SYMLINKS;
    const WRITE_MAX: usize = FRAME;

    fn answer(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        match request.opcode {
            opcode::LOOKUP => self.lookup(request.node, request.name(0)?, reply),
            opcode::GETATTR => {
                reply.attributes_alone(&self.attributes(request.node)?, LONG);
                Ok(())
            }
            opcode::READLINK => {
                let node = self.node(request.node)?;
                if FileType::from_raw_mode(node.host_attributes.mode) != FileType::Symlink {
                    return Err(Errno::INVAL);
                }
                reply.bytes(&node.target);
                Ok(())
            }
            opcode::OPENDIR => {
                // The host is asked for the names only when they are read and Linux has not cached
                // them.
                reply.opened(self.next, keep::CACHE | keep::NAMES);
                self.next += 1;
                Ok(())
            }
            opcode::READDIR | opcode::READDIRPLUS => self.list(request, reply),
            opcode::RELEASEDIR => {
                self.listings.remove(&request.u64_at(0)?);
                Ok(())
            }
            opcode::READ => self.read(request, reply),
            opcode::STATFS => {
                reply.room([FRAME as u64, 0, 0, 0, 0, 0]);
                Ok(())
            }
            // `ENOSYS` for `OPEN` tells Linux to open files without asking, and to cache their
            // pages.
            _ => Err(Errno::NOSYS),
        }
    }

    fn forget(&mut self, number: u64, times: u64) {
        let Some(node) = self.nodes.get_mut(&number).filter(|_| number != TOP) else {
            return;
        };
        node.given = node.given.saturating_sub(times);
        if node.given == 0 {
            self.numbers.remove(&node.path);
            self.nodes.remove(&number);
        }
    }
}
