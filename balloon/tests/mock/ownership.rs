//! The pages that the driver owns while the device has not answered.

use crate::device::Role;
use crate::hal::TestHal;
use crate::transport::{Machine, MockTransport};
use ebb_balloon::{Balloon, Ballooned, Features, Options, OwnedPage, PageSource, Pfn};
use std::rc::Rc;
use virtio_drivers::transport::DeviceType;

/// A page that holds a reference, so that its values can be counted.
struct Page {
    number: Pfn,
    _value: Rc<()>,
}

// SAFETY: the pages are numbers only, without memory.
unsafe impl OwnedPage for Page {
    fn number(&self) -> Pfn {
        self.number
    }
}

/// A guest with any number of pages, which keeps the pages in the balloon.
#[derive(Default)]
struct Guest {
    values: Rc<()>,
    next: u32,
    ballooned: Vec<Ballooned<Page>>,
}

impl Guest {
    /// Returns the number of pages that have not been dropped.
    fn pages(&self) -> usize {
        Rc::strong_count(&self.values) - 1
    }
}

impl PageSource for Guest {
    type Page = Page;

    fn take_spare(&mut self) -> Option<Page> {
        self.next += 1;
        Some(Page {
            number: Pfn::new(self.next),
            _value: self.values.clone(),
        })
    }

    fn give_back(&mut self, page: Page) {
        drop(page);
    }

    fn remember(&mut self, page: Ballooned<Page>) {
        self.ballooned.push(page);
    }

    fn recall(&mut self) -> Option<Ballooned<Page>> {
        self.ballooned.pop()
    }
}

fn start(features: Features) -> (Machine, Balloon<TestHal, MockTransport, Page>) {
    let machine = Machine::new(features);
    let transport = machine.transport(DeviceType::MemoryBalloon);
    let driver = Balloon::new(transport, Options::default()).unwrap();
    (machine, driver)
}

#[test]
fn pages_in_flight_end_with_the_driver_unless_the_device_may_use_them() {
    for features in [Features::empty(), Features::MUST_TELL_HOST] {
        for confirms in [true, false] {
            let (machine, mut driver) = start(features);
            let mut guest = Guest::default();
            machine.device().set_target(30);
            driver.step(&mut guest, 30).unwrap();
            // Ten of them leave, and ten others enter: an exchange that the device does not answer.
            machine.device().at_once = false;
            let mut exchange = driver.start_exchange(&mut guest, 10).unwrap().unwrap();
            machine.device().work_on(Role::Inflate);
            driver.poll_exchange(&mut exchange, &mut guest).unwrap();
            assert_eq!(guest.ballooned.len(), 30);
            let told = features.contains(Features::MUST_TELL_HOST);
            let leaving = if told { 10 } else { 0 };
            assert_eq!(guest.pages(), 30 + leaving);
            machine.device().resets = confirms;
            drop(driver);
            let lost = if confirms { 0 } else { leaving };
            assert_eq!(guest.pages(), 30 + lost);
        }
    }
    for confirms in [true, false] {
        let (machine, mut driver) = start(Features::empty());
        let mut guest = Guest::default();
        machine.device().at_once = false;
        machine.device().set_target(10);
        driver.step(&mut guest, 10).unwrap();
        assert_eq!(guest.pages(), 10);
        machine.device().resets = confirms;
        drop(driver);
        assert_eq!(guest.pages(), if confirms { 0 } else { 10 });
    }
}

#[test]
fn a_page_of_the_balloon_that_is_dropped_is_lost() {
    let (machine, mut driver) = start(Features::empty());
    let mut guest = Guest::default();
    machine.device().set_target(10);
    driver.step(&mut guest, 10).unwrap();
    guest.ballooned.truncate(4);
    assert_eq!(guest.pages(), 10);
    driver.reset(&mut guest).unwrap();
    assert_eq!(guest.pages(), 6);
}
