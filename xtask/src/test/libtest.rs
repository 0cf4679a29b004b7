//! The output of Rust's test harness, line by line.

use std::collections::HashMap;

/// What one line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LibtestLine<'a> {
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
pub(super) fn read(line: &str) -> LibtestLine<'_> {
    if line.is_empty() || is_running(line) || line.starts_with("test result: ok.") {
        return LibtestLine::Count;
    }
    let ended = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "));
    match ended {
        Some((name, "ok")) => LibtestLine::Ended { name, passed: true },
        Some((name, "FAILED")) => LibtestLine::Ended { name, passed: false },
        _ => LibtestLine::Other,
    }
}

fn is_running(line: &str) -> bool {
    let count = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
    count.is_some_and(|(count, _)| count.parse::<usize>().is_ok())
}

/// What the harness repeats of each test that failed, below `---- NAME stdout ----`, up to the first
/// backtrace.
#[derive(Debug, Default)]
pub(super) struct LibtestOutput {
    of: HashMap<String, String>,
    /// Test that the present lines belong to.
    now: Option<String>,
}

impl LibtestOutput {
    /// The next line of the harness that says nothing else.
    pub(super) fn line(&mut self, line: &str) {
        let begins = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = begins {
            self.now = Some(name.to_owned());
        } else if ["failures:", "stack backtrace:"].contains(&line) || line.starts_with("test result: ") {
            self.now = None;
        } else if let Some(name) = &self.now {
            let text = self.of.entry(name.clone()).or_default();
            text.push_str(line);
            text.push('\n');
        }
    }

    /// What was told of a test; of equal names in two binaries, all of it.
    pub(super) fn of(&self, name: &str) -> &str {
        self.of.get(name).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_harness_repeats_belongs_to_its_test() {
        let mut told = LibtestOutput::default();
        for line in [
            "error: unrelated",
            "failures:",
            "---- a::b stdout ----",
            "thread 'a::b' panicked at src/a.rs:1:1:",
            "left is not right",
            "stack backtrace:",
            "   0: __rustc::rust_begin_unwind",
            "---- c stdout ----",
            "gone",
            "failures:",
            "    a::b",
            "test result: FAILED. 3 passed; 2 failed",
        ] {
            told.line(line);
        }
        assert_eq!(told.of("a::b"), "thread 'a::b' panicked at src/a.rs:1:1:\nleft is not right\n");
        assert_eq!(told.of("c"), "gone\n");
        assert_eq!(told.of("unknown"), "");
    }

    #[test]
    fn lines_of_the_harness() {
        for (line, wanted) in [
            ("test set::tests::union ... ok", LibtestLine::Ended { name: "set::tests::union", passed: true }),
            (
                "test a - should panic ... FAILED",
                LibtestLine::Ended { name: "a - should panic", passed: false },
            ),
            ("test slow ... ignored, needs a disk", LibtestLine::Other),
            ("running 3 tests", LibtestLine::Count),
            ("running 1 test", LibtestLine::Count),
            ("running away", LibtestLine::Other),
            ("test result: ok. 3 passed; 0 failed; 0 ignored; finished in 0.01s", LibtestLine::Count),
            ("", LibtestLine::Count),
        ] {
            assert_eq!(read(line), wanted, "{line}");
        }
    }
}
