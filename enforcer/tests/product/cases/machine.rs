//! Where the CPUs and nodes of a case's machine are, to say in which nodes a container has its CPUs.

use std::{fs, path::PathBuf};

use numa_topology::{
    Topology,
    set::{CpuSet, NodeSet},
    synth,
};

use super::state::Ids;

/// The machine of a case.
pub(crate) struct CaseMachine {
    topology: Topology,
    file: Option<PathBuf>,
    line: String,
}

impl CaseMachine {
    /// By its line or its name.
    pub(crate) fn find(text: &str) -> Result<Self, String> {
        let line = text.to_owned();
        if text.contains(':') {
            let built = text.parse::<synth::Machine>().map_err(|error| error.to_string())?;
            return Ok(Self { topology: built.build(), file: None, line });
        }
        let file = super::folder().join("machines").join(format!("{text}.json"));
        let json = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let topology = serde_json::from_str(&json).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self { topology, file: Some(file), line })
    }

    /// Arguments of `plan` that name it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        match &self.file {
            Some(file) => vec!["--topology".to_owned(), file.to_string_lossy().into_owned()],
            None => vec!["--synthetic".to_owned(), self.line.clone()],
        }
    }

    /// Nodes that have one of the CPUs.
    pub(crate) fn nodes(&self, cpus: &CpuSet) -> Ids {
        let nodes = self.topology.nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus));
        nodes.map(|node| node.id.0).collect()
    }

    /// Packages that have one of the CPUs.
    pub(crate) fn packages(&self, cpus: &CpuSet) -> Ids {
        let packages = self.topology.packages.iter().zip(0..);
        packages.filter(|(package, _)| !package.cpus.is_disjoint(cpus)).map(|(_, index)| index).collect()
    }

    /// Last-level caches of the CPUs.
    pub(crate) fn caches(&self, cpus: &CpuSet) -> Ids {
        let caches = self.topology.llcs.iter().zip(0..);
        caches.filter(|(cache, _)| !cache.cpus.is_disjoint(cpus)).map(|(_, index)| index).collect()
    }

    /// Cores of the CPUs, each by its first thread.
    pub(crate) fn cores(&self, cpus: &CpuSet) -> Ids {
        let threads = self.topology.cpus.iter().filter(|cpu| cpus.contains(cpu.id));
        threads.map(|cpu| cpu.siblings.first().map_or(cpu.id.0, |first| first.0)).collect()
    }

    /// Nodes with CPUs that the nodes are, or are closest to.
    pub(crate) fn homes(&self, nodes: &NodeSet) -> Ids {
        nodes
            .iter()
            .flat_map(|id| self.topology.near_cpu_nodes(id).iter().collect::<Vec<_>>())
            .map(|id| id.0)
            .collect()
    }
}
