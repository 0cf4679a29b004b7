//! In which order workloads are shown, and which of them.
//!
//! Unknown values come last in every order: they are not 0. Equal ones keep the order of the report, so that
//! a screen does not flicker between turns.

use super::{report::TopWorkload, sort::Sort};

impl Sort {
    /// Indices of the workloads, most first.
    pub fn order(self, workloads: &[TopWorkload]) -> Vec<usize> {
        let mut keyed: Vec<(Option<f64>, Option<f64>, usize)> =
            workloads.iter().zip(0..).map(|(one, index)| (self.of(one), self.second(one), index)).collect();
        keyed.sort_by(|(a, a2, at), (b, b2, other)| {
            descending(*a, *b).then_with(|| descending(*a2, *b2)).then(at.cmp(other))
        });
        keyed.into_iter().map(|(_, _, index)| index).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "an order needs no more than 52 bits")]
    fn of(self, workload: &TopWorkload) -> Option<f64> {
        match self {
            Self::Traffic => workload.remote_cpus(),
            Self::Bytes => workload.misplaced_bytes.map(|bytes| bytes as f64),
            Self::Migrations => workload.migrations_per_second,
        }
    }

    /// Second key for equal ones.
    fn second(self, workload: &TopWorkload) -> Option<f64> {
        match self {
            Self::Traffic => workload.remote_traffic.or(workload.remote_residency),
            Self::Bytes | Self::Migrations => workload.remote_cpus(),
        }
    }
}

/// Most first, unknown last.
fn descending(a: Option<f64>, b: Option<f64>) -> std::cmp::Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// Is the workload one that `wanted` is a part of the name or cgroup of, in capitals or not?
pub(super) fn matches(workload: &TopWorkload, wanted: &str) -> bool {
    let wanted = wanted.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    wanted.is_empty() || has(&workload.name) || has(workload.cgroup.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::plain;

    #[test]
    fn most_come_first_and_unknown_last() {
        let one = |name: &str, traffic, cpus, bytes, moves| TopWorkload {
            remote_traffic: traffic,
            cpus_used: Some(cpus),
            misplaced_bytes: bytes,
            migrations_per_second: moves,
            ..plain(name)
        };
        let all = [
            one("/idle", Some(1.0), 0.01, Some(7), Some(0.0)),
            one("/busy", Some(0.5), 8.0, Some(0), None),
            one("/unknown", None, 64.0, None, Some(2.0)),
        ];
        assert_eq!(Sort::Traffic.order(&all), [1, 0, 2]);
        assert_eq!(Sort::Bytes.order(&all), [0, 1, 2]);
        assert_eq!(Sort::Migrations.order(&all), [2, 0, 1]);
        let mut sort = Sort::default();
        for _ in Sort::ALL {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::default());
    }

    #[test]
    fn a_part_of_the_name_or_cgroup_is_enough() {
        let workload = TopWorkload { name: "Orders".into(), ..plain("/shop/db") };
        for (wanted, found) in [("", true), ("ord", true), ("SHOP", true), ("x", false)] {
            assert_eq!(matches(&workload, wanted), found, "{wanted}");
        }
    }
}
