//! The links of the pages that were built.

use anyhow::{Context, Result};
use scraper::{Html, Selector};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// What other pages may refer to, and what a page refers to.
struct Page {
    anchors: BTreeSet<String>,
    links: BTreeSet<String>,
}

/// Returns the links of the HTML pages in `folder` that lead to no file or to no place in it, as
/// `page: link`. Links to other sites are not looked up.
///
/// # Errors
/// Fails if a page cannot be read.
pub fn dead_links(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.canonicalize()?;
    let mut pages = BTreeMap::new();
    for entry in WalkDir::new(&folder).sort_by_file_name() {
        let path = entry?.into_path();
        if path.extension().is_some_and(|end| end == "html") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            pages.insert(path, page(&text));
        }
    }
    let mut dead = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            if !leads_somewhere(path, link, &pages) {
                let name = path.strip_prefix(&folder).unwrap_or(path);
                dead.push(format!("{}: {link}", name.display()));
            }
        }
    }
    Ok(dead)
}

fn page(text: &str) -> Page {
    let html = Html::parse_document(text);
    let values = |selector: &str, attribute: &str| {
        let selector = Selector::parse(selector).expect("a selector");
        let all = html.select(&selector);
        let values = all.filter_map(|element| element.attr(attribute));
        values.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let mut links = values("a[href]", "href");
    links.extend(values("img[src]", "src"));
    Page {
        anchors: values("[id]", "id"),
        links,
    }
}

/// Returns whether the link `link` of the page `from` leads to a file, and to a place of that file
/// that exists. `pages` are all pages.
fn leads_somewhere(from: &Path, link: &str, pages: &BTreeMap<PathBuf, Page>) -> bool {
    if link.contains("://") || link.starts_with("mailto:") {
        return true;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        from.to_owned()
    } else {
        match from.with_file_name("").join(file).canonicalize() {
            Ok(target) => target,
            Err(_) => return false,
        }
    };
    let known = |page: &Page| page.anchors.contains(anchor);
    anchor.is_empty() || pages.get(&target).is_some_and(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let folder = std::env::temp_dir().join(format!("ebb-book-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let text = r##"<a href="#here">a</a><h1 id="here">b</h1><a href="b.html#c">c</a>
            <a href="https://example.org/x">d</a><a href="none.html">e</a><a href="#gone">f</a>"##;
        fs::write(folder.join("a.html"), text).expect("a page");
        fs::write(folder.join("b.html"), r#"<p id="c"></p>"#).expect("a page");
        let dead = dead_links(&folder).expect("pages");
        fs::remove_dir_all(&folder).expect("the folder");
        assert_eq!(dead, ["a.html: #gone", "a.html: none.html"]);
    }
}
