//! Links from a page to files of the repository that are outside the book. Some of these files are
//! pages of the book under another name. The others are named in the text instead.

use mdbook_preprocessor::book::Book;
use mdbook_preprocessor::errors::Result;
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};
use std::path::{Component, Path, PathBuf};

/// Files outside `docs`, by their paths from the root, and the pages of the book that include them.
const PAGES: &[(&str, &str)] = &[
    ("ARCHITECTURE.md", "architecture.md"),
    ("SECURITY.md", "security.md"),
    ("mm/DESIGN.md", "allocator.md"),
    ("blk/README.md", "block-back-end.md"),
];

/// The step of mdBook that changes these links.
pub(crate) struct Outside;

impl Preprocessor for Outside {
    fn name(&self) -> &str {
        "outside"
    }

    fn run(&self, _: &PreprocessorContext, mut book: Book) -> Result<Book> {
        book.for_each_chapter_mut(|chapter| {
            let folder = chapter.source_path.as_deref().and_then(Path::parent);
            if let Some(folder) = folder {
                chapter.content = inside(&chapter.content, folder);
            }
        });
        Ok(book)
    }
}

/// Returns the text of a page, which lies in `folder` of the book, with links that stay inside the
/// book.
fn inside(text: &str, folder: &Path) -> String {
    let lines = text.lines().map(|line| inside_line(line, folder));
    lines.map(|line| line + "\n").collect()
}

fn inside_line(line: &str, folder: &Path) -> String {
    if let Some((name, target)) = line.split_once("]: ")
        && name.starts_with('[')
    {
        return match page_of(target, folder) {
            Target::Page(page) => format!("{name}]: {page}"),
            Target::Inside | Target::File(_) => line.to_owned(),
        };
    }
    let mut parts = line.split("](");
    let mut new = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_once(')').unwrap_or((part, ""));
        match page_of(target, folder) {
            Target::Page(page) => new.push_str(&format!("]({page}){rest}")),
            Target::Inside => new.push_str(&format!("]({part}")),
            Target::File(file) => {
                // The text of the link stays, without its bracket.
                if let Some(open) = new.rfind('[') {
                    new.remove(open);
                }
                new.push_str(&format!(" (`{file}` in the repository){rest}"));
            }
        }
    }
    new
}

/// Where a link leads.
#[derive(PartialEq, Debug)]
enum Target {
    /// To a page of the book or to another site. The link stays.
    Inside,
    /// To a file outside the book that this page includes.
    Page(String),
    /// To a file outside the book, by its path from the root of the repository.
    File(String),
}

/// Returns where the link `target` of a page in `folder` leads.
fn page_of(target: &str, folder: &Path) -> Target {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    if file.contains("://") || file.is_empty() {
        return Target::Inside;
    }
    let mut path = PathBuf::new();
    let mut is_outside = false;
    for part in folder.join(file).components() {
        match part {
            Component::ParentDir if !path.pop() => is_outside = true,
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    if !is_outside {
        return Target::Inside;
    }
    let up = "../".repeat(folder.components().count());
    let file = path.display().to_string();
    match PAGES.iter().find(|(outside, _)| *outside == file) {
        Some((_, page)) if heading.is_empty() => Target::Page(format!("{up}{page}")),
        Some((_, page)) => Target::Page(format!("{up}{page}#{heading}")),
        None => Target::File(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_inside_the_book() {
        let at_top = |line| inside_line(line, Path::new(""));
        assert_eq!(
            at_top("[a](b.md#c), [d](https://e)"),
            "[a](b.md#c), [d](https://e)"
        );
        assert_eq!(at_top("[a](../SECURITY.md#b) c"), "[a](security.md#b) c");
        assert_eq!(at_top("[o]: ../ARCHITECTURE.md"), "[o]: architecture.md");
        assert_eq!(
            at_top("See [its limits](../README.md#limits)."),
            "See its limits (`README.md` in the repository)."
        );
        let below = |line| inside_line(line, Path::new("measured"));
        assert_eq!(below("[a](../knobs.md)"), "[a](../knobs.md)");
        assert_eq!(below("[a](../../mm/DESIGN.md#b)"), "[a](../allocator.md#b)");
    }
}
