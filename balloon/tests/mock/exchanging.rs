//! `Balloon::start_exchange`, for a guest whose compaction moves pages of the balloon.

use crate::device::Role;
use crate::guest::{Guest, Page};
use crate::transport::{Driver, Machine};
use ebb_balloon::{
    BalloonError, Ballooned, Exchange, Features, PFNS_PER_REQUEST, PageSource, QueueName, Stop,
};
use std::ops::ControlFlow;

/// A guest that takes the pages with the lowest numbers out of the balloon.
struct Lowest<'a>(&'a mut Guest);

impl PageSource for Lowest<'_> {
    type Page = Page;

    fn take_spare(&mut self) -> Option<Page> {
        self.0.take_spare()
    }

    fn give_back(&mut self, page: Page) {
        self.0.give_back(page);
    }

    fn remember(&mut self, page: Ballooned<Page>) {
        self.0.remember(page);
    }

    fn recall(&mut self) -> Option<Ballooned<Page>> {
        let page = self.0.ballooned.pop_first()?;
        assert!(self.0.moving.insert(page));
        Some(Ballooned::new(Page(page)))
    }
}

/// Returns a guest with 600 pages in the balloon and 400 spare ones.
fn inflated(features: Features) -> (Machine, Driver, Guest) {
    let machine = Machine::new(features);
    let mut driver = machine.driver();
    let mut guest = Guest::with_pages(1000);
    machine.device().set_target(600);
    driver.step(&mut guest, u32::MAX).unwrap();
    (machine, driver, guest)
}

/// Starts an exchange of up to `limit` pages. Returns `None` if the driver does not start one.
fn start(
    driver: &mut Driver,
    pages: &mut impl PageSource<Page = Page>,
    limit: u32,
) -> Option<Exchange> {
    driver.start_exchange(pages, limit).unwrap()
}

/// Exchanges up to `limit` pages with a device that works at once. Returns the number of pages that
/// left the balloon.
fn exchange(driver: &mut Driver, pages: &mut impl PageSource<Page = Page>, limit: u32) -> u32 {
    let Some(mut exchange) = start(driver, pages, limit) else {
        return 0;
    };
    assert_eq!(driver.poll_exchange(&mut exchange, pages), Ok(true));
    assert_eq!(exchange.entered(), exchange.left());
    exchange.left()
}

#[test]
fn other_pages_are_in_the_balloon_and_its_size_is_the_same() {
    for features in [Features::empty(), Features::MUST_TELL_HOST] {
        let (machine, mut driver, mut guest) = inflated(features);
        let mut lowest = Lowest(&mut guest);
        assert_eq!(exchange(&mut driver, &mut lowest, 0), 0);
        assert_eq!(exchange(&mut driver, &mut lowest, 100), 100);
        assert_eq!(guest.ballooned_numbers(), (1100..1700).collect());
        assert!(guest.moving.is_empty());
        // The guest has one page to spare.
        guest.reserve = guest.spare.len() - 1;
        let mut lowest = Lowest(&mut guest);
        assert_eq!(exchange(&mut driver, &mut lowest, 100), 1);
        assert_eq!(driver.actual_pages(), 600);
        assert_eq!(machine.device().actual(), 600);
        assert_eq!(driver.step(&mut guest, 0).unwrap().stop, Stop::OnTarget);
    }
}

#[test]
fn one_request_at_most_is_exchanged() {
    let (_, mut driver, mut guest) = inflated(Features::empty());
    let most = u32::try_from(PFNS_PER_REQUEST).unwrap();
    assert_eq!(exchange(&mut driver, &mut guest, 400), most);
}

#[test]
fn a_busy_device_is_left_alone() {
    let (machine, mut driver, mut guest) = inflated(Features::empty());
    machine.device().at_once = false;
    machine.device().set_target(650);
    driver.step(&mut guest, 50).unwrap();
    assert!(driver.is_busy());
    assert!(start(&mut driver, &mut guest, 100).is_none());
    assert_eq!(guest.moving.len(), 50);
}

#[test]
fn a_deflation_that_was_left_in_flight_is_finished_first() {
    let (machine, mut driver, mut guest) = inflated(Features::DEFLATE_ON_OOM);
    machine.device().at_once = false;
    let wait = || ControlFlow::Break(());
    assert_eq!(driver.deflate(&mut guest, 50, wait), Ok(50));
    assert!(start(&mut driver, &mut guest, 100).is_none());
    machine.device().work_on(Role::Deflate);
    machine.device().at_once = true;
    assert_eq!(exchange(&mut driver, &mut guest, 100), 100);
    assert_eq!(
        (driver.actual_pages(), machine.device().actual()),
        (550, 550)
    );
    assert_eq!(machine.device().balloon, guest.ballooned_numbers());
}

#[test]
fn a_slow_device_is_polled_until_it_has_answered() {
    for features in [Features::empty(), Features::MUST_TELL_HOST] {
        let (machine, mut driver, mut guest) = inflated(features);
        machine.device().at_once = false;
        let mut lowest = Lowest(&mut guest);
        let mut exchange = start(&mut driver, &mut lowest, 100).unwrap();
        // Meanwhile the pages have no other use, and a second exchange does not start.
        assert_eq!(driver.poll_exchange(&mut exchange, &mut lowest), Ok(false));
        assert!(start(&mut driver, &mut lowest, 100).is_none());
        assert_eq!((exchange.entered(), exchange.left()), (0, 0));
        assert_eq!(
            (lowest.0.moving.len(), lowest.0.ballooned.len()),
            (100, 600)
        );
        machine.device().work_on(Role::Inflate);
        assert_eq!(driver.poll_exchange(&mut exchange, &mut lowest), Ok(false));
        assert_eq!((exchange.entered(), exchange.left()), (100, 100));
        assert!(start(&mut driver, &mut lowest, 100).is_none());
        machine.device().work_on(Role::Deflate);
        assert_eq!(driver.poll_exchange(&mut exchange, &mut lowest), Ok(true));
        assert_eq!(driver.poll_exchange(&mut exchange, &mut lowest), Ok(true));
        assert_eq!(guest.ballooned_numbers(), (1100..1700).collect());
        assert_eq!(machine.device().balloon, guest.ballooned_numbers());
        assert_eq!(machine.device().actual(), 600);
        assert!(guest.moving.is_empty() && !driver.is_busy());
    }
}

#[test]
fn an_exchange_that_takes_too_long_ends_in_a_step() {
    for role in [Role::Inflate, Role::Deflate] {
        let (machine, mut driver, mut guest) = inflated(Features::MUST_TELL_HOST);
        machine.device().at_once = false;
        let mut exchange = start(&mut driver, &mut guest, 100).unwrap();
        if role == Role::Deflate {
            machine.device().work_on(Role::Inflate);
        }
        assert_eq!(driver.poll_exchange(&mut exchange, &mut guest), Ok(false));
        let sent = if role == Role::Inflate { 0 } else { 100 };
        assert_eq!(exchange.left(), sent, "{role:?}");
        assert_eq!(guest.moving.len(), 100, "{role:?}");
        // The caller polls no more. The device answers late.
        machine.device().work_on(role);
        machine.device().at_once = true;
        let stop = driver.step(&mut guest, u32::MAX).unwrap().stop;
        assert_eq!(stop, Stop::OnTarget);
        assert_eq!(guest.ballooned.len(), 600, "{role:?}");
        assert_eq!(machine.device().actual(), 600, "{role:?}");
        assert_eq!(machine.device().balloon, guest.ballooned_numbers());
        assert!(guest.moving.is_empty());
    }
}

#[test]
fn a_step_between_two_polls_ends_the_exchange() {
    let (machine, mut driver, mut guest) = inflated(Features::empty());
    machine.device().at_once = false;
    let mut exchange = start(&mut driver, &mut guest, 100).unwrap();
    machine.device().work_on(Role::Inflate);
    // The step finishes the request of the exchange and sends one of its own, of the same size.
    let progress = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!((progress.inflated, progress.deflated), (100, 0));
    assert_eq!(progress.stop, Stop::Waiting(QueueName::Deflate));
    assert_eq!(driver.poll_exchange(&mut exchange, &mut guest), Ok(true));
    assert_eq!((exchange.entered(), exchange.left()), (0, 0));
    // An inflation of a step is not taken for that of an exchange.
    machine.device().work_on(Role::Deflate);
    assert_eq!(driver.step(&mut guest, 0).unwrap().deflated, 100);
    let mut early = start(&mut driver, &mut guest, 100).unwrap();
    machine.device().work_on(Role::Inflate);
    driver.step(&mut guest, u32::MAX).unwrap();
    machine.device().work_on(Role::Deflate);
    machine.device().set_target(650);
    driver.step(&mut guest, u32::MAX).unwrap();
    machine.device().work_on(Role::Inflate);
    assert_eq!(driver.poll_exchange(&mut early, &mut guest), Ok(true));
    assert_eq!(early.entered(), 0);
    let progress = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!((progress.inflated, progress.stop), (50, Stop::OnTarget));
    assert_eq!(machine.device().balloon, guest.ballooned_numbers());
}

#[test]
fn pages_that_leave_for_lack_of_memory_meanwhile_are_missing_until_a_step() {
    let (machine, mut driver, mut guest) = inflated(Features::DEFLATE_ON_OOM);
    machine.device().at_once = false;
    let mut exchange = start(&mut driver, &mut guest, 100).unwrap();
    let wait = || ControlFlow::Break(());
    assert_eq!(driver.deflate(&mut guest, 50, wait), Ok(50));
    machine.device().work_on(Role::Inflate);
    // The deflate queue carries the other request, so that no old page leaves.
    assert_eq!(driver.poll_exchange(&mut exchange, &mut guest), Ok(true));
    assert_eq!((exchange.entered(), exchange.left()), (100, 0));
    assert_eq!(
        (driver.actual_pages(), machine.device().actual()),
        (700, 700)
    );
    machine.device().work_on(Role::Deflate);
    machine.device().at_once = true;
    let progress = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!((progress.deflated, progress.stop), (100, Stop::OnTarget));
    assert_eq!(guest.ballooned.len(), 600);
    assert_eq!(machine.device().balloon, guest.ballooned_numbers());
}

#[test]
fn a_reset_between_two_polls_gives_all_pages_back() {
    for works in [false, true] {
        let (machine, mut driver, mut guest) = inflated(Features::empty());
        machine.device().at_once = false;
        let mut exchange = start(&mut driver, &mut guest, 100).unwrap();
        if works {
            machine.device().work_on(Role::Inflate);
            assert_eq!(driver.poll_exchange(&mut exchange, &mut guest), Ok(false));
        }
        driver.reset(&mut guest).unwrap();
        let polled = driver.poll_exchange(&mut exchange, &mut guest);
        assert_eq!(polled, Err(BalloonError::DeviceReset));
        assert_eq!(guest.spare.len(), 1000);
    }
}

#[test]
fn pages_that_entered_before_a_fault_come_back() {
    let (machine, mut driver, mut guest) = inflated(Features::empty());
    machine.device().at_once = false;
    let mut exchange = start(&mut driver, &mut guest, 100).unwrap();
    machine.device().work_on(Role::Inflate);
    machine.device().ring(Role::Deflate).push(3, 0);
    assert!(driver.poll_exchange(&mut exchange, &mut guest).is_err());
    assert_eq!((exchange.entered(), exchange.left()), (100, 0));
    assert_eq!(guest.ballooned.len(), 700);
    assert_eq!(
        (driver.actual_pages(), machine.device().actual()),
        (700, 700)
    );
    driver.reset(&mut guest).unwrap();
    assert_eq!(guest.spare.len(), 1000);
}
