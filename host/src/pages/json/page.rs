//! The page of the book about JSON: a section for each document, then one for each object or list
//! of names that documents share.

use super::documents::Document;
use super::schema::{
    alternatives, definitions, fields, is_nullable, is_wrapper, reference, text_of,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

const INTRODUCTION: &str = "\
# JSON

<!-- Written by `make reference`. -->

Everything that `ebb` writes or reads as JSON for other programs. Each document has a \
[JSON Schema](https://json-schema.org/), draft 2020-12, to validate it with. Programs should ignore \
fields that they do not know: new fields do not raise the version of a format.

In the tables, *absent* says what stands in place of a missing figure: `null`, or no field at all \
(*left out*). A field without a word there is always present and never null. `…` in an example \
stands for more fields or elements.

Names differ between documents. The guest's memory is `memory_bytes` in the figures of a guest, and \
`memory` in a record. The version of a format is called `version`, `schema` or `protocol`. `accel` \
is `kvm` or `tcg` in a record, and `KVM` or `TCG` in its `summary` and in the figures of a guest. \
Times whose names end with `_s` are seconds. The times in `summary` are milliseconds.
";
const FIELDS: &str = "| field | type | unit | absent | meaning |\n|---|---|---|---|---|\n";
const NAMES: &str = "| value | meaning |\n|---|---|\n";

/// Returns the page about `documents`, in their order.
pub(super) fn page(documents: &[Document]) -> String {
    let mut page = Page::default();
    let mut text = String::from(INTRODUCTION);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\n| document | schema |\n|---|---|\n{}",
        documents.iter().map(line_of_contents).collect::<String>()
    );
    for document in documents {
        let schema = document.schema();
        page.add_definitions(&schema);
        let _ = write!(
            text,
            "## {}\n\n{} [Schema]({}).\n\n```json\n{}\n```\n\n{}",
            document.heading,
            document.text,
            document.file(),
            document.example,
            page.content(&schema)
        );
    }
    text.push_str("## Objects and names\n\nThe documents above share these.\n\n");
    // A section may refer to objects that no section before it does.
    let mut next = 0;
    while let Some(name) = page.order.get(next).cloned() {
        next += 1;
        let definition = page.definitions[&name].clone();
        let _ = write!(
            text,
            "### {name}\n\n{}\n\n{}",
            text_of(&definition),
            page.content(&definition)
        );
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Returns the line about a document in the table of contents.
fn line_of_contents(document: &Document) -> String {
    let heading = document.heading;
    let file = document.file();
    format!("| [{heading}](#{}) | [{file}]({file}) |\n", anchor(heading))
}

/// Returns the anchor that mdBook and code hosts make of a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let text: String = heading.chars().filter(kept).collect();
    text.to_lowercase().replace(' ', "-")
}

/// The definitions of the page, by their names.
#[derive(Default)]
struct Page {
    definitions: BTreeMap<String, Value>,
    /// The names of the definitions to which the page refers, in the order of the first references.
    order: Vec<String>,
}

impl Page {
    /// Adds the definitions of a document's schema. Panics if another document has a different one
    /// of the same name.
    fn add_definitions(&mut self, schema: &Value) {
        for (name, definition) in definitions(schema) {
            let known = self.definitions.entry(name.clone());
            let known = known.or_insert_with(|| definition.clone());
            assert_eq!(known, definition, "two definitions are called {name}");
        }
    }

    /// Returns the tables about a schema: its fields, its names, or its alternatives.
    fn content(&mut self, schema: &Value) -> String {
        let mut text = String::new();
        let mut rows = String::new();
        self.rows(schema, "", &mut rows);
        if !rows.is_empty() {
            let _ = writeln!(text, "{FIELDS}{rows}");
        }
        if schema.get("type").is_some_and(|kind| kind == "array") {
            let kind = self.kind(schema);
            let _ = write!(text, "A {kind}.\n\n");
        }
        text.push_str(&self.ways(schema, !rows.is_empty()));
        text
    }

    /// Appends a row for each field of an object's schema. `path` stands before their names. A
    /// field whose object is defined in place is followed by that object's fields.
    fn rows(&mut self, object: &Value, path: &str, rows: &mut String) {
        for (name, property, is_required) in fields(object) {
            if property.get("const").is_some() {
                continue;
            }
            let name = format!("{path}{name}");
            let meaning = if is_wrapper(object) {
                text_of(object)
            } else {
                text_of(property)
            };
            let absent = match (is_required, is_nullable(property)) {
                (false, _) => "left out",
                (true, true) => "`null`",
                (true, false) => "",
            };
            let kind = self.kind(property);
            let unit = unit(&name, &kind, meaning);
            let _ = writeln!(
                rows,
                "| `{name}` | {kind} | {unit} | {absent} | {} |",
                meaning.replace('|', "\\|")
            );
            self.rows(property, &format!("{name}."), rows);
        }
    }

    /// Returns the tables and paragraphs about the alternatives of a schema. `more` says that a
    /// table of other fields stands before them.
    fn ways(&mut self, schema: &Value, more: bool) -> String {
        let ways: Vec<&Value> = alternatives(schema).collect();
        let mut names = String::new();
        let mut links = String::new();
        let mut wrapped = String::new();
        let mut tagged = String::new();
        for way in ways {
            if let Some(name) = way.get("const") {
                let _ = writeln!(names, "| `{}` | {} |", plain(name), text_of(way));
            } else if let Some(name) = reference(way) {
                let link = self.link(name);
                let text = text_of(&self.definitions[name]);
                let _ = writeln!(links, "- {link}: {text}");
            } else if let Some((tag, value)) = tag(way) {
                let _ = write!(tagged, "`\"{tag}\": {value}`: {}\n\n", text_of(way));
                let mut rows = String::new();
                self.rows(way, "", &mut rows);
                if !rows.is_empty() {
                    let _ = writeln!(tagged, "{FIELDS}{rows}");
                }
            } else {
                self.rows(way, "", &mut wrapped);
            }
        }
        let mut text = String::new();
        if !names.is_empty() {
            let _ = writeln!(text, "{NAMES}{names}");
        }
        if !links.is_empty() {
            let _ = writeln!(text, "One of these:\n\n{links}");
        }
        if !wrapped.is_empty() {
            let also = if more { "Also one" } else { "One" };
            let _ = writeln!(text, "{also} of these fields:\n\n{FIELDS}{wrapped}");
        }
        if !tagged.is_empty() {
            let also = if more { "Also one" } else { "One" };
            let _ = write!(text, "{also} of these:\n\n{tagged}");
        }
        text
    }

    /// Returns the words for the type of a schema, without null.
    fn kind(&mut self, schema: &Value) -> String {
        if let Some(name) = reference(schema) {
            return self.link(name);
        }
        if let Some(names) = schema.get("enum").and_then(Value::as_array) {
            return either(names);
        }
        if let Some(one) = alternatives(schema).next() {
            return self.kind(one);
        }
        let name = match schema.get("type") {
            Some(Value::String(name)) => name.as_str(),
            Some(Value::Array(names)) => {
                let mut names = names.iter().filter_map(Value::as_str);
                names.find(|name| *name != "null").unwrap_or("null")
            }
            _ => "any value",
        };
        let parts = match name {
            "array" => schema.get("prefixItems").or(schema.get("items")),
            "object" => schema.get("additionalProperties"),
            _ => None,
        };
        match (name, parts) {
            ("array", Some(Value::Array(items))) => {
                let kinds: Vec<String> = items.iter().map(|item| self.kind(item)).collect();
                format!("pair of {}", kinds.join(" and "))
            }
            ("array", Some(item)) => format!("list: {}", self.kind(item)),
            ("object", Some(item @ Value::Object(_))) => {
                format!("object of any names: {}", self.kind(item))
            }
            ("boolean", _) => "true or false".to_owned(),
            (name, _) => name.to_owned(),
        }
    }

    /// Returns a link to the section of the definition `name`, or the names themselves if it is a
    /// list of names without texts.
    fn link(&mut self, name: &str) -> String {
        if let Some(names) = self.definitions[name].get("enum").and_then(Value::as_array) {
            return either(names);
        }
        if !self.order.iter().any(|known| known == name) {
            self.order.push(name.to_owned());
        }
        format!("[{name}](#{})", anchor(name))
    }
}

/// Returns the name and the value of the field that tells an alternative from others.
fn tag(way: &Value) -> Option<(&String, &Value)> {
    let mut fields = fields(way).into_iter();
    fields.find_map(|(name, property, _)| Some((name, property.get("const")?)))
}

/// Returns the text of a name, without quotes.
fn plain(name: &Value) -> &str {
    name.as_str().unwrap_or_default()
}

/// Returns `names` as a list for people.
fn either(names: &[Value]) -> String {
    let names: Vec<String> = names
        .iter()
        .map(|name| format!("`{}`", plain(name)))
        .collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns the unit of a field whose type is `kind`, by the end of its `name` or else by the words
/// of its `meaning`. It is empty for a count, and for all but numbers.
fn unit(name: &str, kind: &str, meaning: &str) -> &'static str {
    const ENDS: [(&str, &str); 7] = [
        ("_bytes", "bytes"),
        ("_kib", "KiB"),
        ("_ms", "ms"),
        ("_per_s", "1/s"),
        ("_s", "s"),
        ("_seconds", "s"),
        ("_pages", "pages"),
    ];
    const WORDS: [(&str, &str); 6] = [
        ("bytes", "bytes"),
        ("milliseconds", "ms"),
        ("microseconds", "µs"),
        ("seconds", "s"),
        ("Pages", "pages"),
        ("Pageblocks", "pageblocks"),
    ];
    if !matches!(kind, "integer" | "number") {
        return "";
    }
    let of_name = ENDS.iter().find(|(end, _)| name.ends_with(end));
    let of_word = |word: &str| {
        let known = WORDS.iter().find(|(known, _)| {
            word == *known || known.starts_with(char::is_lowercase) && word.to_lowercase() == *known
        });
        known.map(|(_, unit)| *unit)
    };
    let mut words = meaning.split(|c: char| !c.is_alphanumeric());
    match of_name {
        Some((_, unit)) => unit,
        None => words.find_map(of_word).unwrap_or_default(),
    }
}

#[test]
fn units_are_those_of_names_or_texts() {
    assert_eq!(unit("a_bytes", "integer", "Milliseconds of it."), "bytes");
    assert_eq!(unit("rate_per_s", "number", ""), "1/s");
    assert_eq!(unit("half", "number", "Milliseconds until half."), "ms");
    assert_eq!(unit("free", "integer", "Pages that are free."), "pages");
    assert_eq!(unit("reports", "integer", "Reports of free pages."), "");
    assert_eq!(unit("a_s", "string", "A text."), "");
}
