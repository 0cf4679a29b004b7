//! The kernel's list format (`0-1,4`), read independently of the product.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

/// Ids of CPUs or nodes.
pub type Ids = BTreeSet<u32>;

/// Reads a list; an empty one is no ids.
pub fn parse(text: &str) -> Result<Ids> {
    let mut ids = Ids::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().with_context(|| format!("id {text:?} of {part:?}"));
        ids.extend(number(first)?..=number(last)?);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel() {
        for (text, wanted) in
            [("", vec![]), ("0\n", vec![0]), ("0-2", vec![0, 1, 2]), ("0-1,4", vec![0, 1, 4])]
        {
            assert_eq!(parse(text).unwrap(), wanted.into_iter().collect(), "{text}");
        }
        assert!(parse("x").is_err());
    }
}
