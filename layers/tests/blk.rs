//! The layers of the block back-end's files and folders, from the top down.

use ebb_layers::LayerRules;

#[test]
fn order() {
    LayerRules {
        root: "blk/src/lib.rs",
        layers: &[
            "lib.rs",
            // The interfaces by which disks are requested.
            "control.rs watcher.rs",
            "server.rs",
            // One thread for each disk.
            "instance/ sandbox.rs",
            // The front-ends from which disk requests come.
            "vhost_user/",
            "engine.rs xen/",
            "engine/",
            "io/ pressure/ arena.rs",
            // Plain values, and files that need only them.
            "knobs.rs messages.rs image.rs capabilities.rs",
            "pool.rs failure.rs request.rs",
            "time.rs",
        ],
        exceptions: &[],
    }
    .assert(env!("CARGO_MANIFEST_DIR"));
}
