//! `cargo xtask test`: every check and test, and a count that is honest.
//!
//! Order: what fails fastest first. The tests of the host run beside the guests, which mostly wait for their
//! own clocks. Each step runs even if one before it failed, so that one run tells everything; the exit status
//! is the verdict. A step, a test of the host, a conformance vector and a
//! scenario count one each. Nothing is skipped silently: what cannot run fails,
//! except that outside CI a kernel or container runtime that cannot be fetched is skipped by name.

mod alerts;
mod api_front;
mod attempt;
mod bill;
mod burst;
mod chart;
mod conformance;
mod daemon;
mod dependencies;
mod dist;
mod emulated;
mod host;
mod injected;
mod kustomize;
mod libtest;
mod lint;
mod matrix;
mod page;
mod recording;
mod resume;
mod rigs;
mod scenario;
mod steps;
mod tally;
mod why;
mod workflows;

use std::{path::PathBuf, process::ExitCode, thread};

use anyhow::{Result, ensure};

use self::scenario::ListedScenario;
pub(crate) use self::{
    matrix::{AskedParts, plays},
    scenario::{Options, Scenarios},
    tally::TestTally,
};
use crate::{
    architecture::Architecture,
    containerd::ContainerdPackages,
    product::{self, BuildProfile},
    series::Kernels,
    setup, stdout,
    workspace::Workspace,
};

/// Arguments of `test`.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct TestArguments {
    /// A step, a scenario or a group of scenarios by the beginning of its name (`correct-`);
    /// any other name filters the tests of the host
    name: Option<String>,
    /// Play what is marked "only by name" too: of the group that is named, or of a whole run, as a nightly
    /// one
    #[arg(long)]
    all: bool,
    /// List everything that would run, and stop
    #[arg(long)]
    list: bool,
    /// Boot the guest of every scenario; without it, scenarios that share a machine resume one
    #[arg(long)]
    cold: bool,
    /// Put the product into guests as people get it, optimised; for scenarios that measure it
    #[arg(long)]
    release: bool,
    /// Kernels on which `eyes-*` and `degrade-*` play: `all`, or names as `vm --list` tells them (`6.1,7.2`);
    /// without it the default one, and a second one for `eyes-*`
    #[arg(long, value_name = "LIST")]
    kernels: Option<Kernels>,
    /// Line of containerd with which scenarios with containers play, as `vm --list` tells them
    #[arg(long, value_name = "LINE", default_value_t = ContainerdPackages::DEFAULT)]
    containerd: ContainerdPackages,
    /// Architecture of the guests of scenarios without containers and systemd; without it `arm64-*` plays on
    /// arm64, all others on amd64
    #[arg(long, value_enum)]
    arch: Option<Architecture>,
    /// Record what the daemons of scenarios decide, into DIR/NAME.rec (`cargo xtask recordings`)
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Runs of each case of a scenario that repeats them (`widen-matrix`); without it as many as the scenario
    /// says
    #[arg(long, value_name = "N", requires = "name")]
    runs: Option<usize>,
}

impl TestArguments {
    fn asked_parts(&self) -> AskedParts<'_> {
        AskedParts { architecture: self.arch, kernels: self.kernels.as_ref(), containerd: self.containerd }
    }
}

/// Runs what was asked for; the last line is `N passed, N failed`.
pub(crate) fn run(workspace: &Workspace, arguments: &TestArguments) -> Result<ExitCode> {
    if arguments.list {
        return list(workspace, arguments);
    }
    let mut tally = TestTally::default();
    if let Err(error) = run_matching(workspace, arguments, &mut tally) {
        tally.outcome("not everything could run", Err(error));
    }
    tally.print();
    Ok(tally.exit_code())
}

fn run_matching(workspace: &Workspace, arguments: &TestArguments, tally: &mut TestTally) -> Result<()> {
    let name = arguments.name.as_deref();
    setup::build_tools(workspace)?;
    // No scenario's name begins with that of a step, so none has to be built to tell its name.
    if let Some(step) = name.and_then(steps::named) {
        steps::run(workspace, step, tally);
        return Ok(());
    }
    if name.is_none() {
        build_and_fetch(workspace)?;
    }
    let scenarios = Scenarios::build(workspace)?;
    let prefix = name.unwrap_or_default();
    let plays = |one: &str, only_by_name: bool| arguments.all || name == Some(one) || !only_by_name;
    let matching_steps = steps::matching(prefix);
    let steps: Vec<_> =
        matching_steps.iter().copied().filter(|step| plays(step.name, step.only_by_name)).collect();
    let matching = scenarios.matching(prefix);
    let is_chosen = |scenario: &&&ListedScenario| plays(&scenario.name, scenario.only_by_name);
    let chosen: Vec<_> = matching.iter().filter(is_chosen).copied().collect();
    ensure!(
        !steps.is_empty() || !chosen.is_empty() || (matching.is_empty() && matching_steps.is_empty()),
        "all that {prefix} names plays only by its whole name, or with --all"
    );
    if steps.is_empty() && chosen.is_empty() {
        host::run(workspace, name, tally)?;
        if tally.is_empty() {
            println!("no step, scenario or test is called {prefix}; see `cargo xtask test --list`");
        }
        return Ok(());
    }
    let profile = if arguments.release { BuildProfile::Release } else { BuildProfile::Dev };
    let record = arguments.record.clone();
    let options = Options { profile, cold: arguments.cold, record, runs: arguments.runs };
    let played = matrix::plays(&chosen, arguments.asked_parts());
    thread::scope(|scope| {
        let mut beside = Vec::new();
        for step in steps {
            if step.beside_others {
                beside.push((step.name, scope.spawn(|| steps::tally_of(workspace, step))));
            } else {
                steps::run(workspace, step, tally);
            }
        }
        let guests = if played.is_empty() {
            Ok(())
        } else {
            scenarios.run(workspace, &played, &options, tally, &mut |_| ())
        };
        for (name, step) in beside {
            match step.join() {
                Ok(other) => tally.join(other),
                Err(_) => tally.fail(name, "its thread panicked"),
            }
        }
        guests
    })
}

/// Builds all of a whole run. Meanwhile its other parts are fetched and made, which is mostly waiting.
/// What is missing of them fails the steps that need it, which ask for it again.
fn build_and_fetch(workspace: &Workspace) -> Result<()> {
    thread::scope(|scope| {
        scope.spawn(|| setup::everything(workspace));
        product::build_all(workspace)
    })
}

fn list(workspace: &Workspace, arguments: &TestArguments) -> Result<ExitCode> {
    setup::build_tools(workspace)?;
    let mut lines: Vec<_> = steps::STEPS
        .iter()
        .map(|step| format!("{:34} {}{}", step.name, step.about, when(step.only_by_name)))
        .collect();
    let scenarios = Scenarios::build(workspace)?;
    for play in plays(&scenarios.matching(""), arguments.asked_parts()) {
        let when = when(play.scenario.only_by_name);
        let (name, topology, parts) = (play.name(), &play.scenario.topology, play.parts);
        lines.push(format!("{name:34} scenario on {topology}, {parts}{when}"));
    }
    lines.extend(host::names(workspace)?);
    stdout::lines(lines).map(|()| ExitCode::SUCCESS)
}

/// What the list says of something that a run leaves out.
fn when(only_by_name: bool) -> &'static str {
    if only_by_name { ", only by name" } else { "" }
}
