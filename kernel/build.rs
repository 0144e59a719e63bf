//! Links the kernel as a freestanding static image, and only for the target that runs in a guest.
//!
//! The kernel is a `no_std` and `no_main` binary of stable Rust for `x86_64-unknown-linux-gnu`,
//! with `panic = "abort"`. `link.ld` places it at -2 GiB. `machine::arch` has its `memcpy` and the
//! like.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed=link.ld");
    for arg in [
        "-nostdlib",
        "-static",
        "-no-pie",
        "-nostartfiles",
        "-Wl,--build-id=none",
    ] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{dir}/link.ld");
    println!("cargo:rustc-link-arg-bins=-Wl,-z,max-page-size=4096");
}
