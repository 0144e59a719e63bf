//! The scheduler's arithmetic.

use super::policy::{
    IDLE_NICE, MANY, SHORT_SLICE_NS, SLEEPER_CREDIT_NS, SLICE_NS, place, relative, scaled,
};
use super::policy::{slice_ns, weight};
use proptest::prelude::*;

#[test]
fn a_step_of_nice_is_a_quarter() {
    assert_eq!(weight(0), 1024);
    for nice in -20..19 {
        let (more, less) = (weight(nice), weight(nice + 1));
        let ratio = more * 100 / less;
        assert!(
            (120..=130).contains(&ratio),
            "nice {nice}: {more} to {less}"
        );
    }
    assert_eq!(weight(-100), weight(-20));
    // Beyond the last is what runs when nobody else wants to, with Linux's weight for it.
    assert_eq!(weight(IDLE_NICE), 3);
    assert_eq!(weight(100), weight(IDLE_NICE));
}

#[test]
fn slices_get_short_when_many_wait() {
    assert_eq!(slice_ns(0), SLICE_NS);
    assert_eq!(slice_ns(MANY), SLICE_NS);
    assert_eq!(slice_ns(MANY + 1), SHORT_SLICE_NS);
}

proptest! {
    #[test]
    fn nobody_saves_up_or_starves(own: u64, min: u64, slept: bool) {
        let placed = place(own, min, slept);
        prop_assert!(placed >= min.saturating_sub(SLEEPER_CREDIT_NS));
        prop_assert!(placed <= min.saturating_add(20 * SLICE_NS));
        prop_assert!(slept || placed >= min);
    }

    #[test]
    fn lower_nice_pays_less(ran in 0..u64::MAX / 2048, nice in -20..19_i32) {
        prop_assert!(scaled(ran, nice) <= scaled(ran, nice + 1));
    }

    #[test]
    fn a_move_keeps_the_lag(lag in 0..SLICE_NS, old in 0..1_u64 << 60, new in 0..1_u64 << 60) {
        prop_assert_eq!(relative(old + lag, old) + new, new + lag);
    }
}
