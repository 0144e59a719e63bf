//! The pages of the documentation: each is in the book's table of contents, and each link between
//! files of the repository leads to a file, and to a heading of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages outside `docs`, by their paths from the root of the repository.
const OTHERS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "SPECIFICATION.md",
    "mm/README.md",
    "mm/DESIGN.md",
    "blk/README.md",
    "balloon/README.md",
    "host/lab/README.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the pages in `docs` and its folders by their paths from `docs`. The table of contents is
/// left out.
fn pages() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    find_pages(&root().join("docs"), "", &mut found);
    found.remove("SUMMARY.md");
    found
}

/// Adds to `found` the pages in `folder` and below. Each is `prefix` and its path from `folder`.
fn find_pages(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = format!("{prefix}{}", name.expect("a name of ours"));
        if path.is_dir() {
            find_pages(&path, &format!("{name}/"), found);
        } else if name.ends_with(".md") {
            found.insert(name);
        }
    }
}

/// Returns the lines of a page that are text, without code in lines and blocks.
fn prose(text: &str) -> Vec<String> {
    let mut in_block = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block && !line.starts_with("    ") {
            // Every second part stands between backticks.
            lines.push(line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
        }
    }
    lines
}

/// Returns the targets of the links in a page: those in the text, and those of named references.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            found.push(target.to_owned());
        }
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
            && !target.trim().contains(' ')
        {
            found.push(target.trim().to_owned());
        }
    }
    found
}

/// Returns the text of a page with the files that mdBook includes in it.
fn whole(path: &Path) -> String {
    let text = read(path);
    let folder = path.parent().expect("a page has a folder");
    let mut all = text.clone();
    for part in text.split("{{#include ").skip(1) {
        let name = part.split(['}', ':']).next().unwrap_or_default();
        all.push_str(&read(&folder.join(name)));
    }
    all
}

/// Returns the anchor that mdBook and code hosts make of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    text.chars()
        .filter(|c| kept(*c))
        .collect::<String>()
        .replace(' ', "-")
}

/// Returns whether the page has a heading with this anchor.
fn has_heading(page: &Path, wanted: &str) -> bool {
    let text = whole(page);
    let mut in_block = false;
    text.lines().any(|line| {
        in_block ^= line.trim_start().starts_with("```");
        !in_block && line.starts_with('#') && anchor(line) == wanted
    })
}

/// Returns what is wrong with the links of a page.
fn wrong_links(page: &Path) -> Vec<String> {
    let folder = page.parent().expect("a page has a folder");
    let mut wrong = Vec::new();
    for link in links(&read(page)) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
        let target = if file.is_empty() {
            page.to_owned()
        } else {
            folder.join(file)
        };
        let is_right = target.exists() && (heading.is_empty() || has_heading(&target, heading));
        if !is_right {
            wrong.push(format!("{}: {link}", page.display()));
        }
    }
    wrong
}

#[test]
fn each_page_is_in_the_contents_once() {
    let contents = links(&read(&root().join("docs/SUMMARY.md")));
    let listed: BTreeSet<String> = contents.iter().cloned().collect();
    assert_eq!(listed.len(), contents.len(), "a page is listed twice");
    assert_eq!(listed, pages());
}

#[test]
fn the_index_of_measurements_links_each_of_its_pages() {
    let is_measured = |page: &String| page.starts_with("measured/");
    let linked = links(&read(&root().join("docs/measurements.md")));
    let files = linked
        .iter()
        .map(|link| link.split('#').next().unwrap_or_default().to_owned());
    let files: BTreeSet<String> = files.filter(is_measured).collect();
    let expected: BTreeSet<String> = pages().into_iter().filter(is_measured).collect();
    assert_eq!(files, expected);
}

#[test]
fn each_link_leads_to_a_heading() {
    let docs = root().join("docs");
    let mut files: Vec<PathBuf> = pages().iter().map(|name| docs.join(name)).collect();
    files.extend(OTHERS.iter().map(|name| root().join(name)));
    let wrong: Vec<String> = files.iter().flat_map(|page| wrong_links(page)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The most words of a list item.
const ITEM_MOST: usize = 60;

/// Returns the list items of a page that are longer than [`ITEM_MOST`] words, as the number of
/// their first line and their words. Code and blocks that commands write are left out.
fn long_items(text: &str) -> Vec<(usize, usize)> {
    let is_first = |line: &str| {
        let line = line.trim_start();
        let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
        line.starts_with("- ") || (number.len() < line.len() && number.starts_with(". "))
    };
    let (mut items, mut in_item, mut skipped) = (Vec::new(), false, None);
    for (at, line) in text.lines().enumerate() {
        let edge = if line.trim_start().starts_with("```") {
            Some("```")
        } else if line.starts_with("<!-- ") && (line.contains(": begin") || line.contains(": end"))
        {
            Some("block")
        } else {
            None
        };
        if edge.is_some() && (skipped.is_none() || skipped == edge) {
            skipped = if skipped.is_none() { edge } else { None };
            in_item = false;
            continue;
        }
        if skipped.is_some() {
            continue;
        }
        let first = is_first(line);
        in_item = first || (in_item && line.starts_with(' ') && !line.trim().is_empty());
        if first {
            items.push((at + 1, 0));
        }
        if in_item && let Some((_, words)) = items.last_mut() {
            *words += line.split_whitespace().count();
        }
    }
    // The dash or the number counts as a word of its line.
    items.retain(|(_, words)| *words > ITEM_MOST + 1);
    items
}

#[test]
fn list_items_are_short() {
    let docs = root().join("docs");
    let mut files: Vec<PathBuf> = pages().iter().map(|name| docs.join(name)).collect();
    files.extend(OTHERS.iter().map(|name| root().join(name)));
    let long = files.iter().flat_map(|page| {
        let items = long_items(&read(page));
        let told = |(line, words)| format!("{}:{line}: {words} words", page.display());
        items.into_iter().map(told).collect::<Vec<_>>()
    });
    let long: Vec<String> = long.collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn long_items_are_found() {
    let words = "word ".repeat(ITEM_MOST - 1);
    let page = |item: &str| format!("Text.\n\n{item}\n\nMore.\n");
    assert_eq!(long_items(&page(&format!("- {words}one"))), []);
    assert_eq!(
        long_items(&page(&format!("- {words}one\n  two"))),
        [(3, ITEM_MOST + 2)]
    );
    assert_eq!(
        long_items(&page(&format!("12. {words}one\n    two"))),
        [(3, ITEM_MOST + 2)]
    );
    assert_eq!(long_items(&page(&format!("- {words}one\n- two"))), []);
    let fenced = page(&format!("```\n- {words}one two\n```"));
    assert_eq!(long_items(&fenced), []);
    let written = format!("<!-- a: begin -->\n- {words}one two\n<!-- a: end -->");
    assert_eq!(long_items(&page(&written)), []);
}

#[test]
fn links_and_anchors_are_read() {
    let text = "[a](b.md#c) `[no](x)`\n```\n[no](y)\n```\n[d]: e.md\n";
    assert_eq!(links(text), ["b.md#c", "e.md"]);
    assert_eq!(anchor("## The `map`, and *more*"), "the-map-and-more");
}
