//! A rule in words, for `audit --explain`.

use enforcer_core::finding::{Rule, RuleWords};

use super::{
    style::{Style, Tone},
    text,
};

/// The rule, ending in a newline.
pub fn render(rule: Rule, style: Style) -> String {
    let RuleWords { title, when, why, remedy } = rule.words();
    let mut out = format!("{}: {title}\n", style.paint(Tone::Heading, rule.code()));
    for (label, words) in [("when", when), ("why", why), ("remedy", remedy)] {
        text::hang(&mut out, &format!("  {label:<8}"), words, style.width);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_told_within_the_width() {
        for &rule in Rule::ALL {
            let told = render(rule, Style { width: 72, colour: false });
            assert!(told.starts_with(rule.code()) && told.contains("\n  remedy  "), "{told}");
            assert!(told.lines().skip(1).all(|line| line.len() <= 72), "{told}");
        }
    }
}
