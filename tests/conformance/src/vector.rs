//! Determines the kind of a vector, and compares results for all kinds.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{cpu, merge};

/// Runs a vector of any kind.
pub(crate) fn check(vector: Value) -> Result<(), String> {
    let has = |key: &str| vector.get(key).is_some();
    // Checks for keys that only one kind has; the last kind is the default.
    if has("providers") {
        read("merge", vector).and_then(|vector| merge::check(&vector))
    } else if has("request") {
        read("cpu hints", vector).and_then(|vector| cpu::check_hints(&vector))
    } else if has("affinity") {
        read("cpu affinity", vector).and_then(|vector| cpu::check_affinity(&vector))
    } else if has("count") {
        read("cpu assignment", vector).and_then(|vector| cpu::check_assignment(&vector))
    } else {
        Err("unknown shape: none of the keys providers, request, affinity and count".to_owned())
    }
}

fn read<T: DeserializeOwned>(kind: &str, vector: Value) -> Result<T, String> {
    serde_json::from_value(vector).map_err(|error| format!("{kind}: {error}"))
}

/// Compares both as text.
pub(crate) fn same(expected: &impl Display, actual: &impl Display) -> Result<(), String> {
    let (expected, actual) = (expected.to_string(), actual.to_string());
    if expected == actual { Ok(()) } else { Err(format!("expected {expected}, actual {actual}")) }
}
