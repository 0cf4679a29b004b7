//! Values of labels that others choose: of bounded length, and still different where they were.
//!
//! Whoever may make cgroups may make paths of 4,096 bytes, some of them in each of thousands of series. What
//! quotes and newlines would do is the encoder's business.

use std::borrow::Cow;

/// Longest value in bytes.
pub(super) const LONGEST: usize = 512;

/// The value itself, or its beginning and a hash of all of it.
pub(super) fn bounded(value: &str) -> Cow<'_, str> {
    if value.len() <= LONGEST {
        return Cow::Borrowed(value);
    }
    let hash = format!("~{:016x}", fnv1a(value.as_bytes()));
    let mut end = LONGEST - hash.len();
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}{hash}", &value[..end]))
}

/// The 64-bit FNV-1a hash: the same in every version of this program.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_values_that_begin_alike_stay_apart() {
        let long = |last: &str| format!("/{}{last}", "a".repeat(LONGEST));
        assert_ne!(bounded(&long("1")), bounded(&long("2")));
        assert_eq!(bounded(&long("1")), bounded(&long("1")));
        assert_eq!(bounded(&"a".repeat(LONGEST)), "a".repeat(LONGEST));
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c, "the published value");
    }

    proptest! {
        #[test]
        fn no_value_is_longer_than_the_bound(value in "(a|\u{e9}|\u{10348}){0,600}") {
            let label = bounded(&value);
            prop_assert!(label.len() <= LONGEST);
            prop_assert!(value.len() > LONGEST || label == value);
        }
    }
}
