use std::fs;

use super::*;
use crate::{
    Actuator as _, apply_plan,
    fixture::{Fixture, plan, set_cpus, set_mems},
};

/// Above all that a kernel gives (`PID_MAX_LIMIT`), so that nothing real is ever meant.
const PID: u32 = 5_000_000;

fn tree(host: &Fixture) -> CpusetTree {
    CpusetTree::new(&host.layout.cpuset.path, true).with_processes(&host.host().proc)
}

fn host() -> Fixture {
    let host = Fixture::new(true);
    host.cgroup("/a", "0-3\n", "0-1\n");
    host.cgroup("/a/below", "\n", "\n");
    // A plain file of what is in effect does not follow a write; without it the file itself counts.
    fs::write(host.path("/a/below").join("cpuset.cpus.effective"), "0-3\n").unwrap();
    fs::write(host.path("/a/below").join("cpuset.mems.effective"), "0-1\n").unwrap();
    host
}

#[test]
fn threads_of_a_cgroup_and_below_it_are_read_with_their_policies_and_pins() {
    let host = host();
    host.process("/a", PID, "0", "1000 bind:1 anon=1 N1=1\n2000 bind:1\n3000 default\n");
    host.process("/a/below", PID + 1, "0-3", "1000 interleave=static:0-1 file=/x\n");
    let found = read(&tree(&host), &CgroupPath::new("/a"), Depth::AllPolicies).unwrap();
    let shown: Vec<String> = found
        .iter()
        .flat_map(|one| one.threads.iter().map(move |thread| (one, thread)))
        .map(|(one, thread)| {
            let policies: Vec<String> = thread.policies.iter().map(ToString::to_string).collect();
            format!("{} {} {:?} {:?}", one.cgroup, thread.tid, thread.pinned(&one.cpus), policies)
        })
        .collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].starts_with("/a 5000000 Some(") && shown[0].ends_with("[\"bind:1\"]"), "{shown:?}");
    assert_eq!(shown[1], "/a/below 5000001 None [\"interleave=static:0-1\"]");
    assert_eq!(found[0].threads[0].start_ticks, 77);
    assert!(read(&tree(&host), &CgroupPath::new("/gone"), Depth::Affinity).is_err());
}

#[test]
fn a_write_that_would_change_a_policy_is_hindered_unless_it_is_not_respected() {
    let host = host();
    host.process("/a/below", PID, "0-3", "1000 bind:1 anon=1\n");
    let writes = |mems: &str| {
        let writes = CpusetWrites { mems: vec![mems.parse().unwrap()], ..CpusetWrites::default() };
        [(CgroupPath::new("/a"), writes)].into()
    };
    let asked = |mems: &str, respects: bool| {
        hindrances(&tree(&host), &writes(mems), &|_| respects, Depth::AllPolicies).0.into_values().next()
    };
    let reason = asked("0", true).unwrap().reason;
    assert!(reason.contains("bind:1: cpuset.mems = 0"), "{reason}");
    assert_eq!(asked("0", false), None);
    assert_eq!(asked("1", true), None);
}

#[test]
fn the_journal_keeps_what_processes_had_and_restore_names_what_it_cannot_give_back() {
    let host = host();
    host.process("/a", PID, "0", "1000 bind:1 anon=1\n");
    let mut actuator = host.actuator();
    apply_plan(&plan([set_mems("/a", "0-1"), set_mems("/a", "0"), set_cpus("/a", "0-1")]), &mut actuator);
    let recorded: Vec<_> =
        actuator.journal().entries().values().flat_map(|entry| entry.threads.clone()).collect();
    assert!(recorded.iter().any(|thread| thread.policies.iter().any(|own| own.to_string() == "bind:1")));
    drop(actuator);
    // As the kernel does.
    let numa_maps = host.host().proc.as_path().join(format!("{PID}/task/{PID}/numa_maps"));
    fs::write(&numa_maps, "1000 bind:0 anon=1\n").unwrap();
    let report = crate::restore::restore(&tree(&host), Some("boot-1"), &mut host.journal());
    assert_eq!(host.read("/a", "cpuset.mems"), "0-1\n");
    assert!(!report.is_complete());
    assert_eq!(report.lost.len(), 1, "{report:?}");
    assert!(report.lost[0].contains("memory policy bind:1 was rewritten"), "{report:?}");
    // It was said once; the files are as they were.
    let again = crate::restore::restore(&tree(&host), Some("boot-1"), &mut host.journal());
    assert!(again.is_complete());
}

#[test]
fn a_process_that_keeps_its_policy_is_no_loss() {
    let host = host();
    host.process("/a", PID, "0-3", "1000 bind=static:1 anon=1\n");
    apply_plan(&plan([set_mems("/a", "0")]), &mut host.actuator());
    let report = crate::restore::restore(&tree(&host), Some("boot-1"), &mut host.journal());
    assert!(report.is_complete(), "{report:?}");
}

#[test]
fn what_is_overridden_is_recorded_though_the_file_was_recorded_before_a_process_set_it() {
    let host = host();
    let mut actuator = host.actuator();
    actuator.record_mems(&[&CgroupPath::new("/a")]).unwrap();
    host.process("/a", PID, "0-3", "1000 bind:1 anon=1\n");
    apply_plan(&plan([set_mems("/a", "0")]), &mut actuator);
    drop(actuator);
    // As the kernel leaves it.
    let maps = host.host().proc.as_path().join(format!("{PID}/task/{PID}/numa_maps"));
    fs::write(maps, "1000 bind:0 anon=1\n").unwrap();
    let report = crate::restore::restore(&tree(&host), Some("boot-1"), &mut host.journal());
    assert_eq!(report.lost.len(), 1, "{report:?}");
    assert!(report.lost[0].contains("memory policy bind:1 was rewritten"), "{report:?}");
}

#[test]
fn policies_are_asked_of_writes_of_memory_and_moves_and_not_of_cpus() {
    let host = host();
    host.process("/a", PID, "0", "1000 bind:0 anon=1\n");
    let asked = |writes: CpusetWrites| {
        let writes = [(CgroupPath::new("/a"), writes)].into();
        hindrances(&tree(&host), &writes, &|_| true, Depth::AllPolicies).0.into_values().next()
    };
    let cpus = |cpus: &str| CpusetWrites { cpus: vec![cpus.parse().unwrap()], ..CpusetWrites::default() };
    assert_eq!(asked(cpus("0-1")), None);
    let found = asked(cpus("2-3")).unwrap();
    assert!(found.reason.contains("pinned itself to CPUs 0"), "{found:?}");
    assert_eq!(found.pinned.to_string(), "0");
    let moves = |from: &str| CpusetWrites {
        moves: vec![(from.parse().unwrap(), numa_topology::id::NodeId(1))],
        ..CpusetWrites::default()
    };
    let found = asked(moves("0")).unwrap();
    assert!(found.reason.contains("bind:0: its pages would be moved from node 0 to node 1"), "{found:?}");
    assert_eq!(asked(moves("2")), None);
}

#[test]
fn a_missing_right_is_named_as_what_it_is() {
    let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    assert_eq!(unopened(&denied), Looked::Forbidden);
    assert_eq!(unopened(&std::io::Error::from(std::io::ErrorKind::NotFound)), Looked::Whole);
    let told = of_unseen(&["2 threads or processes of /a".into()], &["1 threads or processes of /b".into()]);
    assert_eq!(
        told.unwrap().reason,
        "too many to look at before a write: 2 threads or processes of /a; numa_maps may not be read \
         (CAP_SYS_PTRACE): 1 threads or processes of /b"
    );
    assert_eq!(of_unseen(&[], &[]), None);
}
