//! The command's files and folders, from the top down.

use ebb_layers::House;

#[test]
fn order() {
    House {
        root: "host/src/lib.rs",
        floors: &[
            "lib.rs",
            "hints.rs",
            "cli.rs",
            // The commands.
            "run/ compare/ top/ metrics/ set.rs pages.rs ask/",
            "blk/",
            // How other commands find a run and ask it.
            "registry/",
            // What the host takes of a guest by itself.
            "reclaim/",
            // What went wrong, whoever says so.
            "stdout.rs",
            "failure.rs",
            // What a guest is made of, and what it tells.
            "guest/choice.rs",
            "guest/ebb/ guest/linux/",
            "guest/",
            "qemu/ streams/ archive/",
            // What confines them.
            "confine/",
            // What the host has.
            "system/",
            // What needs nothing of ebb's.
            "text/ machine.rs compressed.rs embedded.rs",
        ],
        exceptions: &[],
    }
    .assert(env!("CARGO_MANIFEST_DIR"));
}
