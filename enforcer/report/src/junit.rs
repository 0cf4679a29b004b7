//! The audit as a JUnit report, so that CI shows findings as it shows tests that fail.
//!
//! One suite with a test case per workload. A case fails with findings of at least the severity of
//! `--fail-on`. It is skipped if too little was measured for a verdict, because a pass would be wrong. Lesser
//! findings are its output; missing sources are the output of the suite. The format has no schema; this is
//! the part that Jenkins, `GitLab` and others read.
//!
//! Written with maud: its HTML escaping is valid for XML. Characters that XML does not allow in names are
//! escaped before.

use std::collections::BTreeMap;

use enforcer_core::{
    audit::{Audit, AuditVerdict},
    finding::{Finding, Severity},
    named::Named as _,
};
use maud::{Markup, html};

use super::{text, view};

/// Columns of a text.
const TEXT: usize = 2000;

/// The report, ending in a newline.
pub fn render(audit: &Audit, fail_on: Severity) -> String {
    let cases = cases(audit, fail_on);
    let failed = cases.iter().filter(|case| !case.failures.is_empty()).count();
    let skipped = cases.iter().filter(|case| case.is_skipped()).count();
    let (name, tests) = (audit.tool.name.as_str(), cases.len());
    let report = html! {
        testsuites name=(name) tests=(tests) failures=(failed) errors="0" {
            testsuite name=(shown(view::host::name(audit))) tests=(tests)
                failures=(failed) errors="0" skipped=(skipped) timestamp=[taken_at(audit)] {
                @for case in &cases { (case.render()) }
                @if !audit.degraded.is_empty() {
                    system-err {
                        @for one in &audit.degraded {
                            (shown(&one.to_string())) "\n"
                        }
                    }
                }
            }
        }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", report.into_string())
}

/// Readers of the format want it without a zone.
fn taken_at(audit: &Audit) -> Option<&str> {
    audit.taken_at.as_deref().map(|at| at.trim_end_matches('Z'))
}

/// One case per workload, and one per other object with findings.
fn cases(audit: &Audit, fail_on: Severity) -> Vec<JunitCase<'_>> {
    let mut by_id: BTreeMap<&str, &Finding> =
        audit.findings.iter().map(|finding| (finding.id.as_str(), finding)).collect();
    let mut cases: Vec<JunitCase<'_>> = Vec::new();
    for workload in &audit.workloads {
        let findings: Vec<&Finding> =
            workload.findings.iter().filter_map(|id| by_id.remove(id.as_str())).collect();
        let judged = workload.verdict != AuditVerdict::Unknown;
        cases.push(JunitCase::of(&workload.name, workload.cgroup.as_str(), judged, findings, fail_on));
    }
    let left = audit.findings.iter().filter(|finding| by_id.contains_key(finding.id.as_str()));
    let mut others: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in left {
        others.entry(finding.object.as_str()).or_default().push(finding);
    }
    let others =
        others.into_iter().map(|(object, found)| JunitCase::of(object, object, true, found, fail_on));
    cases.into_iter().chain(others).collect()
}

struct JunitCase<'a> {
    name: &'a str,
    class: &'a str,
    judged: bool,
    failures: Vec<&'a Finding>,
    notes: Vec<&'a Finding>,
}

impl<'a> JunitCase<'a> {
    fn of(
        name: &'a str,
        class: &'a str,
        judged: bool,
        findings: Vec<&'a Finding>,
        fail_on: Severity,
    ) -> Self {
        let (failures, notes) = findings.into_iter().partition(|finding| finding.severity >= fail_on);
        Self { name, class, judged, failures, notes }
    }

    fn is_skipped(&self) -> bool {
        self.failures.is_empty() && !self.judged
    }

    fn render(&self) -> Markup {
        html! {
            testcase name=(shown(self.name)) classname=(shown(self.class)) {
                @if self.is_skipped() { skipped message="too little was seen to judge it" {} }
                @for finding in &self.failures {
                    failure type=(finding.rule.code()) message=(shown(&finding.summary)) { (details(finding)) }
                }
                @if !self.notes.is_empty() {
                    system-out { @for finding in &self.notes { (details(finding)) "\n" } }
                }
            }
        }
    }
}

fn details(finding: &Finding) -> String {
    let mut lines = vec![
        format!("{}: {}", finding.severity.name(), shown(&finding.id)),
        shown(&finding.summary),
        format!("impact: {}", shown(&finding.impact)),
    ];
    lines.extend(finding.evidence.iter().map(|one| shown(&format!("{}: {}", one.source, one.value))));
    // A command is never cut.
    lines.extend(finding.remedy.iter().map(|remedy| format!("remedy: {}", text::escape(remedy))));
    lines.extend(finding.obstacle.iter().map(|obstacle| shown(&format!("no remedy: {obstacle}"))));
    lines.join("\n")
}

fn shown(text: &str) -> String {
    text::fit(text, TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, HOSTILE};

    #[test]
    fn a_workload_is_a_case_that_passes_fails_or_is_skipped() {
        let report = render(&fixture::small(), Severity::Warning);
        insta::assert_snapshot!("junit", report.replace("><", ">\n<"));
        let parsed = roxmltree::Document::parse(&report).unwrap();
        let suite = parsed.root_element().first_element_child().unwrap();
        let counted = ["tests", "failures", "skipped"].map(|name| suite.attribute(name).unwrap());
        assert_eq!(counted, ["4", "1", "1"]);
        let strict = render(&fixture::small(), Severity::Info);
        assert!(strict.contains("failures=\"2\""), "{strict}");
    }

    #[test]
    fn no_finding_is_lost_and_no_command_is_cut() {
        let mut audit = fixture::small();
        audit.workloads.retain(|workload| workload.name != "db.service");
        audit.findings[0].remedy = Some(format!("echo {} > x", "1,".repeat(TEXT)));
        let report = render(&audit, Severity::Warning);
        let parsed = roxmltree::Document::parse(&report).unwrap();
        let failure = parsed.descendants().find(|node| node.has_tag_name("failure")).unwrap();
        assert_eq!(failure.parent().unwrap().attribute("name"), Some("/system.slice/db.service"));
        assert!(failure.text().unwrap().contains(audit.findings[0].remedy.as_ref().unwrap()));
    }

    #[test]
    fn hostile_names_leave_it_well_formed() {
        let elements = |name: &str| {
            let report = render(&fixture::named(name).0, Severity::Warning);
            let parsed = roxmltree::Document::parse(&report).unwrap();
            parsed.descendants().filter(roxmltree::Node::is_element).count()
        };
        let harmless = elements("name");
        for name in HOSTILE {
            assert_eq!(elements(name), harmless, "{name:?}");
        }
    }
}
