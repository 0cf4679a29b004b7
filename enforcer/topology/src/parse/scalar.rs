//! Files that hold one value: a number, an id, a size.
//!
//! White space and NUL bytes around the value are ignored: kernels end a value with a line feed, and manual
//! copies of sysfs sometimes contain a stray NUL.

use super::ParseError;
use crate::set::IdSet;

/// The text without the white space and NUL bytes around it.
pub fn bare(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\0')
}

/// A decimal number without sign.
///
/// # Errors
/// If the text is anything else.
pub fn unsigned(text: &str) -> Result<u64, ParseError> {
    let digits = bare(text);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().ok_or_else(|| ParseError::new("an unsigned number", digits))
}

/// A decimal number that may be negative: `numa_node`, `physical_package_id`.
///
/// # Errors
/// If the text is anything else.
pub fn signed(text: &str) -> Result<i32, ParseError> {
    bare(text).parse().ok().ok_or_else(|| ParseError::new("a number", bare(text)))
}

/// A hexadecimal number with the `0x` of sysfs: the `class` of a PCI device.
///
/// # Errors
/// If the text is anything else.
pub fn hexadecimal(text: &str) -> Result<u32, ParseError> {
    let digits = bare(text).strip_prefix("0x").unwrap_or("");
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain
        .then(|| u32::from_str_radix(digits, 16).ok())
        .flatten()
        .ok_or_else(|| ParseError::new("a hexadecimal number", bare(text)))
}

/// The first two numbers of a kernel's release: `/proc/sys/kernel/osrelease`.
pub fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = bare(text).split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A list of ids. Kernels before 6.10 print `(null)` for a list that was never allocated
/// (`nohz_full` in `drivers/base/cpu.c`): the empty list.
///
/// # Errors
/// If the text is anything else.
pub fn list<T: crate::id::Id>(text: &str) -> Result<IdSet<T>, ParseError> {
    match bare(text) {
        "(null)" => Ok(IdSet::new()),
        ids => ids.parse().ok().ok_or_else(|| ParseError::new("a list of ids", ids)),
    }
}

/// Ids separated by blanks (`related_cpus`, `cpufreq_show_cpus` in `drivers/cpufreq/cpufreq.c`).
///
/// # Errors
/// If the text is anything else.
pub fn spaced<T: crate::id::Id>(text: &str) -> Result<IdSet<T>, ParseError> {
    let mut ids = IdSet::new();
    for word in bare(text).split_ascii_whitespace() {
        ids.extend(&list(word)?);
    }
    Ok(ids)
}

/// The word in brackets in `always [madvise] never`.
pub fn chosen(words: &str) -> Option<String> {
    let (_, rest) = words.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

/// A cache size in bytes, `32K` or `1M` (`size_show` in `drivers/base/cacheinfo.c`).
///
/// # Errors
/// If the text is anything else.
pub fn cache_size(text: &str) -> Result<u64, ParseError> {
    let error = || ParseError::new("a cache size like 32K", bare(text));
    let (digits, shift) = match bare(text) {
        t if t.ends_with('K') => (&t[..t.len() - 1], 10),
        t if t.ends_with('M') => (&t[..t.len() - 1], 20),
        t => (t, 0),
    };
    unsigned(digits).ok().and_then(|n| n.checked_mul(1 << shift)).ok_or_else(error)
}

/// Distances from one node to all online nodes, in ascending order of their ids (nodeN/distance).
///
/// # Errors
/// If the text is anything else.
pub fn distances(text: &str) -> Result<Vec<u32>, ParseError> {
    bare(text)
        .split_ascii_whitespace()
        .map(|word| {
            let number = unsigned(word).ok().and_then(|n| u32::try_from(n).ok());
            number.ok_or_else(|| ParseError::new("a distance", word))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::set::CpuSet;

    #[test]
    fn values_stand_alone() {
        assert_eq!(unsigned(" 16\n\0"), Ok(16));
        assert_eq!(signed("-1\n"), Ok(-1));
        assert_eq!(hexadecimal("0x010802\n"), Ok(0x01_0802));
        assert_eq!(cache_size("35840K\n"), Ok(35840 << 10));
        assert_eq!(cache_size("2M"), Ok(2 << 20));
        assert_eq!(distances("10 21\t21\n"), Ok(vec![10, 21, 21]));
        assert_eq!(distances("\n"), Ok(vec![]));
    }

    #[test]
    fn an_unallocated_list_is_empty() {
        for text in ["", "\n", "\0", " (null)\n", "(null)"] {
            assert_eq!(list(text), Ok(CpuSet::new()), "{text:?}");
        }
    }

    #[test]
    fn ids_between_blanks() {
        for (text, ids) in [("0 1 2 \n", "0-2"), ("7", "7"), ("", ""), ("0-3 8\n", "0-3,8")] {
            assert_eq!(spaced::<crate::id::CpuId>(text).unwrap().to_string(), ids, "{text:?}");
        }
        assert!(spaced::<crate::id::CpuId>("0 x").is_err());
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(unsigned("12kB").unwrap_err().to_string(), "an unsigned number expected, found `12kB`");
        assert!(
            unsigned("").is_err() && unsigned("+1").is_err() && unsigned("99999999999999999999").is_err()
        );
        assert!(signed("x").is_err() && signed("4294967296").is_err());
        assert!(hexadecimal("010802").is_err() && hexadecimal("0x").is_err() && hexadecimal("0x+1").is_err());
        assert!(cache_size("K").is_err() && cache_size("18446744073709551615M").is_err());
        assert!(distances("10 x").is_err() && distances("10 -1").is_err());
        assert!(list::<crate::id::CpuId>("3-1").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_an_error(text in any::<String>()) {
            let _ = (unsigned(&text), signed(&text), hexadecimal(&text), distances(&text));
            if let Ok(bytes) = cache_size(&text) {
                prop_assert!(bytes == 0 || bare(&text).starts_with(|c: char| c.is_ascii_digit()));
            }
        }

        #[test]
        fn numbers_round_trip(n in any::<u64>(), i in any::<i32>()) {
            prop_assert_eq!(unsigned(&format!("{n}\n")), Ok(n));
            prop_assert_eq!(signed(&format!("{i}\n")), Ok(i));
        }
    }

    #[test]
    fn takes_the_chosen_word_only() {
        for (words, word) in
            [("[always] madvise never", Some("always")), ("always", None), ("[", None), ("", None)]
        {
            assert_eq!(chosen(words).as_deref(), word);
        }
    }
}
