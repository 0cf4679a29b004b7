//! `cargo xtask`: what people and CI type.
//!
//! Two commands take a fresh machine to a running product (`run`) and to a verdict on a change
//! (`test`); the others are parts of these two. Everything that is downloaded or built goes under
//! `target/`, so `cargo clean` and a fresh clone are the same thing.
//!
//! Invariants: outside `target/` it touches the machine only by `apt-get install` of packages that it names
//! first, and it needs no mirror, path or account of one particular machine.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod arch;
mod bench;
mod command;
mod containerd;
mod docs;
mod product;
mod progress;
mod recordings;
mod run;
mod series;
mod setup;
mod stdout;
mod test;
mod userland;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Build, run and test numa-enforcer.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install and download everything that the other commands need
    Setup,
    /// Build the product with its kernel side
    BuildEbpf,
    /// Build the product and run it on this host; without ARGS the daemon in observe mode
    Run(run::Arguments),
    /// Run every check and test, those in virtual machines included
    Test(test::Arguments),
    /// Keep new recordings of scenarios, of `test --record DIR`, in tests/fixtures/recordings
    Recordings(recordings::Arguments),
    /// Boot a virtual machine with a NUMA topology and run a command or a shell in it
    Vm(vm::command::Arguments),
    /// Measure the numbers of SPECIFICATION.md
    Bench(bench::Arguments),
    /// Check the invariants of ARCHITECTURE.md
    Arch,
    /// Write the man pages, the completions of shells and, with mdBook, the book of docs/ below target/docs
    Docs,
}

fn main() -> ExitCode {
    let outcome = Workspace::find().and_then(|workspace| match Arguments::parse().command {
        Command::Setup => setup::everything(&workspace).map(|()| ExitCode::SUCCESS),
        Command::BuildEbpf => product::build_ebpf(&workspace).map(|()| ExitCode::SUCCESS),
        Command::Run(arguments) => run::run(&workspace, &arguments),
        Command::Test(arguments) => test::run(&workspace, &arguments),
        Command::Recordings(arguments) => recordings::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
        Command::Vm(arguments) => vm::command::run(&workspace, &arguments),
        Command::Bench(arguments) => bench::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
        Command::Arch => arch::run(workspace.root()).map(|()| ExitCode::SUCCESS),
        Command::Docs => docs::run(&workspace).map(|()| ExitCode::SUCCESS),
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
