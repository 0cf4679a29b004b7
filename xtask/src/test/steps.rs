//! The steps that need no virtual machine: their names, their order, how one is run.

use anyhow::Result;

use super::{
    alerts, bill, burst, chart, conformance, dependencies, dist, emulated, host, lint, page,
    tally::TestTally, workflows,
};
use crate::{arch, progress::ProgressStep as Progress, workspace::Workspace};

/// One step by name.
pub(super) struct TestStep {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Left out of a run that does not name it.
    pub(super) only_by_name: bool,
    /// Runs beside the steps after it, and beside the guests.
    pub(super) beside_others: bool,
    work: Work,
}

enum Work {
    /// Passes or fails as a whole.
    Whole(fn(&Workspace) -> Result<()>),
    /// Counts its parts one by one.
    Parts(fn(&Workspace, &mut TestTally) -> Result<()>),
}

const fn step(name: &'static str, about: &'static str, work: fn(&Workspace) -> Result<()>) -> TestStep {
    TestStep { name, about, only_by_name: false, beside_others: false, work: Work::Whole(work) }
}

const fn parts(
    name: &'static str,
    about: &'static str,
    work: fn(&Workspace, &mut TestTally) -> Result<()>,
) -> TestStep {
    TestStep { name, about, only_by_name: false, beside_others: false, work: Work::Parts(work) }
}

impl TestStep {
    const fn only_by_name(self) -> Self {
        Self { only_by_name: true, ..self }
    }

    const fn beside_others(self) -> Self {
        Self { beside_others: true, ..self }
    }
}

/// All steps, quick ones first.
pub(super) const STEPS: &[TestStep] = &[
    step("format", "rustfmt has nothing to change", lint::format),
    step("arch", "the invariants of ARCHITECTURE.md", |workspace| arch::run(workspace.root())),
    step("workflows", "workflows of GitHub without an error: syntax, permissions, pins", workflows::lint),
    step("bill", "the bill of materials of a release against the schema of CycloneDX", bill::run),
    step("deny", "licences, duplicates and sources of the dependencies", dependencies::deny),
    step(
        "lint",
        "clippy without a warning: everything, fuzz targets, kernel side; links of the libraries",
        lint::clippy,
    ),
    step(
        "without-bpf",
        "the product without its kernel side builds without a warning, and says so",
        lint::without_bpf,
    ),
    parts(
        "conformance",
        "the vectors of the reference implementations, and those of CONFORMANCE_DIR",
        conformance::run,
    ),
    parts(
        "alerts",
        "promtool on the rules, their tests, and the metrics of an audit and a daemon",
        alerts::run,
    ),
    parts(
        "chart",
        "Helm on the chart: lint, the presets that are rendered from it, values that are refused",
        chart::run,
    ),
    parts(
        "scheduler-burst",
        "bursts of pods: kubelets refuse some that kube-scheduler places alone, and none with the product",
        burst::run,
    ),
    parts("host", "every test that runs on this host", |workspace, tally| host::run(workspace, None, tally))
        .beside_others(),
    parts(
        "page",
        "the pages of 2,000 containers on 64 nodes, of a daemon and of a guest, in headless Chromium",
        page::run,
    ),
    parts(
        "emulated",
        "the product for arm64 under QEMU says of captured machines what that of this machine says",
        emulated::run,
    )
    .only_by_name(),
    parts("dist", "a release made in two folders has the same bytes; takes two release builds", dist::run)
        .only_by_name(),
];

/// The step of exactly this name.
pub(super) fn named(name: &str) -> Option<&'static TestStep> {
    STEPS.iter().find(|step| step.name == name)
}

/// Steps with a name that begins with `prefix`.
pub(super) fn matching(prefix: &str) -> Vec<&'static TestStep> {
    STEPS.iter().filter(|step| step.name.starts_with(prefix)).collect()
}

/// Runs one step, and counts what it did.
pub(super) fn tally_of(workspace: &Workspace, step: &TestStep) -> TestTally {
    let mut tally = TestTally::default();
    run(workspace, step, &mut tally);
    tally
}

/// Runs one step and counts it.
pub(super) fn run(workspace: &Workspace, step: &TestStep, tally: &mut TestTally) {
    let outcome = match step.work {
        Work::Whole(work) => whole(workspace, step.name, work, tally),
        Work::Parts(work) => work(workspace, tally),
    };
    if let Err(error) = outcome {
        tally.outcome(step.name, Err(error));
    }
}

fn whole(
    workspace: &Workspace,
    name: &str,
    work: fn(&Workspace) -> Result<()>,
    tally: &mut TestTally,
) -> Result<()> {
    let progress = Progress::begin(name);
    work(workspace)?;
    progress.done();
    tally.pass();
    Ok(())
}
