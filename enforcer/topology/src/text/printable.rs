//! Makes untrusted text safe to display: one line, no deceptive characters, bounded length.
//!
//! Names, annotations and messages come from people, containers and runtimes. Cut text ends with one mark and
//! is cut between characters: half an escape would read as something else.

use std::borrow::Cow;

/// Mark at the end of cut text.
const CUT: char = '…';

/// Escapes every character that could move a cursor, break a line or reverse text.
pub fn printable(text: &str) -> String {
    // Nearly all names: of ASCII, only controls are unfit.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|c| show(c, &mut shown));
    shown
}

/// [`printable`], cut at `most` displayed characters. Reads no more of the text than it shows.
pub fn printable_within(text: &str, most: usize) -> String {
    let mut shown = String::new();
    let mut room = most;
    for c in text.chars() {
        let Some(left) = room.checked_sub(if is_unfit(c) { c.escape_default().len() } else { 1 }) else {
            shown.push(CUT);
            break;
        };
        room = left;
        show(c, &mut shown);
    }
    shown
}

/// At most `most` characters of a text, unescaped: for text that is escaped already or later.
pub fn cut_at(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}{CUT}", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

fn show(c: char, shown: &mut String) {
    if is_unfit(c) {
        shown.extend(c.escape_default());
    } else {
        shown.push(c);
    }
}

/// A control, a bidirectional control, a zero-width character, a line or paragraph separator.
pub fn is_unfit(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_cut_ends_with_a_mark_and_in_no_escape() {
        for (text, most, shown, as_it_is) in [
            ("", 0, "", ""),
            ("a", 0, "…", "…"),
            ("abc", 3, "abc", "abc"),
            ("abcd", 3, "abc…", "abc…"),
            ("ää", 1, "ä…", "ä…"),
            ("a\n", 2, "a…", "a\n"),
            ("a\n", 3, "a\\n", "a\n"),
            ("\u{202e}x", 7, "…", "\u{202e}x"),
            ("\u{202e}x", 8, "\\u{202e}…", "\u{202e}x"),
        ] {
            assert_eq!(printable_within(text, most), shown, "{text:?} {most}");
            assert_eq!(cut_at(text, most), as_it_is, "{text:?} {most}");
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let hostile = prop_oneof![
            Just('\n'),
            Just('\u{1b}'),
            Just('\u{7f}'),
            Just('\u{202e}'),
            Just('\u{feff}'),
            Just('…'),
            Just('\\'),
        ];
        let any = prop_oneof![any::<char>(), hostile];
        prop::collection::vec(any, 0..40).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn what_is_shown_fits_is_printable_and_is_the_beginning(text in text(), most in 0_usize..60) {
            let (whole, shown) = (printable(&text), printable_within(&text, most));
            prop_assert!(shown.chars().count() <= most + 1);
            prop_assert!(!shown.chars().any(is_unfit));
            if whole.chars().count() <= most {
                prop_assert_eq!(shown, whole);
            } else {
                // Whole characters fill the limit: one more would be too long.
                let kept = shown.strip_suffix(CUT).unwrap();
                let mut beginnings = text.char_indices().map(|(end, c)| (&text[..end], end + c.len_utf8()));
                let longest = beginnings.rfind(|(begun, _)| printable(begun).chars().count() <= most);
                let (begun, next) = longest.unwrap();
                prop_assert_eq!(kept, printable(begun));
                prop_assert!(printable(&text[..next]).chars().count() > most);
            }
        }

        #[test]
        fn what_is_cut_is_the_beginning(text in text(), most in 0_usize..60) {
            let cut = cut_at(&text, most);
            if text.chars().count() <= most {
                prop_assert_eq!(&*cut, &*text);
            } else {
                let kept = cut.strip_suffix(CUT).unwrap();
                prop_assert!(text.starts_with(kept) && kept.chars().count() == most);
            }
        }
    }
}
