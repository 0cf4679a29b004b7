//! JSON schemas of values that serialize as text.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{set::IdSet, size::ByteSize};

impl<T> JsonSchema for IdSet<T> {
    fn schema_name() -> Cow<'static, str> {
        "IdList".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Ids in the kernel's list format, ascending: 0-3,8",
            "pattern": "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"
        })
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "An amount of memory: 512MiB, 2G (powers of 1024), 500MB (power of 1000), 4096",
            "pattern": "^[0-9]+ *(B|[kKmMgGtTpP](B|i|iB)?)?$"
        })
    }
}
