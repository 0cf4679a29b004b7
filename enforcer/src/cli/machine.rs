//! Which machine a command is about: this host, a captured one, a saved topology, or one that is described.

use std::{fs::File, path::Path};

use anyhow::Context;
use numa_topology::{Topology, degraded::Degraded};

use super::{UsageError, args, root};
use enforcer_host::{read_within, topology::read_topology, written_text};

/// Largest saved topology; one of 1,024 nodes and 8,192 CPUs has some 10 MB.
const TOPOLOGY_LIMIT: u64 = 32 << 20;

/// The machine, and what of it could not be read.
pub(super) fn of(source: &args::MachineSource) -> anyhow::Result<(Topology, Vec<Degraded>)> {
    if let Some(line) = &source.synthetic {
        if line.cluster.is_some() {
            let said = "--synthetic: numbers of machines and settings of kubelets are for `plan --cluster`";
            return Err(UsageError(said.to_owned()).into());
        }
        return Ok((line.machine.clone().build(), Vec::new()));
    }
    if let Some(path) = &source.topology {
        return Ok((saved(path)?, Vec::new()));
    }
    Ok(read_topology(&root::resolve(source.root.as_deref())?)?)
}

/// What `topology -o json` has written.
fn saved(path: &Path) -> anyhow::Result<Topology> {
    let read = File::open(path).and_then(|file| read_within(file, TOPOLOGY_LIMIT)).and_then(written_text);
    let text = read.with_context(|| format!("reading {}", path.display()))?;
    let refused = |problem: String| UsageError(format!("{}{problem}", path.display()));
    let machine: Topology = serde_json::from_slice(text.as_bytes()).map_err(|error| {
        let said = error.to_string();
        let said = said.split(" at line ").next().unwrap_or("not JSON");
        refused(format!(":{}:{}: {said}", error.line(), error.column()))
    })?;
    machine.check().map_err(|problem| refused(format!(": {problem}")))?;
    Ok(machine)
}
