//! What an earlier audit has found, so that a later one tells only what is new.
//!
//! A finding is known when the earlier audit had one of the same id that was at least as severe: what got worse is new.
//! Verdicts of workloads are not touched by it, because a workload that was misaligned before still is.
//!
//! Read from the JSON of an audit, of which nothing but the findings matters: one of another version of the program
//! may have other fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};

use super::AUDIT_SCHEMA_VERSION;
use crate::finding::{Finding, Severity};

/// Findings of an earlier audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baseline {
    severity_by_id: BTreeMap<String, Severity>,
}

impl Baseline {
    /// Was it found before, as bad or worse?
    pub fn knows(&self, finding: &Finding) -> bool {
        self.severity_by_id.get(&finding.id).is_some_and(|before| *before >= finding.severity)
    }
}

impl FromIterator<(String, Severity)> for Baseline {
    fn from_iter<I: IntoIterator<Item = (String, Severity)>>(findings: I) -> Self {
        let mut severity_by_id = BTreeMap::new();
        for (id, severity) in findings {
            let worst = severity_by_id.entry(id).or_insert(severity);
            *worst = severity.max(*worst);
        }
        Self { severity_by_id }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Earlier {
    schema_version: u32,
    findings: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    id: String,
    severity: Severity,
}

impl<'de> Deserialize<'de> for Baseline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let earlier = Earlier::deserialize(from)?;
        if earlier.schema_version != AUDIT_SCHEMA_VERSION {
            let found = earlier.schema_version;
            return Err(de::Error::custom(format!(
                "schemaVersion is {found}, not {AUDIT_SCHEMA_VERSION}: it was written by another version of the program"
            )));
        }
        Ok(earlier.findings.into_iter().map(|found| (found.id, found.severity)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{finding::Rule, workload::CgroupPath};

    fn finding(id: &str, severity: Severity) -> Finding {
        Finding {
            id: id.to_owned(),
            rule: Rule::Drift,
            severity,
            object: CgroupPath::new("/a"),
            summary: String::new(),
            evidence: Vec::new(),
            impact: String::new(),
            remedy: String::new(),
        }
    }

    #[test]
    fn what_is_as_bad_as_before_is_known_and_what_got_worse_is_not() {
        let before: Baseline = [("drift:/a".to_owned(), Severity::Warning)].into_iter().collect();
        for (id, severity, known) in [
            ("drift:/a", Severity::Info, true),
            ("drift:/a", Severity::Warning, true),
            ("drift:/a", Severity::Critical, false),
            ("drift:/b", Severity::Info, false),
        ] {
            assert_eq!(before.knows(&finding(id, severity)), known, "{id} {severity:?}");
        }
    }
}
