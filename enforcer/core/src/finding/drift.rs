//! A declared workload is not where its placement says.
//!
//! Uses the daemon's decision without a history: a workload that it would correct has drifted. A workload
//! that the daemon refuses is reported as well, because its declaration does not hold: with the obstacle, and
//! without a command, because the daemon would refuse it again.

use std::collections::BTreeMap;

use super::{Evidence, Finding, Rule, Severity, files, remedy};
use crate::{
    plan::{Action, Step},
    turn::{Decision, Inputs, RefusalCause},
    words,
    workload::CgroupPath,
};

pub(super) fn assess(inputs: &Inputs<'_>, decision: &Decision) -> Vec<Finding> {
    let mut by_cgroup: BTreeMap<&CgroupPath, Vec<&Step>> = BTreeMap::new();
    for step in &decision.plan.steps {
        by_cgroup.entry(step.action.cgroup()).or_default().push(step);
    }
    let moved = by_cgroup.iter().map(|(cgroup, steps)| to_be_moved(inputs, cgroup, steps));
    let refused = decision.refused.iter().map(|refusal| {
        let but = match refusal.cause {
            RefusalCause::OtherOwner => "it is declared, but left alone",
            _ => "it is declared, but cannot be placed",
        };
        let summary = format!("{but}: {}", refusal.reason);
        let impact = "its CPUs and memory stay as they are".to_owned();
        let obstacle = Some(refusal.reason.clone());
        Finding {
            obstacle,
            remedy: None,
            ..finding(inputs, &refusal.workload, Severity::Info, (summary, impact))
        }
    });
    moved.chain(refused).collect()
}

fn to_be_moved(inputs: &Inputs<'_>, cgroup: &CgroupPath, steps: &[&Step]) -> Finding {
    let first = steps.first().map_or("", |step| step.reason.as_str());
    let writes = steps.iter().filter(|step| !matches!(step.action, Action::MovePages { .. })).count();
    let summary = format!("it is not where its declaration puts it: {first}");
    let due = [(writes, "cpuset write"), (steps.len() - writes, "page move")];
    let due = due.iter().filter(|(number, _)| *number > 0);
    let due: Vec<String> = due.map(|(number, of)| words::count(*number, of)).collect();
    let impact = format!("until it is moved ({}), what was declared for it does not hold", due.join(", "));
    finding(inputs, cgroup, Severity::Warning, (summary, impact))
}

fn finding(
    inputs: &Inputs<'_>,
    cgroup: &CgroupPath,
    severity: Severity,
    (summary, impact): (String, String),
) -> Finding {
    let declared = inputs.declarations.rule(inputs.policy, cgroup).map(|(_, rule)| {
        let memory = rule.memory.map_or(String::new(), |memory| format!(", memory = \"{memory}\""));
        Evidence {
            source: format!("[[workload]] name = {:?}", rule.name),
            value: rule.cpus.map_or(String::new(), |cpus| format!("cpus = {cpus}{memory}")),
        }
    });
    let cpuset = files::cpuset_evidence(inputs.sample, cgroup);
    Finding {
        id: format!("{}:{cgroup}", Rule::Drift),
        rule: Rule::Drift,
        severity,
        object: cgroup.clone(),
        summary,
        evidence: declared.into_iter().chain(cpuset).collect(),
        impact,
        remedy: Some(remedy::enforce()),
        obstacle: None,
    }
}
