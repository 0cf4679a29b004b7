//! The configuration entry of each workload, found once for a turn.
//!
//! The match of an entry depends on present facts about a workload: the names that a runtime reported, and
//! its processes. All callers within one turn (owners, findings, the decision) must get the same match.
//!
//! Cost: one look at the entries per workload, and one at the processes for entries that name commands.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    owner::{KnownContainer, OwnershipFacts},
    policy::{PodNames, Policy, RuleSubject, WorkloadKind, WorkloadRule},
    sample::TaskSample,
    self_placement::SelfPlacement,
    workload::{CgroupPath, Origin, Workload, printable},
};

/// Entries of all workloads, by position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declarations(BTreeMap<CgroupPath, EntryMatch>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntryMatch {
    position: usize,
    enforce: bool,
}

/// An entry of the policy with the workloads that it matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Entry")]
pub struct DeclaredEntry {
    /// Name for people.
    pub name: String,
    /// True if its workloads are placed; else they are left alone.
    pub enforce: bool,
    /// Matching workloads; empty if none runs.
    pub workloads: Vec<CgroupPath>,
    /// For an entry without a match because the processes are in cgroups below the one that it names: the
    /// reason, and the pattern that would match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<String>,
}

impl Declarations {
    /// Declarations of workloads with the threads `tasks`. A process without a cgroup of its own has nothing
    /// that could be set.
    pub fn find(
        policy: &Policy,
        workloads: &[Workload],
        tasks: &[TaskSample],
        facts: &OwnershipFacts,
    ) -> Self {
        let commands = commands(policy, tasks);
        let own = workloads.iter().filter(|one| !matches!(one.origin, Origin::Process { .. }));
        let declared = own.filter_map(|workload| {
            let subject = RuleSubject {
                cgroup: Some(&workload.cgroup),
                standing: WorkloadKind::from(&workload.origin),
                pod: known_container(workload, facts).map(names_of),
                commands: commands.get(&workload.cgroup).map_or(&[], Vec::as_slice),
            };
            let (position, rule) = policy.rule(&subject)?;
            Some((workload.cgroup.clone(), EntryMatch { position, enforce: rule.enforce }))
        });
        Self(declared.collect())
    }

    /// The entry of a workload and its position, in the policy that it was found in.
    pub fn rule<'p>(&self, policy: &'p Policy, cgroup: &CgroupPath) -> Option<(usize, &'p WorkloadRule)> {
        let position = self.0.get(cgroup)?.position;
        Some((position, policy.workloads.get(position)?))
    }

    /// Must settings of the cgroup's own processes be respected? The entry of the cgroup itself or of the
    /// nearest one above decides: a write to that one changes the cgroups below as well.
    pub fn respects_self_placement(&self, policy: &Policy, cgroup: &CgroupPath) -> bool {
        let said = |cgroup: &CgroupPath| self.rule(policy, cgroup).and_then(|(_, rule)| rule.self_placement);
        let nearest = said(cgroup).or_else(|| cgroup.ancestors().find_map(|above| said(&above)));
        nearest.unwrap_or(policy.self_placement) == SelfPlacement::Respect
    }

    /// All entries of that policy, in its order; `workloads` are all present ones.
    pub fn entries(&self, policy: &Policy, workloads: &[Workload]) -> Vec<DeclaredEntry> {
        let entry = |rule: &WorkloadRule| DeclaredEntry {
            name: rule.name.clone(),
            enforce: rule.enforce,
            workloads: Vec::new(),
            below: None,
        };
        let mut entries: Vec<DeclaredEntry> = policy.workloads.iter().map(entry).collect();
        for (cgroup, declared) in &self.0 {
            if let Some(entry) = entries.get_mut(declared.position) {
                entry.workloads.push(cgroup.clone());
            }
        }
        for (position, (entry, rule)) in entries.iter_mut().zip(&policy.workloads).enumerate() {
            if entry.workloads.is_empty() {
                entry.below =
                    self.of_earlier(policy, position, rule, workloads).or_else(|| below(rule, workloads));
            }
        }
        entries
    }

    /// The reason if an earlier entry matches the workloads that this one names.
    fn of_earlier(
        &self,
        policy: &Policy,
        position: usize,
        rule: &WorkloadRule,
        workloads: &[Workload],
    ) -> Option<String> {
        if rule.command.is_some() || rule.names_pods() {
            return None;
        }
        let named = workloads.iter().filter(|workload| rule.may_be_about(&workload.cgroup));
        let (cgroup, earlier) = named
            .filter_map(|workload| Some((&workload.cgroup, self.0.get(&workload.cgroup)?.position)))
            .find(|(_, earlier)| *earlier < position)?;
        let name = &policy.workloads.get(earlier)?.name;
        Some(format!("{} is of the entry {name:?}, which comes first", printable(cgroup.as_str())))
    }

    /// Is it declared, and to be placed?
    pub fn asks_for(&self, cgroup: &CgroupPath) -> bool {
        self.0.get(cgroup).is_some_and(|declared| declared.enforce)
    }

    /// Is it declared to be left alone?
    pub fn opts_out(&self, cgroup: &CgroupPath) -> bool {
        self.0.get(cgroup).is_some_and(|declared| !declared.enforce)
    }
}

/// The reason if the processes are in cgroups below the one that an entry names.
fn below(rule: &WorkloadRule, workloads: &[Workload]) -> Option<String> {
    let glob = rule.cgroup.as_ref()?;
    let named = |workload: &Workload| {
        let above = workload.cgroup.ancestors().filter(|above| !above.is_root());
        above.filter(|above| glob.matches(above)).last().map(|above| (above, workload.cgroup.clone()))
    };
    let mut inside = workloads.iter().filter_map(named);
    let (above, first) = inside.next()?;
    let more = inside.filter(|(other, _)| *other == above).count();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let pattern = printable(&format!("{above}/**"));
    Some(format!(
        "its processes are in cgroups below {} ({}{more}), which cgroup = \"{pattern}\" matches",
        printable(above.as_str()),
        printable(first.as_str())
    ))
}

/// Names of a container that a runtime reported.
pub fn names_of(known: &KnownContainer) -> PodNames<'_> {
    PodNames {
        namespace: &known.namespace,
        pod: &known.pod,
        container: &known.container,
        labels: &known.labels,
    }
}

fn known_container<'a>(workload: &Workload, facts: &'a OwnershipFacts) -> Option<&'a KnownContainer> {
    match &workload.origin {
        Origin::Pod { container_id: Some(id), .. } => facts.containers.get(id),
        _ => None,
    }
}

/// Command names of processes, by cgroup; a thread can choose its own name.
fn commands<'a>(policy: &Policy, tasks: &'a [TaskSample]) -> BTreeMap<&'a CgroupPath, Vec<&'a str>> {
    let mut commands = BTreeMap::<_, Vec<_>>::new();
    if policy.workloads.iter().any(|rule| rule.command.is_some()) {
        for task in tasks.iter().filter(|task| task.tid == task.pid) {
            if let Some(cgroup) = &task.cgroup {
                commands.entry(cgroup).or_default().push(task.command.as_str());
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests;
