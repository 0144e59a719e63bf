//! Has the sources of `ebb-mm` use loom's atomics.

fn main() {
    println!("cargo::rustc-cfg=ebb_model");
    println!("cargo::rerun-if-changed=build.rs");
}
