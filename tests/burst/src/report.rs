//! What a burst came to, as a table and as JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use crate::{Arm, Micros, burst::Scenario};

/// Pods that run, and NUMA nodes that they have together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spread {
    /// Admitted pods.
    pub pods: usize,
    /// Sum of their NUMA nodes.
    pub numa_nodes: usize,
}

/// What an arm did with a burst.
#[derive(Debug, Clone)]
pub struct ArmReport {
    /// The arm.
    pub arm: Arm,
    /// Pods that are to run: as many as an exact packer places.
    pub wanted: usize,
    /// Pods that were made, those included that replace refused ones.
    pub created: usize,
    /// Bindings that landed.
    pub bound: usize,
    /// Pods that run in the end.
    pub running: usize,
    /// Pods that kubelets refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Attempts and bindings that ended with an error.
    pub errors: u64,
    /// Scheduling cycles.
    pub attempts: u64,
    /// Simulated time at which the last pod began to run.
    pub all_running_us: Micros,
    /// Simulated time at the end.
    pub ended_us: Micros,
    /// Whether the end was that of the time, and not rest.
    pub reached_limit: bool,
    /// NUMA nodes of pods.
    pub spread: Spread,
    /// Real times of filter calls.
    pub filter_us: Vec<Micros>,
    /// Real times of bindings, to the reply.
    pub bind_us: Vec<Micros>,
}

impl ArmReport {
    /// A report without any event.
    pub const fn new(arm: Arm, wanted: usize) -> Self {
        Self {
            arm,
            wanted,
            created: 0,
            bound: 0,
            running: 0,
            refused: BTreeMap::new(),
            errors: 0,
            attempts: 0,
            all_running_us: 0,
            ended_us: 0,
            reached_limit: false,
            spread: Spread { pods: 0, numa_nodes: 0 },
            filter_us: Vec::new(),
            bind_us: Vec::new(),
        }
    }

    /// Pods that kubelets refused.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    fn numa_nodes_per_pod(&self) -> f64 {
        self.spread.numa_nodes as f64 / (self.spread.pods as f64).max(1.0)
    }

    /// The report as an object.
    pub fn to_json(&self) -> Value {
        json!({
            "arm": self.arm, "podsWanted": self.wanted, "podsCreated": self.created,
            "podsRunning": self.running, "refusals": self.refusals(), "refusalsByReason": self.refused,
            "errors": self.errors, "cycles": self.attempts,
            "lastPodRunningMs": self.all_running_us / 1_000, "endedMs": self.ended_us / 1_000,
            "reachedLimit": self.reached_limit, "numaNodesPerPod": self.numa_nodes_per_pod(),
            "filterCalls": self.filter_us.len(), "filterP50Us": percentile(&self.filter_us, 50),
            "filterP99Us": percentile(&self.filter_us, 99), "bindP50Us": percentile(&self.bind_us, 50),
            "bindP99Us": percentile(&self.bind_us, 99),
        })
    }
}

/// A percentile; 0 without values.
pub fn percentile(values: &[Micros], percent: usize) -> Micros {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

/// A table of the arms of a scenario.
pub fn table(scenario: &Scenario, reports: &[ArmReport]) -> String {
    let Scenario { nodes, percent, policy, seed, .. } = scenario;
    let pods = reports.first().map_or(0, |report| report.wanted);
    let mut text = format!(
        "{pods} pods on {nodes} nodes, {percent} % of the CPUs, {policy}, seed {seed}; simulated seconds\n"
    );
    let _ = writeln!(
        text,
        "{:<17} {:>8} {:>7} {:>7} {:>9} {:>9} {:>9} {:>10} {:>7}",
        "arm",
        "refusals",
        "running",
        "of best",
        "last runs",
        "cycles/pod",
        "made/pod",
        "NUMA nodes",
        "errors"
    );
    for report in reports {
        let per_pod = |number: usize| number as f64 / (report.wanted as f64).max(1.0);
        let _ = writeln!(
            text,
            "{:<17} {:>8} {:>7} {:>6.1}% {:>8.1}s {:>10.2} {:>8.2} {:>10.2} {:>7}{}",
            report.arm.as_str(),
            report.refusals(),
            report.running,
            100.0 * per_pod(report.running),
            report.all_running_us as f64 / 1e6,
            report.attempts as f64 / (report.wanted as f64).max(1.0),
            per_pod(report.created),
            report.numa_nodes_per_pod(),
            report.errors,
            if report.reached_limit { "  (still replacing pods at the end)" } else { "" },
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<Micros> = (1..=200).rev().collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 99)), (100, 198));
        assert_eq!((percentile(&[7], 99), percentile(&[], 50)), (7, 0));
    }

    #[test]
    fn table_and_object_have_the_refusals_of_all_reasons() {
        let mut report = ArmReport::new(Arm::Default, 4);
        report.refused = BTreeMap::from([("A".to_owned(), 2), ("B".to_owned(), 3)]);
        (report.running, report.spread) = (3, Spread { pods: 2, numa_nodes: 3 });
        assert_eq!(report.to_json()["refusals"], json!(5));
        assert_eq!(report.to_json()["numaNodesPerPod"], json!(1.5));
        let scenario =
            Scenario { nodes: 1, percent: 90, policy: "restricted".into(), seed: 1, product: None };
        let text = table(&scenario, &[report]);
        assert!(text.contains("default") && text.contains(" 5 ") && text.contains("75.0%"), "{text}");
    }
}
