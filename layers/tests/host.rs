//! The layers of the command's files and folders, from the top down.

use ebb_layers::LayerRules;

#[test]
fn order() {
    LayerRules {
        root: "host/src/lib.rs",
        layers: &[
            "lib.rs",
            "hints.rs",
            "cli.rs",
            // The commands. The pages of the book list the figures of one of them.
            "pages/",
            "run/ compare/ top/ metrics/ set.rs workloads.rs ask/",
            "blk/",
            // How other commands find a run and query it.
            "registry/",
            // How the host takes a guest's free memory by itself.
            "reclaim/",
            // Errors of all parts.
            "stdout.rs",
            "failure.rs",
            // The parts of a guest, and its reports.
            "guest/choice.rs",
            "guest/ebb/ guest/linux/",
            "guest/",
            "qemu/ streams/ archive/",
            // The restrictions for QEMU and readers.
            "confine/",
            // The host's abilities.
            "system/",
            // Files that use no other part of the crate.
            "text/ machine.rs compressed.rs embedded.rs",
        ],
        exceptions: &[],
    }
    .assert(env!("CARGO_MANIFEST_DIR"));
}
