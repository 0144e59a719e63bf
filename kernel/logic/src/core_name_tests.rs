//! Compares names of core files with those that Linux makes of the same patterns.

use super::core_name::{Facts, fill};

const FACTS: Facts<'static> = Facts {
    pid: 77,
    tid: 79,
    uid: 1000,
    gid: 100,
    dumpable: 1,
    signal: 11,
    seconds: 1_700_000_000,
    limit: 4096,
    host: b"a.host",
    name: b"pro/gram",
    program: b"/usr/bin/program",
};

fn named(pattern: &str, uses_pid: bool, facts: &Facts<'_>) -> std::string::String {
    let name = fill(pattern.as_bytes(), uses_pid, facts).unwrap();
    std::string::String::from_utf8(name).unwrap()
}

#[test]
fn letters_become_what_they_stand_for() {
    for (pattern, name) in [
        ("core", "core"),
        ("", ""),
        ("/tmp/%e.%p", "/tmp/pro!gram.77"),
        ("%u-%g-%s-%t-%h", "1000-100-11-1700000000-a.host"),
        ("%i%I %P %d %c", "7979 77 1 4096"),
        ("100%%", "100%"),
        ("core%", "core"),
        ("core%z%", "core"),
        ("%f of %E", "program of !usr!bin!program"),
    ] {
        assert_eq!(named(pattern, false, &FACTS), name, "{pattern}");
    }
}

#[test]
fn the_number_is_added_once() {
    assert_eq!(named("core", true, &FACTS), "core.77");
    assert_eq!(named("core.%p", true, &FACTS), "core.77");
    assert_eq!(named("core.%P", true, &FACTS), "core.77.77");
}

#[test]
fn texts_are_no_paths() {
    for (name, becomes) in [(&b""[..], "!"), (b".", "!"), (b"..", "!."), (b"...", "...")] {
        let facts = Facts { name, ..FACTS };
        assert_eq!(
            named("/tmp/%e", false, &facts),
            std::format!("/tmp/{becomes}")
        );
    }
}
