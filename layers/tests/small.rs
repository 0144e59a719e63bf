//! The layers of crates with few files, from the top down.

use ebb_layers::LayerRules;

fn check(root: &str, layers: &[&str]) {
    let exceptions = &[];
    LayerRules {
        root,
        layers,
        exceptions,
    }
    .assert(env!("CARGO_MANIFEST_DIR"));
}

#[test]
fn init() {
    check(
        "init/src/main.rs",
        &[
            "main.rs",
            "program.rs oom_watcher.rs root.rs volumes.rs",
            "input_wait.rs streams.rs fuse/",
            "control.rs copy.rs terminal.rs out.rs host_port.rs",
            "ports.rs modules.rs system.rs frames.rs string_list.rs caches.rs knobs.rs",
            "failure.rs",
        ],
    );
}

#[test]
fn wire() {
    check(
        "wire/src/lib.rs",
        &[
            "lib.rs",
            "request.rs report.rs header.rs boot.rs volume.rs",
            "port.rs give_back.rs reclaim.rs out.rs root.rs terminal.rs user.rs",
        ],
    );
}

#[test]
fn layers() {
    check(
        "layers/src/lib.rs",
        &[
            "lib.rs",
            "rules.rs",
            "import.rs cycle.rs read.rs",
            "resolve.rs scan.rs",
            "module.rs token.rs",
        ],
    );
}
