//! Checks JSON values against the schemas of documents. It knows those keywords that these schemas
//! have.

use super::schema::{alternatives, definitions, fields, is_nullable, reference, required};
use serde_json::{Value, json};

/// Returns what is wrong with the examples in `text`, of the document with the schema `root`. `…`
/// stands for fields or elements that are not shown; if it occurs, any field may be missing.
pub(super) fn problems_of_examples(root: &Value, text: &str) -> Vec<String> {
    let check = Check {
        root,
        is_whole: !text.contains('…'),
    };
    let whole = text.replace(",…", "").replace(", …", "").replace('…', "");
    let mut wrong = Vec::new();
    for value in serde_json::Deserializer::from_str(&whole).into_iter::<Value>() {
        match value {
            Ok(value) => wrong.extend(check.value(root, &value, "$")),
            Err(error) => wrong.push(format!("{whole}: {error}")),
        }
    }
    wrong
}

/// Returns what is wrong with a document that has the schema `root`.
pub(super) fn problems(root: &Value, document: &Value) -> Vec<String> {
    let check = Check {
        root,
        is_whole: true,
    };
    check.value(root, document, "$")
}

/// A check of one document.
struct Check<'a> {
    root: &'a Value,
    /// Whether required fields must be there.
    is_whole: bool,
}

impl Check<'_> {
    /// Returns what is wrong with `value`, which is at `path` and has this `schema`. A field that
    /// the schema does not know is wrong.
    fn value(&self, schema: &Value, value: &Value, path: &str) -> Vec<String> {
        let mut wrong = self.shape(schema, value, path);
        if let Value::Object(object) = value
            && !self.is_open(schema)
        {
            let known = self.known(schema);
            let unknown = object.keys().filter(|name| !known.contains(&name.as_str()));
            wrong.extend(unknown.map(|name| format!("{path}.{name} is unknown")));
        }
        wrong
    }

    /// Returns the definition to which `schema` refers, or `schema` if it is no reference.
    fn target<'b>(&'b self, schema: &'b Value) -> &'b Value {
        let name = reference(schema);
        name.and_then(|name| definitions(self.root).find(|(known, _)| *known == name))
            .map_or(schema, |(_, definition)| definition)
    }

    /// Returns whether the schema allows fields of any name, as that of a map or of any value does.
    fn is_open(&self, schema: &Value) -> bool {
        let schema = self.target(schema);
        self.known(schema).is_empty()
    }

    /// Returns the names of all fields that the schema has, those of its alternatives included.
    fn known<'b>(&'b self, schema: &'b Value) -> Vec<&'b str> {
        let schema = self.target(schema);
        let own = fields(schema).into_iter().map(|(name, _, _)| name.as_str());
        own.chain(alternatives(schema).flat_map(|one| self.known(one)))
            .collect()
    }

    fn shape(&self, schema: &Value, value: &Value, path: &str) -> Vec<String> {
        let schema = self.target(schema);
        let mut wrong = Vec::new();
        let mut demand = |is_met: bool, what: &str| {
            if !is_met {
                wrong.push(format!("{path} is {value}, not {what}"));
            }
        };
        match schema.get("type") {
            Some(Value::String(name)) => demand(is_a(value, name), name),
            Some(Value::Array(names)) => {
                let mut names = names.iter().filter_map(Value::as_str);
                demand(names.any(|name| is_a(value, name)), "of a type of the list");
            }
            _ => {}
        }
        if let Some(only) = schema.get("const") {
            demand(value == only, &only.to_string());
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            demand(values.contains(value), "in the list");
        }
        let mut ways = alternatives(schema).peekable();
        if ways.peek().is_some() && !(value.is_null() && is_nullable(schema)) {
            let fits = |one: &Value| self.shape(one, value, path).is_empty();
            demand(ways.any(fits), "one of the alternatives");
        }
        match value {
            Value::Object(object) => {
                if self.is_whole {
                    let required = schema.as_object().map(required).unwrap_or_default();
                    for name in required {
                        demand(object.contains_key(&name), &format!("with `{name}`"));
                    }
                }
                for (name, property, _) in fields(schema) {
                    if let Some(inner) = object.get(name) {
                        wrong.extend(self.value(property, inner, &format!("{path}.{name}")));
                    }
                }
                if let Some(others) = schema.get("additionalProperties")
                    && others.is_object()
                {
                    for (name, inner) in object {
                        wrong.extend(self.value(others, inner, &format!("{path}.{name}")));
                    }
                }
            }
            Value::Array(items) => {
                let fixed = schema.get("prefixItems").and_then(Value::as_array);
                for (index, item) in items.iter().enumerate() {
                    let of_item = match fixed {
                        Some(fixed) => fixed.get(index),
                        None => schema.get("items"),
                    };
                    if let Some(of_item) = of_item {
                        wrong.extend(self.value(of_item, item, &format!("{path}[{index}]")));
                    }
                }
            }
            _ => {}
        }
        wrong
    }
}

/// Returns whether `value` has the type that JSON Schema calls `name`.
fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

#[test]
fn what_differs_from_a_schema_is_named() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"$ref": "#/$defs/B"},
            "c": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]},
            "d": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["a"],
        "$defs": {"B": {"type": "string", "enum": ["x", "y"]}},
    });
    let good = json!({"a": 1, "b": "x", "c": null, "d": ["z"]});
    assert_eq!(problems(&schema, &good), Vec::<String>::new());
    for bad in [
        json!({}),
        json!({"a": 1.5}),
        json!({"a": 1, "b": "z"}),
        json!({"a": 1, "c": "z"}),
        json!({"a": 1, "d": [1]}),
        json!({"a": 1, "e": 1}),
        json!([]),
    ] {
        assert_eq!(problems(&schema, &bad).len(), 1, "{bad}");
    }
    assert!(problems_of_examples(&schema, r#"{"b":"x",…}"#).is_empty());
    assert_eq!(problems_of_examples(&schema, r#"{"b":"x"}"#).len(), 1);
}
