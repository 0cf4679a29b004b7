//! What a scenario said that tells why it failed, kept until its end.
//!
//! Everything but the checks that passed; of a text of many lines, which is a console or a log, its first
//! line and its last ones.

/// Lines at the end of a long text that are kept.
const LAST: usize = 12;

/// Lines so far.
#[derive(Debug, Default)]
pub(super) struct Why {
    lines: Vec<String>,
}

impl Why {
    /// The scenario said this, in one line or more.
    pub(super) fn say(&mut self, text: &str) {
        if text.starts_with("check ok: ") {
            return;
        }
        let all: Vec<_> = text.lines().collect();
        let (first, rest) = all.split_first().unwrap_or((&"", &[]));
        let last = &rest[rest.len().saturating_sub(LAST)..];
        self.lines.push((*first).to_owned());
        if last.len() < rest.len() {
            self.lines.push("...".to_owned());
        }
        self.lines.extend(last.iter().map(|&line| line.to_owned()));
    }

    /// All of it.
    pub(super) fn text(&self) -> String {
        self.lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_that_passed_and_the_middle_of_a_console_are_left_out() {
        let mut why = Why::default();
        let console: Vec<_> = (0..LAST + 2).map(|line| format!("console {line}")).collect();
        let console = format!("the end of its console:\n{}", console.join("\n"));
        for said in ["boot on 2s", "check ok: a", "check FAILED: b", &console] {
            why.say(said);
        }
        let text = why.text();
        assert!(
            text.starts_with("boot on 2s\ncheck FAILED: b\nthe end of its console:\n...\nconsole 2\n"),
            "{text}"
        );
        assert!(text.ends_with("\nconsole 13"), "{text}");
    }
}
