//! Commands in the pages parse as the program would parse them, and its help and manual are as the pages say.

use enforcer::cli::{args::command, kubectl};

use super::{pages, split};

#[expect(dead_code, reason = "only its pages are looked at")]
#[path = "../../../examples/manual.rs"]
mod manual;

const PROGRAM: &str = "numa-enforcer ";

/// What the plugin's commands begin with.
const PLUGIN: &str = "kubectl numa ";

/// Every command of the program in a text of code: `$ sudo numa-enforcer audit | head` has one.
fn commands(line: &str) -> Vec<String> {
    commands_of(PROGRAM, line)
}

/// Every command in a text of code that begins with `program`.
fn commands_of(program: &str, line: &str) -> Vec<String> {
    // What is quoted may hold anything.
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (None, '|' | '>' | '<' | ';' | '&' | '#' | '\\') => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(c),
        }
        quote = match (quote, c) {
            (None, '\'' | '"') => Some(c),
            (Some(open), c) if open == c => None,
            (quote, _) => quote,
        };
    }
    let begins = |part: String| {
        let part = part.trim().trim_start_matches("$ ").trim_start_matches("sudo ").to_owned();
        part.starts_with(program).then_some(part)
    };
    parts.into_iter().filter_map(begins).collect()
}

/// The words of a command; quotes keep what they hold together.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, ' ') => words.push(String::new()),
            (_, c) => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// What is a form and no command: `[--for 10m]`, `...`, `help COMMAND`.
fn is_form(command: &str) -> bool {
    command.ends_with(" ARGS")
        || command.ends_with(" COMMAND")
        || command.contains(['[', '…'])
        || command.contains("...")
        || command.ends_with(':')
}

#[test]
fn every_command_of_a_page_can_be_typed() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, page) in pages() {
        let (prose, code) = split(&page);
        let prose = prose.join("\n");
        let spoken = prose.split('`').skip(1).step_by(2).map(|text| text.replace('\n', " "));
        let in_blocks =
            code.into_iter().map(str::to_owned).filter(|line| !line.starts_with("numa-enforcer: "));
        for line in spoken.chain(in_blocks) {
            for typed in commands(&line).into_iter().filter(|typed| !is_form(typed)) {
                seen += 1;
                let typed_words = words(&typed);
                // The name of a command alone, as in `numa-enforcer plan`, is what the prose calls it.
                let is_name = typed_words.len() == 2 && command().find_subcommand(&typed_words[1]).is_some();
                if let Err(error) = command().try_get_matches_from(typed_words)
                    && error.use_stderr()
                    && !is_name
                {
                    wrong.push(format!("{}: {typed}: {error}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "{seen} commands");
}

#[test]
fn every_command_of_the_plugin_on_a_page_can_be_typed() {
    let mut seen = 0;
    for (path, page) in pages() {
        let (prose, code) = split(&page);
        let prose = prose.join("\n");
        let spoken = prose.split('`').skip(1).step_by(2).map(|text| text.replace('\n', " "));
        for line in spoken.chain(code.into_iter().map(str::to_owned)) {
            for typed in commands_of(PLUGIN, &line).into_iter().filter(|typed| !is_form(typed)) {
                seen += 1;
                let arguments = words(typed.strip_prefix("kubectl ").unwrap());
                // The name of a command alone is what the prose calls it.
                let is_name = matches!(&*arguments, [_, name] if kubectl::args::command().find_subcommand(name).is_some());
                let parsed = kubectl::args::command().try_get_matches_from(arguments);
                assert!(parsed.is_ok() || is_name, "{}: {typed}: {}", path.display(), parsed.unwrap_err());
            }
        }
    }
    assert!(seen > 5, "{seen} commands");
}

#[test]
fn commands_are_found_as_they_are_written() {
    assert_eq!(
        commands("$ numa-enforcer status -o json | jq '.a | .b'  # why"),
        ["numa-enforcer status -o json"]
    );
    assert_eq!(
        commands("kubectl get | sudo numa-enforcer plan - && numa-enforcer audit"),
        ["numa-enforcer plan -", "numa-enforcer audit"]
    );
    assert_eq!(
        commands("numa-enforcer plan --synthetic 'a:1 | b'"),
        ["numa-enforcer plan --synthetic 'a:1 | b'"]
    );
    assert_eq!(commands("/usr/bin/numa-enforcer run"), [""; 0]);
    assert_eq!(words("a  'b c' d=\"e\""), ["a", "b c", "d=e"]);
}

/// Every command, the whole program first; not those that are hidden.
fn visible() -> Vec<clap::Command> {
    let whole = command();
    let parts = whole.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    let parts: Vec<clap::Command> = parts.collect();
    std::iter::once(whole).chain(parts).collect()
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let pages = manual::pages("2026-01-31").unwrap();
    let plugin = kubectl::args::command();
    assert_eq!(pages.len(), visible().len() + 1 + plugin.get_subcommands().count());
    for name in ["numa-enforcer-audit.1", "kubectl-numa.1", "kubectl-numa-audit.1"] {
        assert!(pages.iter().any(|(page, _text)| page == name), "{name}");
    }
    for (name, page) in pages {
        let page = String::from_utf8(page).unwrap();
        let title = format!(" 1 2026-01-31 \"{PROGRAM}{}\" \"NUMA Enforcer\"\n", env!("CARGO_PKG_VERSION"));
        for part in [&title, ".SH SYNOPSIS\n", ".SH EXAMPLES\n.nf\n  ", "\n.fi\n"] {
            assert!(page.contains(part), "{name}: {part}: {page}");
        }
        for heading in ["\nExamples:", "\nExit codes:", ".SH EXTRA"] {
            assert!(!page.contains(heading), "{name}: {heading}: {page}");
        }
    }
}

#[test]
fn the_page_of_commands_has_them_all() {
    let pages = pages();
    let page = &pages[std::path::Path::new("docs/commands.md")];
    for command in visible().iter().skip(1).map(clap::Command::get_name) {
        assert!(page.contains(&format!("`{PROGRAM}{command}")), "{command}");
    }
    for command in kubectl::args::command().get_subcommands().map(clap::Command::get_name) {
        assert!(page.contains(&format!("`{PLUGIN}{command}")), "{command}");
    }
}
