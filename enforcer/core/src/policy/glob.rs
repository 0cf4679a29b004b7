//! Globs over cgroup paths.
//!
//! `*` and `?` stay within one path element, `**` crosses elements: `/kubepods.slice/**` is
//! everything below that slice. A glob is compiled when the configuration is read, so a bad one is
//! refused there and matching cannot fail later.

use std::{borrow::Cow, fmt, str::FromStr};

use globset::{GlobBuilder, GlobMatcher};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::workload::CgroupPath;

/// A compiled glob; two are equal when their texts are.
#[derive(Clone)]
pub struct CgroupGlob(GlobMatcher);

/// A text that is not a glob over cgroup paths.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{glob}` is not a glob over cgroup paths: {problem}")]
pub struct GlobError {
    glob: String,
    problem: String,
}

impl CgroupGlob {
    /// Does the path match?
    pub fn matches(&self, cgroup: &CgroupPath) -> bool {
        self.0.is_match(cgroup.as_str())
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        self.0.glob().glob()
    }
}

impl FromStr for CgroupGlob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        let refused = |problem: String| GlobError { glob: text.to_owned(), problem };
        if !text.starts_with('/') {
            return Err(refused("it must start with `/`, the root of the cgroup tree".into()));
        }
        GlobBuilder::new(text)
            .literal_separator(true)
            .build()
            .map(|glob| Self(glob.compile_matcher()))
            .map_err(|error| refused(error.kind().to_string()))
    }
}

impl PartialEq for CgroupGlob {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for CgroupGlob {}

impl fmt::Debug for CgroupGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CgroupGlob({:?})", self.as_str())
    }
}

impl fmt::Display for CgroupGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for CgroupGlob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for CgroupGlob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <Cow<'de, str>>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
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
            "pattern": "^/"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_within_one_element() {
        for (glob, path, matches) in [
            ("/system.slice/*.service", "/system.slice/redis.service", true),
            ("/system.slice/*.service", "/system.slice/a/redis.service", false),
            ("/kubepods.slice/**", "/kubepods.slice/pod1/abc", true),
            ("/kubepods.slice/**", "/kubepods.slicer/pod1", false),
            ("/**/db-?", "/a/b/db-1", true),
            ("/db", "/db", true),
            ("/db", "/db/child", false),
            ("/{a,b}/x", "/b/x", true),
            ("/**", "/", true),
        ] {
            let compiled: CgroupGlob = glob.parse().unwrap();
            assert_eq!(compiled.matches(&CgroupPath::new(path)), matches, "{glob} on {path}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_glob_and_names_it() {
        for glob in ["", "redis", "/[", "/{a", "/a]b[", "*"] {
            let error = glob.parse::<CgroupGlob>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{glob}`")), "{error}");
        }
    }

    #[test]
    fn its_text_survives_serde() {
        let glob: CgroupGlob = serde_json::from_str(r#""/a/**""#).unwrap();
        assert_eq!(serde_json::to_string(&glob).unwrap(), r#""/a/**""#);
    }
}
