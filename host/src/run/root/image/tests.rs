//! Images as tools write them, and malformed ones.

use super::super::source::Source;
use super::index::Whiteouts;
use super::*;
use crate::compressed;
use ebb_wire::root::{ANSWER_MAX, answer, entries};
use flate2::{Compression, write::GzEncoder};
use std::fs;
use std::io::Write;
use tar::{Builder, EntryType, Header};

/// A tar archive that is being built.
pub(super) struct Tar(Builder<Vec<u8>>);

impl Tar {
    pub(super) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    pub(super) fn entry(mut self, name: &str, kind: EntryType, link: &str, bytes: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        // Written directly, because the crate refuses `..`.
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        let field = &mut header.as_old_mut().linkname;
        field[..link.len()].copy_from_slice(link.as_bytes());
        header.set_mode(if kind == EntryType::Directory {
            0o750
        } else {
            0o644
        });
        header.set_uid(1000);
        header.set_gid(100);
        header.set_mtime(1_000_000_000);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        self.0.append(&header, bytes).unwrap();
        self
    }

    pub(super) fn file(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.entry(name, EntryType::Regular, "", bytes.as_ref())
    }

    pub(super) fn folder(self, name: &str) -> Self {
        self.entry(name, EntryType::Directory, "", b"")
    }

    pub(super) fn link(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Symlink, target, b"")
    }

    pub(super) fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Link, target, b"")
    }

    /// Adds a link whose target is too long for its header field.
    pub(super) fn long_link(self, name: &str, target: &str) -> Self {
        let tar = self.entry("K", EntryType::GNULongLink, "", target.as_bytes());
        tar.link(name, "")
    }

    /// Adds an empty file whose name is too long for its header field.
    pub(super) fn long_file(self, name: &str) -> Self {
        let tar = self.entry("L", EntryType::GNULongName, "", name.as_bytes());
        tar.file("", "")
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// Opens an image as a run does, with another process that reads it.
fn open_remote(name: &str, bytes: &[u8]) -> Result<Arc<RemoteImage>, String> {
    let path = std::env::temp_dir().join(format!("ebb-remote-{name}-{}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    let image = RemoteImage::open(&File::open(&path).unwrap(), &path, true);
    fs::remove_file(&path).unwrap();
    image.map(Arc::new).map_err(|error| error.to_string())
}

#[test]
fn another_process_reads_the_image_and_answers() {
    use crate::run::root::source::Answers;
    use ebb_wire::root::{Names, Opcode, QUESTION_MAX, Question};
    let archive = Tar::new()
        .file("bin/tool", "a tool")
        .link("sbin", "bin")
        .done();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&archive).unwrap();
    // It is decompressed to a file that the other process asks for.
    let image = open_remote("whole", &encoder.finish().unwrap()).unwrap();
    assert!(image.has(b"bin/tool") && !image.has(b"bin/none"));
    assert_eq!(image.content(b"sbin/tool").as_deref(), Some(&b"a tool"[..]));
    assert_eq!(image.link_at(b"sbin").as_deref(), Some(&b"bin"[..]));
    assert!(!image.has_program(b"bin/tool"));

    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let ram = File::from(rustix::fs::memfd_create("ram", flags).unwrap());
    ram.set_len(8192).unwrap();
    let mut answers = ImageAnswers::new(&image, Box::new(|_| ()));
    let mut ask = |opcode, path: &[u8], version, frames: &[u64]| {
        let question = Question {
            opcode,
            path,
            from: 0,
            version,
            frames: Frames::Addresses(frames),
            siblings: Names::default(),
        };
        let mut bytes = vec![0; QUESTION_MAX];
        let len = question.write(&mut bytes).unwrap();
        let question = Question::read(&bytes[..len]).unwrap();
        let frame_offset = |frame| (frame == 0x7000).then_some(4096);
        let mut buffer = vec![0; ANSWER_MAX];
        let answer = answers.reply(&question, &bytes[..len], &ram, &frame_offset, &mut buffer);
        answer.to_vec()
    };
    let looked = ask(Opcode::Lookup, b"bin/tool", 0, &[]);
    let (status, rest) = answer(&looked).unwrap();
    assert_eq!(status, 0);
    let version = entries(rest).next().unwrap().attributes.version;
    let read = ask(Opcode::Read, b"bin/tool", version, &[0x7000]);
    assert_eq!(answer(&read).unwrap().0, 0);
    let mut bytes = [0; 6];
    ram.read_exact_at(&mut bytes, 4096).unwrap();
    assert_eq!(&bytes, b"a tool");
    // A frame outside of the guest's memory.
    let refused = ask(Opcode::Read, b"bin/tool", version, &[0x8000]);
    let fault = u32::try_from(Errno::FAULT.raw_os_error()).unwrap();
    assert_eq!(answer(&refused).unwrap().0, fault);
}

#[test]
fn another_process_says_what_is_wrong_with_an_image() {
    let error = open_remote("broken", b"no archive").unwrap_err();
    assert!(error.contains("tar archive"), "{error}");
    let archive = Tar::new().file("../x", "").done();
    let error = open_remote("above", &archive).unwrap_err();
    assert!(error.contains("`..`"), "{error}");
}

/// Serves the reader within the test's process.
struct Here;

impl ReaderService for Here {
    fn scratch(&mut self) -> io::Result<Arc<File>> {
        scratch::nameless(&std::env::temp_dir()).map(Arc::new)
    }

    fn progress(&mut self, _: &str, _: u64) {}
}

/// Opens an archive in the test's process.
pub(super) fn open(name: &str, bytes: &[u8]) -> Result<Arc<Image>, String> {
    let path = std::env::temp_dir().join(format!("ebb-image-{name}-{}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let image = Image::read(file, name, &mut Here);
    image.map(Arc::new).map_err(|error| error.to_string())
}

/// Adds an archive as a layer with whiteouts.
pub(super) fn add(index: &mut Index, bytes: &[u8]) -> Result<(), String> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = File::from(rustix::fs::memfd_create("layer", flags).unwrap());
    file.write_all_at(bytes, 0).unwrap();
    let added = index.add_layer(Section::whole(file).unwrap(), Whiteouts::Honoured);
    added.map_err(|error| error.to_string())
}

pub(super) fn names(image: &mut Arc<Image>, path: &str) -> Vec<String> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let mut buffer = vec![0; ANSWER_MAX];
        let mut writing = Answer::new(&mut buffer);
        let path = path.as_bytes();
        let next = image.list(path, from, usize::MAX, &mut writing).unwrap();
        let (_, rest) = answer(writing.finish(0)).unwrap();
        all.extend(entries(rest).map(|entry| String::from_utf8_lossy(entry.name).into_owned()));
        if next == 0 {
            return all;
        }
        from = next;
    }
}

/// Reads all of a file through frames.
fn content(image: &mut Arc<Image>, path: &str) -> Result<String, Errno> {
    let id = image.find(path.as_bytes(), true)?;
    let path = path.as_bytes();
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let ram = File::from(rustix::fs::memfd_create("ram", flags).unwrap());
    ram.set_len(8192).unwrap();
    let addresses = [4096, 0];
    let frames = Frames::Addresses(&addresses);
    let count = image.read(path, u64::from(id), 0, &frames, &ram, &|at| Some(at))?;
    let mut bytes = vec![0; 8192];
    ram.read_exact_at(&mut bytes[..4096], 4096).unwrap();
    ram.read_exact_at(&mut bytes[4096..], 0).unwrap();
    bytes.truncate(usize::try_from(count).unwrap());
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn a_file_system_is_shown_as_it_was_packed() {
    let long = "long/".repeat(40) + "file";
    let mut archive = Tar::new()
        .folder("./")
        .file("./bin/tool", "tool")
        .link("sbin", "bin")
        .link("up", "../../../etc/passwd")
        .hard_link("bin/again", "./bin/tool")
        .file("/etc/passwd", "inside")
        .entry("dev/null", EntryType::Char, "", b"")
        .entry("run/pipe", EntryType::Fifo, "", b"")
        .file("sbin/other", "through a link")
        .file(".wh.kept", "a name");
    let mut header = Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o4755);
    header.set_mtime(5);
    header.set_uid(0);
    header.set_gid(0);
    archive
        .0
        .append_data(&mut header, &long, &b"deep"[..])
        .unwrap();
    let bytes = archive.done();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let zstd = compressed::tests::zstd(&bytes);
    for (name, bytes) in [
        ("plain", bytes),
        ("gz", gzip.finish().unwrap()),
        ("zst", zstd),
    ] {
        let image = &mut open(name, &bytes).unwrap();
        assert_eq!(
            names(image, ""),
            [".wh.kept", "bin", "etc", "long", "run", "sbin", "up"]
        );
        assert_eq!(names(image, "sbin"), ["again", "other", "tool"]);
        assert_eq!(content(image, "sbin/again").unwrap(), "tool");
        assert_eq!(content(image, "bin/other").unwrap(), "through a link");
        assert_eq!(content(image, &long).unwrap(), "deep");
        let up = image.find(b"up", true).unwrap();
        assert_eq!(
            up,
            image.find(b"etc/passwd", false).unwrap(),
            "a link leads out"
        );
        let facts = image.facts(image.find(b"bin/tool", false).unwrap());
        assert_eq!((facts.mode, facts.uid, facts.gid), (0o100_644, 1000, 100));
        assert_eq!((facts.seconds, facts.size), (1_000_000_000, 4));
        let facts = image.facts(image.find(long.as_bytes(), false).unwrap());
        assert_eq!(facts.mode, 0o104_755);
    }
}

#[test]
fn bytes_come_by_pages_and_of_the_file_that_was_meant() {
    let big = "0123456789".repeat(700);
    let image = &mut open("pages", &Tar::new().file("big", &big).done()).unwrap();
    assert_eq!(content(image, "big").unwrap(), big);
    let ram = tempfile();
    let frames = Frames::Addresses(&[0]);
    let read = |image: &mut Arc<Image>, version, from, offset: Option<u64>| {
        image.read(b"big", version, from, &frames, &ram, &|_| offset)
    };
    let id = u64::from(image.find(b"big", true).unwrap());
    assert_eq!(read(image, id, 4096, Some(0)), Ok(7000 - 4096));
    assert_eq!(read(image, id, 8192, Some(0)), Ok(0));
    assert_eq!(read(image, id, u64::MAX, Some(0)), Ok(0));
    assert_eq!(read(image, id + 1, 0, Some(0)), Err(Errno::STALE));
    assert_eq!(read(image, id, 0, None), Err(Errno::FAULT));
}

fn tempfile() -> File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let ram = File::from(rustix::fs::memfd_create("ram", flags).unwrap());
    ram.set_len(4096).unwrap();
    ram
}

const DESCRIBED: &str = r#"{"config": {"Entrypoint": ["/bin/run"], "Cmd": ["a", "b"],
    "Env": ["PATH=/opt/bin:/bin", "ONE=1", "NOTHING"], "WorkingDir": "/srv", "User": "app"}}"#;

fn layers() -> [Vec<u8>; 2] {
    let lower = Tar::new()
        .folder("a")
        .file("a/gone", "1")
        .file("a/kept", "1")
        .file("b/old", "1")
        .file("b/deep/old", "1")
        .file("c/old", "1")
        .file("swapped/inner", "1")
        .file("replaced", "1")
        .done();
    let upper = Tar::new()
        .file("a/.wh.gone", "")
        // Files of the same layer stay, before and behind the whiteout.
        .file("b/new", "2")
        .file("b/.wh..wh..opq", "")
        .file("b/newer", "2")
        .file(".wh.c", "")
        .file("c/back", "2")
        .file("swapped", "a file now")
        .hard_link("linked", "a/kept")
        .file("replaced", "2")
        .file(".wh..wh.plnk", "")
        .done();
    [lower, upper]
}

fn check(image: &mut Arc<Image>) {
    assert_eq!(
        names(image, ""),
        ["a", "b", "c", "linked", "replaced", "swapped"]
    );
    assert_eq!(names(image, "a"), ["kept"]);
    assert_eq!(names(image, "b"), ["new", "newer"]);
    assert_eq!(names(image, "c"), ["back"]);
    assert_eq!(content(image, "swapped").unwrap(), "a file now");
    assert_eq!(content(image, "linked").unwrap(), "1");
    assert_eq!(content(image, "replaced").unwrap(), "2");
    let config = image.config();
    assert_eq!(config.command, ["/bin/run", "a", "b"]);
    assert_eq!(config.environment, ["PATH=/opt/bin:/bin", "ONE=1"]);
    assert_eq!(config.working_folder.as_deref(), Some("/srv"));
    assert_eq!(config.user.as_deref(), Some("app"));
}

#[test]
fn layers_of_docker_save_are_put_together() {
    let [lower, upper] = layers();
    let manifest =
        r#"[{"Config": "c.json", "RepoTags": null, "Layers": ["l/layer.tar", "m/layer.tar"]}]"#;
    let archive = Tar::new()
        .file("real/layer.tar", &lower)
        .link("l/layer.tar", "../real/layer.tar")
        .file("m/layer.tar", &upper)
        .file("manifest.json", manifest)
        .file("c.json", DESCRIBED);
    check(&mut open("docker", &archive.done()).unwrap());
}

#[test]
fn layers_of_an_oci_layout_are_put_together() {
    let [lower, upper] = layers();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&lower).unwrap();
    let index = r#"{"manifests": [
        {"digest": "sha256:arm", "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": "sha256:list", "platform": {"os": "linux", "architecture": "amd64"}}]}"#;
    let list = r#"{"manifests": [{"digest": "sha256:image"}]}"#;
    let image = r#"{"config": {"digest": "sha256:config"},
        "layers": [{"digest": "sha256:lower"}, {"digest": "sha256:upper"}]}"#;
    let archive = Tar::new()
        .file("oci-layout", r#"{"imageLayoutVersion": "1.0.0"}"#)
        .file("index.json", index)
        .file("blobs/sha256/list", list)
        .file("blobs/sha256/image", image)
        .file("blobs/sha256/config", DESCRIBED)
        .file("blobs/sha256/lower", gzip.finish().unwrap())
        .file("blobs/sha256/upper", compressed::tests::zstd(&upper));
    check(&mut open("oci", &archive.done()).unwrap());
}

#[test]
fn what_unpacked_takes_goes_off_the_budget() {
    let path = std::env::temp_dir().join(format!("ebb-budget-{}", std::process::id()));
    let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
    writer.write_all(&[7; 3000]).unwrap();
    fs::write(&path, writer.finish().unwrap()).unwrap();
    let section = || Section::whole(File::open(&path).unwrap()).unwrap();
    let mut budget = 7000;
    let mut unpack = || unpack::unpack(section(), "it", &mut budget, &mut Here);
    assert_eq!(unpack().unwrap().len(), 3000);
    assert_eq!(unpack().unwrap().len(), 3000);
    let refused = unpack().unwrap_err().to_string();
    assert!(refused.contains("more than 64 GiB"), "{refused}");
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_decoder_may_keep_back_a_window_of_128_mib() {
    let path = std::env::temp_dir().join(format!("ebb-window-{}", std::process::id()));
    let plain = vec![7; 100 << 20];
    fs::write(&path, compressed::tests::zstd_stored(&plain)).unwrap();
    let section = Section::whole(File::open(&path).unwrap()).unwrap();
    fs::remove_file(&path).unwrap();
    let mut budget = 1 << 30;
    let unpacked = unpack::unpack(section, "it", &mut budget, &mut Here).unwrap();
    assert_eq!(unpacked.len(), 100 << 20);
}

#[test]
fn links_lead_no_deeper_than_names() {
    let parts = |count| vec!["a"; count].join("/");
    let mut tar = Tar::new();
    for chain in 0..10 {
        let above = if chain == 0 {
            String::new()
        } else {
            format!("l{}/{}", chain - 1, parts(40))
        };
        tar = tar.link(&format!("l{chain}"), &format!("/{above}"));
        for depth in 1..=40 {
            tar = tar.folder(&format!("l{chain}/{}", parts(depth)));
        }
    }
    let refused = open("chain", &tar.done()).unwrap_err();
    assert!(refused.contains("more than 256 folders deep"), "{refused}");
}

#[test]
fn what_is_wrong_is_said_by_name() {
    let cut = |mut bytes: Vec<u8>, len| {
        bytes.truncate(len);
        bytes
    };
    let huge = {
        let mut header = Header::new_gnu();
        header.set_path("huge").unwrap();
        header.set_size(u64::MAX / 2);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let around = "[{\"Config\": \"absent\", \"Layers\": []}]";
    let deep = format!("{}x", "d/".repeat(300));
    let deep = {
        let mut tar = Tar::new();
        let mut header = Header::new_gnu();
        header.set_size(0);
        header.set_mode(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        tar.0.append_data(&mut header, deep, &b""[..]).unwrap();
        tar.done()
    };
    for (what, bytes, expected) in [
        (
            "up",
            Tar::new().file("a/../../b", "x").done(),
            "entry a/../../b: there is `..` in its path",
        ),
        (
            "text",
            b"neither".repeat(200),
            "neither a directory nor a tar archive",
        ),
        ("empty", Vec::new(), "neither a directory nor a tar archive"),
        ("bz", b"BZh91AY".to_vec(), "bzip2"),
        (
            "cut",
            cut(Tar::new().file("a", [1; 5000]).done(), 2000),
            "entry a: it has 5000 bytes, and the archive ends before",
        ),
        (
            "head",
            cut(Tar::new().file("a", "x").file("b", "y").done(), 1200),
            "at byte 1024",
        ),
        ("huge", huge, "entry huge: it has 9223372036854775807 bytes"),
        (
            "hard",
            Tar::new().hard_link("h", "/etc/shadow").done(),
            "entry h: it is a hard link to /etc/shadow",
        ),
        (
            "folder",
            Tar::new().folder("f").hard_link("h", "f").done(),
            "entry h: it is a hard link to f",
        ),
        (
            "circle",
            Tar::new()
                .link("a", "b")
                .link("b", "a")
                .file("a/x", "")
                .done(),
            "entry a/x: links on the way",
        ),
        (
            "way",
            Tar::new().file("f", "").file("f/x", "").done(),
            "entry f/x: a file is on the way",
        ),
        ("deep", deep, "more than 256 folders deep"),
        (
            "gz",
            vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3],
            "cannot be unpacked",
        ),
        (
            "absent",
            Tar::new().file("manifest.json", around).done(),
            "the archive names absent",
        ),
        (
            "two",
            Tar::new().file("manifest.json", "[]").done(),
            "it has 0 images",
        ),
        (
            "json",
            Tar::new().file("manifest.json", "{").done(),
            "manifest.json: ",
        ),
    ] {
        let error = open(what, &bytes).unwrap_err();
        assert!(error.contains(expected), "{what}: {error}");
    }
    // Links that form a circle matter only when one is followed.
    let image = open("later", &Tar::new().link("a", "b").link("b", "a").done()).unwrap();
    assert_eq!(image.find(b"a/x", true), Err(Errno::LOOP));
}

#[test]
fn an_archive_that_changes_is_read_no_further() {
    let path = std::env::temp_dir().join(format!("ebb-image-changes-{}", std::process::id()));
    fs::write(&path, Tar::new().file("f", "before").done()).unwrap();
    let file = File::open(&path).unwrap();
    let mut image = Arc::new(Image::read(file, "changing", &mut Here).unwrap());
    assert_eq!(content(&mut image, "f").unwrap(), "before");
    fs::write(&path, b"something else").unwrap();
    assert_eq!(content(&mut image, "f"), Err(Errno::STALE));
    fs::remove_file(&path).unwrap();
}

/// A random archive is an image or an error, and each question about an image gets an answer.
#[test]
fn broken_archives_do_no_harm() {
    let [lower, upper] = layers();
    let manifest = r#"[{"Config": "c.json", "Layers": ["l.tar", "m.tar"]}]"#;
    let whole = Tar::new()
        .file("l.tar", &lower)
        .file("m.tar", &upper)
        .file("manifest.json", manifest)
        .file("c.json", DESCRIBED)
        .done();
    let plain = Tar::new()
        .folder("a")
        .link("a/l", "../b")
        .file("b", "text")
        .hard_link("a/h", "b")
        .file("a/l2/x", "y")
        .done();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let mut images = 0;
    for round in 0..1500 {
        let mut bytes = if round % 2 == 0 {
            whole.clone()
        } else {
            plain.clone()
        };
        for _ in 0..=next(6) {
            let at = next(bytes.len());
            bytes[at] = next(256).to_le_bytes()[0];
        }
        // With valid checksums more of the archive is parsed.
        for at in (0..bytes.len()).step_by(512).filter(|_| round % 3 != 0) {
            let block: &mut [u8] = &mut bytes[at..];
            if block.len() >= 512 && block[257..262] == *b"ustar" {
                let sum = block[..148].iter().chain(&block[156..512]);
                let sum: u32 = sum.map(|byte| u32::from(*byte)).sum::<u32>() + 8 * 32;
                block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        if round % 5 == 0 {
            bytes.truncate(next(bytes.len()));
        }
        let Ok(mut image) = open("broken", &bytes) else {
            continue;
        };
        images += 1;
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for name in names(&mut image, &folder) {
                let path = format!("{folder}/{name}");
                let Ok(id) = image.find(path.as_bytes(), false) else {
                    continue;
                };
                match &image.index.node(id).body {
                    Body::Folder => folders.push(path),
                    Body::File(_) => {
                        let _ = content(&mut image, &path).map_err(drop);
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(images > 100, "{images} images are left");
}

/// GNU tar writes a long name and then a long link before one entry.
#[test]
fn a_long_name_and_a_long_link_are_of_one_entry() {
    let (name, target) = ("n".repeat(150), "t".repeat(150));
    let long = |text: &str| format!("{text}\0");
    let archive = Tar::new()
        .entry("L", EntryType::GNULongName, "", long(&name).as_bytes())
        .entry("K", EntryType::GNULongLink, "", long(&target).as_bytes())
        .link("short", "short")
        .done();
    let mut image = open("long-both", &archive).unwrap();
    assert_eq!(names(&mut image, ""), [name]);
}
