//! A cpuset differs from its owner's record.
//!
//! The owner is another program (the kubelet's static managers, koordlet) with a record of its grants. The
//! kubelet does not notice the difference: it compares with its last write, not with the cgroup. Wrong CPUs
//! break the promise to this container and to the containers that own those CPUs. The daemon does not correct
//! it, because two writers of one cpuset never end; the remedy says what a person can write.
//!
//! Fewer CPUs than granted are reported as well: the container pays for CPUs that it cannot use.

use super::{
    Evidence, Finding, Rule, Severity, remedy,
    subject::{FindingWords, Subject},
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
    let words = FindingWords {
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
