//! What a guest starts with: the user's files, the program, its arguments and environment.

use super::options::RunOptions;
use super::out::Outs;
use super::root::{RootChoice, View};
use super::user::User;
use crate::archive::{
    GUEST_PATH, GuestPath, Initramfs, Node, Source, add_files, add_libraries, nul_terminated,
    pack_busybox, pack_program,
};
use crate::failure::Failure;
use crate::guest;
use crate::machine::KernelKind;
use ebb_wire::user::USER;
use ebb_wire::{boot, root};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The guest's first file system.
pub(super) fn pack(
    options: &RunOptions,
    mut view: Option<&mut View>,
) -> Result<(Initramfs, Option<User>), Failure> {
    let mut tree = Initramfs::default();
    add_files(&mut tree, &options.files)?;
    let user = options.user.as_ref();
    let user = user.map(|user| user.look_up(&tree, view.as_deref_mut()));
    let user = user.transpose()?;
    if let Some(user) = &user {
        tree.give_all([user.uid, user.gid]);
    }
    add_libraries(&mut tree)?;
    let argv = match view {
        Some(view) => {
            let mut seen = |path: &[u8]| view.real_path_of(path.strip_prefix(b"/")?);
            pack_program(&mut tree, &options.program, &mut seen)?
        }
        None => pack_program(&mut tree, &options.program, &mut |_| None)?,
    };
    if options.busybox {
        pack_busybox(&mut tree, "--busybox")?;
    }
    for (path, mode) in [
        ("/dev", 0o755),
        ("/proc", 0o555),
        ("/sys", 0o555),
        ("/tmp", 0o1777),
        ("/root", 0o700),
    ] {
        tree.add_missing(GuestPath::parse(path.as_bytes())?, Node::Directory { mode })?;
    }
    add_hosts(&mut tree)?;
    if let Some(user) = &user {
        user.settle(&mut tree)?;
        let file = Node::File {
            mode: 0o400,
            source: Source::Bytes(user.to_file()),
        };
        tree.add(GuestPath::parse(USER.as_bytes())?, file)?;
    }
    let environment = environment(options, user.as_ref())?;
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
    Ok((tree, user))
}

/// What the loopback interface is called: C libraries look that up in this file, and else ask a
/// name server, of which there is none.
fn add_hosts(tree: &mut Initramfs) -> Result<(), Failure> {
    let etc = GuestPath::parse(b"/etc")?;
    // A program's own /etc may be a link; then it has to bring the file itself.
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

/// Whether a variable says where on earth the host's user is: time zone, language.
fn is_of_place(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b"TZ" | b"LANG" | b"LANGUAGE") || name.as_bytes().starts_with(b"LC_")
}

/// Leaves out what the guest sees of the host anyway, and what stands in for that.
pub(super) fn leave_to(view: &mut View, tree: &mut Initramfs) {
    let own = boot::FOLDER.as_bytes();
    tree.leave_out(|path, node| {
        let path = path.as_bytes();
        if path.starts_with(own) {
            return false;
        }
        let Some(seen) = view.real_path_of(&path[1..]) else {
            return false;
        };
        match node {
            // Another file is what was asked for.
            Node::File {
                source: Source::Host(source),
                ..
            } => source.canonicalize().is_ok_and(|source| source == seen),
            // Of busybox, or the same.
            Node::Symlink { target } => {
                target.ends_with(b"busybox") || view.link_at(&path[1..]).as_ref() == Some(target)
            }
            Node::Directory { .. } | Node::File { .. } => true,
        }
    });
}

/// Where the guest sees the working folder; else its root.
pub(super) fn working_folder(view: &View) -> Vec<u8> {
    let here = std::env::current_dir().unwrap_or_default();
    view.path_of(&here).unwrap_or_else(|| b"/".to_vec())
}

/// Packs the path of the working folder.
pub(super) fn pack_folder(tree: &mut Initramfs, view: &View) -> Result<(), Failure> {
    let seen = working_folder(view);
    let node = Node::File {
        mode: 0o400,
        source: Source::Bytes(seen),
    };
    tree.add(GuestPath::parse(root::FOLDER.as_bytes())?, node)?;
    Ok(())
}

/// What sends files to the host at the end; a kernel that has a first process of ours anyway has that already.
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

fn environment(options: &RunOptions, user: Option<&User>) -> Result<Vec<OsString>, Failure> {
    let mut variables: BTreeMap<OsString, OsString> = BTreeMap::new();
    variables.insert("PATH".into(), GUEST_PATH.into());
    variables.insert("HOME".into(), "/root".into());
    for (name, value) in user.iter().flat_map(|user| user.variables()) {
        variables.insert(name.into(), value.to_owned());
    }
    if options.root() == RootChoice::Host {
        // Programs of the host's print as they do here.
        variables.extend(std::env::vars_os().filter(|(name, _)| is_of_place(name)));
    }
    let tty = options.tty;
    let terminal =
        std::env::var_os("TERM").unwrap_or_else(|| if tty { "xterm" } else { "dumb" }.into());
    variables.insert("TERM".into(), terminal);
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
        variables.insert(name.to_owned(), value);
    }
    let joined = |(name, value): (&OsString, &OsString)| {
        let mut text = name.clone();
        text.push("=");
        text.push(value);
        text
    };
    Ok(variables.iter().map(joined).collect())
}
