//! Progress of a command that waits: one line on standard error, for a user at a terminal.
//!
//! Nothing is written to a file or a pipe, to a terminal that cannot erase a line, or for a short wait.

use std::{
    io::{self, IsTerminal, Write},
    thread,
    time::{Duration, Instant},
};

/// Shorter waits are not shown.
const WORTH_TELLING: Duration = Duration::from_secs(2);
/// Time between two lines.
const STEP: Duration = Duration::from_millis(500);
/// Columns of the bar.
const BAR: usize = 20;
/// Goes to the beginning of the line and takes it back.
const ERASE: &str = "\r\u{1b}[K";

/// Waits, and shows the progress.
pub(super) fn wait(what: &str, span: Duration) {
    let capable = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    if span <= WORTH_TELLING || !capable || !io::stderr().is_terminal() {
        return thread::sleep(span);
    }
    let begun = Instant::now();
    loop {
        let passed = begun.elapsed();
        let left = span.saturating_sub(passed);
        if left.is_zero() {
            break;
        }
        // If this fails, there is no reader left.
        let _ = write!(io::stderr(), "{ERASE}{}", line(what, passed, span));
        thread::sleep(left.min(STEP));
    }
    let _ = write!(io::stderr(), "{ERASE}");
}

/// `watching this host [#####...............] 3 of 10 s`.
fn line(what: &str, passed: Duration, span: Duration) -> String {
    let share = passed.as_millis() * BAR as u128 / span.as_millis().max(1);
    let full = usize::try_from(share).unwrap_or(BAR).min(BAR);
    let (done, left) = ("#".repeat(full), ".".repeat(BAR - full));
    format!("{what} [{done}{left}] {} of {} s", passed.as_secs(), span.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        for (passed, shown) in [
            (0, "x [....................] 0 of 10 s"),
            (2600, "x [#####...............] 2 of 10 s"),
            (10_000, "x [####################] 10 of 10 s"),
            (99_000, "x [####################] 99 of 10 s"),
        ] {
            assert_eq!(line("x", Duration::from_millis(passed), Duration::from_secs(10)), shown);
        }
        assert_eq!(line("x", Duration::ZERO, Duration::ZERO), "x [....................] 0 of 0 s");
    }
}
