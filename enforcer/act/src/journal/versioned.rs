//! The lines of the records beside the journal, of which each begins and ends with a newline: what a crash or
//! a full disk cuts takes no other line with it.
//!
//! `{...} 0123abcd` as in the journal, with a version. A cut line is left out: its action does not begin
//! before the line is whole. Any other changed line, or one of another version, is damage and named.
//!
//! Some file systems have zeros in the place of what did not become durable in a crash, up to the end of the
//! file. They are left out with a word in the log, and taken away before another line comes behind them
//! ([`without_zeros`]). Zeros with anything behind them are damage, and so are those with no line before
//! them, as in the journal (`reading.rs`).
//!
//! Invariants: a damaged line is not used, and is always reported.

use std::{io, ops::RangeInclusive, path::Path};

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

use super::lines::{has_sum, of_zeros, sealed, unsealed};

/// `T` serializes to a JSON object.
#[derive(Debug, Serialize, Deserialize)]
struct RecordLine<T> {
    version: u32,
    #[serde(flatten)]
    says: T,
}

/// All that is known of a line of another version.
#[derive(Debug, Deserialize)]
struct RecordLineVersion {
    version: u32,
}

/// A line with both its newlines.
pub(super) fn encode<T: Serialize>(version: u32, says: T) -> io::Result<String> {
    let json = serde_json::to_string(&RecordLine { version, says })?;
    Ok(format!("\n{}", sealed(&json)))
}

/// Parses the lines of a text. An error names `path`, line and fault.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
    text: &str,
    versions: RangeInclusive<u32>,
) -> impl Iterator<Item = Result<T, String>> {
    let begun = without_zeros(text);
    let zeros = text.len() - begun.len();
    let nothing_else = (zeros > 0 && begun.trim().is_empty())
        .then(|| Err(format!("{}: {}", path.display(), of_zeros(zeros))));
    if zeros > 0 && nothing_else.is_none() {
        tracing::warn!(
            "{}: zeros, {zeros} of them, are behind its last line and are left out",
            path.display()
        );
    }
    let lines = begun.lines().zip(1..).filter(|(line, _)| !line.is_empty());
    let lines = lines.filter_map(move |(line, number)| {
        let decoded = decode(&versions, line);
        if matches!(decoded, Ok(None)) {
            tracing::warn!("{} line {number} was cut and is left out", path.display());
        }
        decoded.map_err(|error| format!("{} line {number}: {error}", path.display())).transpose()
    });
    nothing_else.into_iter().chain(lines)
}

/// A text without the zeros at its end.
pub(super) fn without_zeros(text: &str) -> &str {
    text.trim_end_matches('\0')
}

/// `None` for a cut line. The error is the fault of a damaged one.
fn decode<T: DeserializeOwned>(versions: &RangeInclusive<u32>, line: &str) -> Result<Option<T>, String> {
    let Some(json) = unsealed(line) else {
        let zeros = line.bytes().filter(|byte| *byte == 0).count();
        if zeros > 0 {
            return Err(of_zeros(zeros));
        }
        if has_sum(line) {
            return Err("its checksum is not its own".to_owned());
        }
        let is_cut = serde_json::from_str::<IgnoredAny>(line).is_err_and(|error| error.is_eof());
        return if is_cut { Ok(None) } else { Err("it has no checksum".to_owned()) };
    };
    match serde_json::from_str::<RecordLineVersion>(json) {
        Ok(found) if !versions.contains(&found.version) => Err(format!(
            "version {} is not known, which is of {} numa-enforcer",
            found.version,
            if found.version > *versions.end() { "a newer" } else { "an older" }
        )),
        _ => serde_json::from_str(json)
            .map(|line: RecordLine<T>| Some(line.says))
            .map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Says {
        id: u64,
        #[serde(rename = "who")]
        name: String,
    }

    fn line(id: u64) -> String {
        encode(3, Says { id, name: "/a b".to_owned() }).unwrap()
    }

    /// Ids, and how many lines are damaged.
    fn found(text: &str) -> (Vec<u64>, usize) {
        let (whole, damaged): (Vec<_>, Vec<_>) =
            read::<Says>(Path::new("record"), text, 3..=3).partition(Result::is_ok);
        (whole.into_iter().flatten().map(|one| one.id).collect(), damaged.len())
    }

    #[test]
    fn a_line_that_was_cut_is_left_out_and_takes_no_other_with_it() {
        let [one, two] = [1, 2].map(line);
        let json_ends = one.rfind('}').unwrap() + 1;
        for length in 0..one.len() {
            let cut = &one[..length];
            // What lacks nothing but its newline is whole; what lacks its sum, or a part of that, may have
            // been longer.
            let is_whole = length == one.len() - 1;
            let is_told = usize::from(length >= json_ends && !is_whole);
            let both = |mut ids: Vec<u64>| {
                ids.retain(|id| *id == 2 || is_whole);
                (ids, is_told)
            };
            assert_eq!(found(&format!("{two}{cut}")), both(vec![2, 1]), "{cut:?}");
            assert_eq!(found(&format!("{cut}{two}")), both(vec![1, 2]), "{cut:?}");
            assert_eq!(found(&format!("{two}{cut}\0\0\0")), both(vec![2, 1]), "{cut:?}");
        }
    }

    #[test]
    fn a_line_that_is_not_as_it_was_written_is_told() {
        let [one, two] = [1, 2].map(line);
        let json = one.trim().rsplit_once(' ').unwrap().0;
        for (text, why) in [
            (one.replace("/a b", "/a c"), "its checksum"),
            (one.replacen('"', "", 1), "its checksum"),
            (sealed(&json.replace("\"version\":3", "\"version\":4")), "version 4 is not known"),
            (sealed("{}"), "missing field"),
            (format!("{json}\n"), "no checksum"),
            ("nonsense\n".to_owned(), "no checksum"),
        ] {
            assert_eq!(found(&format!("{text}{two}")), (vec![2], 1), "{text}");
            let error = read::<Says>(Path::new("/record"), &text, 3..=3).find_map(Result::err).unwrap();
            assert!(error.starts_with("/record line ") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn zeros_are_left_out_at_the_end_and_told_anywhere_else() {
        let [one, two] = [1, 2].map(line);
        let zeros = "\0".repeat(one.len());
        for (text, ids, told) in [
            (format!("{one}{zeros}"), vec![1], 0),
            (format!("{one}\n{zeros}"), vec![1], 0),
            (format!("{zeros}{two}"), vec![2], 1),
            (format!("{one}{zeros}\n{two}"), vec![1, 2], 1),
            (zeros.clone(), vec![], 1),
            (format!("\n{zeros}"), vec![], 1),
            (String::new(), vec![], 0),
        ] {
            assert_eq!(found(&text), (ids, told), "{text:?}");
        }
        let error = read::<Says>(Path::new("/record"), &zeros, 3..=3).find_map(Result::err).unwrap();
        assert!(error.starts_with("/record: zeros, "), "{error}");
    }

    #[test]
    fn every_byte_that_is_another_is_told() {
        let one = line(1);
        for at in 1..one.len() - 1 {
            let mut bytes = one.clone().into_bytes();
            bytes[at] ^= 1;
            let text = String::from_utf8(bytes).unwrap();
            assert!(matches!(found(&text), (_, 1)), "{text}");
        }
    }
}
