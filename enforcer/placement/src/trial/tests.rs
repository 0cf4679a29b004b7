//! Reports of the steps. Allocations are given by hand where an engine's choice does not matter.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    ColdStart, ContainerRequest, Grant, Resources, SharedCpus, qos_class,
    settings::{PlacementEngine, TopologyPolicy},
};
use numa_topology::synth::Machine;

fn name(pod: &str) -> PodName {
    PodName::new("default", pod)
}

fn container(name: &str, kind: ContainerKind, cpus: u64, gib: u64) -> ContainerRequest {
    let amounts =
        Resources { milli_cpus: Some(cpus * 1000), memory_bytes: Some(gib << 30), ..Resources::default() };
    ContainerRequest {
        name: name.into(),
        kind,
        requests: amounts.clone(),
        limits: amounts,
        ..ContainerRequest::default()
    }
}

fn pod(pod: &str, containers: Vec<ContainerRequest>) -> PodRequest {
    PodRequest {
        name: name(pod),
        qos: qos_class(&containers),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        containers,
        documents: BTreeMap::new(),
        previous: BTreeMap::new(),
        undescribed: None,
    }
}

fn step(action: TrialAction) -> TrialStep {
    TrialStep { action, warnings: Vec::new() }
}

fn create(pod: PodRequest) -> TrialStep {
    step(TrialAction::Create(pod))
}

fn exclusive(cpus: &str) -> Grant {
    Grant { exclusive: cpus.parse().unwrap(), pin_cpus: true, ..Grant::default() }
}

fn shared(scope: &str) -> Grant {
    Grant { shared: Some(SharedCpus::new(scope.parse().unwrap(), 1000)), pin_cpus: true, ..Grant::default() }
}

/// Two nodes of four CPUs and 16 GiB.
fn two_nodes() -> Inventory {
    let machine = Machine::new().sockets(2).cores(2).build();
    Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap()
}

#[test]
fn a_cold_start_ends_in_a_step_and_changes_its_own_pod() {
    let (inventory, settings) = (two_nodes(), PlacementSettings::default());
    let mut trial = Trial::new(&inventory, &settings, false);
    let cold = Grant {
        mems: "1".parse().unwrap(),
        pin_mems: true,
        cold_start: Some(ColdStart {
            after: Duration::from_secs(9),
            mems: "0".parse().unwrap(),
            began_ns: None,
        }),
        ..Grant::default()
    };
    for (container, grant) in [("cold", cold.clone()), ("free", Grant { pin_mems: false, ..cold })] {
        trial.allocations.give(Holder::new(name("p"), container.into()), grant);
    }
    let warm = step(TrialAction::Warm(name("p")));
    let report = trial.step(&warm);
    let told: Vec<_> =
        report.updates.iter().map(|update| (update.container.as_str(), update.mems.clone())).collect();
    assert_eq!(
        told,
        [("default/p/cold", Some("0-1".parse().unwrap()))],
        "only pinned containers are updated"
    );
    assert_eq!((report.action, report.admitted, report.warnings.len()), (StepKind::Warm, true, 0));
    let again = trial.step(&warm);
    assert_eq!((again.updates.len(), again.warnings.len()), (0, 1), "{again:?}");
}

#[test]
fn deleting_gives_the_cpus_back_to_sharing_containers() {
    let (inventory, settings) = (two_nodes(), PlacementSettings::default());
    let mut trial = Trial::new(&inventory, &settings, false);
    trial.allocations.give(Holder::new(name("a"), "c".into()), exclusive("0-1"));
    trial.allocations.give(Holder::new(name("b"), "c".into()), shared("0-3"));
    let report = trial.step(&step(TrialAction::Delete(name("a"))));
    assert!(report.admitted && report.reason.is_none() && report.containers.is_empty());
    let update =
        UpdateReport { container: "default/b/c".into(), cpus: Some("0-3".parse().unwrap()), mems: None };
    assert_eq!(report.updates, [update]);
    assert_eq!(report.warnings, [""; 0]);
}

#[test]
fn deleting_an_unknown_pod_is_reported_and_changes_nothing() {
    let (inventory, settings) = (two_nodes(), PlacementSettings::default());
    let report = Trial::new(&inventory, &settings, false).step(&step(TrialAction::Delete(name("ghost"))));
    assert!(report.admitted);
    assert_eq!(report.warnings, ["pod default/ghost holds nothing, so there is nothing to take back"]);
}

#[test]
fn init_containers_have_ended_after_the_step() {
    let (inventory, settings) = (two_nodes(), PlacementSettings::default());
    let mut trial = Trial::new(&inventory, &settings, false);
    let other = Holder::new(name("other"), "c".into());
    trial.allocations.give(other.clone(), shared("0-3"));
    let pod =
        pod("a", vec![container("i", ContainerKind::Init, 2, 1), container("c", ContainerKind::App, 1, 1)]);
    let before = PinnedHolders::of_others(&trial.allocations, &pod.name);
    trial.allocations.give(Holder::new(pod.name.clone(), "i".into()), exclusive("0-1"));
    trial.allocations.give(Holder::new(pod.name.clone(), "c".into()), exclusive("0"));
    let (rows, updates) = trial.finish_pod(&pod, Some(before), Vec::new());
    let cpus: Vec<String> = rows.iter().map(|row| format!("{} {}", row.name, row.cpus)).collect();
    assert_eq!(cpus, ["i 0-1", "c 0"]);
    assert_eq!(updates, [Update { holder: other, cpus: Some("1-3".parse().unwrap()), mems: None }]);
    assert_eq!(trial.allocations().exclusive_cpus().to_string(), "0");
    assert_eq!(trial.allocations().of_pod(&pod.name).count(), 1);
}

#[test]
fn the_row_of_an_init_container_shows_what_it_had_before_others_of_its_pod_came() {
    let (inventory, settings) = (two_nodes(), PlacementSettings::default());
    let mut trial = Trial::new(&inventory, &settings, false);
    let pod = pod(
        "a",
        vec![
            container("before", ContainerKind::Sidecar, 1, 1),
            container("i", ContainerKind::Init, 1, 1),
            container("c", ContainerKind::App, 3, 1),
        ],
    );
    let has = [("before", exclusive("0")), ("i", shared("0-3")), ("c", exclusive("1-3"))];
    for (container, grant) in has {
        trial.allocations.give(Holder::new(pod.name.clone(), container.into()), grant);
    }
    let (rows, _) = trial.finish_pod(&pod, None, Vec::new());
    let cpus: Vec<String> = rows.iter().map(|row| format!("{} {}", row.name, row.cpus)).collect();
    assert_eq!(cpus, ["before 0", "i 1-3", "c 1-3"]);
}

#[test]
fn a_rejection_begins_with_the_name_of_the_error_and_the_steps_go_on() {
    let (inventory, settings) = (two_nodes(), PlacementSettings::default());
    let wants = |cpus| pod("a", vec![container("c", ContainerKind::App, cpus, 1)]);
    let steps =
        [step(TrialAction::Resize(wants(1))), create(wants(1000)), step(TrialAction::Delete(name("a")))];
    let report = run(&inventory, &settings, &steps, true);
    assert_eq!(report.steps.iter().map(|step| step.step).collect::<Vec<_>>(), [1, 2, 3]);
    let reasons: Vec<Option<&str>> = report.steps.iter().map(|step| step.reason.as_deref()).collect();
    assert_eq!(reasons[0], Some("UnexpectedAdmissionError: pod default/a is not there"));
    assert!(reasons[1].is_some_and(|reason| reason.contains("Error: ")), "{reasons:?}");
    assert_eq!(reasons[2], None);
    assert!(report.steps.iter().all(|step| step.candidates.is_some()) && !report.all_admitted());
}

#[test]
fn a_resize_keeps_the_class_and_the_containers_of_a_pod() {
    let (inventory, settings) = (two_nodes(), PlacementSettings::default());
    let containers = |names: &[&str], cpus| {
        names.iter().map(|name| container(name, ContainerKind::App, cpus, 1)).collect::<Vec<_>>()
    };
    let mut burstable = pod("a", containers(&["c"], 1));
    burstable.containers[0].limits.memory_bytes = Some(2 << 30);
    burstable.qos = qos_class(&burstable.containers);
    for (to, said) in [
        (pod("a", containers(&["c"], 2)), None),
        (burstable, Some("may not change the QoS class of a pod: it is Guaranteed and would be Burstable")),
        (pod("a", containers(&["c", "d"], 1)), Some("may not add containers: the pod has no d")),
        (pod("a", containers(&["d"], 1)), Some("may not add containers: the pod has no d")),
    ] {
        let steps = [create(pod("a", containers(&["c"], 1))), step(TrialAction::Resize(to))];
        let report = run(&inventory, &settings, &steps, false).steps.pop().unwrap();
        let reason = report.reason.as_deref().unwrap_or_default();
        assert_eq!(report.admitted, said.is_none(), "{report:?}");
        assert!(said.is_none_or(|said| reason.contains(said)), "{reason}");
    }
}

#[test]
fn rejected_pod_report_names_containers_that_would_have_to_move() {
    let (inventory, mut settings) = (two_nodes(), PlacementSettings::default());
    settings.hints.policy = TopologyPolicy::SingleNumaNode;
    let wants =
        |name: &str, cpus, gib| create(pod(name, vec![container("c", ContainerKind::App, cpus, gib)]));
    // The first two have all CPUs of a node, the third has most memory of the other.
    let steps = [wants("a", 2, 1), wants("b", 2, 1), wants("c", 1, 14), wants("large", 2, 15)];
    let report = run(&inventory, &settings, &steps, false);
    let last = &report.steps[3];
    assert!(!last.admitted && report.steps[..3].iter().all(|step| step.what_if.is_none()));
    let Some([one]) = last.what_if.as_deref() else { panic!("{report:#?}") };
    assert_eq!((one.container.as_str(), one.bytes), ("default/a/c", 1 << 30));
    assert!(one.from.mems.is_disjoint(&one.to.mems), "{one:?}");
}

/// A step of one of a few pods: create twice as often as the others.
fn any_step() -> impl Strategy<Value = TrialStep> {
    (0..4u8, 0..6u8, 1..10u64, 0..4u64, any::<bool>()).prop_map(|(what, number, halves, gib, init)| {
        let mut main = container("c", ContainerKind::App, 1, gib);
        for amounts in [&mut main.requests, &mut main.limits] {
            amounts.milli_cpus = Some(halves * 500);
        }
        let init = init.then(|| container("i", ContainerKind::Init, 2, 1));
        let pod = pod(&format!("p{number}"), init.into_iter().chain([main]).collect());
        step(match what {
            0 => TrialAction::Delete(pod.name),
            1 => TrialAction::Resize(pod),
            _ => TrialAction::Create(pod),
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn updates_are_what_is_different_for_others_and_nothing_else(
        steps in proptest::collection::vec(any_step(), 1..25),
        pools in any::<bool>(),
    ) {
        let engine = if pools { PlacementEngine::Pools } else { PlacementEngine::Hints };
        let (inventory, settings) = (two_nodes(), PlacementSettings { engine, ..PlacementSettings::default() });
        let mut trial = Trial::new(&inventory, &settings, false);
        for step in &steps {
            let pod = match &step.action {
                TrialAction::Create(pod) | TrialAction::Resize(pod) => &pod.name,
                TrialAction::Delete(name) | TrialAction::Warm(name) => name,
            };
            let before = PinnedHolders::of_others(trial.allocations(), pod);
            let state = trial.allocations().clone();
            let report = trial.step(step);
            let changes = before.changes(&PinnedHolders::of_others(trial.allocations(), pod));
            let expected: Vec<UpdateReport> = changes.iter().map(UpdateReport::from).collect();
            prop_assert_eq!(&report.updates, &expected, "{:?}", report);
            prop_assert!(report.admitted || *trial.allocations() == state, "{:?}", report);
            let exclusive: usize = trial.allocations().iter().map(|(_, grant)| grant.exclusive.len()).sum();
            prop_assert_eq!(exclusive, trial.allocations().exclusive_cpus().len());
            for row in &report.containers {
                prop_assert_eq!(&row.cpus, &row.exclusive_cpus.union(&row.shared_cpus));
                prop_assert!(!row.cpus.is_empty(), "{:?}", report);
            }
        }
        let again = run(&inventory, &settings, &steps, false);
        prop_assert_eq!(again, run(&inventory, &settings, &steps, false));
    }
}
