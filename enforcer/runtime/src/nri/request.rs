//! The request of a pod, computed from the runtime's view of its containers.
//!
//! The amounts are in `amounts`; memory of Burstable pods is computed from `oom_score_adj` by placement. The
//! pod's cgroup name contains its class. All input comes from outside.

use std::collections::BTreeMap;

use enforcer_core::workload::{CgroupPath, Origin, QosClass, identify, printable_within};
use numa_placement::{ContainerRequest, PodName, PodRequest, annotations_of_interest, qos_class};

use super::{
    amounts::amounts,
    api::{Container, PodSandbox},
    marks::labels,
};
use crate::manifest::annotation_documents;

/// Longest name in the log, in characters.
const LONGEST_TOLD: usize = 200;
/// Longest path of a cgroup in bytes (`PATH_MAX`), and longest of its names (`NAME_MAX`): there is none
/// beyond.
pub(super) const LONGEST_PATH: usize = 4096;
const LONGEST_PATH_NAME: usize = 255;

/// The request of a pod with these containers, in the order in which they were created.
pub fn pod_request<'a>(pod: &PodSandbox, containers: impl IntoIterator<Item = &'a Container>) -> PodRequest {
    let mut requests: Vec<ContainerRequest> = containers.into_iter().map(container_request).collect();
    let qos = class_of(pod).unwrap_or_else(|| qos_class(&requests));
    if qos == QosClass::Guaranteed {
        // Requests equal limits, and the runtime has only the limit of memory.
        for request in &mut requests {
            request.requests.memory_bytes = request.limits.memory_bytes;
        }
    }
    let annotations = annotations(pod);
    PodRequest {
        name: pod_name(pod),
        qos,
        labels: labels(pod),
        documents: annotation_documents(&annotations),
        annotations,
        containers: requests,
        previous: BTreeMap::new(),
        undescribed: None,
    }
}

/// Its annotations about placement, as far as there is room for them.
fn annotations(pod: &PodSandbox) -> BTreeMap<String, String> {
    let (kept, warnings) = annotations_of_interest(&pod.annotations);
    for warning in warnings {
        let name = printable_within(&format!("{}/{}", pod.namespace, pod.name), LONGEST_TOLD);
        tracing::warn!("{name}: {warning}");
    }
    kept
}

/// The pod's identity. A pod without a namespace gets one that no pod can have; without any it would count as
/// a cgroup ([`PodName::of_cgroup`]), and a pod's author chooses its name. The name alone is not enough: a
/// recreated pod has the same one, and may exist before the containers of the former one have ended.
fn pod_name(pod: &PodSandbox) -> PodName {
    let namespace = if pod.namespace.is_empty() { "-" } else { &pod.namespace };
    let uid = if pod.uid.is_empty() { &pod.id } else { &pod.uid };
    PodName::new(namespace, &pod.name).with_uid(uid)
}

/// Its class, from the name of its cgroup.
fn class_of(pod: &PodSandbox) -> Option<QosClass> {
    let parent = Some(&pod.linux.as_ref()?.cgroup_parent).filter(|parent| parent.len() <= LONGEST_PATH)?;
    match identify(&CgroupPath::new(parent)).origin {
        Origin::Pod { qos, .. } => Some(qos),
        _ => None,
    }
}

fn container_request(container: &Container) -> ContainerRequest {
    let linux = container.linux.as_ref();
    let resources = linux.and_then(|linux| linux.resources.as_ref());
    let (requests, limits) = resources.map(amounts).unwrap_or_default();
    let oom_score_adj = linux.and_then(|linux| linux.oom_score_adj);
    ContainerRequest {
        name: container.name.clone(),
        requests,
        limits,
        oom_score_adj: oom_score_adj.and_then(|score| i32::try_from(score.value).ok()),
        ..ContainerRequest::default()
    }
}

/// The cgroup of a container, from the runtime's name for it: a path, or `SLICE:PREFIX:NAME` with systemd.
/// `None` if the kernel cannot have such a cgroup.
pub fn container_cgroup(container: &Container) -> Option<CgroupPath> {
    let path = container.linux.as_ref()?.cgroups_path.as_str();
    let path = Some(path).filter(|path| path.len() <= LONGEST_PATH && !path.contains('\0'))?;
    let mut parts = path.split(':');
    let named = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(slice), Some(prefix), Some(name), None) if !name.is_empty() => {
            let scope =
                if prefix.is_empty() { format!("{name}.scope") } else { format!("{prefix}-{name}.scope") };
            CgroupPath::new(&format!("{}/{scope}", slice_path(slice)?))
        }
        _ => Some(CgroupPath::new(path)).filter(|path| !path.is_root())?,
    };
    let path = named.as_str();
    let can_be = path.len() <= LONGEST_PATH && path.split('/').all(|name| name.len() <= LONGEST_PATH_NAME);
    can_be.then_some(named)
}

/// Path of a slice in systemd: `a-b.slice` is below `a.slice` (systemd.slice(5)).
fn slice_path(slice: &str) -> Option<String> {
    let slice = if slice.is_empty() { "system.slice" } else { slice };
    let stem = slice.strip_suffix(".slice").filter(|stem| !stem.contains('/'))?;
    let mut path = String::new();
    if stem == "-" {
        return Some(path);
    }
    for (end, _) in stem.match_indices('-').chain([(stem.len(), "")]) {
        let above = stem.get(..end).filter(|above| !above.is_empty() && !above.ends_with('-'))?;
        // A name with many dashes is longer with each of them.
        if path.len() > LONGEST_PATH {
            return None;
        }
        path.extend(["/", above, ".slice"]);
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use enforcer_core::cluster::own_engine::arrival::as_runtime_shows;
    use numa_placement::foreign::MOST_ANNOTATIONS;

    use numa_placement::Resources;

    use super::{
        super::{
            amounts::{MOST_SHARES, SHARES_OF_NOTHING},
            api::LinuxResources,
        },
        *,
    };
    use crate::nri::api::{
        HugepageLimit, LinuxContainer, LinuxCpu, LinuxMemory, LinuxPodSandbox, OptionalInt, OptionalUint,
    };

    /// As the kubelet does it.
    fn shares_of(milli: u64) -> u64 {
        (milli * 1024 / 1000).clamp(2, MOST_SHARES)
    }

    fn resources(milli: u64, limit: Option<i64>, bytes: Option<i64>) -> LinuxResources {
        let cpu = LinuxCpu {
            shares: Some(OptionalUint { value: shares_of(milli) }),
            quota: limit.map(|milli| OptionalInt { value: milli * 100 }),
            period: Some(OptionalUint { value: 100_000 }),
            ..LinuxCpu::default()
        };
        let memory = LinuxMemory { limit: bytes.map(|value| OptionalInt { value }) };
        LinuxResources { cpu: Some(cpu), memory: Some(memory), ..LinuxResources::default() }
    }

    fn container(name: &str, resources: LinuxResources) -> Container {
        let linux = LinuxContainer {
            resources: Some(resources),
            oom_score_adj: Some(OptionalInt { value: 900 }),
            ..LinuxContainer::default()
        };
        Container { name: name.into(), linux: Some(linux), ..Container::default() }
    }

    fn pod(parent: &str) -> PodSandbox {
        PodSandbox {
            name: "web".into(),
            namespace: "shop".into(),
            labels: BTreeMap::from([("app".into(), "web".into())]),
            linux: Some(LinuxPodSandbox { cgroup_parent: parent.into(), ..LinuxPodSandbox::default() }),
            ..PodSandbox::default()
        }
    }

    #[test]
    fn a_pod_that_is_made_again_has_another_name_for_us_alone() {
        let of = |uid: &str, id: &str| {
            pod_name(&PodSandbox { uid: uid.into(), id: id.into(), ..pod("/kubepods") })
        };
        let (one, again) = (of("1", "a"), of("2", "b"));
        assert_eq!(one, of("1", "c"), "a sandbox that is made again is of the same pod");
        assert_ne!(one, again);
        assert_ne!(of("", "a"), of("", "b"), "without a uid the sandbox is all that tells");
        assert_eq!((one.to_string(), again.to_string()), ("shop/web".to_owned(), "shop/web".to_owned()));
    }

    #[test]
    fn a_guaranteed_pod_has_its_requests_from_its_limits() {
        let one = container("one", resources(2000, Some(2000), Some(64 << 20)));
        for parent in ["/kubepods/pod1234", "kubepods-pod1234.slice", "kubepods.slice/kubepods-pod1234.slice"]
        {
            let request = pod_request(&pod(parent), [&one]);
            assert_eq!((request.qos, request.name.to_string().as_str()), (QosClass::Guaranteed, "shop/web"));
            let amounts = Resources {
                milli_cpus: Some(2000),
                memory_bytes: Some(64 << 20),
                hugepages: BTreeMap::new(),
            };
            assert_eq!(
                (&request.containers[0].requests, &request.containers[0].limits),
                (&amounts, &amounts)
            );
            assert_eq!(request.containers[0].name, "one");
            assert_eq!(request.labels["app"], "web");
        }
    }

    #[test]
    fn the_class_is_that_of_the_cgroup_and_only_without_one_that_of_the_amounts() {
        let one = container("one", resources(500, None, Some(64 << 20)));
        let class = |parent: &str| pod_request(&pod(parent), [&one]).qos;
        assert_eq!(class("/kubepods/burstable/podab"), QosClass::Burstable);
        assert_eq!(class("kubepods-besteffort-podab.slice"), QosClass::BestEffort);
        assert_eq!(class("/elsewhere"), QosClass::Burstable);
        assert_eq!(class(""), QosClass::Burstable);
        let burstable = pod_request(&pod("/kubepods/burstable/podab"), [&one]);
        let asked = &burstable.containers[0];
        assert_eq!((asked.requests.milli_cpus, asked.requests.memory_bytes), (Some(500), None));
        assert_eq!((asked.limits.memory_bytes, asked.oom_score_adj), (Some(64 << 20), Some(900)));
    }

    #[test]
    fn labels_are_those_that_kubernetes_lets_through() {
        let labels =
            BTreeMap::from([("app".to_owned(), "web".to_owned()), ("notes".to_owned(), "x".repeat(1 << 20))]);
        let request = pod_request(&PodSandbox { labels, ..pod("") }, []);
        assert_eq!(request.labels, BTreeMap::from([("app".to_owned(), "web".to_owned())]));
    }

    #[test]
    fn only_annotations_about_placement_are_kept_and_not_without_bound() {
        let with = |annotations: &[(&str, usize)]| {
            let text = |(key, length): &(&str, usize)| ((*key).to_owned(), "x".repeat(*length));
            let pod = PodSandbox { annotations: annotations.iter().map(text).collect(), ..pod("") };
            let request = pod_request(&pod, []);
            assert!(request.documents.keys().all(|key| request.annotations.contains_key(key)));
            request.annotations.into_keys().collect::<Vec<_>>()
        };
        let (affinity, engine) = ("cri-resource-manager.intel.com/affinity", "engine.numa-enforcer.io");
        let resources = "noderesource.dev/resources";
        let all = [("example.org/notes", 10), (engine, 5), (affinity, 9), (resources, 9)];
        assert_eq!(with(&all), [affinity, engine, resources]);
        assert_eq!(with(&[(affinity, MOST_ANNOTATIONS), (engine, 5)]), [engine]);
        assert_eq!(with(&[(affinity, MOST_ANNOTATIONS - affinity.len()), (engine, 5)]), [affinity]);
    }

    #[test]
    fn nothing_asked_is_nothing_and_nonsense_is_absent() {
        let none = pod_request(&pod(""), [&Container::default()]);
        assert_eq!((none.qos, &none.containers[0]), (QosClass::BestEffort, &ContainerRequest::default()));
        let mut odd = resources(0, Some(-1), Some(-1));
        odd.cpu.as_mut().unwrap().period = Some(OptionalUint { value: 0 });
        odd.hugepage_limits =
            [("2MB", 4 << 20), ("1GB", 0), ("-1MB", 9), ("2XB", 9), ("99999999999999999999GB", 9), ("", 1)]
                .map(|(size, limit)| HugepageLimit { page_size: size.into(), limit })
                .into();
        let odd = pod_request(&pod(""), [&container("odd", odd)]);
        let hugepages = BTreeMap::from([(2 << 20, 4 << 20)]);
        let expected = Resources { hugepages, ..Resources::default() };
        assert_eq!((&odd.containers[0].requests, &odd.containers[0].limits), (&expected, &expected));
        let mut endless = resources(0, Some(i64::MAX / 100), None);
        endless.cpu.as_mut().unwrap().period = Some(OptionalUint { value: 1 });
        assert_eq!(amounts(&endless).1.milli_cpus, None);
    }

    #[test]
    fn more_cpus_than_shares_can_say_are_those_of_the_limit() {
        let asked = |limit| amounts(&resources(300_000, limit, None)).0.milli_cpus;
        assert_eq!((asked(Some(300_000)), asked(None)), (Some(300_000), Some(256_000)));
    }

    #[test]
    fn a_container_is_in_the_cgroup_that_the_runtime_names() {
        let cgroup = |path: &str| {
            let linux = LinuxContainer { cgroups_path: path.into(), ..LinuxContainer::default() };
            let found = container_cgroup(&Container { linux: Some(linux), ..Container::default() });
            found.map(|path| path.as_str().to_owned())
        };
        for (named, path) in [
            ("/kubepods/burstable/podab/id", Some("/kubepods/burstable/podab/id")),
            (
                "kubepods-burstable-podab.slice:cri-containerd:id",
                Some(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab.slice/cri-containerd-id.scope",
                ),
            ),
            (":nerdctl:id", Some("/system.slice/nerdctl-id.scope")),
            ("-.slice::id", Some("/id.scope")),
            ("user.slice:crio:id", Some("/user.slice/crio-id.scope")),
            ("", None),
            ("/../..", None),
            ("a--b.slice:x:id", None),
            ("-a.slice:x:id", None),
            ("a/b.slice:x:id", None),
            ("nothing:x:id", None),
            ("/a\0b", None),
            ("a.slice:x\0:id", None),
            (format!("k{}.slice:x:y", "-a".repeat(1000)).as_str(), None),
            (format!("{}.slice:x:y", ["k"; 100].join("-")).as_str(), None),
            (format!("k{}.slice:x:y", "-a".repeat(20_000)).as_str(), None),
            (format!("a.slice:x:{}", "y".repeat(250)).as_str(), None),
            (format!("/a/{}", "y".repeat(256)).as_str(), None),
            ("/a".repeat(2049).as_str(), None),
        ] {
            assert_eq!(cgroup(named).as_deref(), path, "{named}");
        }
        assert_eq!(container_cgroup(&Container::default()), None);
    }

    proptest! {
        #[test]
        fn cpu_requests_come_back_as_they_were(milli in 2u64..255_999) {
            // 2 shares stand for nothing, 1m and 2m alike.
            let expected = (shares_of(milli) > SHARES_OF_NOTHING).then_some(milli);
            prop_assert_eq!(amounts(&resources(milli, None, None)).0.milli_cpus, expected);
        }

        /// A reader of the node's state plays a pod as the daemon will see it.
        #[test]
        fn readers_of_a_manifest_know_what_the_runtime_will_show(
            milli in 0..255_999u64,
            (more_milli, gib) in (prop::option::of(0..4_000u64), 0..40u64),
            (more_gib, hugepages) in (prop::option::of(0..3u64), 0..3u64),
        ) {
            const MACHINE: u64 = 32 << 30;
            let pages = BTreeMap::from([(2 << 20, hugepages << 21)]);
            let asks = |milli: u64, gib: u64| Resources {
                milli_cpus: Some(milli),
                memory_bytes: Some(gib << 30),
                hugepages: pages.clone(),
            };
            let limits = Resources {
                milli_cpus: more_milli.map(|more| milli + more),
                memory_bytes: more_gib.map(|more| (gib + more) << 30),
                hugepages: pages.clone(),
            };
            let asked = ContainerRequest {
                name: "c".into(),
                requests: asks(milli, gib),
                limits,
                ..ContainerRequest::default()
            };
            let manifest = PodRequest::new(PodName::new("shop", "web"), vec![asked.clone()]);
            // As the kubelet does it; a quota has at least a millisecond of 100.
            let quota = more_milli.filter(|more| milli + more > 0).map(|more| (milli + more).max(10));
            let memory = asked.limits.memory_bytes.filter(|bytes| *bytes > 0).and_then(|bytes| i64::try_from(bytes).ok());
            let mut resources = resources(milli, quota.and_then(|milli| i64::try_from(milli).ok()), memory);
            resources.hugepage_limits = vec![HugepageLimit { page_size: "2MB".into(), limit: hugepages << 21 }];
            let (parent, score) = match manifest.qos {
                QosClass::Guaranteed => ("/kubepods/podab", -997),
                QosClass::BestEffort => ("/kubepods/besteffort/podab", 1000),
                QosClass::Burstable => {
                    let score = 1000 - i64::try_from(1000 * (gib << 30) / MACHINE).unwrap();
                    ("/kubepods/burstable/podab", score.clamp(3, 999))
                }
            };
            let mut shown = container("c", resources);
            shown.linux.as_mut().unwrap().oom_score_adj = Some(OptionalInt { value: score });
            let machine = numa_topology::synth::Machine::new().memory(MACHINE).build();
            let [(predicted, _)] = &as_runtime_shows(&manifest, &machine)[..] else { panic!() };
            prop_assert_eq!(predicted, &pod_request(&pod(parent), [&shown]).containers[0]);
        }

        #[test]
        fn any_name_of_a_cgroup_is_read_without_harm(path in ".{0,40}") {
            let linux = LinuxContainer { cgroups_path: path, ..LinuxContainer::default() };
            if let Some(cgroup) = container_cgroup(&Container { linux: Some(linux), ..Container::default() }) {
                prop_assert!(!cgroup.as_str().split('/').any(|part| part == ".."));
            }
        }
    }
}
