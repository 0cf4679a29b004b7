//! CPUs in the configuration: as a list, as all but a list, or as a quantity.
//!
//! `cpuset:0-3`, `exclude-cpuset:0-1`, `0-3` or `0,4` name CPUs; `750m` and `2` are amounts, as
//! Kubernetes writes them.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::{parse::quantity::milli_cpus, set::CpuSet};

/// CPUs by name or by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuAmount {
    /// These.
    Set(CpuSet),
    /// All but these.
    Without(CpuSet),
    /// As many, in thousandths.
    Milli(u64),
}

/// A text that is none of these.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is neither CPUs (cpuset:0-3, exclude-cpuset:0-1, 0-3) nor an amount (750m, 2)")]
pub struct CpuAmountError(String);

impl FromStr for CpuAmount {
    type Err = CpuAmountError;

    fn from_str(text: &str) -> Result<Self, CpuAmountError> {
        let refused = || CpuAmountError(text.chars().take(40).collect());
        let list = |list: &str| list.parse::<CpuSet>().ok();
        let text = text.trim();
        let amount = if let Some(rest) = text.strip_prefix("cpuset:") {
            list(rest).map(Self::Set)
        } else if let Some(rest) = text.strip_prefix("exclude-cpuset:") {
            list(rest).map(Self::Without)
        } else if text.contains(['-', ',']) {
            list(text).map(Self::Set)
        } else {
            milli_cpus(text).map(Self::Milli)
        };
        amount.ok_or_else(refused)
    }
}

impl fmt::Display for CpuAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(cpus) => write!(f, "cpuset:{cpus}"),
            Self::Without(cpus) => write!(f, "exclude-cpuset:{cpus}"),
            Self::Milli(milli) => write!(f, "{milli}m"),
        }
    }
}

impl Serialize for CpuAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <Cow<'de, str>>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_amounts_are_told_apart() {
        for (text, read) in [
            ("cpuset:0-3", "cpuset:0-3"),
            ("cpuset:2", "cpuset:2"),
            ("exclude-cpuset:0,4", "exclude-cpuset:0,4"),
            ("0-3", "cpuset:0-3"),
            ("750m", "750m"),
            ("2", "2000m"),
            ("1.5", "1500m"),
        ] {
            assert_eq!(text.parse::<CpuAmount>().unwrap().to_string(), read);
        }
        for text in ["", "x", "cpuset:x", "3-1", "-1", "1.2.3"] {
            assert!(text.parse::<CpuAmount>().is_err(), "{text}");
        }
    }
}
