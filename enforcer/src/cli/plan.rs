//! `numa-enforcer plan`: what pods would get.
//!
//! The machine, the policy and the pods are read first, and whatever is wrong with them is said before
//! anything is placed; then the core plays the steps.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use enforcer_core::{
    cluster::device_claims::{ClaimBook, ClaimTrial, PlannedDriver},
    policy::{Policy, placement::PlacementSettings},
};
use numa_placement::{DeviceUnit, Inventory, trial};
use numa_topology::set::NodeSet;

use super::{Exit, UsageError, args, config_file, exit::of_input, machine, terminal};
use enforcer_report::{json, plan_table};
use enforcer_runtime::manifest::{Steps, read_devices, read_steps};

/// What is tried, and where.
pub(super) struct Options {
    inventory: Inventory,
    settings: PlacementSettings,
    steps: Steps,
    /// Claims of pods and the devices for them; `None` if no object of these is there.
    claims: Option<ClaimBook>,
    format: args::TableOrJson,
    explain: bool,
}

impl TryFrom<args::PlanArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::PlanArgs) -> anyhow::Result<Self> {
        let standard_input = |path: &&PathBuf| path.as_os_str() == "-";
        let inputs = args.pods.iter().chain(&args.steps).chain(&args.devices);
        if inputs.filter(standard_input).count() > 1 {
            return Err(UsageError("standard input (`-`) can be read only once".into()).into());
        }
        let policy = config_file::read(args.config.as_deref())?;
        let Policy { placement: settings, dra, .. } = policy.unwrap_or_default();
        let pods: Vec<&Path> = args.pods.iter().map(PathBuf::as_path).collect();
        let mut steps = read_steps(&pods, args.steps.as_deref()).map_err(of_input)?;
        let (machine, degraded) = machine::of(&args.machine)?;
        degraded.iter().for_each(terminal::note_degraded);
        let nodes: NodeSet = machine.nodes.iter().map(|node| node.id).collect();
        let mut devices: Vec<DeviceUnit> = Vec::new();
        for path in &args.devices {
            let read = read_devices(path, &nodes, &mut steps.objects).map_err(of_input)?;
            if !devices.is_empty() && !read.is_empty() {
                return Err(UsageError("one file of --devices may name devices by NUMA node".into()).into());
            }
            devices.extend(read);
        }
        let claims = (!steps.objects.is_empty()).then(|| {
            steps.count_claims();
            ClaimBook::new(std::mem::take(&mut steps.objects)).with_driver(PlannedDriver::from(&dra))
        });
        let inventory = Inventory::new(machine, devices, &settings).map_err(|error| {
            let file = args.config.as_deref().unwrap_or(Path::new("configuration"));
            UsageError(format!("{}: {error}", file.display()))
        })?;
        if let Some(absent) = inventory.absent_cpus(&settings) {
            terminal::note(&absent.to_string());
        }
        Ok(Self { inventory, settings, steps, claims, format: args.output, explain: args.explain })
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { inventory, settings, steps, claims, .. } = options;
    let report = match claims {
        Some(book) => ClaimTrial::new((inventory, settings), book.clone(), &steps.claims, options.explain)
            .map_err(|several| UsageError(several.to_string()))?
            .run(&steps.steps),
        None => trial::run(inventory, settings, &steps.steps, options.explain),
    };
    match options.format {
        args::TableOrJson::Table => plan_table::render(&report, terminal::style(), out)?,
        args::TableOrJson::Json => json::write(&report, out)?,
    }
    out.flush()?;
    steps.ignored.iter().for_each(|line| terminal::note(line));
    Ok(if report.all_admitted() { Exit::Ok } else { Exit::Rejected })
}
