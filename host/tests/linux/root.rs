//! Tests of the host's files in the guest's root: they behave like the guest's own files, and the
//! host's files stay unchanged.

use crate::scratch::{Scratch, contents};
use crate::{ebb, native, programs};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Creates a folder with entries of every kind.
fn furnish(at: &Path) {
    let bytes = |count: u32, factor: u32| -> Vec<u8> {
        let byte = |n: u32| (n.wrapping_mul(factor) >> 7).to_le_bytes()[0];
        (0..count).map(byte).collect()
    };
    for folder in ["deep/er", "many", "nothing"] {
        fs::create_dir_all(at.join(folder)).expect("a new folder");
    }
    for (name, content) in [
        ("text", b"some text".to_vec()),
        ("small", b"small".to_vec()),
        ("big", bytes(1_000_003, 2_654_435_761)),
        ("other", bytes(100_000, 40_503)),
        ("third", bytes(70_000, 977)),
        ("deep/er/leaf", Vec::new()),
    ] {
        fs::write(at.join(name), content).expect("a new file");
    }
    for number in 0..1500 {
        let name = format!("many/entry-{number:04}");
        fs::write(at.join(name), number.to_string()).expect("a new file");
    }
    symlink("deep/../text", at.join("link")).expect("a new link");
    symlink("/absent", at.join("dangling")).expect("a new link");
    symlink("..", at.join("deep/up")).expect("a new link");
    let mode = fs::Permissions::from_mode(0o750);
    fs::set_permissions(at.join("deep"), mode).expect("it is ours");
}

#[test]
fn it_is_as_a_folder_of_ones_own() {
    let (own, shown) = (Scratch::new("below-own"), Scratch::new("below"));
    for scratch in [&own, &shown] {
        furnish(&scratch.folder().join("tree"));
    }
    let before = contents(shown.folder(), |facts| (facts.mode(), facts.mtime()));
    let program = programs::path("below");
    let tree = own.folder().join("tree");
    let expected = native::run(program, &[tree.to_str().expect("its name is text")], None);
    assert_eq!(expected.status, 0);
    let root = shown.folder().to_str().expect("its name is text");
    for cpus in ["1", "4"] {
        let options = ["-m", "256M", "-c", cpus, "--root", root];
        let program = [programs::text(program), "/tree".into(), "drop".into()];
        let outcome = ebb::run(300, &options, &program);
        let said = outcome.expect(0).out();
        assert_eq!(
            said,
            String::from_utf8_lossy(&expected.stdout),
            "{cpus} CPUs"
        );
        assert!(
            before == contents(shown.folder(), |facts| (facts.mode(), facts.mtime())),
            "the host's files have changed"
        );
    }
}

#[test]
fn nothing_is_lost_while_many_work_on_it() {
    let scratch = Scratch::new("below-storm");
    let tree = scratch.folder().join("tree");
    for file in 0..64_u32 {
        let folder = tree.join(format!("dir-{}", file % 4));
        fs::create_dir_all(&folder).expect("a new folder");
        let words = (0..20_000_u32).flat_map(|n| (file * 1_000_003 + n).to_le_bytes());
        fs::write(
            folder.join(format!("file-{file}")),
            words.collect::<Vec<_>>(),
        )
        .expect("a new file");
    }
    let root = scratch.folder().to_str().expect("its name is text");
    for (cpus, processes, seed) in [("1", "4", "1"), ("4", "16", "2")] {
        let options = ["-m", "64M", "-c", cpus, "--root", root];
        let words = [programs::text(programs::path("below_storm"))];
        let words = [
            &words[..],
            &["/tree", processes, "200", seed].map(str::to_owned),
        ]
        .concat();
        let outcome = ebb::run(600, &options, &words);
        assert_eq!(outcome.expect(0).out(), "wrong: 0\n", "{cpus} CPUs");
    }
}

/// Shows that cached pages of host files are reclaimed, both automatically and on request.
#[test]
#[ignore = "long: make test-long"]
fn more_can_be_read_than_there_is_memory() {
    let scratch = Scratch::new("below-large");
    for file in 0..6 {
        let bytes = vec![b'a' + file; 40 << 20];
        fs::write(scratch.folder().join(format!("f{file}")), bytes).expect("a new file");
    }
    let script = "for i in 0 1 2 3 4 5; do cat /f$i; done | tr -d abcdef | wc -c; cat /f? | wc -c; \
                  echo room > /new && cat /new; \
                  cat /f0 >/dev/null; before=$(awk '/^MemFree/ {print $2}' /proc/meminfo); \
                  echo 1 > /proc/sys/vm/drop_caches; after=$(awk '/^MemFree/ {print $2}' /proc/meminfo); \
                  [ $((after - before)) -gt 30000 ] && echo dropped || echo $before $after; \
                  echo x >> /f1; echo 1 > /proc/sys/vm/drop_caches; tail -c 3 /f1";
    let root = scratch.folder().to_str().expect("its name is text");
    let options = ["-m", "96M", "-c", "2", "--root", root];
    let outcome = ebb::run(600, &options, &["busybox", "sh", "-c", script]);
    let all = 6 * (40 << 20);
    assert_eq!(
        outcome.expect(0).out(),
        format!("0\n{all}\nroom\ndropped\nbx\n")
    );
}

/// Shows that a guest with `--root host` sees only files that every user of the host may see, and
/// none of the host's processes.
#[test]
fn secrets_are_no_part_of_the_view() {
    let script = "cat /etc/passwd | head -n 1; cat /etc/shadow; cat /var/log/wtmp; \
                  ls /home; cat /proc/sys/kernel/ostype; cat /proc/1/comm; ls -d /usr/bin/env";
    let outcome = ebb::run(
        300,
        &["-m", "256M", "--root", "host"],
        &["busybox", "sh", "-c", script],
    );
    let passwd = fs::read_to_string("/etc/passwd").expect("there is one");
    let first = passwd.lines().next().unwrap_or_default();
    let said = outcome.out();
    assert_eq!(
        said,
        format!("{first}\nLinux\ninit\n/usr/bin/env\n"),
        "{}",
        outcome.err()
    );
    assert_eq!(
        outcome.err().matches("ermission denied").count(),
        1,
        "{}",
        outcome.err()
    );
    assert_eq!(
        outcome.err().matches("o such file").count(),
        2,
        "{}",
        outcome.err()
    );
}

/// Makes 60 folders in `at` with 1,500 empty files each.
fn make_names(at: &Path) {
    for folder in 0..60 {
        let folder = at.join(format!("d{folder}"));
        fs::create_dir_all(&folder).expect("a new folder");
        for name in 0..1500 {
            fs::write(folder.join(format!("name-{name}")), "").expect("a new file");
        }
    }
}

/// Shows that unchanged directory entries are reclaimed, and that changed ones stay.
#[test]
#[ignore = "long: make test-long"]
fn more_names_can_be_seen_than_there_is_memory() {
    let scratch = Scratch::new("below-names");
    make_names(scratch.folder());
    let script = "rm /d3/name-7; mv /d4/name-1 /d5/moved; chmod 600 /d6/name-2; echo x > /d7/name-3; mkdir /d8/own; \
                  for i in 1 2 3; do find / -path '/d*/*' ! -path '/dev/*' | wc -l; done; echo 3 > /proc/sys/vm/drop_caches; \
                  ls /d3 | wc -l; ls /d4/name-1 /d5/moved; stat -c %a /d6/name-2 /d6/name-3; cat /d7/name-3; ls -d /d8/own";
    let root = scratch.folder().to_str().expect("its name is text");
    for cpus in ["1", "4"] {
        let options = ["-m", "64M", "-c", cpus, "--root", root];
        let outcome = ebb::run(600, &options, &["busybox", "sh", "-c", script]);
        let all = "90000\n".repeat(3);
        let said = format!("{all}1499\n/d5/moved\n600\n644\nx\n/d8/own\n");
        assert_eq!(outcome.out(), said, "{cpus} CPUs: {}", outcome.err());
    }
}

/// Shows that no process is killed for want of memory while another one frees some: four walks over
/// more names than there is memory, each of which forgets names when it finds no memory.
#[test]
#[ignore = "long: make test-long"]
fn processes_that_need_memory_at_once_wait_for_each_other() {
    let scratch = Scratch::new("walks-at-once");
    make_names(scratch.folder());
    let script = "for i in 1 2 3 4; do (find / -path '/d*/*' ! -path '/dev/*' | wc -l) & w=\"$w $!\"; done; \
                  wait $w; grep oom_kill /proc/vmstat; grep -c 'allocstall_normal 0' /proc/vmstat";
    let root = scratch.folder().to_str().expect("its name is text");
    for _ in 0..2 {
        let options = ["-m", "36M", "-c", "4", "--root", root];
        let outcome = ebb::run(600, &options, &["busybox", "sh", "-c", script]);
        let said = format!("{}oom_kill 0\n0\n", "90000\n".repeat(4));
        assert_eq!(outcome.out(), said, "{}", outcome.err());
    }
}

/// Shows that entries which are sent ahead of a request are neither missing nor duplicated, and do
/// not return after they were removed.
#[test]
fn a_walk_shows_what_is_there_whatever_comes_along() {
    const SCRIPT: &str = "export LC_ALL=C; cd TREE; \
        rm f03/leaf-1 f20/inner-2/x; ls f00 f01 f02 | wc -l; \
        rm f05/leaf-1; mv f06/leaf-2 f06/moved; mkdir f07/new; rmdir f08/empty; mv f09 f99; mv f11 f04/inner-1/f11; \
        echo changed > f10/leaf-3; ln -s ../f12 f13/link; rmdir f14/empty; mkdir f14/empty; rm -r f15; \
        for walk in 1 2 3; do find . > /tmp/walk-$walk & done; wait; \
        sort /tmp/walk-1; sort /tmp/walk-2 | md5sum; sort /tmp/walk-3 | md5sum; \
        ls -R . | md5sum; if [ DROP = yes ]; then echo 3 > /proc/sys/vm/drop_caches; fi; \
        find . | sort | md5sum; find . -type f -exec cat {} + | sort | md5sum; ls f08 f15 2> /dev/null; cat f10/leaf-3";
    let furnish = |at: &Path| {
        for folder in 0..40 {
            let folder_name = format!("f{folder:02}");
            let folder = at.join(&folder_name);
            fs::create_dir_all(folder.join("empty")).expect("a new folder");
            for leaf in 0..5 {
                let name = format!("leaf-{leaf}");
                fs::write(folder.join(&name), format!("{folder_name} {name}\n"))
                    .expect("a new file");
            }
            for inner in 0..3 {
                let inner = folder.join(format!("inner-{inner}"));
                fs::create_dir_all(&inner).expect("a new folder");
                fs::write(inner.join("x"), "x\n").expect("a new file");
            }
        }
        // More entries than are sent ahead.
        for leaf in 0..700 {
            fs::write(at.join(format!("f30/inner-1/more-{leaf}")), "").expect("a new file");
        }
    };
    let (own, shown) = (Scratch::new("walk-own"), Scratch::new("walk"));
    let (own_tree, shown_tree) = (own.folder().join("tree"), shown.folder().join("tree"));
    furnish(&own_tree);
    furnish(&shown_tree);
    let text = |path: &Path| path.to_str().expect("its name is text").to_owned();
    let on_host = SCRIPT.replace("/tmp/", &format!("{}/", text(own.folder())));
    let on_host = on_host
        .replace("TREE", &text(&own_tree))
        .replace("DROP", "no");
    let expected = Command::new("sh").args(["-c", &on_host]).output();
    let expected = expected.expect("there is a shell");
    let expected = String::from_utf8_lossy(&expected.stdout);
    assert!(
        expected.ends_with("changed\n") && expected.lines().count() > 1000,
        "{expected}"
    );
    let script = SCRIPT.replace("TREE", "/tree").replace("DROP", "yes");
    for cpus in ["1", "4"] {
        let root = text(shown.folder());
        let options = ["-m", "128M", "-c", cpus, "--root", &root];
        let outcome = ebb::run(300, &options, &["busybox", "sh", "-c", &script]);
        assert!(
            outcome.out() == expected,
            "{cpus} CPUs: {}{}",
            outcome.out(),
            outcome.err()
        );
    }
}

/// Shows that a packed file hides the host's file at the same path, and that its removal hides it
/// too.
#[test]
fn what_was_packed_hides_what_is_below() {
    let scratch = Scratch::new("below-packed");
    let conf = scratch.folder().join("root/conf");
    fs::create_dir_all(&conf).expect("a new folder");
    for name in ["x", "y", "z"] {
        fs::write(conf.join(name), format!("{name} of the host\n")).expect("a new file");
    }
    let packed = scratch.folder().join("packed");
    fs::write(&packed, "packed\n").expect("a new file");
    let packed = packed.to_str().expect("its name is text");
    let (x, z) = (format!("{packed}:/conf/x"), format!("{packed}:/conf/z"));
    let root = scratch.folder().join("root");
    let root = root.to_str().expect("its name is text");
    let script = "rm /conf/x; cat /conf/x 2>/dev/null || echo gone; mv /conf/z /conf/w; cat /conf/*; ls /conf";
    let options = ["-m", "64M", "--root", root, "--file", &x, "--file", &z];
    let outcome = ebb::run(300, &options, &["busybox", "sh", "-c", script]);
    let said = "gone\npacked\ny of the host\nw\ny\n";
    assert_eq!(outcome.expect(0).out(), said, "{}", outcome.err());
}

/// Returns a command for `ebb run` in a folder, without options for the root.
pub(crate) fn command_from(folder: &Path, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command
        .args([
            "run",
            "--quiet",
            "--accel",
            "tcg",
            "--timeout",
            "300",
            "-m",
            "256M",
        ])
        .args(options)
        .arg("--")
        .args(program)
        .current_dir(folder)
        .env_remove("EBB_KERNEL_IMAGE")
        .stdin(Stdio::null());
    command
}

/// Runs a program in a folder to its end.
fn run_from(folder: &Path, options: &[&str], program: &[&str]) -> ebb::Outcome {
    ebb::finish(&mut command_from(folder, options, program))
}

/// Shows that without options a program runs as on the host: in the working folder, with the host's
/// programs.
#[test]
fn a_program_finds_what_it_finds_on_the_host() {
    let own_tmp = std::env::temp_dir().join(format!("ebb-here-{}", std::process::id()));
    let scratch = Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")), "below-here");
    for folder in [&own_tmp, scratch.folder()] {
        let folder = folder.join("work");
        fs::create_dir_all(&folder).expect("a new folder");
        fs::write(folder.join("data"), "data\n").expect("a new file");
        let script = "#!/usr/bin/env bash\necho $0; cat data; echo own > data; cat data; ls; echo ${BASH_VERSION:+bash}\n";
        fs::write(folder.join("job"), script).expect("a new file");
        fs::set_permissions(folder.join("job"), fs::Permissions::from_mode(0o755))
            .expect("it is ours");
        let folder = folder.canonicalize().expect("it is there");
        let shown = folder.to_str().expect("its name is text");
        let expected = format!("{shown}/job\ndata\nown\ndata\njob\nbash\n");
        for program in [&["./job"][..], &["job"], &["bash", "./job"]] {
            let outcome = run_from(&folder, &[], program);
            let said = outcome.expect(0).out();
            let said = said.replacen("./job", &format!("{shown}/job"), 1);
            assert_eq!(said, expected, "{program:?}: {}", outcome.err());
        }
        let kept = fs::read_to_string(folder.join("data")).expect("it is there");
        assert_eq!(kept, "data\n", "the host's file has changed");
    }
    let _ = fs::remove_dir_all(&own_tmp);
}

/// Waits until the guest has made the file at `path`, and panics after five minutes.
fn await_file(path: &Path) {
    for _ in 0..6000 {
        if path.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{} does not come", path.display());
}

/// Shows that a guest sees what the host has changed, replaced and removed meanwhile, and that who
/// has a file open keeps what was read of it. The guest pauses before it opens the files again,
/// because it trusts an answer of the host for 50 ms.
#[test]
fn what_the_host_changes_is_seen_by_the_next_open() {
    let scratch = Scratch::new("below-edited");
    let (root, shared) = (
        scratch.folder().join("root"),
        scratch.folder().join("shared"),
    );
    for folder in [&root, &shared] {
        fs::create_dir_all(folder).expect("a new folder");
    }
    let long = |byte: &str| byte.repeat(400_000);
    let write = |name: &str, text: &str| {
        fs::write(root.join(name), text).expect("the file is written");
    };
    for (name, text) in [
        ("s.sh", "echo one\n"),
        ("gone", "x"),
        ("mode", "echo runs\n"),
    ] {
        write(name, text);
    }
    for name in ["open", "kept", "large"] {
        write(name, &long("a"));
    }
    symlink("s.sh", root.join("link")).expect("a new link");
    let script = "cd /; cat s.sh link gone > /dev/null; ls -l mode large kept > /dev/null
        chmod 600 kept; exec 3< open; head -c 1 <&3; exec 4< large; echo
        touch /v/ready; until [ -e /v/go ]; do sleep .1; done; sleep .1
        head -c 1 <&3; echo
        for turn in 1 2; do
            sh s.sh; sh link; cat gone 2> /dev/null || echo is gone
            for f in open kept large; do head -c 1 $f; tail -c 2 $f; done; echo
            stat -c '%n %a %s' open kept mode
            ls | grep -c gone
            echo 3 > /proc/sys/vm/drop_caches
        done
        ./mode; wc -c < open; echo done";
    let volume = format!("{}:/v", shared.to_str().expect("its name is text"));
    let options = [
        "--root",
        root.to_str().expect("its name is text"),
        "--volume",
        &volume,
    ];
    let program = ["sh", "-c", script];
    let (shown, wanted) = (root.clone(), shared.clone());
    let host = std::thread::spawn(move || {
        await_file(&wanted.join("ready"));
        fs::write(shown.join("s.sh"), "echo two, longer\n").expect("the file is written");
        fs::remove_file(shown.join("gone")).expect("it is there");
        for name in ["open", "kept"] {
            let new = format!("{}zz", "b".repeat(5000));
            fs::write(shown.join("new"), new).expect("the file is written");
            fs::rename(shown.join("new"), shown.join(name)).expect("it is there");
        }
        fs::write(shown.join("large"), format!("{}yy", "c".repeat(9))).expect("it is written");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(shown.join("mode"), mode).expect("it is ours");
        fs::write(wanted.join("go"), "").expect("the file is written");
    });
    let outcome = ebb::run(600, &options, &program);
    host.join().expect("the host's part is done");
    let turn = "two, longer\ntwo, longer\nis gone\nbzzbzzcyy\n\
                open 644 5002\nkept 600 5002\nmode 755 10\n0\n";
    let expected = format!("a\na\n{turn}{turn}runs\n5002\ndone\n");
    assert_eq!(outcome.out(), expected, "{}", outcome.err());
}

/// Shows that a guest sees only the working folder of the host's `/tmp`, and that its own files
/// there are its own.
#[test]
fn the_guests_own_tmp_shows_the_working_folder() {
    let beside = std::env::temp_dir().join(format!("ebb-beside-{}", std::process::id()));
    fs::create_dir_all(beside.join("secret")).expect("a new folder");
    fs::create_dir_all(beside.join("work/deep")).expect("a new folder");
    for name in 0..300 {
        fs::write(beside.join(format!("work/deep/name-{name}")), "x").expect("a new file");
    }
    let folder = beside.join("work").canonicalize().expect("it is there");
    let script = "ls ..; touch /tmp/own ../own deep/own; ls ..; rm deep/name-7; ls deep | wc -l; \
                  echo 3 > /proc/sys/vm/drop_caches; ls deep | wc -l; cat deep/name-8; ls -d /tmp/own";
    let outcome = run_from(&folder, &[], &["sh", "-c", script]);
    let said = "work\nown\nwork\n300\n300\nx/tmp/own\n";
    assert_eq!(outcome.out(), said, "{}", outcome.err());
    assert!(!beside.join("own").exists() && beside.join("work/deep/name-7").exists());
    let _ = fs::remove_dir_all(&beside);
}

/// Shows that a name and an absolute path refer to a program in the folder that is the root, if it
/// has one.
#[test]
fn programs_of_a_root_are_its_own() {
    let scratch = Scratch::new("below-programs");
    let root = scratch.folder().join("root");
    fs::create_dir_all(root.join("bin")).expect("a new folder");
    let busybox = ["/bin/busybox", "/usr/bin/busybox"];
    let busybox = busybox.iter().find(|path| Path::new(path).exists());
    fs::copy(
        busybox.expect("busybox-static is installed"),
        root.join("bin/mine"),
    )
    .expect("a copy");
    symlink("mine", root.join("bin/ash")).expect("a new link");
    symlink("mine", root.join("bin/sh")).expect("a new link");
    let root = root.to_str().expect("its name is text");
    for program in ["ash", "/bin/ash", "/bin/sh"] {
        let words = [
            program,
            "-c",
            "echo ${BASH_VERSION:-none}; readlink /proc/$$/exe",
        ];
        let outcome = run_from(scratch.folder(), &["--root", root], &words);
        assert_eq!(
            outcome.out(),
            "none\n/bin/mine\n",
            "{program}: {}",
            outcome.err()
        );
    }
}
