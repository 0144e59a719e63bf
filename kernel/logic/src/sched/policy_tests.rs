//! The scheduler's arithmetic.

use super::policy::{
    IDLE_NICE, LEAST_SLICE_NS, MANY, MAX_LAG_NS, SHORT_SLICE_NS, SLEEPER_CREDIT_NS, SLICE_NS, place,
};
use super::policy::{moved, relative, renewal_ns, scaled, slice_ns, weight};
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
    // The value beyond the last is for tasks that only use idle time, with Linux's weight for them.
    assert_eq!(weight(IDLE_NICE), 3);
    assert_eq!(weight(100), weight(IDLE_NICE));
}

#[test]
fn slices_get_short_when_many_wait() {
    for nice in [-20, 0] {
        assert_eq!(slice_ns(0, nice), SLICE_NS);
        assert_eq!(slice_ns(MANY, nice), SLICE_NS);
        assert_eq!(slice_ns(MANY + 1, nice), SHORT_SLICE_NS);
    }
    assert_eq!(slice_ns(1, 5), SLICE_NS * weight(5) / 1024);
    assert_eq!(slice_ns(1, 19), LEAST_SLICE_NS);
}

/// Two threads of different weights that compute on one CPU share it in proportion to their
/// weights.
#[test]
fn slices_follow_weights() {
    for (nice, other) in [
        (0, 0),
        (0, 1),
        (0, 5),
        (0, 10),
        (0, 19),
        (-10, 0),
        (0, IDLE_NICE),
    ] {
        let nices = [nice, other];
        let (mut virtual_ns, mut ran_ns) = ([0_u64; 2], [0_u64; 2]);
        let (mut on, mut slice) = (0, slice_ns(1, nice));
        for _ in 0..100_000 {
            ran_ns[on] += slice;
            virtual_ns[on] += scaled(slice, nices[on]);
            let lead = virtual_ns[1 - on].checked_sub(virtual_ns[on]);
            slice = match lead {
                Some(lead) if lead != 0 => renewal_ns(lead, 1, nices[on]),
                _ => {
                    virtual_ns[on] = place(virtual_ns[on], virtual_ns[1 - on], false);
                    on = 1 - on;
                    slice_ns(1, nices[on])
                }
            };
        }
        let ratio = ran_ns[0] * 100 / ran_ns[1];
        let wanted = weight(nice) * 100 / weight(other);
        assert!(
            ratio.abs_diff(wanted) * 10 <= wanted,
            "nice {nice} to {other}: {ratio} to {wanted} hundredths"
        );
    }
}

proptest! {
    #[test]
    fn no_task_saves_up_or_starves(own: u64, min: u64, slept: bool) {
        let placed = place(own, min, slept);
        prop_assert!(placed >= min.saturating_sub(SLEEPER_CREDIT_NS));
        prop_assert!(placed <= min.saturating_add(MAX_LAG_NS));
        prop_assert!(slept || placed >= min);
    }

    #[test]
    fn lower_nice_pays_less(ran in 0..u64::MAX / 2048, nice in -20..19_i32) {
        prop_assert!(scaled(ran, nice) <= scaled(ran, nice + 1));
    }

    #[test]
    fn a_move_keeps_the_lag(lag in 0..SLICE_NS, old in 0..1_u64 << 60, new in 0..1_u64 << 60) {
        prop_assert_eq!(relative(old + lag, old) + new, new + lag);
        prop_assert_eq!(moved(old + lag, old, new), new + lag);
        prop_assert_eq!(moved(old, old + lag, new), new.saturating_sub(lag));
    }
}
