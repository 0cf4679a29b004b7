//! docs/configuration-reference.md is written from the schema of the configuration, and this holds it to
//! that: `UPDATE_REFERENCE=1 cargo test -p enforcer --test shipped book` writes it anew.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, process::Command};

use serde_json::Value;

use super::root;

const HEAD: &str = "\
# All keys

Every key of the configuration, with its type, its default and one line on it. [Configuration](configuration.md) says how they go
together, and what a declared workload is.

This page is generated from the [schema](schema/config.schema.json) (`UPDATE_REFERENCE=1 cargo test -p enforcer --test shipped book`), and a
test holds it to that.
";

/// The schema, and the tables and kinds of values that were met on the way.
struct Reference<'a> {
    schema: &'a Value,
    tables: Vec<(String, &'a Value)>,
    kinds: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Reference<'a> {
    fn new(schema: &'a Value) -> Self {
        let mut new = Self { schema, tables: Vec::new(), kinds: BTreeMap::new() };
        new.table("", schema);
        new
    }

    /// Notes a table and those in it, in the order of a file: first what is in none.
    fn table(&mut self, prefix: &str, object: &'a Value) {
        self.tables.push((prefix.to_owned(), object));
        for (key, value) in own(object) {
            if let Some((_, definition)) =
                self.definition(value).filter(|(_, it)| it.get("properties").is_some())
            {
                self.table(&format!("{prefix}{key}."), definition);
            }
        }
    }

    /// What a value refers to, itself, as a list or where it may be left out.
    fn definition(&self, value: &'a Value) -> Option<(&'a str, &'a Value)> {
        let inner = [Some(value), value.get("items"), value.pointer("/anyOf/0")];
        let name = inner.into_iter().flatten().find_map(|it| it["$ref"].as_str())?.rsplit('/').next()?;
        Some((name, &self.schema["$defs"][name]))
    }

    /// The type of a value, and the kinds that it names.
    fn type_of(&mut self, value: &'a Value) -> String {
        let list = |of: &str| format!("list of {of}");
        if let Some((name, definition)) = self.definition(value) {
            if definition.get("properties").is_some() {
                return if value["type"] == "array" { "tables".to_owned() } else { "table".to_owned() };
            }
            self.kinds.insert(name, definition);
            let link = format!("[{name}](#{})", name.to_lowercase());
            return if value["type"] == "array" { list(&link) } else { link };
        }
        let kind = value["type"].as_str().or_else(|| value["type"][0].as_str()).unwrap_or_default();
        match kind {
            "integer" => "whole number".to_owned() + &bounds(value),
            "number" => "number".to_owned() + &bounds(value),
            "string" => "text".to_owned(),
            "array" => list(&self.type_of(&value["items"])),
            "object" => format!("table of {}", self.type_of(&value["additionalProperties"])),
            other => other.to_owned(),
        }
    }

    fn write(mut self) -> String {
        let mut out = HEAD.to_owned();
        for (prefix, object) in std::mem::take(&mut self.tables) {
            let title = match prefix.trim_end_matches('.') {
                "" => "At the beginning of the file".to_owned(),
                name if name == "workload" || name.ends_with("rule") => format!("`[[{name}]]`"),
                name => format!("`[{name}]`"),
            };
            let _ = writeln!(out, "\n## {title}\n\n| key | type | default | meaning |\n|---|---|---|---|");
            let required = object["required"].as_array().into_iter().flatten().collect::<Vec<_>>();
            for (key, value) in own(object) {
                let kind = self.type_of(value);
                let default = match value.get("default").filter(|default| !default.is_object()) {
                    _ if required.iter().any(|name| *name == key) => "required".to_owned(),
                    Some(default) => format!("`{default}`"),
                    None => String::new(),
                };
                let also: Vec<_> = keys(object).filter(|(_, other)| other["x-same-as"] == **key).collect();
                let also = also.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                let also = if also.is_empty() { also } else { format!(" Also {also}.") };
                let meaning = cell(&value["description"]) + &also;
                let _ = writeln!(out, "| `{prefix}{key}` | {kind} | {default} | {meaning} |");
            }
        }
        out.push_str("\n## Kinds of values\n");
        // A kind may name another one.
        let mut written: Vec<&str> = Vec::new();
        while let Some((name, definition)) =
            self.kinds.iter().find(|(name, _)| !written.contains(name)).map(|(name, it)| (*name, *it))
        {
            written.push(name);
            let _ =
                writeln!(out, "\n### {name}\n\n{}", definition["description"].as_str().unwrap_or_default());
            if definition["type"] == "array" {
                let of = self.type_of(&definition["items"]);
                let _ = writeln!(out, "\nA list of {of}.");
            }
            let cases = definition["oneOf"].as_array();
            for (position, case) in cases.into_iter().flatten().enumerate() {
                let before = if position == 0 { "\n" } else { "" };
                let _ = writeln!(out, "{before}- `{}`: {}", case["const"], cell(&case["description"]));
            }
        }
        out
    }
}

fn keys(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object["properties"].as_object().into_iter().flatten()
}

/// Those that are not other names of one of them.
fn own(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    keys(object).filter(|(_, value)| value.get("x-same-as").is_none())
}

/// `, 1 to 64`.
fn bounds(value: &Value) -> String {
    match (value["minimum"].as_f64(), value["maximum"].as_f64()) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        (Some(least), None) if least > 0.0 => format!(", {least} at least"),
        (None, Some(most)) => format!(", {most} at most"),
        _ => String::new(),
    }
}

/// A description in one cell of a table.
fn cell(text: &Value) -> String {
    text.as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

#[test]
fn the_reference_of_the_configuration_is_that_of_the_schema() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_numa-enforcer")).args(["schema", "config"]).output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    let generated = Reference::new(&schema).write();
    let path = root().join("docs/configuration-reference.md");
    if env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == generated,
        "docs/configuration-reference.md is not that of the schema; write it anew with\n    \
         UPDATE_REFERENCE=1 cargo test -p enforcer --test shipped book"
    );
    for row in [
        "| `mode` | [Mode](#mode) | `\"observe\"` |",
        "| `workload.name` | text | required |",
        "`[[workload]]`",
    ] {
        assert!(generated.contains(row), "{row}");
    }
}
