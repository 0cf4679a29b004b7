//! `cargo xtask test`: every check and test, and a count that is honest.
//!
//! Order: what fails fastest first. Each step runs even if one before it failed, so that one run tells
//! everything; the exit status is the verdict. A step, a test of the host and a scenario count one
//! each. Nothing is skipped silently: what cannot run fails.

mod libtest;
mod scenario;
mod steps;
mod tally;

use std::process::ExitCode;

use anyhow::Result;

pub(crate) use self::{scenario::Scenarios, tally::Tally};
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
}

/// Runs what was asked for; the last line is `N passed, N failed`.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode> {
    setup::build_tools(workspace)?;
    let scenarios = scenario::Scenarios::build(workspace)?;
    if arguments.list {
        return list(workspace, &scenarios);
    }
    let mut tally = Tally::default();
    let prefix = arguments.name.as_deref().unwrap_or_default();
    let steps = steps::matching(prefix);
    let mut chosen = scenarios.matching(prefix);
    chosen.retain(|scenario| !(prefix.is_empty() && scenario.only_by_name));
    if steps.is_empty() && chosen.is_empty() {
        steps::host_tests(workspace, Some(prefix), &mut tally)?;
    }
    for step in steps {
        steps::run(workspace, step, &mut tally)?;
    }
    if !chosen.is_empty() {
        scenarios.run(workspace, &chosen, Profile::Dev, &mut tally)?;
    }
    tally.print();
    Ok(tally.exit_code())
}

fn list(workspace: &Workspace, scenarios: &scenario::Scenarios) -> Result<ExitCode> {
    for step in steps::STEPS {
        println!("{:34} {}", step.name, step.about);
    }
    for scenario in scenarios.matching("") {
        let when = if scenario.only_by_name { ", only by name" } else { "" };
        println!("{:34} scenario on {}{when}", scenario.name, scenario.topology);
    }
    for test in steps::list_host_tests(workspace)? {
        println!("{test}");
    }
    Ok(ExitCode::SUCCESS)
}
