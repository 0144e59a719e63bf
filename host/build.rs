//! Builds the guest kernel, the first process of guests with stock Linux, and the experiments. One
//! `cargo build` then makes one binary that holds them all.
//!
//! `EBB_KERNEL=path` embeds that kernel instead of building one. `EBB_SKIP_KERNEL=1` embeds empty
//! files and builds nothing, for type checks that need no linked kernel.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The Rust target of the programs for guests.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The name of the target directory of what runs in guests.
const DIRECTORY: &str = "guest";

/// The compiler's flags for a static program, which needs no libraries in its guest.
const STATIC: &str = "-C target-feature=+crt-static -C strip=symbols";

/// A program for guests that a second cargo builds.
struct Part {
    package: &'static str,
    /// The cargo profile.
    profile: &'static str,
    features: &'static str,
    flags: &'static str,
    /// The name of the file in `OUT_DIR` that the binary embeds.
    embedded: &'static str,
    /// Folders of the workspace whose changes make a new build necessary.
    sources: &'static [&'static str],
}

/// The guest kernel, linked without relocations and with frame pointers.
const KERNEL: Part = Part {
    package: "ebb-kernel",
    profile: "kernel",
    features: "machine",
    flags: r#"-C relocation-model=static -C code-model=kernel -C force-frame-pointers=yes --cfg chacha20_backend="sse2""#,
    embedded: "kernel.elf",
    sources: &["kernel", "mm", "balloon", "wire"],
};

/// The experiments, which also run on a stock kernel with only an initramfs.
const WORKLOADS: Part = Part {
    package: "ebb-workloads",
    profile: "guest",
    features: "",
    flags: STATIC,
    embedded: "workloads.elf",
    sources: &["workloads"],
};

/// The first process of guests with stock Linux.
const INIT: Part = Part {
    package: "ebb-init",
    profile: "guest",
    features: "",
    flags: STATIC,
    embedded: "init.elf",
    sources: &["init", "wire"],
};

fn main() {
    println!("cargo:rerun-if-env-changed=EBB_KERNEL");
    println!("cargo:rerun-if-env-changed=EBB_SKIP_KERNEL");
    println!("cargo:rerun-if-env-changed=EBB_COMMIT");
    let commit = env::var("EBB_COMMIT").ok().or_else(commit);
    println!("cargo:rustc-env=EBB_COMMIT={}", commit.unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if env::var_os("EBB_SKIP_KERNEL").is_some_and(|v| v != "0") {
        for part in [KERNEL, WORKLOADS, INIT] {
            fs::write(out.join(part.embedded), []).expect("OUT_DIR is writable");
        }
        return;
    }
    let kernel = match env::var_os("EBB_KERNEL") {
        Some(path) => PathBuf::from(path),
        None => build(&KERNEL, &out),
    };
    embed(&kernel, &out.join(KERNEL.embedded));
    for part in [WORKLOADS, INIT] {
        embed(&build(&part, &out), &out.join(part.embedded));
    }
}

/// Returns the short name of the commit that is checked out. Returns `None` without git, and if the
/// workspace is not the top folder of a repository, for example in an unpacked archive.
///
/// Changes of files since that commit are not looked at, as each of them would run this again.
fn commit() -> Option<String> {
    let host = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let root = host.parent()?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(arguments)
            // A hook of another repository sets these.
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE")
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // One of these changes with each commit and each checkout. A path that does not exist would run
    // this at each build.
    for name in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn embed(built: &Path, embedded: &Path) {
    println!("cargo:rerun-if-changed={}", built.display());
    if let Err(error) = fs::copy(built, embedded) {
        panic!("cannot embed {}: {error}", built.display());
    }
}

/// Builds `part` with a second cargo and returns the path of the program. The second cargo has its
/// own target directory, because the outer cargo holds the lock of the usual one. Without
/// `--target` and `CARGO_TARGET_DIR`, `make kernel`, `make workloads` and `make init` use the same
/// directory, so each part is built once.
///
/// # Panics
/// If cargo cannot be run or fails.
fn build(part: &Part, out: &Path) -> PathBuf {
    let host = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = host
        .parent()
        .expect("the host crate stands in the workspace");
    for source in part.sources.iter().chain(&["Cargo.lock", "Cargo.toml"]) {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    // `out` is TARGET/PROFILE/build/PACKAGE/out.
    let target = out.ancestors().nth(4).expect("cargo's layout");
    let target_dir = target.join(DIRECTORY);
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(root)
        .args([
            "build",
            "--package",
            part.package,
            "--target",
            TARGET,
            "--profile",
            part.profile,
            "--features",
            part.features,
        ])
        .arg("--target-dir")
        .arg(&target_dir);
    // The guest's build must not see these settings of the host's build.
    for name in [
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
        "RUSTC_WORKSPACE_WRAPPER",
        "CLIPPY_ARGS",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
    ] {
        cargo.env_remove(name);
    }
    cargo.env("RUSTFLAGS", part.flags);
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building {} failed: {status}", part.package),
        Err(error) => panic!("cannot run cargo for {}: {error}", part.package),
    }
    target_dir
        .join(TARGET)
        .join(part.profile)
        .join(part.package)
}
