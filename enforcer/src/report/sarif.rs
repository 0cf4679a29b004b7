//! The audit as SARIF 2.1.0 (OASIS, static analysis results interchange format), for those who collect results of checks.
//!
//! A finding is a result of its rule. It is about a cgroup and not about a line of a file, so its place is a *logical*
//! location; viewers that show nothing without a file (GitHub's code scanning) have no use for it. `partialFingerprints`
//! holds the id of the finding, which is the same in every run. What could not be seen is a notification of the tool.

use enforcer_core::{
    audit::Audit,
    finding::{Finding, Rule, Severity},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::words;

/// Of the log; its properties are in camelCase like those of the standard.
#[derive(Debug, Serialize)]
pub struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Value,
    invocations: [Value; 1],
    results: Vec<Found>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    rule_id: &'static str,
    rule_index: usize,
    level: &'static str,
    message: Message,
    locations: [Value; 1],
    partial_fingerprints: Value,
    properties: Value,
}

#[derive(Debug, Serialize)]
struct Message {
    text: String,
}

/// The log of one audit.
pub fn of(audit: &Audit) -> Log {
    Log {
        schema: "https://json.schemastore.org/sarif-2.1.0.json",
        version: "2.1.0",
        runs: [Run {
            tool: tool(audit),
            invocations: [invocation(audit)],
            results: audit.findings.iter().map(found).collect(),
        }],
    }
}

fn tool(audit: &Audit) -> Value {
    let rules: Vec<Value> = Rule::ALL
        .iter()
        .map(|rule| {
            let words = rule.words();
            json!({
                "id": rule.code(),
                "shortDescription": { "text": format!("{}.", words.title) },
                "fullDescription": { "text": words.when },
                "help": { "text": format!("{} {}", words.why, words.remedy) },
            })
        })
        .collect();
    json!({ "driver": { "name": audit.tool.name, "semanticVersion": audit.tool.version, "rules": rules } })
}

fn invocation(audit: &Audit) -> Value {
    let unseen: Vec<Value> = audit
        .degraded
        .iter()
        .map(|one| {
            let text = format!("{}: {}; {}", one.source, one.reason, one.effect);
            json!({ "level": "warning", "message": { "text": text } })
        })
        .collect();
    json!({
        "executionSuccessful": true,
        "exitCode": audit.summary.exit_code,
        "toolExecutionNotifications": unseen,
    })
}

fn found(finding: &Finding) -> Found {
    let Finding { id, rule, severity, object, summary, evidence, impact, remedy } = finding;
    Found {
        rule_id: rule.code(),
        rule_index: Rule::ALL.iter().position(|one| one == rule).unwrap_or(0),
        level: level(*severity),
        message: Message { text: format!("{}: {summary}", words::severity(*severity)) },
        locations: [json!({
            "logicalLocations": [{ "fullyQualifiedName": object.as_str(), "kind": "resource" }],
        })],
        partial_fingerprints: json!({ "findingId/v1": id }),
        properties: json!({ "evidence": evidence, "impact": impact, "remedy": remedy }),
    }
}

/// The levels of SARIF 3.27.10.
const fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "note",
        Severity::Warning => "warning",
        Severity::Critical => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_finding_is_a_result_of_its_rule() {
        let log = serde_json::to_value(of(&fixture::small())).unwrap();
        insta::assert_json_snapshot!("sarif", &log["runs"][0]["results"]);
        let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
        assert_eq!(rules.len(), Rule::ALL.len());
        for result in log["runs"][0]["results"].as_array().unwrap() {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(rules[index]["id"], result["ruleId"]);
        }
        assert_eq!(log["version"], "2.1.0");
        assert_eq!(log["runs"][0]["invocations"][0]["exitCode"], 1);
    }
}
