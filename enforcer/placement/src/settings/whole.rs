//! Whole numbers within a range.
//!
//! Error messages state the accepted range, not the type that the program uses.

use std::{fmt, marker::PhantomData, num::NonZeroU32, ops::RangeInclusive};

use serde::{
    Deserialize, Deserializer,
    de::{self, Unexpected, Visitor},
};

/// Maximum that TOML can represent.
pub const MOST: u64 = i64::MAX.unsigned_abs();

/// Maximum of 32 bits.
pub(crate) const MOST_32: u64 = 0xffff_ffff;

/// Deserializes a number from `MIN` to `MAX`.
///
/// # Errors
/// If it is anything else.
pub fn within<'de, D, T, const MIN: u64, const MAX: u64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    deserializer.deserialize_u64(Within { range: MIN..=MAX, meaning: "", of: PhantomData })
}

/// Deserializes an optional number from `MIN` to `MAX`.
///
/// # Errors
/// If it is anything else.
pub fn optional<'de, D, T, const MIN: u64, const MAX: u64>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    struct InRange<T, const MIN: u64, const MAX: u64>(T);

    impl<'de, T: TryFrom<u64>, const MIN: u64, const MAX: u64> Deserialize<'de> for InRange<T, MIN, MAX> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            within::<D, T, MIN, MAX>(deserializer).map(Self)
        }
    }

    Ok(Option::<InRange<T, MIN, MAX>>::deserialize(deserializer)?.map(|InRange(number)| number))
}

/// Deserializes an optional number of CPUs, at least 1. Giving a list of CPUs instead is a common mistake.
///
/// # Errors
/// If it is anything else.
pub fn cpus<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroU32>, D::Error> {
    let meaning = ": how many CPUs; numa_nodes says where";
    let visitor = Within { range: 1..=MOST_32, meaning, of: PhantomData::<u32> };
    deserializer.deserialize_u64(visitor).map(NonZeroU32::new)
}

/// Reads a whole number in `range`.
struct Within<T> {
    range: RangeInclusive<u64>,
    /// Ends the sentence about what is expected.
    meaning: &'static str,
    of: PhantomData<T>,
}

impl<T: TryFrom<u64>> Within<T> {
    fn refused<E: de::Error>(&self, number: impl fmt::Display) -> E {
        E::invalid_value(Unexpected::Other(&format!("integer `{number}`")), self)
    }
}

impl<T: TryFrom<u64>> Visitor<'_> for Within<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}{}", self.range.start(), self.range.end(), self.meaning)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let found = Some(number).filter(|number| self.range.contains(number));
        found.and_then(|number| T::try_from(number).ok()).ok_or_else(|| self.refused(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_below_zero) => Err(self.refused(number)),
        }
    }

    fn visit_i128<E: de::Error>(self, number: i128) -> Result<T, E> {
        Err(self.refused(number))
    }

    fn visit_u128<E: de::Error>(self, number: u128) -> Result<T, E> {
        Err(self.refused(number))
    }
}
