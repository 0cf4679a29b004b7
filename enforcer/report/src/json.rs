//! JSON for programs: indented, keys in the order of the types, one newline at the end.
//!
//! Names of cgroups and pods come from outside, and JSON is read on terminals too. JSON escapes controls
//! below U+0020; all other control characters and bidirectional marks are escaped here. They occur only
//! inside strings, so the text is escaped as a whole.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

use enforcer_core::workload::is_unfit;
use serde::Serialize;

/// Writes `value`; equal values give equal bytes.
pub fn write<T: Serialize>(value: &T, out: &mut dyn Write) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    out.write_all(escaped(&text).as_bytes())?;
    writeln!(out)
}

/// The same in one line without a newline.
pub fn in_one_line<T: Serialize>(value: &T) -> serde_json::Result<String> {
    serde_json::to_string(value).map(|text| escaped(&text).into_owned())
}

fn escaped(text: &str) -> Cow<'_, str> {
    // Those before are escaped already, or what the text is indented with.
    let is_raw = |c: char| c >= '\u{7f}' && is_unfit(c);
    if !text.contains(is_raw) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        if is_raw(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // A string takes whatever is written to it.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn controls_of_all_sorts_are_escaped_and_letters_are_not() {
        for (text, written) in [
            ("a\u{9b}31mX\u{85}\u{7f}", r#""a\u009b31mX\u0085\u007f""#),
            ("\u{202e}\u{2028}\u{feff}", r#""\u202e\u2028\ufeff""#),
            ("tab\t \u{1b}", r#""tab\t \u001b""#),
            ("é 東 🦀", r#""é 東 🦀""#),
        ] {
            assert_eq!(in_one_line(&text).unwrap(), written);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(texts in proptest::collection::vec(any::<String>(), 0..5)) {
            let mut out = Vec::new();
            write(&texts, &mut out).unwrap();
            prop_assert_eq!(&serde_json::from_slice::<Vec<String>>(&out).unwrap(), &texts);
            let line = in_one_line(&texts).unwrap();
            prop_assert!(!line.chars().any(is_unfit), "{:?}", line);
            prop_assert_eq!(serde_json::from_str::<Vec<String>>(&line).unwrap(), texts);
        }
    }
}
