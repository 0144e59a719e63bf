//! The block back-end's files and folders, from the top down.

use ebb_layers::House;

#[test]
fn order() {
    House {
        root: "blk/src/lib.rs",
        floors: &[
            "lib.rs",
            // Who asks for disks.
            "control.rs watcher.rs",
            "server.rs",
            // A thread for each disk.
            "instance/ sandbox.rs",
            // The doors, by which requests come.
            "vhost_user/",
            "engine.rs xen/",
            "engine/",
            "io/ pressure/ arena.rs",
            // Plain values, and what needs nothing but them.
            "knobs.rs words.rs image.rs capabilities.rs",
            "pool.rs failure.rs request.rs",
            "time.rs",
        ],
        exceptions: &[],
    }
    .assert(env!("CARGO_MANIFEST_DIR"));
}
