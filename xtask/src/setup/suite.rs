//! Package sources for another Debian suite, derived from the machine's own.
//!
//! The machine already names a mirror that it can reach and a key that it trusts. Its stanza for
//! the main archive with another suite name in it is all that is needed to fetch a newer kernel or
//! QEMU, so no mirror address is written down anywhere in this workspace.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

/// Where a machine keeps its package sources.
const APT: &str = "/etc/apt";

/// Suites of the main archive, as opposed to `bookworm-security` or another publisher's `stable-x`.
const MAIN_SUITES: &[&str] = &["bookworm", "trixie", "forky", "sid", "stable", "testing", "unstable"];

/// Key ring of a Debian machine if its one-line sources name none.
const KEY_RING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A deb822 source list for `suite`.
pub(super) fn sources(suite: &str) -> Result<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(Path::new(APT).join("sources.list.d")).into_iter().flatten() {
        files.push(entry.context("list /etc/apt/sources.list.d")?.path());
    }
    files.sort();
    files.push(Path::new(APT).join("sources.list"));
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let derived = match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => from_deb822(&text, suite),
            _ => from_one_line(&text, suite),
        };
        if let Some(derived) = derived {
            return Ok(derived);
        }
    }
    bail!("no source of Debian's main archive under {APT}: cannot fetch packages of {suite}");
}

/// The first stanza of the main archive, for another suite.
fn from_deb822(text: &str, suite: &str) -> Option<String> {
    let without_comments: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let stanza = without_comments
        .split(|line| line.trim().is_empty())
        .find(|stanza| stanza.iter().any(|line| names_main_suite(line)))?;
    let mut derived = String::new();
    for line in stanza {
        if field(line, "Suites").is_some() {
            derived.extend(["Suites: ", suite, "\n"]);
        } else {
            derived.extend([*line, "\n"]);
        }
    }
    Some(derived)
}

fn names_main_suite(line: &str) -> bool {
    field(line, "Suites").is_some_and(|suites| suites.split_whitespace().any(is_main_suite))
}

fn is_main_suite(suite: &str) -> bool {
    MAIN_SUITES.contains(&suite)
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (found, value) = line.split_once(':')?;
    found.eq_ignore_ascii_case(name).then_some(value)
}

/// The first `deb` line of the main archive, for another suite.
fn from_one_line(text: &str, suite: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb")?;
        let rest = rest.strip_prefix(char::is_whitespace)?.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']')?,
            None => ("", rest),
        };
        let mut words = rest.split_whitespace();
        let (uri, its_suite) = (words.next()?, words.next()?);
        if !is_main_suite(its_suite) {
            return None;
        }
        let components: Vec<&str> = words.collect();
        let key = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
        Some(format!(
            "Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: {}\nSigned-By: {}\n",
            components.join(" "),
            key.unwrap_or(KEY_RING)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "\
Types: deb
# made by an installer
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
";

    #[test]
    fn the_main_stanza_is_taken_with_another_suite() {
        assert_eq!(
            from_deb822(MACHINE, "trixie").unwrap(),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        );
    }

    #[test]
    fn other_publishers_and_the_security_archive_are_passed_over() {
        assert_eq!(from_deb822("URIs: https://other.example\nSuites: nodistro\n", "trixie"), None);
        assert_eq!(from_deb822("URIs: http://a.example\nSuites: bookworm-security\n", "trixie"), None);
        assert_eq!(from_one_line("deb https://other.example/apt sdk-bookworm main", "trixie"), None);
        assert_eq!(from_one_line("deb-src http://a.example bookworm main", "trixie"), None);
        assert_eq!(from_one_line("# deb http://a.example bookworm main", "trixie"), None);
    }

    #[test]
    fn one_line_sources_are_understood() {
        let wanted =
            "Types: deb\nURIs: http://a.example\nSuites: trixie\nComponents: main contrib\nSigned-By: ";
        let plain = from_one_line("\ndeb http://a.example bookworm main contrib\n", "trixie").unwrap();
        assert_eq!(plain, format!("{wanted}{KEY_RING}\n"));
        let keyed =
            from_one_line("deb [arch=amd64 signed-by=/k.gpg] http://a.example stable main contrib", "trixie");
        assert_eq!(keyed.unwrap(), format!("{wanted}/k.gpg\n"));
    }
}
