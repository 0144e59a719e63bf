//! Builds the documentation in `target/book` and fails if a link of a page leads nowhere.

use anyhow::{Result, bail};
use std::path::Path;

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    let folder = ebb_book::build(&root)?;
    let dead = ebb_book::dead_links(&folder)?;
    if !dead.is_empty() {
        bail!("links that lead nowhere:\n{}", dead.join("\n"));
    }
    println!("{}", folder.join("index.html").display());
    Ok(())
}
