//! Compares sets of signals with sets of numbers.

use super::signal_set::{MAX_SIGNAL, SigSet, Signal};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn numbers(set: SigSet) -> BTreeSet<u32> {
    (1..=MAX_SIGNAL)
        .filter(|&n| Signal::new(n).is_some_and(|s| set.contains(s)))
        .collect()
}

#[test]
fn numbers_have_bounds() {
    assert!(Signal::new(0).is_none());
    assert!(Signal::new(65).is_none());
    assert_eq!(Signal::new(64).unwrap().index(), 63);
    assert!(Signal::new(32).unwrap().is_realtime());
    assert!(!Signal::SIGSYS.is_realtime());
}

#[test]
fn faults_come_first() {
    let set = SigSet::of(&[Signal::SIGHUP, Signal::SIGSEGV, Signal::SIGUSR1]);
    assert_eq!(set.first(), Some(Signal::SIGSEGV));
    assert_eq!(
        set.without(SigSet::SYNCHRONOUS).first(),
        Some(Signal::SIGHUP)
    );
    assert_eq!(SigSet::EMPTY.first(), None);
}

#[test]
fn kill_and_stop_are_never_blocked() {
    let all = SigSet(u64::MAX).blockable();
    assert!(!all.contains(Signal::SIGKILL) && !all.contains(Signal::SIGSTOP));
    assert_eq!(numbers(all).len(), 62);
}

proptest! {
    #[test]
    fn it_does_what_a_set_does(a: u64, b: u64, pick in 1..=MAX_SIGNAL) {
        let (a, b) = (SigSet(a), SigSet(b));
        let (na, nb) = (numbers(a), numbers(b));
        prop_assert_eq!(numbers(a.union(b)), na.union(&nb).copied().collect());
        prop_assert_eq!(numbers(a.intersection(b)), na.intersection(&nb).copied().collect());
        prop_assert_eq!(numbers(a.without(b)), na.difference(&nb).copied().collect());
        prop_assert_eq!(a.complement().complement(), a);
        let signal = Signal::new(pick).unwrap();
        let mut changed = a;
        changed.insert(signal);
        prop_assert!(changed.contains(signal));
        changed.remove(signal);
        prop_assert!(!changed.contains(signal));
        if let Some(first) = a.first() {
            prop_assert!(a.contains(first));
        }
    }
}
