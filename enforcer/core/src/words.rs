//! Figures in the sentences of findings, reasons and refusals.

use crate::set::NodeSet;

/// `node 1`, `nodes 0-1`.
pub(crate) fn nodes(nodes: &NodeSet) -> String {
    let word = if nodes.len() == 1 { "node" } else { "nodes" };
    format!("{word} {nodes}")
}

/// `1 thread`, `2 threads`.
pub(crate) fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// A ratio from 0 to 1 as whole percent; neither 0 nor 100 unless it is.
pub(crate) fn percent(ratio: f64) -> String {
    let rounded = (ratio * 100.0).round();
    if ratio > 0.0 && rounded <= 0.0 {
        return "<1%".into();
    }
    if ratio < 1.0 && rounded >= 100.0 {
        return ">99%".into();
    }
    format!("{rounded:.0}%")
}

/// Bytes in the largest unit that leaves at least two digits, rounded down: what is promised is
/// there.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >> shift >= 10) {
        Some((unit, shift)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_say_them() {
        for (ratio, text) in
            [(0.0, "0%"), (0.001, "<1%"), (0.2, "20%"), (0.994, "99%"), (0.999, ">99%"), (1.0, "100%")]
        {
            assert_eq!(percent(ratio), text);
        }
        for (bytes, text) in
            [(0, "0 B"), (10_239, "10239 B"), (10_240, "10 KiB"), (9 << 30, "9216 MiB"), (64 << 30, "64 GiB")]
        {
            assert_eq!(size(bytes), text);
        }
        for (list, text) in [("1", "node 1"), ("0-1", "nodes 0-1"), ("0,72", "nodes 0,72")] {
            assert_eq!(nodes(&list.parse().unwrap()), text);
        }
    }
}
