//! Free page reports.

use crate::device::Role;
use crate::guest::Guest;
use crate::hal::TestHal;
use crate::transport::Machine;
use ebb_balloon::{BalloonError, Features, PAGE_SIZE, ReportBatch, ReportError, Reported, Work};
use std::alloc::{Layout, alloc, dealloc};
use std::ops::ControlFlow;
use std::ptr::NonNull;

/// Free memory of whole pages, without references to it.
struct FreeMemory {
    start: NonNull<u8>,
    layout: Layout,
}

impl FreeMemory {
    fn new(pages: usize) -> Self {
        let layout = Layout::from_size_align(pages * PAGE_SIZE, PAGE_SIZE).unwrap();
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc(layout) }).unwrap();
        // SAFETY: the memory was just allocated with this size.
        unsafe { start.write_bytes(0xcc, layout.size()) };
        Self { start, layout }
    }

    /// Adds `pages` pages from `page` on to a batch.
    fn push(&self, batch: &mut ReportBatch, page: usize, pages: usize) {
        assert!((page + pages) * PAGE_SIZE <= self.layout.size());
        // SAFETY: inside the memory. The tests read it again only after the report is done.
        unsafe { batch.push(self.start.add(page * PAGE_SIZE), pages * PAGE_SIZE) }.unwrap();
    }

    /// Returns the first byte of a page.
    fn first_byte(&self, page: usize) -> u8 {
        // SAFETY: inside the memory, and the device no longer uses it.
        unsafe { self.start.add(page * PAGE_SIZE).read_volatile() }
    }
}

impl Drop for FreeMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[test]
fn a_report_carries_up_to_32_ranges() {
    let machine = Machine::new(Features::REPORTING);
    let mut driver = machine.driver();
    let memory = FreeMemory::new(128);
    for ranges in 1..=32 {
        let mut batch = ReportBatch::new();
        for range in 0..ranges {
            memory.push(&mut batch, 4 * range, 3);
        }
        let reported = driver
            .report(&mut batch, || panic!("done at once"))
            .unwrap();
        assert_eq!(
            reported,
            Reported {
                ranges,
                bytes: 3 * 4096 * ranges as u64
            }
        );
        assert!(batch.is_empty());
    }
    let sent = machine.device().reports.clone();
    assert_eq!(sent.len(), 32);
    assert!(
        sent.iter()
            .zip(1..)
            .all(|(report, ranges)| report.len() == ranges)
    );
    let first = memory.start.addr().get() as u64;
    let expected = (0..32).map(|range| (first + 4 * 4096 * range, 3 * 4096));
    assert!(sent[31].iter().copied().eq(expected));
    assert_eq!((memory.first_byte(4), memory.first_byte(7)), (0, 0xcc));
    assert_eq!(TestHal::shared(), 0);
}

#[test]
fn one_report_at_a_time() {
    let machine = Machine::new(Features::REPORTING);
    machine.device().at_once = false;
    let mut driver = machine.driver();
    let memory = FreeMemory::new(4);
    assert_eq!(driver.report_done(), Err(ReportError::NotSubmitted));
    let mut batch = ReportBatch::new();
    assert_eq!(driver.submit_report(&mut batch), Err(ReportError::Empty));
    memory.push(&mut batch, 0, 1);
    memory.push(&mut batch, 2, 1);
    driver.submit_report(&mut batch).unwrap();
    assert!(batch.is_empty());
    assert_eq!(driver.ranges_held(), 2);
    assert_eq!(driver.report_done(), Ok(None));
    assert!(driver.take_ranges().is_none());

    memory.push(&mut batch, 1, 1);
    assert_eq!(driver.submit_report(&mut batch), Err(ReportError::Busy));
    assert_eq!(batch.len(), 1);

    machine.device().work_on(Role::Reporting);
    assert_eq!(driver.ack_interrupt(), Work::REPORT);
    assert_eq!(
        driver.report_done(),
        Ok(Some(Reported {
            ranges: 2,
            bytes: 8192
        }))
    );
    assert_eq!(driver.report_done(), Err(ReportError::NotSubmitted));
    assert_eq!(driver.ranges_held(), 0);
    // The ranges are returned once.
    let returned = driver.take_ranges().unwrap();
    assert!(returned.iter().map(|(_, bytes)| bytes).eq([4096, 4096]));
    assert!(driver.take_ranges().is_none());
    driver.submit_report(&mut batch).unwrap();
    assert!(driver.take_ranges().is_none());
}

#[test]
fn ranges_that_nobody_takes_back_are_not_reported_again() {
    let machine = Machine::new(Features::REPORTING);
    let mut driver = machine.driver();
    let memory = FreeMemory::new(2);
    let mut batch = ReportBatch::new();
    for page in 0..2 {
        memory.push(&mut batch, page, 1);
        driver
            .report(&mut batch, || panic!("done at once"))
            .unwrap();
        assert!(batch.is_empty());
    }
    assert_eq!(driver.take_ranges().unwrap().iter().count(), 1);
}

#[test]
fn giving_up_leaves_the_report_with_the_device() {
    let machine = Machine::new(Features::REPORTING);
    machine.device().at_once = false;
    let mut driver = machine.driver();
    let memory = FreeMemory::new(1);
    let mut batch = ReportBatch::new();
    memory.push(&mut batch, 0, 1);
    let mut patience = 0..10;
    let wait = || match patience.next() {
        Some(_) => ControlFlow::Continue(()),
        None => ControlFlow::Break(()),
    };
    assert_eq!(
        driver.report(&mut batch, wait),
        Err(ReportError::StillPending)
    );
    assert_eq!((driver.ranges_held(), batch.len()), (1, 0));
    machine.device().work_on(Role::Reporting);
    assert_eq!(
        driver.report_done(),
        Ok(Some(Reported {
            ranges: 1,
            bytes: 4096
        }))
    );
}

#[test]
fn after_a_reset_no_late_answer_comes() {
    let machine = Machine::new(Features::REPORTING);
    machine.device().at_once = false;
    let mut driver = machine.driver();
    let memory = FreeMemory::new(1);
    let mut batch = ReportBatch::new();
    memory.push(&mut batch, 0, 1);
    driver.submit_report(&mut batch).unwrap();
    // A device that does not reset may still use the memory.
    machine.device().resets = false;
    driver.reset(&mut Guest::with_pages(0)).unwrap_err();
    assert!(driver.take_ranges().is_none());
    machine.device().resets = true;
    driver.reset(&mut Guest::with_pages(0)).unwrap();
    assert_eq!(driver.take_ranges().unwrap().iter().count(), 1);
    assert!(!machine.device().work_on(Role::Reporting));
    assert_eq!((driver.ranges_held(), memory.first_byte(0)), (0, 0xcc));
    let reset = ReportError::Device(BalloonError::DeviceReset);
    assert_eq!(driver.report_done(), Err(reset));
    memory.push(&mut batch, 0, 1);
    assert_eq!(driver.submit_report(&mut batch), Err(reset));
}

#[test]
fn waiting_lets_the_device_work() {
    let machine = Machine::new(Features::REPORTING);
    machine.device().at_once = false;
    let mut driver = machine.driver();
    let memory = FreeMemory::new(1);
    for _ in 0..100_000 {
        let mut batch = ReportBatch::new();
        memory.push(&mut batch, 0, 1);
        let wait = || {
            machine.device().work_on(Role::Reporting);
            ControlFlow::Continue(())
        };
        // The number of reports is large enough for the 16-bit ring indices to wrap.
        assert_eq!(driver.report(&mut batch, wait).unwrap().ranges, 1);
        machine.device().reports.clear();
    }
}
