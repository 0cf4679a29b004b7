//! JSON schemas of values that serialize as text.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::settings::{CgroupGlob, CpuAmount, CpuChoice, HumanDuration, NameGlob};

impl JsonSchema for CpuChoice {
    fn schema_name() -> Cow<'static, str> {
        "CpuChoice".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            // With a prefix, or with a character that an amount cannot have.
            "pattern": "cpuset:|[-,]",
            "description": "CPUs (cpuset:0-3, exclude-cpuset:0-1, 0-3)"
        })
    }
}

impl JsonSchema for CpuAmount {
    fn schema_name() -> Cow<'static, str> {
        "CpuAmount".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "CPUs (cpuset:0-3, exclude-cpuset:0-1, 0-3) or an amount (750m, 2)"
        })
    }
}

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A whole number and a unit: 500ms, 10s, 5m, 1h",
            "pattern": "^[0-9]+ *(ms|s|m|h)$"
        })
    }
}

impl JsonSchema for CgroupGlob {
    fn schema_name() -> Cow<'static, str> {
        "CgroupGlob".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Glob over cgroup paths; `*` does not cross a `/`, `**` does",
            "pattern": "^/.*[^/]$"
        })
    }
}

impl JsonSchema for NameGlob {
    fn schema_name() -> Cow<'static, str> {
        "NameGlob".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Glob over names: `*` is any number of characters, `{a,b}` either",
            "minLength": 1
        })
    }
}
