//! Values of JSON out of types, and types out of them.
//!
//! Problem: serde makes the code of each type again for each format that the type is read from or written to,
//! and `serde_json::Value` is a format of its own. Idea: both ways go through text, for which that code is
//! there already.
//!
//! Invariant: the same values as `serde_json::to_value` and `serde_json::from_value` have.
//! Cost: the text is written and read; not for a path that must be fast.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Result, Value};

/// The value of a type.
///
/// # Errors
/// If the type is none of JSON.
pub fn to_value<T: Serialize>(of: &T) -> Result<Value> {
    serde_json::from_slice(&serde_json::to_vec(of)?)
}

/// A type out of a value.
///
/// # Errors
/// If the value is none of that type.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T> {
    serde_json::from_slice(&serde_json::to_vec(value)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hosted::Cpuset;

    #[test]
    fn values_are_those_of_serde_json() {
        let value = json!({"cpus": "0-3", "mems": "0"});
        let cpuset: Cpuset = from_value(&value).unwrap();
        assert_eq!(cpuset, serde_json::from_value(value.clone()).unwrap());
        assert_eq!(to_value(&cpuset).unwrap(), serde_json::to_value(&cpuset).unwrap());
        assert_eq!(to_value(&0.1_f64).unwrap(), json!(0.1));
        assert!(from_value::<Cpuset>(&json!(1)).is_err());
    }
}
