//! Questions of a hostile guest about the host's files.

use super::choice::Root;
use super::server::reply_to;
use super::tree::Tree;
use super::view::View;
use crate::system::opened;
use crate::system::secrets::{Homes, Secrets};
use ebb_wire::root::{
    ANSWER_MAX, Attributes, Entry, Frames, Names, Opcode, Question, SIBLINGS_MAX, answer, entries,
    leading_number, push_name,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// A directory that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ebb-root-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("tree")).unwrap();
        Self(path)
    }

    fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }

    fn view(&self) -> Tree {
        Tree::new(View::folder(&self.tree()).unwrap())
    }
}

/// Creates a tree of the host with the working directory `here`, in which `home` is the only home.
fn from(here: &Path, home: &Path) -> Tree {
    let mut homes = Homes::default();
    homes.add(home);
    Tree::new(View::host_with(here, homes).unwrap())
}

/// Creates directories, whose names end with a slash, and files with these modes.
fn furnish(at: &Path, entries: &[(&str, u32)]) {
    for (name, _) in entries {
        let path = at.join(name);
        if name.ends_with('/') {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
    }
    for (name, mode) in entries {
        fs::set_permissions(at.join(name), Permissions::from_mode(*mode)).unwrap();
    }
}

/// Converts a host path to the form that a guest uses.
fn said(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes()[1..].to_vec()
}

/// Reads the first bytes of a file.
fn read(tree: &mut Tree, path: &Path) -> Result<(), u32> {
    let path = said(path);
    let version = facts(tree, &path)?.version;
    put(tree, Opcode::Read, &path, 0, version, &[0], &ram()).map(drop)
}

/// Reads files below `at` and compares the results with `answers`.
#[track_caller]
fn expect(tree: &mut Tree, at: &Path, answers: &[(&str, Result<(), u32>)]) {
    for (name, answer) in answers {
        assert_eq!(read(tree, &at.join(name)), *answer, "{name}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const ENOENT: u32 = 2;
const EACCES: u32 = 13;
const EFAULT: u32 = 14;
const ENOTDIR: u32 = 20;
const EINVAL: u32 = 22;
const ESTALE: u32 = 116;

/// Asks a question without frames and returns the answer.
fn ask(tree: &mut Tree, opcode: Opcode, path: &[u8], from: u64) -> Result<Vec<u8>, u32> {
    put(tree, opcode, path, from, 0, &[], &ram())
}

/// Creates a memory of three frames.
fn ram() -> File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = File::from(rustix::fs::memfd_create("ram", flags).unwrap());
    file.set_len(3 * 4096).unwrap();
    file
}

fn put(
    tree: &mut Tree,
    opcode: Opcode,
    path: &[u8],
    from: u64,
    version: u64,
    frames: &[u64],
    ram: &File,
) -> Result<Vec<u8>, u32> {
    let question = Question {
        opcode,
        path,
        from,
        version,
        frames: Frames::Addresses(frames),
        siblings: Names::default(),
    };
    reply(tree, &question, ram)
}

fn reply(tree: &mut Tree, question: &Question<'_>, ram: &File) -> Result<Vec<u8>, u32> {
    let mut buffer = vec![0; ANSWER_MAX];
    let frame_offset = |address: u64| (address < 3 * 4096).then_some(address);
    let (status, rest) = answer(reply_to(tree, question, ram, &frame_offset, &mut buffer)).unwrap();
    if status == 0 {
        Ok(rest.to_vec())
    } else {
        Err(status)
    }
}

fn facts(tree: &mut Tree, path: &[u8]) -> Result<Attributes, u32> {
    let rest = ask(tree, Opcode::Lookup, path, 0)?;
    Ok(entries(&rest).next().unwrap().attributes)
}

fn names(tree: &mut Tree, path: &[u8]) -> Result<Vec<String>, u32> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let rest = ask(tree, Opcode::List, path, from)?;
        let (next, rest) = leading_number(&rest).unwrap();
        let name = |entry: Entry<'_>| String::from_utf8_lossy(entry.name).into_owned();
        all.extend(entries(rest).map(name));
        if next == 0 {
            all.sort();
            return Ok(all);
        }
        assert!(next > from);
        from = next;
    }
}

#[test]
fn no_path_leads_out() {
    let folder = Folder::new("out");
    fs::write(folder.0.join("secret"), "outside").unwrap();
    fs::write(folder.tree().join("inside"), "inside").unwrap();
    symlink("../secret", folder.tree().join("up")).unwrap();
    symlink(folder.0.join("secret"), folder.tree().join("straight")).unwrap();
    symlink("/inside", folder.tree().join("home")).unwrap();
    symlink("..", folder.tree().join("above")).unwrap();
    let tree = &mut folder.view();
    let link = |tree: &mut Tree, path| {
        ask(tree, Opcode::Lookup, path, 0)
            .map(|rest| entries(&rest).next().unwrap().target.to_vec())
    };
    assert_eq!(link(tree, b"up").unwrap(), b"../secret");
    let size = |tree: &mut Tree, path: &[u8]| {
        let rest = ask(tree, Opcode::Follow, path, 0)?;
        Ok(entries(&rest).next().unwrap().attributes.size)
    };
    assert_eq!(size(tree, b"home"), Ok(6));
    for path in [
        &b"up"[..],
        b"straight",
        b"../secret",
        b"above/secret",
        b"/../secret",
    ] {
        assert_eq!(
            size(tree, path),
            Err(ENOENT),
            "{}",
            String::from_utf8_lossy(path)
        );
    }
    // The guest's kernel resolves such paths itself, so it never asks for them.
    for path in [
        &b"/inside"[..],
        b"../inside",
        b"above/../inside",
        b"./inside/",
        b"./inside",
    ] {
        assert_eq!(
            size(tree, path),
            Err(ENOENT),
            "{}",
            String::from_utf8_lossy(path)
        );
    }
    assert_eq!(size(tree, b"inside\0"), Err(EINVAL));
    assert_eq!(size(tree, b"inside/x"), Err(ENOTDIR));
    assert_eq!(size(tree, &[b'x'; 4095]), Err(36));
}

#[test]
fn what_is_the_kernels_own_is_not_shown() {
    let tree = &mut Tree::new(View::folder(Path::new("/")).unwrap());
    for path in [
        &b"proc"[..],
        b"proc/self/environ",
        b"proc/1/root/etc",
        b"sys/kernel",
    ] {
        assert_eq!(
            facts(tree, path),
            Err(EACCES),
            "{}",
            String::from_utf8_lossy(path)
        );
    }
    assert!(facts(tree, b"etc/passwd").is_ok());
    let shown = names(tree, b"").unwrap();
    assert!(!shown.iter().any(|name| name == "proc") && shown.iter().any(|name| name == "usr"));
}

#[test]
fn of_the_host_only_what_any_user_sees() {
    let folder = Folder::new("host");
    fs::write(folder.tree().join("mine"), "mine").unwrap();
    let mode = Permissions::from_mode(0o600);
    fs::set_permissions(folder.tree().join("mine"), mode).unwrap();
    let tree = &mut Tree::new(View::host_with(&folder.tree(), Homes::of_host()).unwrap());
    let here = folder.tree().into_os_string().into_encoded_bytes()[1..].to_vec();
    let mine = [&here[..], b"/mine"].concat();
    let version = facts(tree, &mine).unwrap().version;
    let ram = ram();
    assert!(put(tree, Opcode::Read, &mine, 0, version, &[0], &ram).is_ok());
    let shadow = facts(tree, b"etc/shadow").unwrap();
    assert_eq!(
        put(
            tree,
            Opcode::Read,
            b"etc/shadow",
            0,
            shadow.version,
            &[0],
            &ram
        ),
        Err(EACCES)
    );
    for path in [&b"root"[..], b"home", b"var/log", b"boot", b"tmp/.."] {
        let found = facts(tree, path);
        let on_the_way = here.starts_with(path) || path.ends_with(b"..");
        assert!(
            on_the_way || found == Err(ENOENT),
            "{}",
            String::from_utf8_lossy(path)
        );
    }
    let first = here.split(|byte| *byte == b'/').next().unwrap();
    let shown = names(tree, b"").unwrap();
    assert!(shown.contains(&String::from_utf8_lossy(first).into_owned()));
    assert!(shown.iter().any(|name| name == "usr") && !shown.iter().any(|name| name == "boot"));
    // Of `/var` there is only what leads to `/var/lib`.
    assert!(names(tree, b"var").is_ok_and(|names| names == ["lib"] || here.starts_with(b"var")));
    assert_eq!(names(tree, &here).unwrap(), ["mine"]);
    // Nothing else is shown of the directories that lead to the working directory.
    let above = folder.0.clone().into_os_string().into_encoded_bytes()[1..].to_vec();
    assert_eq!(names(tree, &above).unwrap(), ["tree"]);
}

#[test]
fn a_folder_that_is_shown_is_there_with_the_way_to_it() {
    let folder = Folder::new("shown");
    furnish(
        &folder.0,
        &[
            ("other/secret", 0o644),
            ("ann/.pyenv/versions/3/bin/python", 0o755),
            ("ann/.pyenv/versions/3/.netrc", 0o600),
            ("ann/.pyenv/own", 0o644),
            ("ann/.pyenv/", 0o700),
        ],
    );
    let mut homes = Homes::default();
    homes.add(&folder.0.join("ann"));
    let mut view = View::host_with(&folder.tree(), homes).unwrap();
    let version = folder.0.join("ann/.pyenv/versions/3");
    assert!(view.show(&version) && view.show(&version));
    let tree = &mut Tree::new(view.try_clone().unwrap());
    assert_eq!(read(tree, &version.join("bin/python")), Ok(()));
    assert_eq!(read(tree, &version.join(".netrc")), Err(EACCES));
    assert_eq!(read(tree, &folder.0.join("ann/.pyenv/own")), Err(ENOENT));
    let pyenv = said(&folder.0.join("ann/.pyenv"));
    assert_eq!(names(tree, &pyenv).unwrap(), ["versions"]);
    assert_eq!(names(tree, &said(&folder.0)).unwrap(), ["ann", "tree"]);
}

#[test]
fn a_system_folder_as_working_folder_has_its_secrets() {
    for here in ["/etc", "/usr", "/"] {
        let tree = &mut Tree::new(View::host_with(Path::new(here), Homes::of_host()).unwrap());
        assert_eq!(read(tree, Path::new("/etc/shadow")), Err(EACCES), "{here}");
        assert_eq!(read(tree, Path::new("/etc/passwd")), Ok(()), "{here}");
    }
}

#[test]
fn a_home_has_its_secrets() {
    let folder = Folder::new("home");
    let home = folder.tree();
    furnish(
        &home,
        &[
            ("plain", 0o600),
            (".profile", 0o644),
            (".private", 0o600),
            (".ssh/", 0o700),
            (".ssh/id_ed25519", 0o600),
            (".ssh/config", 0o644),
            (".docker/", 0o755),
            (".docker/config.json", 0o644),
            (".docker/other", 0o644),
            (".npmrc", 0o644),
            (".cache/", 0o755),
            (".cache/open", 0o644),
            (".cache/closed/", 0o700),
            (".cache/closed/open", 0o644),
            ("work/", 0o700),
            ("work/.env", 0o600),
            ("work/.npmrc", 0o600),
            ("work/.docker/config.json", 0o644),
            ("work/.hidden", 0o600),
        ],
    );
    symlink("../.ssh/id_ed25519", home.join("work/key")).unwrap();
    symlink(".ssh", home.join("keys")).unwrap();
    fs::set_permissions(&home, Permissions::from_mode(0o750)).unwrap();
    let tree = &mut from(&home, &home);
    expect(
        tree,
        &home,
        &[
            ("plain", Ok(())),
            (".profile", Ok(())),
            (".private", Err(EACCES)),
            (".ssh/id_ed25519", Err(EACCES)),
            (".ssh/config", Err(EACCES)),
            // The directories in `.docker` are searchable by all, but the home is not.
            (".docker/config.json", Err(EACCES)),
            (".docker/other", Ok(())),
            (".npmrc", Err(EACCES)),
            (".cache/open", Ok(())),
            (".cache/closed/open", Err(EACCES)),
            ("work/.env", Ok(())),
            ("work/.npmrc", Ok(())),
            // Files below `work` are not visible to other users.
            ("work/.docker/config.json", Err(EACCES)),
            ("work/.hidden", Ok(())),
            ("keys/config", Err(EACCES)),
        ],
    );
    let follow = |tree: &mut Tree, name: &str| {
        ask(tree, Opcode::Follow, &said(&home.join(name)), 0).map(drop)
    };
    assert_eq!(follow(tree, "work/key"), Err(EACCES));
    assert_eq!(follow(tree, "keys"), Ok(()));
    // The name and size of a secret are visible.
    let shown = names(tree, &said(&home)).unwrap();
    for name in [".ssh", ".private", ".docker", ".npmrc", "work"] {
        assert!(shown.iter().any(|shown| shown == name), "{name}: {shown:?}");
    }
    let size = facts(tree, &said(&home.join(".private"))).unwrap().size;
    assert_eq!(size, ".private".len() as u64);
    for name in [".ssh", "keys", ".cache/closed"] {
        assert_eq!(names(tree, &said(&home.join(name))), Err(EACCES), "{name}");
    }
    // The names in secret directories are not listed with other directories either.
    let mut siblings = [0; SIBLINGS_MAX];
    let len = push_name(&mut siblings, 0, b".ssh").unwrap();
    let len = push_name(&mut siblings, len, b".docker").unwrap();
    let question = Question {
        opcode: Opcode::List,
        path: &said(&home.join(".cache")),
        from: 0,
        version: 0,
        frames: Frames::Addresses(&[]),
        siblings: Names::new(&siblings[..len]),
    };
    let rest = reply(tree, &question, &ram()).unwrap();
    let (_, rest) = leading_number(&rest).unwrap();
    let headings: Vec<_> = entries(rest)
        .filter(|entry| entry.name.is_empty())
        .map(|entry| entry.target.to_vec())
        .collect();
    assert_eq!(headings, [b".docker"]);
    let root = &mut Root::Host(View::host_with(&home, Homes::default()).unwrap());
    let key = said(&home.join(".ssh/id_ed25519"));
    assert_eq!((root.content(&key), root.real_path_of(&key)), (None, None));
    assert!(root.content(&said(&home.join("plain"))).is_some());
    // If all users may search these directories, their readable files are no secrets.
    for folder in [&folder.0, &home] {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    }
    let is_open = |folder: &Path| fs::metadata(folder).unwrap().permissions().mode() & 1 != 0;
    let readable = if home.ancestors().all(is_open) {
        Ok(())
    } else {
        Err(EACCES)
    };
    let tree = &mut from(&home, &home);
    let answers = [(".npmrc", readable), (".private", Err(EACCES))];
    expect(tree, &home, &answers);
}

#[test]
fn the_way_to_the_working_folder_is_not_judged() {
    let folder = Folder::new("inside");
    let home = folder.tree();
    furnish(
        &home,
        &[
            (".local/", 0o700),
            (".local/src/", 0o700),
            (".local/src/mine", 0o600),
            (".local/src/.netrc", 0o600),
            (".config/", 0o700),
            (".config/mine", 0o600),
            (".config/gh/", 0o755),
            (".config/gh/hosts.yml", 0o644),
            (".ssh/", 0o700),
            (".ssh/config", 0o644),
            (".ssh/id_ed25519", 0o600),
            (".ssh/more/", 0o700),
            (".ssh/more/open", 0o644),
        ],
    );
    fs::set_permissions(&home, Permissions::from_mode(0o700)).unwrap();
    let at = |here: &str| (from(&home.join(here), &home), home.join(here));
    let (mut tree, here) = at(".local/src");
    expect(
        &mut tree,
        &here,
        &[("mine", Ok(())), (".netrc", Err(EACCES))],
    );
    assert_eq!(names(&mut tree, &said(&here)).unwrap(), [".netrc", "mine"]);
    assert_eq!(names(&mut tree, &said(&home)).unwrap(), [".local"]);
    let (mut tree, here) = at(".config");
    let answers = [("mine", Ok(())), ("gh/hosts.yml", Err(EACCES))];
    expect(&mut tree, &here, &answers);
    let (mut tree, here) = at(".ssh");
    let answers = [
        ("config", Ok(())),
        ("id_ed25519", Err(EACCES)),
        ("more/open", Err(EACCES)),
    ];
    expect(&mut tree, &here, &answers);
    let shown = names(&mut tree, &said(&here)).unwrap();
    assert_eq!(shown, ["config", "id_ed25519", "more"]);
}

#[test]
fn root_sees_of_others_what_any_user_sees() {
    if !rustix::process::geteuid().is_root() {
        // The host itself refuses files of other users.
        return;
    }
    let folder = Folder::new("others");
    let homes = folder.tree();
    let entries = [
        ("ann/", 0o700),
        ("ann/open", 0o644),
        ("ann/work/", 0o700),
        ("ann/work/mine", 0o600),
        ("ann/work/of-root", 0o600),
        ("ann/work/of-bob", 0o600),
        ("bob/", 0o755),
        ("bob/open", 0o644),
        ("bob/private", 0o640),
        ("bob/closed/", 0o711),
        ("bob/closed/open", 0o644),
        ("bob/unsearchable/", 0o744),
        ("bob/unsearchable/open", 0o644),
        ("of-root", 0o600),
    ];
    furnish(&homes, &entries);
    for (name, _) in entries {
        let owner = match name {
            _ if name.ends_with("of-root") => 0,
            "ann/work/of-bob" => 20_002,
            _ if name.starts_with("ann") => 20_001,
            _ => 20_002,
        };
        chown(homes.join(name), Some(owner), Some(owner)).unwrap();
    }
    let nowhere = Path::new("/nowhere");
    let tree = &mut from(&homes, nowhere);
    expect(
        tree,
        &homes,
        &[
            ("of-root", Ok(())),
            ("ann/open", Err(EACCES)),
            ("ann/work/mine", Err(EACCES)),
            ("bob/open", Ok(())),
            ("bob/private", Err(EACCES)),
            ("bob/closed/open", Ok(())),
            ("bob/unsearchable/open", Err(EACCES)),
        ],
    );
    assert_eq!(
        names(tree, &said(&homes)).unwrap(),
        ["ann", "bob", "of-root"]
    );
    for (name, shown) in [
        ("ann", Err(EACCES)),
        ("bob/closed", Err(EACCES)),
        ("bob/unsearchable", Ok(vec![])),
    ] {
        assert_eq!(names(tree, &said(&homes.join(name))), shown, "{name}");
    }
    let work = homes.join("ann/work");
    let tree = &mut from(&work, nowhere);
    let answers = [
        ("mine", Ok(())),
        ("of-root", Ok(())),
        ("of-bob", Err(EACCES)),
    ];
    expect(tree, &work, &answers);
    // Directories that lead to the working directory do not show the names of other entries.
    assert_eq!(names(tree, &said(&homes)).unwrap(), ["ann"]);
    assert_eq!(names(tree, &said(&homes.join("ann"))).unwrap(), ["work"]);
    assert_eq!(read(tree, &homes.join("bob/open")), Err(ENOENT));
}

/// Exchanges the names of two directories below `at`.
fn exchange(at: &Path, one: &str, other: &str) {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(CWD, at.join(one), CWD, at.join(other), flags).unwrap();
}

/// Creates a directory of one user that has a private and an open directory of another user.
/// Returns `None` if the test does not run as root, which alone can create them.
fn of_two_users(name: &str) -> Option<Folder> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let folder = Folder::new(name);
    let entries = [
        ("here/", 0o755),
        ("here/open/", 0o755),
        ("here/open/file", 0o644),
        ("here/bob/", 0o700),
        ("here/bob/file", 0o644),
        ("here/bob/in/", 0o755),
        ("here/bob/in/file", 0o644),
        ("here/bob/here/", 0o755),
        ("here/bob/here/file", 0o644),
        ("elsewhere/", 0o700),
        ("elsewhere/here/", 0o755),
        ("elsewhere/here/file", 0o644),
    ];
    furnish(&folder.tree(), &entries);
    chown(folder.tree(), Some(20_001), Some(20_001)).unwrap();
    for (name, _) in entries {
        let is_bobs = name.contains("bob") || name.contains("elsewhere");
        let owner = if is_bobs { 20_002 } else { 20_001 };
        chown(folder.tree().join(name), Some(owner), Some(owner)).unwrap();
    }
    Some(folder)
}

#[test]
fn another_folder_of_the_same_name_is_judged_anew() {
    let Some(folder) = of_two_users("exchanged") else {
        return;
    };
    let here = folder.tree().join("here");
    let tree = &mut from(&here, Path::new("/nowhere"));
    // Each question finds another directory under this name than the question before.
    for _ in 0..3 {
        expect(
            tree,
            &here,
            &[("open/file", Ok(())), ("bob/file", Err(EACCES))],
        );
        exchange(&here, "open", "bob");
        expect(
            tree,
            &here,
            &[("open/file", Err(EACCES)), ("bob/file", Ok(()))],
        );
        assert_eq!(names(tree, &said(&here.join("open"))), Err(EACCES));
        let closed = facts(tree, &said(&here.join("open/in/file")));
        assert_eq!(closed.map(drop), Err(EACCES));
        exchange(&here, "open", "bob");
        assert_eq!(names(tree, &said(&here.join("open"))).unwrap(), ["file"]);
    }
}

#[test]
fn a_name_that_leads_elsewhere_since_a_file_was_opened_tells_nothing() {
    let Some(folder) = of_two_users("opened") else {
        return;
    };
    let here = folder.tree().join("here");
    let open = |path: &Path| {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).unwrap()
    };
    let homes = Homes::default();
    let path = said(&here);
    let mut secrets = Secrets::new(&path, open(&here), homes).unwrap();
    let private = opened::facts(open(&here.join("bob/file")), b"").unwrap();
    let path = said(&here.join("bob/file"));
    assert_eq!(secrets.lets_read(&path, &private), Ok(false));
    exchange(&here, "open", "bob");
    // As if the directories were exchanged after the opening. The check still accepts a directory
    // that it knows.
    assert_eq!(secrets.lets_read(&path, &private), Ok(false));
    let mut secrets = secrets.with_empty_cache();
    assert_eq!(secrets.lets_read(&path, &private), Err(Errno::ACCESS));
    assert_eq!(secrets.shows(&path, &private), Err(Errno::ACCESS));
    let bobs = opened::facts(open(&here.join("open")), b"").unwrap();
    let path = said(&here.join("bob"));
    assert_eq!(secrets.shows_entries_of(&path, &bobs), Err(Errno::ACCESS));
    let path = said(&here.join("open"));
    assert_eq!(secrets.shows_entries_of(&path, &bobs), Ok(false));
}

#[test]
fn another_folder_in_the_place_of_the_working_folder_is_not_shown() {
    for (one, other) in [("tree/here", "tree/here/bob"), ("tree", "tree/elsewhere")] {
        let Some(folder) = of_two_users("replaced") else {
            return;
        };
        let here = folder.tree().join("here");
        let tree = &mut from(&here, Path::new("/nowhere"));
        expect(tree, &here, &[("open/file", Ok(()))]);
        // The other directory is moved out first, because two names cannot be exchanged if one is
        // inside the other.
        fs::rename(folder.0.join(other), folder.0.join("out")).unwrap();
        exchange(&folder.0, one, "out");
        assert!(here.join("file").exists());
        expect(tree, &here, &[("file", Err(EACCES))]);
        assert_eq!(names(tree, &said(&here)), Err(EACCES));
        let above = names(tree, &said(&folder.tree()));
        assert!(above == Ok(vec![]) || above == Err(EACCES), "{above:?}");
    }
}

#[test]
fn a_folder_that_the_host_closes_is_closed() {
    let folder = Folder::new("closed");
    let home = folder.tree();
    let entries = [
        (".cache/", 0o755),
        (".cache/in/", 0o755),
        (".cache/in/file", 0o644),
    ];
    furnish(&home, &entries);
    let tree = &mut from(&home, &home);
    let path = home.join(".cache/in/file");
    assert_eq!(read(tree, &path), Ok(()));
    let version = facts(tree, &said(&path)).unwrap().version;
    fs::set_permissions(home.join(".cache"), Permissions::from_mode(0o700)).unwrap();
    // Permissions of a directory are cached for at most a second.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(read(tree, &path), Err(EACCES));
    // The same is true for an open file.
    let again = put(tree, Opcode::Read, &said(&path), 0, version, &[0], &ram());
    assert_eq!(again, Err(EACCES));
}

#[test]
fn bytes_go_to_the_guests_frames_and_nowhere_else() {
    let folder = Folder::new("bytes");
    let path = folder.tree().join("file");
    let content: Vec<u8> = (0..9000_u32).map(|n| n.to_le_bytes()[0] ^ 0x55).collect();
    fs::write(&path, &content).unwrap();
    let tree = &mut folder.view();
    let version = facts(tree, b"file").unwrap().version;
    let ram = ram();
    let mut read = |from, version, frames: &[u64]| {
        let rest = put(tree, Opcode::Read, b"file", from, version, frames, &ram)?;
        Ok::<_, u32>(leading_number(&rest).unwrap().0)
    };
    assert_eq!(read(4096, version, &[8192, 0]), Ok(9000 - 4096));
    let mut there = vec![0; 3 * 4096];
    ram.read_exact_at(&mut there, 0).unwrap();
    assert_eq!(there[8192..], content[4096..8192]);
    assert_eq!(there[..808], content[8192..]);
    assert!(there[808..8192].iter().all(|byte| *byte == 0));
    assert_eq!(read(u64::MAX, version, &[0]), Err(EINVAL));
    assert_eq!(read(1 << 40, version, &[0]), Ok(0));
    assert_eq!(read(0, version, &[0, 3 * 4096]), Err(EFAULT));
    assert_eq!(read(0, version ^ 1, &[0]), Err(ESTALE));
}

#[test]
fn another_file_of_the_same_name_is_told() {
    let folder = Folder::new("stale");
    let path = folder.tree().join("file");
    fs::write(&path, "one").unwrap();
    let tree = &mut folder.view();
    let version = facts(tree, b"file").unwrap().version;
    fs::write(folder.tree().join("next"), "two").unwrap();
    fs::rename(folder.tree().join("next"), &path).unwrap();
    assert_eq!(
        put(tree, Opcode::Read, b"file", 0, version, &[0], &ram()),
        Err(ESTALE)
    );
    assert_ne!(facts(tree, b"file").unwrap().version, version);
}

#[test]
fn a_link_to_a_file_does_not_change_it() {
    let folder = Folder::new("linked");
    let path = folder.tree().join("file");
    fs::write(&path, "one").unwrap();
    let tree = &mut folder.view();
    let version = facts(tree, b"file").unwrap().version;
    let read = |tree: &mut _| put(tree, Opcode::Read, b"file", 0, version, &[0], &ram());
    assert!(read(tree).is_ok());
    fs::hard_link(&path, folder.tree().join("link")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    assert!(read(tree).is_ok());
    assert_eq!(facts(tree, b"file").unwrap().version, version);
}

#[test]
fn another_file_with_the_same_size_and_time_is_told() {
    let folder = Folder::new("again");
    let path = folder.tree().join("file");
    let time = std::time::SystemTime::UNIX_EPOCH;
    let write = |text: &str| {
        fs::write(&path, text).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    write("one");
    let tree = &mut folder.view();
    let version = facts(tree, b"file").unwrap().version;
    let read = |tree: &mut _| put(tree, Opcode::Read, b"file", 0, version, &[0], &ram());
    assert!(read(tree).is_ok());
    // A new file may get the same inode number.
    fs::remove_file(&path).unwrap();
    write("two");
    assert_eq!(read(tree), Err(ESTALE));
    assert_eq!(read(tree), Err(ESTALE));
}

#[test]
fn what_is_moved_out_of_sight_is_not_read() {
    let (folder, elsewhere) = (Folder::new("moved"), Folder::new("elsewhere"));
    let path = folder.tree().join("file");
    fs::write(&path, "one").unwrap();
    let tree = &mut Tree::new(View::host_with(&folder.tree(), Homes::of_host()).unwrap());
    let name = path.as_os_str().as_encoded_bytes()[1..].to_vec();
    let version = facts(tree, &name).unwrap().version;
    let read = |tree: &mut _| put(tree, Opcode::Read, &name, 0, version, &[0], &ram());
    assert!(read(tree).is_ok());
    fs::rename(&path, elsewhere.tree().join("file")).unwrap();
    assert_eq!(read(tree), Err(13));
}

#[test]
fn what_is_no_file_is_not_read() {
    let folder = Folder::new("kinds");
    let fifo = folder.tree().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    symlink("fifo", folder.tree().join("link")).unwrap();
    let tree = &mut folder.view();
    for path in [&b"fifo"[..], b"link", b""] {
        let version = facts(tree, path).unwrap().version;
        assert_eq!(
            put(tree, Opcode::Read, path, 0, version, &[0], &ram()),
            Err(EINVAL)
        );
    }
    assert_eq!(names(tree, b"fifo"), Err(ENOTDIR));
    assert_eq!(names(tree, b"absent"), Err(ENOENT));
}

#[test]
fn only_a_small_regular_file_is_looked_up() {
    let folder = Folder::new("content");
    let at = |name: &str| folder.tree().join(name);
    fs::write(at("file"), "text").unwrap();
    symlink("file", at("link")).unwrap();
    symlink("/etc/passwd", at("out")).unwrap();
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let large = File::create(at("large")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    let mut root = Root::Host(View::folder(&folder.tree()).unwrap());
    let text = Some(b"text".to_vec());
    assert_eq!(root.content(b"file"), text);
    assert_eq!(root.content(b"link"), text);
    for path in ["out", "fifo", "large", "absent", ""] {
        assert_eq!(root.content(path.as_bytes()), None, "{path}");
    }
}

#[test]
fn long_listings_come_in_pieces() {
    let folder = Folder::new("listing");
    for number in 0..2000 {
        fs::write(folder.tree().join(format!("{number:0>200}")), "").unwrap();
    }
    let tree = &mut folder.view();
    let all = names(tree, b"").unwrap();
    assert_eq!(all.len(), 2000);
    assert!(
        all.iter()
            .enumerate()
            .all(|(number, name)| *name == format!("{number:0>200}"))
    );
    // A listing may begin in the middle, or far behind the end.
    assert!(ask(tree, Opcode::List, b"", 5).is_ok());
    let rest = ask(tree, Opcode::List, b"", u64::MAX).unwrap();
    assert_eq!((leading_number(&rest).unwrap().0, rest.len()), (0, 8));
}

#[test]
fn folders_beside_the_one_that_is_listed_come_along_whole_or_not() {
    let folder = Folder::new("beside");
    let at = folder.tree().join("above");
    for name in ["asked", "empty", "few", "huge", "later"] {
        fs::create_dir_all(at.join(name)).unwrap();
    }
    fs::write(at.join("asked/own"), "").unwrap();
    fs::write(at.join("few/one"), "1").unwrap();
    fs::write(at.join("later/last"), "").unwrap();
    for number in 0..300 {
        fs::write(at.join(format!("huge/{number:0200}")), "").unwrap();
    }
    let mut tree = folder.view();
    let (mut siblings, mut len) = ([0; SIBLINGS_MAX], 0);
    for name in ["missing", "empty", "..", "few", "huge", "few/one", "later"] {
        len = push_name(&mut siblings, len, name.as_bytes()).unwrap();
    }
    let question = Question {
        opcode: Opcode::List,
        path: b"above/asked",
        from: 0,
        version: 0,
        frames: Frames::Addresses(&[]),
        siblings: Names::new(&siblings[..len]),
    };
    let rest = reply(&mut tree, &question, &ram()).unwrap();
    let (next, rest) = leading_number(&rest).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let came: Vec<_> = entries(rest)
        .map(|e| (text(e.name), text(e.target)))
        .collect();
    let came: Vec<_> = came
        .iter()
        .map(|(name, target)| (&**name, &**target))
        .collect();
    assert_eq!(next, 0);
    // A missing directory, one that is no sibling, and one that is too large get no heading.
    let expected = [
        ("own", ""),
        ("", "empty"),
        ("", "few"),
        ("one", ""),
        ("", "later"),
        ("last", ""),
    ];
    assert_eq!(came, expected);
    // Siblings that do not fit into the answer are left out.
    for number in 0..150 {
        fs::write(at.join(format!("asked/{number:0160}")), "").unwrap();
        fs::write(at.join(format!("few/{number:0160}")), "").unwrap();
    }
    let rest = reply(&mut tree, &question, &ram()).unwrap();
    let (next, rest) = leading_number(&rest).unwrap();
    let headings: Vec<_> = entries(rest)
        .filter(|e| e.name.is_empty())
        .map(|e| text(e.target))
        .collect();
    assert_eq!((next, headings), (0, vec!["empty".to_owned()]));
    assert_eq!(entries(rest).count(), 152);
}
