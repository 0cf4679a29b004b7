//! Findings of an earlier audit, to report only new ones.
//!
//! A finding is known if the earlier audit had one of the same id that was at least as severe: one that got
//! worse is new. Verdicts of workloads do not change: a workload that was misaligned before still is.
//!
//! Read from the JSON of an audit, or of a daemon's turn that contains one. Only the findings are read:
//! another version of the program may write other fields.

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
    /// Did the earlier audit have this finding, as severe or more?
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

/// An audit, or a document that contains one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditDocument {
    audit: Option<EarlierAudit>,
    schema_version: Option<u32>,
    findings: Option<Vec<KnownFinding>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EarlierAudit {
    schema_version: u32,
    findings: Vec<KnownFinding>,
}

#[derive(Deserialize)]
struct KnownFinding {
    id: String,
    severity: Severity,
}

impl<'de> Deserialize<'de> for Baseline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let AuditDocument { audit, schema_version, findings } = AuditDocument::deserialize(from)?;
        let on_its_own = || {
            let missing = de::Error::missing_field;
            Ok(EarlierAudit {
                schema_version: schema_version.ok_or_else(|| missing("schemaVersion"))?,
                findings: findings.ok_or_else(|| missing("findings"))?,
            })
        };
        let earlier = audit.map_or_else(on_its_own, Ok)?;
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
            remedy: None,
            obstacle: None,
        }
    }

    #[test]
    fn an_audit_is_read_alone_and_out_of_a_turn() {
        let audit =
            r#"{"schemaVersion": 1, "findings": [{"id": "drift:/a", "severity": "warning", "rule": 7}]}"#;
        let turn = format!(r#"{{"schemaVersion": 99, "audit": {audit}}}"#);
        for text in [audit, &turn] {
            let read: Baseline = serde_json::from_str(text).unwrap();
            assert!(read.knows(&finding("drift:/a", Severity::Warning)), "{text}");
        }
        for (text, why) in [
            (r#"{"findings": []}"#, "schemaVersion"),
            (r#"{"schemaVersion": 1}"#, "findings"),
            (r#"{"schemaVersion": 2, "findings": []}"#, "another version"),
            (r#"{"schemaVersion": 1, "audit": {"schemaVersion": 2, "findings": []}}"#, "another version"),
        ] {
            let error = serde_json::from_str::<Baseline>(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
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
