//! `Balloon::deflate`, for a guest that has run out of memory.

use crate::device::Role;
use crate::guest::Guest;
use crate::transport::{Driver, Machine};
use ebb_balloon::{BalloonError, DeviceFault, Features, QueueName, Stop};
use std::ops::ControlFlow;

fn inflated(features: Features) -> (Machine, Driver, Guest) {
    let machine = Machine::new(features);
    let mut driver = machine.driver();
    let mut guest = Guest::with_pages(1000);
    machine.device().set_target(1000);
    driver.step(&mut guest, u32::MAX).unwrap();
    (machine, driver, guest)
}

fn never() -> ControlFlow<()> {
    panic!("the device works at once")
}

#[test]
fn on_oom_the_guest_takes_what_it_needs() {
    for more in [Features::empty(), Features::MUST_TELL_HOST] {
        let (machine, mut driver, mut guest) = inflated(Features::DEFLATE_ON_OOM | more);
        assert_eq!(driver.deflate(&mut guest, 0, never), Ok(0));
        assert_eq!(driver.deflate(&mut guest, 600, never), Ok(600));
        // Without MUST_TELL_HOST, `deflate` does not wait for the last acknowledgement.
        driver.step(&mut guest, 0).unwrap();
        assert_eq!((guest.spare.len(), machine.device().actual()), (600, 400));
        assert_eq!(driver.deflate(&mut guest, 600, never), Ok(400));
        driver.step(&mut guest, 0).unwrap();
        assert_eq!((guest.spare.len(), machine.device().actual()), (1000, 0));
        assert_eq!(driver.deflate(&mut guest, 600, never), Ok(0));
    }
}

#[test]
fn without_the_feature_only_what_the_device_lets_go() {
    let (machine, mut driver, mut guest) = inflated(Features::empty());
    let not_allowed = BalloonError::DeflateNotAllowed {
        actual: 1000,
        target: 1000,
    };
    assert_eq!(driver.deflate(&mut guest, 1, never), Err(not_allowed));
    machine.device().set_target(900);
    assert_eq!(driver.deflate(&mut guest, 600, never), Ok(100));
    assert_eq!(driver.step(&mut guest, 0).unwrap().stop, Stop::OnTarget);
    assert_eq!(machine.device().actual(), 900);
}

#[test]
fn pages_are_used_at_once_unless_the_host_must_be_told() {
    let (machine, mut driver, mut guest) = inflated(Features::DEFLATE_ON_OOM);
    machine.device().at_once = false;
    assert_eq!(driver.deflate(&mut guest, 100, never), Ok(100));
    assert_eq!((guest.spare.len(), machine.device().actual()), (100, 1000));
    // The next request needs the buffer of the first.
    let give_up = || ControlFlow::Break(());
    assert_eq!(driver.deflate(&mut guest, 100, give_up), Ok(0));
    let mut device_works = || {
        machine.device().work_on(Role::Deflate);
        ControlFlow::Continue(())
    };
    assert_eq!(driver.deflate(&mut guest, 700, &mut device_works), Ok(700));
    assert_eq!((guest.spare.len(), machine.device().actual()), (800, 388));

    let (machine, mut driver, mut guest) =
        inflated(Features::DEFLATE_ON_OOM | Features::MUST_TELL_HOST);
    machine.device().at_once = false;
    assert_eq!(driver.deflate(&mut guest, 100, give_up), Ok(0));
    assert_eq!((guest.spare.len(), guest.moving.len()), (0, 100));
    let mut device_works = || {
        machine.device().work_on(Role::Deflate);
        ControlFlow::Continue(())
    };
    // The pages of the call that gave up count now.
    assert_eq!(driver.deflate(&mut guest, 700, &mut device_works), Ok(800));
    assert_eq!((guest.spare.len(), machine.device().actual()), (800, 200));
}

#[test]
fn an_inflation_that_hangs_does_not_keep_the_guest_from_deflating() {
    let (machine, mut driver, mut guest) = inflated(Features::DEFLATE_ON_OOM);
    driver.deflate(&mut guest, 100, never).unwrap();
    machine.device().at_once = false;
    driver.step(&mut guest, 50).unwrap();
    assert_eq!(guest.moving.len(), 50);
    assert!(driver.is_busy() && !driver.is_deflating());
    machine.device().at_once = true;
    assert_eq!(driver.deflate(&mut guest, 100, never), Ok(100));
}

#[test]
fn a_guest_that_sleeps_polls_with_calls_that_want_nothing() {
    for more in [Features::empty(), Features::MUST_TELL_HOST] {
        let (machine, mut driver, mut guest) = inflated(Features::DEFLATE_ON_OOM | more);
        machine.device().at_once = false;
        let stop = || ControlFlow::Break(());
        let at_once = driver.deflate(&mut guest, 100, stop).unwrap();
        assert!(driver.is_deflating());
        assert_eq!(driver.deflate(&mut guest, 0, stop), Ok(0));
        machine.device().work_on(Role::Deflate);
        let late = driver.deflate(&mut guest, 0, stop).unwrap();
        assert_eq!((at_once + late, guest.spare.len()), (100, 100));
        assert!(!driver.is_deflating());
        assert_eq!(machine.device().actual(), 900);
    }
}

#[test]
fn pages_that_left_before_a_fault_count() {
    let (machine, mut driver, mut guest) = inflated(Features::DEFLATE_ON_OOM);
    machine.device().at_once = false;
    let answer_wrongly = || {
        machine.device().ring(Role::Deflate).push(3, 0);
        ControlFlow::Continue(())
    };
    // The first request is sent, and the device breaks the protocol before the second.
    assert_eq!(driver.deflate(&mut guest, 600, answer_wrongly), Ok(256));
    assert_eq!(guest.spare.len(), 256);
    let fault = BalloonError::Fault(DeviceFault::WrongBuffer {
        queue: QueueName::Deflate,
        held: 0,
        got: 3,
    });
    assert_eq!(driver.deflate(&mut guest, 600, never), Err(fault));
    driver.reset(&mut guest).unwrap();
    assert_eq!(guest.spare.len(), 1000);
}
