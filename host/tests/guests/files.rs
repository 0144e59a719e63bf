//! Tests of files that are copied out of guests with Ebb's kernel.

use crate::guest::ebb;
use crate::out;
use crate::scratch::Scratch;

#[test]
fn what_a_program_leaves_is_copied() {
    out::what_a_program_leaves_is_copied(ebb);
}

#[test]
fn what_is_left_out_is_said() {
    out::what_is_left_out_is_said(ebb);
}

#[test]
fn a_program_out_of_time_leaves_its_files() {
    out::a_program_out_of_time_leaves_its_files(ebb, "10");
}

#[test]
fn what_cannot_be_copied_is_an_error() {
    out::what_cannot_be_copied_is_an_error(ebb);
}

#[test]
fn a_kernel_that_panics_leaves_nothing_and_that_is_said() {
    let scratch = Scratch::new("out-panic");
    let arguments = format!("/r:{}", scratch.path("r"));
    let script = "echo x > /r; echo c > /proc/sysrq-trigger; sleep 60";
    let output = ebb(&["--out", &arguments, "--", "sh", "-c", script]).output();
    let output = output.expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("--out /r: not copied: the guest ended"),
        "{stderr}"
    );
    assert!(stderr.contains("panicked"), "{stderr}");
    assert!(scratch.files().is_empty());
}

#[test]
fn disks_leave_their_places_and_a_full_memory_what_is_in_it() {
    let scratch = Scratch::new("out-full");
    let out = format!("/big:{}", scratch.path("big"));
    // The limit for memory of files is reached before that of programs.
    let script = "dd if=/dev/zero of=/big bs=64k 2>/dev/null; head -c 8 /dev/vdc | wc -c";
    let mut arguments = vec!["-m", "64M", "--out", &out];
    arguments.extend(["--disk", "ram:1M", "--disk", "ram:1M", "--disk", "ram:1M"]);
    arguments.extend(["--", "sh", "-c", script]);
    let output = ebb(&arguments).output().expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"8\n"[..]),
        "{stderr}"
    );
    let size = std::fs::metadata(scratch.path("big"))
        .expect("it is there")
        .len();
    assert!(size > 8 << 20, "{size}");
}

/// Writes an image with one layer and this configuration in the format of `docker save`. The layer
/// has busybox, and a link `/var/run` to `/run`.
fn image_with(scratch: &Scratch, name: &str, config: &str) -> String {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"];
    let busybox = busybox.iter().find_map(|path| std::fs::read(path).ok());
    let busybox = busybox.expect("no busybox here: apt-get install busybox-static");
    let header = |size: usize, mode: u32| {
        let mut header = tar::Header::new_gnu();
        header.set_size(size as u64);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header
    };
    let mut layer = tar::Builder::new(Vec::new());
    let added = layer.append_data(
        &mut header(busybox.len(), 0o755),
        "bin/busybox",
        &busybox[..],
    );
    added.expect("memory takes it");
    let mut link = header(0, 0o777);
    link.set_entry_type(tar::EntryType::Symlink);
    let added = layer.append_link(&mut link, "var/run", "/run");
    added.expect("memory takes it");
    let layer = layer.into_inner().expect("memory takes it");
    let manifest = br#"[{"Config": "c.json", "Layers": ["1.tar"]}]"#;
    let mut whole = tar::Builder::new(Vec::new());
    for (name, bytes) in [
        ("1.tar", &layer[..]),
        ("c.json", config.as_bytes()),
        ("manifest.json", manifest),
    ] {
        let added = whole.append_data(&mut header(bytes.len(), 0o644), name, bytes);
        added.expect("memory takes it");
    }
    scratch.write(name, whole.into_inner().expect("memory takes it"))
}

/// Shows that a numeric user without an entry, missing folders, and `PATH` are as Docker has them.
#[test]
fn an_image_has_its_user_and_folders_as_containers_have_them() {
    let scratch = Scratch::new("image-config");
    let config = r#"{"architecture": "amd64", "os": "linux", "config": {"User": "4321",
        "WorkingDir": "/srv/new", "Volumes": {"/var/run/data": {}}, "Cmd": ["/bin/busybox", "sh", "-c",
        "busybox id; pwd; echo $HOME $PATH; busybox ls -d /run/data; busybox readlink /var/run"]}}"#;
    let image = image_with(&scratch, "image.tar", config);
    let output = ebb(&["--root", &image]).output().expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "uid=4321 gid=0 groups=0\n/srv/new\n\
         / /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n/run/data\n/run\n",
        "{stderr}"
    );
    // A program that the image lacks is not taken from the host.
    let output = ebb(&["--root", &image, "--", "sh"]).output();
    let output = output.expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{stderr}");
    assert!(
        stderr.contains("`sh` is no program of the image"),
        "{stderr}"
    );
    let arguments = ["--root", &image, "--busybox", "--", "sh", "-c", "echo ran"];
    let output = ebb(&arguments).output().expect("ebb starts");
    assert_eq!(output.stdout, b"ran\n");
    let foreign = image_with(
        &scratch,
        "arm.tar",
        r#"{"architecture": "arm64", "os": "linux"}"#,
    );
    let output = ebb(&["--root", &foreign, "--", "sh"]).output();
    let output = output.expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("it is for linux/arm64"), "{stderr}");
}

/// Shows that an image with two layers and busybox is a root and runs its program.
#[test]
fn an_image_is_a_root_and_runs_its_program() {
    let scratch = Scratch::new("image");
    let busybox = ["/bin/busybox", "/usr/bin/busybox"];
    let busybox = busybox.iter().find_map(|path| std::fs::read(path).ok());
    let busybox = busybox.expect("no busybox here: apt-get install busybox-static");
    let archive = |entries: &[(&str, &[u8], u32)]| {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes, mode) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(*mode);
            header.set_uid(7);
            header.set_gid(8);
            header.set_mtime(1);
            let added = builder.append_data(&mut header, name, *bytes);
            added.expect("memory takes it");
        }
        builder.into_inner().expect("memory takes it")
    };
    let lower = archive(&[
        ("bin/busybox", &busybox, 0o755),
        ("etc/gone", b"x", 0o644),
        ("etc/passwd", b"ann:x:1234:55::/home/ann:/bin/sh\n", 0o644),
        ("etc/name", b"lower\n", 0o640),
        (
            "srv/run",
            b"#!/bin/busybox sh\necho ran in $PWD with $WORD $*\n",
            0o755,
        ),
    ]);
    let upper = archive(&[
        ("etc/.wh.gone", b"", 0o644),
        ("etc/name", b"upper\n", 0o600),
    ]);
    let config = |user: &str| {
        format!(
            r#"{{"config": {{"Entrypoint": ["/srv/run"], "Cmd": ["one", "two"], "User": "{user}",
            "Env": ["WORD=this", "PATH=/bin:/srv"], "WorkingDir": "/etc"}}}}"#
        )
    };
    let manifest = br#"[{"Config": "c.json", "Layers": ["1.tar", "2.tar"]}]"#;
    let image = |user: &str| {
        let bytes = archive(&[
            ("1.tar", &lower, 0o644),
            ("2.tar", &upper, 0o644),
            ("c.json", config(user).as_bytes(), 0o644),
            ("manifest.json", manifest, 0o644),
        ]);
        scratch.write(&format!("image{user}.tar"), bytes)
    };
    let (path, of_ann) = (image(""), image("ann"));
    let output_of = |path: &str, words: &[&str]| {
        let arguments = [&["--root", path], words].concat();
        let output = ebb(&arguments).output().expect("ebb starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let output = |words: &[&str]| output_of(&path, words);
    assert_eq!(output(&[]), "ran in /etc with this one two\n");
    assert_eq!(output(&["--", "run", "x"]), "ran in /etc with this x\n");
    let script = "cat name; busybox stat -c '%a %u %g %Y' name; echo $WORD; busybox ls /etc";
    let words = ["--env", "WORD=that", "--", "busybox", "sh", "-c", script];
    assert_eq!(
        output(&words),
        "upper\n600 7 8 1\nthat\nhosts\nname\npasswd\n"
    );
    let id = ["--", "busybox", "sh", "-c", "echo $(id -u):$(id -g) $HOME"];
    assert_eq!(output_of(&of_ann, &id), "1234:55 /home/ann\n");
    let as_root = [&["--user", "0"], &id[..]].concat();
    assert_eq!(output_of(&of_ann, &as_root), "0:0 /home/0\n");
}
