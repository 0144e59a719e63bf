//! Start and end: negotiation, queue numbers, failures.

use crate::device::{Numbering, Role};
use crate::guest::Guest;
use crate::hal::TestHal;
use crate::transport::{Driver, MODERN, Machine};
use ebb_balloon::{
    BalloonError, Features, FreePages, Options, QueueName, ReportBatch, ReportError,
    ReportingUnavailable, SetupError, Stats, Stop, Work,
};
use virtio_drivers::transport::{DeviceStatus, DeviceType};

const BALLOON_BITS: [Features; 6] = [
    Features::MUST_TELL_HOST,
    Features::STATS_VQ,
    Features::DEFLATE_ON_OOM,
    Features::FREE_PAGE_HINT,
    Features::PAGE_POISON,
    Features::REPORTING,
];

fn with_stats() -> Options {
    let stats = Stats {
        total_bytes: Some(1 << 30),
        ..Stats::default()
    };
    Options {
        stats: Some(stats),
        ..Options::default()
    }
}

/// Tries each of the 64 combinations of features with both ways of numbering, with and without
/// statistics. The driver must use the right queues.
#[test]
fn all_feature_combinations() {
    for bits in 0..64 {
        let offered = Features::from_bits_truncate(bits);
        for numbering in [Numbering::Standard, Numbering::WithoutGaps] {
            for options in [Options::default(), with_stats()] {
                exercise(offered, numbering, options);
            }
        }
    }
    assert_eq!(TestHal::pages(), 0);
}

fn exercise(offered: Features, numbering: Numbering, options: Options) {
    let machine = Machine::numbered(offered, numbering);
    let mut driver = machine.start(options).unwrap();
    let stats_used = offered.contains(Features::STATS_VQ) && options.stats.is_some();

    let mut expected = offered | MODERN;
    expected -= Features::FREE_PAGE_HINT | Features::PAGE_POISON;
    expected.set(Features::STATS_VQ, stats_used);
    assert_eq!(driver.features(), expected);
    assert_eq!(machine.device().accepted, Some(expected.bits()));
    assert_eq!(machine.device().status, 1 | 2 | 4 | 8);

    let mut guest = Guest::with_pages(300);
    machine.device().set_target(300);
    assert_eq!(driver.ack_interrupt(), Work::TARGET);
    let progress = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!((progress.inflated, progress.stop), (300, Stop::OnTarget));
    machine.device().set_target(0);
    let progress = driver.step(&mut guest, u32::MAX).unwrap();
    assert_eq!((progress.deflated, progress.stop), (300, Stop::OnTarget));

    if stats_used {
        assert_eq!(machine.device().stats, [[(5, 1 << 30)]]);
        assert!(machine.device().ask_stats());
        let free = Stats {
            total_bytes: Some(77),
            ..Stats::default()
        };
        assert_eq!(driver.answer_stats(|| free), Ok(true));
        assert_eq!(machine.device().stats[1], [(5, 77)]);
    }

    let mut batch = ReportBatch::new();
    let mut page = Box::new(Page([0xcc; 4096]));
    // SAFETY: the page is read only after the report.
    unsafe { batch.push(std::ptr::NonNull::from(&mut *page).cast(), 4096) }.unwrap();
    let reported = driver.report(&mut batch, || panic!("done at once"));
    if offered.contains(Features::REPORTING) {
        assert_eq!(driver.reporting(), Ok(()));
        assert_eq!(reported.unwrap().bytes, 4096);
        assert_eq!(page.0[0], 0);
    } else {
        let unavailable = ReportingUnavailable::NotOffered;
        assert_eq!(reported, Err(ReportError::Unavailable(unavailable)));
        assert_eq!(driver.reporting(), Err(unavailable));
    }
    if offered.contains(Features::FREE_PAGE_HINT) {
        assert!(!machine.device().ring(Role::Hint).is_set());
    }
    drop(driver);
    assert_eq!(machine.device().status, 0);
}

#[repr(align(4096))]
struct Page([u8; 4096]);

#[test]
fn poison_is_told_before_driver_ok_or_reporting_is_off() {
    for value in [0, 0xaaaa_aaaa] {
        let options = Options {
            free_pages: FreePages::Filled(value),
            ..Options::default()
        };
        let both = Features::REPORTING | Features::PAGE_POISON;
        let machine = Machine::new(both);
        let driver = machine.start(options).unwrap();
        assert_eq!(driver.features(), both | MODERN);
        assert_eq!(machine.device().poison_at_driver_ok, Some(value));
        assert!(driver.reporting_is_safe());
        assert_eq!(driver.reporting(), Ok(()));

        let machine = Machine::new(Features::REPORTING);
        let mut driver = machine.start(options).unwrap();
        assert_eq!(driver.features(), MODERN);
        assert!(!driver.reporting_is_safe());
        let unsafe_now = ReportingUnavailable::NotSafe { value };
        assert_eq!(driver.reporting(), Err(unsafe_now));
        let refused = driver.submit_report(&mut ReportBatch::new());
        assert_eq!(refused, Err(ReportError::Unavailable(unsafe_now)));
    }
    let driver = Machine::new(Features::REPORTING).driver();
    assert!(driver.reporting_is_safe());
}

#[test]
fn a_missing_or_small_reporting_queue_only_costs_reporting() {
    let machine = Machine::new(Features::REPORTING);
    let index = machine.device().index(Role::Reporting);
    machine.device().rings.remove(&index);
    assert_eq!(
        machine.driver().reporting(),
        Err(ReportingUnavailable::NoQueue)
    );

    let machine = Machine::new(Features::REPORTING);
    machine.device().ring(Role::Reporting).max_size = 16;
    let small = ReportingUnavailable::QueueTooSmall { entries: 16 };
    assert_eq!(machine.driver().reporting(), Err(small));
}

#[test]
fn failures_are_named_and_leave_nothing_behind() {
    let all = BALLOON_BITS.into_iter().collect::<Features>();
    let machine = Machine::new(all);
    let network = Driver::new(machine.transport(DeviceType::Network), Options::default());
    let device_type = DeviceType::Network;
    assert_eq!(
        network.unwrap_err(),
        SetupError::NotABalloon { device_type }
    );

    machine.device().refuse_features = true;
    let Err(SetupError::FeaturesRefused { offered, accepted }) = machine.start(with_stats()) else {
        panic!("the features were refused");
    };
    assert_eq!(offered, all | MODERN);
    assert_eq!(
        accepted,
        offered - Features::FREE_PAGE_HINT - Features::PAGE_POISON
    );
    // The device stays in the state FAILED.
    assert_eq!(machine.device().status, 128);

    machine.device().refuse_features = false;
    machine.device().rings.remove(&1);
    let Err(SetupError::Queue { queue, index, .. }) = machine.start(with_stats()) else {
        panic!("the queue is missing");
    };
    assert_eq!((queue, index), (QueueName::Deflate, 1));

    let machine = Machine::new(all);
    machine.device().config_len = 0;
    let Err(SetupError::Config(error)) = machine.start(with_stats()) else {
        panic!("the field is missing");
    };
    assert_eq!(error.offset, 4);

    let machine = Machine::new(all);
    machine.device().status = 15;
    machine.device().resets = false;
    let Err(SetupError::Reset(timeout)) = machine.start(with_stats()) else {
        panic!("the device does not reset");
    };
    assert_eq!(timeout.status, DeviceStatus::from_bits_retain(15));
    assert_eq!(TestHal::pages(), 0);
}

#[test]
fn memory_may_run_out_at_any_point_of_the_start() {
    let all = BALLOON_BITS.into_iter().collect::<Features>();
    // One page for buffers, and two for each of four queues.
    for pages in 0..9 {
        TestHal::limit_pages(pages);
        let result = Machine::new(all).start(with_stats());
        match result.unwrap_err() {
            SetupError::NoDmaMemory => assert_eq!(pages, 0),
            SetupError::Queue { error, .. } => assert_eq!(error, virtio_drivers::Error::DmaError),
            other => panic!("{other}"),
        }
        assert_eq!(TestHal::pages(), 0);
    }
    TestHal::limit_pages(9);
    drop(Machine::new(all).start(with_stats()).unwrap());
    assert_eq!(TestHal::pages(), 0);
}

#[test]
fn a_legacy_device_does_not_confirm_features() {
    let machine = Machine::new(Features::REPORTING);
    machine.device().legacy = true;
    machine.device().refuse_features = true;
    machine.device().offered -= Features::VERSION_1;
    assert_eq!(machine.driver().features(), Features::REPORTING);
}

#[test]
fn a_reset_gives_everything_back() {
    let machine = Machine::new(Features::REPORTING | Features::MUST_TELL_HOST);
    let mut driver = machine.start(with_stats()).unwrap();
    let mut guest = Guest::with_pages(1000);
    machine.device().set_target(600);
    driver.step(&mut guest, u32::MAX).unwrap();
    machine.device().at_once = false;
    machine.device().set_target(500);
    driver.step(&mut guest, u32::MAX).unwrap();
    let mut page = Box::new(Page([0xcc; 4096]));
    let mut batch = ReportBatch::new();
    // SAFETY: the page is not read before the reset.
    unsafe { batch.push(std::ptr::NonNull::from(&mut *page).cast(), 4096) }.unwrap();
    driver.submit_report(&mut batch).unwrap();
    assert_eq!((guest.ballooned.len(), guest.moving.len()), (500, 100));
    assert_eq!(driver.ranges_held(), 1);
    assert_eq!(driver.reporting(), Ok(()));

    // A device that does not reset may still use the memory.
    machine.device().resets = false;
    driver.reset(&mut guest).unwrap_err();
    assert!(!driver.release(&mut guest, 10));
    assert_eq!((guest.ballooned.len(), guest.moving.len()), (500, 100));
    assert_eq!(driver.ranges_held(), 1);
    assert_eq!(driver.step(&mut guest, 1), Err(BalloonError::DeviceReset));
    assert_eq!(driver.reporting(), Err(ReportingUnavailable::Reset));

    machine.device().resets = true;
    driver.reset(&mut guest).unwrap();
    assert_eq!((guest.spare.len(), driver.actual_pages()), (1000, 0));
    assert_eq!(driver.ranges_held(), 0);
    assert_eq!(page.0[0], 0xcc);
    assert_eq!(driver.completed(), Work::empty());
    assert_eq!(driver.target_pages(), Err(BalloonError::DeviceReset));
    assert_eq!(
        driver.answer_stats(Stats::default),
        Err(BalloonError::DeviceReset)
    );
    assert_eq!(
        driver.report_done(),
        Err(ReportError::Device(BalloonError::DeviceReset))
    );
    assert_eq!(
        driver.submit_report(&mut batch),
        Err(ReportError::Device(BalloonError::DeviceReset))
    );
}

#[test]
fn a_stopped_device_lets_its_pages_go_in_steps() {
    let machine = Machine::new(Features::MUST_TELL_HOST);
    let mut driver = machine.start(with_stats()).unwrap();
    let mut guest = Guest::with_pages(1000);
    machine.device().set_target(600);
    driver.step(&mut guest, u32::MAX).unwrap();
    machine.device().at_once = false;
    machine.device().set_target(500);
    driver.step(&mut guest, u32::MAX).unwrap();
    driver.stop().unwrap();
    assert_eq!((guest.ballooned.len(), guest.moving.len()), (500, 100));
    // The pages in flight come first.
    assert!(driver.release(&mut guest, 0));
    assert_eq!((guest.spare.len(), driver.actual_pages()), (500, 500));
    assert!(driver.release(&mut guest, 499));
    assert_eq!((guest.spare.len(), driver.actual_pages()), (999, 1));
    assert!(!driver.release(&mut guest, 499));
    assert_eq!((guest.spare.len(), driver.actual_pages()), (1000, 0));
    assert!(!driver.release(&mut guest, 499));
}

#[test]
fn interrupts_say_what_there_is_to_do() {
    let machine = Machine::new(Features::REPORTING | Features::STATS_VQ);
    let mut driver = machine.start(with_stats()).unwrap();
    assert_eq!(driver.ack_interrupt(), Work::empty());
    machine.device().at_once = false;
    machine.device().set_target(1);
    let mut guest = Guest::with_pages(1);
    driver.step(&mut guest, 1).unwrap();
    machine.device().work_on(Role::Inflate);
    machine.device().ask_stats();
    assert_eq!(driver.completed(), Work::INFLATE | Work::STATS);
    assert_eq!(
        driver.ack_interrupt(),
        Work::INFLATE | Work::STATS | Work::TARGET
    );
    assert_eq!(driver.ack_interrupt(), Work::empty());

    driver.set_completion_interrupts(false);
    driver.answer_stats(Stats::default).unwrap();
    driver.step(&mut guest, 1).unwrap();
    machine.device().set_target(0);
    driver.step(&mut guest, 1).unwrap();
    machine.device().work_on(Role::Deflate);
    assert_eq!(driver.ack_interrupt(), Work::TARGET);
    assert_eq!(driver.completed(), Work::DEFLATE);

    machine.device().status |= 64;
    machine.device().interrupt = 2;
    assert_eq!(driver.ack_interrupt(), Work::TARGET | Work::NEEDS_RESET);
}
