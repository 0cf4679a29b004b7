//! What one line of the journal says, and how.
//!
//! `{...} 0123abcd` and a newline: a JSON object and its CRC-32. Nothing of a line whose sum is wrong is believed.

use std::{collections::BTreeMap, io, path::Path};

use enforcer_core::place::GrantRecord;
use serde::{Deserialize, Serialize};

use super::{Entry, EntryKey, JournalContents};

/// Version of the lines that are written.
const JOURNAL_VERSION: u32 = 3;

/// Versions of lines with a checksum that are read; the first of them knew no grants. A line of another one is damage.
const READABLE: std::ops::RangeInclusive<u32> = 2..=JOURNAL_VERSION;

/// Version of lines without a checksum, which are still read.
const WITHOUT_SUM: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    version: u32,
    #[serde(flatten)]
    record: Record,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub(super) enum Record {
    /// What a file held before us.
    Before {
        #[serde(flatten)]
        key: EntryKey,
        #[serde(flatten)]
        entry: Entry,
    },
    /// It holds that again, or is gone.
    Restored {
        #[serde(flatten)]
        key: EntryKey,
    },
    /// What a container was granted, in place of what it had.
    Granted {
        id: String,
        #[serde(flatten)]
        grant: Box<GrantRecord>,
    },
    /// It has nothing any longer.
    Released { id: String },
}

pub(super) fn encode(record: Record) -> io::Result<String> {
    let json = serde_json::to_string(&Line { version: JOURNAL_VERSION, record })?;
    let sum = crc32fast::hash(json.as_bytes());
    Ok(format!("{json} {sum:08x}\n"))
}

/// The error says what is wrong with the line.
fn decode(line: &str) -> Result<Record, String> {
    let (json, versions) = match line.rsplit_once("} ") {
        // The name of a cgroup may have a bracket too.
        Some((start, sum)) if sum.len() == 8 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            let json = &line[..=start.len()];
            let found = crc32fast::hash(json.as_bytes());
            if u32::from_str_radix(sum, 16) != Ok(found) {
                return Err(format!("its checksum is {found:08x}, and {sum:?} is written"));
            }
            (json, READABLE)
        }
        _ => (line, WITHOUT_SUM..=WITHOUT_SUM),
    };
    let Line { version, record } = serde_json::from_str(json).map_err(|error| error.to_string())?;
    if versions.contains(&version) {
        Ok(record)
    } else {
        Err(format!("version {version} is not known, or has no checksum"))
    }
}

pub(super) fn parse(path: &Path, text: &str) -> JournalContents {
    let mut contents = JournalContents::default();
    let JournalContents { entries, grants, damaged } = &mut contents;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (number, text) in (1..).zip(whole.lines()) {
        match decode(text) {
            Ok(Record::Before { key, entry }) => {
                entries.insert(key, entry);
            }
            Ok(Record::Restored { key }) => {
                entries.remove(&key);
            }
            Ok(Record::Granted { id, grant }) => {
                grants.insert(id, *grant);
            }
            Ok(Record::Released { id }) => {
                grants.remove(&id);
            }
            Err(error) => damaged.push(format!("{} line {number}: {error}", path.display())),
        }
    }
    contents
}

/// The lines that say this and nothing else.
pub(super) fn all(
    entries: &BTreeMap<EntryKey, Entry>,
    grants: &BTreeMap<String, GrantRecord>,
) -> impl Iterator<Item = io::Result<String>> {
    let before = entries.iter().map(|(key, entry)| Record::Before { key: key.clone(), entry: entry.clone() });
    let granted =
        grants.iter().map(|(id, grant)| Record::Granted { id: id.clone(), grant: Box::new(grant.clone()) });
    before.chain(granted).map(encode)
}
