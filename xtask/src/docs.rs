//! `cargo xtask docs`: man pages and completions, and the pages of docs/ as a book where mdBook is installed.
//!
//! Everything goes below `target/docs`. The man pages are not committed: they are made of the help, which is.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{command, product, progress::ProgressStep, workspace::Workspace};

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let directory = workspace.target().join("docs");
    manuals(workspace, &directory)?;
    println!("{}, {}", directory.join("man").display(), directory.join("completions").display());
    let is_there =
        Command::new("mdbook").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        println!("no book is made: mdbook is not installed (https://rust-lang.github.io/mdBook)");
        return Ok(());
    }
    let book = directory.join("book");
    let mut mdbook = Command::new("mdbook");
    mdbook.arg("build").arg(workspace.root().join("docs")).arg("--dest-dir").arg(&book);
    command::quietly(&mut mdbook).context("make the book")?;
    println!("{}", book.join("index.html").display());
    Ok(())
}

/// Writes the man pages and the completions of shells into `man` and `completions` of a folder.
pub(crate) fn manuals(workspace: &Workspace, directory: &Path) -> Result<()> {
    let step = ProgressStep::begin("write man pages and completions");
    let mut manual = Command::new(product::build_manual_example(workspace)?);
    command::visibly(manual.current_dir(workspace.root()).arg(directory).args(date(workspace)))?;
    step.done();
    Ok(())
}

/// The day of the latest commit, for the manual; none outside of a repository.
fn date(workspace: &Workspace) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%cs"]).current_dir(workspace.root()).stdin(Stdio::null());
    let date = command::quietly(&mut git).ok()?.trim().to_owned();
    (!date.is_empty()).then_some(date)
}
