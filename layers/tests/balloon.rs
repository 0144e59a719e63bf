//! The layers of the balloon driver's files, from the top down.

use ebb_layers::LayerRules;

#[test]
fn order() {
    LayerRules {
        root: "balloon/src/lib.rs",
        layers: &[
            "lib.rs",
            // The operations of the driver.
            "exchange.rs",
            "inflate.rs reporting.rs",
            "balloon.rs",
            // The queues, each with the buffers that the device holds.
            "transfer.rs report_queue.rs stats_queue.rs negotiate.rs",
            "queue.rs batch.rs config.rs dma.rs numbering.rs",
            "error.rs",
            "features.rs page.rs stats.rs",
        ],
        exceptions: &[],
    }
    .assert(env!("CARGO_MANIFEST_DIR"));
}
