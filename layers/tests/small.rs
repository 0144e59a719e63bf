//! The layers of crates with few files, from the top down.

use ebb_layers::House;

fn check(root: &str, floors: &[&str]) {
    let exceptions = &[];
    House {
        root,
        floors,
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
            "program.rs victims.rs root.rs volumes.rs",
            "typist.rs streams.rs fuse/",
            "control.rs relay.rs terminal.rs out.rs desk.rs",
            "ports.rs modules.rs system.rs frames.rs words.rs caches.rs",
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
            "house.rs",
            "arrow.rs circle.rs read.rs",
            "resolve.rs scan.rs",
            "module.rs token.rs",
        ],
    );
}
