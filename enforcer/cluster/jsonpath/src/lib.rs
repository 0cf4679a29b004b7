//! Paths of fields in JSON, as kubeconfigs name them: `$.credential.access_token`.
//!
//! Problem: kube asks a library of paths for one thing, the token in what a login command of a kubeconfig
//! prints (`token-key`, `expiry-key`). The library brings a parser generator and the Unicode tables of
//! regular expressions, which are a twentieth of the daemon's binary.
//!
//! Idea: this crate has the library's name and the part of its interface that kube calls, and takes its
//! place by `[patch.crates-io]`. It reads the paths of that purpose, names of fields between dots, and
//! refuses any other.

use serde_json::Value;
use thiserror::Error;

/// A path that names more than fields.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path:?}: only names of fields are supported, as in \"$.credential.access_token\"")]
pub struct UnsupportedPath {
    path: String,
}

/// JSON that is asked by paths.
pub trait JsonPath {
    /// The value that the path leads to; empty if there is none.
    ///
    /// # Errors
    /// The path has wildcards, indices, filters or anything else than fields.
    fn query(&self, path: &str) -> Result<Vec<&Value>, UnsupportedPath>;
}

impl JsonPath for Value {
    fn query(&self, path: &str) -> Result<Vec<&Value>, UnsupportedPath> {
        let unsupported = || UnsupportedPath { path: path.to_owned() };
        let fields = path.strip_prefix("$.").ok_or_else(unsupported)?;
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        };
        if !fields.split('.').all(is_name) {
            return Err(unsupported());
        }
        let found = fields.split('.').try_fold(self, |value, name| value.get(name));
        Ok(found.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_found_and_other_paths_refused() {
        let printed = json!({"credential": {"access_token": "a", "token-expiry": "b"}, "list": [1]});
        for (path, found) in [
            ("$.credential.access_token", Some(json!("a"))),
            ("$.credential.token-expiry", Some(json!("b"))),
            ("$.credential.other", None),
            ("$.credential.access_token.more", None),
            ("$.list.0", None),
        ] {
            assert_eq!(printed.query(path), Ok(found.iter().collect()), "{path}");
        }
        for path in ["", "$", "$.", "$..a", "$.a[0]", "$.a[*]", "a", "$.a.", "$.a b", "$['a']"] {
            assert!(printed.query(path).is_err(), "{path}");
        }
    }
}
