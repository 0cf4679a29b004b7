//! Sandboxes of pods, and the wait for what a runtime announces.

use std::{thread, time::Duration};

use super::*;

fn sandbox_of(name: &str) -> Workload {
    let mut workload = workload_of(name);
    workload.cgroup = CgroupPath::new(&format!("/kubepods/pod{name}/sandbox-{name}"));
    if let Origin::Pod { container_id, .. } = &mut workload.origin {
        *container_id = Some(format!("sandbox-{name}"));
    }
    workload
}

#[test]
fn a_sandbox_is_no_workload_for_as_long_as_its_pod_is_there() {
    let placed = placed(true);
    let left = |placed: &SharedLedger| {
        let mut workloads = vec![sandbox_of("one"), workload_of("one"), sandbox_of("two")];
        let sandboxes = placed.without_sandboxes(&mut workloads);
        let names: Vec<String> = sandboxes.into_iter().map(|(_, name)| name).collect();
        (workloads.len(), names)
    };
    assert_eq!(left(&placed), (3, vec![]), "nothing was told of any pod");
    create(&placed, "one", 1);
    assert_eq!(left(&placed), (2, vec!["shop/one (sandbox)".to_owned()]));
    ask(&placed, |reply| NriCall::Synchronize {
        runtime: RuntimeVersion::default(),
        pods: vec![pod("one", ""), pod("two", "")],
        containers: Vec::new(),
        reply,
    });
    assert_eq!(left(&placed).0, 1, "a pod without containers has one, too");
    super::super::answer(
        &placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::PodRemoved(Box::new(pod("two", ""))),
    );
    assert_eq!(left(&placed).0, 2);
}

#[test]
fn the_first_turn_waits_for_a_runtime_that_says_which_containers_there_are_or_is_not_there() {
    for is_there in [true, false] {
        let placed = placed(true);
        let told = placed.clone();
        let telling = thread::spawn(move || {
            if is_there {
                synchronize(&told, &["one"], "0-1");
            } else {
                let down = NriCall::Down("connecting to /n: absent".into());
                super::super::answer(&told, &Gate::default(), &ResourceFiles::default(), down);
            }
        });
        // A bound on a hang: the wait ends with the runtime's list.
        placed.wait_for_runtime(Duration::from_mins(10));
        assert_eq!(placed.lock().roster.names.len(), usize::from(is_there));
        telling.join().unwrap();
    }
    // A silent runtime is waited for no longer than asked.
    placed(true).wait_for_runtime(Duration::from_millis(1));
}
