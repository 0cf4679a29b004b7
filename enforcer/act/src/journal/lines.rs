//! Format of one line of a log.
//!
//! `{...} 0123abcd` and a newline: a JSON object and its CRC-32. A line with a wrong sum is not used at all.

use std::{io, ops::RangeInclusive};

use enforcer_core::workload::cut_at;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Map, Value};
use thiserror::Error;

use super::record::Record;

/// Version of the lines that are written. A daemon that knows only older ones names it, and uses no line.
const VERSION: u32 = 5;

/// Versions of lines with a checksum that are read. A line of another one is damage.
///
/// | version | difference |
/// |---|---|
/// | 1 | lines of the records beside the journal; those of pins, drift and pause do not name their kind |
/// | 2 | a grant is not in the journal, and has some fields for a pending container |
/// | 3 | some fields of a grant in the journal; its labels, class and affinity rules are taken from the pod when its runtime tells of it |
/// | 4 | all of a grant |
/// | 5 | one enum for all logs |
const READABLE: RangeInclusive<u32> = 1..=VERSION;

/// Version of lines without a checksum, which are still read.
const WITHOUT_SUM: u32 = 1;

/// Most bytes of a line that is read. What is written is below: a path has 4,096, a list of CPUs 20 KiB, and
/// of threads that placed themselves an entry has as many as it has room for ([`super::ThreadRoom`]).
pub(super) const LONGEST: u64 = 1 << 20;

/// Most characters that are shown of what stands in the place of a checksum.
const SUM_SHOWN: usize = 40;

/// Why a line is not used.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum LineFault {
    /// It is whole, and its checksum fits.
    #[error(
        "it is of version {0}, of a newer numa-enforcer, which can put it back; this one reads those up to {VERSION}"
    )]
    Newer(u32),
    /// No version wrote it so.
    #[error("{0}")]
    Damaged(String),
}

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

/// The line of a record, which [`decode`] reads.
pub(super) fn encode(record: &Record) -> io::Result<String> {
    Ok(sealed(&serde_json::to_string(&JournalLine { version: VERSION, record })?))
}

/// A line of this JSON with its sum.
pub(super) fn sealed(json: &str) -> String {
    let sum = crc32fast::hash(json.as_bytes());
    format!("{json} {sum:08x}\n")
}

/// Does a line end with a sum, be it its own or not?
pub(super) fn has_sum(line: &str) -> bool {
    let sum = line.rsplit_once("} ").map(|(_, sum)| sum);
    sum.is_some_and(|sum| sum.len() == 8 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The record of a line.
pub(super) fn decode(line: &str) -> Result<Record, LineFault> {
    let (json, versions) = match line.rsplit_once("} ") {
        // The name of a cgroup may have a bracket too.
        Some((start, sum)) if has_sum(line) => {
            let json = &line[..=start.len()];
            let found = crc32fast::hash(json.as_bytes());
            if u32::from_str_radix(sum, 16) != Ok(found) {
                let fault = format!("its checksum is {found:08x}, and {sum:?} is written");
                return Err(LineFault::Damaged(fault));
            }
            (json, READABLE)
        }
        _ => (line, WITHOUT_SUM..=WITHOUT_SUM),
    };
    let decoded = match serde_json::from_slice::<JournalLine<Record>>(json.as_bytes()) {
        Ok(line) if versions.contains(&line.version) => Ok(line.record),
        Ok(JournalLine { version, .. }) => return Err(unknown(version, has_sum(line))),
        Err(error) => match serde_json::from_slice::<JournalLineVersion>(json.as_bytes()) {
            Ok(JournalLineVersion { version }) if !versions.contains(&version) => {
                return Err(unknown(version, has_sum(line)));
            }
            Ok(JournalLineVersion { version: 1 }) => without_kind(json).ok_or_else(|| without_place(&error)),
            _ if has_sum(line) => Err(without_place(&error)),
            _ => Err(unread(line, &error)),
        },
    };
    decoded.and_then(|record| record.fault().map_or(Ok(record), Err)).map_err(LineFault::Damaged)
}

/// A line of version 1 of the records of pins, drift and pause, each of which had a file of one kind.
fn without_kind(json: &str) -> Option<Record> {
    let mut line: Map<String, Value> = serde_json::from_slice(json.as_bytes()).ok()?;
    let kinds = [("told", "pinned"), ("sinceUnixMs", "paused"), ("workloads", "drift")];
    let (_, kind) = kinds.into_iter().find(|(field, _)| line.contains_key(*field))?;
    if kind == "drift" {
        line = Map::from_iter([(kind.to_owned(), Value::Object(line))]);
    }
    let had = line.insert("record".to_owned(), kind.into());
    serde_json::from_value(Value::Object(line)).ok().filter(|_| had.is_none())
}

/// Cause of a parse error, without serde's position: the message has the line number.
fn unread(line: &str, error: &serde_json::Error) -> String {
    match line.rsplit_once("} ") {
        Some((start, sum))
            if serde_json::from_slice::<IgnoredAny>(&line.as_bytes()[..=start.len()]).is_ok() =>
        {
            format!("{:?} is no checksum", cut_at(sum, SUM_SHOWN))
        }
        _ => without_place(error),
    }
}

fn without_place(error: &serde_json::Error) -> String {
    error.to_string().split(" at line ").next().unwrap_or_default().to_owned()
}

fn unknown(version: u32, has_sum: bool) -> LineFault {
    if version > VERSION && has_sum {
        return LineFault::Newer(version);
    }
    LineFault::Damaged(format!("version {version} is not known, or has no checksum"))
}

/// Is the text the beginning of a line, or a line without its checksum?
pub(super) fn is_begun(text: &str) -> bool {
    let without_sum = match text.rsplit_once("} ") {
        Some((start, sum)) if sum.len() < 8 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            &text[..=start.len()]
        }
        _ => text,
    };
    let is_whole = |json: &str| serde_json::from_slice::<IgnoredAny>(json.as_bytes()).is_ok();
    text.starts_with('{') && [without_sum, text].into_iter().any(|json| is_cut(json) || is_whole(json))
}

/// Does the text end before its JSON does, and before a checksum?
pub(super) fn is_cut(text: &str) -> bool {
    !has_sum(text) && serde_json::from_slice::<IgnoredAny>(text.as_bytes()).is_err_and(|error| error.is_eof())
}

#[cfg(test)]
mod tests {
    use super::{super::record::ReleasedId, *};

    #[test]
    fn what_is_wrong_with_a_line_is_said_without_a_place_in_it() {
        let line = encode(&Record::Released { id: ReleasedId::Container("a} b".into()) }).unwrap();
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
            let found = decode(text.trim_end()).unwrap_err().to_string();
            assert!(found.starts_with(&error), "{text}: {found}");
        }
    }
}
