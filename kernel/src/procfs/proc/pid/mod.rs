//! `/proc/PID` and `/proc/PID/task/TID`.

mod call;
mod descriptors;
mod mappings;
mod memory;
mod mounts;
mod namespaces;
mod pagemap;
mod space_file;
mod status;
mod transfers;

use super::net;
use super::subject::{Kind, PID_SHIFT, Subject, parse_number};
use crate::fs::changes::Watched;
use crate::fs::directory::{Listing, OpenDirectory};
use crate::fs::file::File;
use crate::fs::flags::{FileKind, OpenFlags};
use crate::fs::knob::Input;
use crate::fs::node::{
    DirEntry, FsStats, LinkTarget, Metadata, NewNode, Node, NodeId, NodeRef, downcast,
};
use crate::fs::poll::PollMask;
use crate::fs::records::Records;
use crate::fs::synthetic::{Content, FIRST, LinkNode, Synthetic, Target, TextNode, list_entries};
use crate::fs::text::Text;
use crate::process::task::{self, Process};
use crate::process::{self, caller};
use crate::vm::{AddressSpace, VmaInfo};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::{Arc, Weak};
use core::fmt;
use logic::credentials::Owned;
use logic::credentials::attributes::Beginning;
use logic::credentials::others::LooksAs;
use logic::errno::{Errno, SysResult};

type Show = fn(&mut Text, &Subject, &Arc<Process>) -> fmt::Result;
/// Shows an address space: `None` if no process uses it any more.
type ShowSpace = fn(&mut Text, Option<&AddressSpace>) -> fmt::Result;
type ShowArea = fn(&mut Text, &AddressSpace, &VmaInfo) -> fmt::Result;
/// Shows the mounts below a root directory.
type ShowMounts = fn(&mut Text, &NodeRef) -> fmt::Result;
type StoreText = fn(&Subject, &Arc<Process>, &str) -> Result<(), Errno>;
type StoreBytes = fn(&Subject, &Arc<Process>, &[u8]) -> Result<(), Errno>;

/// The function that stores what a program writes to a file about a process.
#[derive(Copy, Clone)]
enum Store {
    /// The function gets a text without white space around it.
    Text(StoreText),
    /// The function gets the first bytes as they were written.
    Bytes(StoreBytes),
}

/// What a file about a process shows, and to whom.
#[derive(Copy, Clone)]
enum Shown {
    /// The present state of the process, to all callers.
    Process(Show),
    /// The present state of the process, to callers that may inspect it at the time of the read.
    /// Others get the error.
    Inside(Show, Errno),
    /// The address space that the process had when the file was opened, to callers that could
    /// inspect the process then. Shows nothing of a program that the process executes later.
    Space(ShowSpace),
    /// The same as [`Shown::Space`], area by area.
    Areas(ShowArea),
    /// The mounts below the root directory that the process had when the file was opened. The file
    /// cannot be opened after the process has ended.
    Mounts(ShowMounts),
    /// The same as [`Shown::Mounts`]. In addition, the file wakes its pollers when a file system is
    /// mounted or unmounted.
    WatchedMounts(ShowMounts),
}

/// The directories that have a file.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Where {
    /// All directories of processes and threads.
    All,
    /// All except those of threads in `task`.
    NotInTask,
    /// Only those of threads in `task`.
    InTask,
}

/// A file about a process.
struct Entry {
    name: &'static str,
    shown: Shown,
    store: Option<Store>,
    /// Whether only the owner may read the file.
    private: bool,
    /// Whether everyone may open the file for writing. Its functions then check the rights.
    open: bool,
    place: Where,
}

/// Returns the entry of a file that shows `shown`, and that all directories have.
const fn entry(name: &'static str, shown: Shown) -> Entry {
    Entry {
        name,
        shown,
        store: None,
        private: false,
        open: false,
        place: Where::All,
    }
}

const fn file(name: &'static str, show: Show) -> Entry {
    entry(name, Shown::Process(show))
}

/// Returns the entry of a file that only its owner may read, about the state of the process.
const fn inside(name: &'static str, show: Show) -> Entry {
    Entry {
        shown: Shown::Inside(show, Errno::EPERM),
        private: true,
        ..file(name, show)
    }
}

/// Returns the entry of a file about the process's address space.
const fn space(name: &'static str, show: ShowSpace) -> Entry {
    entry(name, Shown::Space(show))
}

/// Returns the entry of a file about the process's address space, area by area.
const fn areas(name: &'static str, show: ShowArea) -> Entry {
    entry(name, Shown::Areas(show))
}

/// Returns the entry of a file that only its owner may read, about the process's memory.
const fn private(name: &'static str, show: ShowSpace) -> Entry {
    Entry {
        private: true,
        ..space(name, show)
    }
}

const fn knob(name: &'static str, show: Show, store: Store) -> Entry {
    Entry {
        store: Some(store),
        ..file(name, show)
    }
}

const ENTRIES: &[Entry] = &[
    file("stat", status::stat),
    file("status", status::status),
    file("statm", status::statm),
    file("cmdline", status::cmdline),
    private("environ", status::environ),
    private("auxv", status::auxv),
    knob("comm", status::comm, Store::Bytes(status::set_comm)),
    file("limits", status::limits),
    file("oom_score", status::oom_score),
    knob(
        "oom_score_adj",
        status::oom_score_adj,
        Store::Text(status::set_oom_score_adj),
    ),
    Entry {
        place: Where::NotInTask,
        ..knob(
            "coredump_filter",
            status::coredump_filter,
            Store::Text(status::set_coredump_filter),
        )
    },
    Entry {
        open: true,
        place: Where::NotInTask,
        ..knob(
            "timerslack_ns",
            status::timer_slack,
            Store::Text(status::set_timer_slack),
        )
    },
    areas("maps", mappings::maps),
    areas("smaps", mappings::smaps),
    areas("numa_maps", mappings::numa_maps),
    space("smaps_rollup", mappings::smaps_rollup),
    entry("mounts", Shown::WatchedMounts(mounts::mounts)),
    entry("mountinfo", Shown::WatchedMounts(mounts::mountinfo)),
    Entry {
        private: true,
        place: Where::NotInTask,
        ..entry("mountstats", Shown::Mounts(mounts::mountstats))
    },
    Entry {
        shown: Shown::Inside(transfers::io, Errno::EACCES),
        ..inside("io", transfers::io)
    },
    Entry {
        place: Where::InTask,
        ..file("children", transfers::children)
    },
    file("cgroup", |text, _, _| fmt::Write::write_str(text, "0::/\n")),
    inside("personality", status::personality),
    // There is one user namespace.
    file("uid_map", whole_map),
    file("gid_map", whole_map),
    file("setgroups", |text, _, _| {
        fmt::Write::write_str(text, "allow\n")
    }),
    inside("syscall", call::syscall),
    file("wchan", |text, _, _| fmt::Write::write_str(text, "0")),
];

/// Writes a map of all user or group IDs to themselves (`uid_map`, `gid_map`).
fn whole_map(text: &mut Text, _: &Subject, _: &Arc<Process>) -> fmt::Result {
    let numbers = [0, 0, u32::MAX].map(|number| format!("{number:10}"));
    fmt::Write::write_fmt(text, format_args!("{}\n", numbers.join(" ")))
}

/// The content of a file about a process.
struct About {
    subject: Subject,
    entry: &'static Entry,
}

impl Content for About {
    fn show(&self, text: &mut Text) -> fmt::Result {
        let process = match self.subject.process() {
            Ok(process) => process,
            Err(error) => return Err(text.fail(error)),
        };
        match self.entry.shown {
            Shown::Process(show) => show(text, &self.subject, &process),
            Shown::Inside(show, error) => match caller::look_into(&process, LooksAs::OfFiles) {
                Ok(()) => show(text, &self.subject, &process),
                Err(_) => Err(text.fail(error)),
            },
            // `open` returns another content for these files.
            Shown::Space(_) | Shown::Areas(_) | Shown::Mounts(_) | Shown::WatchedMounts(_) => {
                Ok(())
            }
        }
    }
    fn write(&self, input: Input<'_>, offset: &mut u64) -> SysResult {
        if input.length == 0 {
            return Ok(0);
        }
        match self.entry.store.ok_or(Errno::EINVAL)? {
            Store::Text(store) => {
                let text = input.text()?;
                store(&self.subject, &self.subject.process()?, text)?;
            }
            Store::Bytes(store) => store(&self.subject, &self.subject.process()?, input.bytes)?,
        }
        *offset += input.length as u64;
        Ok(input.length)
    }
    fn writable(&self) -> bool {
        self.entry.store.is_some()
    }
    fn opens_for_writing(&self) -> bool {
        true
    }
    fn permissions(&self) -> u32 {
        match (self.entry.private, self.writable()) {
            _ if self.entry.open => 0o666,
            (true, _) => 0o400,
            (false, true) => 0o644,
            (false, false) => 0o444,
        }
    }
    fn owner(&self) -> [u32; 2] {
        self.subject.owner(false)
    }
    fn open(&self) -> Result<Option<Arc<dyn Content>>, Errno> {
        Ok(match self.entry.shown {
            Shown::Process(_) | Shown::Inside(..) => None,
            Shown::Space(show) => {
                let space = self.subject.open_space()?;
                Some(Arc::new(OfSpace { space, show }))
            }
            Shown::Areas(show) => {
                let space = self.subject.open_space()?;
                Some(Arc::new(OfAreas { space, show }))
            }
            Shown::Mounts(show) => {
                let root = self.root()?;
                Some(Arc::new(OfMounts { root, show }))
            }
            Shown::WatchedMounts(show) => {
                let root = self.root()?;
                let mounts = Arc::new(OfMounts { root, show });
                let changes = &crate::fs::mounts::CHANGES;
                Some(Watched::new(mounts, changes, PollMask::READABLE).opened())
            }
        })
    }
}

impl About {
    /// Returns the root directory of the process. Fails with `EINVAL` if the process has ended, as
    /// on Linux also if it was reaped.
    fn root(&self) -> Result<NodeRef, Errno> {
        let process = self.subject.process().map_err(|_| Errno::EINVAL)?;
        if self.subject.has_ended(&process) {
            return Err(Errno::EINVAL);
        }
        Ok(process.fs().map_or_else(crate::fs::root, |fs| fs.root()))
    }
}

/// What a file shows of the mounts below a root directory.
struct OfMounts {
    root: NodeRef,
    show: ShowMounts,
}

impl Content for OfMounts {
    fn show(&self, text: &mut Text) -> fmt::Result {
        (self.show)(text, &self.root)
    }
}

/// What a file shows of each area of an address space, for as long as a process uses it.
struct OfAreas {
    space: Weak<AddressSpace>,
    show: ShowArea,
}

impl Content for OfAreas {
    fn show(&self, _: &mut Text) -> fmt::Result {
        Ok(())
    }
    fn records(self: Arc<Self>) -> Option<Arc<dyn Records>> {
        Some(self)
    }
}

impl Records for OfAreas {
    /// Writes the text of the first area that ends behind the address `at`. Returns the end of the
    /// area, or `None` if there is no further area or the space is gone.
    fn show_next(&self, text: &mut Text, at: u64) -> Result<Option<u64>, fmt::Error> {
        let Some(space) = self.space.upgrade() else {
            return Ok(None);
        };
        let Some(area) = space.vma_from(at) else {
            return Ok(None);
        };
        (self.show)(text, &space, &area)?;
        Ok(Some(area.end))
    }
}

/// What a file shows of an address space, for as long as a process uses it.
struct OfSpace {
    space: Weak<AddressSpace>,
    show: ShowSpace,
}

impl Content for OfSpace {
    fn show(&self, text: &mut Text) -> fmt::Result {
        (self.show)(text, self.space.upgrade().as_deref())
    }
}

/// Symbolic links of a process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Link {
    Exe,
    Cwd,
    Root,
}

const LINKS: [(&str, Link); 3] = [("exe", Link::Exe), ("cwd", Link::Cwd), ("root", Link::Root)];

/// A link of one process.
struct LinkOf {
    subject: Subject,
    link: Link,
}

impl Target for LinkOf {
    fn target(&self) -> Result<LinkTarget, Errno> {
        let process = self.subject.process()?;
        self.subject.check_look()?;
        if self.link == Link::Exe {
            let exe = process.exe().filter(|_| !self.subject.has_ended(&process));
            let exe = exe.ok_or(Errno::ENOENT)?;
            return Ok(LinkTarget::Node(exe.node().clone(), exe.place().cloned()));
        }
        let Some(context) = self.subject.fs(&process) else {
            // The init process of the kernel has no context, and is in the root directory.
            return match process.pid() {
                1 => Ok(LinkTarget::Node(crate::fs::root(), None)),
                _ => Err(Errno::ENOENT),
            };
        };
        let node = if self.link == Link::Cwd {
            context.cwd()
        } else {
            context.root()
        };
        Ok(LinkTarget::Node(node, None))
    }
    fn owner(&self) -> [u32; 2] {
        self.subject.owner(false)
    }
}

const SUBDIRECTORIES: [Kind; 5] = [
    Kind::Descriptors,
    Kind::DescriptorInfos,
    Kind::Net,
    Kind::Namespaces,
    Kind::Threads,
];
/// Files that show a process's address space.
static SPACE_FILES: [&space_file::Kind; 2] = [&pagemap::KIND, &memory::KIND];
const FIRST_LINK_FILE: u64 = 0x41;

/// Returns the process of `node`, a directory `/proc/PID`. Also returns a process that was reaped,
/// while other references to it exist.
///
/// # Errors
/// Fails with `EBADF` for other nodes, also for the directory of a thread. Fails with `ESRCH` if
/// the process was freed.
pub fn process_of(node: &NodeRef) -> Result<Arc<Process>, Errno> {
    let directory = downcast::<Directory>(node.clone())
        .filter(|directory| directory.kind == Kind::Top && directory.subject.tid.is_none())
        .ok_or(Errno::EBADF)?;
    directory.subject.found.upgrade().ok_or(Errno::ESRCH)
}

struct Directory {
    fs: Arc<Synthetic>,
    subject: Subject,
    kind: Kind,
    above: NodeRef,
    this: Weak<Self>,
}

/// Returns the directory of the process or thread `number` below `above`, the root of `/proc`. As
/// on Linux, the directory of a thread that is no main thread is not listed there. Returns `None`
/// if there is no such process or thread.
pub(super) fn directory(fs: &Arc<Synthetic>, above: NodeRef, number: u32) -> Option<NodeRef> {
    let (process, tid) = match task::find(number) {
        Some(process) => (process, None),
        None => {
            let task = task::table::find_task(number)?;
            (task.process().clone(), Some(number))
        }
    };
    let pid = process.pid();
    let found = Arc::downgrade(&process);
    let subject = Subject { pid, tid, found };
    Some(Directory::new(fs, subject, Kind::Top, above))
}

impl Directory {
    fn new(fs: &Arc<Synthetic>, subject: Subject, kind: Kind, above: NodeRef) -> Arc<Self> {
        let fs = fs.clone();
        Arc::new_cyclic(|this| Self {
            fs,
            subject,
            kind,
            above,
            this: this.clone(),
        })
    }

    /// Checks that the caller may enter the directory, regardless of the permission bits: only
    /// callers that may inspect the process see `fdinfo`. Fails with `EACCES` otherwise.
    fn check_enter(&self) -> Result<(), Errno> {
        match self.kind {
            Kind::DescriptorInfos => self.subject.check_look(),
            _ => Ok(()),
        }
    }

    fn this(&self) -> Result<NodeRef, Errno> {
        let this: Arc<dyn Node> = self.this.upgrade().ok_or(Errno::ENOENT)?;
        Ok(this)
    }

    /// Returns whether this is the directory of a thread in `task`, and not one of `/proc` itself.
    fn is_in_task(&self) -> bool {
        downcast::<Self>(self.above.clone()).is_some()
    }

    /// Returns the kinds of directories in this top directory. One in `task` has no directory
    /// `task`.
    fn subdirectories(&self) -> &'static [Kind] {
        if self.is_in_task() {
            &SUBDIRECTORIES[..4]
        } else {
            &SUBDIRECTORIES
        }
    }

    /// Returns the files in this top directory, with their numbers.
    fn entries(&self) -> impl Iterator<Item = (u64, &'static Entry)> + use<> {
        let of_thread = self.is_in_task();
        let all = (1..).zip(ENTRIES);
        all.filter(move |(_, entry)| {
            let elsewhere = if of_thread {
                Where::NotInTask
            } else {
                Where::InTask
            };
            entry.place != elsewhere
        })
    }

    fn lookup_top(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        if let Some((n, entry)) = self.entries().find(|(_, e)| e.name.as_bytes() == name) {
            let content = Arc::new(About {
                subject: self.subject.clone(),
                entry,
            });
            return Ok(TextNode::new(&self.fs, self.subject.inode(n), content));
        }
        let mut links = (FIRST_LINK_FILE..).zip(LINKS);
        if let Some((n, (_, link))) = links.find(|(_, (link, _))| link.as_bytes() == name) {
            let inode = self.subject.inode(n);
            let subject = self.subject.clone();
            return Ok(LinkNode::new(&self.fs, inode, LinkOf { subject, link }));
        }
        let mut spaces = SPACE_FILES.iter();
        if let Some(kind) = spaces.find(|kind| kind.name.as_bytes() == name) {
            return Ok(space_file::node(&self.fs, self.subject.clone(), kind));
        }
        let mut kinds = self.subdirectories().iter();
        let kind = *kinds
            .find(|kind| kind.name().as_bytes() == name)
            .ok_or(Errno::ENOENT)?;
        let subject = self.subject.clone();
        Ok(Self::new(&self.fs, subject, kind, self.this()?))
    }

    fn list_top(&self, offset: &mut u64, emit: &mut dyn FnMut(&DirEntry<'_>) -> bool) {
        let files = self
            .entries()
            .map(|(n, entry)| (entry.name, n, FileKind::Regular));
        let links = (FIRST_LINK_FILE..)
            .zip(LINKS)
            .map(|(n, (name, _))| (name, n, FileKind::Symlink));
        let kinds = self.subdirectories().iter();
        let directories = kinds.map(|kind| (kind.name(), kind.file(), FileKind::Directory));
        let spaces = SPACE_FILES.map(|kind| (kind.name, kind.file, FileKind::Regular));
        let all = (FIRST..).zip(files.chain(links).chain(directories).chain(spaces));
        for (at, (name, file, kind)) in all {
            if at < *offset {
                continue;
            }
            let name = name.as_bytes();
            let inode = self.subject.inode(file);
            if !emit(&DirEntry {
                name,
                inode,
                kind,
                next: at + 1,
            }) {
                return;
            }
            *offset = at + 1;
        }
    }

    fn list_namespaces(&self, offset: &mut u64, emit: &mut dyn FnMut(&DirEntry<'_>) -> bool) {
        for (at, (name, ..)) in (0..).zip(namespaces::KINDS) {
            if FIRST + at < *offset {
                continue;
            }
            if !emit(&DirEntry {
                name: name.as_bytes(),
                inode: namespaces::inode(&self.subject, at),
                kind: FileKind::Symlink,
                next: FIRST + at + 1,
            }) {
                return;
            }
            *offset = FIRST + at + 1;
        }
    }

    /// Lists entries whose names are numbers, each at offset `FIRST` + number. `next` returns the
    /// first number that is not below its argument, or `None` at the end.
    fn list_numbers(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
        kind: FileKind,
        mut next: impl FnMut(u64) -> Option<u64>,
    ) {
        while let Some(number) = next(offset.saturating_sub(FIRST)) {
            let name = format!("{number}");
            let inode = match self.kind {
                Kind::Threads => number << PID_SHIFT | 1 << 24,
                _ => descriptors::inode(&self.subject, self.kind, number),
            };
            let entry = DirEntry {
                name: name.as_bytes(),
                inode,
                kind,
                next: FIRST + number + 1,
            };
            if !emit(&entry) {
                return;
            }
            *offset = entry.next;
        }
    }
}

impl Node for Directory {
    fn id(&self) -> NodeId {
        self.fs.id(self.subject.inode(self.kind.file()))
    }
    fn kind(&self) -> FileKind {
        FileKind::Directory
    }
    fn metadata(&self) -> Metadata {
        let permissions = match self.kind {
            Kind::Descriptors => 0o500,
            Kind::Namespaces => 0o511,
            Kind::Top | Kind::Threads | Kind::DescriptorInfos | Kind::Net => 0o555,
        };
        let open = !matches!(self.kind, Kind::Descriptors | Kind::Namespaces);
        let owner = self.subject.owner(open);
        let below = match self.kind {
            Kind::Top => self.subdirectories().len(),
            Kind::Threads => self
                .subject
                .process()
                .map_or(0, |process| process.listed_thread_count()),
            Kind::Net => net::files().map_or(0, |files| files.subdirectory_count()),
            Kind::Descriptors | Kind::DescriptorInfos | Kind::Namespaces => 0,
        };
        let metadata =
            self.fs
                .metadata_of(self.id().inode, FileKind::Directory, permissions, owner);
        Metadata {
            links: metadata.links + u32::try_from(below).unwrap_or(0),
            ..metadata
        }
    }
    fn owned(&self) -> Owned {
        let mut owned = self.metadata().owned();
        let task = process::current();
        // Each process may list its own descriptors.
        if task.process().pid() == self.subject.pid {
            owned.uid = task.credentials().users.file;
        }
        owned
    }
    fn fs_stats(&self) -> FsStats {
        self.fs.stats()
    }
    fn open(self: Arc<Self>, _: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        self.check_enter()?;
        Ok(Arc::new(OpenDirectory(self)))
    }
    fn lookup(&self, name: &[u8]) -> Result<NodeRef, Errno> {
        let process = self.subject.process().map_err(|_| Errno::ENOENT)?;
        self.check_enter()?;
        if self.kind == Kind::Top {
            return self.lookup_top(name);
        }
        if self.kind == Kind::Net {
            return net::files().ok_or(Errno::ENOENT)?.lookup(name);
        }
        if self.kind == Kind::Namespaces {
            return namespaces::lookup(&self.fs, &self.subject, name);
        }
        // 0 is a descriptor, but no process.
        let number = if name == b"0" {
            Some(0)
        } else {
            parse_number(name)
        };
        let number = number.ok_or(Errno::ENOENT)?;
        if self.kind == Kind::Threads {
            if number != process.pid() {
                process.thread(number).ok_or(Errno::ENOENT)?;
            }
            let subject = Subject {
                tid: Some(number),
                ..self.subject.clone()
            };
            let above = self.this()?;
            return Ok(Self::new(&self.fs, subject, Kind::Top, above));
        }
        descriptors::lookup(&self.fs, &self.subject, self.kind, &process, number)
    }
    fn create(&self, _: &[u8], _: NewNode<'_>, _: Beginning) -> Result<NodeRef, Errno> {
        // As on Linux, where the lookup of a new name fails before the creation.
        Err(Errno::ENOENT)
    }
    fn parent(&self) -> Option<NodeRef> {
        Some(self.above.clone())
    }
    fn name(&self) -> Box<[u8]> {
        match self.kind {
            Kind::Top => format!("{}", self.subject.number()).into_bytes().into(),
            kind => kind.name().as_bytes().into(),
        }
    }
}

impl Listing for Directory {
    fn list(
        &self,
        offset: &mut u64,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let process = self.subject.process().map_err(|_| Errno::ENOENT)?;
        if !crate::fs::list_dots(self, offset, emit) {
            return Ok(());
        }
        match self.kind {
            Kind::Top => self.list_top(offset, emit),
            Kind::Net => {
                if let Some(files) = net::files() {
                    list_entries(files, offset, emit);
                }
            }
            Kind::Namespaces => self.list_namespaces(offset, emit),
            Kind::Threads => {
                let threads = process.listed_threads();
                self.list_numbers(offset, emit, FileKind::Directory, |from| {
                    threads
                        .iter()
                        .map(|&tid| u64::from(tid))
                        .find(|&tid| tid >= from)
                });
            }
            Kind::Descriptors | Kind::DescriptorInfos => {
                let Some(files) = self.subject.files(&process) else {
                    return Ok(());
                };
                let kind = if self.kind == Kind::Descriptors {
                    FileKind::Symlink
                } else {
                    FileKind::Regular
                };
                self.list_numbers(offset, emit, kind, |from| {
                    let from = usize::try_from(from).ok()?;
                    files.next_from(from).map(|(fd, _)| fd as u64)
                });
            }
        }
        Ok(())
    }
}
