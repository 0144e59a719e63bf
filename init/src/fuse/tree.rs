//! What of the host is below the root. It does not change: what Linux was told once it need not ask again.

use super::listing;
use super::message::{Attributes, DOTS, Reply, Request, TOP, Trust, UNKNOWN, can, keep, opcode};
use super::serve::FileSystem;
use crate::desk::Desk;
use ebb_wire::root::{Ask, Entry, FRAME, Facts, Frames, Names, Question, entries, leading_number};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A year.
const LONG: Trust = Trust {
    name: Duration::from_secs(31_536_000),
    attributes: Duration::from_secs(31_536_000),
};

/// What Linux knows of a file.
#[derive(Debug)]
struct Node {
    path: Arc<[u8]>,
    facts: Facts,
    target: Box<[u8]>,
    /// How often it was given to Linux.
    given: u64,
}

/// A name in a folder that is being listed.
#[derive(Debug)]
struct Name {
    name: Box<[u8]>,
    facts: Facts,
    target: Box<[u8]>,
}

impl Name {
    fn of_folder(name: &[u8]) -> Self {
        Self {
            name: name.into(),
            facts: Facts {
                mode: FileType::Directory.as_raw_mode(),
                ..Facts::default()
            },
            target: Box::default(),
        }
    }
}

impl From<Entry<'_>> for Name {
    fn from(entry: Entry<'_>) -> Self {
        Self {
            name: entry.name.into(),
            facts: entry.facts,
            target: entry.target.into(),
        }
    }
}

/// The tree.
#[derive(Debug)]
pub(crate) struct Tree {
    desk: Arc<Desk>,
    nodes: HashMap<u64, Node>,
    numbers: HashMap<Arc<[u8]>, u64>,
    /// Names of open folders.
    listings: HashMap<u64, Vec<Name>>,
    /// The next number of a node or a listing.
    next: u64,
}

/// Asks about a path.
fn ask<R>(
    desk: &Desk,
    question: &Question<'_>,
    read: impl FnOnce(&[u8]) -> Result<R, Errno>,
) -> Result<R, Errno> {
    desk.ask(|buffer, _| question.write(buffer), |rest, _| read(rest))
}

/// A question that needs no more than a path.
fn about(ask: Ask, path: &[u8]) -> Question<'_> {
    Question {
        ask,
        path,
        from: 0,
        version: 0,
        frames: Frames::Addresses(&[]),
        beside: Names::default(),
    }
}

impl Tree {
    /// Asks for the root.
    pub(crate) fn new(desk: Arc<Desk>) -> Result<Self, Errno> {
        let mut tree = Self {
            desk,
            nodes: HashMap::new(),
            numbers: HashMap::new(),
            listings: HashMap::new(),
            next: TOP,
        };
        let top = tree.look(b"")?;
        tree.enter(b"".as_slice().into(), &top);
        Ok(tree)
    }

    fn look(&self, path: &[u8]) -> Result<Name, Errno> {
        ask(&self.desk, &about(Ask::Look, path), |rest| {
            entries(rest).next().map(Name::from).ok_or(Errno::IO)
        })
    }

    fn node(&self, number: u64) -> Result<&Node, Errno> {
        self.nodes.get(&number).ok_or(Errno::STALE)
    }

    /// The path of a name in a folder.
    fn path(&self, folder: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let folder = &self.node(folder)?.path;
        let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        Ok([folder, slash, name].concat())
    }

    /// The node at a path, given to Linux one more time.
    fn enter(&mut self, path: Arc<[u8]>, what: &Name) -> u64 {
        let number = *self.numbers.entry(path.clone()).or_insert(self.next);
        if number == self.next {
            self.next += 1;
        }
        let node = self.nodes.entry(number).or_insert_with(|| Node {
            path,
            facts: what.facts,
            target: what.target.clone(),
            given: 0,
        });
        node.given += 1;
        number
    }

    fn attributes(&self, number: u64) -> Result<Attributes, Errno> {
        let facts = &self.node(number)?.facts;
        let (major, minor) = (facts.device >> 32, facts.device & 0xffff_ffff);
        // As `new_encode_dev` has it.
        let device = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
        Ok(Attributes {
            inode: number,
            size: facts.size,
            blocks: facts.size.div_ceil(512),
            times: [(facts.seconds, facts.nanos); 3],
            mode: facts.mode,
            links: 1,
            uid: facts.uid,
            gid: facts.gid,
            device: u32::try_from(device).unwrap_or(0),
        })
    }

    fn lookup(&mut self, folder: u64, name: &[u8], reply: &mut Reply) -> Result<(), Errno> {
        let path = self.path(folder, name)?;
        let found = match self.look(&path) {
            Ok(found) => found,
            Err(Errno::NOENT) => {
                // No node: Linux keeps in mind that there is none.
                reply.entry(0, &Attributes::default(), LONG);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let number = self.enter(path.into(), &found);
        reply.entry(number, &self.attributes(number)?, LONG);
        Ok(())
    }

    /// All names in a folder.
    fn names(&self, folder: u64) -> Result<Vec<Name>, Errno> {
        let path = &self.node(folder)?.path;
        let dots = DOTS.map(Name::of_folder).into();
        listing::whole(dots, |from, names| {
            let question = Question {
                from,
                ..about(Ask::List, path)
            };
            ask(&self.desk, &question, |rest| listing::piece(rest, names))
        })
    }

    /// Names of an open folder from a number on, with what they are if Linux wants to know.
    fn list(&mut self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let (handle, from, most) = (request.number(0)?, request.number(8)?, request.half(16)?);
        let most = usize::try_from(most).map_err(|_| Errno::INVAL)?;
        let mut names = self.listings.remove(&handle).unwrap_or_default();
        if from == 0 || names.is_empty() {
            names = self.names(request.node)?;
        }
        let result = self.write_names(request, &names, (from, most), reply);
        self.listings.insert(handle, names);
        result
    }

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
            // Linux knows it, or will know it by this number if it asks.
            let known = self.numbers.get(path.as_slice()).copied();
            let before = reply.len();
            let given = match request.opcode {
                opcode::READDIR => None,
                // No node: Linux knows them.
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
            if !reply.name(&name.name, inode, name.facts.mode, next, most) {
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
        let (from, most) = (request.number(8)?, request.half(16)?);
        let most = usize::try_from(most).map_err(|_| Errno::INVAL)?;
        self.desk.ask(
            |buffer, frames| {
                let question = Question {
                    from,
                    version: node.facts.version,
                    frames: Frames::Addresses(frames.for_bytes(most)),
                    ..about(Ask::Read, &node.path)
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
                if FileType::from_raw_mode(node.facts.mode) != FileType::Symlink {
                    return Err(Errno::INVAL);
                }
                reply.bytes(&node.target);
                Ok(())
            }
            opcode::OPENDIR => {
                // Names are asked for once somebody reads them, and Linux has not kept them.
                reply.opened(self.next, keep::CACHE | keep::NAMES);
                self.next += 1;
                Ok(())
            }
            opcode::READDIR | opcode::READDIRPLUS => self.list(request, reply),
            opcode::RELEASEDIR => {
                self.listings.remove(&request.number(0)?);
                Ok(())
            }
            opcode::READ => self.read(request, reply),
            opcode::STATFS => {
                reply.room([FRAME as u64, 0, 0, 0, 0, 0]);
                Ok(())
            }
            // Of `OPEN`, too: Linux opens files by itself then, and keeps their pages.
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
