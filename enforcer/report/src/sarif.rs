//! The audit as SARIF 2.1.0 (OASIS, static analysis results interchange format), for tools that collect
//! results of checks.
//!
//! A finding is a result of its rule. It is about a cgroup and not about a line of a file, so its place is a
//! *logical* location; viewers that show nothing without a file (GitHub's code scanning) have no use for it.
//! `partialFingerprints` holds the id of the finding, which is the same in every run. What could not be seen
//! is a notification of the tool.
//!
//! Texts for viewers are escaped as everywhere; fingerprints and properties are for programs, as in `-o
//! json`.

use enforcer_core::{
    audit::Audit,
    finding::{Finding, Rule, Severity},
    named::Named as _,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::text;

/// Of the log; its properties are in camelCase like those of the standard.
#[derive(Debug, Serialize)]
pub struct SarifLog {
    version: &'static str,
    #[serde(rename = "$schema")]
    schema: &'static str,
    runs: [SarifRun; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifRun {
    tool: Value,
    invocations: [Value; 1],
    results: Vec<SarifResult>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifResult {
    rule_id: &'static str,
    rule_index: usize,
    level: &'static str,
    message: SarifMessage,
    locations: [Value; 1],
    partial_fingerprints: Value,
    properties: Value,
}

#[derive(Debug, Serialize)]
struct SarifMessage {
    text: String,
}

/// The log of one audit.
pub fn of(audit: &Audit) -> SarifLog {
    SarifLog {
        version: "2.1.0",
        schema: "https://json.schemastore.org/sarif-2.1.0.json",
        runs: [SarifRun {
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
        .map(|one| json!({ "level": "warning", "message": { "text": text::escape(&one.to_string()) } }))
        .collect();
    let mut invocation = json!({
        "executionSuccessful": true,
        "exitCode": audit.summary.exit_code,
        "toolExecutionNotifications": unseen,
    });
    if let Some(at) = &audit.taken_at {
        invocation["endTimeUtc"] = json!(at);
    }
    invocation
}

fn found(finding: &Finding) -> SarifResult {
    let Finding { id, rule, severity, object, summary, evidence, impact, remedy, obstacle } = finding;
    SarifResult {
        rule_id: rule.code(),
        rule_index: Rule::ALL.iter().position(|one| one == rule).unwrap_or(0),
        level: level(*severity),
        message: SarifMessage { text: format!("{}: {}", severity.name(), text::escape(summary)) },
        locations: [json!({
            "logicalLocations": [{ "fullyQualifiedName": text::escape(object.as_str()), "kind": "resource" }],
        })],
        partial_fingerprints: json!({ "findingId/v1": id }),
        properties: json!({ "evidence": evidence, "impact": impact, "remedy": remedy, "obstacle": obstacle }),
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
    use crate::fixture::{self, HOSTILE};

    /// Objects of the schema of 2.1.0 as far as they are written here: what they must have, and what they may
    /// have. The schema allows nothing else in them.
    const SHAPES: [(&str, &[&str], &[&str]); 11] = [
        ("log", &["version", "runs"], &["$schema"]),
        ("run", &["tool"], &["invocations", "results"]),
        ("tool", &["driver"], &[]),
        ("driver", &["name"], &["semanticVersion", "rules"]),
        ("rule", &["id"], &["shortDescription", "fullDescription", "help"]),
        ("description", &["text"], &["markdown"]),
        ("invocation", &["executionSuccessful"], &["exitCode", "toolExecutionNotifications", "endTimeUtc"]),
        ("notification", &["message"], &["level"]),
        (
            "result",
            &["message"],
            &["ruleId", "ruleIndex", "level", "locations", "partialFingerprints", "properties"],
        ),
        ("location", &[], &["logicalLocations"]),
        ("logicalLocation", &[], &["fullyQualifiedName", "kind"]),
    ];

    fn has_shape<'a>(value: &'a Value, of: &str) -> &'a Value {
        let (_, required, optional) = SHAPES.iter().find(|(name, ..)| *name == of).unwrap();
        let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(required.iter().all(|key| keys.contains(key)), "{of}: {value}");
        assert!(keys.iter().all(|key| required.contains(key) || optional.contains(key)), "{of}: {value}");
        value
    }

    fn each<'a>(list: &'a Value, of: &str) -> Vec<&'a Value> {
        list.as_array().unwrap().iter().map(|one| has_shape(one, of)).collect()
    }

    fn is_level(level: &Value) {
        assert!(["none", "note", "warning", "error"].iter().any(|one| level == one), "{level}");
    }

    /// The log as JSON, if it is what the standard says.
    fn valid(audit: &Audit) -> Value {
        let log = serde_json::to_value(of(audit)).unwrap();
        has_shape(&log, "log");
        assert_eq!(log["version"], "2.1.0");
        for run in each(&log["runs"], "run") {
            let driver = has_shape(&has_shape(&run["tool"], "tool")["driver"], "driver");
            let rules = each(&driver["rules"], "rule");
            for description in rules
                .iter()
                .flat_map(|rule| ["shortDescription", "fullDescription", "help"].map(|key| &rule[key]))
            {
                assert!(has_shape(description, "description")["text"].is_string());
            }
            for invocation in each(&run["invocations"], "invocation") {
                assert!(invocation["executionSuccessful"].is_boolean() && invocation["exitCode"].is_i64());
                for notification in each(&invocation["toolExecutionNotifications"], "notification") {
                    is_level(&notification["level"]);
                    assert!(has_shape(&notification["message"], "description")["text"].is_string());
                }
            }
            for result in each(&run["results"], "result") {
                is_level(&result["level"]);
                assert!(has_shape(&result["message"], "description")["text"].is_string());
                let rule = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
                assert_eq!(rules[rule]["id"], result["ruleId"]);
                assert!(result["partialFingerprints"].as_object().unwrap().values().all(Value::is_string));
                let places = each(&result["locations"], "location");
                assert!(!places.is_empty() && result["properties"].is_object());
                for place in places {
                    each(&place["logicalLocations"], "logicalLocation");
                }
            }
        }
        log
    }

    #[test]
    fn a_finding_is_a_result_of_its_rule() {
        let log = valid(&fixture::small());
        insta::assert_json_snapshot!("sarif", &log["runs"][0]["results"]);
        let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
        assert_eq!(rules.len(), Rule::ALL.len());
        let invocation = &log["runs"][0]["invocations"][0];
        assert_eq!(
            (&invocation["exitCode"], &invocation["endTimeUtc"]),
            (&json!(1), &json!("2026-01-31T12:00:00Z"))
        );
        let nothing = fixture::audit(numa_topology::Topology::default(), Vec::new(), Vec::new());
        assert_eq!(
            valid(&nothing)["runs"][0]["results"],
            json!([]),
            "an empty list, which says that it was looked"
        );
    }

    #[test]
    fn what_viewers_show_of_hostile_names_is_escaped() {
        for name in HOSTILE {
            let log = valid(&fixture::named(name).0);
            let run = &log["runs"][0];
            let shown = [
                &run["results"][0]["message"]["text"],
                &run["results"][0]["locations"][0]["logicalLocations"][0]["fullyQualifiedName"],
                &run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"],
            ];
            for text in shown.map(|text| text.as_str().unwrap()) {
                assert_eq!(text::escape(text), text, "{name:?}");
            }
        }
    }
}
