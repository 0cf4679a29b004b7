//! Checks that every value of a configuration has the kind that its key takes: a table, a list, one of some
//! words.
//!
//! Problem: the deserializer accepts more than a user may write: a list for a table (its values in field
//! order), a date for a table of one key, a table of one key for a word. Such a setting would be ignored or
//! mean something else. Other values it rejects with names of this program's types. Idea: check the kinds
//! first, against the published schema, which tests keep equal to the types. The deserializer checks all
//! else: unknown keys and values, and a number in place of a word.
//!
//! Invariant: whatever the schema allows is accepted.

use std::{borrow::Cow, ops::Range};

use serde_json::Value;
use toml::de::{DeTable, DeValue};

/// A value of the wrong kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Its bytes in the text.
    pub(super) span: Range<usize>,
    /// The expected kind.
    pub(super) problem: String,
}

/// The first misfit, by the names of the keys; `None` for a text that is no TOML.
pub(super) fn misfit(schema: &Value, text: &str) -> Option<Misfit> {
    let document = DeTable::parse(text).ok()?;
    Kinds { schema }.table(document.get_ref(), &[schema], None)
}

/// Path of a value, as messages write it.
struct ValuePlace {
    /// Keys from the top, separated by dots.
    key: String,
    /// Whether it is an entry of the list there, not the list.
    is_entry: bool,
}

impl ValuePlace {
    /// The place of a key in the table at this place.
    fn of(table: Option<&Self>, key: &str) -> Self {
        let is_bare =
            !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        let key = if is_bare { Cow::Borrowed(key) } else { Cow::Owned(format!("{key:?}")) };
        Self {
            key: table.map_or_else(|| key.to_string(), |table| format!("{}.{key}", table.key)),
            is_entry: false,
        }
    }

    /// An entry of the list at this place.
    fn entry(&self) -> Self {
        Self { key: self.key.clone(), is_entry: true }
    }

    /// How TOML opens a table at this place.
    fn opened(&self) -> String {
        if self.is_entry { format!("[[{}]]", self.key) } else { format!("[{}]", self.key) }
    }
}

struct Kinds<'s> {
    /// The whole schema, for references.
    schema: &'s Value,
}

impl<'s> Kinds<'s> {
    fn table(&self, table: &DeTable<'_>, takes: &[&'s Value], place: Option<&ValuePlace>) -> Option<Misfit> {
        table.iter().find_map(|(key, value)| {
            let name = key.get_ref();
            let of_key = takes.iter().find_map(|one| {
                let named = one.get("properties").and_then(|known| known.get(&**name));
                named.or_else(|| one.get("additionalProperties"))
            })?;
            // A table that only its keys' names open has no span.
            let span = if value.span().is_empty() { key.span() } else { value.span() };
            self.value(value.get_ref(), span, of_key, &ValuePlace::of(place, name))
        })
    }

    fn value(
        &self,
        value: &DeValue<'_>,
        span: Range<usize>,
        schema: &'s Value,
        place: &ValuePlace,
    ) -> Option<Misfit> {
        let takes = self.alternatives(schema);
        match value {
            DeValue::Table(table) if takes_any(&takes, "object") => self.table(table, &takes, Some(place)),
            DeValue::Array(list) if takes_any(&takes, "array") => {
                let items = takes.iter().find_map(|one| one.get("items"))?;
                let place = place.entry();
                list.iter().find_map(|entry| self.value(entry.get_ref(), entry.span(), items, &place))
            }
            DeValue::String(_) if takes_any(&takes, "string") => None,
            _ => {
                let date = matches!(value, DeValue::Datetime(_))
                    .then(|| "a date or a time is no value here".to_owned());
                self.expected(&takes, place).or(date).map(|problem| Misfit { span, problem })
            }
        }
    }

    /// Message for a value of another kind; `None` where the deserializer's is better.
    fn expected(&self, takes: &[&'s Value], place: &ValuePlace) -> Option<String> {
        if takes_any(takes, "object") {
            return Some(format!("a table is expected, as in `{}`", place.opened()));
        }
        if let Some(items) = takes.iter().find_map(|one| one.get("items")) {
            return Some(if takes_any(&self.alternatives(items), "object") {
                let opened = place.entry().opened();
                format!("one of several is expected, which is written with two brackets, as in `{opened}`")
            } else {
                format!("a list is expected, as in `{} = [\"\"]`", place.key)
            });
        }
        let words: Vec<_> =
            takes.iter().filter_map(|one| Some(format!("\"{}\"", one.get("const")?.as_str()?))).collect();
        (!words.is_empty()).then(|| format!("one of {} is expected", words.join(", ")))
    }

    /// Alternatives for a value, with references resolved.
    fn alternatives(&self, schema: &'s Value) -> Vec<&'s Value> {
        let named = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
        if let Some(referred) = named.and_then(|name| self.schema.pointer(name)) {
            return self.alternatives(referred);
        }
        match schema.get("anyOf").or(schema.get("oneOf")).and_then(Value::as_array) {
            Some(several) => several.iter().flat_map(|one| self.alternatives(one)).collect(),
            None => vec![schema],
        }
    }
}

fn takes_any(takes: &[&Value], kind: &str) -> bool {
    takes.iter().filter_map(|one| one.get("type")).any(|kinds| {
        kinds.as_str() == Some(kind)
            || kinds.as_array().is_some_and(|several| several.iter().any(|one| one.as_str() == Some(kind)))
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use enforcer_core::policy::Policy;

    use super::*;
    use crate::config::{parse, schema};

    fn found(text: &str) -> Option<(String, String)> {
        misfit(&schema(), text).map(|Misfit { span, problem }| (text[span].to_owned(), problem))
    }

    #[test]
    fn what_would_be_read_as_something_else_is_refused() {
        for (text, marked, problem) in [
            ("control = 0", "0", "a table is expected, as in `[control]`"),
            ("control = [false]", "[false]", "a table is expected, as in `[control]`"),
            ("[[memory]]", "[[memory]]", "a table is expected, as in `[memory]`"),
            ("[placement]\navailable = []", "[]", "a table is expected, as in `[placement.available]`"),
            ("workload = [[\"a\"]]", "[\"a\"]", "a table is expected, as in `[[workload]]`"),
            (
                "[[workload]]\nlabels = 1979-05-27",
                "1979-05-27",
                "a table is expected, as in `[workload.labels]`",
            ),
            (
                "placement.reserved.memory.0 = 1979-05-27",
                "1979-05-27",
                "a table is expected, as in `[placement.reserved.memory.0]`",
            ),
            (
                "[workload]\nname = \"a\"",
                "[workload]",
                "one of several is expected, which is written with two brackets, as in `[[workload]]`",
            ),
            (
                "[[workload]]\ndevices = \"a\"",
                "\"a\"",
                "a list is expected, as in `workload.devices = [\"\"]`",
            ),
            (
                "[placement.reserved.memory]\n\"0.1\" = 1",
                "1",
                "a table is expected, as in `[placement.reserved.memory.\"0.1\"]`",
            ),
            (
                "[placement]\nAvailableResources = [\"cpuset:1\"]",
                "[\"cpuset:1\"]",
                "a table is expected, as in `[placement.AvailableResources]`",
            ),
            ("control.enabled = 1979-05-27", "1979-05-27", "a date or a time is no value here"),
            ("mode = { observe = {} }", "{ observe = {} }", "one of \"observe\", \"enforce\" is expected"),
            ("mode.observe = 1", "mode", "one of \"observe\", \"enforce\" is expected"),
            ("mode = 1979-05-27", "1979-05-27", "one of \"observe\", \"enforce\" is expected"),
        ] {
            assert_eq!(found(text), Some((marked.to_owned(), problem.to_owned())), "{text}");
        }
    }

    #[test]
    fn values_of_the_right_kind_are_left_to_the_deserializer() {
        for text in [
            "",
            "mode = \"x\"",
            "interval = 5",
            "colour = [1]",
            "[nri]\nindex = \"a\"",
            "control = ",
            "[control]",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    /// Passes each table of the schema with an unknown key and the known ones, and each word with an unknown
    /// one and the known ones.
    fn visit(
        kinds: &Kinds<'_>,
        table: &Value,
        path: &str,
        head: &str,
        met: &mut impl FnMut(String, BTreeSet<&str>),
    ) {
        let keys: Vec<_> = table.get("properties").and_then(Value::as_object).into_iter().flatten().collect();
        if !keys.is_empty() {
            met(format!("{head}zzz = 1"), keys.iter().map(|(key, _)| key.as_str()).collect());
        }
        for (key, value) in keys {
            let takes = kinds.alternatives(value);
            let words: BTreeSet<_> = takes.iter().filter_map(|one| one.get("const")?.as_str()).collect();
            if !words.is_empty() {
                met(format!("{head}{key} = \"zzz\""), words);
            }
            let path = format!("{path}{key}");
            for one in takes {
                visit(kinds, one, &format!("{path}."), &format!("[{path}]\n"), met);
                for item in one.get("items").map(|items| kinds.alternatives(items)).into_iter().flatten() {
                    visit(kinds, item, &format!("{path}."), &format!("[[{path}]]\n"), met);
                }
            }
        }
    }

    #[test]
    fn the_schema_has_all_names_that_are_read_and_no_other() {
        let schema = schema();
        let mut texts = 0;
        visit(&Kinds { schema: &schema }, &schema, "", "", &mut |text, names| {
            let problem = parse(Path::new("c.toml"), &text, &()).unwrap_err().to_string();
            let expected =
                problem.rsplit_once("`zzz`, expected ").unwrap_or_else(|| panic!("{text}: {problem}")).1;
            assert_eq!(names, expected.split('`').skip(1).step_by(2).collect(), "{text}: {problem}");
            texts += 1;
        });
        assert!(texts > 40, "{texts}");
    }

    #[test]
    fn a_whole_configuration_is_of_its_kinds() {
        let defaults = toml::to_string(&Policy::default()).unwrap();
        assert_eq!(found(&defaults), None);
        let rest = "[[workload]]\nname = \"a\"\ncpus = 1\ndemotion = true\ndevices = [\"eth0\"]\nlabels = { a = \"b\" }\n\
                    memory_types = [\"dram\"]\nclass = \"shared\"\nnuma_nodes = \"0\"\n\
                    [[placement.rule]]\npolicy = \"none\"\nlabels.a = \"b\"\n\
                    [placement]\nreserved.memory.0.memory = \"1GiB\"\navailable.cpus = \"2\"\n";
        assert!(rest.parse::<toml::Table>().is_ok());
        assert_eq!(found(rest), None);
    }
}
