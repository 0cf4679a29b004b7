//! `cargo xtask test`: every check and test, and a count that is honest.
//!
//! Order: what fails fastest first. Each step runs even if one before it failed, so that one run tells
//! everything; the exit status is the verdict. A step, a test of the host, a conformance vector and a
//! scenario count one each. Nothing is skipped silently: what cannot run fails.

mod attempt;
mod conformance;
mod dependencies;
mod host;
mod libtest;
mod lint;
mod resume;
mod scenario;
mod steps;
mod tally;

use std::process::ExitCode;

use anyhow::Result;

pub(crate) use self::{
    scenario::{Options, Scenarios},
    tally::Tally,
};
use crate::{product::Profile, setup, workspace::Workspace};

/// Arguments of `test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A step, a scenario or a group of scenarios by the beginning of its name (`correct-`);
    /// any other name filters the tests of the host
    name: Option<String>,
    /// List everything that would run, and stop
    #[arg(long)]
    list: bool,
    /// Boot the guest of every scenario; without it, scenarios that share a machine resume one
    #[arg(long)]
    cold: bool,
}

/// Runs what was asked for; the last line is `N passed, N failed`.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list {
        return list(workspace);
    }
    let mut tally = Tally::default();
    if let Err(error) = run_matching(workspace, arguments, &mut tally) {
        println!("{error:#}");
        tally.count("not everything could run", false);
    }
    tally.print();
    Ok(tally.exit_code())
}

fn run_matching(workspace: &Workspace, arguments: &Arguments, tally: &mut Tally) -> Result<()> {
    let name = arguments.name.as_deref();
    setup::build_tools(workspace)?;
    let scenarios = Scenarios::build(workspace)?;
    let prefix = name.unwrap_or_default();
    let steps = steps::matching(prefix);
    let mut chosen = scenarios.matching(prefix);
    chosen.retain(|scenario| name == Some(scenario.name.as_str()) || !scenario.only_by_name);
    if steps.is_empty() && chosen.is_empty() {
        host::run(workspace, name, tally)?;
        if tally.is_empty() {
            println!("no step, scenario or test is called {prefix}; see `cargo xtask test --list`");
        }
        return Ok(());
    }
    for step in steps {
        steps::run(workspace, step, tally);
    }
    if chosen.is_empty() {
        return Ok(());
    }
    let options = Options { profile: Profile::Dev, cold: arguments.cold };
    scenarios.run(workspace, &chosen, options, tally, &mut |_| ())
}

fn list(workspace: &Workspace) -> Result<ExitCode> {
    setup::build_tools(workspace)?;
    for step in steps::STEPS {
        println!("{:34} {}", step.name, step.about);
    }
    for scenario in Scenarios::build(workspace)?.matching("") {
        let when = if scenario.only_by_name { ", only by name" } else { "" };
        println!("{:34} scenario on {}{when}", scenario.name, scenario.topology);
    }
    for test in host::names(workspace)? {
        println!("{test}");
    }
    Ok(ExitCode::SUCCESS)
}
