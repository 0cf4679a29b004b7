//! A declared workload is not where its placement says.
//!
//! The same decision that the daemon would make, with no history: whatever it would correct has
//! drifted. A workload that cannot be placed is reported as well, because what was declared for it
//! does not hold.

use std::collections::BTreeMap;

use super::{Evidence, Finding, Rule, Severity, files::CgroupFiles, remedy};
use crate::{
    decide::{History, Inputs, Partitioned, RefusalCause, Widened, Written, decide},
    declarations::Declarations,
    model::Model,
    owner::Owners,
    place::{Allocations, Containers, Inventory},
    plan::{Action, Step},
    policy::Policy,
    sample::Sample,
    words,
    workload::{CgroupPath, Workload},
};

pub(super) fn assess(
    inventory: &Inventory,
    workloads: &[Workload],
    sample: &Sample,
    model: &Model,
    policy: &Policy,
    owners: &Owners,
    declarations: &Declarations,
) -> Vec<Finding> {
    let (containers, history) = (&Containers::default(), &History::default());
    let inputs = Inputs {
        inventory,
        workloads,
        sample,
        model,
        policy,
        declarations,
        containers,
        owners,
        history,
        widened: &Widened::new(),
        written: Written::NOTHING,
        partitioned: &Partitioned::default(),
        now_ns: 0,
    };
    let decision = decide(&inputs, &mut Allocations::default());

    let mut by_cgroup: BTreeMap<&CgroupPath, Vec<&Step>> = BTreeMap::new();
    for step in &decision.plan.steps {
        by_cgroup.entry(step.action.cgroup()).or_default().push(step);
    }
    let moved = by_cgroup.iter().map(|(cgroup, steps)| to_be_moved(&inputs, cgroup, steps));
    let refused = decision.refused.iter().map(|refusal| {
        let but = match refusal.cause {
            RefusalCause::OtherOwner => "it is declared, but left alone",
            _ => "it is declared, but cannot be placed",
        };
        let summary = format!("{but}: {}", refusal.reason);
        let impact = "its CPUs and memory stay as they are".to_owned();
        finding(&inputs, &refusal.workload, Severity::Info, (summary, impact))
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
    let files = CgroupFiles::of(inputs.sample);
    let figures = inputs.model.workloads.get(cgroup);
    let cpus = figures.and_then(|figures| figures.cpus.as_ref().map(ToString::to_string));
    let mems = figures.and_then(|figures| figures.mems.as_ref().map(ToString::to_string));
    let cpus = cpus.map(|value| Evidence { source: files.effective_cpus(cgroup), value });
    let mems = mems.map(|value| Evidence { source: files.effective_mems(cgroup), value });
    Finding {
        id: format!("{}:{cgroup}", Rule::Drift),
        rule: Rule::Drift,
        severity,
        object: cgroup.clone(),
        summary,
        evidence: declared.into_iter().chain(cpus).chain(mems).collect(),
        impact,
        remedy: remedy::enforce(),
    }
}
