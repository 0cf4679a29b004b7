//! The disks that guests see at `/inject`: what their scenarios run and read, one for each architecture.
//!
//! Without that of this machine nothing plays. Without another one, the scenarios fail that need it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow, ensure};

use super::{matrix::Play, scenario::Scenarios};
use crate::{
    architecture::Architecture,
    command,
    dist::TrialRelease,
    product::{self, BuildProfile},
    setup,
    vm::{
        inject_image,
        topology::{self, GuestTopology},
    },
    workspace::Workspace,
};

/// A program of this machine or of a guest, and the name under which guests find it.
type NamedProgram = (PathBuf, &'static str);

/// Disks by architecture, or why there is none.
pub(super) struct InjectedDisks(Vec<(Architecture, Result<PathBuf>)>);

impl InjectedDisks {
    /// Makes those that some plays need, in a folder.
    pub(super) fn make(
        scenarios: &Scenarios,
        workspace: &Workspace,
        plays: &[Play],
        profile: BuildProfile,
        scratch: &Path,
    ) -> Result<Self> {
        let mut disks = Vec::new();
        for architecture in [Architecture::Amd64, Architecture::Arm64] {
            let its: Vec<_> =
                plays.iter().filter(|play| play.parts.architecture == architecture).copied().collect();
            if its.is_empty() {
                continue;
            }
            let place = scratch.join(architecture.debian());
            let disk = if architecture.is_native() {
                Ok(native(scenarios, workspace, &its, profile, &place)?)
            } else {
                foreign(workspace, architecture, &its, profile, &place)
            };
            disks.push((architecture, disk));
        }
        Ok(Self(disks))
    }

    /// The one for guests of an architecture.
    pub(super) fn of(&self, architecture: Architecture) -> Result<&Path> {
        let (_, disk) = self.0.iter().find(|(known, _)| *known == architecture).context("an unused disk")?;
        disk.as_deref().map_err(|error| anyhow!("nothing for guests of {}: {error:#}", architecture.debian()))
    }
}

/// The disk for guests of this machine's architecture.
fn native(
    scenarios: &Scenarios,
    workspace: &Workspace,
    plays: &[Play],
    profile: BuildProfile,
    place: &Path,
) -> Result<PathBuf> {
    let some = |needs: fn(&Play) -> bool| plays.iter().any(needs);
    let mut programs: Vec<NamedProgram> = vec![(scenarios.program().to_owned(), "scenario")];
    if some(|play| play.scenario.needs_product) {
        programs.push((product::build(workspace, profile)?, "numa-enforcer"));
    }
    if some(|play| play.scenario.needs_kernel_side) {
        programs.push((product::build_kernel_side_tests(workspace)?, "kernel-side"));
    }
    if some(|play| play.scenario.needs_prometheus) {
        programs.push((setup::prometheus(workspace)?.server(), "prometheus"));
    }
    let folder = gather(place, &programs, Architecture::native()?, workspace)?;
    let product = folder.join("numa-enforcer");
    if some(|play| play.scenario.needs_package) {
        TrialRelease::of(workspace, &product)?.packages(&folder)?;
    }
    if some(|play| play.scenario.needs_image) {
        TrialRelease::of(workspace, &product)?.image(&folder)?;
    }
    image(&folder, place)
}

/// The disk for guests of another architecture.
fn foreign(
    workspace: &Workspace,
    architecture: Architecture,
    plays: &[Play],
    profile: BuildProfile,
    place: &Path,
) -> Result<PathBuf> {
    let is_possible = |play: &Play| {
        let needs = play.scenario;
        !needs.needs_prometheus && !needs.needs_package && !needs.needs_image
    };
    ensure!(plays.iter().all(is_possible), "there is no Prometheus, package and image for guests of it");
    let built = product::build_foreign(workspace, architecture, profile)?;
    let mut programs: Vec<NamedProgram> =
        vec![(built.scenarios, "scenario"), (built.product, "numa-enforcer")];
    if plays.iter().any(|play| play.scenario.needs_kernel_side) {
        let tests = product::build_foreign_kernel_side_tests(workspace, architecture)?;
        programs.push((tests, "kernel-side"));
    }
    image(&gather(place, &programs, architecture, workspace)?, place)
}

fn image(folder: &Path, place: &Path) -> Result<PathBuf> {
    let image = place.join("inject");
    inject_image(folder, &image).context("make the disk of files for the guests")?;
    Ok(image)
}

/// Programs without symbols, rules of Prometheus, topologies as JSON; returns their folder.
fn gather(
    place: &Path,
    programs: &[NamedProgram],
    architecture: Architecture,
    workspace: &Workspace,
) -> Result<PathBuf> {
    let folder = place.join("files");
    fs::create_dir_all(folder.join("topologies"))?;
    for (program, name) in programs {
        let mut strip = Command::new(architecture.gnu("strip"));
        command::quietly(strip.arg("-o").arg(folder.join(name)).arg(program))?;
    }
    fs::create_dir(folder.join("rules"))?;
    for name in ["parameters.yml", "recording.yml", "alerts.yml"] {
        fs::copy(workspace.root().join("deploy/prometheus").join(name), folder.join("rules").join(name))?;
    }
    let shipped = workspace.topologies();
    for name in topology::names(&shipped)? {
        let json = serde_json::to_vec(&GuestTopology::load(&shipped, &name)?)?;
        fs::write(folder.join("topologies").join(format!("{name}.json")), json)?;
    }
    Ok(folder)
}
