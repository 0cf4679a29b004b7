//! The configuration file as a [`Policy`]; what its keys mean is the core's business.
//!
//! A message about the file starts with `FILE:LINE:COLUMN`, as a compiler's does, and fits a line of a log;
//! for people there is an [excerpt](ConfigError::excerpt) as well, which points at what is wrong.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
};

use enforcer_core::{
    place::pools::Classifier,
    policy::{Policy, PolicyError},
};
use thiserror::Error;

use crate::host::{read_bytes, written_text};

/// Largest configuration that is read.
const SIZE_LIMIT: u64 = 1 << 20;

/// Most characters of the file that a message quotes.
const QUOTED_LIMIT: usize = 200;

/// Why there is no policy.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("reading {path}: {cause}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// The text is not TOML, or has unknown keys or bad values.
    #[error("{place}: {problem}")]
    Invalid {
        /// `FILE:LINE:COLUMN`, or the file alone.
        place: String,
        /// What is wrong.
        problem: String,
        /// The line, with marks below what is wrong.
        excerpt: Option<String>,
    },
    /// The values do not go together.
    #[error("{path}: {problem}", path = path.display())]
    Refused {
        /// Which file.
        path: PathBuf,
        /// Key, value and problem.
        #[source]
        problem: PolicyError,
    },
}

impl ConfigError {
    /// The line that is wrong with marks below the place, in several lines.
    pub fn excerpt(&self) -> Option<&str> {
        match self {
            Self::Invalid { excerpt, .. } => excerpt.as_deref(),
            Self::Read { .. } | Self::Refused { .. } => None,
        }
    }
}

/// Reads and checks a configuration file.
pub fn read_policy(path: &Path) -> Result<Policy, ConfigError> {
    let failed = |cause| ConfigError::Read { path: path.to_owned(), cause };
    // Not the size that the file says it has: devices say 0.
    let text = read_bytes(path, SIZE_LIMIT).and_then(written_text).map_err(failed)?;
    parse_policy(path, &text)
}

fn parse_policy(path: &Path, text: &str) -> Result<Policy, ConfigError> {
    let policy: Policy = toml::from_str(text).map_err(|error| invalid(path, text, &error))?;
    policy.validate().map_err(|problem| ConfigError::Refused { path: path.to_owned(), problem })?;
    // One glob that is wrong must not take the namespaces beside it away, so it refuses nothing.
    for problem in Classifier::new(&policy.placement.pools).1 {
        tracing::warn!("{}: {problem}; it is left out", path.display());
    }
    Ok(policy)
}

fn invalid(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let problem = shortened(error.message()).into_owned();
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return ConfigError::Invalid { place: path.display().to_string(), problem, excerpt: None };
    };
    let number = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    let place = format!("{}:{number}:{column}", path.display());
    ConfigError::Invalid { place, problem, excerpt: excerpt(error) }
}

/// The lines with a margin (`3 | `, `  | `) of what the toml crate shows; it says the place before them, and
/// the problem after them. None where a line is too long to be of use.
fn excerpt(error: &toml::de::Error) -> Option<String> {
    let shown = error.to_string();
    let has_margin = |line: &&str| {
        line.split_once('|').is_some_and(|(margin, _)| {
            margin.ends_with(' ') && margin.chars().all(|c| c == ' ' || c.is_ascii_digit())
        })
    };
    let lines: Vec<&str> = shown.lines().filter(has_margin).collect();
    lines.iter().all(|line| line.chars().count() <= QUOTED_LIMIT).then(|| lines.join("\n"))
}

/// A file may be one line of a megabyte.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(QUOTED_LIMIT) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_file_line_column_and_text() {
        for (text, expected) in [
            ("mode = \"observe\"\nintervall = \"5s\"\n", "c.toml:2:1: unknown field `intervall`"),
            ("interval = \"5 parsecs\"\n", "c.toml:1:12: `5 parsecs` is not a length of time"),
            ("mode = \"enforce\"\n[[workload]\n", "c.toml:2:"),
            ("interval = \"0s\"\n", "c.toml: interval"),
        ] {
            let message = parse_policy(Path::new("c.toml"), text).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn a_message_about_a_long_line_is_short() {
        for text in
            [format!("a = \"{}", "x".repeat(100_000)), format!("interval = \"{}\"", "9".repeat(100_000))]
        {
            let message = parse_policy(Path::new("c.toml"), &text).unwrap_err().to_string();
            assert!(message.len() < 1000, "{}", message.len());
        }
    }

    #[test]
    fn what_would_block_or_never_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for path in [fifo.as_path(), Path::new("/dev/zero")] {
            let message = read_policy(path).unwrap_err().to_string();
            assert!(message.ends_with("not a regular file"), "{message}");
        }
    }

    #[test]
    fn the_excerpt_points_at_what_is_wrong() {
        for (text, marked) in [
            ("mode = \"observe\"\nintervall = \"5s\"\n", "2 | intervall = \"5s\"\n  | ^^^^^^^^^"),
            ("interval = \"5 parsecs\"\n", "1 | interval = \"5 parsecs\"\n  |            ^^^^^^^^^^^"),
        ] {
            let error = parse_policy(Path::new("c.toml"), text).unwrap_err();
            let excerpt = error.excerpt().unwrap();
            assert!(excerpt.ends_with(marked), "{excerpt}");
            assert!(!excerpt.contains("parse error") && !excerpt.contains("unknown"), "{excerpt}");
        }
        let refused = parse_policy(Path::new("c.toml"), "interval = \"0s\"\n").unwrap_err();
        assert_eq!(refused.excerpt(), None);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let message = read_policy(Path::new("/no/such/file.toml")).unwrap_err().to_string();
        assert!(message.starts_with("reading /no/such/file.toml: "), "{message}");
    }
}
