//! Requests of a guest, and of a hostile one, for files in a volume.

use super::handles::Volumes;
use super::option::VolumeOption;
use ebb_wire::root::{ANSWER_MAX, Answer, Frames, answer, entries, leading_number};
use ebb_wire::volume::{Attributes, Opcode, Request, change};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

const EPERM: u32 = 1;
const ENOENT: u32 = 2;
const ENXIO: u32 = 6;
const EFAULT: u32 = 14;
const EEXIST: u32 = 17;
const EXDEV: u32 = 18;
const ENOTDIR: u32 = 20;
const EISDIR: u32 = 21;
const EINVAL: u32 = 22;
const EROFS: u32 = 30;
const ENOTEMPTY: u32 = 39;
const ESTALE: u32 = 116;
const EDQUOT: u32 = 122;

/// A directory that is removed with the test, and memory of three frames.
struct Bench {
    folder: PathBuf,
    volumes: Volumes,
    ram: File,
}

impl Bench {
    fn new(name: &str, access: &str) -> Self {
        Self::with(name, &[("src", &format!("/v{access}"))])
    }

    /// Creates several volumes: directories in the test's directory, each with the options behind
    /// the colon.
    fn with(name: &str, volumes: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("ebb-volume-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let options = volumes.iter().map(|(source, rest)| {
            fs::create_dir_all(folder.join(source)).unwrap();
            let text = format!("{}:{rest}", folder.join(source).display());
            VolumeOption::parse(OsStr::new(&text)).unwrap()
        });
        let options: Vec<_> = options.collect();
        fs::write(folder.join("secret"), "outside").unwrap();
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let ram = File::from(rustix::fs::memfd_create("ram", flags).unwrap());
        ram.set_len(3 * 4096).unwrap();
        Self {
            volumes: Volumes::open(&options).unwrap().try_clone().unwrap(),
            folder,
            ram,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join("src").join(name)
    }

    fn put(&mut self, request: &Request<'_>) -> Result<Vec<u8>, u32> {
        let mut bytes = [0; ebb_wire::volume::REQUEST_MAX];
        let len = request.write(&mut bytes).unwrap();
        let request = Request::read(&bytes[..len]).unwrap();
        let mut buffer = vec![0; ANSWER_MAX];
        let mut writing = Answer::new(&mut buffer);
        let frame_offset = |address: u64| (address < 3 * 4096).then_some(address);
        let result = self
            .volumes
            .answer(&request, &self.ram, &frame_offset, &mut writing);
        let status = result.map_or_else(|error| error.raw_os_error().cast_unsigned(), |()| 0);
        match answer(writing.finish(status)).unwrap() {
            (0, rest) => Ok(rest.to_vec()),
            (status, _) => Err(status),
        }
    }

    fn facts(&mut self, request: &Request<'_>) -> Result<Attributes, u32> {
        Ok(Attributes::read(&self.put(request)?).unwrap().0)
    }

    fn top(&mut self) -> u64 {
        self.top_of(0)
    }

    fn top_of(&mut self, volume: u64) -> u64 {
        self.facts(&Request::new(Opcode::Top, volume))
            .unwrap()
            .handle
    }

    fn named(&mut self, opcode: Opcode, folder: u64, name: &[u8]) -> Result<Attributes, u32> {
        let mut request = Request::new(opcode, folder);
        request.numbers[0] = 0o640;
        self.facts(&Request { name, ..request })
    }

    fn look(&mut self, folder: u64, name: &str) -> Result<Attributes, u32> {
        self.named(Opcode::Lookup, folder, name.as_bytes())
    }

    fn write(&mut self, handle: u64, bytes: &[u8], numbers: [u64; 4]) -> Result<Vec<u8>, u32> {
        self.ram.write_all_at(bytes, 4096 + numbers[1]).unwrap();
        let mut request = Request::new(Opcode::Write, handle);
        request.numbers[..4].copy_from_slice(&numbers);
        request.frames = Frames::Addresses(&[4096, 8192]);
        self.put(&request)
    }

    fn change(&mut self, handle: u64, numbers: &[u64]) -> Result<Attributes, u32> {
        let mut request = Request::new(Opcode::SetAttributes, handle);
        request.numbers[..numbers.len()].copy_from_slice(numbers);
        self.facts(&request)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn options_are_read() {
    let parse = |text: &str| VolumeOption::parse(OsStr::new(text));
    let option = parse("a:b:/srv/./x/:ro").unwrap();
    assert_eq!(option.source, Path::new("a:b"));
    assert_eq!(option.destination, b"/srv/x");
    assert!(option.read_only);
    assert!(!parse("a:/x:rw").unwrap().read_only);
    assert!(!parse("a:/x").unwrap().read_only);
    for wrong in [
        "",
        "a",
        ":/x",
        "a:",
        "a:x",
        "a:/",
        "a:/x/../y",
        "a:/proc",
        "a:/dev/x",
        "a:/tmp",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    assert!(parse("a:/tmp/x").is_ok() && parse("a:/device").is_ok());
    let option = parse("a:b:/x:max=1.5G").unwrap();
    assert_eq!(option.source, Path::new("a:b"));
    assert_eq!((option.max, option.read_only), (Some(3 << 29), false));
    assert_eq!(parse("a:/x:max=4K:rw"), parse("a:/x:rw:max=4K"));
    assert_eq!(parse("a:/x").unwrap().max, None);
    for wrong in [
        "a:/x:ro:rw",
        "a:/x:ro:max=1G",
        "a:/x:max=1G:ro",
        "a:/x:max=1G:max=2G",
        "a:/x:max=",
        "a:/x:max=7",
        "a:/x:max=-1G",
        ":/x:max=1G",
        "max=1G",
        "ro",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    let error = parse("a:/x:max=7").unwrap_err();
    assert!(error.contains("max=7"), "{error}");
}

#[test]
fn what_is_written_is_the_hosts() {
    let bench = &mut Bench::new("writes", "");
    let top = bench.top();
    let file = bench.named(Opcode::CreateFile, top, b"file").unwrap();
    assert_eq!(file.mode, 0o100_640);
    assert_eq!(bench.named(Opcode::CreateFile, top, b"file"), Err(EEXIST));
    bench.write(file.handle, b"hello", [0, 100, 5, 0]).unwrap();
    bench.write(file.handle, b", you", [0, 0, 5, 1]).unwrap();
    assert_eq!(fs::read(bench.path("file")).unwrap(), b"hello, you");
    let long = vec![7; 6000];
    let rest = bench.write(file.handle, &long, [8192, 0, 6000, 0]).unwrap();
    let (facts, rest) = Attributes::read(&rest).unwrap();
    assert_eq!(facts.size, 8192 + 6000);
    assert_ne!(facts.version, facts.version_before);
    assert_eq!(leading_number(rest).unwrap().0, 6000);
    assert_eq!(fs::read(bench.path("file")).unwrap()[8192..], long);
    let mut read = Request::new(Opcode::Read, file.handle);
    read.frames = Frames::Addresses(&[0]);
    let rest = bench.put(&read).unwrap();
    assert_eq!(
        leading_number(Attributes::read(&rest).unwrap().1)
            .unwrap()
            .0,
        4096
    );
    let mut bytes = [0; 10];
    bench.ram.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"hello, you");

    assert_eq!(
        bench
            .change(file.handle, &[change::SIZE, 0, 3])
            .unwrap()
            .size,
        3
    );
    let facts = bench.change(file.handle, &[change::MODE, 0o6755]).unwrap();
    assert_eq!(facts.mode, 0o100_755, "no way to another's rights");
    let facts = bench
        .change(file.handle, &[change::MODIFIED, 0, 0, 77, 88])
        .unwrap();
    assert_eq!(facts.times[1], (77, 88));
    bench.put(&Request::new(Opcode::Sync, file.handle)).unwrap();
    bench.put(&Request::new(Opcode::Sync, top)).unwrap();
}

#[test]
fn names_are_made_moved_and_removed() {
    let bench = &mut Bench::new("names", "");
    let top = bench.top();
    let folder = bench.named(Opcode::CreateFolder, top, b"folder").unwrap();
    let file = bench
        .named(Opcode::CreateFile, folder.handle, b"file")
        .unwrap();
    assert_eq!(file.mode, 0o100_640);
    let mut link = Request::new(Opcode::CreateLink, top);
    link.numbers[0] = file.handle;
    let facts = bench
        .facts(&Request {
            name: b"second",
            ..link
        })
        .unwrap();
    assert_eq!((facts.links, facts.inode), (2, file.inode));
    assert_eq!(bench.look(top, "second").unwrap().handle, file.handle);
    let mut moves = Request::new(Opcode::Rename, folder.handle);
    moves.numbers[..2].copy_from_slice(&[top, 1]);
    let (name, target): (&[u8], &[u8]) = (b"file", b"second");
    assert_eq!(
        bench.put(&Request {
            name,
            target,
            ..moves
        }),
        Err(EEXIST)
    );
    let target = b"third";
    bench
        .put(&Request {
            name,
            target,
            ..moves
        })
        .unwrap();
    moves.numbers[1] = 4;
    assert_eq!(
        bench.put(&Request {
            name,
            target,
            ..moves
        }),
        Err(EINVAL)
    );
    let symlink = Request {
        name: b"link",
        target: b"/etc/passwd",
        ..Request::new(Opcode::CreateSymlink, top)
    };
    let facts = bench.facts(&symlink).unwrap();
    let rest = bench
        .put(&Request::new(Opcode::ReadLink, facts.handle))
        .unwrap();
    assert_eq!(entries(&rest).next().unwrap().target, b"/etc/passwd");
    let rest = bench.put(&Request::new(Opcode::List, top)).unwrap();
    let mut names: Vec<_> = entries(leading_number(&rest).unwrap().1)
        .map(|entry| String::from_utf8_lossy(entry.name).into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["folder", "link", "second", "third"]);
    let name = b"third";
    bench
        .put(&Request {
            name,
            ..Request::new(Opcode::Unlink, top)
        })
        .unwrap();
    assert!(!bench.path("third").exists());
    let name = b"folder";
    assert_eq!(
        bench.put(&Request {
            name,
            ..Request::new(Opcode::Unlink, top)
        }),
        Err(EISDIR)
    );
    fs::write(bench.path("folder/left"), "").unwrap();
    let remove = Request {
        name,
        ..Request::new(Opcode::RemoveFolder, top)
    };
    assert_eq!(bench.put(&remove), Err(ENOTEMPTY));
    fs::remove_file(bench.path("folder/left")).unwrap();
    bench.put(&remove).unwrap();
    // The handle still stands for the removed directory.
    assert_eq!(bench.look(folder.handle, "left"), Err(ENOENT));
}

#[test]
fn many_names_come_in_several_answers() {
    let bench = &mut Bench::new("many", "");
    for number in 0..1500 {
        fs::write(bench.path(&format!("{number:0>40}")), "").unwrap();
    }
    let (top, mut all, mut from) = (bench.top(), Vec::new(), 0);
    loop {
        let mut request = Request::new(Opcode::List, top);
        request.numbers[0] = from;
        let rest = bench.put(&request).unwrap();
        let (next, rest) = leading_number(&rest).unwrap();
        all.extend(entries(rest).map(|entry| entry.name.to_vec()));
        if next == 0 {
            break;
        }
        assert!(next > from);
        from = next;
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 1500);
}

#[test]
fn nothing_leads_out() {
    let bench = &mut Bench::new("out", "");
    symlink("../secret", bench.path("up")).unwrap();
    symlink(bench.folder.join("secret"), bench.path("straight")).unwrap();
    symlink("..", bench.path("above")).unwrap();
    symlink("/proc/self/root", bench.path("magic")).unwrap();
    fs::create_dir(bench.path("inner")).unwrap();
    let top = bench.top();
    for name in [
        "..",
        ".",
        "",
        "/",
        "../secret",
        "inner/..",
        "/etc",
        "up/x",
        "a\0b",
    ] {
        assert_eq!(bench.look(top, name), Err(EINVAL), "{name}");
        for opcode in [Opcode::CreateFile, Opcode::CreateFolder] {
            assert_eq!(
                bench.named(opcode, top, name.as_bytes()),
                Err(EINVAL),
                "{name}"
            );
        }
        let name = name.as_bytes();
        for opcode in [Opcode::Unlink, Opcode::RemoveFolder] {
            assert_eq!(
                bench.put(&Request {
                    name,
                    ..Request::new(opcode, top)
                }),
                Err(EINVAL)
            );
        }
        let mut moves = Request::new(Opcode::Rename, top);
        moves.numbers[0] = top;
        assert_eq!(
            bench.put(&Request {
                name,
                target: b"x",
                ..moves
            }),
            Err(EINVAL)
        );
        assert_eq!(
            bench.put(&Request {
                name: b"inner",
                target: name,
                ..moves
            }),
            Err(EINVAL)
        );
    }
    // A link can be looked up, but nothing can be looked up through it.
    for name in ["up", "straight", "above", "magic"] {
        let link = bench.look(top, name).unwrap();
        assert_eq!(link.mode & 0o170_000, 0o120_000, "{name}");
        let mut open = Request::new(Opcode::Open, link.handle);
        open.numbers[0] = 3;
        assert_eq!(bench.put(&open), Err(ENXIO), "{name}");
        assert_eq!(bench.look(link.handle, "secret"), Err(ENOTDIR), "{name}");
        assert_eq!(
            bench.named(Opcode::CreateFile, top, name.as_bytes()),
            Err(EEXIST),
            "{name}"
        );
        assert!(bench.change(link.handle, &[change::MODE, 0]).is_err());
        assert!(bench.change(link.handle, &[change::SIZE, 0, 0]).is_err());
        assert!(
            bench.put(&Request::new(Opcode::List, link.handle)).is_err(),
            "{name}"
        );
    }
    assert_eq!(fs::read(bench.folder.join("secret")).unwrap(), b"outside");
    let long = [b'x'; 255];
    assert_eq!(bench.named(Opcode::Lookup, top, &long), Err(ENOENT));
}

#[test]
fn what_is_no_file_is_not_opened() {
    let bench = &mut Bench::new("kinds", "");
    let fifo = bench.path("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(bench.path("socket")).unwrap();
    let top = bench.top();
    for name in ["fifo", "socket"] {
        let file = bench.look(top, name).unwrap();
        for access in [1, 2, 3] {
            let mut open = Request::new(Opcode::Open, file.handle);
            open.numbers[0] = access;
            assert_eq!(bench.put(&open), Err(ENXIO), "{name}");
        }
        assert_eq!(bench.write(file.handle, b"x", [0, 0, 1, 0]), Err(ENXIO));
    }
}

#[test]
fn of_a_volume_for_reading_nothing_changes() {
    let bench = &mut Bench::new("ro", ":ro");
    fs::write(bench.path("file"), "text").unwrap();
    fs::create_dir(bench.path("folder")).unwrap();
    let top = bench.top();
    let file = bench.look(top, "file").unwrap();
    let folder = bench.look(top, "folder").unwrap();
    for opcode in [Opcode::CreateFile, Opcode::CreateFolder] {
        assert_eq!(bench.named(opcode, folder.handle, b"new"), Err(EROFS));
    }
    let name = b"file";
    assert_eq!(
        bench.put(&Request {
            name,
            target: b"t",
            ..Request::new(Opcode::CreateSymlink, top)
        }),
        Err(EROFS)
    );
    assert_eq!(
        bench.put(&Request {
            name,
            ..Request::new(Opcode::Unlink, top)
        }),
        Err(EROFS)
    );
    let mut two = Request::new(Opcode::Rename, top);
    two.numbers[0] = top;
    assert_eq!(
        bench.put(&Request {
            name,
            target: b"t",
            ..two
        }),
        Err(EROFS)
    );
    two.opcode = Opcode::CreateLink;
    two.numbers[0] = file.handle;
    assert_eq!(bench.put(&Request { name: b"t", ..two }), Err(EROFS));
    for what in [change::MODE, change::SIZE, change::MODIFIED] {
        assert_eq!(bench.change(file.handle, &[what, 0]), Err(EROFS));
    }
    assert_eq!(bench.write(file.handle, b"x", [0, 0, 1, 0]), Err(EROFS));
    let mut open = Request::new(Opcode::Open, file.handle);
    open.numbers[0] = 3;
    assert_eq!(bench.put(&open), Err(EROFS));
    open.numbers[0] = 1;
    assert!(bench.put(&open).is_ok());
    assert_eq!(fs::read(bench.path("file")).unwrap(), b"text");
    assert_ne!(
        fs::metadata(bench.path("file"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0
    );
}

#[test]
fn handles_and_numbers_are_checked() {
    let bench = &mut Bench::new("numbers", "");
    let top = bench.top();
    let file = bench.named(Opcode::CreateFile, top, b"file").unwrap();
    assert_eq!(bench.facts(&Request::new(Opcode::Top, 1)), Err(ENOENT));
    assert_eq!(
        bench.facts(&Request::new(Opcode::GetAttributes, 999)),
        Err(ESTALE)
    );
    for numbers in [
        [0, 4096, 1, 0],
        [0, 0, 8193, 0],
        [0, u64::MAX, 2, 0],
        [0, 1, u64::MAX, 0],
    ] {
        let mut request = Request::new(Opcode::Write, file.handle);
        request.numbers[..4].copy_from_slice(&numbers);
        request.frames = Frames::Addresses(&[0, 4096]);
        assert_eq!(bench.put(&request), Err(EINVAL), "{numbers:?}");
    }
    let mut request = Request::new(Opcode::Write, file.handle);
    request.numbers[2] = 1;
    request.frames = Frames::Addresses(&[3 * 4096]);
    assert_eq!(bench.put(&request), Err(EFAULT));
    request.numbers[0] = u64::MAX;
    request.frames = Frames::Addresses(&[0]);
    assert!(bench.put(&request).is_err());
    assert_eq!(fs::metadata(bench.path("file")).unwrap().size(), 0);
    // A handle that was given twice has to be given back twice.
    assert_eq!(bench.look(top, "file").unwrap().handle, file.handle);
    let mut forget = Request::new(Opcode::Forget, file.handle);
    forget.numbers[0] = 1;
    bench.put(&forget).unwrap();
    assert!(
        bench
            .facts(&Request::new(Opcode::GetAttributes, file.handle))
            .is_ok()
    );
    bench.put(&forget).unwrap();
    assert_eq!(
        bench.facts(&Request::new(Opcode::GetAttributes, file.handle)),
        Err(ESTALE)
    );
    assert_eq!(bench.put(&forget), Err(ESTALE));
}

/// Bytes are appended at the file's end of that moment, and a change by others shows.
#[test]
fn appending_is_behind_what_the_host_wrote() {
    let mut bench = Bench::new("append", "");
    let top = bench.top();
    let made = bench.named(Opcode::CreateFile, top, b"log").unwrap();
    let first = bench.write(made.handle, b"one", [0, 0, 3, 1]).unwrap();
    let (facts, rest) = Attributes::read(&first).unwrap();
    assert_eq!(facts.version_before, made.version);
    assert_eq!(leading_number(rest).unwrap().0, 3);
    assert_eq!(leading_number(&rest[8..]).unwrap().0, 0);
    fs::write(bench.path("log"), "one and more").unwrap();
    let second = bench.write(made.handle, b"two", [0, 0, 3, 1]).unwrap();
    let (facts_after, rest) = Attributes::read(&second).unwrap();
    assert_ne!(facts_after.version_before, facts.version);
    assert_eq!(leading_number(&rest[8..]).unwrap().0, 12);
    assert_eq!(fs::read(bench.path("log")).unwrap(), b"one and moretwo");
}

/// A file that is open for writing stays writable, whatever its mode and however many others are
/// open.
#[test]
fn what_is_open_for_writing_stays_so() {
    let mut bench = Bench::new("pinned", "");
    let top = bench.top();
    let mut handles = Vec::new();
    for number in 0..100 {
        let name = format!("file{number}");
        let made = bench
            .named(Opcode::CreateFile, top, name.as_bytes())
            .unwrap();
        let mut open = Request::new(Opcode::Open, made.handle);
        open.numbers[0] = 3;
        bench.put(&open).unwrap();
        handles.push(made.handle);
    }
    assert_eq!(bench.volumes.writers(), 100);
    for handle in handles {
        bench.write(handle, b"x", [0, 0, 1, 0]).unwrap();
        bench.put(&Request::new(Opcode::Close, handle)).unwrap();
    }
    assert_eq!(bench.volumes.writers(), 0);
}

#[test]
fn times_of_links_and_inherited_groups_are_kept() {
    let mut bench = Bench::new("times", "");
    symlink("nowhere", bench.path("link")).unwrap();
    let top = bench.top();
    let link = bench.look(top, "link").unwrap();
    let changed = bench
        .change(link.handle, &[change::MODIFIED, 0, 0, 1234, 5])
        .unwrap();
    assert_eq!(changed.times[1], (1234, 5));
    let set_group = fs::Permissions::from_mode(0o2755);
    fs::set_permissions(bench.path(""), set_group).unwrap();
    let made = bench.named(Opcode::CreateFolder, top, b"folder").unwrap();
    assert_eq!(made.mode & 0o7777, 0o2640);
}

/// Returns the mode of a file of the host, without its kind.
fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Set-ID bits are cleared before bytes change, so that the guest's bytes do not run with another
/// user's rights.
#[test]
fn set_id_bits_go_before_bytes_change() {
    let mut bench = Bench::new("setid", "");
    let path = bench.path("tool");
    fs::write(&path, "the host's own bytes").unwrap();
    let top = bench.top();
    let tool = bench.look(top, "tool").unwrap().handle;
    let mut open = Request::new(Opcode::Open, tool);
    open.numbers[0] = 3;
    // The host's kernel keeps set-group-ID without execute permission, and keeps set-user-ID if
    // root writes.
    for (before, after) in [(0o6755, 0o755), (0o4711, 0o711), (0o2644, 0o644)] {
        for pinned in [false, true] {
            let request = if pinned {
                open
            } else {
                Request::new(Opcode::Close, tool)
            };
            bench.put(&request).unwrap();
            set_mode(&path, before);
            let facts = bench.write(tool, b"x", [0, 0, 1, 0]).unwrap();
            let (facts, _) = Attributes::read(&facts).unwrap();
            assert_eq!(mode_of(&path), after, "written");
            assert_eq!(facts.mode, u64::from(0o100_000 | after));
            set_mode(&path, before);
            bench.write(tool, b"x", [0, 0, 1, 1]).unwrap();
            assert_eq!(mode_of(&path), after, "appended to");
            for size in [0, 10_000] {
                set_mode(&path, before);
                bench.change(tool, &[change::SIZE, 0, size]).unwrap();
                assert_eq!(mode_of(&path), after, "of {size} bytes");
            }
            // Mode and size in one request.
            let both = change::MODE | change::SIZE;
            bench.change(tool, &[both, before.into(), 5]).unwrap();
            assert_eq!(mode_of(&path), after, "changed");
        }
    }
    // The bits stay if no byte changes. A failed request changes neither bits nor bytes.
    set_mode(&path, 0o4755);
    bench.write(tool, b"", [0, 0, 0, 0]).unwrap();
    bench
        .change(tool, &[change::MODIFIED, 0, 0, 77, 88])
        .unwrap();
    assert_eq!(mode_of(&path), 0o4755);
    // Another name would survive when the host's user removes the first one.
    let mut name = Request::new(Opcode::CreateLink, top);
    name.numbers[0] = tool;
    let name = Request {
        name: b"kept",
        ..name
    };
    assert_eq!(bench.facts(&name), Err(EPERM));
    assert!(!bench.path("kept").exists());
}

/// The version shows the change as the guest's own, so that its cached pages stay valid.
#[test]
fn dropping_set_id_bits_is_no_foreign_change() {
    let mut bench = Bench::new("setid-version", "");
    let path = bench.path("tool");
    fs::write(&path, "bytes").unwrap();
    set_mode(&path, 0o4755);
    let top = bench.top();
    let known = bench.look(top, "tool").unwrap();
    let rest = bench.write(known.handle, b"x", [0, 0, 1, 0]).unwrap();
    let (facts, _) = Attributes::read(&rest).unwrap();
    assert_eq!(facts.version_before, known.version);
}

#[test]
fn what_is_no_file_is_not_changed() {
    let mut bench = Bench::new("special", "");
    let fifo = bench.path("fifo");
    let cwd = rustix::fs::CWD;
    rustix::fs::mknodat(cwd, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = UnixListener::bind(bench.path("socket")).unwrap();
    set_mode(&bench.path("socket"), 0o600);
    let mut names = vec!["fifo", "socket"];
    // Only root can create a device.
    let device = bench.path("device");
    let kind = rustix::fs::FileType::CharacterDevice;
    let null = rustix::fs::makedev(1, 3);
    if rustix::fs::mknodat(cwd, &device, kind, 0o600.into(), null).is_ok() {
        names.push("device");
    }
    let top = bench.top();
    for name in names {
        let path = bench.path(name);
        set_mode(&path, 0o600);
        let before = fs::metadata(&path).unwrap();
        let handle = bench.look(top, name).unwrap().handle;
        for numbers in [
            [change::MODE, 0o666, 0, 0, 0],
            [change::SIZE, 0, 0, 0, 0],
            [change::MODIFIED, 0, 0, 77, 88],
            [change::ACCESSED, 0, 0, 77, 88],
        ] {
            assert_eq!(bench.change(handle, &numbers), Err(EPERM), "{name}");
        }
        let mut second = Request::new(Opcode::CreateLink, top);
        second.numbers[0] = handle;
        let second = Request {
            name: b"second",
            ..second
        };
        assert_eq!(bench.facts(&second), Err(EPERM), "{name}");
        let after = fs::metadata(&path).unwrap();
        assert_eq!(after.mode() & 0o7777, 0o600, "{name}");
        assert_eq!(after.mtime(), before.mtime(), "{name}");
    }
}

#[test]
fn folders_get_no_set_id_bits() {
    let mut bench = Bench::new("setid-folders", "");
    let top = bench.top();
    let folder = bench
        .named(Opcode::CreateFolder, top, b"folder")
        .unwrap()
        .handle;
    let path = bench.path("folder");
    bench.change(folder, &[change::MODE, 0o7777]).unwrap();
    assert_eq!(mode_of(&path), 0o1777);
    // Bits that the host has set stay while the guest asks for them.
    set_mode(&path, 0o2755);
    bench.change(folder, &[change::MODE, 0o6700]).unwrap();
    assert_eq!(mode_of(&path), 0o2700);
    bench.change(folder, &[change::MODE, 0o700]).unwrap();
    assert_eq!(mode_of(&path), 0o700);
    bench.change(folder, &[change::MODE, 0o2700]).unwrap();
    assert_eq!(mode_of(&path), 0o700);
    let mut request = Request::new(Opcode::CreateFolder, top);
    request.numbers[0] = 0o7750;
    let made = Request {
        name: b"made",
        ..request
    };
    bench.facts(&made).unwrap();
    assert_eq!(mode_of(&bench.path("made")), 0o1750);
}

#[test]
fn the_hosts_user_is_not_kept_out_of_a_volume() {
    let mut bench = Bench::new("top", "");
    let top = bench.top();
    let path = bench.path("");
    set_mode(&path, 0o755);
    for mode in [0, 0o077, 0o300, 0o500, 0o600, 0o1477] {
        assert_eq!(bench.change(top, &[change::MODE, mode]), Err(EPERM));
        assert_eq!(mode_of(&path), 0o755, "{mode:o}");
    }
    bench.change(top, &[change::MODE, 0o700]).unwrap();
    bench.change(top, &[change::MODE, 0o1777]).unwrap();
    assert_eq!(mode_of(&path), 0o1777);
    // The guest may take all permissions of a directory below the volume's own. The host's user can
    // restore them.
    let folder = bench
        .named(Opcode::CreateFolder, top, b"folder")
        .unwrap()
        .handle;
    bench.change(folder, &[change::MODE, 0]).unwrap();
    bench.change(folder, &[change::MODE, 0o700]).unwrap();
}

/// The unit in which bytes are counted.
const PAGE: u64 = 4096;

impl Bench {
    /// Returns the bytes that the guest has added to the volume.
    fn used(&self) -> u64 {
        self.volumes.quota(0).unwrap().used
    }

    /// Writes two pages at an offset.
    fn write_pages(&mut self, handle: u64, offset: u64) -> Result<Vec<u8>, u32> {
        self.write(handle, &[7; 8192], [offset, 0, 8192, 0])
    }
}

#[test]
fn a_guest_adds_no_more_than_it_may() {
    let mut bench = Bench::new("quota", ":max=40K");
    let top = bench.top();
    let file = bench
        .named(Opcode::CreateFile, top, b"file")
        .unwrap()
        .handle;
    assert_eq!(bench.used(), PAGE, "its name");
    for (at, used) in [(0, 3), (8192, 5), (16384, 7)] {
        bench.write_pages(file, at).unwrap();
        assert_eq!(bench.used(), used * PAGE);
    }
    // Writing over existing bytes counts nothing.
    for _ in 0..20 {
        bench.write_pages(file, 8192).unwrap();
    }
    assert_eq!(bench.used(), 7 * PAGE);
    bench.write(file, b"x", [0, 0, 1, 1]).unwrap();
    assert_eq!(bench.used(), 8 * PAGE);
    for _ in 0..20 {
        bench.write(file, b"x", [0, 0, 1, 1]).unwrap();
    }
    assert_eq!(bench.used(), 8 * PAGE);
    let full = fs::metadata(bench.path("file")).unwrap().size();
    assert_eq!(full, 24576 + 21);
    // Two pages are left, so a request that needs three fails.
    assert_eq!(bench.write_pages(file, 32768), Err(EDQUOT));
    assert_eq!(bench.write(file, b"x", [1 << 40, 0, 1, 0]), Err(EDQUOT));
    assert_eq!(bench.write(file, b"x", [u64::MAX, 0, 1, 0]), Err(EDQUOT));
    for size in [28672 + 8193, 1 << 40, u64::MAX] {
        let change = bench.change(file, &[change::SIZE, 0, size]);
        assert_eq!(change, Err(EDQUOT), "{size}");
    }
    let after = fs::metadata(bench.path("file")).unwrap();
    assert_eq!((after.size(), bench.used()), (full, 8 * PAGE));
    // All kinds of names count. A directory counts twice.
    let mut link = Request::new(Opcode::CreateSymlink, top);
    (link.name, link.target) = (b"other", b"file");
    bench.facts(&link).unwrap();
    assert_eq!(bench.named(Opcode::CreateFolder, top, b"more"), Err(EDQUOT));
    link.name = b"link";
    bench.facts(&link).unwrap();
    assert_eq!(bench.used(), 10 * PAGE);
    link.name = b"more";
    assert_eq!(bench.facts(&link), Err(EDQUOT));
    for opcode in [Opcode::CreateFile, Opcode::CreateFolder] {
        assert_eq!(bench.named(opcode, top, b"more"), Err(EDQUOT));
    }
    let mut name = Request::new(Opcode::CreateLink, top);
    name.numbers[0] = file;
    name.name = b"more";
    assert_eq!(bench.facts(&name), Err(EDQUOT));
    assert!(!bench.path("more").exists());
    // A full volume allows writing over bytes, renaming and removing.
    bench.write_pages(file, 0).unwrap();
    let mut rename = Request::new(Opcode::Rename, top);
    rename.numbers[0] = top;
    (rename.name, rename.target) = (b"link", b"file");
    bench.put(&rename).unwrap();
    assert_eq!(bench.used(), 10 * PAGE, "others may have it open");
    // A new name may make its directory grow.
    rename.target = b"more";
    rename.name = b"other";
    assert_eq!(bench.put(&rename), Err(EDQUOT));
    assert!(!bench.path("more").exists());
}

#[test]
fn what_is_cut_off_counts_no_more() {
    let mut bench = Bench::new("quota-cut", ":max=40K");
    fs::write(bench.path("hosts"), vec![1; 100 << 10]).unwrap();
    let top = bench.top();
    let file = bench
        .named(Opcode::CreateFile, top, b"file")
        .unwrap()
        .handle;
    let hosts = bench.look(top, "hosts").unwrap().handle;
    for _ in 0..20 {
        bench.write_pages(file, 0).unwrap();
        bench.write_pages(file, 8192).unwrap();
        assert_eq!(bench.used(), 5 * PAGE);
        bench.change(file, &[change::SIZE, 0, 0]).unwrap();
        assert_eq!(bench.used(), PAGE);
    }
    // Cutting off the host's bytes gives the guest no space.
    bench.change(hosts, &[change::SIZE, 0, 0]).unwrap();
    assert_eq!(bench.used(), PAGE);
    bench.write_pages(hosts, 0).unwrap();
    assert_eq!(bench.used(), 3 * PAGE);
    bench.change(hosts, &[change::SIZE, 0, 1]).unwrap();
    assert_eq!(bench.used(), 2 * PAGE);
    // The same is true for bytes that others have added to its file.
    fs::write(bench.path("file"), vec![1; 100 << 10]).unwrap();
    bench.change(file, &[change::SIZE, 0, 0]).unwrap();
    assert_eq!(bench.used(), 2 * PAGE);
}

#[test]
fn holes_count_once() {
    let mut bench = Bench::new("quota-holes", ":max=64K");
    File::create(bench.path("hosts"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let top = bench.top();
    let file = bench
        .named(Opcode::CreateFile, top, b"file")
        .unwrap()
        .handle;
    bench.change(file, &[change::SIZE, 0, 16384]).unwrap();
    assert_eq!(bench.used(), 5 * PAGE);
    for at in [8192, 0, 8192] {
        bench.write_pages(file, at).unwrap();
        assert_eq!(bench.used(), 5 * PAGE, "the hole has counted");
    }
    // A write leaves a gap before it.
    bench.write_pages(file, 24576).unwrap();
    assert_eq!(bench.used(), 9 * PAGE);
    bench.write_pages(file, 16384).unwrap();
    assert_eq!(bench.used(), 9 * PAGE);
    // After cutting off, growth counts again. The pages do not pay for holes of another file.
    for _ in 0..5 {
        bench.change(file, &[change::SIZE, 0, 0]).unwrap();
        bench.change(file, &[change::SIZE, 0, 16384]).unwrap();
        assert_eq!(bench.used(), 5 * PAGE);
    }
    // Filling holes that the host made counts.
    let hosts = bench.look(top, "hosts").unwrap().handle;
    for (at, used) in [(0, 7), (8192, 9), (8192, 9), (500_000, 12)] {
        bench.write_pages(hosts, at).unwrap();
        assert_eq!(bench.used(), used * PAGE, "at {at}");
    }
    for at in [100_000, 200_000] {
        let _ = bench.write_pages(hosts, at);
    }
    assert_eq!(bench.write_pages(hosts, 300_000), Err(EDQUOT));
    bench.write_pages(hosts, 0).unwrap();
}

/// Creates a sparse file of 64 MiB on the host.
fn sparse(bench: &Bench) -> PathBuf {
    let path = bench.path("disk");
    File::create(&path).unwrap().set_len(SPARSE).unwrap();
    path
}

const SPARSE: u64 = 64 << 20;

/// Pages that are cut off do not pay for filling the host's holes.
#[test]
fn the_hosts_holes_are_not_filled_on_credit() {
    let mut bench = Bench::new("quota-credit", ":max=64K");
    let path = sparse(&bench);
    let top = bench.top();
    let disk = bench.look(top, "disk").unwrap().handle;
    let mut refused = false;
    for round in 0..100 {
        let longer = [change::SIZE, 0, SPARSE + 8192];
        refused |= bench.change(disk, &longer) == Err(EDQUOT);
        refused |= bench.write_pages(disk, round * 8192) == Err(EDQUOT);
        bench.change(disk, &[change::SIZE, 0, SPARSE]).unwrap();
    }
    let taken = fs::metadata(&path).unwrap().blocks() * 512;
    assert!(refused && taken <= 64 << 10, "{taken} bytes");
}

/// Holes of the host that were filled stay counted when bytes are cut off elsewhere.
#[test]
fn what_fills_a_hole_stays_counted() {
    let mut bench = Bench::new("quota-filled", ":max=64K");
    let path = sparse(&bench);
    let top = bench.top();
    let disk = bench.look(top, "disk").unwrap().handle;
    let mut refused = false;
    for round in 0..100 {
        refused |= bench.write_pages(disk, round * 8192) == Err(EDQUOT);
        let shorter = SPARSE - (round + 1) * 8192;
        bench.change(disk, &[change::SIZE, 0, shorter]).unwrap();
    }
    let taken = fs::metadata(&path).unwrap().blocks() * 512;
    assert!(refused && taken <= 64 << 10, "{taken} bytes");
}

/// After others have changed a file's size, the guest's pages in it are not known any more.
#[test]
fn what_others_made_longer_gives_nothing_back() {
    let mut bench = Bench::new("quota-others", ":max=64K");
    let top = bench.top();
    let file = bench
        .named(Opcode::CreateFile, top, b"file")
        .unwrap()
        .handle;
    bench.write_pages(file, 0).unwrap();
    assert_eq!(bench.used(), 3 * PAGE);
    let others = File::options().write(true).open(bench.path("file"));
    let others = others.unwrap();
    others.set_len(16384).unwrap();
    // The hole is the host's, and so are the pages cut off.
    bench.write_pages(file, 8192).unwrap();
    assert_eq!(bench.used(), 5 * PAGE);
    bench.change(file, &[change::SIZE, 0, 8192]).unwrap();
    assert_eq!(bench.used(), 5 * PAGE);
    bench.write_pages(file, 8192).unwrap();
    assert_eq!(bench.used(), 7 * PAGE);
    bench.change(file, &[change::SIZE, 0, 0]).unwrap();
    assert_eq!(bench.used(), 5 * PAGE, "its last two are its own");
}

impl Bench {
    fn rename(
        &mut self,
        (from, name): (u64, &str),
        (to, new_name): (u64, &str),
        flags: u64,
    ) -> Result<(), u32> {
        let mut request = Request::new(Opcode::Rename, from);
        request.numbers[..2].copy_from_slice(&[to, flags]);
        (request.name, request.target) = (name.as_bytes(), new_name.as_bytes());
        self.put(&request).map(drop)
    }

    fn name(&mut self, folder: u64, name: &str, file: u64) -> Result<Attributes, u32> {
        let mut request = Request::new(Opcode::CreateLink, folder);
        request.numbers[0] = file;
        let name = name.as_bytes();
        self.facts(&Request { name, ..request })
    }
}

/// A flag of `renameat2`.
const EXCHANGE: u64 = 2;

/// Each move between directories counts, because directories do not shrink when a name leaves.
#[test]
fn names_count_in_each_folder_that_they_come_into() {
    let mut bench = Bench::new("quota-moves", ":max=48K");
    fs::create_dir(bench.path("a")).unwrap();
    fs::create_dir(bench.path("b")).unwrap();
    fs::write(bench.path("a/file"), "").unwrap();
    fs::write(bench.path("b/other"), "").unwrap();
    let top = bench.top();
    let a = bench.look(top, "a").unwrap().handle;
    let b = bench.look(top, "b").unwrap().handle;
    bench.rename((a, "file"), (a, "same"), 0).unwrap();
    bench.rename((a, "same"), (a, "file"), 0).unwrap();
    assert_eq!(bench.used(), 0, "within one folder");
    bench.rename((a, "file"), (b, "file"), 0).unwrap();
    assert_eq!(bench.used(), PAGE);
    bench.rename((b, "file"), (a, "file"), 1).unwrap();
    assert_eq!(bench.used(), 2 * PAGE);
    assert_eq!(bench.rename((a, "file"), (b, "other"), 1), Err(EEXIST));
    assert_eq!(bench.used(), 2 * PAGE, "nothing was moved");
    bench.rename((a, "file"), (b, "other"), EXCHANGE).unwrap();
    assert_eq!(bench.used(), 4 * PAGE);
    bench.rename((a, "file"), (b, "other"), 0).unwrap();
    assert_eq!(bench.used(), 5 * PAGE, "what is replaced stays counted");
    let file = bench.look(b, "other").unwrap().handle;
    bench.name(b, "second", file).unwrap();
    assert_eq!(bench.used(), 6 * PAGE);
    bench.rename((b, "other"), (b, "second"), EXCHANGE).unwrap();
    assert_eq!(bench.used(), 6 * PAGE);
    // A directory counts a page of its own, and so does a long target.
    bench.named(Opcode::CreateFolder, top, b"c").unwrap();
    assert_eq!(bench.used(), 8 * PAGE);
    let mut link = Request::new(Opcode::CreateSymlink, top);
    let target = [b'x'; 60];
    (link.name, link.target) = (b"link", &target);
    bench.facts(&link).unwrap();
    assert_eq!(bench.used(), 10 * PAGE);
    bench.rename((b, "other"), (a, "file"), 0).unwrap();
    // One page is left, which is too little for an exchange.
    let exchange = bench.rename((a, "file"), (b, "second"), EXCHANGE);
    assert_eq!(exchange, Err(EDQUOT));
    bench.rename((a, "file"), (b, "file"), 0).unwrap();
    assert_eq!(bench.used(), 12 * PAGE);
    assert_eq!(bench.rename((b, "file"), (a, "file"), 0), Err(EDQUOT));
    assert!(bench.path("b/file").exists() && !bench.path("a/file").exists());
}

/// Long names are moved from directory to directory, and back and forth within one.
#[test]
fn the_growth_of_folders_counts() {
    const MAX: u64 = 512 << 10;
    let long = |name: &str| format!("{name:x<200}");
    let mut bench = Bench::new("quota-folders", ":max=512K");
    let top = bench.top();
    let taken = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    let mut all = taken(&bench.path(""));
    let mut from = bench.named(Opcode::CreateFolder, top, b"0").unwrap().handle;
    for number in 0..40 {
        let name = long(&number.to_string());
        bench
            .named(Opcode::CreateFile, from, name.as_bytes())
            .unwrap();
    }
    let grown = taken(&bench.path("0")).saturating_sub(PAGE);
    assert_eq!(bench.used(), 42 * PAGE + grown);
    // The names change within one directory.
    for number in 0..40 {
        let (old, new) = (long(&number.to_string()), long(&format!("new{number}")));
        bench.rename((from, &old), (from, &new), 0).unwrap();
    }
    let grown = taken(&bench.path("0")).saturating_sub(PAGE);
    assert_eq!(bench.used(), 42 * PAGE + grown);
    let mut folders = 1;
    let refused = (1..20).find(|folder: &u64| {
        let made = bench.named(Opcode::CreateFolder, top, folder.to_string().as_bytes());
        let Ok(made) = made else { return true };
        folders += 1;
        let moved = (0..40).all(|number| {
            let name = long(&format!("new{number}"));
            let moved = bench.rename((from, &name), (made.handle, &name), 0);
            assert!(matches!(moved, Ok(()) | Err(EDQUOT)));
            moved.is_ok()
        });
        from = made.handle;
        !moved
    });
    assert!(refused.is_some());
    all = taken(&bench.path("")).saturating_sub(all);
    for folder in 0..folders {
        all += taken(&bench.path(&folder.to_string()));
    }
    assert!(all <= MAX, "{all} bytes");
    assert!(all <= bench.used());
}

/// Files cannot be moved from one volume to another, which would bypass a limit.
#[test]
fn nothing_goes_from_one_volume_to_another() {
    let volumes = [("a", "/a:max=64K"), ("b", "/b"), ("a/inner", "/inner")];
    let mut bench = Bench::with("two", &volumes);
    for folder in ["a", "b", "a/inner"] {
        fs::write(bench.folder.join(folder).join("file"), vec![1; 100 << 10]).unwrap();
        fs::create_dir(bench.folder.join(folder).join("sub")).unwrap();
    }
    let tops = [0, 1, 2].map(|volume| bench.top_of(volume));
    for from in tops {
        let file = bench.look(from, "file").unwrap().handle;
        let sub = bench.look(from, "sub").unwrap().handle;
        for to in tops {
            if from == to {
                continue;
            }
            for from in [from, sub] {
                assert_eq!(bench.rename((from, "file"), (to, "new"), 0), Err(EXDEV));
            }
            assert_eq!(bench.rename((from, "sub"), (to, "new"), 0), Err(EXDEV));
            let exchange = bench.rename((from, "file"), (to, "file"), EXCHANGE);
            assert_eq!(exchange, Err(EXDEV));
            assert_eq!(bench.name(to, "new", file), Err(EXDEV));
            assert_eq!(bench.name(to, "file", file), Err(EXDEV));
        }
    }
    // Within one volume they can be moved anywhere.
    for top in tops {
        let sub = bench.look(top, "sub").unwrap().handle;
        bench.rename((top, "file"), (sub, "moved"), 0).unwrap();
        let file = bench.look(sub, "moved").unwrap().handle;
        bench.name(top, "named", file).unwrap();
    }
}

/// Changes to a file that two volumes show count for the volume through which they are made.
#[test]
fn each_volume_counts_what_is_done_by_it() {
    let volumes = [("a", "/a:max=64K"), ("a", "/again"), ("a/b", "/b:max=32K")];
    let mut bench = Bench::with("one", &volumes);
    let [b, again, a] = [2, 1, 0].map(|volume| bench.top_of(volume));
    let used = |bench: &Bench| [0, 2].map(|volume| bench.volumes.quota(volume).unwrap().used);
    let made = bench
        .named(Opcode::CreateFile, again, b"file")
        .unwrap()
        .handle;
    bench.write_pages(made, 0).unwrap();
    assert_eq!(used(&bench), [0, 0]);
    let file = bench.look(a, "file").unwrap().handle;
    assert_ne!(file, made);
    bench.write_pages(file, 8192).unwrap();
    assert_eq!(used(&bench), [2 * PAGE, 0]);
    // A change through the other volume is not subtracted from this one.
    bench.change(made, &[change::SIZE, 0, 0]).unwrap();
    bench.write_pages(made, 0).unwrap();
    bench.change(file, &[change::SIZE, 0, 0]).unwrap();
    assert_eq!(used(&bench), [2 * PAGE, 0]);
    let long = [change::SIZE, 0, 60 << 10];
    assert_eq!(bench.change(file, &long), Err(EDQUOT));
    bench.change(made, &long).unwrap();
    // The same for a volume inside another volume.
    let inner = bench.look(a, "b").unwrap().handle;
    let outer = bench
        .named(Opcode::CreateFile, inner, b"file")
        .unwrap()
        .handle;
    let file = bench.look(b, "file").unwrap().handle;
    bench.write_pages(file, 0).unwrap();
    assert_eq!(used(&bench), [3 * PAGE, 2 * PAGE]);
    bench.write_pages(outer, 8192).unwrap();
    assert_eq!(used(&bench), [5 * PAGE, 2 * PAGE]);
    // Closing the file of one volume keeps it open for the other.
    let mut open = Request::new(Opcode::Open, file);
    open.numbers[0] = 2;
    bench.put(&open).unwrap();
    bench.put(&Request::new(Opcode::Close, outer)).unwrap();
    assert_eq!(bench.volumes.writers(), 1);
}

#[test]
fn no_more_is_free_than_may_be_added() {
    let mut bench = Bench::new("quota-room", ":max=1M");
    let top = bench.top();
    let room = |bench: &mut Bench| {
        let rest = bench.put(&Request::new(Opcode::StatFs, top)).unwrap();
        let mut rest = rest.as_slice();
        let mut numbers = [0; 6];
        for number in &mut numbers {
            (*number, rest) = leading_number(rest).unwrap();
        }
        numbers
    };
    let [block, _, free, available, _, files] = room(&mut bench);
    assert_eq!((free, available), ((1 << 20) / block, (1 << 20) / block));
    assert!(files <= 256);
    let file = bench
        .named(Opcode::CreateFile, top, b"file")
        .unwrap()
        .handle;
    bench.change(file, &[change::SIZE, 0, 512 << 10]).unwrap();
    let [block, all, free, available, ..] = room(&mut bench);
    assert_eq!(free, ((512 << 10) - PAGE) / block);
    assert!(available <= free && free <= all);
    let mut bench = Bench::new("no-quota-room", "");
    bench.top();
    let [block, _, free, ..] = room(&mut bench);
    assert!(block * free > 1 << 20, "the test's folder has room");
}

impl Bench {
    /// Returns the names of one answer, and the position of the next name.
    fn listed(&mut self, folder: u64, from: u64) -> (Vec<Vec<u8>>, u64) {
        let mut request = Request::new(Opcode::List, folder);
        request.numbers[0] = from;
        let rest = self.put(&request).unwrap();
        let (next, rest) = leading_number(&rest).unwrap();
        let names = entries(rest).map(|entry| entry.name.to_vec());
        (names.collect(), next)
    }
}

/// Names that exist all the time are listed once, whatever else is created or removed, and however
/// many directories are listed at the same time.
#[test]
fn a_listing_goes_on_while_names_change() {
    const FOLDERS: usize = 6;
    const NAMES: usize = 1500;
    let mut bench = Bench::new("listing", "");
    let top = bench.top();
    let mut folders = Vec::new();
    for folder in 0..FOLDERS {
        let at = bench.path(&folder.to_string());
        fs::create_dir(&at).unwrap();
        for number in 0..NAMES {
            fs::write(at.join(format!("{number:0>40}")), "").unwrap();
        }
        let handle = bench.look(top, &folder.to_string()).unwrap().handle;
        folders.push((handle, at, Vec::new(), Some(0)));
    }
    let mut answers = 0;
    while folders.iter().any(|(.., from)| from.is_some()) {
        for (handle, at, all, next) in &mut folders {
            let Some(from) = *next else { continue };
            let (names, after) = bench.listed(*handle, from);
            assert!(after == 0 || after > from);
            all.extend(names);
            *next = (after != 0).then_some(after);
            answers += 1;
            // No name is removed in a directory that does not stay open.
            fs::write(at.join(format!("new-{answers}")), "").unwrap();
        }
    }
    assert!(answers > 2 * FOLDERS);
    for (handle, _, mut all, _) in folders {
        all.retain(|name| !name.starts_with(b"new"));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), NAMES);
        assert!(count < 2 * NAMES);
        // A listing may begin in the middle, or behind the end.
        let (names, _) = bench.listed(handle, 5);
        assert!(!names.is_empty());
        assert_eq!(bench.listed(handle, 9999), (Vec::new(), 0));
    }
    // In a directory that stays open, removed names do not disturb the position.
    let at = bench.path("0");
    let handle = bench.look(top, "0").unwrap().handle;
    let (mut all, mut from) = bench.listed(handle, 0);
    while from != 0 {
        for name in &all {
            let _ = fs::remove_file(at.join(OsStr::from_bytes(name)));
        }
        let (names, next) = bench.listed(handle, from);
        (all, from) = ([all, names].concat(), next);
    }
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
    assert!(count >= NAMES);
    let mut request = Request::new(Opcode::List, handle);
    request.numbers[0] = u64::MAX;
    assert_eq!(bench.put(&request), Err(EINVAL));
}
