//! The guest's first file system: a `cpio` archive (newc). The guest can use the files' pages in
//! place.
//!
//! A kernel that maps the archive's pages instead of copying them needs three rules beyond newc:
//! - The data of each non-empty file starts at a multiple of 4096. The file's name is padded with
//!   NULs.
//! - Zero bytes follow the data up to the next multiple of 4096, so that the last page is a valid
//!   page of a file. A reader skips zero bytes between members.
//! - The length of the archive is a multiple of 4096.

use super::host_file::HostFile;
use crate::text::{Rounded, Size, one_line};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The alignment for a kernel that uses files in place: the page size in bytes.
const PAGE: u64 = 4096;
/// The alignment of newc itself in bytes.
const WORD: u64 = 4;
/// The length of a newc header in bytes.
const HEADER: u64 = 110;
/// The largest length of a path in Linux, without its NUL.
const PATH_MAX: usize = 4095;

/// The name of the last member.
const TRAILER: &[u8] = b"TRAILER!!!";

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const PERMISSIONS: u32 = 0o7777;

/// The alignment of file data in an archive. It depends on the kernel that reads the archive.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Alignment {
    /// Multiples of 4096 bytes, for a kernel that uses the pages of files in place.
    Page,
    /// Multiples of 4 bytes, for a kernel that copies files. Linux skips members whose padded name
    /// is longer than a path.
    Word,
}

/// The largest size that an archive may have in one guest.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Budget {
    /// The largest size of the archive in bytes.
    pub(crate) bytes: u64,
    /// The memory of the guest, for messages.
    pub(crate) memory: Size,
}

impl Budget {
    /// Returns the budget for a guest with `memory` of RAM. The archive and the kernel, which needs
    /// `kernel` bytes, together may use half of it. The budget is 0 if the kernel alone needs that.
    pub(crate) fn of_guest(memory: Size, kernel: u64) -> Self {
        Self {
            bytes: (memory.bytes() / 2).saturating_sub(kernel),
            memory,
        }
    }
}

/// The source of a packed file's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A file of the host, which is read when the archive is written.
    Host(HostFile),
    /// Bytes in memory.
    Bytes(Vec<u8>),
}

/// A directory, file or symbolic link of the guest's first file system. `mode` holds permission
/// bits.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Directory { mode: u32 },
    File { mode: u32, source: Source },
    Symlink { target: Vec<u8> },
}

/// An absolute path in the guest, without `.`, `..` or doubled slashes. It is never `/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GuestPath(Vec<u8>);

/// The reason why a file cannot be added to the archive, or why the archive cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    #[error("`{}` is no path in the guest: it must be absolute, without `..`", one_line(.0))]
    Path(String),
    #[error("{0} would be both a file and a directory in the guest")]
    Conflict(GuestPath),
    #[error("cannot read {}", one_line(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("{} changed while it was packed; run again when nothing writes it", one_line(.0))]
    Changed(PathBuf),
    #[error("{} is larger than an initramfs file can be (4 GiB)", one_line(.0))]
    TooLarge(PathBuf),
    #[error(
        "the packed files take {} of a guest with {}, which has room for {}; {} alone takes {}; \
         give it more with -m",
        Rounded(*.total), budget.memory, Rounded(budget.bytes), one_line(file), Rounded(*.size)
    )]
    OverBudget {
        /// The size of the archive up to the end of `file`, or of the whole archive, in bytes.
        total: u64,
        file: PathBuf,
        size: u64,
        budget: Budget,
    },
    #[error("the packed programs have more than {0} libraries, which ebb cannot keep open at once")]
    TooManyLibraries(usize),
    #[error("cannot write the initramfs")]
    Write(#[source] io::Error),
}

impl GuestPath {
    /// Parses an absolute path in the guest. Removes `.` and doubled or trailing slashes. Fails
    /// with `Path` for an empty or relative path, `/`, a path with `..` or a NUL byte, or one of
    /// more than 4095 bytes.
    pub(crate) fn parse(path: &[u8]) -> Result<Self, PackError> {
        let refuse = || PackError::Path(String::from_utf8_lossy(path).into_owned());
        if path.first() != Some(&b'/') || path.len() > PATH_MAX || path.contains(&0) {
            return Err(refuse());
        }
        let mut clean = Vec::with_capacity(path.len());
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(refuse()),
                name => {
                    clean.push(b'/');
                    clean.extend_from_slice(name);
                }
            }
        }
        if clean.is_empty() {
            Err(refuse())
        } else {
            Ok(Self(clean))
        }
    }

    /// Returns the path of the entry `name` below this path. Fails with `Path` as [`Self::parse`]
    /// does, for example if the result is too long.
    pub(crate) fn join(&self, name: &[u8]) -> Result<Self, PackError> {
        Self::parse(&[self.0.as_slice(), b"/", name].concat())
    }

    /// Returns the bytes of the path, with its leading slash.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the length of the name in an archive, which has no leading slash.
    fn name_bytes(&self) -> u64 {
        count(&self.0) - 1
    }

    /// Returns the directories above this path without the root, the nearest last.
    fn parents(&self) -> impl Iterator<Item = Self> + '_ {
        let slashes = self
            .0
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(_, byte)| **byte == b'/');
        slashes.map(|(end, _)| Self(self.0[..end].to_vec()))
    }
}

impl std::fmt::Display for GuestPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        one_line(OsStr::from_bytes(&self.0)).fmt(f)
    }
}

/// The tree of directories, files and links from which the archive is written. A later file or link
/// replaces an earlier one at the same path.
#[derive(Debug, Default)]
pub(crate) struct Initramfs {
    // Sorted, so that a directory comes before its entries.
    nodes: BTreeMap<GuestPath, Node>,
    /// Directories that were created only as parents of other entries.
    implied: BTreeSet<GuestPath>,
    /// The user and group of entries that do not belong to root.
    owners: BTreeMap<GuestPath, [u32; 2]>,
}

impl Initramfs {
    /// Adds `node` at `path`, and the missing directories above it with mode 755. Replaces a node
    /// of the same kind, where files and links count as one kind. Fails with `Conflict` if `path`
    /// or a path above it would be both a directory and a file or link. Directories added above it
    /// before stay.
    pub(crate) fn add(&mut self, path: GuestPath, node: Node) -> Result<(), PackError> {
        for parent in path.parents() {
            match self.nodes.get(&parent) {
                Some(Node::Directory { .. }) => {}
                Some(_) => return Err(PackError::Conflict(parent)),
                None => {
                    self.implied.insert(parent.clone());
                    self.nodes.insert(parent, Node::Directory { mode: 0o755 });
                }
            }
        }
        let is_directory = matches!(node, Node::Directory { .. });
        if let Some(old) = self.nodes.get(&path)
            && matches!(old, Node::Directory { .. }) != is_directory
        {
            return Err(PackError::Conflict(path));
        }
        self.implied.remove(&path);
        self.nodes.insert(path, node);
        Ok(())
    }

    /// Returns whether the directory at `path` was created only as a parent of other entries.
    /// Returns `false` if there is no entry at `path`.
    pub(crate) fn is_implied(&self, path: &GuestPath) -> bool {
        self.implied.contains(path)
    }

    /// Adds `node` at `path` as [`Self::add`] does, unless there already is an entry of any kind at
    /// `path`. Fails with `Conflict` if a path above `path` is a file or link.
    pub(crate) fn add_missing(&mut self, path: GuestPath, node: Node) -> Result<(), PackError> {
        if self.nodes.contains_key(&path) {
            Ok(())
        } else {
            self.add(path, node)
        }
    }

    /// Sets the user id and group id of the entry at `path`, also of one that is added there later.
    /// All other entries belong to root.
    pub(crate) fn give(&mut self, path: GuestPath, owner: [u32; 2]) {
        self.owners.insert(path, owner);
    }

    /// Sets the user id and group id of all entries that the tree has now. Leaves out directories
    /// that exist only as parents of other entries, and `/etc/passwd` and `/etc/group`.
    pub(crate) fn give_all(&mut self, owner: [u32; 2]) {
        let asked = |path: &&GuestPath| {
            !self.implied.contains(*path)
                && !matches!(path.as_bytes(), b"/etc/passwd" | b"/etc/group")
        };
        let all = self.nodes.keys().filter(asked).cloned();
        self.owners.extend(all.map(|path| (path, owner)));
    }

    /// Sets the user id and group id of those files of the host whose mode lets no other users read
    /// them. Only files that the tree has now count.
    pub(crate) fn give_private_files(&mut self, owner: [u32; 2]) {
        let of_host = |node: &Node| {
            matches!(
                node,
                Node::File {
                    source: Source::Host(_),
                    mode,
                } if mode & 0o004 == 0
            )
        };
        let files = self.nodes.iter().filter(|(_, node)| of_host(node));
        self.owners
            .extend(files.map(|(path, _)| (path.clone(), owner)));
    }

    /// Returns the user id and group id that were set for `path`. Returns `None` if none were set.
    #[cfg(test)]
    pub(crate) fn owner(&self, path: &GuestPath) -> Option<[u32; 2]> {
        self.owners.get(path).copied()
    }

    /// Returns the entry at `path`. Returns `None` if the tree has no entry there.
    pub(crate) fn get(&self, path: &GuestPath) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Removes the files and links for which `unneeded` returns `true`. Removes a directory if
    /// `unneeded` returns `true` for it and no entry in it remains. A directory with remaining
    /// entries stays, and `unneeded` is not called for it.
    pub(crate) fn leave_out(&mut self, mut unneeded: impl FnMut(&GuestPath, &Node) -> bool) {
        let nodes = std::mem::take(&mut self.nodes);
        let mut held = BTreeSet::new();
        // In reverse order, the entries of a directory come before the directory.
        for (path, node) in nodes.into_iter().rev() {
            if held.contains(&path) || !unneeded(&path, &node) {
                held.extend(path.parents());
                self.nodes.insert(path, node);
            }
        }
    }

    /// Returns the files of the host whose bytes the archive takes, in the order of their paths in
    /// the guest. Files whose bytes are in memory are not among them.
    pub(crate) fn host_files(&self) -> Vec<HostFile> {
        let files = self.nodes.values().filter_map(|node| match node {
            Node::File {
                source: Source::Host(file),
                ..
            } => Some(file.clone()),
            _ => None,
        });
        files.collect()
    }

    /// Returns the length in bytes that the archive would have with the current sizes of its files.
    /// Opens each file of the host and reads no data.
    ///
    /// # Errors
    /// `OverBudget` if the length is more than `budget` allows; it names the largest file or link.
    /// `TooLarge` for a file of the host of 4 GiB or more; `Read` for one that cannot be opened.
    pub(crate) fn measure(&self, alignment: Alignment, budget: Budget) -> Result<u64, PackError> {
        let mut end = 0;
        let mut largest = (0, PathBuf::new());
        for (path, node) in &self.nodes {
            let size = node.size()?;
            end = alignment.end_of_member(end, path.name_bytes(), size, node.is_file());
            if size >= largest.0 {
                largest = (size, node.shown_path(path));
            }
        }
        let total = alignment.end_of_archive(end);
        let (size, file) = largest;
        check(total, budget, size, || file)?;
        Ok(total)
    }

    /// Writes the archive to `output`, flushes it, and returns the length in bytes. Adds up all
    /// sizes before the first byte is written. Checks the size of each file again before copying
    /// it.
    ///
    /// # Errors
    /// As [`Self::measure`], also after a part was written; `Changed` if a file shrinks while it is
    /// copied; `Read` if a file cannot be read; `Write` if `output` cannot be written.
    pub(crate) fn write(
        &self,
        output: impl Write,
        alignment: Alignment,
        budget: Budget,
    ) -> Result<u64, PackError> {
        self.measure(alignment, budget)?;
        let mut archive = Archive {
            output: BufWriter::new(output),
            alignment,
            budget,
            position: 0,
            inode: 0,
            owner: [0; 2],
        };
        for (path, node) in &self.nodes {
            // Paths in a newc archive are relative to the root.
            let name = &path.as_bytes()[1..];
            archive.owner = self.owners.get(path).copied().unwrap_or_default();
            match node {
                Node::Directory { mode } => {
                    archive.member(name, DIRECTORY | (mode & PERMISSIONS), 0, false)?;
                }
                Node::Symlink { target } => {
                    archive.member(name, SYMLINK | 0o777, count(target), false)?;
                    archive.write(target)?;
                    archive.align(WORD)?;
                }
                Node::File { mode, source } => {
                    archive.file(name, REGULAR | (mode & PERMISSIONS), source)?;
                }
            }
        }
        archive.owner = [0; 2];
        archive.member(TRAILER, 0, 0, false)?;
        archive.align(PAGE)?;
        archive.output.flush().map_err(PackError::Write)?;
        Ok(archive.position)
    }
}

impl Node {
    /// Returns the number of the entry's data bytes in an archive, from the current size of its
    /// file. Fails with `TooLarge` or `Read`.
    fn size(&self) -> Result<u64, PackError> {
        match self {
            Self::Directory { .. } => Ok(0),
            Self::Symlink { target } => Ok(count(target)),
            Self::File { source, .. } => match source {
                Source::Bytes(bytes) => Ok(count(bytes)),
                Source::Host(file) => Ok(open(file)?.1),
            },
        }
    }

    fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Returns the path of the file on the host, or `path` if it does not come from the host.
    fn shown_path(&self, path: &GuestPath) -> PathBuf {
        match self {
            Self::File {
                source: Source::Host(file),
                ..
            } => file.path.clone(),
            _ => PathBuf::from(OsStr::from_bytes(path.as_bytes())),
        }
    }
}

impl Alignment {
    /// Returns the alignment of the start and end of file data in bytes.
    fn of_files(self) -> u64 {
        match self {
            Self::Page => PAGE,
            Self::Word => WORD,
        }
    }

    /// Returns the end of a member that begins at `position`. `name` is the length of its name and
    /// `size` that of its data, in bytes.
    fn end_of_member(self, position: u64, name: u64, size: u64, is_file: bool) -> u64 {
        let alignment = if is_file && size != 0 {
            self.of_files()
        } else {
            WORD
        };
        let data = (position + HEADER + name + 1).next_multiple_of(alignment);
        (data + size).next_multiple_of(alignment)
    }

    /// Returns the length of an archive whose last member ends at `position`.
    fn end_of_archive(self, position: u64) -> u64 {
        self.end_of_member(position, count(TRAILER), 0, false)
            .next_multiple_of(PAGE)
    }
}

/// Fails with `OverBudget` if `total` bytes are more than `budget` allows. The error names the file
/// that `file` returns, with its `size`.
fn check(
    total: u64,
    budget: Budget,
    size: u64,
    file: impl FnOnce() -> PathBuf,
) -> Result<(), PackError> {
    if total <= budget.bytes {
        return Ok(());
    }
    Err(PackError::OverBudget {
        total,
        file: file(),
        size,
        budget,
    })
}

/// Opens a file of the host and returns it with its current size in bytes.
///
/// # Errors
/// `TooLarge` if an archive cannot hold it; `Read` if it cannot be opened.
fn open(file: &HostFile) -> Result<(Arc<File>, u64), PackError> {
    let failed = |source| PackError::Read {
        path: file.path.clone(),
        source,
    };
    let opened = file.file().map_err(|errno| failed(errno.into()))?;
    let size = opened.metadata().map_err(failed)?.len();
    if size > u64::from(u32::MAX) {
        return Err(PackError::TooLarge(file.path.clone()));
    }
    Ok((opened, size))
}

fn count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

struct Archive<W: Write> {
    output: BufWriter<W>,
    alignment: Alignment,
    budget: Budget,
    position: u64,
    inode: u64,
    /// The user and group of the next member.
    owner: [u32; 2],
}

impl<W: Write> Archive<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        self.output.write_all(bytes).map_err(PackError::Write)?;
        self.position += count(bytes);
        Ok(())
    }

    fn align(&mut self, to: u64) -> Result<(), PackError> {
        self.zeros(self.position.next_multiple_of(to) - self.position)
    }

    fn zeros(&mut self, mut bytes: u64) -> Result<(), PackError> {
        static ZEROS: [u8; 4096] = [0; 4096];
        while bytes > 0 {
            let now = bytes.min(PAGE);
            self.write(&ZEROS[..usize::try_from(now).unwrap_or(ZEROS.len())])?;
            bytes -= now;
        }
        Ok(())
    }

    /// Writes the header and the name of a member. The caller then writes the data. With `aligned`,
    /// the data is aligned as file data, else to 4 bytes. Fails with `Write`.
    fn member(
        &mut self,
        name: &[u8],
        mode: u32,
        size: u64,
        aligned: bool,
    ) -> Result<(), PackError> {
        let least = HEADER + count(name) + 1;
        let end = self.position + least;
        let alignment = if aligned {
            self.alignment.of_files()
        } else {
            WORD
        };
        let padding = end.next_multiple_of(alignment) - end;
        // newc's own padding of the name to 4 bytes is not counted in the name's length, but this
        // larger padding is.
        let name_bytes = count(name) + 1 + if alignment == WORD { 0 } else { padding };
        self.inode += 1;
        let (links, mtime) = (1, 0);
        let fields = [
            self.inode,
            u64::from(mode),
            self.owner[0].into(),
            self.owner[1].into(),
            links,
            mtime,
            size,
            0,
            0,
            0,
            0,
            name_bytes,
            0,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.write(header.as_bytes())?;
        self.write(name)?;
        self.zeros(1 + padding)
    }

    fn file(&mut self, name: &[u8], mode: u32, source: &Source) -> Result<(), PackError> {
        match source {
            Source::Bytes(bytes) => {
                self.member(name, mode, count(bytes), !bytes.is_empty())?;
                self.write(bytes)?;
                if bytes.is_empty() {
                    Ok(())
                } else {
                    self.align(self.alignment.of_files())
                }
            }
            Source::Host(file) => self.host_file(name, mode, file),
        }
    }

    fn host_file(&mut self, name: &[u8], mode: u32, file: &HostFile) -> Result<(), PackError> {
        let path = file.path.as_path();
        let failed = |source| PackError::Read {
            path: path.to_owned(),
            source,
        };
        // The file may have grown since all sizes were added up.
        let (file, size) = open(file)?;
        let end = self
            .alignment
            .end_of_member(self.position, count(name), size, true);
        let total = self.alignment.end_of_archive(end);
        check(total, self.budget, size, || path.to_owned())?;
        self.member(name, mode, size, size != 0)?;
        let mut chunk = vec![0; 1 << 16];
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
            let read = match file.read_at(&mut chunk[..most], size - left) {
                Ok(0) => return Err(PackError::Changed(path.to_owned())),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            self.write(&chunk[..read])?;
            left -= count(&chunk[..read]);
        }
        if size == 0 {
            Ok(())
        } else {
            self.align(self.alignment.of_files())
        }
    }
}

/// Returns the bytes of all `items` in one list, with a NUL after each item. The guest kernel reads
/// lists in this form.
pub(crate) fn nul_terminated<'a>(items: impl IntoIterator<Item = &'a OsStr>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in items {
        bytes.extend_from_slice(item.as_bytes());
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Member {
        name: String,
        mode: u32,
        offset: usize,
        data: Vec<u8>,
    }

    #[test]
    fn directories_go_with_what_they_held() {
        let mut tree = Initramfs::default();
        let file = || Node::File {
            mode: 0o644,
            source: Source::Bytes(Vec::new()),
        };
        for path in ["/a/b/c", "/a/b/d", "/e/f"] {
            let path = GuestPath::parse(path.as_bytes()).unwrap();
            tree.add(path, file()).unwrap();
        }
        let empty = GuestPath::parse(b"/empty").unwrap();
        tree.add(empty, Node::Directory { mode: 0o755 }).unwrap();
        let kept = |tree: &Initramfs| {
            let paths = tree.nodes.keys();
            paths.map(ToString::to_string).collect::<Vec<_>>()
        };
        tree.leave_out(|path, _| path.as_bytes() != b"/empty" && path.as_bytes() != b"/a/b/d");
        assert_eq!(kept(&tree), ["/a", "/a/b", "/a/b/d", "/empty"]);
        tree.leave_out(|_, node| matches!(node, Node::File { .. }));
        assert_eq!(kept(&tree), ["/a", "/a/b", "/empty"]);
        tree.leave_out(|path, _| path.as_bytes() != b"/a");
        assert_eq!(kept(&tree), ["/a"]);
    }

    /// A reader that knows the three rules, as the guest kernel does.
    fn read(archive: &[u8]) -> Vec<Member> {
        let field = |at: usize, index: usize| {
            let start = at + 6 + index * 8;
            let text = std::str::from_utf8(&archive[start..start + 8]).unwrap();
            usize::from_str_radix(text, 16).unwrap()
        };
        let mut members = Vec::new();
        let mut at = 0;
        loop {
            while archive[at] == 0 {
                at += 4;
            }
            assert_eq!(&archive[at..at + 6], b"070701", "header at {at}");
            let (mode, size, name_bytes) = (field(at, 1), field(at, 6), field(at, 11));
            let name = &archive[at + 110..at + 110 + name_bytes];
            let name = name.split(|b| *b == 0).next().unwrap();
            let data = (at + 110 + name_bytes).next_multiple_of(4);
            let name = String::from_utf8(name.to_vec()).unwrap();
            if name == "TRAILER!!!" {
                return members;
            }
            let mode = u32::try_from(mode).unwrap();
            let bytes = archive[data..data + size].to_vec();
            members.push(Member {
                name,
                mode,
                offset: data,
                data: bytes,
            });
            at = (data + size).next_multiple_of(4);
        }
    }

    fn bytes_at_most(bytes: u64) -> Budget {
        let memory = Size(bytes);
        Budget { bytes, memory }
    }

    fn path(text: &str) -> GuestPath {
        GuestPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn archive_reads_back_with_aligned_files() {
        let mut tree = Initramfs::default();
        let file = |bytes: &[u8]| Node::File {
            mode: 0o640,
            source: Source::Bytes(bytes.into()),
        };
        tree.add(path("/bin/a"), file(&[7; 5000])).unwrap();
        tree.add(path("/bin/b"), file(&[9; 4096])).unwrap();
        tree.add(path("/bin/empty"), file(&[])).unwrap();
        tree.add(
            path("/bin/l"),
            Node::Symlink {
                target: b"busybox".to_vec(),
            },
        )
        .unwrap();
        tree.add(path("/deep/er/still/x"), file(b"x")).unwrap();
        let mut bytes = Vec::new();
        let length = tree
            .write(&mut bytes, Alignment::Page, bytes_at_most(u64::MAX))
            .unwrap();
        assert_eq!(
            tree.measure(Alignment::Page, bytes_at_most(length))
                .unwrap(),
            length
        );
        assert_eq!(length, bytes.len() as u64);
        assert_eq!(bytes.len() % 4096, 0);
        let members = read(&bytes);
        let names: Vec<_> = members.iter().map(|m| m.name.as_str()).collect();
        let expected = [
            "bin",
            "bin/a",
            "bin/b",
            "bin/empty",
            "bin/l",
            "deep",
            "deep/er",
            "deep/er/still",
            "deep/er/still/x",
        ];
        assert_eq!(names, expected);
        for member in members
            .iter()
            .filter(|m| m.mode & REGULAR == REGULAR && !m.data.is_empty())
        {
            if member.mode & SYMLINK == SYMLINK {
                continue;
            }
            assert_eq!(member.offset % 4096, 0, "{}", member.name);
            let end = member.offset + member.data.len();
            assert!(
                bytes[end..end.next_multiple_of(4096)]
                    .iter()
                    .all(|b| *b == 0)
            );
            assert_eq!(member.mode, REGULAR | 0o640);
        }
        assert_eq!(members[1].data, [7; 5000]);
        assert_eq!(members[4].data, b"busybox");
    }

    #[test]
    fn plain_archive_reads_back() {
        let mut tree = Initramfs::default();
        for (name, len) in [("/a", 1), ("/bb", 5000), ("/ccc/d", 0), ("/e", 4096)] {
            let source = Source::Bytes(vec![7; len]);
            tree.add(
                path(name),
                Node::File {
                    mode: 0o600,
                    source,
                },
            )
            .unwrap();
        }
        let mut bytes = Vec::new();
        tree.write(&mut bytes, Alignment::Word, bytes_at_most(u64::MAX))
            .unwrap();
        let length = count(&bytes);
        assert_eq!(
            tree.measure(Alignment::Word, bytes_at_most(length))
                .unwrap(),
            length
        );
        let members = read(&bytes);
        let sizes: Vec<_> = members.iter().map(|m| m.data.len()).collect();
        assert_eq!(sizes, [1, 5000, 0, 0, 4096]);
        assert!(members.iter().all(|m| m.data.iter().all(|b| *b == 7)));
        assert_eq!(bytes.len(), 3 * 4096);
    }

    /// Creates a sparse file of the host with this many bytes, which needs no disk space.
    fn sparse(name: &str, len: u64) -> (PathBuf, Node) {
        let name = format!("ebb-initramfs-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().set_len(len).unwrap();
        let source = Source::Host(HostFile::open(&path).unwrap());
        (
            path,
            Node::File {
                mode: 0o644,
                source,
            },
        )
    }

    #[test]
    fn sizes_are_added_up_before_a_byte_is_copied() {
        let (host, node) = sparse("sum", 3 << 30);
        let mut tree = Initramfs::default();
        for name in ["/a", "/b", "/c"] {
            tree.add(path(name), node.clone()).unwrap();
        }
        let mut bytes = Vec::new();
        let error = tree.write(
            &mut bytes,
            Alignment::Page,
            Budget::of_guest(Size::mebibytes(256), 64 << 20),
        );
        let error = error.unwrap_err();
        std::fs::remove_file(&host).unwrap();
        assert!(bytes.is_empty());
        let PackError::OverBudget { total, size, .. } = error else {
            panic!("{error}");
        };
        assert!(total > 9 << 30 && size == 3 << 30, "{total} {size}");
        let text = error.to_string();
        let shown = host.display().to_string();
        assert!(text.contains(&shown), "{text}");
        for word in ["3072.0 MiB", "with 256M", "64.0 MiB", "-m"] {
            assert!(text.contains(word), "{text}");
        }
    }

    /// A file that grows when the first bytes are written.
    struct Growing<'a>(&'a PathBuf, u64);

    impl Write for Growing<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let file = File::options().write(true).open(self.0)?;
            file.set_len(3 << 30)?;
            self.1 += count(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_that_grows_meanwhile_stays_within_the_budget() {
        let (host, node) = sparse("grow", 1);
        let mut tree = Initramfs::default();
        let source = Source::Bytes(vec![7; 1 << 20]);
        let mode = 0o644;
        tree.add(path("/a"), Node::File { mode, source }).unwrap();
        tree.add(path("/b"), node).unwrap();
        let mut output = Growing(&host, 0);
        let error = tree.write(&mut output, Alignment::Page, bytes_at_most(2 << 20));
        let written = output.1;
        std::fs::remove_file(&host).unwrap();
        assert!(matches!(error, Err(PackError::OverBudget { .. })));
        assert!(written <= 2 << 20, "{written}");
    }

    #[test]
    fn paths_are_cleaned_or_refused() {
        assert_eq!(path("//a/./b/").as_bytes(), b"/a/b");
        for bad in ["", "a", "/", "/a/../b", "/a\0b"] {
            assert!(GuestPath::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(GuestPath::parse(&[b'/'; 5000]).is_err());
    }

    #[test]
    fn file_and_directory_conflict() {
        let mut tree = Initramfs::default();
        let file = || Node::File {
            mode: 0o644,
            source: Source::Bytes(vec![]),
        };
        tree.add(path("/a"), file()).unwrap();
        assert!(matches!(
            tree.add(path("/a/b"), file()),
            Err(PackError::Conflict(_))
        ));
        tree.add(path("/d/e"), file()).unwrap();
        assert!(matches!(
            tree.add(path("/d"), file()),
            Err(PackError::Conflict(_))
        ));
    }
}
