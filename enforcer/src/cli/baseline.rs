//! The file behind `audit --baseline`: what `audit -o json` wrote earlier.
//!
//! Bounded, because it is read whole. A file that is no such audit is wrong usage, one that cannot be read is
//! not.

use std::{fmt::Display, fs::File, io, path::Path};

use enforcer_core::audit::Baseline;

use super::UsageError;
use enforcer_host::file_error::failed;

/// An audit of 10,000 workloads is below it.
const LIMIT: u64 = 1 << 28;

/// What the audit in `path` has found.
pub(super) fn read(path: &Path) -> anyhow::Result<Baseline> {
    let read = || -> io::Result<String> {
        enforcer_host::written_text(enforcer_host::read_within(File::open(path)?, LIMIT)?)
    };
    let refused =
        |error: &dyn Display| UsageError(format!("{}: is no audit in JSON: {error}", path.display()));
    let text = match read() {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(refused(&error).into()),
        text => text.map_err(failed("reading", path))?,
    };
    Ok(serde_json::from_slice(text.as_bytes()).map_err(|error| refused(&error))?)
}
