//! What `kubectl numa` can go on with, in the form that kubectl's own completion asks for.
//!
//! kubectl runs `kubectl_complete-numa` with the words that follow `kubectl numa`, the last one unfinished.
//! It reads one proposal per line, and a number that says what the shell may add: no names of files here.

use std::{ffi::OsString, io::Write};

use super::{super::Exit, args};

/// `ShellCompDirectiveNoFileComp` of cobra.
const NO_FILES: &str = ":4";
/// `ShellCompDirectiveDefault`: the shell proposes files.
const FILES: &str = ":0";

pub(super) fn run(words: &[OsString], out: &mut dyn Write) -> anyhow::Result<Exit> {
    let words: Vec<&str> = words.iter().skip(1).map(|word| word.to_str().unwrap_or_default()).collect();
    let (proposals, directive) = proposals(&words);
    for proposal in proposals {
        writeln!(out, "{proposal}")?;
    }
    writeln!(out, "{directive}")?;
    Ok(Exit::Ok)
}

fn proposals(words: &[&str]) -> (Vec<String>, &'static str) {
    let mut all = args::command();
    all.build();
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (*last, before));
    let subcommand = before.iter().find_map(|word| all.find_subcommand(word));
    let command = subcommand.unwrap_or(&all);
    let starts = |name: &String| name.starts_with(last);
    if let Some(argument) = before.last().and_then(|flag| argument_of(command, flag)) {
        let values = argument.get_possible_values();
        let values = values.iter().map(|value| value.get_name().to_owned()).filter(starts).collect();
        let is_file = argument.get_value_names().into_iter().flatten().any(|name| name == "FILE");
        return (values, if is_file { FILES } else { NO_FILES });
    }
    if last.starts_with('-') {
        let flags = command.get_arguments().filter(|one| !one.is_hide_set());
        let mut flags: Vec<String> =
            flags.filter_map(|one| Some(format!("--{}", one.get_long()?))).filter(starts).collect();
        flags.sort();
        return (flags, NO_FILES);
    }
    let commands = subcommand.is_none().then(|| all.get_subcommands().map(|one| one.get_name().to_owned()));
    (commands.into_iter().flatten().filter(starts).collect(), NO_FILES)
}

/// The argument whose value follows `flag`.
fn argument_of<'a>(command: &'a clap::Command, flag: &str) -> Option<&'a clap::Arg> {
    let is_meant = |one: &&clap::Arg| match flag.strip_prefix("--") {
        Some(long) => one.get_long() == Some(long),
        None => flag.strip_prefix('-').is_some_and(|short| {
            let mut letters = short.chars();
            letters.next() == one.get_short() && one.get_short().is_some() && letters.next().is_none()
        }),
    };
    command.get_arguments().find(is_meant).filter(|one| one.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_flags_and_values_are_proposed() {
        for (words, expected, directive) in [
            (&[""][..], &["audit", "status", "explain", "top", "help"][..], NO_FILES),
            (&["ex"], &["explain"], NO_FILES),
            (&["audit", "--no"], &["--node"], NO_FILES),
            (&["audit", "--con"], &["--context"], NO_FILES),
            (&["audit", "-o", ""], &["table", "json"], NO_FILES),
            (&["status", "--output", "j"], &["json"], NO_FILES),
            (&["audit", "--kubeconfig", ""], &[], FILES),
            (&["explain", "we"], &[], NO_FILES),
            (&["top", "--sort", "m"], &["migrations"], NO_FILES),
            (&[], &["audit", "status", "explain", "top", "help"], NO_FILES),
        ] {
            assert_eq!(
                proposals(words),
                (expected.iter().map(|&one| one.to_owned()).collect(), directive),
                "{words:?}"
            );
        }
    }
}
