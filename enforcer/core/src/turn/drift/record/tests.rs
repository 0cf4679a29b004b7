use std::collections::BTreeSet;

use super::*;
use crate::turn::{
    CpusetTarget, DriftStatus,
    drift::{TargetReached, WINDOW_NS, WorkloadDrift},
};

fn kept(cgroup_id: u64, repairs: &[u64]) -> WorkloadDrift {
    let goal = Cpuset { cpus: "0-1".parse().ok(), mems: "0".parse().ok() };
    let left_alone = repairs.len() == REPAIRS;
    let repairs = repairs.to_vec();
    WorkloadDrift { cgroup_id: Some(cgroup_id), goal, reached: TargetReached::Yes, repairs, left_alone }
}

fn drift(of: &[(&str, WorkloadDrift)]) -> Drift {
    Drift(of.iter().map(|(cgroup, kept)| (CgroupPath::new(cgroup), kept.clone())).collect())
}

fn written(drift: &Drift) -> String {
    serde_json::to_string(&drift.to_record("boot")).unwrap()
}

fn read(text: &str, boot_id: &str, now_ns: u64) -> Result<Drift, DriftRecordError> {
    Drift::of_record(serde_json::from_str(text).unwrap(), boot_id, now_ns)
}

#[test]
fn only_workloads_put_back_within_the_hour_are_recorded() {
    let now = 2 * WINDOW_NS;
    let old = now - WINDOW_NS;
    let before =
        drift(&[("/a \"b\"", kept(1, &[old, old + 1])), ("/old", kept(2, &[old])), ("/new", kept(3, &[]))]);
    let after = drift(&[("/a \"b\"", kept(1, &[old + 1]))]);
    assert_eq!(before.lasting(now), after);
    let text = written(&before.lasting(now));
    assert_eq!(read(&text, "boot", now).unwrap(), after);
    assert!(read(&text, "boot", now + 1).unwrap().is_empty(), "the hour is over");
    assert!(read(&text, "boot", 0).unwrap().is_empty(), "it has not been yet");
    assert!(read(&text, "other", now).unwrap().is_empty(), "another boot");
}

#[test]
fn workload_left_alone_stays_so_and_a_recreated_cgroup_begins_anew() {
    let before = drift(&[("/db", kept(1, &[1, 2, 3])), ("/web", kept(2, &[1]))]);
    let text = written(&before);
    let mut after = read(&text, "boot", 9).unwrap();
    let (path, goal) = (CgroupPath::new("/db"), kept(1, &[]).goal);
    assert_eq!(after.given_up(9).collect::<Vec<_>>(), [(&path, &goal)]);
    assert_eq!(after.given_up(WINDOW_NS + 1).count(), 0);
    assert_eq!(after.standing(&path, Some(1), &goal, false, 9), DriftStatus::LeftAlone);
    assert_eq!(after.standing(&path, Some(7), &goal, false, 9), DriftStatus::OnItsWay);
    let target = CpusetTarget { cgroup_id: Some(1), cpuset: goal, standing: DriftStatus::LeftAlone };
    assert_eq!(after.note(&[(path, target)].into(), &[], &BTreeSet::new(), 9), [], "it was said before");
}

#[test]
fn what_is_no_record_of_this_program_is_not_believed() {
    let text = written(&drift(&[("/db", kept(1, &[1]))]));
    assert!(!read(&text, "boot", 9).unwrap().is_empty(), "the control");
    let newer = text.replace("\"version\":1", "\"version\":2");
    assert_eq!(read(&newer, "boot", 9).unwrap_err().to_string(), "version 2 is not known");
    let four = text.replace("[1]", "[1,2,3,4]");
    assert!(matches!(read(&four, "boot", 9), Err(DriftRecordError::TooMuch)), "{four}");
    for damaged in ["", "{}", "[]", "\0", &text[1..], &text[..text.len() - 1], &text.replace("[1]", "[-1]")] {
        assert!(serde_json::from_str::<LastingDrift>(damaged).is_err(), "{damaged:?}");
    }
}

#[test]
fn of_too_many_those_are_written_that_were_put_back_last() {
    let cgroup = |n: usize| CgroupPath::new(&format!("/{n}"));
    let many = Drift((0..2 * MOST).map(|n| (cgroup(n), kept(1, &[n as u64]))).collect());
    let lasting = many.lasting(10_000);
    assert_eq!(lasting.0.len(), MOST);
    assert!(lasting.0.values().all(|kept| kept.repairs[0] >= MOST as u64));
    assert_eq!(read(&written(&lasting), "boot", 10_000).unwrap(), lasting);
    let mut record = lasting.to_record("boot");
    record.halve();
    assert_eq!(Drift::of_record(record, "boot", 10_000).unwrap().0.len(), MOST / 2);
    assert!(matches!(Drift::of_record(many.to_record("boot"), "boot", 9), Err(DriftRecordError::TooMuch)));
}
