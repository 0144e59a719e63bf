use super::cpu::{Cpu, Running, Tasks};
use super::group::{CpuTimes, Group, PERIOD};
use super::trigger::Trigger;
use super::{Resource, Stall};
use crate::errno::Errno;
use std::format;
use std::string::String;
use std::vec::Vec;

const S: u64 = 1_000_000_000;

/// Returns the stalls that a CPU with these `tasks` is in.
fn stalls(tasks: Tasks) -> Vec<Stall> {
    let mut cpu = Cpu::new();
    cpu.change(0, |own| *own = tasks);
    let (times, _) = cpu.times(7);
    [
        Stall::IoSome,
        Stall::IoFull,
        Stall::MemorySome,
        Stall::MemoryFull,
        Stall::CpuSome,
        Stall::CpuFull,
    ]
    .into_iter()
    .filter(|&stall| times[stall as usize] == 7)
    .collect()
}

#[test]
fn some_is_one_and_full_is_all() {
    use Stall::{IoFull, IoSome, MemoryFull, MemorySome};
    let none = Tasks::default();
    let io = Tasks { in_io: 1, ..none };
    // One task sleeps in a stall for memory, another waits for a CPU in one.
    let asleep = Tasks {
        in_memory: 1,
        ..none
    };
    let awake = Tasks {
        in_memory: 1,
        in_memory_runnable: 1,
        waiting: 1,
        ..none
    };
    let productive = Running::Productive;
    for (tasks, hold) in [
        (none, &[][..]),
        (io, &[IoSome, IoFull]),
        (Tasks { waiting: 1, ..io }, &[IoSome]),
        (
            Tasks {
                running: productive,
                ..io
            },
            &[IoSome],
        ),
        (asleep, &[MemorySome, MemoryFull]),
        (
            Tasks {
                running: productive,
                ..asleep
            },
            &[MemorySome],
        ),
        (
            Tasks {
                waiting: 1,
                ..asleep
            },
            &[MemorySome],
        ),
        (awake, &[MemorySome, MemoryFull]),
        (
            Tasks {
                running: productive,
                ..awake
            },
            &[MemorySome],
        ),
        // A running task that reclaims memory keeps all others from the CPU.
        (
            Tasks {
                in_memory: 1,
                in_memory_runnable: 1,
                waiting: 5,
                running: Running::Stalled,
                ..none
            },
            &[MemorySome, MemoryFull],
        ),
        (
            Tasks {
                in_io: 2,
                in_memory: 1,
                ..none
            },
            &[IoSome, IoFull, MemorySome, MemoryFull],
        ),
    ] {
        assert_eq!(stalls(tasks), hold, "{tasks:?}");
    }
}

#[test]
fn a_cpu_counts_from_change_to_change() {
    let mut cpu = Cpu::new();
    assert!(!cpu.change(5, |tasks| tasks.running = Running::Productive));
    assert!(cpu.change(10, |tasks| tasks.in_io = 1));
    assert!(cpu.change(30, |tasks| tasks.running = Running::Idle));
    // A change of the tasks that changes no stall.
    assert!(cpu.change(35, |tasks| tasks.in_io = 2));
    assert!(!cpu.change(70, |tasks| tasks.in_io = 0));
    let (times, beside) = cpu.times(100);
    assert_eq!(times[Stall::IoSome as usize], 60);
    assert_eq!(times[Stall::IoFull as usize], 40);
    assert_eq!(beside, 40);
    // A count below 0 counts as 0.
    assert!(!cpu.change(100, |tasks| tasks.in_io -= 1));
    assert_eq!(cpu.times(200).0, times);
}

fn with(stall: Stall, busy: u64, stalled: u64) -> CpuTimes {
    let mut times = CpuTimes::ZERO;
    times.busy = busy;
    times.stalls[stall as usize] = stalled;
    times
}

#[test]
fn cpus_count_by_their_busy_time() {
    let mut group = Group::<3>::new();
    let stall = Stall::MemorySome;
    let sample = [
        (0, with(stall, 3000, 3000)),
        (1, with(stall, 1000, 0)),
        (2, with(stall, 0, 0)),
    ];
    group.collect(sample.into_iter());
    assert_eq!(group.totals()[stall as usize], 2250);
    // First without new stalls, then one CPU alone.
    group.collect(sample.into_iter());
    assert_eq!(group.totals()[stall as usize], 2250);
    group.collect([(2, with(stall, 10, 10))].into_iter());
    assert_eq!(group.totals()[stall as usize], 2260);
}

fn shown(group: &Group<1>, resource: Resource) -> String {
    let mut text = String::new();
    group.report(resource).show(&mut text).expect("a string");
    text
}

#[test]
fn averages_are_those_of_linux() {
    let mut group = Group::<1>::new();
    // A stall all of each period, for 10 seconds: the same arithmetic by hand.
    let mut expected = [0_u64; 3];
    for period in 1..=5 {
        let now = period * PERIOD;
        group.collect([(0, with(Stall::IoSome, now, now))].into_iter());
        group.step(now);
        for (average, remains) in expected.iter_mut().zip([1677, 1981, 2034]) {
            *average = (*average * remains + 100 * 2048 * (2048 - remains)).div_ceil(2048);
        }
    }
    let [a, b, c] = expected.map(|it| format!("{}.{:02}", it >> 11, ((it & 2047) * 100) >> 11));
    assert_eq!(
        shown(&group, Resource::Io),
        format!(
            "some avg10={a} avg60={b} avg300={c} total=10000000\n\
             full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        )
    );
    assert_eq!(a, "63.18");
    // Before the period has ended nothing changes; long after, nothing is left.
    group.step(11 * S);
    assert!(shown(&group, Resource::Io).contains("avg10=63.18"));
    group.step(3600 * S);
    assert!(shown(&group, Resource::Io).contains("avg10=0.00 avg60=0.00 avg300=0.00"));
}

#[test]
fn periods_between_two_steps_share_their_growth() {
    let mut group = Group::<1>::new();
    let mut often = Group::<1>::new();
    for period in 1..=30 {
        let now = period * PERIOD;
        often.collect([(0, with(Stall::CpuSome, now, now / 2))].into_iter());
        often.step(now);
    }
    group.collect([(0, with(Stall::CpuSome, 60 * S, 30 * S))].into_iter());
    group.step(60 * S);
    let first = |group: &Group<1>| {
        let text = shown(group, Resource::Cpu);
        let digits = text
            .split("avg10=")
            .nth(1)
            .and_then(|it| it.split('.').next());
        digits
            .expect("it is shown")
            .parse::<u32>()
            .expect("a number")
    };
    assert!(first(&group).abs_diff(first(&often)) <= 1);
    assert!((48..=50).contains(&first(&group)));
}

#[test]
fn what_exceeds_a_period_counts_later() {
    let mut group = Group::<1>::new();
    group.collect([(0, with(Stall::IoSome, 3 * S, 3 * S))].into_iter());
    group.step(2 * S);
    group.collect([(0, with(Stall::IoSome, 4 * S, 3 * S))].into_iter());
    group.step(4 * S);
    // 100 %, then the half that was left over.
    let after_one = (100_u64 * 2048 * (2048 - 1677)).div_ceil(2048);
    let after_two = (after_one * 1677 + 50 * 2048 * (2048 - 1677)).div_ceil(2048);
    let expected = format!(
        "avg10={}.{:02}",
        after_two >> 11,
        ((after_two & 2047) * 100) >> 11
    );
    assert!(shown(&group, Resource::Io).contains(&expected));
}

#[test]
fn a_trigger_has_linuxs_form() {
    let parse = |text: &str| Trigger::parse(text.as_bytes(), Resource::Memory);
    let trigger = parse("some 150000 1000000\0").expect("it is one");
    assert_eq!(trigger.stall(), Stall::MemorySome);
    assert_eq!((trigger.window(), trigger.look_every()), (S, S / 10));
    assert_eq!(
        parse("full 1 500000\n").map(|it| it.stall()),
        Ok(Stall::MemoryFull)
    );
    for good in [
        "some 10000000 10000000\n",
        "some150000 1000000\0",
        "some  150000\t1000000x\0",
        "some 150000 1000000 and more, whatever it is\0",
        // Only the lower 32 bits count.
        "some 4295117296 1000000\n",
    ] {
        assert!(parse(good).is_ok(), "{good:?}");
    }
    for bad in [
        // The last byte is not read.
        "some 150000 1000000",
        "some 150000 499999\n",
        "some 150000 10000001\n",
        "some 0 1000000\n",
        "some 1000001 1000000\n",
        "some 150000\n",
        "some\n",
        "all 150000 1000000\n",
        " some 150000 1000000\n",
        "some -1 1000000\n",
        "\n",
        "",
    ] {
        assert_eq!(parse(bad), Err(Errno::EINVAL), "{bad:?}");
    }
}

#[test]
fn a_trigger_fires_once_a_window() {
    let mut trigger = Trigger::parse(b"some 150000 1000000\n", Resource::Io).expect("it is one");
    let ms = S / 1000;
    let start = 100 * S;
    trigger.begin(start, 0);
    assert!(!trigger.look(start + 100 * ms, 0));
    assert!(!trigger.look(start + 200 * ms, 100 * ms));
    assert!(trigger.look(start + 300 * ms, 150 * ms));
    // More growth within the window is reported at its end, even if nothing is new then.
    assert!(!trigger.look(start + 400 * ms, 250 * ms));
    assert!(!trigger.look(start + 900 * ms, 250 * ms));
    assert!(trigger.look(start + 1300 * ms, 250 * ms));
    assert!(!trigger.look(start + 2400 * ms, 250 * ms));
}

#[test]
fn a_window_counts_part_of_the_one_before() {
    let mut trigger = Trigger::parse(b"full 500000 1000000\n", Resource::Cpu).expect("it is one");
    let ms = S / 1000;
    let start = 50 * S;
    trigger.begin(start, 0);
    assert!(!trigger.look(start + 1001 * ms, 400 * ms));
    // Half a window later, half of the 400 ms count.
    assert!(!trigger.look(start + 1501 * ms, 699 * ms));
    assert!(trigger.look(start + 1501 * ms + 1, 701 * ms));
}
