//! Writes the man pages and the completions of the shells below a directory: what `cargo xtask docs` runs.
//!
//! It is no part of the product, which needs nothing to write man pages with. Both are made of the definition that
//! parses the command line.

use std::{env, fs, io, path::PathBuf};

use clap::ValueEnum;
use clap_complete::Shell;
use enforcer::cli::args::command;

fn main() -> io::Result<()> {
    let Some(directory) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("which directory?"));
    };
    let (man, completions) = (directory.join("man"), directory.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(command(), &man)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command(), "numa-enforcer", &completions)?;
    }
    Ok(())
}
