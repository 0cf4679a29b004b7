//! The steps that need no virtual machine: their names, their order, how one is run.

use anyhow::Result;

use super::{dependencies, host, lint, tally::Tally};
use crate::{arch, progress::Step as Progress, workspace::Workspace};

/// One step by name.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    work: Work,
}

enum Work {
    /// Passes or fails as a whole.
    Whole(fn(&Workspace) -> Result<()>),
    /// The host's tests, counted one by one.
    HostTests,
}

const fn step(name: &'static str, about: &'static str, work: fn(&Workspace) -> Result<()>) -> Step {
    Step { name, about, work: Work::Whole(work) }
}

/// All steps, quick ones first.
pub(super) const STEPS: &[Step] = &[
    step("format", "rustfmt has nothing to change", lint::format),
    step("arch", "the invariants of ARCHITECTURE.md", |workspace| arch::run(workspace.root())),
    step("deny", "licences, duplicates and sources of the dependencies", dependencies::deny),
    step("lint", "clippy without a warning: with and without bpf, and in the kernel side", lint::clippy),
    step("fuzz", "the fuzz targets compile without a warning", lint::fuzz),
    step("without-bpf", "the product without its kernel side builds, and says so", lint::without_bpf),
    Step { name: "host", about: "every test that runs on this host", work: Work::HostTests },
];

/// Steps whose name begins with `prefix`.
pub(super) fn matching(prefix: &str) -> Vec<&'static Step> {
    STEPS.iter().filter(|step| step.name.starts_with(prefix)).collect()
}

/// Runs one step and counts it; only a broken machine is an error.
pub(super) fn run(workspace: &Workspace, step: &Step, tally: &mut Tally) -> Result<()> {
    let work = match step.work {
        Work::Whole(work) => work,
        Work::HostTests => return host::run(workspace, None, tally),
    };
    let progress = Progress::begin(step.name);
    let outcome = work(workspace);
    match &outcome {
        Ok(()) => progress.done(),
        Err(error) => {
            drop(progress);
            println!("{}: {error:#}", step.name);
        }
    }
    tally.count(step.name, outcome.is_ok());
    Ok(())
}
