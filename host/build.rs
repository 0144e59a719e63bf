//! Builds the guest kernel, so that one `cargo build` makes one binary that holds it.
//!
//! `EBB_KERNEL=path` embeds that file instead; `EBB_SKIP_KERNEL=1` embeds an empty one (for type
//! checks, where linking a kernel would be waste).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "kernel";
const FLAGS: &str = "-C relocation-model=static -C code-model=kernel -C force-frame-pointers=yes";

fn main() {
    println!("cargo:rerun-if-env-changed=EBB_KERNEL");
    println!("cargo:rerun-if-env-changed=EBB_SKIP_KERNEL");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let embedded = out.join("kernel.elf");
    if env::var_os("EBB_SKIP_KERNEL").is_some_and(|v| v != "0") {
        fs::write(&embedded, []).expect("OUT_DIR is writable");
        return;
    }
    let kernel = match env::var_os("EBB_KERNEL") {
        Some(path) => PathBuf::from(path),
        None => build(&out),
    };
    println!("cargo:rerun-if-changed={}", kernel.display());
    if let Err(error) = fs::copy(&kernel, &embedded) {
        panic!(
            "cannot embed the guest kernel {}: {error}",
            kernel.display()
        );
    }
}

/// Runs a second cargo for the kernel, in a target directory of its own (the outer cargo holds the
/// lock of the usual one), and returns the image.
fn build(out: &Path) -> PathBuf {
    let host = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = host
        .parent()
        .expect("the host crate stands in the workspace");
    for part in ["kernel", "mm", "balloon", "Cargo.lock", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", root.join(part).display());
    }
    let target_dir = out.join("kernel");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(root)
        .args([
            "build",
            "--package",
            "ebb-kernel",
            "--target",
            TARGET,
            "--profile",
            PROFILE,
        ])
        .arg("--target-dir")
        .arg(&target_dir);
    // What the outer cargo set for the host's build would leak into the kernel's.
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
    cargo.env("RUSTFLAGS", FLAGS);
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the guest kernel failed: {status}"),
        Err(error) => panic!("cannot run cargo for the guest kernel: {error}"),
    }
    target_dir.join(TARGET).join(PROFILE).join("ebb-kernel")
}
