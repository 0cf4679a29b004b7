//! Whole numbers within a range.
//!
//! Error messages state the accepted range, not the type that the program uses.

use std::{fmt, marker::PhantomData, num::NonZeroU32};

use serde::{
    Deserialize, Deserializer,
    de::{self, Unexpected, Visitor},
};

/// Maximum that TOML can represent.
pub const MOST: u64 = i64::MAX.unsigned_abs();

/// Maximum of 32 bits.
pub const MOST_32: u64 = 0xffff_ffff;

/// Deserializes a number from `MIN` to `MAX`.
///
/// # Errors
/// If it is anything else.
pub fn within<'de, D, T, const MIN: u64, const MAX: u64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    deserializer.deserialize_u64(Within::<T, MIN, MAX>(PhantomData))
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
    struct CpuCount;

    impl Visitor<'_> for CpuCount {
        type Value = NonZeroU32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a whole number from 1 to {MOST_32}: how many CPUs; numa_nodes says where")
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<NonZeroU32, E> {
            let found = u32::try_from(number).ok().and_then(NonZeroU32::new);
            found.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<NonZeroU32, E> {
            match u64::try_from(number) {
                Ok(number) => self.visit_u64(number),
                Err(_below_zero) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
            }
        }

        fn visit_i128<E: de::Error>(self, number: i128) -> Result<NonZeroU32, E> {
            Err(E::invalid_value(Unexpected::Other(&format!("integer `{number}`")), &self))
        }

        fn visit_u128<E: de::Error>(self, number: u128) -> Result<NonZeroU32, E> {
            Err(E::invalid_value(Unexpected::Other(&format!("integer `{number}`")), &self))
        }
    }

    deserializer.deserialize_u64(CpuCount).map(Some)
}

struct Within<T, const MIN: u64, const MAX: u64>(PhantomData<T>);

impl<T: TryFrom<u64>, const MIN: u64, const MAX: u64> Visitor<'_> for Within<T, MIN, MAX> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let number_of = |number: u64| T::try_from(number).ok();
        let found = Some(number).filter(|number| (MIN..=MAX).contains(number)).and_then(number_of);
        found.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_below_zero) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_i128<E: de::Error>(self, number: i128) -> Result<T, E> {
        Err(E::invalid_value(Unexpected::Other(&format!("integer `{number}`")), &self))
    }

    fn visit_u128<E: de::Error>(self, number: u128) -> Result<T, E> {
        Err(E::invalid_value(Unexpected::Other(&format!("integer `{number}`")), &self))
    }
}
