//! The cpuset is not what its owner gave the workload.
//!
//! The owner is somebody else (the kubelet's static managers, koordlet), and what it gave is known from its
//! own list. The kubelet does not notice: it compares with what it wrote last, not with the cgroup. Other
//! CPUs than those given break what was promised to this container and to those whose CPUs they are. We do
//! not mend it, because two that write one cpuset never end; the remedy says what a person can write.
//!
//! Fewer CPUs than were given are reported as well: somebody pays for CPUs that they cannot use.

use super::{
    Evidence, Finding, Rule, Severity, remedy,
    subject::{Subject, Words},
};
use crate::decide::without_controller;

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let ownership = subject.owner.filter(|ownership| ownership.owner.is_foreign())?;
    let wrong_cpus = ownership.cpus.as_ref().zip(subject.figures.cpus.as_ref()).filter(|(a, b)| a != b);
    let wrong_mems = ownership.mems.as_ref().zip(subject.figures.mems.as_ref()).filter(|(a, b)| a != b);
    let cpus = wrong_cpus.map(|(given, has)| format!("CPUs {given}, and it has {has}"));
    let mems = wrong_mems.map(|(given, has)| format!("memory nodes {given}, and it has {has}"));
    let differs = cpus.into_iter().chain(mems).collect::<Vec<_>>().join("; ");
    if differs.is_empty() {
        return None;
    }
    let others = wrong_cpus.is_some_and(|(given, has)| !has.is_subset(given));
    let impact = if others {
        "it runs on CPUs that were given to others, or others run on its own"
    } else {
        "it has not what was promised to it"
    };
    let words = Words {
        summary: format!("{} gave it {differs}", ownership.owner.in_words()),
        impact: impact.to_owned(),
        remedy: match without_controller(subject.sample, &subject.workload.cgroup) {
            Some(reason) => Err(reason),
            None => Ok(remedy::as_given(
                subject,
                wrong_cpus.map(|(given, _)| given),
                wrong_mems.map(|(given, _)| given),
            )),
        },
    };
    let said = Evidence { source: ownership.owner.to_string(), value: ownership.evidence.clone() };
    let evidence = [said].into_iter().chain(subject.cpuset_evidence()).collect();
    Some(subject.finding(Rule::OwnerMismatch, Severity::Warning, words, evidence))
}
