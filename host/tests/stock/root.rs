//! Tests of `--root` and `--volume`: the host's files below the guest's own, and folders that the
//! guest changes.

use crate::guest::{available, ebb, run};
use crate::running::check;
use crate::scratch::{Scratch, contents};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds one of the programs for the tests of Ebb's kernel and returns its path.
fn program(scratch: &Scratch, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/c");
    let built = scratch.folder().join(name);
    let status = Command::new("gcc")
        .args(["-O1", "-w", "-static", "-pthread", "-o"])
        .args([&built, &folder.join(format!("{name}.c"))])
        .status();
    let status = status.expect("gcc runs (apt-get install gcc libc6-dev)");
    assert!(status.success(), "{name}.c does not compile");
    built
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn the_hosts_files_are_seen_and_stay_as_they_are() {
    if !available() {
        return;
    }
    // A guest has its own `/dev`, so the folder must not be below it.
    let scratch = Scratch::within(&std::env::temp_dir(), "stock-root");
    fs::create_dir(scratch.folder().join("sub")).expect("a new folder");
    fs::write(scratch.folder().join("sub/file"), "of the host\n").expect("a new file");
    let script = "cat sub/file; echo changed > sub/file; mv sub other; cat other/file; rm -r other; ls; pwd; \
                  ls /usr/bin | wc -l; touch /etc/new && ls /etc/new; cat /etc/shadow; stat -c %F /etc/shadow; \
                  ls /home /.ebb /.ebb-root; cut -d' ' -f1-3 /proc/mounts | grep ' / '";
    let output = ebb(&["--root", "host", "--", "sh", "-c", script])
        .current_dir(scratch.folder())
        .output()
        .expect("ebb starts");
    let names = fs::read_dir("/usr/bin").expect("a folder").count();
    let here = scratch.folder().display();
    check(
        &output,
        0,
        &format!(
            "of the host\nchanged\n{here}\n{names}\n/etc/new\nregular file\noverlay / overlay\n"
        ),
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("ermission denied").count(), 1, "{stderr}");
    assert_eq!(stderr.matches("o such file").count(), 3, "{stderr}");
    let file = fs::read_to_string(scratch.folder().join("sub/file"));
    assert_eq!(file.expect("it stays"), "of the host\n");
}

#[test]
#[ignore = "long: make test-long"]
fn names_of_users_are_those_of_the_root() {
    let scratch = Scratch::new("stock-user");
    let root = scratch.folder().join("root");
    fs::create_dir_all(root.join("etc")).expect("a new folder");
    fs::write(root.join("etc/passwd"), "ann:x:77:78::/etc:/bin/sh\n").expect("a new file");
    fs::write(root.join("secret"), "").expect("a new file");
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(root.join("secret"), mode).expect("it is ours");
    let options = ["--root", text(&root), "--user", "ann"];
    let words = ["busybox", "sh", "-c", "id -u; id -g; echo $HOME; pwd; ls /"];
    let Some(output) = run(&[&options[..], &["--"], &words].concat()) else {
        return;
    };
    let all = "bin\ndev\netc\nproc\nroot\nsecret\nsys\ntmp\nusr\n";
    check(&output, 0, &format!("77\n78\n/etc\n/\n{all}"));
}

/// Shows that a program finds the same in a folder of the host as in a folder of its own.
#[test]
#[ignore = "long: make test-long"]
fn it_is_as_a_folder_of_ones_own() {
    if !available() {
        return;
    }
    let (own, shown, programs) = (
        Scratch::new("stock-own"),
        Scratch::new("stock-below"),
        Scratch::new("stock-programs"),
    );
    for scratch in [&own, &shown] {
        let tree = scratch.folder().join("tree");
        for folder in ["deep/er", "many", "nothing"] {
            fs::create_dir_all(tree.join(folder)).expect("a new folder");
        }
        let bytes: Vec<u8> = (0..1_000_003_u32).flat_map(u32::to_le_bytes).collect();
        for (name, content) in [
            ("text", &b"some text"[..]),
            ("small", b"small"),
            ("big", &bytes[..1_000_003]),
            ("other", &bytes[..100_000]),
            ("third", &bytes[..70_000]),
            ("deep/er/leaf", b""),
        ] {
            fs::write(tree.join(name), content).expect("a new file");
        }
        for number in 0..1500 {
            let name = format!("many/entry-{number:04}");
            fs::write(tree.join(name), number.to_string()).expect("a new file");
        }
        symlink("deep/../text", tree.join("link")).expect("a new link");
        symlink("/absent", tree.join("dangling")).expect("a new link");
        symlink("..", tree.join("deep/up")).expect("a new link");
    }
    let before = contents(shown.folder(), MetadataExt::mode);
    let below = program(&programs, "below");
    let expected = Command::new(&below).arg(own.folder().join("tree")).output();
    let expected = expected.expect("it runs");
    let options = ["-c", "2", "--root", text(shown.folder()), "--"];
    let output = run(&[&options[..], &[text(&below), "/tree", "drop"]].concat());
    let expected = String::from_utf8_lossy(&expected.stdout);
    check(&output.expect("it is available"), 0, &expected);
    assert!(
        before == contents(shown.folder(), MetadataExt::mode),
        "the host's files changed"
    );
}

/// Shows that a program can do the same in a volume as on the host.
#[test]
#[ignore = "long: make test-long"]
fn a_volume_is_a_folder_of_the_hosts() {
    if !available() {
        return;
    }
    let [own, shown, programs] = ["own", "shown", "programs"].map(Scratch::new);
    let volume = program(&programs, "volume");
    let expected = Command::new(&volume).arg(own.folder()).output();
    let expected = expected.expect("it runs");
    let at = format!("{}:/deep/er/v", shown.folder().display());
    let options = ["-c", "2", "--volume", &at, "--"];
    let output = run(&[&options[..], &[text(&volume), "/deep/er/v"]].concat());
    let expected = String::from_utf8_lossy(&expected.stdout);
    check(&output.expect("it is available"), 0, &expected);
    let (own, shown) = (
        contents(own.folder(), MetadataExt::mode),
        contents(shown.folder(), MetadataExt::mode),
    );
    assert!(own == shown, "{:?} {:?}", own.keys(), shown.keys());
}

#[test]
#[ignore = "long: make test-long"]
fn a_volume_for_reading_changes_nothing() {
    let (read, written) = (Scratch::new("stock-ro"), Scratch::new("stock-rw"));
    fs::write(read.folder().join("file"), "text").expect("a new file");
    let (at, other) = (
        format!("{}:/in:ro", read.folder().display()),
        format!("{}:/out", written.folder().display()),
    );
    let script = "cd /in; cat file; echo x > file; rm file; mkdir d; chmod 600 file; cp file /out/copy; \
                  mount -o remount,rw /in; echo x > file; cut -d' ' -f2-3 /proc/mounts | grep fuse";
    let options = ["--volume", &at, "--volume", &other];
    let words = ["--", "busybox", "sh", "-c", script];
    let Some(output) = run(&[&options[..], &words].concat()) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "text/in fuse.hostfs\n/out fuse.hostfs\n",
        "{stderr}"
    );
    assert!(
        stderr.matches("Read-only file system").count() >= 4,
        "{stderr}"
    );
    assert_eq!(
        fs::read(read.folder().join("file")).expect("a file"),
        b"text"
    );
    assert_eq!(
        fs::read(written.folder().join("copy")).expect("a copy"),
        b"text"
    );
}
