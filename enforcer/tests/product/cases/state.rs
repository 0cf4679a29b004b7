//! What every container has after the steps so far.

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::{
    ContainerKind,
    trial::{ContainerReport, StepKind, StepReport},
};
use numa_topology::set::CpuSet;

use super::machine::CaseMachine;

/// Any ids: CPUs, nodes, cores.
pub(crate) type Ids = BTreeSet<u32>;

/// Containers by `namespace/pod/container`, as they are now.
pub(crate) struct State<'a> {
    machine: &'a CaseMachine,
    containers: BTreeMap<String, ContainerReport>,
}

/// A value of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    Ids(Ids),
    Text(String),
}

impl<'a> State<'a> {
    pub(crate) fn new(machine: &'a CaseMachine) -> Self {
        Self { machine, containers: BTreeMap::new() }
    }

    /// Takes in what a step reports.
    pub(crate) fn apply(&mut self, step: &StepReport) -> Result<(), String> {
        if !step.admitted {
            return Ok(());
        }
        let of_pod = format!("{}/", step.pod);
        if matches!(step.action, StepKind::Create | StepKind::Delete) {
            self.containers.retain(|name, _| !name.starts_with(&of_pod));
        }
        for container in &step.containers {
            self.containers.insert(format!("{of_pod}{}", container.name), container.clone());
        }
        for update in &step.updates {
            let told = self.containers.get_mut(&update.container);
            let told =
                told.ok_or_else(|| format!("an update for {}, which is not there", update.container))?;
            if let Some(cpus) = &update.cpus {
                told.shared_cpus = cpus.difference(&told.exclusive_cpus);
                told.cpus = cpus.clone();
            }
            if let Some(mems) = &update.mems {
                told.mems = mems.clone();
            }
        }
        self.invariants()
    }

    /// What must always hold.
    fn invariants(&self) -> Result<(), String> {
        let running = || self.containers.iter().filter(|(_, row)| row.kind != ContainerKind::Init);
        let mut taken = CpuSet::new();
        for (name, row) in running() {
            if !taken.is_disjoint(&row.exclusive_cpus) {
                return Err(format!("{name} has CPUs alone that another has alone: {}", row.exclusive_cpus));
            }
            taken.extend(&row.exclusive_cpus);
        }
        for (name, row) in running() {
            if row.cpus.is_empty() {
                return Err(format!("{name} has no CPU"));
            }
            let foreign = row.cpus.difference(&row.exclusive_cpus).intersection(&taken);
            if !foreign.is_empty() {
                return Err(format!("{name} runs on {foreign}, which another has alone"));
            }
        }
        Ok(())
    }

    /// Names of the containers that a pattern means: `POD/CONTAINER` or `NAMESPACE/POD/CONTAINER`
    /// with `*` for any name, several separated by commas.
    pub(crate) fn named(&self, patterns: &str) -> Result<Vec<&str>, String> {
        let mut found = Vec::new();
        for pattern in patterns.split(',') {
            let before = found.len();
            let wanted: Vec<&str> = pattern.split('/').collect();
            let wanted = if wanted.len() == 2 { [&["default"], &wanted[..]].concat() } else { wanted };
            let fits = |name: &str| {
                let parts: Vec<&str> = name.split('/').collect();
                let same = |(part, wanted): (&&str, &&str)| *wanted == "*" || part == wanted;
                parts.len() == wanted.len() && parts.iter().zip(&wanted).all(same)
            };
            found.extend(self.containers.keys().map(String::as_str).filter(|name| fits(name)));
            if found.len() == before {
                return Err(format!("no container is {pattern}"));
            }
        }
        Ok(found)
    }

    /// A value of a container that is there.
    pub(crate) fn field(&self, name: &str, field: &str) -> Result<Field, String> {
        let row = self.containers.get(name).ok_or_else(|| format!("no container is {name}"))?;
        let cpus = |cpus: &CpuSet| cpus.iter().map(|id| id.0).collect();
        Ok(match field {
            "cpus" => Field::Ids(cpus(&row.cpus)),
            "exclusive" => Field::Ids(cpus(&row.exclusive_cpus)),
            "shared" => Field::Ids(cpus(&row.shared_cpus)),
            "mems" => Field::Ids(row.mems.iter().map(|id| id.0).collect()),
            "nodes" => Field::Ids(self.machine.nodes(&row.cpus)),
            "packages" => Field::Ids(self.machine.packages(&row.cpus)),
            "caches" => Field::Ids(self.machine.caches(&row.cpus)),
            "cores" => Field::Ids(self.machine.cores(&row.cpus)),
            "homes" => Field::Ids(self.machine.homes(&row.mems)),
            "class" => Field::Text(serde_json::to_value(row.class).unwrap().as_str().unwrap().to_owned()),
            "engine" => Field::Text(row.engine.clone()),
            "policy" => Field::Text(row.policy.clone()),
            "pool" => Field::Text(row.pool.clone().unwrap_or_default()),
            "hint" => Field::Text(row.hint.as_ref().map_or_else(String::new, |hint| {
                let nodes = hint.nodes.as_ref().map_or_else(|| "any".to_owned(), ToString::to_string);
                format!("{nodes}{}", if hint.preferred { '+' } else { '-' })
            })),
            "devices" => {
                let each = row.devices.iter().map(|(resource, ids)| format!("{resource}={}", ids.join(",")));
                Field::Text(each.collect::<Vec<_>>().join(" "))
            }
            _ => return Err(format!("no field is called {field}")),
        })
    }
}
