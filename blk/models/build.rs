//! Sets `cfg(ebb_model)`, with which the sources of `ebb-blk` use loom's atomics.

fn main() {
    println!("cargo::rustc-cfg=ebb_model");
    println!("cargo::rerun-if-changed=build.rs");
}
