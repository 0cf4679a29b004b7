//! The output of Rust's test harness, line by line.

/// What one line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A test ended.
    Ended { name: &'a str, passed: bool },
    /// How many tests a binary has, how many passed: this program counts them itself.
    Count,
    /// Anything else.
    Other,
}

/// Reads `test NAME ... ok`, `test NAME - should panic ... FAILED`, `running 3 tests`.
///
/// An ignored test neither passed nor failed.
pub(super) fn read(line: &str) -> Line<'_> {
    if line.is_empty() || is_running(line) || line.starts_with("test result: ok.") {
        return Line::Count;
    }
    let ended = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "));
    match ended {
        Some((name, "ok")) => Line::Ended { name, passed: true },
        Some((name, "FAILED")) => Line::Ended { name, passed: false },
        _ => Line::Other,
    }
}

fn is_running(line: &str) -> bool {
    let count = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
    count.is_some_and(|(count, _)| count.parse::<usize>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_harness() {
        for (line, wanted) in [
            ("test set::tests::union ... ok", Line::Ended { name: "set::tests::union", passed: true }),
            ("test a - should panic ... FAILED", Line::Ended { name: "a - should panic", passed: false }),
            ("test slow ... ignored, needs a disk", Line::Other),
            ("running 3 tests", Line::Count),
            ("running 1 test", Line::Count),
            ("running away", Line::Other),
            ("test result: ok. 3 passed; 0 failed; 0 ignored; finished in 0.01s", Line::Count),
            ("", Line::Count),
        ] {
            assert_eq!(read(line), wanted, "{line}");
        }
    }
}
