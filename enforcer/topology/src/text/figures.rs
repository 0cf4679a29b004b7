//! Figures in the sentences of findings, reasons and refusals.

use crate::set::NodeSet;

/// `node 1`, `nodes 0-1`.
pub fn nodes(nodes: &NodeSet) -> String {
    let word = if nodes.len() == 1 { "node" } else { "nodes" };
    format!("{word} {nodes}")
}

/// `1 thread`, `2 threads`.
pub fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// A ratio from 0 to 1 as whole percent; neither 0 nor 100 unless it is.
pub fn percent(ratio: f64) -> String {
    let rounded = (ratio * 100.0).round();
    if ratio > 0.0 && rounded <= 0.0 {
        return "<1%".into();
    }
    if ratio < 1.0 && rounded >= 100.0 {
        return ">99%".into();
    }
    format!("{rounded:.0}%")
}

/// Bytes in the largest unit that leaves at least two digits, rounded down: at least the printed amount is
/// there.
pub fn size(bytes: u64) -> String {
    SizeUnit::of(bytes).show(bytes)
}

/// Unit of printed sizes. Sizes that a sentence compares use one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeUnit {
    name: &'static str,
    shift: u32,
}

impl SizeUnit {
    /// The largest unit that leaves at least two digits of this size.
    pub fn of(bytes: u64) -> Self {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let largest = units.into_iter().find(|(_, shift)| bytes >> shift >= 10);
        let (name, shift) = largest.unwrap_or(("B", 0));
        Self { name, shift }
    }

    /// Is this size less than the smallest figure in this unit?
    pub fn rounds_away(self, bytes: u64) -> bool {
        bytes > 0 && (u128::from(bytes) * 100) >> self.shift == 0
    }

    /// A size rounded down: to whole units from ten on, below to hundredths.
    pub fn show(self, bytes: u64) -> String {
        let Self { name, shift } = self;
        let whole = bytes >> shift;
        let hundredths = ((u128::from(bytes) * 100) >> shift) % 100;
        match (whole, hundredths) {
            (0, 0) if bytes > 0 => format!("<0.01 {name}"),
            (0..10, 1..) => format!("{} {name}", format!("{whole}.{hundredths:02}").trim_end_matches('0')),
            _ => format!("{whole} {name}"),
        }
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
        for (largest, bytes, text) in [
            (16 << 30, 512 << 20, "0.5 GiB"),
            (16 << 30, 9 << 30, "9 GiB"),
            (16 << 30, (9 << 30) + (9 << 20), "9 GiB"),
            (16 << 30, (9 << 30) + (999 << 20), "9.97 GiB"),
            (16 << 30, (11 << 30) + (999 << 20), "11 GiB"),
            (16 << 30, 4096, "<0.01 GiB"),
            (16 << 30, 0, "0 GiB"),
            (u64::MAX, u64::MAX, "17179869183 GiB"),
            (100, 7, "7 B"),
        ] {
            assert_eq!(SizeUnit::of(largest).show(bytes), text, "{bytes} beside {largest}");
            assert_eq!(SizeUnit::of(largest).rounds_away(bytes), text.starts_with('<'), "{text}");
        }
        for (list, text) in [("1", "node 1"), ("0-1", "nodes 0-1"), ("0,72", "nodes 0,72")] {
            assert_eq!(nodes(&list.parse().unwrap()), text);
        }
    }
}
