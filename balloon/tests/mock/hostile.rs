//! Faulty devices: errors name the fault, the driver does not panic, and no page is in two sets.

use crate::device::Role;
use crate::guest::Guest;
use crate::hal::TestHal;
use crate::transport::{Driver, Machine};
use ebb_balloon::{
    BalloonError, DeviceFault, Features, Options, PAGE_SIZE, QueueName, ReportBatch, ReportError,
    Stats, Stop,
};
use std::ptr::NonNull;

#[repr(align(4096))]
struct Page([u8; PAGE_SIZE]);

fn machine() -> (Machine, Driver, Guest) {
    let machine = Machine::new(Features::all());
    let stats = Stats {
        free_bytes: Some(1),
        ..Stats::default()
    };
    let driver = machine
        .start(Options {
            stats: Some(stats),
            ..Options::default()
        })
        .unwrap();
    machine.device().at_once = false;
    (machine, driver, Guest::with_pages(1000))
}

#[test]
fn another_buffer_than_the_one_it_holds() {
    for id in [1, 3, 4, 999, 0xffff, 0xffff_ffff] {
        let (machine, mut driver, mut guest) = machine();
        machine.device().set_target(10);
        driver.step(&mut guest, 100).unwrap();
        machine.device().ring(Role::Inflate).push(id, 0);
        let got = id as u16;
        let queue = QueueName::Inflate;
        let fault = BalloonError::Fault(DeviceFault::WrongBuffer {
            queue,
            held: 0,
            got,
        });
        assert_eq!(driver.step(&mut guest, 100), Err(fault));
        // The queue stays faulted, even if the device then follows the protocol.
        machine.device().work_on(Role::Inflate);
        assert_eq!(driver.step(&mut guest, 100), Err(fault));
        // The device may still have the pages of the request.
        assert_eq!(driver.start_exchange(&mut guest, 4).err(), Some(fault));
        assert_eq!((guest.moving.len(), driver.actual_pages()), (10, 0));
        // A reset returns the pages.
        driver.reset(&mut guest).unwrap();
        assert_eq!(guest.spare.len(), 1000);
    }
}

#[test]
fn a_buffer_that_the_driver_never_queued() {
    let (machine, mut driver, mut guest) = machine();
    machine.device().ring(Role::Inflate).push(0, 0);
    let queue = QueueName::Inflate;
    let fault = BalloonError::Fault(DeviceFault::Unsolicited { queue, got: 0 });
    assert_eq!(driver.step(&mut guest, 100), Err(fault));

    // An extra used entry after a correct one must not be taken for the next answer.
    let (machine, mut driver, mut guest) = self::machine();
    machine.device().set_target(10);
    driver.step(&mut guest, 10).unwrap();
    machine.device().work_on(Role::Inflate);
    machine.device().ring(Role::Inflate).push(0, 0);
    machine.device().set_target(20);
    assert_eq!(driver.step(&mut guest, 10), Err(fault));
    assert_eq!((guest.moving.len(), guest.ballooned.len()), (0, 10));
    assert_eq!(guest.spare.len(), 990);
}

#[test]
fn a_used_index_out_of_nowhere() {
    for index in [2, 3, 4, 5, 100, 0x7fff, 0xffff] {
        let (machine, mut driver, mut guest) = machine();
        machine.device().set_target(10);
        driver.step(&mut guest, 10).unwrap();
        machine.device().ring(Role::Inflate).set_used(index);
        // The zeros in the ring look like the answer to the request. The next entry does not.
        assert_eq!(driver.step(&mut guest, 10).unwrap().inflated, 10);
        assert!(driver.step(&mut guest, 10).is_err());
        assert_eq!(
            guest.spare.len() + guest.moving.len() + guest.ballooned.len(),
            1000
        );
    }
}

#[test]
fn used_lengths_mean_nothing() {
    for len in [1, 41, 4096, u32::MAX] {
        let (machine, mut driver, mut guest) = machine();
        machine.device().claimed_len = len;
        machine.device().at_once = true;
        machine.device().set_target(10);
        assert_eq!(driver.step(&mut guest, 10).unwrap().stop, Stop::OnTarget);
        let mut page = Box::new(Page([1; PAGE_SIZE]));
        let mut batch = ReportBatch::new();
        // SAFETY: the memory is not accessed while it is reported.
        unsafe { batch.push(NonNull::from(&mut *page).cast(), PAGE_SIZE) }.unwrap();
        driver
            .report(&mut batch, || panic!("done at once"))
            .unwrap();
        assert_eq!(page.0[1], 1);
    }
}

#[test]
fn a_report_that_goes_wrong_keeps_its_ranges() {
    let (machine, mut driver, mut guest) = machine();
    let mut page = Box::new(Page([1; PAGE_SIZE]));
    let mut batch = ReportBatch::new();
    // SAFETY: the memory is not accessed before the reset.
    unsafe { batch.push(NonNull::from(&mut *page).cast(), PAGE_SIZE) }.unwrap();
    driver.submit_report(&mut batch).unwrap();
    machine.device().ring(Role::Reporting).push(17, 0);
    let queue = QueueName::Reporting;
    let fault = DeviceFault::WrongBuffer {
        queue,
        held: 0,
        got: 17,
    };
    let error = ReportError::Device(BalloonError::Fault(fault));
    assert_eq!(driver.report_done(), Err(error));
    assert_eq!(driver.report_done(), Err(error));
    assert_eq!(driver.ranges_held(), 1);
    assert_eq!(driver.submit_report(&mut batch), Err(error));
    // The other queues go on working.
    machine.device().at_once = true;
    machine.device().set_target(5);
    assert_eq!(driver.step(&mut guest, 5).unwrap().stop, Stop::OnTarget);
    driver.reset(&mut guest).unwrap();
    assert_eq!(driver.ranges_held(), 0);
    page.0[0] = 2;
}

#[test]
fn an_unasked_answer_to_a_report_comes_before_the_report() {
    let (machine, mut driver, _guest) = machine();
    let mut page = Box::new(Page([1; PAGE_SIZE]));
    let mut batch = ReportBatch::new();
    // SAFETY: the memory is not accessed while it is reported.
    unsafe { batch.push(NonNull::from(&mut *page).cast(), PAGE_SIZE) }.unwrap();
    machine.device().ring(Role::Reporting).push(0, 0);
    let queue = QueueName::Reporting;
    let fault = DeviceFault::Unsolicited { queue, got: 0 };
    let error = ReportError::Device(BalloonError::Fault(fault));
    assert_eq!(driver.submit_report(&mut batch), Err(error));
    assert_eq!(batch.len(), 1);
    assert_eq!(TestHal::shared(), 1, "only the statistics buffer");
}

#[test]
fn statistics_asked_for_twice() {
    let (machine, mut driver, _guest) = machine();
    machine.device().ask_stats();
    machine.device().ring(Role::Stats).push(0, 0);
    let queue = QueueName::Stats;
    let fault = BalloonError::Fault(DeviceFault::Unsolicited { queue, got: 0 });
    assert_eq!(driver.answer_stats(Stats::default), Err(fault));
    assert_eq!(driver.answer_stats(Stats::default), Err(fault));
}

#[test]
fn a_configuration_space_that_shrinks() {
    let (machine, mut driver, mut guest) = machine();
    machine.device().at_once = true;
    machine.device().set_target(10);
    machine.device().config_len = 4;
    // The pages have moved, but the new size cannot be written to the device.
    let Err(BalloonError::Config(error)) = driver.step(&mut guest, 10) else {
        panic!("the field is gone");
    };
    assert_eq!(error.offset, 4);
    assert_eq!((guest.ballooned.len(), driver.actual_pages()), (10, 10));
    machine.device().config_len = 0;
    assert!(matches!(
        driver.step(&mut guest, 10),
        Err(BalloonError::Config(_))
    ));
    assert!(matches!(
        driver.target_pages(),
        Err(BalloonError::Config(_))
    ));
}
