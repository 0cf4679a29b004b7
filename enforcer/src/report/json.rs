//! JSON for programs: indented, keys in the order of the types, one newline at the end.

use std::io::{self, Write};

use serde::Serialize;

/// Writes `value`; equal values give equal bytes.
pub fn write<T: Serialize>(value: &T, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
