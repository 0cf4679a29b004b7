//! Globs over names: of namespaces, pods, containers, units, commands.
//!
//! A glob is compiled when the configuration is read, so an invalid one is refused there with its text. Names
//! have no separators: `*` is any number of characters, `{a,b}` is either. Names are untrusted: a name longer
//! than any real one matches nothing.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::{
    covering::{self, Effort},
    glob_matcher::GlobMatcher,
};

/// Maximum length of a matched name in bytes: the kernel, systemd and Kubernetes all have shorter limits.
const LONGEST_NAME: usize = 1024;

/// A compiled glob; two are equal when their texts are.
#[derive(Clone)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
pub struct NameGlob(GlobMatcher);

/// A text that is not a glob over names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{glob}` is not a glob over names: {problem}")]
pub struct NameGlobError {
    glob: String,
    problem: String,
}

impl NameGlob {
    /// Does the name match?
    pub fn matches(&self, name: &str) -> bool {
        name.len() <= LONGEST_NAME && self.0.is_match(name)
    }

    /// Does it match every name that the other one matches? False if unknown.
    pub fn covers(&self, other: &Self, effort: &mut Effort) -> bool {
        covering::covers(self.as_str(), other.as_str(), false, |name| self.matches(name), effort)
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        self.0.text()
    }
}

/// [`NameGlob::covers`] for optional globs: an absent one matches everything.
pub fn covers_optional(wide: Option<&NameGlob>, narrow: Option<&NameGlob>, effort: &mut Effort) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => wide.covers(narrow, effort),
        (Some(_), None) => false,
    }
}

impl FromStr for NameGlob {
    type Err = NameGlobError;

    fn from_str(text: &str) -> Result<Self, NameGlobError> {
        let refused = |problem: String| NameGlobError { glob: text.chars().take(80).collect(), problem };
        if text.is_empty() {
            return Err(refused("leave the key out to match every name".into()));
        }
        GlobMatcher::of_names(text).map(Self).map_err(|fault| refused(fault.to_string()))
    }
}

impl TryFrom<String> for NameGlob {
    type Error = NameGlobError;

    fn try_from(text: String) -> Result<Self, NameGlobError> {
        text.parse()
    }
}

impl From<NameGlob> for String {
    fn from(glob: NameGlob) -> Self {
        glob.as_str().to_owned()
    }
}

impl PartialEq for NameGlob {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for NameGlob {}

impl fmt::Debug for NameGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameGlob({:?})", self.as_str())
    }
}

impl fmt::Display for NameGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_whole_names() {
        for (glob, name, matches) in [
            ("kube-*", "kube-system", true),
            ("kube-*", "my-kube-system", false),
            ("{db,cache}-?", "db-1", true),
            ("*", "", true),
            ("*", &"x".repeat(LONGEST_NAME), true),
            ("*", &"x".repeat(LONGEST_NAME + 1), false),
        ] {
            assert_eq!(glob.parse::<NameGlob>().unwrap().matches(name), matches, "{glob} on {name}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_glob_and_names_it() {
        for glob in ["", "[", "{a", "a]b["] {
            let error = serde_json::from_value::<NameGlob>(glob.into()).unwrap_err().to_string();
            assert!(error.contains(&format!("`{glob}`")), "{error}");
        }
    }
}
