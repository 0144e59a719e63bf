//! The page of the book about JSON, and a JSON Schema of each document. Both are generated from the
//! types that serde converts: a test fails if a file differs from them, and writes the files if
//! `EBB_WRITE_REFERENCE` is set.
//!
//! The comments on types and fields are the text of the page. Everything here is for tests alone,
//! so that the command is built without the crate that makes schemas.

mod conformity;
mod documents;
mod page;
mod schema;

use documents::DOCUMENTS;
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the text of each generated file, by its path below `docs`.
fn files() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for document in DOCUMENTS {
        let mut text = serde_json::to_string_pretty(&document.schema()).expect("it is JSON");
        text.push('\n');
        files.insert(PathBuf::from(document.file()), text);
    }
    files.insert(PathBuf::from("json.md"), page::page(DOCUMENTS));
    files
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Returns what differs between `value` and the schema of the document called `name`. Panics if
/// there is no such document.
pub(crate) fn problems_of(name: &str, value: &Value) -> Vec<String> {
    let document = DOCUMENTS.iter().find(|document| document.name == name);
    let schema = document.expect("a document has this name").schema();
    conformity::problems(&schema, value)
}

#[test]
fn the_page_and_the_schemas_are_those_of_the_types() {
    let docs = docs();
    for (name, text) in files() {
        let path = docs.join(&name);
        if env::var_os("EBB_WRITE_REFERENCE").is_some() {
            fs::write(&path, &text).expect("it can be written");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "docs/{} is old: `make reference` writes it",
            name.display()
        );
    }
}

#[test]
fn each_schema_file_is_that_of_a_document() {
    let files = files();
    for entry in fs::read_dir(docs().join("schemas")).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let name = Path::new("schemas").join(name);
        assert!(
            files.contains_key(&name),
            "{}: no such document",
            name.display()
        );
    }
}

#[test]
fn examples_conform_to_their_schemas() {
    for document in DOCUMENTS {
        let wrong = conformity::problems_of_examples(&document.schema(), document.example);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", document.name);
    }
}

#[test]
fn each_field_has_a_text_for_users() {
    for document in DOCUMENTS {
        let wrong = schema::bad_texts(&document.schema());
        assert!(wrong.is_empty(), "{}: {wrong:#?}", document.name);
    }
}
