//! The balloon driver's files, from the top down.

use ebb_layers::House;

#[test]
fn order() {
    House {
        root: "balloon/src/lib.rs",
        floors: &[
            "lib.rs",
            // What the driver does.
            "inflate.rs reporting.rs",
            "balloon.rs",
            // Its queues, each with what the device holds of it.
            "transfer.rs report_queue.rs stats_queue.rs negotiate.rs",
            "queue.rs batch.rs config.rs dma.rs numbering.rs",
            "error.rs",
            "features.rs page.rs stats.rs",
        ],
        exceptions: &[],
    }
    .assert(env!("CARGO_MANIFEST_DIR"));
}
