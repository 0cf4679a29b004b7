//! Running other programs, with errors that say which program, and what it said last.

use std::{
    ffi::OsStr,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// Lines of a failed program's output that go into the error.
const TAIL_LINES: usize = 40;

/// Runs a program and shows its output only if it fails; returns its standard output.
pub(crate) fn quietly(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {}", shown(command)))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let all = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    bail!("{} failed ({}):\n{}", shown(command), output.status, tail(&all, TAIL_LINES));
}

/// Runs a program that must have nothing to say, such as a compiler without a warning.
pub(crate) fn silently(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {}", shown(command)))?;
    if output.status.success() && output.stderr.is_empty() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("{} ended with {}, and said:\n{}", shown(command), output.status, tail(&said, TAIL_LINES));
}

/// Runs a program that talks to the person at the terminal.
pub(crate) fn visibly(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", shown(command));
    }
    Ok(())
}

/// The last `lines` lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The command as one would type it, without its environment.
fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_at_most_as_long_as_asked() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 5), "a");
        assert_eq!(tail("", 5), "");
    }

    #[test]
    fn what_must_be_silent_fails_by_a_word() {
        silently(&mut Command::new("true")).unwrap();
        silently(&mut Command::new("false")).unwrap_err();
        let error = silently(Command::new("sh").args(["-c", "echo warning >&2"])).unwrap_err();
        assert!(error.to_string().contains("warning"), "{error}");
    }

    #[test]
    fn a_failure_names_the_program_and_what_it_said() {
        let error = quietly(Command::new("sh").args(["-c", "echo because >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c") && text.contains("because") && text.contains('3'), "{text}");
    }
}
