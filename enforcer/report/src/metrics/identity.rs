//! Identity of a workload, as labels of one series with the value 1.
//!
//! Cgroup, names of pods, owner and policy are joined to other series by `workload`: as labels of all of them
//! they would make new series of all of them whenever one changes and most of the length of an answer, and
//! most workloads have no pod.

use enforcer_core::{
    audit::AuditedWorkload,
    named::Named as _,
    workload::{Origin, QosClass},
};

use super::{
    family::{Family, FamilyOf, Scrape},
    label::shown,
    values,
};
use crate::tick::{ContainerNames, TickReport};

pub(super) const INFO: FamilyOf<8> = Family::gauge(
    "workload_info",
    ["workload", "cgroup", "namespace", "pod", "container", "qos", "owner", "policy"],
    "Always 1; the labels have the pod, the owner of the cpuset and the policy of a workload.",
)
.of(&[values::QOS, values::OWNER]);

/// The series of a workload of this label in a turn.
pub(super) fn put(label: &str, workload: &AuditedWorkload, report: &TickReport, scrape: &mut Scrape) {
    let considered = report.decision.considered.get(&workload.cgroup);
    let placement = considered.and_then(|one| one.placement.as_ref());
    let policy = placement.map_or("", |given| given.policy.as_str());
    write(label, workload, (report.pods.get(&workload.cgroup), policy), scrape);
}

/// The same for a single audit, which knows no pods and places no workload.
pub(super) fn of_one_look(label: &str, workload: &AuditedWorkload, scrape: &mut Scrape) {
    write(label, workload, (None, ""), scrape);
}

fn write(
    label: &str,
    workload: &AuditedWorkload,
    (pod, policy): (Option<&ContainerNames>, &str),
    scrape: &mut Scrape,
) {
    let [namespace, pod, container] = pod
        .map(|names| [&names.namespace, &names.pod, &names.container].map(|name| shown(name)))
        .unwrap_or_default();
    let qos = match &workload.origin {
        Origin::Pod { qos: QosClass::Guaranteed, .. } => "guaranteed",
        Origin::Pod { qos: QosClass::Burstable, .. } => "burstable",
        Origin::Pod { qos: QosClass::BestEffort, .. } => "best-effort",
        _ => "",
    };
    let owner = workload.owner.as_ref().map_or("", |ownership| ownership.owner.name());
    let cgroup = &*shown(workload.cgroup.as_str());
    let labels = [label, cgroup, &*namespace, &*pod, &*container, qos, owner, policy];
    scrape.put(&INFO, &labels, Some(1.0));
}
