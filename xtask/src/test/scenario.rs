//! Scenarios: one virtual machine each, several at a time, on one kernel or more (matrix.rs).
//!
//! The list comes from the program that runs inside the guest, so no scenario can be forgotten here.
//! Each line carries the name of its scenario, and is printed whole by one thread.

use std::{
    collections::HashMap,
    mem,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{
    api_front::ApiPrograms, attempt, injected::InjectedDisks, matrix::Play, recording::Collected,
    resume::SnapshotResume, rigs::Rigs, tally::TestTally, why::Why,
};
use crate::{
    command,
    product::{self, BuildProfile},
    setup,
    vm::{Guest, topology::GuestTopology},
    workspace::Workspace,
};

/// Most guests at a time: each takes up to 2.5 GiB of memory.
const MOST_GUESTS: usize = 4;

/// A scenario, as `scenario list --json` tells it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub(crate) struct ListedScenario {
    pub(super) name: String,
    pub(super) topology: String,
    pub(super) kernel_arguments: String,
    limit_seconds: u64,
    pub(super) needs_product: bool,
    pub(super) only_by_name: bool,
    pub(super) needs_kernel_side: bool,
    pub(super) needs_containerd: bool,
    pub(super) needs_systemd: bool,
    pub(super) needs_prometheus: bool,
    pub(super) needs_package: bool,
    pub(super) needs_image: bool,
    /// Does it reach an API server on this host?
    pub(super) needs_api: bool,
}

#[cfg(test)]
impl ListedScenario {
    /// One for tests.
    pub(super) fn example(name: &str, topology: &str, kernel_arguments: &str) -> Self {
        let json = serde_json::json!({
            "name": name, "topology": topology, "kernelArguments": kernel_arguments, "limitSeconds": 1,
            "needsProduct": false, "onlyByName": false, "needsKernelSide": false,
            "needsContainerd": false, "needsSystemd": false, "needsPrometheus": false,
            "needsPackage": false, "needsImage": false, "needsApi": false,
        });
        serde_json::from_value(json).unwrap()
    }

    /// The same with containers.
    pub(super) fn with_containers(self) -> Self {
        Self { needs_containerd: true, ..self }
    }
}

/// How a run of scenarios is done.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Of the product in the guest.
    pub(crate) profile: BuildProfile,
    /// Boot every guest, even if there is a snapshot.
    pub(crate) cold: bool,
    /// Folder for what daemons record.
    pub(crate) record: Option<PathBuf>,
    /// How often scenarios repeat what they repeat.
    pub(crate) runs: Option<usize>,
}

impl Options {
    /// Where what the daemons of a scenario decide is kept, if it has any.
    fn record_of(&self, scenario: &ListedScenario) -> Option<&Path> {
        self.record.as_deref().filter(|_| scenario.needs_product)
    }

    /// As the program in the guest takes them.
    fn arguments(&self, scenario: &ListedScenario) -> String {
        let record = if self.record_of(scenario).is_some() { " --record" } else { "" };
        self.runs.map_or_else(|| record.to_owned(), |runs| format!("{record} --runs {runs}"))
    }
}

/// The program and what it can do.
pub(crate) struct Scenarios {
    program: PathBuf,
    all: Vec<ListedScenario>,
}

/// What a running scenario tells.
enum Event<'a> {
    Line(&'a Play<'a>, String),
    Ended(&'a Play<'a>, bool),
}

impl Scenarios {
    /// The program itself.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Builds the program and asks it for the list.
    pub(crate) fn build(workspace: &Workspace) -> Result<Self> {
        let program = product::build_scenarios(workspace)?;
        let list = command::quietly(Command::new(&program).args(["list", "--json"]))?;
        let all = serde_json::from_str(&list).context("read the list of scenarios")?;
        Ok(Self { program, all })
    }

    /// Is there a scenario of this name that runs the product?
    pub(crate) fn has_product(&self, name: &str) -> bool {
        self.all.iter().any(|scenario| scenario.name == name && scenario.needs_product)
    }

    /// Scenarios with a name that begins with `prefix`.
    pub(crate) fn matching(&self, prefix: &str) -> Vec<&ListedScenario> {
        self.all.iter().filter(|scenario| scenario.name.starts_with(prefix)).collect()
    }

    /// Runs scenarios, as many at a time as there are CPUs, and counts them.
    ///
    /// Each line is printed, and handed to `on_line` without the scenario's name.
    pub(crate) fn run(
        &self,
        workspace: &Workspace,
        plays: &[Play],
        options: &Options,
        tally: &mut TestTally,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let rigs = Rigs::of(plays, |parts| setup::rig(workspace, parts))?;
        let plays = rigs.possible(plays, tally);
        let scratch = workspace.scratch()?;
        let disks = InjectedDisks::make(self, workspace, &plays, options.profile, scratch.path())?;
        let api = ApiPrograms::of(workspace, &plays);
        let resume = if options.cold {
            SnapshotResume::never()
        } else {
            SnapshotResume::new(workspace, rigs.qemu(), &plays)?
        };
        let next = AtomicUsize::new(0);
        let (sender, events) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..guests_at_a_time() {
                let sender = sender.clone();
                let (rigs, plays) = (&rigs, &plays);
                let (disks, next) = (&disks, &next);
                let set = GuestSet { workspace, rigs, disks, api: &api, resume: &resume };
                scope.spawn(move || {
                    while let Some(one) = plays.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mut say = |line: &str| {
                            // Fails only if the receiver is gone.
                            let _ = sender.send(Event::Line(one, line.to_owned()));
                        };
                        let arguments = &options.arguments(one.scenario);
                        let passed = match options.record_of(one.scenario) {
                            None => set.play(one, arguments, &mut say),
                            Some(folder) => {
                                let mut collected = Collected::default();
                                let mut say_or_keep = |line: &str| {
                                    if !collected.take(line) {
                                        say(line);
                                    }
                                };
                                let passed = set.play(one, arguments, &mut say_or_keep);
                                let kept = collected.write(folder, &one.name());
                                say(&kept.unwrap_or_else(|error| format!("no recording: {error:#}")));
                                passed
                            }
                        };
                        let _ = sender.send(Event::Ended(one, passed));
                    }
                });
            }
            drop(sender);
            let mut worth = HashMap::new();
            for event in events {
                match event {
                    Event::Line(play, line) => {
                        println!("{}: {line}", play.name());
                        on_line(&line);
                        let why: &mut Why = worth.entry(play.name()).or_default();
                        why.say(&line);
                    }
                    Event::Ended(play, passed) => {
                        let why = worth.remove(&play.name()).unwrap_or_default();
                        if passed {
                            tally.pass();
                        } else {
                            tally.fail(play.name(), why.text());
                        }
                    }
                }
            }
        });
        Ok(())
    }
}

/// Emulation keeps one CPU of this host busy, or more.
fn guests_at_a_time() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MOST_GUESTS)
}

/// What guests of a run are made of.
#[derive(Clone, Copy)]
struct GuestSet<'a> {
    workspace: &'a Workspace,
    rigs: &'a Rigs,
    disks: &'a InjectedDisks,
    api: &'a Result<Option<ApiPrograms>>,
    resume: &'a SnapshotResume<'a>,
}

impl GuestSet<'_> {
    /// One scenario on one kernel: true if it passed.
    fn play(&self, play: &Play, arguments: &str, say: &mut dyn FnMut(&str)) -> bool {
        let started = Instant::now();
        let scenario = play.scenario;
        let mut first = true;
        let boot = |say: &mut dyn FnMut(&str)| {
            let topology = GuestTopology::load(&self.workspace.topologies(), &scenario.topology)?;
            let api = scenario.needs_api.then(|| ApiPrograms::start_of(self.api)).transpose()?;
            let variable = api.as_ref().map(|api| format!("{} ", api.variable())).unwrap_or_default();
            let mut guest = Guest {
                rig: self.rigs.made_of(play.parts)?,
                topology: &topology,
                kernel_arguments: &scenario.kernel_arguments,
                inject: self.disks.of(play.parts.architecture)?,
                job: &format!("{variable}exec /inject/scenario run {}{arguments}", scenario.name),
                limit: Duration::from_secs(scenario.limit_seconds),
                has_network: scenario.needs_api,
                snapshot: None,
            };
            if mem::take(&mut first) {
                guest.snapshot = self.resume.snapshot(play, &guest, say);
            }
            let how = if guest.snapshot.is_some() { "resume" } else { "boot" };
            say(&format!("{how} on {}", scenario.topology));
            guest.run(say)
        };
        let passed = attempt::until_verdict(boot, say);
        let verdict = if passed { "passed" } else { "failed" };
        say(&format!("{verdict} in {:.1} s", started.elapsed().as_secs_f64()));
        passed
    }
}
