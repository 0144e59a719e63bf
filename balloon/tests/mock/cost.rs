//! Checks the costs of the driver that the README states.

use crate::device::Role;
use crate::guest::{Guest, Page};
use crate::hal::TestHal;
use crate::transport::{Driver, Machine};
use ebb_balloon::{Features, Options, ReportBatch, Stats};

#[test]
fn memory() {
    let pages = 512 * size_of::<Option<Page>>();
    let driver = size_of::<Driver>();
    assert!(driver <= 2800 + pages, "{driver} with {pages} for pages");
    assert!(
        size_of::<ReportBatch>() <= 528,
        "{}",
        size_of::<ReportBatch>()
    );
    let stats = Stats {
        free_bytes: Some(0),
        ..Stats::default()
    };
    let options = Options {
        stats: Some(stats),
        ..Options::default()
    };
    let _driver = Machine::new(Features::all()).start(options).unwrap();
    assert_eq!(TestHal::pages(), 9);
}

#[test]
fn one_notification_for_256_pages() {
    let machine = Machine::new(Features::empty());
    let mut driver = machine.driver();
    let mut guest = Guest::with_pages(1024);
    machine.device().set_target(1024);
    machine.device().config_accesses = 0;
    driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!(machine.device().ring(Role::Inflate).notified, 4);
    // The target is read before each request and once at the end; the size is written after each.
    assert_eq!(machine.device().config_accesses, 9);
}
