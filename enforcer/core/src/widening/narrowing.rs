//! When a widened workload may be narrowed to its own nodes again.
//!
//! Problem: the pages that it has elsewhere must find room at home, and home may fill up again. A narrowing
//! too early is followed by a widening, and each of the two costs more than waiting. Idea: for a minute
//! without a break home must have room for all those pages and a sixth of its size, not be filling up, and
//! its tasks must not wait for memory. A workload that had to be widened again soon after waits twice as long
//! the next time, up to half an hour.
//!
//! Invariants: no narrowing while any widening is in progress (the kernel moves pages of all cgroups one
//! after the other, and the widening would wait), with missing figures, without room, or if it would change a
//! memory policy that its processes have set.
//!
//! Cost: one comparison for each widened workload in each turn.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    model::{WorkloadModel, accessed_bytes},
    policy::WideningSettings,
    sample::Sample,
    words,
    workload::CgroupPath,
};
use numa_topology::{Topology, set::NodeSet};

/// Longest calm time that a workload waits for, in ns.
const LONGEST: u64 = 1_800 * 1_000_000_000;
/// Percent of its size that home keeps free after the pages return.
const HOME_PERCENT: u64 = 16;
/// Fastest growth at home, per second, as one part in so many of its size.
const RATE_PARTS: u64 = 100;
/// Highest percent of the time in which some of its tasks wait for memory (`some avg10` of
/// `memory.pressure`).
const PRESSURE_PERCENT: f64 = 1.0;

/// Figures of a widened workload at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Calmness {
    /// Available bytes of its home nodes.
    pub home_free: Option<u64>,
    /// Size of its home nodes in bytes.
    pub home_size: Option<u64>,
    /// Bytes that it has on the added nodes.
    pub away: Option<u64>,
    /// Bytes per second by which its home fills up; 0 when it does not.
    pub rate: Option<u64>,
    /// Percent of the time in which some of its tasks wait for memory; `None` if it is not measured.
    pub pressure: Option<f64>,
}

/// Widened workloads with the time since which each is calm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Narrowing(BTreeMap<CgroupPath, CalmRecord>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CalmRecord {
    /// Start of the calm time; absent while home lacks room.
    calm_since: Option<u64>,
    /// Time of the last narrowing.
    narrowed: Option<u64>,
    /// Calm time that it must reach, in ns; absent for that of the configuration.
    wait: Option<u64>,
}

impl Calmness {
    /// Figures from the samples of two turns, of a workload to which `extra` nodes were added; `None` for
    /// missing ones.
    pub fn of(
        machine: &Topology,
        (before, now): (Option<&Sample>, &Sample),
        cgroup: &CgroupPath,
        figures: Option<&WorkloadModel>,
        extra: &NodeSet,
    ) -> Self {
        let home = figures.and_then(|figures| Some(figures.mems.as_ref()?.difference(extra)));
        let home = home.map(|home| home.difference(&machine.gpu_memory_nodes()));
        let home = home.filter(|home| !home.is_empty());
        let free = |sample: &Sample| -> Option<u64> {
            home.as_ref()?.iter().map(|node| sample.nodes.get(&node)?.available_bytes()).sum()
        };
        let size =
            || -> Option<u64> { home.as_ref()?.iter().map(|node| machine.node(node)?.mem_total_bytes).sum() };
        let rate = || {
            let before = before?;
            let passed = now.monotonic_ns.checked_sub(before.monotonic_ns).filter(|ns| *ns > 0)?;
            let went = free(before)?.saturating_sub(free(now)?);
            u64::try_from(u128::from(went) * 1_000_000_000 / u128::from(passed)).ok()
        };
        let away = || {
            let bytes = figures?.bytes_by_node.as_ref()?;
            let on = |node| bytes.get(&node).map_or(0, accessed_bytes);
            Some(extra.iter().map(on).sum())
        };
        let pressure = || Some(now.cgroups.get(cgroup)?.memory_pressure.as_ref()?.some.avg10);
        Self { home_free: free(now), home_size: size(), away: away(), rate: rate(), pressure: pressure() }
    }

    /// Reason why it must stay wide; `None` if home has room for it.
    fn unfit(&self) -> Option<String> {
        let known = self.home_free.zip(self.home_size).zip(self.away).zip(self.rate);
        let Some((((free, size), away), rate)) = known else {
            return Some("how much room there is on its own nodes is not known".to_owned());
        };
        let needed = (away / 10).saturating_add(away).saturating_add(size / 100 * HOME_PERCENT);
        if free < needed {
            return Some(format!(
                "its own nodes have {} free, {} are needed for what it has elsewhere",
                words::size(free),
                words::size(needed)
            ));
        }
        if rate > size / RATE_PARTS {
            return Some(format!("its own nodes fill up by {} per second", words::size(rate)));
        }
        let waits = self.pressure.filter(|percent| *percent >= PRESSURE_PERCENT)?;
        Some(format!("its tasks wait for memory {waits:.1} % of the time"))
    }
}

impl Narrowing {
    /// Checks whether the workload may be narrowed now; the error is the reason why not. `busy` is true while
    /// any widening is in progress. `hindered` returns the setting of its processes that a narrowing would
    /// change; it is called last.
    pub fn review(
        &mut self,
        cgroup: &CgroupPath,
        seen: &Calmness,
        busy: bool,
        settings: &WideningSettings,
        now_ns: u64,
        hindered: impl FnOnce() -> Option<String>,
    ) -> Result<(), String> {
        let kept = self.0.entry(cgroup.clone()).or_default();
        // It was widened again within the time that it had waited before.
        if let Some(narrowed) = kept.narrowed.take() {
            let usual = settings.narrow_after.as_nanos();
            let waited = kept.wait.unwrap_or(usual);
            let relapse = now_ns.saturating_sub(narrowed) < waited.max(usual).saturating_mul(2);
            kept.wait = relapse.then(|| waited.saturating_mul(2).min(LONGEST.max(usual)));
        }
        if let Some(reason) = seen.unfit() {
            kept.calm_since = None;
            return Err(reason);
        }
        // A time in the future, as after a clock restart, counts as now.
        let since = (*kept.calm_since.get_or_insert(now_ns)).min(now_ns);
        kept.calm_since = Some(since);
        let wait = kept.wait.unwrap_or(settings.narrow_after.as_nanos());
        let left = wait.saturating_sub(now_ns - since);
        if left > 0 {
            let seconds = left.div_ceil(1_000_000_000);
            return Err(format!("there is room on its own nodes; they are all it has again in {seconds} s"));
        }
        if busy {
            return Err("another workload is being widened".to_owned());
        }
        if let Some(reason) = hindered() {
            return Err(reason);
        }
        kept.calm_since = None;
        kept.narrowed = Some(now_ns);
        Ok(())
    }

    /// Forgets workloads that are gone.
    pub fn retain(&mut self, is_there: impl Fn(&CgroupPath) -> bool) {
        self.0.retain(|cgroup, _| is_there(cgroup));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::{CgroupSample, NodeBytes, NodeSample, Pressure, PressureLine};
    use numa_topology::{id::NodeId, synth::Machine};

    const SECOND: u64 = 1_000_000_000;
    const GIB: u64 = 1 << 30;

    fn calm() -> Calmness {
        Calmness {
            home_free: Some(60 * GIB),
            home_size: Some(100 * GIB),
            away: Some(30 * GIB),
            rate: Some(0),
            pressure: Some(0.2),
        }
    }

    fn review(narrowing: &mut Narrowing, seen: &Calmness, busy: bool, at: u64) -> Result<(), String> {
        narrowing.review(
            &CgroupPath::new("/a"),
            seen,
            busy,
            &WideningSettings::default(),
            at * SECOND,
            || None,
        )
    }

    /// `FREE` GiB on each of two nodes, at this second.
    fn sample(at: u64, free: [u64; 2], pressure: Option<f64>) -> Sample {
        let node = |free: u64| NodeSample {
            mem_free_bytes: Some(free * GIB),
            lru_file_bytes: Some(0),
            ..NodeSample::default()
        };
        let some = |avg10| PressureLine { avg10, ..PressureLine::default() };
        let some = pressure.map(|avg10| Pressure { some: some(avg10), full: None });
        let cgroup = CgroupSample { memory_pressure: some, ..CgroupSample::default() };
        Sample {
            monotonic_ns: at * SECOND,
            nodes: (0..).map(NodeId).zip(free.map(node)).collect(),
            cgroups: [(CgroupPath::new("/a"), cgroup)].into(),
            ..Sample::default()
        }
    }

    #[test]
    fn what_is_known_of_a_workload_is_that_of_its_own_nodes_and_what_it_has_elsewhere() {
        let machine = Machine::new().sockets(2).build();
        let size = machine.node(NodeId(0)).unwrap().mem_total_bytes;
        let extra: NodeSet = "1".parse().unwrap();
        let figures = WorkloadModel {
            mems: "0-1".parse().ok(),
            bytes_by_node: Some([(NodeId(1), NodeBytes { anon: 3, file: 4, ..NodeBytes::default() })].into()),
            ..WorkloadModel::default()
        };
        let (before, now) = (sample(10, [30, 1], None), sample(20, [20, 9], Some(0.5)));
        let of =
            |before, figures| Calmness::of(&machine, (before, &now), &CgroupPath::new("/a"), figures, &extra);
        let known = Calmness {
            home_free: Some(20 * GIB),
            home_size: size,
            away: Some(7),
            rate: Some(GIB),
            pressure: Some(0.5),
        };
        assert_eq!(of(Some(&before), Some(&figures)), known);
        assert_eq!(of(None, Some(&figures)), Calmness { rate: None, ..known });
        assert_eq!(of(Some(&now), Some(&figures)).rate, None, "no time has passed");
        let nowhere = WorkloadModel { mems: "1".parse().ok(), ..figures.clone() };
        let unknown = Calmness { home_free: None, home_size: None, rate: None, ..known };
        assert_eq!(of(Some(&before), Some(&nowhere)), unknown, "it has no node of its own");
        assert_eq!(of(Some(&before), None), Calmness { away: None, ..unknown });
    }

    #[test]
    fn a_minute_of_room_without_a_break() {
        let mut narrowing = Narrowing::default();
        for (at, seen, due) in [
            (0, calm(), false),
            (59, calm(), false),
            (60, Calmness { pressure: Some(1.0), ..calm() }, false),
            (61, calm(), false),
            (120, Calmness { pressure: None, ..calm() }, false),
            (121, calm(), true),
        ] {
            assert_eq!(review(&mut narrowing, &seen, false, at).is_ok(), due, "at {at} s");
        }
    }

    #[test]
    fn without_room_or_figures_it_stays_and_says_why() {
        for (seen, said) in [
            (Calmness { home_free: Some(48 * GIB), ..calm() }, "48 GiB free"),
            (Calmness { rate: Some(2 * GIB), ..calm() }, "fill up"),
            (Calmness { pressure: Some(7.25), ..calm() }, "7.2 %"),
            (Calmness { away: None, ..calm() }, "not known"),
            (Calmness { home_free: None, ..calm() }, "not known"),
        ] {
            let mut narrowing = Narrowing::default();
            assert!(review(&mut narrowing, &seen, false, 0).is_err());
            let reason = review(&mut narrowing, &seen, false, 10_000).unwrap_err();
            assert!(reason.contains(said), "{said}: {reason}");
        }
    }

    #[test]
    fn workload_that_is_widened_again_waits_twice_as_long() {
        let mut narrowing = Narrowing::default();
        let (mut at, mut waits) = (0, Vec::new());
        for _ in 0..7 {
            let begun = at;
            while review(&mut narrowing, &calm(), false, at).is_err() {
                at += 1;
            }
            waits.push(at - begun);
            at += 1;
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 1800, 1800]);
        // Long enough at home, and it begins anew.
        at += 4_000;
        assert!(review(&mut narrowing, &calm(), false, at).is_err());
        assert!(review(&mut narrowing, &calm(), false, at + 60).is_ok());
    }

    #[test]
    fn nothing_is_narrowed_while_something_is_widened() {
        let mut narrowing = Narrowing::default();
        assert!(review(&mut narrowing, &calm(), false, 0).is_err());
        assert_eq!(
            review(&mut narrowing, &calm(), true, 100).unwrap_err(),
            "another workload is being widened"
        );
        assert!(review(&mut narrowing, &calm(), false, 101).is_ok());
    }

    proptest! {
        #[test]
        fn it_is_never_narrowed_without_room_or_beside_a_widening(
            looks in proptest::collection::vec(
                (1u64..400, 0u64..100, 0u64..100, 0u64..3, any::<bool>()), 1..60,
            ),
        ) {
            let mut narrowing = Narrowing::default();
            let mut at = 0;
            for (passed, free, away, rate, busy) in looks {
                at += passed;
                let seen = Calmness {
                    home_free: Some(free * GIB),
                    away: Some(away * GIB),
                    rate: Some(rate * GIB),
                    ..calm()
                };
                if review(&mut narrowing, &seen, busy, at).is_ok() {
                    prop_assert!(!busy && rate <= 1);
                    prop_assert!(free * 10 + 1 >= away * 11 + 160, "{} free, {} away", free, away);
                }
            }
        }
    }
}
