//! `Balloon::step`, towards the size that the device wants.

use crate::device::Role;
use crate::guest::Guest;
use crate::transport::Machine;
use ebb_balloon::{Features, Progress, QueueName, Stop, Work};

#[test]
fn requests_are_batched() {
    let machine = Machine::new(Features::empty());
    let mut driver = machine.driver();
    let mut guest = Guest::with_pages(2000);
    machine.device().set_target(1000);
    let progress = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!(
        progress,
        Progress {
            inflated: 1000,
            deflated: 0,
            stop: Stop::OnTarget
        }
    );
    let sizes: Vec<_> = machine.device().requests.clone();
    let inflate = |pages| (Role::Inflate, pages);
    assert_eq!(
        sizes,
        [inflate(256), inflate(256), inflate(256), inflate(232)]
    );
    assert_eq!(machine.device().actual(), 1000);
    assert_eq!(machine.device().balloon, guest.ballooned_numbers());
    assert_eq!(driver.actual_pages(), 1000);
    assert_eq!(driver.target_pages(), Ok(1000));
}

#[test]
fn the_budget_bounds_a_step() {
    let machine = Machine::new(Features::empty());
    let mut driver = machine.driver();
    let mut guest = Guest::with_pages(2000);
    machine.device().set_target(700);
    for expected in [300, 300, 100] {
        assert_eq!(driver.step(&mut guest, 300).unwrap().inflated, expected);
    }
    machine.device().set_target(0);
    let first = driver.step(&mut guest, 600).unwrap();
    assert_eq!((first.deflated, first.stop), (600, Stop::BudgetSpent));
    let last = driver.step(&mut guest, 600).unwrap();
    assert_eq!((last.deflated, last.stop), (100, Stop::OnTarget));
    assert_eq!(driver.step(&mut guest, 0).unwrap().stop, Stop::OnTarget);
}

#[test]
fn a_guest_without_spare_pages_is_left_in_peace() {
    let machine = Machine::new(Features::empty());
    let mut driver = machine.driver();
    let mut guest = Guest::with_pages(500);
    guest.reserve = 100;
    // More pages than any guest has.
    machine.device().set_target(u32::MAX);
    let stop = Stop::NothingToSpare {
        missing: u32::MAX - 400,
    };
    let progress = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!(
        progress,
        Progress {
            inflated: 400,
            deflated: 0,
            stop
        }
    );
    // Another call does no harm.
    assert_eq!(driver.step(&mut guest, u32::MAX).unwrap().inflated, 0);
    guest.reserve = 90;
    assert_eq!(driver.step(&mut guest, u32::MAX).unwrap().inflated, 10);
    assert_eq!(machine.device().actual(), 410);
}

#[test]
fn a_slow_device_is_not_waited_for() {
    let machine = Machine::new(Features::MUST_TELL_HOST);
    machine.device().at_once = false;
    let mut driver = machine.driver();
    let mut guest = Guest::with_pages(1000);
    machine.device().set_target(300);

    let waiting = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!(waiting.stop, Stop::Waiting(QueueName::Inflate));
    assert_eq!((guest.moving.len(), guest.ballooned.len()), (256, 0));
    assert_eq!(driver.step(&mut guest, u32::MAX).unwrap(), waiting);
    assert_eq!(machine.device().actual(), 0);

    assert!(machine.device().work_on(Role::Inflate));
    assert_eq!(driver.ack_interrupt(), Work::INFLATE | Work::TARGET);
    let next = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!(
        (next.inflated, next.stop),
        (256, Stop::Waiting(QueueName::Inflate))
    );
    assert_eq!(machine.device().actual(), 256);
    assert!(machine.device().work_on(Role::Inflate));

    // The device now wants fewer pages.
    machine.device().set_target(10);
    let turn = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!((turn.inflated, turn.deflated), (44, 0));
    assert_eq!(turn.stop, Stop::Waiting(QueueName::Deflate));
    assert_eq!((guest.moving.len(), guest.spare.len()), (256, 700));
    assert!(machine.device().work_on(Role::Deflate));
    assert_eq!(driver.step(&mut guest, u32::MAX).unwrap().deflated, 256);
    assert!(machine.device().work_on(Role::Deflate));
    let last = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!((last.deflated, last.stop), (34, Stop::OnTarget));
    assert_eq!((machine.device().actual(), guest.spare.len()), (10, 990));
}

#[test]
fn a_target_that_changes_between_reads_costs_only_the_budget() {
    let machine = Machine::new(Features::empty());
    let mut driver = machine.driver();
    let mut guest = Guest::with_pages(1000);
    machine.device().targets = [u32::MAX, 0].into_iter().cycle().take(10_000).collect();
    let progress = driver.step(&mut guest, 100_000).unwrap();
    // The balloon grows by a batch and shrinks by a batch, again and again.
    assert_eq!(progress.stop, Stop::BudgetSpent);
    assert_eq!(progress.inflated + progress.deflated, 100_000);
    assert_eq!(machine.device().balloon, guest.ballooned_numbers());
}

#[test]
fn the_balloon_starts_empty() {
    let machine = Machine::new(Features::empty());
    machine.device().config[4] = 99;
    let driver = machine.driver();
    assert_eq!((machine.device().actual(), driver.actual_pages()), (0, 0));
}

#[test]
fn a_source_that_forgot_its_pages_is_told() {
    let machine = Machine::new(Features::empty());
    let mut driver = machine.driver();
    let mut guest = Guest::with_pages(10);
    machine.device().set_target(10);
    driver.step(&mut guest, 100).unwrap();
    guest.ballooned.clear();
    machine.device().set_target(4);
    let stop = driver.step(&mut guest, 100).unwrap().stop;
    assert_eq!(stop, Stop::NothingToRecall { excess: 6 });
}
