//! Scenarios: one virtual machine each.
//!
//! The list comes from the program that runs inside the guest, so no scenario can be forgotten here.
//! A failed assertion or a broken kernel is a failure at once; a guest that stalled is tried once
//! more, because a starved host is no verdict on the product.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::tally::Tally;
use crate::{
    command,
    product::{self, Profile},
    setup::{self, Rig},
    vm::{
        Ending, Guest, inject_image,
        topology::{self, Topology},
    },
    workspace::Workspace,
};

/// Boots of a scenario whose guest stalls.
const TRIES: u32 = 2;

/// A scenario, as `scenario list --json` tells it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scenario {
    pub(super) name: String,
    pub(super) topology: String,
    kernel_arguments: String,
    limit_seconds: u64,
    needs_product: bool,
    pub(super) only_by_name: bool,
    needs_kernel_side: bool,
}

/// The program and what it can do.
pub(crate) struct Scenarios {
    program: PathBuf,
    all: Vec<Scenario>,
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

    /// Scenarios whose name begins with `prefix`.
    pub(crate) fn matching(&self, prefix: &str) -> Vec<&Scenario> {
        self.all.iter().filter(|scenario| scenario.name.starts_with(prefix)).collect()
    }

    /// Runs scenarios one after another and counts them.
    pub(crate) fn run(
        &self,
        workspace: &Workspace,
        chosen: &[&Scenario],
        profile: Profile,
        tally: &mut Tally,
    ) -> Result<()> {
        let rig = setup::rig(workspace)?;
        let scratch = tempfile::tempdir().context("create a scratch folder")?;
        let mut files = vec![(self.program.clone(), "scenario")];
        if chosen.iter().any(|scenario| scenario.needs_product) {
            files.push((product::build(workspace, profile)?, "numa-enforcer"));
        }
        if chosen.iter().any(|scenario| scenario.needs_kernel_side) {
            files.push((product::build_kernel_side_tests(workspace)?, "kernel-side"));
        }
        let inject = scratch.path().join("inject");
        fill(&scratch.path().join("files"), &files, workspace)
            .and_then(|folder| inject_image(&folder, &inject))
            .context("make the disk of files for the guests")?;
        for scenario in chosen {
            let topology = Topology::load(&workspace.topologies(), &scenario.topology)?;
            let passed = boot(&rig, &inject, &topology, scenario)?;
            tally.count(&scenario.name, passed);
        }
        Ok(())
    }
}

/// The folder that guests see at `/inject`: programs without symbols, topologies as JSON.
fn fill(folder: &Path, programs: &[(PathBuf, &str)], workspace: &Workspace) -> Result<PathBuf> {
    fs::create_dir_all(folder.join("topologies"))?;
    for (program, name) in programs {
        let to = folder.join(name);
        command::quietly(Command::new("strip").arg("-o").arg(&to).arg(program))?;
    }
    let shipped = workspace.topologies();
    for name in topology::names(&shipped)? {
        let json = serde_json::to_vec(&Topology::load(&shipped, &name)?)?;
        fs::write(folder.join("topologies").join(format!("{name}.json")), json)?;
    }
    Ok(folder.to_owned())
}

/// One scenario: true if it passed.
fn boot(rig: &Rig, inject: &Path, topology: &Topology, scenario: &Scenario) -> Result<bool> {
    let name = &scenario.name;
    for attempt in 1..=TRIES {
        let started = Instant::now();
        println!("{name}: boot on {}", scenario.topology);
        let guest = Guest {
            rig,
            topology,
            kernel_arguments: &scenario.kernel_arguments,
            inject,
            job: &format!("exec /inject/scenario run {name}"),
            limit: Duration::from_secs(scenario.limit_seconds),
            snapshot: None,
        };
        let report = guest.run(&mut |line| println!("{name}: {line}"))?;
        let seconds = started.elapsed().as_secs_f64();
        let why = match report.ending {
            Ending::Exited(0) => {
                println!("{name}: passed in {seconds:.1} s");
                return Ok(true);
            }
            Ending::Exited(status) => format!("failed with status {status}"),
            Ending::Broken(ref line) => format!("the kernel broke: {line}"),
            Ending::Stalled(ref line) => format!("stalled: {line}"),
        };
        println!("{name}: {why} after {seconds:.1} s; the end of its console:\n{}", report.console);
        if !matches!(report.ending, Ending::Stalled(_)) {
            return Ok(false);
        }
        if attempt < TRIES {
            println!("{name}: once more, the guest stalled");
        }
    }
    Ok(false)
}
