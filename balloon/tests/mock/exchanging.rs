//! `Balloon::exchange`, for a guest whose compaction moves pages of the balloon.

use crate::device::Role;
use crate::guest::Guest;
use crate::transport::{Driver, Machine};
use ebb_balloon::{Features, PFNS_PER_REQUEST, PageSource, Pfn, Stop};
use std::ops::ControlFlow;

/// A guest that takes the pages with the lowest numbers out of the balloon.
struct Lowest<'a>(&'a mut Guest);

// SAFETY: as for `Guest`.
unsafe impl PageSource for Lowest<'_> {
    fn take_spare(&mut self) -> Option<Pfn> {
        self.0.take_spare()
    }

    fn give_back(&mut self, page: Pfn) {
        self.0.give_back(page);
    }

    fn remember(&mut self, page: Pfn) {
        self.0.remember(page);
    }

    fn recall(&mut self) -> Option<Pfn> {
        let page = self.0.ballooned.pop_first()?;
        assert!(self.0.moving.insert(page));
        Some(page)
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

fn never() -> ControlFlow<()> {
    panic!("the device works at once")
}

#[test]
fn other_pages_are_in_the_balloon_and_its_size_is_the_same() {
    for features in [Features::empty(), Features::MUST_TELL_HOST] {
        let (machine, mut driver, mut guest) = inflated(features);
        let mut lowest = Lowest(&mut guest);
        assert_eq!(driver.exchange(&mut lowest, 0, never), Ok(0));
        assert_eq!(driver.exchange(&mut lowest, 100, never), Ok(100));
        assert_eq!(guest.ballooned_numbers(), (1100..1700).collect());
        assert!(guest.moving.is_empty());
        // The guest has one page to spare.
        guest.reserve = guest.spare.len() - 1;
        let mut lowest = Lowest(&mut guest);
        assert_eq!(driver.exchange(&mut lowest, 100, never), Ok(1));
        assert_eq!(driver.actual_pages(), 600);
        assert_eq!(machine.device().actual(), 600);
        assert_eq!(driver.step(&mut guest, 0).unwrap().stop, Stop::OnTarget);
    }
}

#[test]
fn one_request_at_most_is_exchanged() {
    let (_, mut driver, mut guest) = inflated(Features::empty());
    let most = u32::try_from(PFNS_PER_REQUEST).unwrap();
    assert_eq!(driver.exchange(&mut guest, 400, never), Ok(most));
}

#[test]
fn a_busy_device_is_left_alone() {
    let (machine, mut driver, mut guest) = inflated(Features::empty());
    machine.device().at_once = false;
    machine.device().set_target(650);
    driver.step(&mut guest, 50).unwrap();
    assert!(driver.is_busy());
    assert_eq!(driver.exchange(&mut guest, 100, never), Ok(0));
    assert_eq!(guest.moving.len(), 50);
}

#[test]
fn an_exchange_that_takes_too_long_ends_in_a_step() {
    for role in [Role::Inflate, Role::Deflate] {
        let (machine, mut driver, mut guest) = inflated(Features::MUST_TELL_HOST);
        machine.device().at_once = false;
        let mut works_on_first = role == Role::Deflate;
        let wait = || {
            if !works_on_first {
                return ControlFlow::Break(());
            }
            works_on_first = false;
            machine.device().work_on(Role::Inflate);
            ControlFlow::Continue(())
        };
        let left = driver.exchange(&mut guest, 100, wait).unwrap();
        assert_eq!(left, if role == Role::Inflate { 0 } else { 100 });
        assert_eq!(guest.moving.len(), 100, "{role:?}");
        machine.device().work_on(role);
        machine.device().at_once = true;
        let stop = driver.step(&mut guest, u32::MAX).unwrap().stop;
        assert_eq!(stop, Stop::OnTarget);
        assert_eq!(guest.ballooned.len(), 600, "{role:?}");
        assert_eq!(machine.device().actual(), 600, "{role:?}");
        assert!(guest.moving.is_empty());
    }
}

#[test]
fn pages_that_entered_before_a_fault_come_back() {
    let (machine, mut driver, mut guest) = inflated(Features::empty());
    machine.device().at_once = false;
    let answers_too_much = || {
        let mut device = machine.device();
        device.work_on(Role::Inflate);
        device.ring(Role::Deflate).push(3, 0);
        ControlFlow::Continue(())
    };
    assert!(driver.exchange(&mut guest, 100, answers_too_much).is_err());
    assert_eq!(guest.ballooned.len(), 700);
    assert_eq!(
        (driver.actual_pages(), machine.device().actual()),
        (700, 700)
    );
    driver.reset(&mut guest).unwrap();
    assert_eq!(guest.spare.len(), 1000);
}
