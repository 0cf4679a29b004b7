//! The one table that all measurements are printed in.

/// Three figures of one measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct BenchFigures<T> {
    /// In the middle.
    pub(super) median: T,
    /// The least.
    pub(super) min: T,
    /// The greatest.
    pub(super) max: T,
}

/// One line.
pub(super) fn row([what, median, min, max, unit]: [&str; 5]) -> String {
    format!("{what:50} {median:>9} {min:>9} {max:>9} {unit}")
}

/// Its first line.
pub(super) fn head() -> String {
    row(["what", "median", "min", "max", "unit"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_heads() {
        let (head, line) = (head(), row(["audit", "1.0", "0.9", "2.0", "ms"]));
        assert_eq!(head.find("median").map(|at| at + 6), line.find("1.0").map(|at| at + 3));
        assert_eq!(head.find("unit"), line.find("ms"));
    }
}
