//! Tests that links of other users in folders that others may write to are not followed, for each
//! option that names a path. No guest is started.

#[path = "parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;

use scratch::Scratch;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The user id of another user.
const OTHER: u32 = 20_002;

fn ebb(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("EBB_KERNEL_IMAGE");
    command.output().expect("ebb starts")
}

/// Every option that names a file to read, with `@` for the path.
const OPTIONS: &[(&str, &[&str])] = &[
    (
        "file",
        &["run", "--root", "none", "--file", "@", "--", "true"],
    ),
    (
        "folder",
        &["run", "--root", "none", "--file", "@", "--", "true"],
    ),
    (
        "file",
        &["run", "--root", "none", "--file", "@:/x", "--", "true"],
    ),
    ("folder", &["run", "--volume", "@:/x", "--", "true"]),
    ("folder", &["run", "--root", "@", "--", "true"]),
    ("file", &["run", "--root", "@", "--", "true"]),
    (
        "file",
        &["run", "--root", "none", "--disk", "@", "--", "true"],
    ),
    (
        "file",
        &["run", "--root", "none", "--kernel", "linux:@", "--", "true"],
    ),
    (
        "folder",
        &["run", "--root", "none", "--kernel", "linux:@", "--", "true"],
    ),
    (
        "file",
        &["run", "--root", "none", "--kernel-image", "@", "--", "true"],
    ),
    ("program", &["run", "--root", "none", "--", "@"]),
    ("file", &["compare", "--from", "@"]),
    ("file", &["compare", "--from", "@own", "--against", "@"]),
    ("file", &["metrics", "--token-file", "@"]),
    ("socket", &["reclaim", "--qmp", "@"]),
    ("socket", &["reclaim", "--qmp", "@", "--deflate"]),
    (
        "file",
        &["blk", "serve", "--control", "@control", "--disk", "d=@"],
    ),
    ("socket", &["blk", "get", "--control", "@"]),
];

#[test]
fn links_of_others_are_not_followed_by_any_option() {
    if !rustix::process::geteuid().is_root() {
        // Without root, the test cannot create links of another user.
        return;
    }
    let scratch = Scratch::new("links");
    let real = scratch.folder().join("home");
    let shared = scratch.folder().join("shared");
    fs::create_dir_all(real.join("folder")).expect("a folder");
    fs::create_dir(&shared).expect("a folder");
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).expect("a mode");
    fs::write(real.join("file"), [0; 4096]).expect("a file");
    fs::set_permissions(real.join("file"), Permissions::from_mode(0o600)).expect("a mode");
    fs::copy("/bin/true", real.join("program")).expect("a program");
    let _socket = UnixListener::bind(real.join("socket")).expect("a socket");
    let links = ["file", "folder", "program", "socket"].map(|name| (name, real.join(name)));
    for (name, target) in links.iter().chain(&[("middle", real.clone())]) {
        let link = shared.join(name);
        symlink(target, &link).expect("a link");
        lchown(&link, Some(OTHER), Some(OTHER)).expect("root may do that");
    }
    let own = real.join("own.json");
    fs::write(&own, "{}").expect("a file");
    for (kind, arguments) in OPTIONS {
        for (way, link) in [
            (shared.join(kind), shared.join(kind)),
            (shared.join("middle").join(kind), shared.join("middle")),
        ] {
            let with = |path: &Path| {
                let path = path.to_str().expect("a plain path");
                let words = arguments.iter().map(|word| {
                    word.replace("@own", own.to_str().expect("a plain path"))
                        .replace("@control", &scratch.path("control"))
                        .replace('@', path)
                });
                let words: Vec<String> = words.collect();
                ebb(&words.iter().map(String::as_str).collect::<Vec<_>>())
            };
            let refused = with(&way);
            let message = String::from_utf8_lossy(&refused.stderr);
            let named = format!(
                "{} is a link of another user in a folder that others may write to",
                link.display()
            );
            assert!(message.contains(&named), "{arguments:?}: {message}");
            assert!(!refused.status.success() && refused.stdout.is_empty());
        }
    }
    // The user's own link there is followed, and the error is about its target.
    let link = shared.join("mine");
    symlink(real.join("file"), &link).expect("a link");
    let link = link.to_str().expect("a plain path");
    let followed = ebb(&["compare", "--from", link]);
    let message = String::from_utf8_lossy(&followed.stderr);
    assert!(!message.contains("another user"), "{message}");
    let packed = [
        "run",
        "--root",
        "none",
        "--dump-initramfs",
        "/dev/null",
        "--file",
        link,
    ];
    let packed = ebb(&[&packed[..], &["--", "true"]].concat());
    assert!(packed.status.success(), "{packed:?}");
}

#[test]
fn links_of_the_kernel_lead_where_they_lead() {
    let scratch = Scratch::new("kernel-links");
    let path = scratch.write("report.json", "no report");
    for name in ["/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        command.args(["compare", "--from", name]);
        command.stdin(fs::File::open(&path).expect("it was written"));
        let output = command.output().expect("ebb starts");
        let message = String::from_utf8_lossy(&output.stderr);
        // The file was read: the error is that it is no JSON.
        assert!(message.contains("expected"), "{name}: {message}");
    }
}
