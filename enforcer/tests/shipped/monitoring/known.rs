//! Which series there are: those of docs/metrics.md, which another test holds to the program, and what the
//! recording rules make of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{promql, rules};

const METRICS: &str = include_str!("../../../../docs/metrics.md");

/// Labels that a scrape adds.
const OF_TARGETS: [&str; 4] = ["cluster", "instance", "node", "job"];

/// Series of others that our rules and dashboards use.
const OF_OTHERS: [(&str, &[&str]); 3] = [
    ("up", &[]),
    ("ALERTS", &["alertname", "alertstate", "severity"]),
    ("kubelet_topology_manager_admission_errors_total", &[]),
];

/// Series by name, with their labels.
pub(crate) struct Known(BTreeMap<String, BTreeSet<String>>);

fn owned<'a>(labels: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    labels.into_iter().chain(OF_TARGETS).map(str::to_owned).collect()
}

impl Known {
    pub(crate) fn read() -> Self {
        let others = OF_OTHERS.map(|(name, labels)| (name.to_owned(), owned(labels.iter().copied())));
        let mut known = Self(BTreeMap::from(others));
        for row in METRICS.lines().filter(|line| line.starts_with("| `numa_enforcer_")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let (name, kind) = (cells[1].trim_matches('`'), cells[2]);
            let labels =
                owned(cells[3].split(", ").filter(|cell| *cell != "-").map(|cell| cell.trim_matches('`')));
            if kind == "histogram" {
                let mut of_buckets = labels.clone();
                of_buckets.insert("le".to_owned());
                known.0.insert(format!("{name}_bucket"), of_buckets);
                known.0.insert(format!("{name}_sum"), labels.clone());
                known.0.insert(format!("{name}_count"), labels);
            } else {
                known.0.insert(name.to_owned(), labels);
            }
        }
        for rule in rules::all().into_iter().filter(|rule| rule.record.is_some()) {
            let labels = known.of(&rule.expr).unwrap_or_else(|why| panic!("{}: {why}", rule.name()));
            assert!(
                known.0.insert(rule.name().to_owned(), labels).is_none(),
                "{} is there twice",
                rule.name()
            );
        }
        known
    }

    /// Labels that the series of an expression have; why not, if it names what is not there.
    pub(crate) fn of(&self, expression: &str) -> Result<BTreeSet<String>, String> {
        let named = promql::read(expression);
        let mut all = owned([]);
        for (name, matched) in &named.series {
            let labels = self.0.get(name).ok_or_else(|| format!("there is no {name}"))?;
            if let Some(label) = matched.iter().find(|label| !labels.contains(*label)) {
                return Err(format!("{name} has no label {label}"));
            }
            all.extend(labels.iter().cloned());
        }
        match named.grouped.iter().find(|label| !all.contains(*label)) {
            Some(label) => Err(format!("nothing there has the label {label}")),
            None => Ok(all),
        }
    }
}

#[test]
fn what_is_not_there_is_found() {
    let known = Known::read();
    for (expression, why) in [
        ("numa_enforcer_ticks_totals", "there is no numa_enforcer_ticks_totals"),
        ("numa_enforcer_degraded{source=\"x\"}", "numa_enforcer_degraded has no label source"),
        ("sum by (pod) (numa_enforcer_ticks_total)", "nothing there has the label pod"),
        ("instance:numa_enforcer_nothing:sum", "there is no instance:numa_enforcer_nothing:sum"),
        (
            "numa_enforcer_page_move_call_duration_seconds",
            "there is no numa_enforcer_page_move_call_duration_seconds",
        ),
    ] {
        assert_eq!(known.of(expression), Err(why.to_owned()));
    }
    assert!(known.of("rate(numa_enforcer_page_move_call_duration_seconds_bucket{le=\"1\"}[5m])").is_ok());
}
