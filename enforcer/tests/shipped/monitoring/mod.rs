//! The rules of deploy/prometheus and the dashboards of deploy/grafana, against the metrics that there are,
//! the runbook, and one another. `cargo xtask test monitoring` has promtool check them too.

mod dashboards;
mod degraded;
mod known;
mod promql;
mod rules;

use std::collections::BTreeSet;

use known::Known;

const RUNBOOK: &str = include_str!("../../../../docs/runbook.md");

/// Where the runbook is read.
const ADDRESS: &str = "https://github.com/numa-enforcer/numa-enforcer/blob/main/docs/runbook.md";

#[test]
fn rules_name_what_there_is() {
    let known = Known::read();
    for alert in rules::alerts() {
        let labels = known.of(&alert.expr).unwrap_or_else(|why| panic!("{}: {why}", alert.name()));
        for text in alert.annotations.values() {
            for (_, after) in
                text.match_indices("$labels.").map(|(at, found)| text.split_at(at + found.len()))
            {
                let label =
                    after.split(|one: char| !one.is_ascii_alphanumeric() && one != '_').next().unwrap();
                assert!(labels.contains(label), "{}: no label {label}", alert.name());
            }
        }
    }
}

#[test]
fn alerts_say_how_bad_it_is_what_it_is_and_where_to_read_on() {
    for alert in rules::alerts() {
        let name = alert.name();
        assert!(["info", "warning", "critical"].contains(&alert.labels["severity"].as_str()), "{name}");
        assert_eq!(alert.annotations["runbook_url"], format!("{ADDRESS}#{}", name.to_lowercase()));
        let [summary, description] = ["summary", "description"].map(|key| alert.annotations[key].as_str());
        assert!(!summary.ends_with('.') && description.ends_with('.'), "{name}: {summary} {description}");
    }
}

#[test]
fn every_alert_has_its_section_in_the_runbook_and_no_other_is_there() {
    let sections: Vec<&str> = RUNBOOK.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let unique: BTreeSet<&str> = sections.iter().copied().collect();
    assert_eq!(unique.len(), sections.len(), "a section is there twice");
    let alerts = rules::alerts();
    assert_eq!(unique, alerts.iter().map(rules::Rule::name).collect());
    for text in RUNBOOK.split("\n## ").skip(1) {
        for part in ["**What it means.** ", "**How to look.** ", "**What to do.** "] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

#[test]
fn the_runbook_names_metrics_that_there_are() {
    let known = Known::read();
    for code in RUNBOOK.split('`').skip(1).step_by(2) {
        if code.contains("numa_enforcer_") {
            known.of(code).unwrap_or_else(|why| panic!("{code}: {why}"));
        }
    }
}

#[test]
fn every_alert_is_tested_firing_and_silent() {
    let expectations = rules::expectations();
    for alert in rules::alerts() {
        for fires in [true, false] {
            let mut about = expectations.iter().filter(|one| one.alertname == alert.name());
            assert!(about.any(|one| one.exp_alerts.is_empty() != fires), "{} fires: {fires}", alert.name());
        }
    }
    let names: BTreeSet<String> = rules::alerts().iter().map(|alert| alert.name().to_owned()).collect();
    let unknown = expectations.iter().find(|one| !names.contains(&one.alertname));
    assert!(unknown.is_none(), "a test of {}", unknown.unwrap().alertname);
}

#[test]
fn every_threshold_is_used_and_none_is_written_elsewhere() {
    let (thresholds, others): (Vec<_>, Vec<_>) =
        rules::all().into_iter().partition(|rule| rule.name().starts_with("numa_enforcer:"));
    for threshold in &thresholds {
        assert!(threshold.expr.starts_with("vector("), "{}", threshold.name());
        let used = others.iter().any(|rule| rule.expr.contains(&format!("scalar({})", threshold.name())));
        assert!(used, "{} is not used", threshold.name());
    }
    for rule in &others {
        let compared = rule.expr.split(['>', '<']).skip(1);
        for right in compared.map(|right| right.trim_start_matches('=').trim_start()) {
            assert!(right.starts_with("scalar(") || right.starts_with('0'), "{}: {right}", rule.name());
        }
    }
}
