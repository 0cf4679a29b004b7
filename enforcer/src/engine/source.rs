//! Where the engine's facts come from.

use std::{collections::BTreeMap, fmt};

use enforcer_core::{
    audit::Host,
    degraded::Degraded,
    sample::Sample,
    set::NodeSet,
    topology::Topology,
    workload::{CgroupPath, Workload},
};
use thiserror::Error;

use crate::{
    discover::{host_facts::read_host, topology::read_topology, workloads::read_workloads},
    host::{HostRoot, cgroup::CgroupLayout},
    observe::{Sampler, SamplerOptions},
};

/// What one look gives: workloads, what could not be seen of them, and the sample.
pub(super) type Seen = (Vec<Workload>, Vec<Degraded>, Sample);

/// A source without which there is nothing to report.
#[derive(Debug, Error)]
#[error("{what}: {cause}")]
pub struct SourceError {
    what: &'static str,
    cause: String,
}

impl SourceError {
    /// `what` is missing because of `cause`.
    pub fn new(what: &'static str, cause: &dyn fmt::Display) -> Self {
        Self { what, cause: cause.to_string() }
    }
}

/// A host, live or recorded.
pub trait Source {
    /// Which host it is.
    fn host(&self) -> Host;
    /// The machine.
    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError>;
    /// What runs on it.
    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError>;
    /// Where workloads should run, for what is counted from now on.
    fn aim(&mut self, aims: &BTreeMap<CgroupPath, NodeSet>);
    /// Makes room for what may be told between two samples.
    fn drain(&mut self);
    /// What it is doing; what is missing is in the sample's own list.
    fn sample(&mut self, workloads: &[Workload], now_ns: u64) -> Sample;
}

/// The files and BPF programs of a host.
pub struct LiveSource {
    host: HostRoot,
    layout: CgroupLayout,
    options: SamplerOptions,
    /// Made with the first topology: the programs need to know which CPU is on which node.
    sampler: Option<Sampler>,
}

impl LiveSource {
    /// Looks at `host`.
    pub fn new(host: HostRoot, layout: CgroupLayout, options: SamplerOptions) -> Self {
        Self { host, layout, options, sampler: None }
    }
}

impl Source for LiveSource {
    fn host(&self) -> Host {
        read_host(&self.host, &self.layout)
    }

    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError> {
        let (machine, degraded) =
            read_topology(&self.host).map_err(|error| SourceError::new("topology", &error))?;
        if let Some(sampler) = &mut self.sampler {
            sampler.follow(&machine);
        } else {
            let options = self.options.clone();
            self.sampler = Some(Sampler::new(&self.host, self.layout.clone(), &machine, options));
        }
        Ok((machine, degraded))
    }

    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError> {
        read_workloads(&self.host, &self.layout).map_err(|error| SourceError::new("workloads", &error))
    }

    fn aim(&mut self, aims: &BTreeMap<CgroupPath, NodeSet>) {
        if let Some(sampler) = &mut self.sampler {
            sampler.aim(aims);
        }
    }

    fn drain(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.drain();
        }
    }

    fn sample(&mut self, workloads: &[Workload], now_ns: u64) -> Sample {
        match &mut self.sampler {
            Some(sampler) => sampler.sample(workloads, now_ns),
            None => Sample { monotonic_ns: now_ns, ..Sample::default() },
        }
    }
}
