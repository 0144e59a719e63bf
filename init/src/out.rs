//! Sends files to the host after the program has ended ([`ebb_wire::out`]).
//!
//! Ebb's kernel runs this program only to send the files, with the port as stdout. In a guest with
//! stock Linux, the first process sends them itself.

use crate::failure::Failure;
use crate::ports;
use ebb_wire::boot::OUT_COMMAND;
use ebb_wire::out::{END, NOTES_MAX, Note, PATH_MAX, TEXT_MAX, cost};
use ebb_wire::port::OUT_NAME;
use rustix::fs::OFlags;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

const PORT_BYTES: usize = 64 << 10;
/// Files of `/proc` and `/sys` report a size of 0. This is the largest number of bytes read from
/// them.
const UNSIZED_MAX: u64 = 16 << 20;
/// The kernel's file systems (statfs(2)). Their folders may have no end, and reading their files
/// may have effects.
const PROC: u64 = 0x9fa0;
const SYSFS: u64 = 0x6265_6572;

/// The files to send, and the port for them. The port is opened early, since a port can be opened
/// only once and the program must not have it.
#[derive(Debug)]
pub(crate) struct Wanted {
    list: List,
    port: File,
}

#[derive(Debug)]
struct List {
    most: u64,
    paths: Vec<PathBuf>,
}

impl Wanted {
    /// Reads the list in `words`, which ebb has packed, and opens the port. Fails if the list is
    /// malformed or the port cannot be opened.
    pub(crate) fn new(words: &[OsString]) -> Result<Self, Failure> {
        let list = words.get(1..).and_then(List::parse);
        Ok(Self {
            list: list.ok_or(Failure::List(ebb_wire::boot::OUT))?,
            port: ports::open(OUT_NAME)?,
        })
    }

    /// Waits until all other processes have ended, then sends the files. Fails if the port fails.
    pub(crate) fn send(self) -> Result<(), Failure> {
        // All other processes were killed. `wait` fails when no child is left.
        while rustix::process::wait(rustix::process::WaitOptions::empty()).is_ok() {}
        self.list
            .send(self.port)
            .map_err(|error| Failure::new("send files to the host", error))
    }
}

/// Sends files to stdout if `arguments` are [`OUT_COMMAND`], the size limit in bytes and the paths
/// of the files. Ebb's kernel starts this program with such arguments after its program has ended.
/// Returns the exit status: 0, or 1 if stdout cannot be written. Returns `None`, and sends nothing,
/// if `arguments` have another form.
pub(crate) fn as_program(arguments: &[OsString]) -> Option<i32> {
    let list = List::parse(arguments)?;
    Some(match list.send(io::stdout()) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("ebb-init: cannot send files to the host: {error}");
            1
        }
    })
}

impl List {
    /// Reads the size limit and the paths. Returns `None` if the words have another form.
    fn parse(words: &[OsString]) -> Option<Self> {
        let [word, most, paths @ ..] = words else {
            return None;
        };
        Some(Self {
            most: (word == OUT_COMMAND)
                .then_some(most)?
                .to_str()?
                .parse()
                .ok()?,
            paths: paths.iter().map(PathBuf::from).collect(),
        })
    }

    /// Sends all files to `to`, and the notes about missing ones. Fails if `to` fails.
    fn send(&self, to: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(BufWriter::with_capacity(PORT_BYTES, to));
        archive.sparse(false);
        let mut sender = Sender {
            archive,
            left: self.most,
            notes: Notes::default(),
        };
        for (number, path) in self.paths.iter().enumerate() {
            if !sender.tree(number, path)? {
                break;
            }
        }
        sender.end()
    }
}

/// The lines of the last entry, about everything that was not sent.
#[derive(Debug, Default)]
struct Notes {
    text: String,
    unread: usize,
    left_out: usize,
}

impl Notes {
    /// Adds a line. Lines beyond [`NOTES_MAX`] of a kind are only counted.
    fn add(&mut self, note: Note<'_>) {
        let count = match note {
            Note::Unread(..) => &mut self.unread,
            Note::LeftOut(..) => &mut self.left_out,
            _ => &mut 0,
        };
        *count += 1;
        if *count <= NOTES_MAX {
            self.text.push_str(&format!("{note}\n"));
        }
    }

    /// Returns all lines, with the numbers of those that were only counted.
    fn finish(mut self) -> String {
        let more = [self.unread, self.left_out].map(|count| count.saturating_sub(NOTES_MAX) as u64);
        if more != [0, 0] {
            self.text
                .push_str(&format!("{}\n", Note::More(more[0], more[1])));
        }
        self.text
    }
}

/// The archive while it is being written.
struct Sender<W: Write> {
    archive: Builder<W>,
    left: u64,
    notes: Notes,
}

/// A file or folder that must still be sent.
struct Pending {
    /// Its path in the guest.
    path: PathBuf,
    /// Its path in the archive.
    name: PathBuf,
}

impl<W: Write> Sender<W> {
    /// Sends the file or folder at `path`, which was requested as path `number`. Returns `false` if
    /// the size limit was reached. Fails if the port fails.
    fn tree(&mut self, number: usize, path: &Path) -> io::Result<bool> {
        let root = match fs::metadata(path) {
            Ok(root) if root.is_file() || root.is_dir() => root,
            Ok(root) => {
                let kind = kind_of(&root);
                self.notes
                    .add(Note::Missing(number, &format!("it is {kind}")));
                return Ok(true);
            }
            Err(error) => {
                self.notes.add(Note::Missing(number, &text_of(&error)));
                return Ok(true);
            }
        };
        let mut pending = vec![Pending {
            path: path.to_owned(),
            name: number.to_string().into(),
        }];
        let mut root = Some(root);
        while let Some(next) = pending.pop() {
            // A requested path may be a symbolic link: its target is sent. Other links are sent as
            // links.
            let metadata = match root
                .take()
                .map_or_else(|| fs::symlink_metadata(&next.path), Ok)
            {
                Ok(metadata) => metadata,
                Err(error) => {
                    self.unread(number, &next.path, &error);
                    continue;
                }
            };
            if next.name.as_os_str().len() > PATH_MAX {
                self.unread(number, &next.path, &rustix::io::Errno::NAMETOOLONG.into());
                continue;
            }
            let sent = if metadata.is_dir() {
                self.folder(number, &next, &metadata, &mut pending)?
            } else if metadata.is_file() {
                self.file(number, &next, &metadata)?
            } else if metadata.is_symlink() {
                self.link(number, &next)?
            } else {
                self.left_out(number, &next.path, kind_of(&metadata));
                true
            };
            if !sent {
                self.notes.add(Note::Over(number));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends an entry for the folder `folder`, part of the requested path `number`, and adds the
    /// folder's entries to `pending`. Notes instead that the folder is left out if it belongs to
    /// procfs or sysfs. Also notes an error of reading the folder. Returns `false` if the size
    /// limit was reached. Fails only if the port fails.
    fn folder(
        &mut self,
        number: usize,
        folder: &Pending,
        metadata: &Metadata,
        pending: &mut Vec<Pending>,
    ) -> io::Result<bool> {
        let kind = rustix::fs::statfs(&folder.path).map(|fs| fs.f_type.cast_unsigned());
        if matches!(kind, Ok(PROC | SYSFS)) {
            self.left_out(number, &folder.path, "a folder of the kernel's own");
            return Ok(true);
        }
        if !self.pay(0) {
            return Ok(false);
        }
        let mut header = header(EntryType::Directory, metadata, 0);
        self.archive
            .append_data(&mut header, &folder.name, io::empty())?;
        let names = fs::read_dir(&folder.path)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let mut names: Vec<OsString> = match names {
            Ok(names) => names,
            Err(error) => {
                self.unread(number, &folder.path, &error);
                return Ok(true);
            }
        };
        // `pending` is a stack, so the names are in reverse order.
        names.sort_by(|one, other| other.cmp(one));
        pending.extend(names.iter().map(|name| Pending {
            path: folder.path.join(name),
            name: folder.name.join(name),
        }));
        Ok(true)
    }

    /// Sends the regular file `file`, part of the requested path `number`. An error of opening or
    /// reading the file is noted for the host, and the call still returns `true`. Returns `false`
    /// if the size limit was reached. Fails only if the port fails.
    fn file(&mut self, number: usize, file: &Pending, metadata: &Metadata) -> io::Result<bool> {
        // Without blocking, since some files of the kernel never have data.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&file.path);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.unread(number, &file.path, &error);
                return Ok(true);
            }
        };
        let mut unsized_bytes = Vec::new();
        if metadata.len() == 0 {
            let read = (&opened).take(UNSIZED_MAX).read_to_end(&mut unsized_bytes);
            if let Err(error) = read {
                self.unread(number, &file.path, &error);
            }
        }
        let size = metadata.len().max(unsized_bytes.len() as u64);
        if !self.pay(size) {
            return Ok(false);
        }
        let mut content = Content {
            source: unsized_bytes.as_slice().chain(opened),
            left: size,
            error: None,
        };
        let mut header = header(EntryType::Regular, metadata, size);
        self.archive
            .append_data(&mut header, &file.name, &mut content)?;
        if let Some(error) = content.error {
            self.unread(number, &file.path, &error);
        }
        Ok(true)
    }

    /// Sends the symbolic link `link`, part of the requested path `number`. An error of reading the
    /// link is noted for the host, and the call still returns `true`. Returns `false` if the size
    /// limit was reached. Fails if the port fails.
    fn link(&mut self, number: usize, link: &Pending) -> io::Result<bool> {
        let target = match fs::read_link(&link.path) {
            Ok(target) => target,
            Err(error) => {
                self.unread(number, &link.path, &error);
                return Ok(true);
            }
        };
        if !self.pay(0) {
            return Ok(false);
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        self.archive.append_link(&mut header, &link.name, target)?;
        Ok(true)
    }

    /// Subtracts the cost of an entry with `bytes` bytes of content from the size limit. Returns
    /// `false` if too little is left, and no further entry fits then.
    fn pay(&mut self, bytes: u64) -> bool {
        let left = self.left.checked_sub(cost(bytes));
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    fn unread(&mut self, number: usize, path: &Path, error: &io::Error) {
        let what = format!("{}: {}", shown(path), text_of(error));
        self.notes.add(Note::Unread(number, &what));
    }

    fn left_out(&mut self, number: usize, path: &Path, kind: &str) {
        let what = format!("{} ({kind})", shown(path));
        self.notes.add(Note::LeftOut(number, &what));
    }

    /// Writes the last entry, which contains the notes, and flushes the port. Fails if the port
    /// fails.
    fn end(self) -> io::Result<()> {
        let (mut archive, notes) = (self.archive, self.notes.finish());
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(notes.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, END, notes.as_bytes())?;
        archive.into_inner()?.flush()
    }
}

fn header(kind: EntryType, metadata: &Metadata, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(metadata.permissions().mode() & 0o777);
    header
}

/// The contents of a file, filled with zeros or cut off to the length in its header. The file may
/// have changed since.
struct Content<R> {
    source: R,
    left: u64,
    error: Option<io::Error>,
}

impl<R: Read> Read for Content<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(into.len());
        let into = &mut into[..most];
        let mut count = 0;
        if self.error.is_none() && most > 0 {
            match self.source.read(into) {
                Ok(0) => self.error = Some(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => count = read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => self.error = Some(error),
            }
        }
        if self.error.is_some() {
            into.fill(0);
            count = most;
        }
        self.left -= count as u64;
        Ok(count)
    }
}

fn kind_of(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_socket() {
        "a socket"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a device"
    }
}

/// Returns the end of a path, escaped to one line and limited in length.
fn shown(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let begin = bytes.len().saturating_sub(TEXT_MAX / 5);
    let text = OsStr::from_bytes(&bytes[begin..]).to_string_lossy();
    let dots = if begin > 0 { "..." } else { "" };
    format!("{dots}{}", text.escape_debug())
}

fn text_of(error: &io::Error) -> String {
    let text = error.to_string().replace('\n', " ");
    let number = text.find(" (os error");
    text[..number.unwrap_or(text.len())].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;

    /// Sends the paths and returns the archive's entries with their contents or link targets.
    fn sent(most: u64, paths: &[&Path]) -> BTreeMap<String, Vec<u8>> {
        let list = List {
            most,
            paths: paths.iter().map(|path| path.to_path_buf()).collect(),
        };
        let mut bytes = Vec::new();
        list.send(&mut bytes).expect("memory takes all");
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().expect("a new archive");
        entries
            .map(|entry| {
                let mut entry = entry.expect("an entry");
                let mut content = Vec::new();
                entry.read_to_end(&mut content).expect("its bytes");
                if let Some(target) = entry.link_name_bytes() {
                    content = target.into_owned();
                }
                (
                    String::from_utf8_lossy(&entry.path_bytes()).into_owned(),
                    content,
                )
            })
            .collect()
    }

    #[test]
    fn a_tree_is_sent_with_what_it_holds() {
        let folder = Scratch::new("tree");
        let long = "n".repeat(255);
        fs::create_dir_all(folder.0.join("a/b")).expect("folders");
        fs::write(folder.0.join("a/b").join(&long), vec![7; 5000]).expect("a file");
        symlink("b/none", folder.0.join("a/link")).expect("a link");
        let socket = std::os::unix::net::UnixListener::bind(folder.0.join("a/s"));
        let all = sent(1 << 20, &[&folder.0.join("a"), &folder.0.join("none")]);
        assert_eq!(all["0/link"], b"b/none");
        assert_eq!(all[&format!("0/b/{long}")], vec![7; 5000]);
        let notes = String::from_utf8_lossy(&all[END]).into_owned();
        let lines: Vec<_> = notes.lines().map(Note::parse).collect();
        assert!(
            matches!(lines[0], Some(Note::LeftOut(0, what)) if what.ends_with("a/s (a socket)"))
        );
        assert!(matches!(lines[1], Some(Note::Missing(1, why)) if why.contains("No such file")));
        assert_eq!((all.len(), lines.len()), (5, 2), "{notes}");
        drop(socket);
    }

    #[test]
    fn no_more_is_sent_than_is_taken() {
        let folder = Scratch::new("limit");
        for name in ["a", "b", "c"] {
            fs::write(folder.0.join(name), vec![1; 4096]).expect("a file");
        }
        let all = sent(4 * 4096, &[&folder.0]);
        assert_eq!(all[END], b"");
        let all = sent(4 * 4096 - 1, &[&folder.0, &folder.0]);
        assert_eq!(all[END], b"over 0\n");
        assert!(all.contains_key("0/b") && !all.contains_key("0/c") && !all.contains_key("1"));
    }

    #[test]
    fn what_has_no_size_has_bytes_and_what_has_no_end_is_left() {
        let all = sent(
            1 << 20,
            &[Path::new("/proc/self/stat"), Path::new("/proc/self")],
        );
        assert!(!all["0"].is_empty());
        let notes = String::from_utf8_lossy(&all[END]).into_owned();
        assert!(
            notes.starts_with("left-out 1 /proc/self (a folder of the kernel's own)"),
            "{notes}"
        );
        assert_eq!(
            sent(1 << 20, &[Path::new("/dev/null")])[END],
            b"missing 0 it is a device\n"
        );
    }

    #[test]
    fn a_file_that_shrinks_keeps_its_place() {
        let mut content = Content {
            source: &b"abc"[..],
            left: 5,
            error: None,
        };
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).expect("no error");
        assert_eq!(bytes, b"abc\0\0");
        assert!(content.error.is_some());
    }

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ebb-init-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
