//! Packs the guest's first file system: the user's files, the program with its libraries, its
//! arguments and environment.

use super::options::RunOptions;
use super::out::Outs;
use super::root::{Root, RootChoice};
use super::unseen::Unseen;
use super::user::User;
use super::volumes::{VolumeOption, Volumes};
use crate::archive::{
    CommandPath, Examiner, GUEST_PATH, GuestPath, Initramfs, Node, Packer, Source, nul_terminated,
};
use crate::failure::Failure;
use crate::guest;
use crate::machine::KernelKind;
use crate::text::one_line;
use crate::text::stderr;
use ebb_wire::boot;
use ebb_wire::root::FOLDER;
use ebb_wire::user::USER;
use ebb_wire::volume::LIST;
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// A guest's first file system, and what its making found out.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) tree: Initramfs,
    /// The user of `--user`. `None` without that option.
    pub(super) user: Option<User>,
    /// Files that the program's arguments name and the guest does not see.
    pub(super) unseen: Unseen,
}

/// Builds the guest's first file system (initramfs) in memory. Prints remarks about packed files,
/// unless `--quiet`.
///
/// `root` has the files that the guest sees anyway. `volumes` are the parsed `--volume` options and
/// their opened directories. If `is_images`, the image names the program, and no file of the host
/// is packed for it. `examiner` is the process that reads the programs' headers.
///
/// # Errors
/// Fails if a file cannot be packed, if the user is not known, if an `--env` variable is malformed
/// or not set, or if the program is not found.
pub(super) fn pack(
    options: &RunOptions,
    root: Option<&mut Root>,
    volumes: (&[VolumeOption], Option<&Volumes>),
    is_images: bool,
    examiner: Examiner,
) -> Result<Packed, Failure> {
    let (listed, volumes) = volumes;
    let mut folders: Vec<&OwnedFd> = volumes.iter().flat_map(|all| all.folders()).collect();
    if let Some(Root::Host(view)) = root.as_deref() {
        folders.extend(view.whole_folder());
    }
    // Files in directories that the user has named may be packed without further checks.
    let folders: Result<Vec<_>, _> = folders
        .into_iter()
        .map(|folder| folder.try_clone())
        .collect();
    let folders = folders.map_err(Failure::setup("the folders that are named"))?;
    let root = RefCell::new(root);
    let seen = |path: &[u8]| {
        let mut root = root.borrow_mut();
        let of_root = || root.as_mut()?.real_path_of(path.strip_prefix(b"/")?);
        in_volume(listed, volumes, path).or_else(of_root)
    };
    let mut packer = Packer::new(Box::new(seen), examiner);
    packer.show = Box::new(|folder| {
        let mut root = root.borrow_mut();
        root.as_mut().is_some_and(|root| root.show(folder))
    });
    packer.path = match (path_asked(options), options.root()) {
        (Some(path), _) => CommandPath::given(&path),
        (None, RootChoice::Host) => CommandPath::of_shell(),
        (None, _) => CommandPath::default(),
    };
    for folder in &folders {
        let named = packer.named.add(folder);
        named.map_err(Failure::setup("the folders that are named"))?;
    }
    packer.show_toolchains_in_path();
    packer.add_files(&options.files)?;
    let user = options.user.as_ref();
    let user = user.map(|user| user.look_up(&packer.tree, root.borrow_mut().as_deref_mut()));
    let user = user.transpose()?;
    if let Some(user) = &user {
        packer.tree.give_all([user.uid, user.gid]);
    }
    packer.add_libraries()?;
    say_remarks(&mut packer, options.quiet);
    if options.busybox {
        packer.add_busybox("--busybox")?;
    }
    let of_image = {
        let root = root.borrow();
        let root = root.as_ref();
        root.and_then(|root| of_image(root, options, &packer.tree))
    };
    let is_image = matches!(root.borrow().as_deref(), Some(Root::Image(_)));
    let argv = match of_image {
        Some(argv) => argv,
        None if is_image && !is_packed(options, &packer.tree) => {
            of_busybox(options).ok_or_else(|| not_in_image(options, is_images))?
        }
        None => packer.add_program(&options.program)?,
    };
    say_remarks(&mut packer, options.quiet);
    let seen = &mut packer.seen;
    let path = packer.path.value(|folder| {
        let folder = seen(folder.as_os_str().as_bytes());
        folder.is_some_and(|folder| folder.is_dir())
    });
    let mut tree = packer.tree;
    for (path, mode) in [
        ("/dev", 0o755),
        ("/proc", 0o555),
        ("/sys", 0o555),
        ("/tmp", 0o1777),
        ("/root", 0o700),
    ] {
        tree.add_missing(GuestPath::parse(path.as_bytes())?, Node::Directory { mode })?;
    }
    if options.root() == RootChoice::Host {
        add_state_folders(&mut tree);
    }
    let unseen = Unseen::find(&options.program, &tree, &mut |path| {
        let is_of_root = |inside: &[u8]| {
            let mut root = root.borrow_mut();
            root.as_mut().is_some_and(|root| root.has(inside))
        };
        (packer.seen)(path).is_some() || path.strip_prefix(b"/").is_some_and(is_of_root)
    });
    add_hosts(&mut tree)?;
    if let Some(user) = &user {
        user.settle(&mut tree)?;
        let file = Node::File {
            mode: 0o400,
            source: Source::Bytes(user.to_file()),
        };
        tree.add(GuestPath::parse(USER.as_bytes())?, file)?;
    }
    let environment = environment(options, user.as_ref(), &path)?;
    let lists = [
        (
            boot::ARGUMENTS,
            nul_terminated(argv.iter().map(OsString::as_os_str)),
        ),
        (
            boot::ENVIRONMENT,
            nul_terminated(environment.iter().map(OsString::as_os_str)),
        ),
    ];
    for (path, bytes) in lists {
        let node = Node::File {
            mode: 0o400,
            source: Source::Bytes(bytes),
        };
        tree.add(GuestPath::parse(path.as_bytes())?, node)?;
    }
    Ok(Packed { tree, user, unseen })
}

/// Prints the packer's remarks unless `quiet`, and removes them.
fn say_remarks(packer: &mut Packer<'_>, quiet: bool) {
    for remark in packer.remarks.drain(..).filter(|_| !quiet) {
        stderr::say(&format!("ebb: {remark}"));
    }
}

/// Returns the value of `PATH` among the `--env` options. Returns `None` if none sets it.
fn path_asked(options: &RunOptions) -> Option<OsString> {
    let values = options.env.iter().rev().filter_map(|setting| {
        if setting == "PATH" {
            return std::env::var_os("PATH");
        }
        let value = setting.as_bytes().strip_prefix(b"PATH=")?;
        Some(OsStr::from_bytes(value).to_owned())
    });
    values.into_iter().next()
}

/// Returns the guest's path and the arguments of a command of the busybox that `--busybox` packs.
/// Returns `None` without that option, or if the name has a slash.
fn of_busybox(options: &RunOptions) -> Option<Vec<OsString>> {
    let (name, arguments) = options.program.split_first()?;
    let is_name = options.busybox && !name.as_bytes().contains(&b'/');
    is_name.then(|| {
        let path = Path::new("/bin").join(name).into_os_string();
        [path]
            .into_iter()
            .chain(arguments.iter().cloned())
            .collect()
    })
}

/// Returns the error for a program that an image does not have. Programs of the host are not packed
/// into an image by themselves. `is_images` if the image names the program.
fn not_in_image(options: &RunOptions, is_images: bool) -> Failure {
    let name = options.program.first();
    let name = one_line(name.map_or(OsStr::new(""), OsString::as_os_str)).to_string();
    if is_images {
        return Failure::Usage(format!(
            "the image's command {name} is no program of the image; give another: \
             `ebb run --root … -- PROGRAM`"
        ));
    }
    Failure::NotInImage(name)
}

/// Adds empty folders for what programs of the host keep while they run. The guest does not see
/// those of the host. Leaves out a folder below a packed file.
fn add_state_folders(tree: &mut Initramfs) {
    let folder = |mode| Node::Directory { mode };
    let link = |target: &str| Node::Symlink {
        target: target.into(),
    };
    for (path, node) in [
        ("/run", folder(0o755)),
        ("/run/lock", folder(0o1777)),
        ("/var/cache", folder(0o755)),
        ("/var/lock", link("/run/lock")),
        ("/var/log", folder(0o755)),
        ("/var/run", link("/run")),
        ("/var/spool", folder(0o755)),
        ("/var/tmp", folder(0o1777)),
    ] {
        if let Ok(path) = GuestPath::parse(path.as_bytes()) {
            // The only error is a packed file or link in the place of a folder above.
            let _ = tree.add_missing(path, node);
        }
    }
}

/// Returns the host path of the file that the guest sees at `path` in a volume. Returns `None` if
/// no volume has it.
fn in_volume(listed: &[VolumeOption], volumes: Option<&Volumes>, path: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(path));
    // Later volumes hide earlier ones.
    listed
        .iter()
        .enumerate()
        .rev()
        .find_map(|(number, volume)| {
            let rest = path
                .strip_prefix(OsStr::from_bytes(&volume.destination))
                .ok()?;
            volumes?.real_path_of(number, rest)
        })
}

/// Adds to `tree` the list of volumes that the guest mounts, in the order of `volumes`.
///
/// # Errors
/// Fails if `tree` cannot have a file at the path of the list, for example because another file is
/// there.
pub(super) fn pack_volumes(tree: &mut Initramfs, volumes: &[VolumeOption]) -> Result<(), Failure> {
    let words = volumes.iter().flat_map(|volume| {
        let access = if volume.read_only { "ro" } else { "rw" };
        [
            OsStr::new(access),
            OsStr::from_bytes(&volume.destination),
            volume.source.as_os_str(),
        ]
    });
    let node = Node::File {
        mode: 0o400,
        source: Source::Bytes(nul_terminated(words)),
    };
    tree.add(GuestPath::parse(LIST.as_bytes())?, node)?;
    Ok(())
}

/// Returns whether the program's name is the path of a packed file.
fn is_packed(options: &RunOptions, tree: &Initramfs) -> bool {
    let name = options.program.first();
    let path = name.and_then(|name| GuestPath::parse(name.as_bytes()).ok());
    path.is_some_and(|path| matches!(tree.get(&path), Some(Node::File { .. })))
}

/// Returns the program's path in the image and its arguments. Returns `None` if the root is no
/// image, does not have the program, or a packed file has its path.
fn of_image(root: &Root, options: &RunOptions, tree: &Initramfs) -> Option<Vec<OsString>> {
    let name = options.program.first()?;
    if is_packed(options, tree) {
        return None;
    }
    let path = path_asked(options).and_then(|path| path.into_string().ok());
    let path = path.unwrap_or_else(|| GUEST_PATH.to_owned());
    let found = root.program_of_image(name.as_bytes(), &path)?;
    let mut argv = vec![OsString::from_vec(found)];
    argv.extend(options.program[1..].iter().cloned());
    Some(argv)
}

/// Packs `/etc/hosts` with the names of the loopback interface. C libraries read it before they ask
/// a name server, which the guest does not have.
fn add_hosts(tree: &mut Initramfs) -> Result<(), Failure> {
    let etc = GuestPath::parse(b"/etc")?;
    // If a program brings `/etc` as a link, it has to bring the file, too.
    if matches!(tree.get(&etc), None | Some(Node::Directory { .. })) {
        let text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
        let file = Node::File {
            mode: 0o644,
            source: Source::Bytes(text.into()),
        };
        tree.add_missing(etc.join(b"hosts")?, file)?;
    }
    Ok(())
}

/// Returns whether the variable `name` describes the user's time zone or language.
fn is_of_place(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b"TZ" | b"LANG" | b"LANGUAGE") || name.as_bytes().starts_with(b"LC_")
}

/// Removes from `tree` the files that the guest sees in `root` at the same path anyway. Also
/// removes generated files and then empty directories that `root` has at that path, and links to
/// busybox where `root` has a program of its own. Files of the guest's own directory `/.ebb` stay.
pub(super) fn leave_to(root: &mut Root, tree: &mut Initramfs) {
    let own = boot::FOLDER.as_bytes();
    tree.leave_out(|path, node| {
        let path = path.as_bytes();
        if path.starts_with(own) {
            return false;
        }
        if !root.has(&path[1..]) {
            return false;
        }
        match node {
            // A packed file stays if it is another one than the guest would see there.
            Node::File {
                source: Source::Host(file),
                ..
            } => {
                let seen = root.real_path_of(&path[1..]);
                seen.is_some_and(|seen| file.path.canonicalize().is_ok_and(|own| own == seen))
            }
            // A link to busybox, or the link that the guest would see there.
            Node::Symlink { target } => {
                target.ends_with(b"busybox") || root.link_at(&path[1..]).as_ref() == Some(target)
            }
            Node::Directory { .. } | Node::File { .. } => true,
        }
    });
}

/// Adds the folder `path` to `tree`, an absolute path, unless the guest sees one there. Links of
/// `root` in the path are followed, so that the folder does not hide them. Does nothing if links
/// lead in a circle, or if `path` is no path of a guest.
///
/// # Errors
/// Fails if `tree` has a file in the place of a folder above.
pub(super) fn pack_missing_folder(
    tree: &mut Initramfs,
    mut root: Option<&mut Root>,
    path: &[u8],
) -> Result<(), Failure> {
    const LINKS_MAX: usize = 16;
    let mut wanted = Path::new("/").join(OsStr::from_bytes(path));
    for _ in 0..LINKS_MAX {
        let link = root.as_mut().and_then(|root| first_link(root, &wanted));
        let Some((at, target)) = link else {
            let Ok(path) = GuestPath::parse(wanted.as_os_str().as_bytes()) else {
                return Ok(());
            };
            let is_seen = root.is_some_and(|root| root.has(&path.as_bytes()[1..]));
            if path.as_bytes() != b"/" && !is_seen {
                tree.add_missing(path, Node::Directory { mode: 0o755 })?;
            }
            return Ok(());
        };
        let rest = wanted.strip_prefix(&at).unwrap_or(Path::new("")).to_owned();
        let above = at.parent().unwrap_or(Path::new("/"));
        wanted = plain(&above.join(target).join(rest));
    }
    Ok(())
}

/// Returns the path of the first link of `root` on the way to `path`, and its target.
fn first_link(root: &mut Root, path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut ways: Vec<&Path> = path.ancestors().collect();
    ways.reverse();
    ways.into_iter().skip(1).find_map(|way| {
        let target = root.link_at(&way.as_os_str().as_bytes()[1..])?;
        Some((way.to_owned(), PathBuf::from(OsString::from_vec(target))))
    })
}

/// Returns the absolute path without `.` and `..`, which it resolves without looking at links.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// Adds to `tree` a file with the path `folder`, in which the program begins.
///
/// # Errors
/// Fails if `tree` cannot have a file at that file's path, for example because another file is
/// there.
pub(super) fn pack_folder(tree: &mut Initramfs, folder: Vec<u8>) -> Result<(), Failure> {
    let node = Node::File {
        mode: 0o400,
        source: Source::Bytes(folder),
    };
    tree.add(GuestPath::parse(FOLDER.as_bytes())?, node)?;
    Ok(())
}

/// Adds to `tree` the list of files that `outs` copies out of the guest, and for Ebb's kernel the
/// program that sends them. With Linux the first process sends them.
///
/// # Errors
/// Fails if that program cannot be loaded, or if `tree` has another file at one of the paths.
pub(super) fn pack_out(
    tree: &mut Initramfs,
    outs: &Outs,
    kernel: KernelKind,
) -> Result<(), Failure> {
    let words = outs.words();
    let file = |mode, bytes| Node::File {
        mode,
        source: Source::Bytes(bytes),
    };
    let list = nul_terminated(words.iter().map(OsString::as_os_str));
    tree.add(GuestPath::parse(boot::OUT.as_bytes())?, file(0o400, list))?;
    if kernel == KernelKind::Ebb {
        let init = guest::load_init()?.into_owned();
        tree.add(GuestPath::parse(boot::INIT.as_bytes())?, file(0o500, init))?;
    }
    Ok(())
}

/// Returns the program's environment: variables of `ebb`, those of `user`, some of the host's, and
/// those of `--env` in the order given. A variable that is set again keeps its place.
///
/// # Errors
/// Fails if an `--env` variable is malformed or not set.
fn environment(
    options: &RunOptions,
    user: Option<&User>,
    path: &OsStr,
) -> Result<Vec<OsString>, Failure> {
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    let mut set = |name: OsString, value: OsString| {
        if let Some((_, known)) = variables.iter_mut().find(|(known, _)| *known == name) {
            *known = value;
        } else {
            variables.push((name, value));
        }
    };
    set("PATH".into(), path.into());
    set("HOME".into(), "/root".into());
    for (name, value) in user.iter().flat_map(|user| user.variables()) {
        set(name.into(), value.to_owned());
    }
    if options.root() == RootChoice::Host {
        // Programs of the host then print times and messages as they do on the host.
        std::env::vars_os()
            .filter(|(name, _)| is_of_place(name))
            .for_each(|(name, value)| set(name, value));
    }
    let tty = options.tty;
    let terminal =
        std::env::var_os("TERM").unwrap_or_else(|| if tty { "xterm" } else { "dumb" }.into());
    set("TERM".into(), terminal);
    for setting in &options.env {
        let refuse = |why| Failure::Env {
            argument: setting.clone(),
            why,
        };
        let bytes = setting.as_bytes();
        let equals = bytes.iter().position(|byte| *byte == b'=');
        let name = OsStr::from_bytes(&bytes[..equals.unwrap_or(bytes.len())]);
        if name.is_empty() {
            return Err(refuse("a variable needs a name"));
        }
        let value = match equals {
            Some(at) => OsStr::from_bytes(&bytes[at + 1..]).to_owned(),
            None => std::env::var_os(name).ok_or_else(|| refuse("it is not set here"))?,
        };
        set(name.to_owned(), value);
    }
    let joined = |(mut text, value): (OsString, OsString)| {
        text.push("=");
        text.push(value);
        text
    };
    Ok(variables.into_iter().map(joined).collect())
}
