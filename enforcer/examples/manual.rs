//! Writes the man pages and the completions of the shells below a directory: what `cargo xtask docs` runs.
//!
//! It is no part of the product, which needs nothing to write man pages with. Both are made of the definition
//! that parses the command line. What that says below the options becomes sections with the names that
//! manuals have, and keeps its lines.

use std::{env, fs, io, path::Path};

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};
use enforcer::cli::{
    args::{command, completed},
    kubectl,
};

/// Beginnings of what stands below the options, and the sections that they go to, in the order of manuals.
const SECTIONS: [(&str, &str); 3] =
    [("", "NOTES"), ("Exit codes:", "EXIT STATUS"), ("Examples:", "EXAMPLES")];

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(directory), date) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("which directory?"));
    };
    let directory = Path::new(&directory);
    let (man, completions) = (directory.join("man"), directory.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    for (name, page) in pages(date.as_deref().unwrap_or("undated"))? {
        fs::write(man.join(name), page)?;
    }
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut completed(), "numa-enforcer", &completions)?;
    }
    Ok(())
}

/// File names and pages of the program and its commands, also under its name as a plugin.
pub(crate) fn pages(date: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut pages = pages_of(command(), date)?;
    pages.extend(pages_of(kubectl::args::command(), date)?);
    Ok(pages)
}

fn pages_of(program: Command, date: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut all = program.disable_help_subcommand(true);
    all.build();
    // Commands have no versions of their own.
    let source = concat!("numa-enforcer ", env!("CARGO_PKG_VERSION"));
    let shown = [&all].into_iter().chain(all.get_subcommands().filter(|one| !one.is_hide_set()));
    let pages = shown.map(|one| {
        let manual = Man::new(one.clone()).source(source).manual("NUMA Enforcer").date(date);
        Ok((manual.get_filename(), page(one, &manual)?))
    });
    pages.collect()
}

fn page(command: &Command, manual: &Man) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    manual.render_title(&mut page)?;
    manual.render_name_section(&mut page)?;
    manual.render_synopsis_section(&mut page)?;
    manual.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        manual.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        manual.render_subcommands_section(&mut page)?;
    }
    let below = command.get_after_long_help().or_else(|| command.get_after_help());
    let below = below.map(ToString::to_string).unwrap_or_default();
    for (begins, name) in SECTIONS {
        section(begins, name, &below).to_writer(&mut page)?;
    }
    Ok(page)
}

/// The lines of one section: those that are indented stay as they are, the others are filled.
fn section(begins: &str, name: &str, below: &str) -> Roff {
    let mut section = Roff::default();
    let (mut within, mut is_empty, mut verbatim) = ("", true, false);
    for line in below.lines() {
        let heading = SECTIONS.iter().map(|(begins, _)| *begins);
        let heading = heading.filter(|begins| !begins.is_empty()).find(|begins| line.starts_with(begins));
        // What has a heading ends at an empty line.
        within = heading.unwrap_or(if line.is_empty() { "" } else { within });
        if within != begins {
            continue;
        }
        let text = line.strip_prefix(heading.unwrap_or_default()).unwrap_or(line);
        if text.is_empty() && (is_empty || heading.is_some()) {
            continue;
        }
        if is_empty {
            section.control("SH", [name]);
            is_empty = false;
        }
        let text = if heading.is_some() { text.trim_start() } else { text };
        let indented = text.starts_with(' ');
        if indented != verbatim {
            section.control(if indented { "nf" } else { "fi" }, []);
            verbatim = indented;
        }
        if text.is_empty() {
            section.control("PP", []);
        } else {
            section.text([roman(text)]);
        }
    }
    if verbatim {
        section.control("fi", []);
    }
    section
}
