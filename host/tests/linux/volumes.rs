//! Tests of folders of the host that a guest changes: a program can do the same there as on the
//! host.

use crate::scratch::{Scratch, contents};
use crate::{ebb, native, programs};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

fn volume(scratch: &Scratch, rest: &str) -> String {
    format!("{}:{rest}", scratch.folder().display())
}

#[test]
fn it_is_as_a_folder_of_the_hosts() {
    let own = Scratch::new("volume-own");
    let program = programs::path("volume");
    let folder = own.folder().to_str().expect("its name is text");
    let expected = native::run(program, &[folder], None);
    assert_eq!(expected.status, 0);
    let expected_files = contents(own.folder(), MetadataExt::mode);
    for cpus in ["1", "4"] {
        let shown = Scratch::new("volume");
        let at = volume(&shown, "/v");
        let options = ["-m", "128M", "-c", cpus, "--volume", &at];
        let outcome = ebb::run(600, &options, &[programs::text(program), "/v".into()]);
        let said = outcome.expect(0).out();
        assert_eq!(
            said,
            String::from_utf8_lossy(&expected.stdout),
            "{cpus} CPUs"
        );
        let files = contents(shown.folder(), MetadataExt::mode);
        for (name, (mode, bytes)) in &expected_files {
            let (other_mode, other) = &files[name];
            assert_eq!(mode, other_mode, "{name}");
            assert!(bytes == other, "{name} has other bytes");
        }
        assert_eq!(files.len(), expected_files.len());
    }
}

#[test]
fn one_for_reading_changes_nothing() {
    let (read, written) = (Scratch::new("volume-ro"), Scratch::new("volume-rw"));
    read.write("file", "text");
    symlink("/etc/passwd", read.folder().join("link")).expect("a new link");
    let (at, other) = (volume(&read, "/deep/er/in:ro"), volume(&written, "/out"));
    let script = "cd /deep/er/in; cat file; echo x > file; echo x > new; rm file; mkdir d; chmod 600 file; \
                  mv file other; ln file hard; readlink link; cp file /out/copy; \
                  grep -E ' /(out|deep/er/in) ' /proc/mounts | cut -d ' ' -f 2-4; \
                  mount -o remount,rw /deep/er/in; echo x > file; umount /out; stat -f -c %T .";
    let options = ["-m", "64M", "--volume", &at, "--volume", &other];
    let outcome = ebb::run(300, &options, &["busybox", "sh", "-c", script]);
    let (out, err) = (outcome.out(), outcome.err());
    assert_eq!(
        out,
        "text/etc/passwd\n\
         /deep/er/in hostfs ro,nosuid,nodev,relatime\n\
         /out hostfs rw,nosuid,nodev,relatime\nUNKNOWN\n",
        "{err}"
    );
    assert!(err.matches("Read-only file system").count() >= 7, "{err}");
    assert!(err.contains("can't unmount /out"), "{err}");
    assert_eq!(read.files(), ["file", "link"]);
    assert_eq!(fs::read(written.path("copy")).expect("a copy"), b"text");
}

#[test]
fn it_is_the_programs_users() {
    let scratch = Scratch::new("volume-user");
    scratch.write("file", "a");
    let at = volume(&scratch, "/v");
    let script = "cd /v; echo b >> file; echo c > new; echo d >> new; mkdir d; stat -c '%n %u %g' *; chown 7 new";
    let options = ["-m", "64M", "--user", "4000:50", "--volume", &at];
    let outcome = ebb::run(300, &options, &["busybox", "sh", "-c", script]);
    assert_eq!(
        outcome.out(),
        "d 4000 50\nfile 4000 50\nnew 4000 50\n",
        "{}",
        outcome.err()
    );
    assert!(outcome.err().contains("not permitted"), "{}", outcome.err());
    assert_eq!(fs::read(scratch.path("file")).expect("it stays"), b"ab\n");
    assert_eq!(fs::read(scratch.path("new")).expect("it is new"), b"c\nd\n");
}

/// Shows that each side sees, when it opens a file, what the other side has written and closed.
#[test]
fn both_sides_see_what_the_other_does() {
    let scratch = Scratch::new("volume-both");
    scratch.write("file", "first");
    let at = volume(&scratch, "/v");
    let script = "cd /v; cat file; echo; exec 3<file; echo ready > one; \
                  while [ ! -e two ]; do sleep 0.05; done; cat file; echo; cat new/inner; ls; \
                  sleep 0.1; cat <&3; echo";
    let host = std::thread::spawn({
        let folder = scratch.folder().to_owned();
        move || {
            let end = Instant::now() + Duration::from_secs(250);
            while !folder.join("one").exists() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            fs::write(folder.join("file"), "the second text").expect("it is ours");
            fs::create_dir(folder.join("new")).expect("a new folder");
            fs::write(folder.join("new/inner"), "inner\n").expect("a new file");
            fs::write(folder.join("two.part"), "").expect("a new file");
            fs::rename(folder.join("two.part"), folder.join("two")).expect("it is ours");
        }
    });
    let options = ["-m", "64M", "--volume", &at];
    let outcome = ebb::run(300, &options, &["busybox", "sh", "-c", script]);
    host.join().expect("the host's side ends well");
    assert_eq!(
        outcome.expect(0).out(),
        "first\nthe second text\ninner\nfile\nnew\none\ntwo\nthe second text\n"
    );
}

/// Shows that pages of a volume are a cache: more data can be read and written than the guest has
/// memory.
#[test]
#[ignore = "long: make test-long"]
fn more_goes_through_it_than_there_is_memory() {
    let scratch = Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")), "volume-large");
    fs::write(scratch.path("big"), vec![b'a'; 150 << 20]).expect("there is room");
    let at = volume(&scratch, "/v");
    let script = "cat /v/big /v/big | tr -d a | wc -c; cp /v/big /v/copy; cmp /v/big /v/copy && echo same; \
                  dd if=/dev/zero of=/v/copy bs=1M count=10 conv=notrunc 2>/dev/null; \
                  cat /v/big > /dev/null; before=$(awk '/^MemFree/ {print $2}' /proc/meminfo); \
                  echo 1 > /proc/sys/vm/drop_caches; after=$(awk '/^MemFree/ {print $2}' /proc/meminfo); \
                  [ $((after - before)) -gt 20000 ] && echo dropped || echo $before $after";
    // A guest in another mode drops its cache if the host is short of memory.
    let options = [
        "-m",
        "64M",
        "-c",
        "2",
        "--give-back",
        "off",
        "--volume",
        &at,
    ];
    let outcome = ebb::run(600, &options, &["busybox", "sh", "-c", script]);
    assert_eq!(outcome.expect(0).out(), "0\nsame\ndropped\n");
    let copy = fs::read(scratch.path("copy")).expect("a copy");
    assert!(copy[..10 << 20].iter().all(|byte| *byte == 0));
    assert!(copy[10 << 20..].iter().all(|byte| *byte == b'a') && copy.len() == 150 << 20);
}

/// Shows that an error of the host reaches the program.
#[test]
fn errors_of_the_host_reach_the_program() {
    let at = "/dev:/v";
    let script = "echo x > /v/full; ls /v/pts; cat /v/null; mknod /v/ebb-test c 1 3";
    let options = ["-m", "64M", "--volume", at];
    let outcome = ebb::run(300, &options, &["busybox", "sh", "-c", script]);
    let err = outcome.err();
    assert!(err.contains("/v/full: No such device or address"), "{err}");
    assert!(err.contains("/v/pts: Permission denied"), "{err}");
    assert!(
        err.contains("/v/null") && err.contains("No such device"),
        "{err}"
    );
    assert!(
        err.contains("/v/ebb-test: Operation not permitted"),
        "{err}"
    );
    assert!(!Path::new("/dev/ebb-test").exists());
}

/// Shows that no byte is lost while calls, mappings and the write-back thread run at once with
/// little memory.
#[test]
fn nothing_is_lost_while_many_write() {
    for (memory, cpus, seed) in [("48M", "1", "11"), ("64M", "4", "12")] {
        let scratch = Scratch::new("volume-storm");
        let at = volume(&scratch, "/v");
        let program = programs::text(programs::path("volume_storm"));
        let words = [&[program][..], &["/v", "4", "400", seed].map(str::to_owned)].concat();
        let options = ["-m", memory, "-c", cpus, "--volume", &at];
        let outcome = ebb::run(600, &options, &words);
        assert_eq!(outcome.expect(0).out(), "wrong: 0\n", "{cpus} CPUs");
        for number in 0..4 {
            let read = |name| fs::read(scratch.path(&format!("{name}-{number}"))).expect("a file");
            assert!(read("storm") == read("model"), "the host has other bytes");
        }
    }
}

/// Shows that `max=` refuses additional bytes however they are written, and that the host stores no
/// more.
#[test]
fn no_more_is_added_than_may_be() {
    let scratch = Scratch::new("volume-max");
    scratch.write("here", vec![1; 1 << 20]);
    let at = volume(&scratch, "/v:max=1M");
    let script = "cd /v; df -kP . | tail -n 1 | awk '{ print $4 }'; \
                  dd if=/dev/zero of=new bs=64k count=32 2> /tmp/err; grep -c 'quota' /tmp/err; \
                  truncate -s 3M here 2> /tmp/err; grep -c 'quota' /tmp/err; \
                  dd if=/dev/zero of=here bs=64k count=16 conv=notrunc 2> /dev/null && echo over; \
                  : > new; cp /bin/busybox copy 2> /dev/null || echo no; : > copy; \
                  dd if=/dev/zero of=new bs=64k count=15 2> /dev/null && echo again";
    let options = ["-m", "64M", "--volume", &at];
    let outcome = ebb::run(300, &options, &["busybox", "sh", "-c", script]);
    assert_eq!(
        outcome.expect(0).out(),
        "1024\n1\n1\nover\nno\nagain\n",
        "{}",
        outcome.err()
    );
    let size = |name: &str| fs::metadata(scratch.path(name)).expect(name).len();
    assert_eq!(
        (size("here"), size("new"), size("copy")),
        (1 << 20, 15 << 16, 0)
    );
}

/// Shows that a guest's write to a file clears its set-id bits, so the new bytes never run with the
/// rights of another user.
#[test]
fn set_id_bits_go_when_a_guest_writes() {
    let scratch = Scratch::new("volume-set-id");
    let ways = [
        ("write", "echo x > write"),
        ("append", "echo x >> append"),
        (
            "within",
            "dd if=/dev/zero of=within bs=1 count=1 conv=notrunc 2> /dev/null",
        ),
        ("truncate", "truncate -s 1 truncate"),
        ("longer", "truncate -s 100000 longer"),
        ("chmod", "chmod 6755 chmod"),
    ];
    for (name, _) in ways {
        let path = scratch.write(name, "some bytes of the host's");
        fs::set_permissions(path, fs::Permissions::from_mode(0o6755)).expect("it is ours");
    }
    let script: Vec<&str> = ways.iter().map(|(_, command)| *command).collect();
    let script = format!("cd /v; {}; chmod 0 . || echo kept", script.join("; "));
    let at = volume(&scratch, "/v");
    let options = ["-m", "64M", "--volume", &at];
    let outcome = ebb::run(300, &options, &["busybox", "sh", "-c", &script]);
    assert_eq!(outcome.expect(0).out(), "kept\n");
    for (name, _) in ways {
        let mode = fs::metadata(scratch.path(name)).expect(name).mode();
        assert_eq!(mode & 0o7777, 0o755, "{name}");
    }
}

/// Returns the private memory of a process in KiB, or 0 once the process is gone.
fn own_memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Shows that the memory of `ebb` for a listed folder does not grow with the number of names.
#[test]
#[ignore = "long: make test-long"]
fn a_listing_takes_no_memory_of_ebbs() {
    const NAMES: usize = 100_000;
    /// A fifth of the size of the names themselves.
    const GROWTH_MAX_KIB: u64 = 4 << 10;
    let scratch = Scratch::new("volume-names");
    for folder in ["few", "many"] {
        fs::create_dir(scratch.folder().join(folder)).expect("a new folder");
    }
    for number in 0..NAMES {
        let name = format!("many/{number:0>200}");
        fs::File::create(scratch.folder().join(name)).expect("a new file");
    }
    let root = scratch.folder().to_str().expect("its name is text");
    let at = volume(&scratch, "/v");
    let ways = [
        (["-m", "256M", "--volume", &at], "/v"),
        (["-m", "256M", "--root", root], ""),
    ];
    for (options, above) in ways {
        // The largest memory that was seen while the folder was listed.
        let peak = |folder: &str| {
            let script = format!("cd {above}/{folder}; ls -A | wc -l");
            let mut command = ebb::command(600, &options);
            let program = ["--busybox", "--", "/bin/busybox", "sh", "-c", &script];
            let mut child = command.args(program).spawn().expect("ebb starts");
            let mut peak = 0;
            while child.try_wait().expect("it can be waited for").is_none() {
                peak = peak.max(own_memory_kib(child.id()));
                std::thread::sleep(Duration::from_millis(2));
            }
            let output = child.wait_with_output().expect("it has ended");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            (peak, said.lines().last().map(str::to_owned))
        };
        let ((few, none), (many, all)) = (peak("few"), peak("many"));
        let lines = |text: Option<String>| text.and_then(|text| text.parse::<usize>().ok());
        let (none, all) = (lines(none), lines(all));
        assert!(all.is_some_and(|all| all >= NAMES), "{none:?} {all:?}");
        let grown = many.saturating_sub(few);
        assert!(grown <= GROWTH_MAX_KIB, "{above:?}: {grown} KiB");
    }
}

/// Writes a file of 64 MiB to a folder, as the program `cold` expects it.
fn write_numbered(folder: &Path) {
    let pages = (0..16_384_usize).flat_map(|page| {
        let byte = u8::try_from(page % 251).expect("below 251");
        std::iter::repeat_n(byte, 4096)
    });
    fs::write(folder.join("numbered"), pages.collect::<Vec<_>>()).expect("a new file");
}

/// Shows that clean pages of host files count as file pages, and go when no program uses them.
#[test]
fn what_no_program_uses_of_its_files_goes() {
    let scratch = Scratch::new("volume-cold");
    write_numbered(scratch.folder());
    let root = scratch.folder().to_str().expect("its name is text");
    let at = volume(&scratch, "/v");
    let program = programs::text(programs::path("cold"));
    let runs = [
        (
            ["--volume", &at],
            vec![program.as_str(), "/v/numbered", "mapped"],
        ),
        (["--root", root], vec![program.as_str(), "/numbered"]),
    ];
    for (options, words) in runs {
        let mut all = vec!["-m", "512M", "-c", "2"];
        all.extend(options);
        let said = ebb::run(600, &all, &words).expect(0).out();
        assert!(said.ends_with(" = 0\n") && !said.contains(": NO"), "{said}");
    }
}

/// Shows that a store to a mapped file ends, though more pages are dirty than may be, which another
/// file's writers have to write.
#[test]
fn stores_end_while_many_pages_of_another_file_are_dirty() {
    let program = programs::text(programs::path("dirty"));
    let words = |dirty: &str, mib: &str, mapped: &str| {
        [program.clone(), dirty.into(), mib.into(), mapped.into()]
    };
    let scratch = Scratch::new("volume-dirty");
    let at = volume(&scratch, "/v");
    let options = ["-m", "128M", "--volume", &at, "--disk", "ram:32M"];
    let outcome = ebb::run(300, &options, &words("/dev/vda", "10", "/v/file"));
    assert_eq!(outcome.expect(0).out(), "stored\n");
    let bytes = fs::read(scratch.path("file")).expect("a file");
    let first = bytes.iter().step_by(4096).copied();
    let wanted = (0..256).map(|page: u32| page.wrapping_add(1).to_le_bytes()[0]);
    assert!(first.eq(wanted), "all stores are on the host");

    let mut options = options.to_vec();
    options.extend(["--sysctl", "vm.dirty_bytes=8192"]);
    let outcome = ebb::run(300, &options, &words("/v/other", "1", "/dev/vda"));
    assert_eq!(outcome.expect(0).out(), "stored\n");
}
