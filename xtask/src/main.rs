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
mod architecture;
mod bench;
mod chart;
mod command;
mod containerd;
mod dist;
mod docs;
mod guest_parts;
mod notes;
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
struct XtaskArguments {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Install and download everything that the other commands need
    Setup,
    /// Build the product with its kernel side
    #[command(alias = "build-ebpf")]
    Build,
    /// Build the product and run it on this host; without ARGS the daemon in observe mode
    Run(run::RunArguments),
    /// Run every check and test, those in virtual machines included
    Test(test::TestArguments),
    /// Keep new recordings of scenarios, of `test --record DIR`, in tests/fixtures/recordings
    Recordings(recordings::RecordingsArguments),
    /// Boot a virtual machine with a NUMA topology and run a command or a shell in it
    Vm(vm::command::VmArguments),
    /// Make what is released, below target/dist: binary, Debian package, image, chart, manifests, checksums
    Dist(dist::DistArguments),
    /// Print the section of CHANGELOG.md about this version
    Notes(notes::NotesArguments),
    /// Measure the numbers of SPECIFICATION.md
    Bench(bench::BenchArguments),
    /// Check the invariants of ARCHITECTURE.md
    Arch,
    /// Lint the Helm chart, and write the presets for kustomize from it
    Chart,
    /// Write the man pages, the completions of shells and, with mdBook, the book of docs/ below target/docs
    Docs,
}

fn main() -> ExitCode {
    let outcome = Workspace::find().and_then(|workspace| match XtaskArguments::parse().command {
        XtaskCommand::Setup => setup::everything(&workspace).map(|()| ExitCode::SUCCESS),
        XtaskCommand::Build => product::build_ebpf(&workspace).map(|()| ExitCode::SUCCESS),
        XtaskCommand::Run(arguments) => run::run(&workspace, &arguments),
        XtaskCommand::Test(arguments) => test::run(&workspace, &arguments),
        XtaskCommand::Recordings(arguments) => {
            recordings::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS)
        }
        XtaskCommand::Vm(arguments) => vm::command::run(&workspace, &arguments),
        XtaskCommand::Dist(arguments) => dist::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
        XtaskCommand::Notes(arguments) => notes::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
        XtaskCommand::Bench(arguments) => bench::run(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
        XtaskCommand::Arch => arch::run(workspace.root()).map(|()| ExitCode::SUCCESS),
        XtaskCommand::Chart => chart::run(&workspace).map(|()| ExitCode::SUCCESS),
        XtaskCommand::Docs => docs::run(&workspace).map(|()| ExitCode::SUCCESS),
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
