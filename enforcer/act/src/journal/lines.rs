//! Format of one line of the journal.
//!
//! `{...} 0123abcd` and a newline: a JSON object and its CRC-32. A line with a wrong sum is not used at all.

use std::{collections::BTreeMap, io};

use enforcer_core::{hosted::GrantRecord, workload::cut_at};
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{Entry, EntryKey};

/// Version of the lines that are written.
const JOURNAL_VERSION: u32 = 4;

/// Versions of lines with a checksum that are read. A line of another one is damage.
///
/// | version | of a grant it has |
/// |---|---|
/// | 2 | nothing |
/// | 3 | some fields; its labels, class and affinity rules are taken from the pod when its runtime tells of it |
/// | 4 | all of it |
const READABLE: std::ops::RangeInclusive<u32> = 2..=JOURNAL_VERSION;

/// Version of lines without a checksum, which are still read.
const WITHOUT_SUM: u32 = 1;

/// Most bytes of a line that is read. What is written is below: a path has 4,096, a list of CPUs 20 KiB, and
/// of threads that placed themselves an entry has as many as it has room for ([`super::ThreadRoom`]).
pub(super) const LONGEST: u64 = 1 << 20;

/// Most characters that are shown of what stands in the place of a checksum.
const SUM_SHOWN: usize = 40;

/// `R` is a [`Record`] or, to write one, a reference to it.
#[derive(Debug, Serialize, Deserialize)]
struct JournalLine<R> {
    version: u32,
    #[serde(flatten)]
    record: R,
}

/// All that is known of a line of another version.
#[derive(Debug, Deserialize)]
struct JournalLineVersion {
    version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub(super) enum Record {
    /// Original of a file.
    Before {
        #[serde(flatten)]
        key: EntryKey,
        #[serde(flatten)]
        entry: Entry,
    },
    /// The file holds its original again, or is gone.
    Restored {
        #[serde(flatten)]
        key: EntryKey,
    },
    /// New grant of a container, which replaces the former one.
    Granted {
        id: String,
        #[serde(flatten)]
        grant: Box<GrantRecord>,
    },
    /// The container has no grant any more.
    Released { id: String },
}

/// The line of a record, which [`decode`] reads.
pub(super) fn encode(record: &Record) -> io::Result<String> {
    Ok(sealed(&serde_json::to_string(&JournalLine { version: JOURNAL_VERSION, record })?))
}

/// A line of this JSON with its sum.
pub(super) fn sealed(json: &str) -> String {
    let sum = crc32fast::hash(json.as_bytes());
    format!("{json} {sum:08x}\n")
}

/// The JSON of such a line without its newline; `None` where the sum is not its own.
pub(super) fn unsealed(line: &str) -> Option<&str> {
    let (json, sum) = line.rsplit_once(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == crc32fast::hash(json.as_bytes())).then_some(json)
}

/// Does a line end with a sum, be it its own or not?
pub(super) fn has_sum(line: &str) -> bool {
    let sum = line.rsplit_once("} ").map(|(_, sum)| sum);
    sum.is_some_and(|sum| sum.len() == 8 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The error says what is wrong with the line.
pub(super) fn decode(line: &str) -> Result<Record, String> {
    let (json, versions) = match line.rsplit_once("} ") {
        // The name of a cgroup may have a bracket too.
        Some((start, sum)) if has_sum(line) => {
            let json = &line[..=start.len()];
            let found = crc32fast::hash(json.as_bytes());
            if u32::from_str_radix(sum, 16) != Ok(found) {
                return Err(format!("its checksum is {found:08x}, and {sum:?} is written"));
            }
            (json, READABLE)
        }
        _ => (line, WITHOUT_SUM..=WITHOUT_SUM),
    };
    match serde_json::from_str::<JournalLine<Record>>(json) {
        Ok(line) if versions.contains(&line.version) => Ok(line.record),
        Ok(line) => Err(unknown(line.version)),
        Err(error) => Err(match serde_json::from_str::<JournalLineVersion>(json) {
            Ok(line) if !versions.contains(&line.version) => unknown(line.version),
            _ if has_sum(line) => without_place(&error),
            _ => unread(line, &error),
        }),
    }
}

/// Cause of a parse error, without serde's position: the message has the line number.
fn unread(line: &str, error: &serde_json::Error) -> String {
    match line.rsplit_once("} ") {
        Some((start, sum)) if serde_json::from_str::<IgnoredAny>(&line[..=start.len()]).is_ok() => {
            format!("{:?} is no checksum", cut_at(sum, SUM_SHOWN))
        }
        _ => without_place(error),
    }
}

fn without_place(error: &serde_json::Error) -> String {
    error.to_string().split(" at line ").next().unwrap_or_default().to_owned()
}

fn unknown(version: u32) -> String {
    if version > JOURNAL_VERSION {
        return format!(
            "it is of version {version}, of a newer numa-enforcer, which can put it back; this one reads those up to \
             {JOURNAL_VERSION}"
        );
    }
    format!("version {version} is not known, or has no checksum")
}

/// Fault of a line with zeros.
pub(super) fn of_zeros(zeros: usize) -> String {
    format!("zeros, {zeros} of them, are in the place of what was written")
}

/// Is the text the beginning of a line, or a line without its checksum?
pub(super) fn is_begun(text: &str) -> bool {
    let begun = |json: &str| {
        serde_json::from_str::<IgnoredAny>(json).map_or_else(|error| error.is_eof(), |_whole| true)
    };
    let without_sum = match text.rsplit_once("} ") {
        Some((start, sum)) if sum.len() < 8 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            &text[..=start.len()]
        }
        _ => text,
    };
    text.starts_with('{') && (begun(without_sum) || begun(text))
}

/// The lines that say this and nothing else.
pub(super) fn all(
    entries: &BTreeMap<EntryKey, Entry>,
    grants: &BTreeMap<String, GrantRecord>,
) -> impl Iterator<Item = io::Result<String>> {
    let before = entries.iter().map(|(key, entry)| Record::Before { key: key.clone(), entry: entry.clone() });
    let granted =
        grants.iter().map(|(id, grant)| Record::Granted { id: id.clone(), grant: Box::new(grant.clone()) });
    before.chain(granted).map(|record| encode(&record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_line_is_said_without_a_place_in_it() {
        let line = encode(&Record::Released { id: "a} b".into() }).unwrap();
        let (json, sum) = line.trim_end().rsplit_once(' ').unwrap();
        assert!(decode(line.trim_end()).is_ok());
        for (text, error) in [
            ("garbage".to_owned(), "expected value".to_owned()),
            (String::new(), "EOF while parsing a value".to_owned()),
            (format!("{json} 0000000g"), "\"0000000g\" is no checksum".to_owned()),
            (format!("{json} 1"), "\"1\" is no checksum".to_owned()),
            (format!("{json}{json}"), "trailing characters".to_owned()),
            (format!("{json} 00000000"), format!("its checksum is {sum}, and \"00000000\" is written")),
            (sealed(&json.replace("\"id\"", "\"ids\"")), "missing field `id`".to_owned()),
            (sealed(&json.replace("released", "lost")), "unknown variant `lost`".to_owned()),
        ] {
            let found = decode(text.trim_end()).unwrap_err();
            assert!(found.starts_with(&error), "{text}: {found}");
        }
    }
}
