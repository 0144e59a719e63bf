//! What archives cost that are made to cost much. Steps are counted, not time.

use super::index::{STEPS_MAX, WAY_STEPS_MAX};
use super::tests::{Tar, open};
use super::*;
use tar::EntryType;

/// An archive with `links` links `l0`, `l1`, …, each of whose targets has `parts` parts and leads
/// over the link before it.
fn chain(links: usize, parts: usize) -> Tar {
    let mut tar = Tar::new().folder("d");
    for number in 0..links {
        let mut target = "d/../".repeat((parts - 1) / 2);
        match number {
            0 => target.push('d'),
            _ => target.push_str(&format!("l{}", number - 1)),
        }
        tar = tar.long_link(&format!("l{number}"), &target);
    }
    tar
}

#[test]
fn a_way_has_a_bounded_number_of_steps() {
    let long = format!("has more than {WAY_STEPS_MAX} steps");
    let hidden = chain(39, 101).file("l38/.wh.x", "").done();
    let layers = Tar::new()
        .file("layer", hidden)
        .file("manifest.json", r#"[{"Config": "c", "Layers": ["layer"]}]"#)
        .file("c", "{}");
    for (name, archive) in [
        ("file", chain(39, 101).file("l38/x", "")),
        ("folder", chain(39, 101).folder("l38/x")),
        ("link", chain(39, 101).link("l38/x", "d")),
        (
            "hard-link",
            chain(39, 101).file("d/f", "").hard_link("h", "l38/f"),
        ),
        (
            "slashes",
            Tar::new().long_link("l", &"/".repeat(2000)).file("l/x", ""),
        ),
        (
            "dots",
            Tar::new()
                .long_link("l", &"./".repeat(2000))
                .file("l/x", ""),
        ),
        ("whiteout", layers),
    ] {
        let refused = open(&format!("costs-{name}"), &archive.done()).unwrap_err();
        assert!(refused.contains(&long), "{name}: {refused}");
    }
    let long_name = Tar::new().long_link("l", &"n".repeat(300)).file("l/x", "");
    let refused = open("costs-name", &long_name.done()).unwrap_err();
    assert!(refused.contains("more than 255 bytes"), "{refused}");
}

#[test]
fn what_the_guest_asks_for_has_a_bounded_number_of_steps() {
    let image = open("costs-guest", &chain(39, 101).done()).unwrap();
    for (path, expected) in [
        ("l8/..".to_owned(), Ok(0)),
        ("l38".to_owned(), Err(Errno::NAMETOOLONG)),
        ("d/../".repeat(1000), Err(Errno::NAMETOOLONG)),
        ("/".repeat(60_000), Err(Errno::NAMETOOLONG)),
        ("x".repeat(300), Err(Errno::NAMETOOLONG)),
    ] {
        assert_eq!(image.find(path.as_bytes(), true), expected, "{path}");
    }
}

/// Each way is just short enough.
#[test]
fn entries_at_the_ends_of_long_ways_have_a_bounded_number_of_steps_together() {
    let mut tar = chain(20, 51);
    let links = 20;
    for number in 0..200 {
        tar = tar.file(&format!("l{}/{number}", links - 1), "");
    }
    let image = open("costs-long", &tar.done()).unwrap();
    assert!(
        (200_000..204_800).contains(&image.index.steps()),
        "{}",
        image.index.steps()
    );
    // So 20,000 such entries are let in, and ten times as many are not.
    const { assert!(1024 * 20_000 < STEPS_MAX && STEPS_MAX < 1024 * 200_000) };
}

#[test]
fn an_image_has_a_bounded_number_of_steps() {
    let mut index = Index::new();
    index.begin_with(STEPS_MAX - 60, 0);
    let archive = Tar::new()
        .file("a/b/c", "")
        .file(&"a/".repeat(40), "")
        .done();
    tests::add(&mut index, &archive, 1).unwrap();
    let refused = tests::add(&mut index, &archive, 1).unwrap_err();
    assert!(
        refused.contains(&format!("more than {STEPS_MAX} steps")),
        "{refused}"
    );
}

/// Each mark is above all that the marks before it were above.
#[test]
fn marks_above_each_other_look_through_a_folder_once() {
    let (depth, files) = (100, 500);
    let path = |depth: usize| "a/".repeat(depth);
    let mut lower = Tar::new();
    for number in 0..files {
        lower = lower.long_file(&format!("{}{number}", path(depth)));
    }
    let lower = lower.done();
    for downwards in [false, true] {
        let mut upper = Tar::new().long_file(&format!("{}kept", path(depth)));
        for number in 0..depth {
            let number = if downwards { number } else { depth - number };
            upper = upper.long_file(&format!("{}.wh..wh..opq", path(number)));
        }
        let mut index = Index::new();
        tests::add(&mut index, &lower, 1).unwrap();
        let before = index.steps();
        tests::add(&mut index, &upper.done(), 2).unwrap();
        // The ways have a step for each folder; what is left are looks.
        let looks = index.steps() - before - (depth * (depth + 1) / 2 + depth) as u64;
        assert!(looks <= (files + 3 * depth) as u64, "{looks}");
        assert!(
            index
                .find(format!("{}kept", path(depth)).as_bytes(), true)
                .is_ok()
        );
        assert_eq!(
            index.find(format!("{}7", path(depth)).as_bytes(), true),
            Err(Lost::Nothing)
        );
    }
}

#[test]
fn extensions_of_an_image_have_a_bounded_number_of_bytes() {
    let extension = "19 comment=nothing\n".repeat(100);
    let with = |count: usize| {
        let mut tar = Tar::new();
        for _ in 0..count {
            tar = tar.entry("x", EntryType::XHeader, "", extension.as_bytes());
        }
        tar.file("f", "").done()
    };
    assert!(open("costs-extension", &with(16)).is_ok());
    let refused = open("costs-extension", &with(17)).unwrap_err();
    assert!(refused.contains("more than 16 extensions"), "{refused}");
    let mut index = Index::new();
    index.begin_with(0, index::EXTENSIONS_MAX - 3000);
    let refused = tests::add(&mut index, &with(2), 1).unwrap_err();
    let most = format!("more than {} bytes", index::EXTENSIONS_MAX);
    assert!(refused.contains(&most), "{refused}");
}

#[test]
fn errors_show_the_beginning_of_a_long_name() {
    let long = "n".repeat(100_000);
    let archive = Tar::new()
        .entry("L", EntryType::GNULongName, "", long.as_bytes())
        .file("f", "");
    let refused = open("costs-shown", &archive.done()).unwrap_err();
    assert!(refused.len() < 400 && refused.contains('…'), "{refused}");
}
