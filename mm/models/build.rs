//! Sets `cfg(ebb_model)`, with which the sources of `ebb-mm` use loom's atomics.

fn main() {
    println!("cargo::rustc-cfg=ebb_model");
    println!("cargo::rustc-check-cfg=cfg(feature, values(\"x86_64\", \"std\"))");
    println!("cargo::rerun-if-changed=build.rs");
}
