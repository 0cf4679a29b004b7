//! Values that are written as text in quotes, as `"5s"`.
//!
//! The error for a bare number says what is expected instead, and not only that the value is a string.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{
    Deserializer,
    de::{self, Visitor},
};

/// Reads such a value; `expected` describes it, with an example.
///
/// # Errors
/// If the value is no text, or not one that can be parsed.
pub fn read<'de, D, T>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    deserializer.deserialize_str(Quoted { expected, of: PhantomData })
}

struct Quoted<T> {
    expected: &'static str,
    of: PhantomData<T>,
}

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Quoted<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}
