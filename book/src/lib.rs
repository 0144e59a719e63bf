//! The documentation as a book: builds it with mdBook, and looks up the links of the pages that
//! were built.

mod links;
mod outside;

pub use links::dead_links;

use anyhow::{Context, Result};
use mdbook_driver::MDBook;
use std::path::{Path, PathBuf};

/// Builds the book of the repository at `root`. Returns the folder with its pages.
///
/// # Errors
/// Fails if `book.toml` or a page cannot be read, or a page cannot be written.
pub fn build(root: &Path) -> Result<PathBuf> {
    let mut book = MDBook::load(root).with_context(|| format!("the book in {}", root.display()))?;
    book.with_preprocessor(outside::Outside);
    book.build().context("the book")?;
    Ok(book.build_dir_for("html"))
}
