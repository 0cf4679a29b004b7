//! Text that came from outside, made safe to show on a terminal.
//!
//! The user that starts a container may choose its cgroup's name. A name may hold escape sequences that
//! recolour or rewrite the screen, newlines that fake a row, or bidirectional marks that reorder the text.
//! All of these are shown as escapes instead.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Terminal columns of the text: two for most East Asian characters, none for a combining accent.
pub fn width(text: &str) -> usize {
    text.width()
}

/// `text` with control characters, bidirectional marks and other invisible ones written as `\u{..}`: those
/// too that choose how the character before them looks, which may make it wider.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

/// Escaped text in at most `columns` columns. The middle is replaced by `…`, as the end of a cgroup path
/// matters more. No escape is cut in two.
pub fn fit(text: &str, columns: usize) -> String {
    let whole = escape(text);
    if width(&whole) <= columns {
        return whole.into_owned();
    }
    let Some(kept) = columns.checked_sub(1) else { return String::new() };
    let (front, _) = text.split_at(end_of(text.chars(), kept / 3, shown_width));
    let front = escape(front);
    let (_, back) = text.split_at(text.len() - end_of(text.chars().rev(), kept - width(&front), shown_width));
    format!("{front}…{}", escape(back))
}

/// Bytes of the characters that come first and fit into `columns` together, each as wide as `width_of` says.
fn end_of(chars: impl Iterator<Item = char>, columns: usize, width_of: impl Fn(char) -> usize) -> usize {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += width_of(*c);
            used <= columns
        })
        .map(char::len_utf8)
        .sum()
}

/// Columns of the character, or of its escape.
fn shown_width(c: char) -> usize {
    if is_unsafe(c) { c.escape_default().len() } else { plain_width(c) }
}

fn plain_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Writes the escaped text in lines of at most `columns` columns: `first` leads the first line and
/// `rest` the others. Lines break after a space or a comma, and anywhere where there is none; a path that is
/// too long for a line is left whole, so that it can be copied.
pub fn wrap(out: &mut String, text: &str, columns: usize, first: &str, rest: &str) {
    let text = escape(text);
    let mut left: &str = text.trim_end();
    let mut lead = first;
    loop {
        let room = columns.saturating_sub(width(lead)).max(8);
        let (line, after) = split_line(left, room);
        out.push_str(lead);
        out.push_str(line);
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
        if after.is_empty() {
            return;
        }
        (left, lead) = (after, rest);
    }
}

/// Writes the text behind `lead`, with its further lines below its beginning.
pub fn hang(out: &mut String, lead: &str, text: &str, columns: usize) {
    wrap(out, text, columns, lead, &" ".repeat(width(lead)));
}

/// Splits off the first line of at most `room` columns.
fn split_line(text: &str, room: usize) -> (&str, &str) {
    let hard = end_of(text.chars(), room, plain_width);
    if hard == text.len() {
        return (text, "");
    }
    // A break where nothing would stand before it gains nothing.
    let soft = text[..hard].rfind([' ', ',']).map(|at| at + 1).filter(|end| !text[..*end].trim().is_empty());
    let end = match soft {
        _ if text[hard..].starts_with(' ') => hard,
        Some(soft) => soft,
        None => {
            let word = text.find(' ').unwrap_or(text.len());
            if text[..word].contains('/') { word } else { hard }
        }
    };
    (&text[..end], text[end..].trim_start())
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // XML has no way to say these two.
            | '\u{fffe}'..='\u{ffff}'
            | '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hostile_names_are_shown_as_escapes() {
        for (text, shown) in [
            ("/system.slice/cron.service", "/system.slice/cron.service"),
            ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{202e}gpj.exe", "\\u{202e}gpj.exe"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("größe-日本", "größe-日本"),
            ("\u{1f56f}\u{fe0f}", "\u{1f56f}\\u{fe0f}"),
        ] {
            assert_eq!(escape(text), shown);
        }
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(fit("abcdefghij", 10), "abcdefghij");
        assert_eq!(fit("abcdefghijk", 10), "abc…fghijk");
        assert_eq!(fit("abc", 1), "…");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(fit("日本語の名前です", 16), "日本語の名前です");
        assert_eq!(fit("日本語の名前です", 11), "日…名前です");
    }

    #[test]
    fn no_escape_is_cut_in_two() {
        let hostile = "a\u{1b}[31mred\u{202e}b";
        assert_eq!(fit(hostile, 25), "a\\u{1b}[31mred\\u{202e}b");
        assert_eq!(fit(hostile, 20), "a…[31mred\\u{202e}b");
        assert_eq!(fit(hostile, 10), "a…b");
    }

    fn wrapped(text: &str, width: usize) -> String {
        let mut out = String::new();
        wrap(&mut out, text, width, "- ", "  ");
        out
    }

    #[test]
    fn lines_break_after_spaces_and_commas() {
        assert_eq!(wrapped("one two three four", 12), "- one two\n  three four\n");
        assert_eq!(wrapped("0-3,8-11,16-19,24", 12), "- 0-3,8-11,\n  16-19,24\n");
        assert_eq!(wrapped("abcdefghijklmnop", 12), "- abcdefghij\n  klmnop\n");
        // A path stays whole.
        assert_eq!(wrapped("/a/bcdefghijklmnop", 12), "- /a/bcdefghijklmnop\n");
        assert_eq!(wrapped("in /a/bcdefghijklmnop: 0", 12), "- in\n  /a/bcdefghijklmnop:\n  0\n");
        assert_eq!(wrapped("exactly ten", 13), "- exactly ten\n");
        assert_eq!(wrapped("", 12), "-\n");
    }

    proptest! {
        #[test]
        fn wrapping_keeps_every_word_and_the_width(text in "[a-z ,\u{e9}\u{65e5}\u{301}]{0,60}", width in 10usize..30) {
            let out = wrapped(&text, width);
            prop_assert!(out.lines().all(|line| super::width(line) <= width), "{}", out);
            let squeezed = |text: &str| text.replace([' ', '\n'], "");
            prop_assert_eq!(squeezed(&out), format!("-{}", squeezed(&text)));
        }

        #[test]
        fn nothing_unsafe_is_left_and_it_fits(text in any::<String>(), width in 0usize..40) {
            let shown = fit(&text, width);
            prop_assert!(!shown.contains(is_unsafe));
            prop_assert!(super::width(&shown) <= width, "{}", shown);
        }
    }
}
