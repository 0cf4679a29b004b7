//! Findings by what they are about.
//!
//! One workload often breaks several rules for the same reason, and one command fixes all of them. So
//! findings are grouped by workload: each has its line and impact, and the group has the evidence and the
//! remedy once.

use std::collections::BTreeMap;

use enforcer_core::finding::{Evidence, Finding};

/// The findings about one object, worst first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FindingGroup<'a> {
    /// Cgroup, with the process behind it where it is about one.
    pub(crate) object: &'a str,
    pub(crate) findings: Vec<&'a Finding>,
}

/// Groups in the order of their first finding, which is their worst.
pub(crate) fn by_object(findings: &[Finding]) -> Vec<FindingGroup<'_>> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups: Vec<FindingGroup<'_>> = Vec::new();
    for finding in findings {
        let object = finding.id.split_once(':').map_or(finding.object.as_str(), |(_, object)| object);
        let place = *places.entry(object).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.findings.push(finding),
            None => groups.push(FindingGroup { object, findings: vec![finding] }),
        }
    }
    groups
}

impl<'a> FindingGroup<'a> {
    /// The cgroup alone.
    pub(crate) fn cgroup(&self) -> &'a str {
        self.findings.first().map_or(self.object, |finding| finding.object.as_str())
    }

    /// Evidence of all findings, each once.
    pub(crate) fn evidence(&self) -> Vec<&'a Evidence> {
        let mut said: Vec<&Evidence> = Vec::new();
        for evidence in self.findings.iter().flat_map(|finding| &finding.evidence) {
            if !said.contains(&evidence) {
                said.push(evidence);
            }
        }
        said
    }

    /// Commands that mend it, each once.
    pub(crate) fn remedies(&self) -> Vec<&'a str> {
        self.once(|finding| finding.remedy.as_deref())
    }

    /// Obstacles of all findings, each once.
    pub(crate) fn obstacles(&self) -> Vec<&'a str> {
        self.once(|finding| finding.obstacle.as_deref())
    }

    fn once(&self, pick: impl Fn(&'a Finding) -> Option<&'a str>) -> Vec<&'a str> {
        let mut said = Vec::new();
        for text in self.findings.iter().filter_map(|finding| pick(finding)) {
            if !said.contains(&text) {
                said.push(text);
            }
        }
        said
    }
}
