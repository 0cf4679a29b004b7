//! Tokens of an expression.

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, or a word as `true` and `in`.
    Name(String),
    /// A text.
    Text(String),
    /// A whole number without its sign.
    Int(u64),
    /// An operator or a bracket.
    Sign(&'static str),
}

/// Operators and brackets, the longer ones first.
const SIGNS: [&str; 20] = [
    "&&", "||", "==", "!=", "<=", ">=", "[?", ".?", "<", ">", "!", "(", ")", "[", "]", ",", ".", "-", "?",
    ":",
];

/// The tokens of a text.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            if after.starts_with(['"', '\'']) {
                return Err(format!("texts with the prefix {name} are"));
            }
            tokens.push(Token::Name(name.to_owned()));
            rest = after;
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            let is_fraction =
                after.strip_prefix('.').is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()));
            let value = match number.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => number.parse().ok(),
            };
            let value = value.filter(|_| !is_fraction);
            tokens.push(Token::Int(
                value.ok_or_else(|| format!("the number at `{}`", super::super::shown(rest)))?,
            ));
            rest = after;
        } else if first == '"' || first == '\'' {
            let (text, after) = quoted(rest, first)?;
            tokens.push(Token::Text(text));
            rest = after;
        } else if let Some(after) = rest.strip_prefix("//") {
            rest = after.split_once('\n').map_or("", |(_, after)| after);
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| format!("`{}`", first.escape_default()))?;
            // `cond ?[..]` and `a[?b]` begin alike only with the bracket first.
            tokens.push(Token::Sign(sign));
            rest = rest.get(sign.len()..).unwrap_or_default();
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// A quoted text, and what follows it.
fn quoted(rest: &str, quote: char) -> Result<(String, &str), String> {
    let triple: String = [quote; 3].iter().collect();
    if rest.starts_with(&triple) {
        return Err("a text in triple quotes".into());
    }
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Ok((text, rest.get(at + 1..).unwrap_or_default())),
            '\n' => break,
            '\\' => text.push(match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(plain @ ('\\' | '"' | '\'' | '`' | '?')) => plain,
                _ => return Err("an escape in a text".into()),
            }),
            _ => text.push(c),
        }
    }
    Err("a text without its closing quote".into())
}
