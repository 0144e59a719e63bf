use crate::stalls::{Micros, Stalls, Totals, Trigger};
use std::string::String;

const SECOND: Micros = 1_000_000;

fn shown(stalls: &mut Stalls, now: Micros) -> String {
    let mut text = String::new();
    stalls.show(now, &mut text).unwrap();
    text
}

fn totals(some: Micros, full: Micros) -> Totals {
    Totals { some, full }
}

#[test]
fn a_quiet_host_shows_zeros() {
    let mut stalls = Stalls::new(7);
    let zeros = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n\
                 full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    assert_eq!(shown(&mut stalls, 7), zeros);
    assert_eq!(shown(&mut stalls, u64::MAX), zeros);
}

/// Returns the three averages in the first line of `text`.
fn averages(text: &str) -> [f64; 3] {
    let mut words = text.split_ascii_whitespace().skip(1);
    [(); 3].map(|()| {
        words
            .next()
            .unwrap()
            .split_once('=')
            .unwrap()
            .1
            .parse()
            .unwrap()
    })
}

#[test]
fn averages_follow_the_exponential_law() {
    // For a minute the tasks stall half of the time; then none does.
    let mut stalls = Stalls::new(0);
    for second in 1..=60 {
        stalls.set(second * SECOND, totals(second * SECOND / 2, 0));
    }
    let after = |length: f64| 50.0 * (1.0 - (-60.0 / length).exp());
    for (found, length) in averages(&shown(&mut stalls, 60 * SECOND))
        .into_iter()
        .zip([10.0, 60.0, 300.0])
    {
        assert!((found - after(length)).abs() < 1.5, "{length}: {found}");
    }
    for (found, length) in averages(&shown(&mut stalls, 120 * SECOND))
        .into_iter()
        .zip([10.0, 60.0, 300.0])
    {
        let expected = after(length) * (-60.0 / length).exp();
        assert!((found - expected).abs() < 1.5, "{length}: {found}");
    }
    let text = shown(&mut stalls, 20_000 * SECOND);
    assert!(text.starts_with("some avg10=0.00 avg60=0.00 avg300=0.00 total=30000000\n"));
}

#[test]
fn a_host_that_always_stalls_shows_a_hundred_percent() {
    let mut stalls = Stalls::new(0);
    for second in 1..=3_000 {
        stalls.set(second * SECOND, totals(second * SECOND, second * SECOND));
    }
    assert_eq!(averages(&shown(&mut stalls, 3_000 * SECOND)), [100.0; 3]);
}

#[test]
fn totals_never_fall_and_have_no_bound() {
    let mut stalls = Stalls::new(0);
    stalls.set(SECOND, totals(9, 5));
    stalls.set(2 * SECOND, totals(3, 6));
    assert_eq!(stalls.totals(), totals(9, 6));
    stalls.set(3 * SECOND, totals(u64::MAX, u64::MAX));
    stalls.set(u64::MAX, totals(u64::MAX, u64::MAX));
    assert!(shown(&mut stalls, u64::MAX).contains("total=18446744073709551615"));
}

#[test]
fn triggers_have_linuxs_syntax() {
    let parse = |text| Trigger::parse(text, 0, Totals::default());
    for text in [
        "some 150000 1000000",
        "full 1 500000",
        " full\t10000000  10000000 ",
    ] {
        assert!(parse(text).is_some(), "{text}");
    }
    for text in [
        "",
        "some",
        "some 1",
        "any 1 1000000",
        "some 0 1000000",
        "some 1000001 1000000",
        "some 1 499999",
        "some 1 10000001",
        "some -1 1000000",
        "some 1 1000000 1",
        "some 4294967296 1000000",
        "some 0x10 1000000",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}

#[test]
fn a_trigger_fires_at_its_threshold_and_once_a_window() {
    let mut trigger = Trigger::parse("some 100000 1000000", 0, totals(5, 0)).unwrap();
    assert!(!trigger.fires(SECOND / 2, totals(100_004, 0)));
    assert!(trigger.fires(SECOND / 2, totals(100_005, 0)));
    assert!(!trigger.fires(SECOND, totals(500_000, 0)));
    assert!(trigger.fires(3 * SECOND / 2, totals(900_000, 0)));
    // The trigger does not fire again once the stalls have stopped.
    assert!(!trigger.fires(9 * SECOND, totals(900_000, 0)));
    assert!(!trigger.fires(10 * SECOND, totals(900_000, 900_000)));
}

#[test]
fn a_window_reaches_into_the_one_before() {
    let mut trigger = Trigger::parse("full 100000 1000000", 0, Totals::default()).unwrap();
    // 80 ms late in a window, 30 ms early in the next one.
    assert!(!trigger.fires(SECOND + 1, totals(0, 80_000)));
    assert!(trigger.fires(SECOND + 100_000, totals(0, 110_000)));
}
