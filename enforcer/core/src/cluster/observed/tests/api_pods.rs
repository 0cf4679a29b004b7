//! What the pods of the API tell beside the kubelet's files.

use super::*;

/// A device plugin takes its time for the second container, which shares its CPUs.
#[test]
fn a_pod_that_waits_for_devices_is_named() {
    let mut kubelet = Kubelet::new();
    let mut pod = web();
    let mut second =
        ApiContainer { name: "second".into(), exclusive_cpus: Some(0), ..ApiContainer::default() };
    let mut reasons = |second: &ApiContainer| {
        pod.containers.truncate(1);
        pod.containers.push(second.clone());
        kubelet.api.pods = Some(vec![pod.clone()]);
        let inexact = kubelet.state().inexact.into_iter();
        inexact.map(|one| format!("{}: {}", one.source, one.reason)).collect::<Vec<_>>()
    };
    second.devices.insert(GPU.into(), 1);
    assert_eq!(reasons(&second), ["kubelet:admission: pod shop/web holds a part of its devices only"]);
    second.devices = [("dra.com/gpu".to_owned(), 1)].into();
    assert_eq!(reasons(&second), [""; 0], "no plugin has this resource");
}

#[test]
fn pods_of_the_api_are_needed_where_nothing_else_tells_of_a_waiting_admission() {
    type Change = fn(&mut Kubelet);
    fn without_devices(it: &mut Kubelet) {
        it.devices().registered.clear();
        it.devices().grants.clear();
        it.offered().devices.clear();
        it.listed().devices.clear();
        it.api.device_capacity = Some(BTreeMap::new());
    }
    let without_memory_manager = |it: &mut Kubelet| {
        it.profile.memory_policy = "None".into();
        it.seen.memory =
            SourceRead::Read(MemoryAssignments { policy: "None".into(), ..MemoryAssignments::default() });
        it.offered().memory.clear();
        it.listed().memory.clear();
    };
    let cases: [(Change, &[&str]); 6] = [
        (|_| {}, &["api:pods: not known, and so is whether pod a has all of its CPUs and devices"]),
        (|it| it.api_pod(web()), &[]),
        (
            |it| {
                it.api.pods = Some(Vec::new());
                it.api.left_out.push("pod shop/web: its object is too large".into());
            },
            &["api:pods: pod shop/web: its object is too large"],
        ),
        (without_devices, &[]),
        // The first of two containers has its CPUs, and the second one may get some.
        (
            |it| {
                without_devices(it);
                it.list_second();
            },
            &["api:pods: not known, and so is whether pod a has all of its CPUs"],
        ),
        (
            |it| {
                without_devices(it);
                it.list_second();
                it.api_pod(web());
            },
            &[],
        ),
    ];
    for (change, expected) in cases {
        let found = Kubelet::with(|it| {
            without_memory_manager(it);
            change(it);
        });
        assert_eq!(found, expected);
    }
}

/// The kubelet may be ahead of the watch.
#[test]
fn a_pod_that_the_api_has_not_shown_yet_makes_a_state_inexact_where_that_matters() {
    let mut kubelet = Kubelet::new();
    kubelet.seen.memory =
        SourceRead::Read(MemoryAssignments { policy: "None".into(), ..MemoryAssignments::default() });
    kubelet.profile.memory_policy = "None".into();
    kubelet.offered().memory.clear();
    kubelet.listed().memory.clear();
    kubelet.api.pods = Some(Vec::new());
    let mut source = NodeStateSource::new(5);
    let mut reasons = |kubelet: &Kubelet| {
        let inexact = source.observe(kubelet.inputs()).unwrap().inexact.clone();
        inexact.into_iter().map(|one| one.reason).collect::<Vec<_>>()
    };
    let not_yet = "pod a is not among them, so it is not known whether it has all of its CPUs and devices";
    assert_eq!(reasons(&kubelet), [not_yet]);
    kubelet.api.pods = Some(vec![web()]);
    assert_eq!(reasons(&kubelet), [""; 0]);
    kubelet.api.pods = Some(Vec::new());
    assert_eq!(reasons(&kubelet), [""; 0], "it is gone, and the kubelet has not cleared it yet");
    // A static pod begins before its mirror is made.
    let hash = "0123456789abcdef0123456789abcdef";
    let held = kubelet.cpus().containers.remove("a").unwrap();
    kubelet.cpus().containers.insert(hash.into(), held);
    kubelet.devices().grants[0].pod = hash.into();
    assert_eq!(reasons(&kubelet), [format!("the mirror of the static pod {hash} is not among them")]);
}

/// The kubelet's file names it for both containers.
#[test]
fn a_device_that_is_used_again_after_an_init_container_counts_once() {
    let mut kubelet = Kubelet::new();
    let before = kubelet.state();
    let of_init = DeviceGrant { container: "a-setup".into(), ..kubelet.devices().grants[0].clone() };
    kubelet.devices().grants.insert(0, of_init);
    let mut pod = web();
    pod.containers.insert(
        0,
        ApiContainer {
            name: "a-setup".into(),
            kind: ContainerKind::Init,
            exclusive_cpus: Some(0),
            devices: [(GPU.to_owned(), 1)].into(),
            ..ApiContainer::default()
        },
    );
    kubelet.api.pods = Some(vec![pod]);
    let state = kubelet.state();
    assert_eq!(state.inexact, []);
    assert_eq!(state.devices, before.devices);
    let held: Vec<_> = state.pods[0].containers.iter().map(|one| (one.name.as_str(), &one.devices)).collect();
    let one = BTreeMap::from([(GPU.to_owned(), BTreeMap::from([("0".to_owned(), 1)]))]);
    assert_eq!(held, [("main", &one)], "the container that runs has it");
}

#[test]
fn refused_pods_of_the_api_are_those_of_the_state() {
    let refused = |uid: &str, at| {
        let rejection = Some(ApiRejection { reason: "OutOfcpu".into(), at });
        ApiPod { uid: uid.into(), is_finished: true, rejection, ..ApiPod::default() }
    };
    let mut kubelet = Kubelet::new();
    kubelet.api.pods = Some(vec![web(), refused("r2", 2), refused("r1", 1)]);
    let state = kubelet.state();
    let rejected: Vec<_> = state.rejected.iter().map(|one| (one.uid.as_str(), one.at)).collect();
    assert_eq!(rejected, [("r1", 1), ("r2", 2)]);
    assert!(state.exact, "{:?}", state.inexact);
}
