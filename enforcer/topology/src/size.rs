//! Amounts of memory in the notation of people: `512MiB`, `2G`, `1073741824`.
//!
//! K, M, G, T and P are powers of 1024, with or without `i` or `iB`, as the kernel (`memparse` in
//! `lib/cmdline.c`) and systemd read them; `KB`, `MB`, `GB`, `TB` and `PB` are powers of 1000.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::text::beginning;

const PREFIXES: [(char, u32); 5] = [('K', 1), ('M', 2), ('G', 3), ('T', 4), ('P', 5)];

/// An amount of memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A text that is not an amount of memory.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not an amount of memory: a whole number and a unit expected, as in 512MiB or 2G")]
pub struct SizeError(String);

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let refused = || SizeError(beginning(text));
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = trimmed.split_at(digits);
        let factor = factor(unit.trim_start()).ok_or_else(refused)?;
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).map(Self).ok_or_else(refused)
    }
}

fn factor(unit: &str) -> Option<u64> {
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    let mut letters = unit.chars();
    let prefix = letters.next()?.to_ascii_uppercase();
    let (_, power) = PREFIXES.iter().find(|(letter, _)| *letter == prefix)?;
    match letters.as_str() {
        "" | "i" | "iB" => Some(1024u64.pow(*power)),
        "B" => Some(1000u64.pow(*power)),
        _ => None,
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |&&(_, power): &&(char, u32)| self.0 > 0 && self.0.is_multiple_of(1024u64.pow(power));
        match PREFIXES.iter().rev().find(whole) {
            Some((letter, power)) => write!(f, "{}{letter}iB", self.0 / 1024u64.pow(*power)),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_without_b_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("1k", 1 << 10),
            ("512MiB", 512 << 20),
            ("512M", 512 << 20),
            ("2G", 2 << 30),
            ("2 Gi", 2 << 30),
            ("1TiB", 1 << 40),
            ("1P", 1 << 50),
            ("500MB", 500_000_000),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_names_it() {
        for text in
            ["", "G", "-1G", "1.5G", "1GiBB", "1X", "1E", "2 G B", "99999999999999999999", "99999999P"]
        {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(bytes in any::<u64>(), shift in 0u32..50) {
            let size = ByteSize(bytes >> shift << shift);
            prop_assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<ByteSize>();
        }
    }
}
