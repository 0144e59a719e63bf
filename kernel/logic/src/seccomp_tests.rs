//! Tests stacked filters: which verdict counts, how many filters fit, and how they are dropped.

use crate::bpf::{DATA_WORDS, Instruction, Program};
use crate::errno::Errno;
use crate::seccomp::{Action, Actions, Filter, Verdict};
use alloc::sync::Arc;
use proptest::prelude::*;
use std::string::String;
use std::vec;
use std::vec::Vec;

const DATA: [u32; DATA_WORDS] = [0; DATA_WORDS];

/// Returns a program of `length` instructions that always returns `word`.
fn saying(word: u32, length: usize) -> Program {
    let says = Instruction {
        code: 0x06,
        k: word,
        ..Instruction::default()
    };
    Program::check(vec![says; length]).expect("a sound program")
}

fn put(earlier: Option<Arc<Filter>>, program: Program) -> Result<Arc<Filter>, Errno> {
    let mut filter = Filter::new(program, false);
    filter.put_upon(earlier)?;
    Ok(Arc::new(filter))
}

fn upon(earlier: Option<Arc<Filter>>, word: u32) -> Arc<Filter> {
    put(earlier, saying(word, 1)).expect("room")
}

#[test]
fn words_have_an_action_and_data() {
    let verdict = |word| Verdict { word, logs: false };
    assert_eq!(verdict(0x0005_1234).action(), Action::Errno);
    assert_eq!(verdict(0x0005_1234).data(), 0x1234);
    assert_eq!(verdict(5).action(), Action::KillThread);
    for unknown in [0x0001_0000, 0x8001_0000, 0x7ffd_0000, u32::MAX] {
        assert_eq!(verdict(unknown).action(), Action::KillProcess);
    }
    for action in Action::ALL {
        assert_eq!(Action::numbered(action as u32), Some(action));
    }
    assert_eq!(Action::numbered(1), None);
}

#[test]
fn actions_are_named() {
    let names = |set: Actions| {
        let names: Vec<_> = set.iter().map(Action::name).collect();
        names.join(" ")
    };
    let all = "kill_process kill_thread trap errno user_notif trace log";
    assert_eq!(names(Actions::NOTED_AT_FIRST), all);
    assert_eq!(Actions::named(all), Ok(Actions::NOTED_AT_FIRST));
    assert_eq!(
        Actions::named("log trap").map(names),
        Ok(String::from("trap log"))
    );
    assert_eq!(Actions::named(""), Ok(Actions(0)));
    for bad in ["allow", "trap allow", "Trap", "trap,log"] {
        assert_eq!(Actions::named(bad), Err(Errno::EINVAL));
    }
}

#[test]
fn the_strongest_action_counts_and_of_equals_the_newest() {
    let ranked = Action::ALL.map(|action| action as u32);
    for (at, strong) in ranked.iter().enumerate() {
        for weak in &ranked[at + 1..] {
            let older = upon(Some(upon(None, *strong)), *weak);
            assert_eq!(older.judge(&DATA).word, *strong);
            let newer = upon(Some(upon(None, *weak)), *strong);
            assert_eq!(newer.judge(&DATA).word, *strong);
        }
    }
    let same = upon(Some(upon(None, 0x0005_0001)), 0x0005_0002);
    assert_eq!(same.judge(&DATA).data(), 2);
}

#[test]
fn filters_are_found_by_number_and_by_what_stands_upon_them() {
    let first = upon(None, 1);
    let second = upon(Some(first.clone()), 2);
    let other = upon(Some(first.clone()), 3);
    assert_eq!([first.count(), second.count()], [1, 2]);
    assert!(second.stands_upon(&first) && other.stands_upon(&first));
    assert!(!first.stands_upon(&first) && !second.stands_upon(&other));
    let word = |filter: &Filter| filter.program().instructions()[0].k;
    assert_eq!(second.numbered(0).map(word), Some(1));
    assert_eq!(second.numbered(1).map(word), Some(2));
    assert!(second.numbered(2).is_none() && second.numbered(usize::MAX).is_none());
}

#[test]
fn all_together_are_bounded() {
    // Each counts 3 + 2 * 4096, and 4 once it is installed.
    let mut newest = None;
    for _ in 0..3 {
        newest = Some(put(newest, saying(0, 4096)).expect("room"));
    }
    let full = put(newest, saying(0, 4096));
    assert_eq!(full.err(), Some(Errno::ENOMEM));
}

#[test]
fn many_go_without_a_deep_stack() {
    let mut newest = upon(None, 0);
    let mut count = 1;
    while let Ok(next) = put(Some(newest.clone()), saying(0, 1)) {
        newest = next;
        count += 1;
    }
    assert_eq!(count, (32768 + 4) / 9);
    let small = std::thread::Builder::new().stack_size(1 << 16);
    let ended = small.spawn(move || drop(newest)).expect("a thread").join();
    assert!(ended.is_ok());
}

proptest! {
    #[test]
    fn a_chain_says_what_the_model_says(words in prop::collection::vec(any::<u32>(), 1..12)) {
        let newest = words.iter().fold(None, |earlier, word| Some(upon(earlier, *word)));
        let verdict = newest.expect("at least one").judge(&DATA);
        let rank = |word: u32| (word & 0xffff_0000).cast_signed();
        // The newest of the strongest words.
        let strongest = words.iter().rev().copied().min_by_key(|word| rank(*word)).expect("one");
        let expected = if rank(strongest) < rank(Action::Allow as u32) { strongest } else { Action::Allow as u32 };
        prop_assert_eq!(verdict.word, expected);
    }
}
