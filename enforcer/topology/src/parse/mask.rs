//! The kernel's mask format: hexadecimal words of 32 bits, most significant first, separated by
//! commas (`%*pb` in `lib/vsprintf.c`): `000000ff,00000001` is CPUs 0 and 32-39.
//!
//! Kernels before 2.6.26 have only masks (`cpumap`, `thread_siblings`) where later ones have lists
//! too. Words may be shortened (`3`), an omitted word is zero.

use super::{ParseError, scalar::bare};
use crate::{id::Id, set::IdSet};

const WORD_BITS: u32 = 32;

/// Parses a mask. A set bit above [`Id::GREATEST`] is an error.
///
/// # Errors
/// If the text is anything else, or has such a bit.
pub fn mask<T: Id>(text: &str) -> Result<IdSet<T>, ParseError> {
    let text = bare(text);
    let mut ids = IdSet::new();
    for (word, index) in text.rsplit(',').zip(0u32..) {
        let mut bits = bits_of(word)?;
        while bits != 0 {
            let id = index.saturating_mul(WORD_BITS).saturating_add(bits.trailing_zeros());
            if id > T::GREATEST {
                return Err(ParseError::new("a mask of ids that a kernel can have", text));
            }
            ids.insert(T::from_number(id));
            bits &= bits - 1;
        }
    }
    Ok(ids)
}

fn bits_of(word: &str) -> Result<u32, ParseError> {
    let digits = word.trim();
    match digits.strip_prefix("0x").unwrap_or(digits) {
        "" => Some(0),
        hex if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u32::from_str_radix(hex, 16).ok(),
        _ => None,
    }
    .ok_or_else(|| ParseError::new("hexadecimal words of 32 bits", word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{id::CpuId, set::CpuSet};

    #[test]
    fn reads_masks_of_all_lengths() {
        for (text, cpus) in [
            ("", ""),
            ("0\n", ""),
            ("3", "0-1"),
            ("0000,00000011,11111111\n", "0,4,8,12,16,20,24,28,32,36"),
            ("00000000,000aaaa0", "5,7,9,11,13,15,17,19"),
            ("80000000,00000000", "63"),
            ("1,,", "64"),
        ] {
            assert_eq!(mask::<CpuId>(text).unwrap().to_string(), cpus, "{text:?}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_mask() {
        for text in ["g", "1ffffffff", "0-3", "-1", "+1", "1 1"] {
            assert!(mask::<CpuId>(text).is_err(), "{text:?}");
        }
        let far = format!("1{}", ",0".repeat(70_000));
        assert!(mask::<CpuId>(&far).is_err());
        assert_eq!(mask::<CpuId>(&format!("0{far}").replace('1', "0")), Ok(CpuSet::new()));
    }

    proptest! {
        #[test]
        fn any_text_is_a_set_or_an_error(text in "[0-9a-fA-Fx,\\- \n]{0,60}|\\PC*") {
            let _ = mask::<CpuId>(&text);
        }

        #[test]
        fn words_round_trip(words in proptest::collection::vec(any::<u32>(), 1..20)) {
            let text = words.iter().map(|w| format!("{w:08x}")).collect::<Vec<_>>().join(",");
            let cpus = mask::<CpuId>(&text).unwrap();
            for (index, word) in words.iter().rev().enumerate() {
                for bit in 0..32 {
                    let id = CpuId(u32::try_from(index).unwrap() * 32 + bit);
                    prop_assert_eq!(cpus.contains(id), word >> bit & 1 == 1);
                }
            }
        }
    }
}
