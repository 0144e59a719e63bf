//! Tests that private files of the host stay private, also in the working folder.

use crate::ebb;
use crate::root::command_from;
use crate::scratch::Scratch;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Creates folders, whose names end with a slash, and files, each with a mode and an owner. Without
/// root, all of them belong to the user who runs the tests.
fn furnish(at: &Path, entries: &[(&str, u32, u32)]) {
    for (name, _, _) in entries {
        let path = at.join(name);
        if name.ends_with('/') {
            fs::create_dir_all(path).expect("a new folder");
        } else {
            fs::write(path, format!("{name}\n")).expect("a new file");
        }
    }
    for (name, mode, owner) in entries {
        let path = at.join(name);
        if is_root() {
            chown(&path, Some(*owner), Some(*owner)).expect("root gives files away");
        }
        let mode = fs::Permissions::from_mode(*mode);
        fs::set_permissions(&path, mode).expect("it is ours");
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A script that prints for each name whether a guest can read it.
const READ: &str = "for name; do cat $name > /dev/null 2>&1 && echo $name || \
                    cat $name 2>&1 | sed 's/.*: /no: /'; done";

/// Runs `script` in a guest from the folder `here` after it has tried to read `names`. Returns the
/// output of both. `user` runs ebb if root runs the test.
fn look(here: &Path, home: &Path, user: u32, script: &str, names: &[&str]) -> String {
    let script = format!("{READ}; {script}");
    let program = [&["sh", "-c", &script, "sh"], names].concat();
    let mut command = command_from(here, &[], &program);
    command.env("HOME", home);
    if is_root() && user != 0 {
        command.uid(user).gid(user).env_remove("XDG_RUNTIME_DIR");
    }
    let outcome = ebb::finish(&mut command);
    outcome.out() + &outcome.err()
}

#[test]
fn a_system_folder_as_working_folder_has_its_secrets() {
    let etc = Path::new("/etc");
    let said = look(
        etc,
        Path::new("/root"),
        0,
        "pwd",
        &["/etc/shadow", "shadow", "passwd"],
    );
    let denied = "no: Permission denied\n";
    assert_eq!(said, format!("{denied}{denied}passwd\n/etc\n"));
}

#[test]
fn a_home_has_its_secrets() {
    for user in [0, 20_001] {
        let scratch = Scratch::within(&std::env::temp_dir(), "home");
        let entries = [
            ("home/", 0o750, user),
            ("home/plain", 0o600, user),
            ("home/.profile", 0o644, user),
            ("home/.private", 0o600, user),
            ("home/.npmrc", 0o644, user),
            ("home/.ssh/", 0o700, user),
            ("home/.ssh/id_ed25519", 0o600, user),
            ("home/.ssh/config", 0o644, user),
            ("home/work/", 0o700, user),
            ("home/work/.env", 0o600, user),
        ];
        furnish(scratch.folder(), &entries);
        let home = scratch.folder().join("home");
        let names = [
            "plain",
            ".profile",
            "work/.env",
            ".private",
            ".npmrc",
            ".ssh/id_ed25519",
            ".ssh/config",
        ];
        // The size of a secret is visible, and a new file can be created next to it.
        let script = "stat -c %s .private; ls -A .ssh 2>&1 | sed 's/.*: /no: /'; ls -A; \
                      echo new > .new && cat .new";
        let said = look(&home, &home, user, script, &names);
        let expected = format!(
            "plain\n.profile\nwork/.env\n{}14\nno: Permission denied\n\
             .npmrc\n.private\n.profile\n.ssh\nplain\nwork\nnew\n",
            "no: Permission denied\n".repeat(4)
        );
        assert_eq!(said, expected, "user {user}");
        // In the store itself, names are visible and keys cannot be read.
        let names = ["config", "id_ed25519"];
        let said = look(&home.join(".ssh"), &home, user, "pwd; ls", &names);
        let shown = home.join(".ssh").canonicalize().expect("it is there");
        let expected = format!(
            "config\nno: Permission denied\n{}\nconfig\nid_ed25519\n",
            shown.display()
        );
        assert_eq!(said, expected, "user {user}");
    }
}

/// Shows that root's guest sees the files of other users as every user does, except in a working
/// folder of such a user.
#[test]
fn a_folder_of_homes_shows_root_no_keys() {
    if !is_root() {
        // The host itself refuses access to files of other users.
        return;
    }
    let scratch = Scratch::within(&std::env::temp_dir(), "homes");
    let entries = [
        ("homes/", 0o755, 0),
        ("homes/notes", 0o600, 0),
        ("homes/ann/", 0o700, 20_001),
        ("homes/ann/open", 0o644, 20_001),
        ("homes/ann/work/", 0o755, 20_001),
        ("homes/ann/work/mine", 0o600, 20_001),
        ("homes/bob/", 0o755, 20_002),
        ("homes/bob/open", 0o644, 20_002),
        ("homes/bob/private", 0o640, 20_002),
    ];
    furnish(scratch.folder(), &entries);
    let homes = scratch.folder().join("homes");
    let names = [
        "notes",
        "bob/open",
        "ann/open",
        "ann/work/mine",
        "bob/private",
    ];
    let said = look(&homes, Path::new("/root"), 0, "ls", &names);
    let denied = "no: Permission denied\n".repeat(3);
    assert_eq!(said, format!("notes\nbob/open\n{denied}ann\nbob\nnotes\n"));
    let work = homes.join("ann/work");
    let said = look(&work, Path::new("/root"), 0, "ls ..; ls ../..", &["mine"]);
    assert_eq!(said, "mine\nwork\nann\n");
}

/// Shows that a removed working folder, and one on a pseudo file system, show no files, and that a
/// working folder behind a link is judged by its target.
#[test]
fn odd_working_folders() {
    let scratch = Scratch::within(&std::env::temp_dir(), "odd");
    furnish(
        scratch.folder(),
        &[("real/", 0o755, 0), ("real/file", 0o600, 0)],
    );
    let link = scratch.folder().join("link");
    std::os::unix::fs::symlink("/etc", &link).expect("a new link");
    let ebb = env!("CARGO_BIN_EXE_ebb");
    let run = format!("{ebb} run --quiet --accel tcg --timeout 300 -m 256M");
    for (enter, script, expected) in [
        (
            "cd LINK",
            "pwd; cat shadow 2>&1",
            "/etc\ncat: shadow: Permission denied\n",
        ),
        (
            "cd REAL/gone && rmdir ../gone",
            "pwd; ls -d /tmp/*/ 2>&1",
            "/\nls: cannot access '/tmp/*/': No such file or directory\n",
        ),
        (
            "cd /proc/self",
            "cat cmdline 2>/dev/null | tr '\\0' ' ' | grep -c ebb",
            "0\n",
        ),
    ] {
        fs::create_dir_all(scratch.folder().join("real/gone")).expect("a new folder");
        let enter = enter
            .replace("LINK", link.to_str().expect("its name is text"))
            .replace("REAL", &scratch.path("real"));
        let line = format!("{enter} && exec {run} -- sh -c \"$0\"");
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", &line, script])
            .env_remove("EBB_KERNEL_IMAGE");
        let outcome = ebb::finish(command.stdin(std::process::Stdio::null()));
        assert_eq!(outcome.out() + &outcome.err(), expected, "{enter}");
    }
}
