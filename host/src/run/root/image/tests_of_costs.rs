//! Archives that are made to be costly. The tests count steps instead of time.

use super::index::{INDEX_MAX, STEPS_MAX, Whiteouts};
use super::tests::{Tar, open};
use super::walk::WALK_STEPS_MAX;
use super::*;
use std::fs;
use std::io::Write;
use tar::EntryType;

/// Builds an archive with the symbolic links `l0`, `l1`, …. Each target has `parts` components and
/// leads over the link before it.
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
    let long = format!("has more than {WALK_STEPS_MAX} steps");
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

/// Each walk is just short enough to be allowed.
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
    // The limit allows 20,000 such entries and refuses 200,000.
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
    tests::add(&mut index, &archive).unwrap();
    let refused = tests::add(&mut index, &archive).unwrap_err();
    assert!(
        refused.contains(&format!("more than {STEPS_MAX} steps")),
        "{refused}"
    );
}

/// Each opaque whiteout covers everything that the whiteouts before it covered.
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
        tests::add(&mut index, &lower).unwrap();
        let before = index.steps();
        tests::add(&mut index, &upper.done()).unwrap();
        // Walks take a step for each directory. The other steps are nodes that a whiteout looked
        // at.
        let looks = index.steps() - before - (depth * (depth + 1) / 2 + depth) as u64;
        assert!(looks <= (files + 3 * depth) as u64, "{looks}");
        assert!(
            index
                .find(format!("{}kept", path(depth)).as_bytes(), true)
                .is_ok()
        );
        assert_eq!(
            index.find(format!("{}7", path(depth)).as_bytes(), true),
            Err(WalkError::Nothing)
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
    let refused = tests::add(&mut index, &with(2)).unwrap_err();
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

/// Builds an archive of empty files with names of 15 bytes, 500 in a directory.
fn many(entries: usize) -> Section {
    let mut file = io::BufWriter::new(scratch::nameless(&scratch::folder()).unwrap());
    for number in 0..entries {
        let mut header = tar::Header::new_gnu();
        let name = format!("usr/lib/python{:05}/{number:011}.txt", number / 500);
        header.set_path(&name).unwrap();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        header.set_mtime(1_700_000_000 + number as u64 / 1000);
        header.set_cksum();
        file.write_all(header.as_bytes()).unwrap();
    }
    Section::whole(file.into_inner().unwrap()).unwrap()
}

#[test]
fn an_index_takes_few_bytes_for_each_entry() {
    let entries = 50_000;
    let mut index = Index::new();
    index.add_layer(many(entries), Whiteouts::Honoured).unwrap();
    let of_each = index.bytes() as f64 / entries as f64;
    assert!((30.0..44.7).contains(&of_each), "{of_each} bytes an entry");
    index.finish();
    let of_each = index.bytes() as f64 / entries as f64;
    assert!(of_each < 44.7, "{of_each} bytes an entry");
    assert_eq!(index.count(index.find(b"usr/lib", false).unwrap()), 100);
    let id = index
        .find(b"usr/lib/python00099/00000049999.txt", false)
        .unwrap();
    let place = index.count(index.find(b"usr/lib/python00099", true).unwrap()) - 1;
    let folder = index.find(b"usr/lib/python00099", true).unwrap();
    let last = index.children(folder, place).last();
    assert_eq!(last, Some((place, &b"00000049999.txt"[..], id)));
}

#[test]
fn an_index_takes_no_more_memory_than_it_may() {
    let archive = many(50_000);
    let mut index = Index::new();
    index.take_beside(INDEX_MAX - (1 << 20));
    let refused = index
        .add_layer(archive, Whiteouts::Honoured)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("takes more than 64 MiB of memory"),
        "{refused}"
    );
    assert!(
        index.bytes() < (1 << 20) + (1 << 18),
        "{} bytes",
        index.bytes()
    );
    // The index of the outer archive counts together with that of its image.
    let outer = Index::new();
    assert!(outer.beside().is_beside(outer.bytes()));
}

#[test]
fn names_in_a_folder_are_in_order_however_they_came() {
    let mut tar = Tar::new();
    for number in 0..300_u32 {
        // Neither ascending nor descending order, and each name twice.
        for _ in 0..2 {
            tar = tar.file(&format!("f/{:03}", number * 77 % 300), number.to_string());
        }
    }
    let image = &mut open("costs-order", &tar.done()).unwrap();
    let expected: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
    assert_eq!(tests::names(image, "f"), expected);
    let mut writing = [0; ebb_wire::root::ANSWER_MAX];
    let mut writing = Answer::new(&mut writing);
    for from in [300, 301, u64::from(u32::MAX)] {
        assert_eq!(image.list(b"f", from, usize::MAX, &mut writing), Ok(0));
    }
    assert_eq!(
        image.list(b"f", u64::MAX, usize::MAX, &mut writing),
        Err(Errno::INVAL)
    );
    assert_eq!(image.list(b"f", 0, 299, &mut writing), Err(Errno::OVERFLOW));
}

/// Returns a memory figure of this process, in KiB.
fn resident_kib(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Prints the memory of an index of 1.5 million entries, and the cost of long walks. Run it alone,
/// with `--release --ignored`.
#[test]
#[ignore = "it prints figures, and makes an archive of 730 MiB"]
fn measure() {
    let entries = 1_500_000;
    let archive = many(entries);
    let before = resident_kib("VmRSS");
    let start = std::time::Instant::now();
    let mut index = Index::new();
    index.add_layer(archive, Whiteouts::Honoured).unwrap();
    let added = start.elapsed();
    let most = index.bytes();
    index.finish();
    println!(
        "{entries} entries: {added:?}, sorted after {:?}; {most} bytes at most, {} at the end, {:.1} an entry; resident {} KiB more, {} KiB more at most",
        start.elapsed(),
        index.bytes(),
        most as f64 / entries as f64,
        resident_kib("VmRSS") - before,
        resident_kib("VmHWM") - before,
    );
    drop(index);
    let mut tar = chain(20, 51);
    for number in 0..20_000 {
        tar = tar.file(&format!("l19/{number}"), "");
    }
    let tar = tar.done();
    let start = std::time::Instant::now();
    let image = open("costs-measure", &tar).unwrap();
    println!(
        "20000 entries at the ends of long ways: {:?}, {} steps",
        start.elapsed(),
        image.index.steps()
    );
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        let _ = image.find(b"l19/7", true);
    }
    println!("a question by a long way: {:?}", start.elapsed() / 1000);
    let tar = chain(39, 101).file("l38/x", "").done();
    let start = std::time::Instant::now();
    println!(
        "{:?} after {:?}",
        open("costs-refused", &tar).unwrap_err(),
        start.elapsed()
    );
}
