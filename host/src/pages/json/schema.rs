//! JSON Schemas of types, in the form that is published.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The place of the shared definitions in a schema.
const DEFINITIONS: &str = "$defs";
/// The start of a reference to a shared definition.
const REFERENCE: &str = "#/$defs/";

/// Whether `ebb` writes or reads a document. A field with a default value is always written, and
/// need not be there to be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// `ebb` writes it.
    Written,
    /// `ebb` reads it.
    Read,
}

/// Returns the JSON Schema of `T` for documents in this `direction`.
pub(super) fn schema_of<T: JsonSchema + ?Sized>(direction: Direction) -> Value {
    let settings = SchemaSettings::draft2020_12();
    let settings = match direction {
        Direction::Written => settings.for_serialize(),
        Direction::Read => settings.for_deserialize(),
    };
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    clean(&mut schema, direction);
    schema
}

/// Makes a schema fit for users: texts are one line each, formats of Rust's numbers are left out,
/// and so are defaults, which are those of reading. An optional field that is written is not null,
/// because it is left out then.
fn clean(value: &mut Value, direction: Direction) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| clean(item, direction)),
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            if fields.contains_key("type") {
                fields.remove("format");
            }
            fields.remove("default");
            if direction == Direction::Written {
                optional_fields_are_not_null(fields);
            }
            fields.values_mut().for_each(|one| clean(one, direction));
        }
        _ => {}
    }
}

fn optional_fields_are_not_null(object: &mut Map<String, Value>) {
    let required = required(object);
    let Some(Value::Object(properties)) = object.get_mut("properties") else {
        return;
    };
    for (name, property) in properties {
        if required.contains(name) {
            continue;
        }
        if let Some(Value::Array(types)) = property.get_mut("type") {
            types.retain(|name| name != "null");
            if let [only] = types.as_slice() {
                property["type"] = only.clone();
            }
        }
        let alternatives = property.get("anyOf").and_then(Value::as_array);
        if let Some([one, null]) = alternatives.map(Vec::as_slice)
            && is_null(null)
            && let (Value::Object(mut one), Value::Object(fields)) = (one.clone(), property)
        {
            fields.remove("anyOf");
            fields.append(&mut one);
        }
    }
}

/// Returns the names in `required` of an object's schema, in the order of the fields.
pub(super) fn required(object: &Map<String, Value>) -> Vec<String> {
    let names = object.get("required").and_then(Value::as_array);
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// Returns whether this schema is that of null.
fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
}

/// Returns whether a value with this schema may be null.
pub(super) fn is_nullable(schema: &Value) -> bool {
    let types = schema.get("type").and_then(Value::as_array);
    let ways = schema.get("anyOf").and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(|kind| kind == "null"))
        || ways.is_some_and(|ways| ways.iter().any(is_null))
}

/// Returns the shared definitions of a document's schema, by their names.
pub(super) fn definitions(root: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let definitions = root.get(DEFINITIONS).and_then(Value::as_object);
    definitions.into_iter().flatten()
}

/// Returns the name of the shared definition to which this schema refers. Returns `None` if it is
/// no reference.
pub(super) fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix(REFERENCE)
}

/// Returns the text for users of this schema. It is empty if there is none.
pub(super) fn text_of(schema: &Value) -> &str {
    let text = schema.get("description").and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Returns the alternatives of this schema: the members of `oneOf` and `anyOf`, without null.
pub(super) fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["oneOf", "anyOf"].into_iter();
    let lists = lists.filter_map(|name| schema.get(name)?.as_array());
    lists.flatten().filter(|one| !is_null(one))
}

/// Returns the fields of an object's schema: the required ones in their order, then the others by
/// their names.
pub(super) fn fields(object: &Value) -> Vec<(&String, &Value, bool)> {
    let Some(properties) = object.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let required = object.as_object().map(required).unwrap_or_default();
    let first = required.iter().filter_map(|name| {
        let (name, property) = properties.get_key_value(name)?;
        Some((name, property, true))
    });
    let rest = properties
        .iter()
        .filter(|(name, _)| !required.contains(name));
    let rest = rest.map(|(name, property)| (name, property, false));
    first.chain(rest).collect()
}

/// Returns the texts of a document's schema that users cannot read: those that are missing, that
/// are no sentence, or that have names of Rust.
pub(super) fn bad_texts(root: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, definition) in definitions(root) {
        check_text(name, text_of(definition), &mut wrong);
        check_parts(name, definition, &mut wrong);
    }
    check_parts("the document", root, &mut wrong);
    wrong
}

/// Checks the texts of the fields and alternatives of `schema`, which is called `name`.
fn check_parts(name: &str, schema: &Value, wrong: &mut Vec<String>) {
    for (field, property, _) in fields(schema) {
        let name = format!("{name}.{field}");
        let is_tag = property.get("const").is_some();
        if !is_tag && !is_wrapper(schema) {
            check_text(&name, text_of(property), wrong);
        }
        check_parts(&name, property, wrong);
    }
    for (number, one) in alternatives(schema).enumerate() {
        let name = format!("{name}, alternative {number}");
        if reference(one).is_none() {
            check_text(&name, text_of(one), wrong);
            check_parts(&name, one, wrong);
        }
    }
}

/// Returns whether an object's schema only wraps one field, whose text is that of the object.
pub(super) fn is_wrapper(object: &Value) -> bool {
    !text_of(object).is_empty()
        && matches!(fields(object).as_slice(), [(_, field, _)]
        if text_of(field).is_empty())
}

fn check_text(name: &str, text: &str, wrong: &mut Vec<String>) {
    let is_sentence = text.ends_with('.') && text.starts_with(|c: char| !c.is_lowercase());
    let of_rust = ["`None`", "`Some", "[`", "::", "`true`", "`false`"];
    if !is_sentence || of_rust.iter().any(|word| text.contains(word)) {
        wrong.push(format!("{name}: {text:?}"));
    }
}
