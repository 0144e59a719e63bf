//! Tests of the boot words that fill and shuffle free memory: `page_poison=`, `init_on_free=`,
//! `init_on_alloc=` and `page_alloc.shuffle=`.

use crate::ebb::{self, Holder};
use crate::programs;
use std::thread;
use std::time::Duration;

/// The resident memory in MiB of a guest whose program has just started.
const START_MIB: u64 = 16;
/// A time that is longer than two passes of the reporter.
const TWO_PASSES: Duration = Duration::from_secs(6);

/// Starts a guest with this mode of giving memory back and these boot words.
fn guest(give_back: &str, words: &str) -> Holder {
    Holder::start(&[
        "-m",
        "512M",
        "-c",
        "2",
        "--give-back",
        give_back,
        "--append",
        words,
    ])
}

fn take_and_free(holder: &mut Holder) {
    holder.tell("take 200", "taken");
    assert!(holder.resident_mib() >= 200);
    holder.tell("free", "freed");
}

#[test]
fn nothing_is_written_to_memory_that_was_freed() {
    // The kernel says at boot whether it finds a write, and later if there was one.
    let program = programs::text(programs::path("rust-vmstorm"));
    for words in ["page_poison=1", "page_poison=on page_alloc.shuffle=Y"] {
        let options = ["-m", "256M", "-c", "2", "--verbose", "--append", words];
        let outcome = ebb::run(600, &options, &[program.clone(), "12".into(), "5s".into()]);
        let said = outcome.expect(0).err();
        assert!(said.contains("page poisoning: on\n"), "{said}");
        assert!(!said.contains("pagealloc:"), "{said}");
    }
}

#[test]
fn filled_memory_goes_back_unless_the_device_must_keep_it() {
    for (give_back, words) in [
        ("reporting", "init_on_free=1"),
        ("shared", "init_on_free=1 init_on_alloc=1"),
        ("shared", "page_poison=1"),
        ("reporting", "page_alloc.shuffle=1"),
    ] {
        let mut holder = guest(give_back, words);
        for _ in 0..2 {
            take_and_free(&mut holder);
            holder.falls_to(START_MIB);
        }
    }
    // The device knows the value, takes reports and leaves the pages as they are.
    let resident = ebb::while_the_host_has_memory(
        |resident| *resident >= 200,
        || {
            let mut holder = guest("reporting", "page_poison=1");
            take_and_free(&mut holder);
            thread::sleep(TWO_PASSES);
            holder.resident_mib()
        },
    );
    assert!(resident >= 200, "{resident} MiB");
}

#[test]
fn the_file_shows_whether_memory_is_shuffled() {
    let file = "/sys/module/page_alloc/parameters/shuffle";
    for (words, shown) in [("quiet", "N\n"), ("page_alloc.shuffle=y", "Y\n")] {
        let options = ["-m", "128M", "--append", words];
        let outcome = ebb::run(300, &options, &["cat", file]);
        assert_eq!(outcome.expect(0).out(), shown, "{words}");
    }
}
