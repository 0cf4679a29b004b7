//! The output of Rust's test harness, line by line.

/// What one line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A test ended.
    Ended { name: &'a str, passed: bool },
    /// A test binary begins, with this many tests.
    Running(usize),
    /// Anything else.
    Other,
}

/// Reads `test NAME ... ok`, `test NAME - should panic ... FAILED`, `running 3 tests`.
///
/// An ignored test neither passed nor failed.
pub(super) fn read(line: &str) -> Line<'_> {
    if let Some(count) = running(line) {
        return Line::Running(count);
    }
    let ended = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "));
    match ended {
        Some((name, "ok")) => Line::Ended { name, passed: true },
        Some((name, "FAILED")) => Line::Ended { name, passed: false },
        _ => Line::Other,
    }
}

fn running(line: &str) -> Option<usize> {
    let (count, noun) = line.strip_prefix("running ")?.split_once(' ')?;
    matches!(noun, "test" | "tests").then_some(())?;
    count.parse().ok()
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
            ("running 3 tests", Line::Running(3)),
            ("running 1 test", Line::Running(1)),
            ("running away", Line::Other),
            ("test result: ok. 3 passed; 0 failed; 0 ignored; finished in 0.01s", Line::Other),
            ("", Line::Other),
        ] {
            assert_eq!(read(line), wanted, "{line}");
        }
    }
}
