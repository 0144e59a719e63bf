//! Hostile archives must change nothing outside of the destination's directory.

use super::{Copied, Outs};
use crate::text::Size;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tar::{Builder, EntryType, Header};

/// A directory `in`, which is the destination, and a file `beside` it that must not change.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ebb-receive-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("in")).expect("folders");
        fs::write(path.join("beside"), "untouched").expect("a file");
        Self(path)
    }

    fn outs(&self, names: &[&str], most: u64) -> Outs {
        let place = self.0.join("in");
        let arguments: Vec<OsString> = names
            .iter()
            .map(|name| format!("/{name}:{}/{name}", place.display()).into())
            .collect();
        Outs::new(&arguments, Size(most))
            .expect("places")
            .expect("some")
    }

    /// Returns the sorted names in `in`.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.join("in")).expect("a folder");
        let mut names: Vec<_> = names
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    fn assert_untouched(&self) {
        assert_eq!(
            fs::read(self.0.join("beside")).expect("a file"),
            b"untouched"
        );
        assert_eq!(fs::read_dir(&self.0).expect("a folder").count(), 2);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Adds an entry with any bytes as its name.
fn raw(archive: &mut Builder<Vec<u8>>, kind: EntryType, name: &[u8], link: &[u8], data: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(data.len() as u64);
    let gnu = header.as_gnu_mut().expect("a GNU header");
    gnu.name[..name.len()].copy_from_slice(name);
    gnu.linkname[..link.len()].copy_from_slice(link);
    header.set_cksum();
    archive.append(&header, data).expect("memory takes all");
}

fn archive(build: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    build(&mut archive);
    archive.into_inner().expect("memory takes all")
}

fn end(archive: &mut Builder<Vec<u8>>, notes: &str) {
    raw(archive, EntryType::Regular, b"end", b"", notes.as_bytes());
}

fn why(copied: &Copied) -> String {
    copied
        .failure
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn receive(outs: &Outs, bytes: &[u8]) -> Copied {
    receive_all(outs, bytes, || panic!("it has an end"))
}

/// Has `outs` receive the bytes of `stream` through a port, as if a guest sent them.
fn receive_all(outs: &Outs, mut stream: impl Read + Send, end: impl FnOnce()) -> Copied {
    let (ours, mut theirs) = UnixStream::pair().expect("a port");
    thread::scope(|scope| {
        // Ends when all is sent, or when the receiver closes the port.
        scope.spawn(move || drop(io::copy(&mut stream, &mut theirs)));
        outs.receive(ours, end)
    })
}

#[test]
fn what_an_honest_guest_sends_arrives() {
    let scratch = Scratch::new("honest");
    fs::write(scratch.0.join("in/b"), "older").expect("a file");
    let outs = scratch.outs(&["a", "b"], 1 << 20);
    let bytes = archive(|to| {
        raw(to, EntryType::Directory, b"0", b"", b"");
        raw(to, EntryType::Directory, b"0/d", b"", b"");
        raw(to, EntryType::Regular, b"0/d/f", b"", b"hello");
        raw(to, EntryType::Symlink, b"0/d/l", b"../d/f", b"");
        raw(to, EntryType::Symlink, b"0/d/bad", b"/etc/passwd", b"");
        raw(to, EntryType::Regular, b"1", b"", b"newer");
        end(to, "left-out 0 /a/s (a socket)\n");
    });
    let copied = receive(&outs, &bytes);
    assert!(copied.failure.is_none(), "{}", why(&copied));
    assert_eq!(copied.remarks.len(), 2, "{:?}", copied.remarks);
    assert!(
        copied.remarks[0].contains("/etc/passwd"),
        "{:?}",
        copied.remarks
    );
    let read = |path: &str| fs::read_to_string(scratch.0.join("in").join(path)).expect(path);
    assert_eq!((read("a/d/l"), read("b")), ("hello".into(), "newer".into()));
    assert_eq!(scratch.names(), ["a", "b"]);
    assert!(scratch.0.join("in/a/d/bad").symlink_metadata().is_err());
    scratch.assert_untouched();
}

#[test]
fn nothing_outside_is_written() {
    let kinds = [EntryType::Regular, EntryType::Directory, EntryType::Symlink];
    for name in [
        &b"../beside"[..],
        b"/etc/x",
        b"0/../../beside",
        b"0/../beside",
        b"0/./x",
        b"0//x",
        b"1",
        b"-1",
        b"+0/x",
        b"18446744073709551616",
        b"..",
        b"x",
        b"end/x",
        b"\xff",
    ] {
        for kind in kinds {
            let scratch = Scratch::new("outside");
            let outs = scratch.outs(&["a"], 1 << 20);
            let bytes = archive(|to| {
                raw(to, EntryType::Directory, b"0", b"", b"");
                raw(to, kind, name, b"x", b"");
                end(to, "");
            });
            let copied = receive(&outs, &bytes);
            assert!(
                why(&copied).contains("sent something called"),
                "{name:?}: {}",
                why(&copied)
            );
            assert!(why(&copied).contains("incomplete, in "), "{}", why(&copied));
            assert!(!scratch.0.join("in/a").exists());
            scratch.assert_untouched();
        }
    }
}

#[test]
fn links_are_not_gone_through() {
    for (kind, link) in [(EntryType::Symlink, &b"d"[..]), (EntryType::Symlink, b"..")] {
        let scratch = Scratch::new("through");
        let outs = scratch.outs(&["a"], 1 << 20);
        let bytes = archive(|to| {
            raw(to, EntryType::Directory, b"0", b"", b"");
            raw(to, EntryType::Directory, b"0/d", b"", b"");
            raw(to, kind, b"0/d/l", link, b"");
            raw(to, EntryType::Directory, b"0/d/d", b"", b"");
            raw(to, EntryType::Regular, b"0/d/l/x", b"", b"gone through");
            end(to, "");
        });
        let copied = receive(&outs, &bytes);
        assert!(why(&copied).contains("cannot write"), "{}", why(&copied));
        scratch.assert_untouched();
    }
}

#[test]
fn odd_kinds_second_copies_and_lies_are_refused() {
    let file =
        |to: &mut Builder<Vec<u8>>, name: &[u8]| raw(to, EntryType::Regular, name, b"", b"x");
    let folder = |to: &mut Builder<Vec<u8>>| raw(to, EntryType::Directory, b"0", b"", b"");
    for kind in [
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::Link,
        EntryType::Continuous,
    ] {
        let scratch = Scratch::new("kinds");
        let bytes = archive(|to| {
            folder(to);
            raw(to, kind, b"0/x", b"0/y", b"");
            end(to, "");
        });
        let copied = receive(&scratch.outs(&["a"], 1 << 20), &bytes);
        assert!(
            why(&copied).contains("neither file, folder"),
            "{kind:?}: {}",
            why(&copied)
        );
    }
    let cases: [(&str, Vec<u8>); 6] = [
        (
            "File exists",
            archive(|to| {
                folder(to);
                file(to, b"0/x");
                file(to, b"0/x");
                end(to, "");
            }),
        ),
        (
            "No such file",
            archive(|to| {
                folder(to);
                file(to, b"0/none/x");
                end(to, "");
            }),
        ),
        (
            "ended before",
            archive(|to| {
                folder(to);
                file(to, b"0/x");
            }),
        ),
        ("did not send it", archive(|to| end(to, ""))),
        ("no archive", vec![b'x'; 4096]),
        ("ended before", Vec::new()),
    ];
    for (part, bytes) in cases {
        let scratch = Scratch::new("lies");
        let copied = receive(&scratch.outs(&["a"], 1 << 20), &bytes);
        assert!(why(&copied).contains(part), "{part}: {}", why(&copied));
        assert!(!scratch.0.join("in/a").exists());
        scratch.assert_untouched();
    }
}

/// A stream that never ends, and the number of bytes that were read from it.
struct Endless<'a> {
    head: &'a [u8],
    read: &'a AtomicU64,
}

impl Read for Endless<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = if self.head.is_empty() {
            into.fill(b'n');
            into.len()
        } else {
            self.head.read(into)?
        };
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[test]
fn sizes_that_lie_and_streams_without_an_end_are_bounded() {
    const MOST: u64 = 1 << 20;
    let header = |kind: EntryType, name: &[u8], size: u64| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o600);
        header.as_gnu_mut().expect("a GNU header").name[..name.len()].copy_from_slice(name);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    for (part, head) in [
        (
            "more than 1M",
            header(EntryType::Regular, b"0", u64::MAX / 2),
        ),
        ("more than 1M", header(EntryType::Regular, b"0", MOST + 1)),
        ("no archive", header(EntryType::Regular, b"0", MOST)),
        (
            "without an end",
            header(EntryType::GNULongName, b"L", 1 << 40),
        ),
        (
            "without an end",
            header(EntryType::GNULongLink, b"K", 1 << 40),
        ),
        ("without an end", header(EntryType::XHeader, b"x", 1 << 40)),
        (
            "an end that is none",
            header(EntryType::Regular, b"end", 1 << 40),
        ),
        ("no archive", Vec::new()),
    ] {
        let scratch = Scratch::new("endless");
        let (read, ended) = (AtomicU64::new(0), Cell::new(false));
        let stream = Endless {
            head: &head,
            read: &read,
        };
        let outs = scratch.outs(&["a"], MOST);
        let copied = receive_all(&outs, stream, || ended.set(true));
        assert!(
            ended.get() && why(&copied).contains(part),
            "{part}: {}",
            why(&copied)
        );
        assert!(
            read.load(Ordering::Relaxed) <= 4 * MOST + (2 << 20),
            "{part}: {} bytes",
            read.load(Ordering::Relaxed)
        );
        let written: u64 = fs::read_dir(scratch.0.join("in"))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").metadata().expect("its size").len())
            .sum();
        assert!(written <= MOST, "{part}: {written}");
        scratch.assert_untouched();
    }
}

#[test]
fn notes_say_what_is_missing() {
    for (notes, part) in [
        ("missing 0 No such file or directory\n", "No such file"),
        ("unread 0 /a/x: Input/output error\n", "Input/output"),
        ("over 0\n", "--out-max"),
        ("more 3 0\n", "3 more could not be read"),
    ] {
        let scratch = Scratch::new("notes");
        let bytes = archive(|to| {
            raw(to, EntryType::Regular, b"0", b"", b"part");
            end(to, notes);
        });
        let copied = receive(&scratch.outs(&["a"], 1 << 20), &bytes);
        assert!(why(&copied).contains(part), "{part}: {}", why(&copied));
        assert_eq!(scratch.names().len(), 1);
        assert!(scratch.names()[0].starts_with("a.partial-"));
    }
}

/// Archives with bytes changed at random give errors and nothing worse.
#[test]
fn broken_archives_are_errors() {
    let good = archive(|to| {
        raw(to, EntryType::Directory, b"0", b"", b"");
        raw(to, EntryType::Regular, b"0/f", b"", &[7; 1000]);
        raw(to, EntryType::Symlink, b"0/l", b"f", b"");
        raw(to, EntryType::GNULongName, b"L", b"", b"0/another\0");
        raw(to, EntryType::Regular, b"0/g", b"", b"g");
        end(to, "left-out 0 x\n");
    });
    let scratch = Scratch::new("broken");
    for seed in 1..=2000_u64 {
        let mut state = seed;
        let mut random = |below: usize| {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap_or(0)
        };
        let mut bytes = good.clone();
        bytes.truncate(random(good.len()) + 1);
        for _ in 0..random(4) {
            let at = random(bytes.len());
            bytes[at] = u8::try_from(random(256)).unwrap_or(0);
        }
        // Half of the archives get valid checksums, so that more of them is parsed.
        if seed % 2 == 0 {
            for block in bytes.chunks_exact_mut(512) {
                let mut header = Header::new_gnu();
                header.as_mut_bytes().copy_from_slice(block);
                header.set_cksum();
                block.copy_from_slice(header.as_bytes());
            }
        }
        let outs = scratch.outs(&["a"], 1 << 16);
        receive_all(&outs, bytes.as_slice(), || {
            panic!("seed {seed}: it has an end")
        });
        scratch.assert_untouched();
        for name in scratch.names() {
            let path = scratch.0.join("in").join(name);
            let gone = if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            gone.expect("it can be removed");
        }
    }
}
