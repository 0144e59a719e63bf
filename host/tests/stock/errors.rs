//! Tests that errors with a stock kernel are reported with a hint.

use crate::guest::{available, ebb, run};
use crate::scratch::Scratch;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Returns the message of `ebb run --kernel linux:PATH` for a file that cannot be booted.
fn refused(path: &str) -> String {
    let kernel = format!("linux:{path}");
    said(
        &ebb(&["--kernel", &kernel, "--", "true"])
            .output()
            .expect("ebb starts"),
    )
}

fn said(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(output.stdout.is_empty());
    stderr
}

/// Writes a file with the header of a kernel of release `6.1-test`.
fn kernel_file(scratch: &Scratch) -> PathBuf {
    let mut file = vec![0; 4096];
    file[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    file[0x202..0x206].copy_from_slice(b"HdrS");
    file[0x206..0x208].copy_from_slice(&0x020fu16.to_le_bytes());
    file[0x20e..0x210].copy_from_slice(&0x180u16.to_le_bytes());
    file[0x211] = 1;
    file[0x236] = 1;
    file[0x380..0x390].copy_from_slice(b"6.1-test by me \0");
    let boot = scratch.folder().join("boot");
    std::fs::create_dir_all(&boot).expect("a writable place");
    let path = boot.join("vmlinuz-6.1-test");
    std::fs::write(&path, file).expect("a writable place");
    path
}

#[test]
fn files_that_are_no_kernel_are_named() {
    let scratch = Scratch::new("refused");
    let missing = scratch.path("missing");
    let text = refused(&missing);
    assert!(
        text.contains(&missing) && text.contains("No such file"),
        "{text}"
    );
    let other = scratch.path("text");
    std::fs::write(&other, "hello").expect("a writable place");
    let text = refused(&other);
    assert!(text.contains("not a Linux kernel (a bzImage)"), "{text}");
    assert!(
        text.contains("--kernel linux:/boot/vmlinuz-RELEASE"),
        "{text}"
    );
    assert!(refused("/").contains("there is no arch/x86/boot/bzImage in it"));
    assert!(refused("/dev/null").contains("it is not a file"));
    let large = kernel_file(&scratch);
    std::fs::File::options()
        .write(true)
        .open(&large)
        .and_then(|file| file.set_len((256 << 20) + 1))
        .expect("a file with a hole");
    let text = refused(large.to_str().expect("a plain path"));
    assert!(text.contains("has 268435457 bytes"), "{text}");
}

#[test]
fn missing_modules_are_named() {
    let scratch = Scratch::new("modules");
    let kernel = kernel_file(&scratch);
    let kernel = kernel.to_str().expect("a plain path");
    let text = refused(kernel);
    assert!(text.contains("lib/modules/6.1-test"), "{text}");
    let folder = scratch.folder().join("lib/modules/6.1-test");
    std::fs::create_dir_all(&folder).expect("a writable place");
    let text = refused(kernel);
    assert!(
        text.contains("neither virtio_mmio nor virtio_pci"),
        "{text}"
    );
    let built_in = "kernel/drivers/virtio/virtio_mmio.ko\nkernel/drivers/char/virtio_console.ko\n";
    std::fs::write(folder.join("modules.builtin"), built_in).expect("a writable place");
    let text = refused(kernel);
    assert!(text.contains("virtio_balloon"), "{text}");
}

/// Shows that the lists of a source tree tell which parts are built in and which are modules,
/// without an installation.
#[test]
fn a_source_tree_is_a_kernel() {
    let scratch = Scratch::new("tree");
    let tree = scratch.folder().join("linux");
    let boot = tree.join("arch/x86/boot");
    std::fs::create_dir_all(&boot).expect("a writable place");
    std::fs::copy(kernel_file(&scratch), boot.join("bzImage")).expect("a writable place");
    let built_in = "kernel/drivers/virtio/virtio_mmio.ko\nkernel/drivers/char/virtio_console.ko\n";
    std::fs::write(tree.join("modules.builtin"), built_in).expect("a writable place");
    let tree_name = tree.to_str().expect("a plain path");
    let image = boot.join("bzImage");
    for named in [tree_name, image.to_str().expect("a plain path")] {
        let text = refused(named);
        assert!(
            text.contains("neither a module virtio_balloon in"),
            "{text}"
        );
    }
    // A list entry that leads out of the tree is ignored, and one within the tree is used.
    let order = "../../secret/virtio_balloon.o\nodd/place/virtio_balloon.o\n";
    std::fs::write(tree.join("modules.order"), order).expect("a writable place");
    std::fs::create_dir_all(tree.join("odd/place")).expect("a writable place");
    std::fs::write(tree.join("odd/place/virtio_balloon.ko"), "no ELF").expect("a writable place");
    let text = refused(tree_name);
    assert!(
        text.contains("odd/place/virtio_balloon.ko is not a module"),
        "{text}"
    );
}

#[test]
fn without_apt_it_says_which_file_to_give() {
    let scratch = Scratch::new("apt");
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).is_file())
        .expect("busybox");
    std::os::unix::fs::symlink(busybox, scratch.folder().join("busybox"))
        .expect("a writable place");
    let run = |cache: &Path| {
        let output = ebb(&["--", "true"])
            .env("PATH", scratch.folder())
            .env("XDG_CACHE_HOME", cache)
            .output();
        said(&output.expect("ebb starts"))
    };
    let text = run(&scratch.folder().join("cache"));
    assert!(text.contains("cannot fetch Debian's kernel"), "{text}");
    assert!(
        text.contains("--kernel linux:/path/boot/vmlinuz-RELEASE"),
        "{text}"
    );
    // The cache cannot be written, because a file has the path of its folder.
    let file = scratch.folder().join("file");
    std::fs::write(&file, "").expect("a writable place");
    let text = run(&file);
    assert!(
        text.contains("cannot make") && text.contains("file/ebb"),
        "{text}"
    );
    assert!(text.contains("set XDG_CACHE_HOME"), "{text}");
}

#[test]
#[ignore = "long: make test-long"]
fn two_that_fetch_at_once_do_not_meet() {
    if !available() {
        return;
    }
    let scratch = Scratch::new("fetch");
    let cache = scratch.folder().join("cache");
    let start = || {
        ebb(&["--print-qemu", "--", "true"])
            .env("XDG_CACHE_HOME", &cache)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("ebb starts")
    };
    let outputs = [start(), start()].map(|child| child.wait_with_output().expect("it ends"));
    let texts = outputs.each_ref().map(|output| {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if !text.contains("cannot fetch Debian's kernel") {
            assert!(output.status.success(), "{text}");
        }
        text
    });
    if texts.iter().any(|text| text.contains("cannot fetch")) {
        // The kernel was in the cache already, and there is no network.
        eprintln!("SKIPPED, nothing can be fetched: {texts:?}");
        return;
    }
    let fetched = texts
        .iter()
        .filter(|text| text.contains("ebb: fetching"))
        .count();
    assert_eq!(fetched, 1, "{texts:?}");
    let left: Vec<String> = std::fs::read_dir(cache.join("ebb"))
        .expect("the cache")
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_kernel_that_panics_shows_its_last_lines() {
    let Some(output) = run(&["--append", "rdinit=/none root=/dev/none", "--", "true"]) else {
        return;
    };
    let text = said(&output);
    assert!(
        text.contains("Linux 6.1") && text.contains("panicked"),
        "{text}"
    );
    assert!(text.contains("Unable to mount root fs"), "{text}");
}

#[test]
fn too_little_memory_is_said_beforehand() {
    if !available() {
        return;
    }
    let text = said(
        &ebb(&["-m", "64M", "--", "true"])
            .output()
            .expect("ebb starts"),
    );
    assert!(text.contains("a guest with Linux has from"), "{text}");
}

/// Shows that modules of a source tree are loaded without their debug information.
#[test]
#[ignore = "long: make test-long"]
fn modules_that_were_built_for_a_debugger_are_loaded() {
    if !available() {
        return;
    }
    let scratch = Scratch::new("debugger");
    let debian = debian_kernel();
    let boot = scratch.folder().join("tree/arch/x86/boot");
    std::fs::create_dir_all(&boot).expect("a writable place");
    let image = std::fs::read_dir(debian.join("boot")).expect("a kernel");
    let image = image.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinuz-")
    });
    std::fs::copy(image.expect("an image"), boot.join("bzImage")).expect("a copy");
    // This file marks a built source tree. It lists no module as built in.
    std::fs::write(scratch.path("tree/modules.builtin"), "").expect("a writable place");
    let large = scratch.write("large", vec![7; 20 << 20]);
    let mut order = String::new();
    let mut folders = vec![debian.join("lib/modules")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.starts_with("virtio") && name.ends_with(".ko") {
                let status = std::process::Command::new("objcopy")
                    .args(["--add-section", &format!(".debug_info={large}")])
                    .arg(&path)
                    .arg(scratch.path(&format!("tree/{name}")))
                    .status();
                assert!(status.expect("objcopy runs").success());
                order.push_str(&format!("{}\n", name.replace(".ko", ".o")));
            }
        }
    }
    std::fs::write(scratch.path("tree/modules.order"), order).expect("a writable place");
    let kernel = format!("linux:{}", scratch.path("tree"));
    let output = ebb(&["--kernel", &kernel, "--", "echo", "up"]).output();
    let output = output.expect("ebb starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"up\n"[..]),
        "{stderr}"
    );
}

/// Returns the path of the kernel that ebb has fetched.
fn debian_kernel() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache");
    let folder = cache.unwrap_or_else(home).join("ebb");
    let mut kernels: Vec<_> = std::fs::read_dir(folder)
        .expect("ebb's folder")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("linux-image-")
        })
        .collect();
    kernels.sort();
    kernels.pop().expect("a kernel, as one is available")
}
