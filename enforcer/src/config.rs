//! The configuration file as a [`Policy`]; what its keys mean is the core's business.
//!
//! A message about the file starts with `FILE:LINE:COLUMN`, as a compiler's does, and quotes the line.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
};

use enforcer_core::policy::{Policy, PolicyError};
use thiserror::Error;

use crate::host::read_bytes;

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
        /// What is wrong, with the line.
        problem: String,
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

/// Reads and checks a configuration file.
pub fn read_policy(path: &Path) -> Result<Policy, ConfigError> {
    let failed = |cause| ConfigError::Read { path: path.to_owned(), cause };
    // Not the size that the file says it has: devices say 0.
    let bytes = read_bytes(path, SIZE_LIMIT).map_err(failed)?;
    let text = String::from_utf8(bytes)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error.utf8_error())))?;
    parse_policy(path, &text)
}

fn parse_policy(path: &Path, text: &str) -> Result<Policy, ConfigError> {
    let policy: Policy = toml::from_str(text).map_err(|error| invalid(path, text, &error))?;
    policy.validate().map_err(|problem| ConfigError::Refused { path: path.to_owned(), problem })?;
    Ok(policy)
}

fn invalid(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return ConfigError::Invalid { place: path.display().to_string(), problem: error.message().into() };
    };
    let number = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or("").trim();
    ConfigError::Invalid {
        place: format!("{}:{number}:{column}", path.display()),
        problem: format!("{}, in `{}`", shortened(error.message()), shortened(line)),
    }
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
    fn a_file_that_is_not_there_is_named() {
        let message = read_policy(Path::new("/no/such/file.toml")).unwrap_err().to_string();
        assert!(message.starts_with("reading /no/such/file.toml: "), "{message}");
    }
}
