//! The driver against the balloon of a real QEMU. The guest's only CPU is halted. QEMU's `qtest`
//! protocol gives this process the device registers, a shared mapping gives it the guest's memory,
//! and the driver runs here.
//!
//! Without `qemu-system-x86_64` the tests print a note and pass.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and knows its numbers"
)]

mod machine;
mod memory;
mod transport;

use ebb_balloon::{
    Balloon, Ballooned, Features, FreePages, MAX_RANGES, Options, OwnedPage, PageSource, Pfn,
    ReportBatch, Stats, Stop, Work,
};
use machine::{Machine, installed};
use memory::GuestMemory;
use serde_json::json;
use std::collections::BTreeSet;
use transport::QtestTransport;

type Driver = Balloon<GuestMemory, QtestTransport, Page>;

const MIB: usize = 1 << 20;
const RAM: usize = 64 * MIB;
/// The first address of memory that the tests report and inflate. The driver allocates below it.
const FREE: usize = 32 * MIB;

fn start(machine: &Machine, options: Options) -> Driver {
    Driver::new(QtestTransport::find(machine), options).unwrap()
}

/// Reports 32 ranges of 512 KiB. Returns the number of bytes that the host got back.
fn report_16_mib(machine: &Machine, driver: &mut Driver) -> usize {
    GuestMemory::fill(FREE, 16 * MIB, 0xcc);
    let before = machine.resident_from(FREE);
    let mut batch = ReportBatch::new();
    for range in 0..MAX_RANGES {
        let start = GuestMemory::pointer(FREE + range * MIB / 2);
        // SAFETY: nothing refers to the memory between here and the end of the report.
        unsafe { batch.push(start, MIB / 2) }.unwrap();
    }
    driver.submit_report(&mut batch).unwrap();
    machine.wait_until("the report is done", || {
        driver.completed().contains(Work::REPORT)
    });
    assert_eq!(
        driver.report_done().unwrap().unwrap().bytes,
        16 * MIB as u64
    );
    before - machine.resident_from(FREE)
}

#[test]
fn reporting_gives_memory_back_whatever_else_is_offered() {
    if !installed() {
        return;
    }
    for legacy in [false, true] {
        for properties in [
            "free-page-reporting=on",
            "free-page-reporting=on,page-poison=off",
            "free-page-reporting=on,deflate-on-oom=on",
            "free-page-reporting=on,free-page-hint=on,iothread=io",
        ] {
            let machine = Machine::start(RAM, legacy, properties);
            for stats in [
                None,
                Some(Stats {
                    free_bytes: Some(1),
                    ..Stats::default()
                }),
            ] {
                let mut driver = start(
                    &machine,
                    Options {
                        stats,
                        ..Options::default()
                    },
                );
                assert_eq!(driver.reporting(), Ok(()));
                let given_back = report_16_mib(&machine, &mut driver);
                assert_eq!(given_back, 16 * MIB, "{properties}, legacy: {legacy}");
                assert_eq!(GuestMemory::first_byte(FREE), 0);
                let interrupts = driver.ack_interrupt() | driver.ack_interrupt();
                assert_eq!(interrupts, Work::empty(), "nothing is left to do");
            }
        }
    }
}

#[test]
fn a_device_without_reporting_says_so() {
    if !installed() {
        return;
    }
    let machine = Machine::start(RAM, false, "free-page-reporting=off");
    let driver = start(&machine, Options::default());
    let error = driver.reporting().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the device does not offer free page reporting"
    );
}

#[test]
fn poison_keeps_the_contents_of_reported_pages() {
    if !installed() {
        return;
    }
    let filled = |value| Options {
        free_pages: FreePages::Filled(value),
        ..Options::default()
    };

    let machine = Machine::start(RAM, false, "free-page-reporting=on");
    let mut driver = start(&machine, filled(0xcccc_cccc));
    assert!(
        driver
            .features()
            .contains(Features::PAGE_POISON | Features::REPORTING)
    );
    // QEMU could only return zeros, so it takes no memory.
    assert_eq!(report_16_mib(&machine, &mut driver), 0);
    assert_eq!(GuestMemory::first_byte(FREE), 0xcc);
    drop(driver);
    let mut driver = start(&machine, filled(0));
    assert_eq!(report_16_mib(&machine, &mut driver), 16 * MIB);

    let machine = Machine::start(RAM, false, "free-page-reporting=on,page-poison=off");
    let driver = start(&machine, filled(0));
    assert!(!driver.features().contains(Features::REPORTING));
    assert!(driver.reporting().is_err());
}

/// A page in the 16 MiB from `FREE` on.
struct Page(Pfn);

// SAFETY: `Guest::new` makes one value for each page of this part of the memory, and nothing else
// uses the pages while a driver runs.
unsafe impl OwnedPage for Page {
    fn number(&self) -> Pfn {
        self.0
    }
}

/// The pages in the 16 MiB from `FREE` on.
struct Guest {
    spare: Vec<Page>,
    ballooned: Vec<Ballooned<Page>>,
}

impl Guest {
    fn new() -> Self {
        let address = |page: usize| (FREE + page * 4096) as u64;
        let spare = (0..4096).map(|page| Page(Pfn::containing(address(page)).unwrap()));
        Self {
            spare: spare.collect(),
            ballooned: Vec::new(),
        }
    }
}

impl PageSource for Guest {
    type Page = Page;

    fn take_spare(&mut self) -> Option<Page> {
        self.spare.pop()
    }

    fn give_back(&mut self, page: Page) {
        self.spare.push(page);
    }

    fn remember(&mut self, page: Ballooned<Page>) {
        self.ballooned.push(page);
    }

    fn recall(&mut self) -> Option<Ballooned<Page>> {
        self.ballooned.pop()
    }
}

/// Calls `step` until nothing is left to do. Returns the last reason for stopping.
fn settle(machine: &Machine, driver: &mut Driver, guest: &mut Guest) -> Stop {
    let mut stop = None;
    machine.wait_until("the balloon has its size", || {
        match driver.step(guest, 1000).unwrap().stop {
            Stop::BudgetSpent | Stop::Waiting(_) => false,
            last => {
                stop = Some(last);
                true
            }
        }
    });
    stop.unwrap()
}

#[test]
fn the_balloon_follows_the_monitor() {
    if !installed() {
        return;
    }
    for legacy in [false, true] {
        let machine = Machine::start(RAM, legacy, "deflate-on-oom=on");
        let mut driver = start(&machine, Options::default());
        let mut guest = Guest::new();
        GuestMemory::fill(FREE, 16 * MIB, 0xcc);
        let full = machine.resident_from(FREE);

        machine.command("balloon", &json!({ "value": RAM - 10 * MIB }));
        assert_eq!(driver.ack_interrupt(), Work::TARGET);
        assert_eq!(driver.target_pages(), Ok(2560));
        assert_eq!(settle(&machine, &mut driver, &mut guest), Stop::OnTarget);
        assert_eq!(full - machine.resident_from(FREE), 10 * MIB);
        assert_eq!(machine.balloon_size(), RAM - 10 * MIB);

        // More pages than the guest can spare.
        machine.command("balloon", &json!({ "value": MIB }));
        let missing = (63 - 16) * 256;
        let stop = settle(&machine, &mut driver, &mut guest);
        assert_eq!(stop, Stop::NothingToSpare { missing });
        assert_eq!(full - machine.resident_from(FREE), 16 * MIB);
        assert_eq!(machine.balloon_size(), RAM - 16 * MIB);

        let wait = || {
            std::thread::yield_now();
            std::ops::ControlFlow::Continue(())
        };
        assert_eq!(driver.deflate(&mut guest, 600, wait), Ok(600));
        assert_eq!(guest.spare.len(), 600);

        machine.command("balloon", &json!({ "value": RAM }));
        assert_eq!(settle(&machine, &mut driver, &mut guest), Stop::OnTarget);
        assert_eq!(machine.balloon_size(), RAM);
        let numbers: BTreeSet<_> = guest.spare.iter().map(OwnedPage::number).collect();
        assert_eq!(numbers.len(), 4096);
    }
}

#[test]
fn statistics_reach_the_monitor() {
    if !installed() {
        return;
    }
    let machine = Machine::start(RAM, false, "guest-stats-polling-interval=0");
    let first = Stats {
        free_bytes: Some(1),
        total_bytes: Some(2),
        ..Stats::default()
    };
    let mut driver = start(
        &machine,
        Options {
            stats: Some(first),
            ..Options::default()
        },
    );
    let interval = json!({
        "path": "/machine/peripheral/balloon",
        "property": "guest-stats-polling-interval",
        "value": 1,
    });
    machine.command("qom-set", &interval);
    for round in 1..4u64 {
        machine.wait_until("QEMU asks", || driver.completed().contains(Work::STATS));
        assert_eq!(driver.ack_interrupt(), Work::STATS);
        let stats = Stats {
            free_bytes: Some(round << 40),
            ..Stats::default()
        };
        assert_eq!(driver.answer_stats(|| stats), Ok(true));
        let stats = machine.statistics();
        assert_eq!(stats["stat-free-memory"], json!(round << 40));
        assert_eq!(stats["stat-total-memory"], json!(2));
        assert_eq!(stats["stat-major-faults"], json!(u64::MAX));
    }
}
