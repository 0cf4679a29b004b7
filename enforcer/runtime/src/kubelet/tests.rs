//! Files as kubelets of several versions write them, and worse ones; a kubelet that answers, and worse ones.

use std::{
    fs,
    io::Write as _,
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use enforcer_core::cluster::observed::CpuAssignments;
use proptest::prelude::*;
use prost::Message;
use tonic::{
    Request, Response, Status,
    codegen::{BoxFuture, Context, Poll, Service, http, tokio_stream::wrappers::UnixListenerStream},
    server::{Grpc, UnaryService},
    transport::Server,
};
use tonic_prost::ProstCodec;

use super::{
    podresources::{
        AllocatableResourcesResponse, ContainerDevices, ContainerMemory, ContainerResources,
        ListPodResourcesResponse, NumaNode, PodOfList, TopologyInfo, ask_within,
    },
    state::StateDamage,
    *,
};

/// As `policy none` leaves it, of any node of the years before 2026.
const NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
/// The same of kubelets before 1.18.
const NONE_V1: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":3242152201}"#;
/// Of a node of 24 CPUs with one container.
const STATIC: &str = r#"{"policyName":"static","defaultCpuSet":"0,2-12,14-23","entries":{"235148fe-393f-47a8-a17d-bd55bc1a836b":{"cgroup1-0":"1,13"}},"checksum":1552716370}"#;
/// With CPUs of a whole pod.
const V3: &str = r#"{"policyName":"static","defaultCpuSet":"1-2","entries":{"pod1":{"container1":"5-6","container2":"3-4"}},"podEntries":{"pod2":{"cpuSet":"7-9"}},"checksum":766259872}"#;
/// Of a kubelet that knows pods with CPUs and has none.
const V3_NO_PODS: &str = r#"{"policyName":"static","defaultCpuSet":"7-9","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"checksum":1942532442}"#;
/// Twice the same, of which only the text counts.
const V4: &str = r#"{"policyName":"other","defaultCpuSet":"1-9","checksum":1234,"data":"{\"policyName\":\"static\",\"defaultCPUSet\":\"7-9\",\"entries\":{\"pod\":{\"container1\":\"4-6\",\"container2\":\"1-3\"}}}","dataChecksum":1420829534}"#;
/// No container has memory.
const MEMORY_NONE: &str = r#"{"policyName":"None","machineState":{},"entries":{},"checksum":4236770233}"#;
/// One has.
const MEMORY: &str = r#"{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":4215593881}"#;
/// And a whole pod.
const MEMORY_V2: &str = r#"{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},"podEntries":{"pod":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":1278640530}"#;

/// Of two containers: devices near two nodes, and one without a node.
const DEVICES: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"pod1","ContainerName":"main","ResourceName":"v.com/gpu","DeviceIDs":{"0":["a"],"1":["b","c"]},"AllocResp":"AAEC/w=="},{"PodUID":"pod2","ContainerName":"side","ResourceName":"v.com/nic","DeviceIDs":{"-1":["n"]},"AllocResp":null}],"RegisteredDevices":{"v.com/gpu":["a","b","c","d"],"v.com/nic":["n"]}},"Checksum":3053922382}"#;
/// No container has a device.
const DEVICES_NONE: &str =
    r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}"#;

/// `POD/CONTAINER CPUS NODES` of every claim.
fn claims(claims: &[Claim]) -> Vec<String> {
    let named = |claim: &Claim| {
        let pod = match &claim.pod {
            enforcer_core::owner::ClaimedPod::Uid(uid) => uid.clone(),
            enforcer_core::owner::ClaimedPod::Named { namespace, name } => format!("{namespace}:{name}"),
        };
        let container = claim.container.as_deref().unwrap_or("*");
        format!("{pod}/{container} {} {}", claim.cpus, claim.mems())
    };
    claims.iter().map(named).collect()
}

#[test]
fn every_version_of_the_cpu_managers_file_is_read() {
    for (text, policy, shared, expected) in [
        (NONE, "none", "", vec![]),
        (NONE_V1, "none", "", vec![]),
        (STATIC, "static", "0,2-12,14-23", vec!["235148fe-393f-47a8-a17d-bd55bc1a836b/cgroup1-0 1,13 "]),
        (V3, "static", "1-2", vec!["pod2/* 7-9 ", "pod1/container1 5-6 ", "pod1/container2 3-4 "]),
        (V3_NO_PODS, "static", "7-9", vec!["pod/container1 4-6 ", "pod/container2 1-3 "]),
        (V4, "static", "7-9", vec!["pod/container1 4-6 ", "pod/container2 1-3 "]),
    ] {
        let state = cpu_state::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(
            (state.policy.as_str(), state.default_cpus.to_string().as_str()),
            (policy, shared),
            "{text}"
        );
        assert_eq!(claims(&claims::of_cpus(&state, "")), expected, "{text}");
    }
}

#[test]
fn every_version_of_the_memory_managers_file_is_read() {
    for (text, policy, expected) in [
        (MEMORY_NONE, "None", vec![]),
        (MEMORY, "static", vec!["pod/container1  0"]),
        (MEMORY_V2, "static", vec!["pod/*  0", "pod/container1  0"]),
    ] {
        let state = memory_state::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(
            (state.policy.as_str(), claims(&claims::of_memory(&state, ""))),
            (policy, expected.iter().map(ToString::to_string).collect()),
            "{text}"
        );
    }
    let state = memory_state::parse(MEMORY).unwrap();
    assert_eq!(state.containers["pod"]["container1"][0].bytes, 512);
    let account = &state.nodes[&numa_topology::id::NodeId(0)];
    let amounts = account.amounts["memory"];
    assert_eq!((account.assignments, account.cells.len(), amounts.total), (0, 0, 2048));
    assert_eq!((amounts.system_reserved, amounts.allocatable), (512, 1536));
    assert_eq!((amounts.reserved, amounts.free), (512, 1024));
}

#[test]
fn the_device_managers_file_is_read() {
    let none = device_state::parse(DEVICES_NONE).unwrap();
    assert_eq!((none.grants.len(), none.registered.len()), (0, 0));
    let state = device_state::parse(DEVICES).unwrap();
    let told = |grant: &enforcer_core::cluster::observed::DeviceGrant| {
        let devices: Vec<String> = grant.devices.iter().map(|(id, nodes)| format!("{id}@{nodes}")).collect();
        format!("{}/{} {} {}", grant.pod, grant.container, grant.resource, devices.join(" "))
    };
    let grants: Vec<String> = state.grants.iter().map(told).collect();
    assert_eq!(grants, ["pod1/main v.com/gpu a@0 b@1 c@1", "pod2/side v.com/nic n@"]);
    assert_eq!(state.registered["v.com/gpu"].len(), 4);
    assert!(state.unknown_fields.is_empty());
}

#[test]
fn a_device_file_that_was_changed_or_is_of_another_version_is_refused() {
    for (text, said) in [
        (DEVICES.replace("\"b\",\"c\"", "\"b\",\"e\""), "checksum 3053922382 is not that of its content"),
        (DEVICES.replace("AAEC/w==", "AAEC/g=="), "checksum"),
        (DEVICES.replace("3053922382", "0"), "checksum 0"),
        (DEVICES.replace("AAEC/w==", "AAE?"), "not a state of the kubelet: the answer of the plugin of"),
        (DEVICES.replace("\"-1\"", "\"x\""), "not a state of the kubelet: invalid"),
        // Before 1.20.
        (
            DEVICES.replace("{\"-1\":[\"n\"]}", "[\"n\"]"),
            "not a state of the kubelet: invalid type: sequence",
        ),
        (DEVICES[..200].to_owned(), "not a state of the kubelet: EOF"),
        (String::new(), "not a state of the kubelet: EOF"),
        ("[".repeat(100_000), "not a state of the kubelet: "),
        (r#"{"Data":{},"Checksum":1}"#.to_owned(), "checksum 1"),
        (
            r#"{"Data":{"PodDeviceEntries":[{}]},"Checksum":1}"#.to_owned(),
            "not a state of the kubelet: missing",
        ),
    ] {
        let error = device_state::parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(said), "{said}: {error}");
        assert!(error.len() < 500, "{}", error.len());
    }
    let entry = r#"{"PodUID":"p","ContainerName":"c","ResourceName":"r","DeviceIDs":{"5000":["a"]}}"#;
    let sum = checksum::fnv32a(
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)[{PodUID:(string)p \
         ContainerName:(string)c ResourceName:(string)r DeviceIDs:(checkpoint.DevicesPerNUMA)map[5000:[a]] \
         AllocResp:([]uint8)<nil>}] RegisteredDevices:(map[string][]string)<nil>}",
    );
    let text = format!(r#"{{"Data":{{"PodDeviceEntries":[{entry}]}},"Checksum":{sum}}}"#);
    assert!(matches!(device_state::parse(&text), Err(StateDamage::Node(5000))));
    let many =
        vec![r#"{"PodUID":"","ContainerName":"","ResourceName":""}"#; state::MOST_VALUES / 3].join(",");
    let text = format!(r#"{{"Data":{{"PodDeviceEntries":[{many}]}},"Checksum":1}}"#);
    assert!(matches!(device_state::parse(&text), Err(StateDamage::TooLarge)));
}

#[test]
fn fields_of_an_unknown_version_are_told() {
    let with_more = |text: &str| text.replacen('{', r#"{"sharedPools":{},"#, 1);
    assert_eq!(cpu_state::parse(&with_more(STATIC)).unwrap().unknown_fields, ["sharedPools"]);
    assert_eq!(memory_state::parse(&with_more(MEMORY)).unwrap().unknown_fields, ["sharedPools"]);
    assert_eq!(device_state::parse(&with_more(DEVICES)).unwrap().unknown_fields, ["sharedPools"]);
    for text in [NONE, NONE_V1, STATIC, V3, V3_NO_PODS, V4] {
        assert!(cpu_state::parse(text).unwrap().unknown_fields.is_empty(), "{text}");
    }
    let pods = cpu_state::parse(V3).unwrap().pods;
    assert_eq!(pods["pod2"].to_string(), "7-9");
    assert_eq!(memory_state::parse(MEMORY_V2).unwrap().pods["pod"][0].bytes, 512);
}

#[test]
fn a_file_that_was_changed_is_not_used() {
    let parse = |text: &str| match cpu_state::parse(text) {
        Ok(state) => panic!("{text}: {state:?}"),
        Err(error) => error.to_string(),
    };
    for (text, said) in [
        (STATIC.replace("1,13", "1,3"), "checksum 1552716370 is not that of its content"),
        (STATIC.replace("0,2-12", "0,3-12"), "checksum"),
        (STATIC.replace("cgroup1-0", "cgroup1-1"), "checksum"),
        (V3.replace("7-9", "7-8"), "checksum"),
        (V4.replace("4-6", "4-5"), "checksum 1420829534"),
        (STATIC[..80].to_owned(), "not a state of the kubelet: EOF"),
        (String::new(), "not a state of the kubelet"),
        ("[]".to_owned(), "not a state of the kubelet: it names no policy"),
        ("{}".to_owned(), "not a state of the kubelet: it names no policy"),
        ("[".repeat(100_000), "not a state of the kubelet: invalid type: sequence"),
        (r#"{"policyName":7}"#.to_owned(), "not a state of the kubelet: invalid type"),
        (
            r#"{"policyName":"static","defaultCpuSet":"0-x","checksum":0}"#.to_owned(),
            "the shared pool has the CPUs `0-x`: `0-x` is not an id",
        ),
        (
            r#"{"policyName":"static","defaultCpuSet":"0-4294967295","checksum":0}"#.to_owned(),
            "the shared pool has the CPUs `0-4294967295`: id 4294967295 is above",
        ),
        (
            r#"{"policyName":"static","defaultCpuSet":"0-3","entries":{"a":{"x":"3-4"}},"checksum":0}"#
                .to_owned(),
            "CPUs 3 are given away twice",
        ),
        (
            r#"{"policyName":"static","entries":{"a":{"x":"3-4"},"b":{"x":"4"}},"checksum":0}"#.to_owned(),
            "CPUs 4 are given away twice",
        ),
        (
            r#"{"policyName":"static","entries":{"0123abcd":"3-4"},"checksum":0}"#.to_owned(),
            "it names containers by their ids",
        ),
    ] {
        let error = parse(&text);
        assert!(error.starts_with(said), "{error}");
        assert!(error.len() < 500, "{}", error.len());
    }
    let long = format!(
        r#"{{"policyName":"static","entries":{{"{}":{{"x":"y"}}}},"checksum":0}}"#,
        "p".repeat(100_000)
    );
    assert!(parse(&long).len() < 500);
    let memory = MEMORY.replace("\"size\":512}]}},\"checksum", "\"size\":513}]}},\"checksum");
    assert!(matches!(memory_state::parse(&memory), Err(StateDamage::Checksum(4_215_593_881))));
    assert!(matches!(
        memory_state::parse(&MEMORY_V2.replace("\"reserved\":512", "\"reserved\":1")),
        Err(StateDamage::Checksum(_))
    ));
}

#[test]
fn more_than_any_node_has_is_refused() {
    let entries: Vec<String> = (0..=state::MOST_CLAIMS).map(|n| format!(r#""c{n}":"1""#)).collect();
    let text =
        format!(r#"{{"policyName":"static","entries":{{"a":{{{}}}}},"checksum":0}}"#, entries.join(","));
    assert!(matches!(cpu_state::parse(&text), Err(StateDamage::TooMany)));
    let block = r#"[{"numaAffinity":[0],"type":"memory","size":1}]"#;
    let entries: Vec<String> = (0..=state::MOST_CLAIMS).map(|n| format!(r#""c{n}":{block}"#)).collect();
    let text =
        format!(r#"{{"policyName":"Static","entries":{{"a":{{{}}}}},"checksum":0}}"#, entries.join(","));
    assert!(matches!(memory_state::parse(&text), Err(StateDamage::TooMany)));
    let text = r#"{"policyName":"Static","entries":{"a":{"b":[{"numaAffinity":[0,5000]}]}},"checksum":0}"#;
    assert!(matches!(memory_state::parse(text), Err(StateDamage::Node(5000))));
    let blocks = vec!["{}"; state::MOST_VALUES].join(",");
    let text = format!(r#"{{"policyName":"Static","entries":{{"a":{{"b":[{blocks}]}}}},"checksum":0}}"#);
    assert!(matches!(memory_state::parse(&text), Err(StateDamage::TooLarge)));
    let hidden = text.replace('"', "\\\"").replace('{', "\\u007b").replace(',', "\\u002c");
    let text = format!(r#"{{"policyName":"Static","checksum":0,"data":"{hidden}"}}"#);
    let hash = checksum::fnv32a(&format!(
        "(string){}",
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["data"].as_str().unwrap()
    ));
    let text = text.replace(r#""data":"#, &format!(r#""dataChecksum":{hash},"data":"#));
    assert!(matches!(memory_state::parse(&text), Err(StateDamage::TooLarge)));
    let text = format!(r#"{{"policyName":"static","podEntries":{{{}}}}}"#, ",".repeat(state::MOST_VALUES));
    assert!(matches!(cpu_state::parse(&text), Err(StateDamage::TooLarge)));
}

/// A directory of a kubelet.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        self.set_mode(name, 0o600);
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn settings(&self) -> KubeletSettings {
        KubeletSettings {
            enabled: true,
            root_dir: self.path().to_owned(),
            podresources: self.path().join("kubelet.sock"),
        }
    }

    fn look(&self) -> KubeletSnapshot {
        read_snapshot(&self.settings())
    }
}

fn sources(seen: &KubeletSnapshot) -> Vec<&str> {
    seen.degraded.iter().map(|one| one.source.as_str()).collect()
}

#[test]
fn a_node_without_a_kubelet_misses_nothing() {
    let dir = Dir::new();
    assert_eq!(dir.look(), KubeletSnapshot::default());
    assert_eq!(
        read_snapshot(&KubeletSettings { root_dir: "/no/such".into(), ..dir.settings() }),
        KubeletSnapshot::default()
    );
    dir.write(CPU_STATE, "damaged");
    assert_eq!(
        read_snapshot(&KubeletSettings { enabled: false, ..dir.settings() }),
        KubeletSnapshot::default()
    );
}

#[test]
fn files_are_used_without_the_socket_and_it_is_said() {
    let dir = Dir::new();
    dir.write(CPU_STATE, STATIC);
    dir.write(MEMORY_STATE, MEMORY);
    let seen = dir.look();
    assert!(seen.kubelet.is_static() && seen.kubelet.unread.is_none());
    assert_eq!(seen.kubelet.memory_policy.as_deref(), Some("static"));
    assert_eq!((seen.counts(), sources(&seen)), ((1, 1, 0), vec!["kubelet:podresources"]));
    assert!(seen.degraded[0].reason.contains("kubelet.sock: No such file"), "{:?}", seen.degraded);
    assert!(seen.kubelet.claims[0].source.ends_with("/cpu_manager_state"));
}

#[test]
fn a_damaged_file_is_named_and_nothing_of_it_is_used() {
    let dir = Dir::new();
    dir.write(CPU_STATE, &STATIC.replace("1,13", "2,14"));
    dir.write(MEMORY_STATE, MEMORY);
    let seen = dir.look();
    assert_eq!(seen.kubelet.cpu_policy, None);
    assert!(
        seen.kubelet.unread.as_ref().is_some_and(|reason| reason.contains("cpu_manager_state: checksum"))
    );
    assert_eq!(
        (seen.counts(), sources(&seen)),
        ((0, 1, 0), vec!["kubelet:cpu-state", "kubelet:podresources"])
    );
}

#[test]
fn a_file_that_another_user_could_have_written_is_named_and_not_used() {
    let dir = Dir::new();
    for (name, text, source) in
        [(CPU_STATE, STATIC, "kubelet:cpu-state"), (MEMORY_STATE, MEMORY, "kubelet:memory-state")]
    {
        let refused = |reason: &str| {
            let seen = dir.look();
            assert_eq!((seen.counts(), sources(&seen)[0]), ((0, 0, 0), source), "{reason}");
            assert!(seen.kubelet.unread.as_ref().is_some_and(|said| said.contains(reason)), "{seen:?}");
        };
        dir.write(name, text);
        for mode in [0o620, 0o602, 0o666] {
            dir.set_mode(name, mode);
            refused("others may write it");
        }
        for mode in [0o644, 0o600] {
            dir.set_mode(name, mode);
            assert!(dir.look().kubelet.unread.is_none(), "{mode:o}");
        }
        fs::rename(dir.path().join(name), dir.path().join("elsewhere")).unwrap();
        symlink("elsewhere", dir.path().join(name)).unwrap();
        refused("symbolic link");
        fs::remove_file(dir.path().join(name)).unwrap();
        if rustix::process::geteuid().is_root() {
            dir.write(name, text);
            std::os::unix::fs::chown(dir.path().join(name), Some(1000), None).unwrap();
            refused("it belongs to another user (1000)");
            fs::remove_file(dir.path().join(name)).unwrap();
        }
    }
}

#[test]
fn a_file_without_a_checksum_is_read_where_the_kubelet_reads_it() {
    let without = |text: &str| {
        let (head, sum) = text.rsplit_once(r#""checksum":"#).unwrap();
        let end = sum.find('}').unwrap();
        format!(r#"{head}"checksum":0{}"#, &sum[end..])
    };
    assert!(cpu_state::parse(&without(STATIC)).is_ok());
    assert!(matches!(cpu_state::parse(&without(V3)), Err(StateDamage::Checksum(0))));
    assert!(memory_state::parse(&without(MEMORY)).is_ok());
    assert!(matches!(memory_state::parse(&without(MEMORY_V2)), Err(StateDamage::Checksum(0))));
    let text = V4.replace(r#""dataChecksum":1420829534"#, r#""dataChecksum":0"#);
    assert!(matches!(cpu_state::parse(&text), Err(StateDamage::Checksum(0))));
}

#[test]
fn a_file_that_never_ends_or_is_none_is_refused() {
    let dir = Dir::new();
    dir.write(CPU_STATE, &" ".repeat(9 << 20));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join(MEMORY_STATE),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let seen = dir.look();
    let reasons: Vec<&str> = seen.degraded.iter().map(|one| one.reason.as_str()).collect();
    assert!(reasons[0].ends_with("longer than 8388608 bytes"), "{reasons:?}");
    assert!(reasons[1].ends_with("not a regular file"), "{reasons:?}");
}

/// A question without anything in it.
#[derive(Clone, PartialEq, Message)]
struct Nothing {}

/// A kubelet that answers with these.
#[derive(Clone)]
pub(super) struct Kubelet {
    pub(super) list: ListPodResourcesResponse,
    /// `None` of a kubelet that does not know the question.
    pub(super) allocatable: Option<AllocatableResourcesResponse>,
}

/// Its answers, which the test may change while it listens.
#[derive(Clone)]
struct SharedAnswers(Arc<Mutex<Kubelet>>);

struct Answers<A>(Result<A, Status>);

impl<A: Message + Default + Clone + 'static> UnaryService<Nothing> for Answers<A> {
    type Response = A;
    type Future = BoxFuture<Response<A>, Status>;

    fn call(&mut self, _: Request<Nothing>) -> Self::Future {
        let answer = self.0.clone().map(Response::new);
        Box::pin(async { answer })
    }
}

impl Service<http::Request<tonic::body::Body>> for SharedAnswers {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let Kubelet { list, allocatable } = self.0.lock().unwrap().clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/v1.PodResourcesLister/List" => {
                    Grpc::new(ProstCodec::default()).unary(Answers(Ok(list)), request).await
                }
                "/v1.PodResourcesLister/GetAllocatableResources" => {
                    let answer = allocatable.ok_or_else(|| Status::unimplemented("unknown method"));
                    Grpc::new(ProstCodec::default()).unary(Answers(answer), request).await
                }
                other => panic!("{other}"),
            })
        })
    }
}

impl Kubelet {
    /// Listens until the process ends. What it answers may be changed.
    pub(super) fn listen(self, socket: PathBuf) -> Arc<Mutex<Self>> {
        let (ready, listening) = std::sync::mpsc::channel();
        let answers = Arc::new(Mutex::new(self));
        let service = SharedAnswers(Arc::clone(&answers));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let incoming = UnixListenerStream::new(tokio::net::UnixListener::bind(socket).unwrap());
                ready.send(()).unwrap();
                Server::builder().serve_with_incoming(service, incoming).await.unwrap();
            });
        });
        listening.recv().unwrap();
        answers
    }

    pub(super) fn of(list: Vec<PodOfList>) -> Self {
        Self { list: ListPodResourcesResponse { pods: list }, allocatable: None }
    }
}

fn near(nodes: &[i64]) -> TopologyInfo {
    TopologyInfo { nodes: nodes.iter().map(|id| NumaNode { id: *id }).collect() }
}

fn devices(resource: &str, ids: &[&str], nodes: &[i64]) -> ContainerDevices {
    let device_ids = ids.iter().map(ToString::to_string).collect();
    ContainerDevices { resource_name: resource.into(), device_ids, topology: Some(near(nodes)) }
}

fn memory(kind: &str, size: u64, nodes: &[i64]) -> ContainerMemory {
    ContainerMemory { memory_type: kind.into(), size, topology: Some(near(nodes)) }
}

fn pod(name: &str, containers: Vec<ContainerResources>) -> PodOfList {
    PodOfList { name: name.into(), namespace: "shop".into(), containers }
}

#[test]
fn a_kubelet_tells_cpus_memory_and_devices_with_their_nodes() {
    let main = ContainerResources {
        name: "main".into(),
        devices: vec![devices("vendor/nic", &["a", "b"], &[1]), devices("vendor/gpu", &[], &[0])],
        cpu_ids: vec![2, 3, -1, i64::MAX, 5_000_000],
        memory: vec![memory("memory", 1 << 30, &[0, 1, -4, 1 << 40]), memory("hugepages-2Mi", 2 << 20, &[])],
    };
    let shared = ContainerResources { name: "shared".into(), ..ContainerResources::default() };
    let mut kubelet = Kubelet::of(vec![pod("web", vec![main, shared])]);
    kubelet.allocatable = Some(AllocatableResourcesResponse {
        devices: vec![devices("vendor/nic", &["a", "b"], &[1]), devices("vendor/nic", &["c"], &[0])],
        cpu_ids: (1..8).collect(),
        memory: vec![memory("memory", 16 << 30, &[0])],
    });
    let dir = Dir::new();
    kubelet.listen(dir.settings().podresources);
    let seen = dir.look();
    assert_eq!(seen.degraded, []);
    assert_eq!(claims(&seen.kubelet.claims), ["shop:web/main 2-3 0-1"]);
    assert_eq!(seen.counts(), (1, 1, 1));
    assert_eq!(seen.kubelet.claims[0].devices["vendor/nic"], 2);
    let allocatable = seen.allocatable.unwrap();
    assert_eq!((allocatable.cpus.to_string().as_str(), allocatable.memory[0].bytes >> 30), ("1-7", 16));
    let nics: Vec<(String, usize)> =
        allocatable.devices["vendor/nic"].iter().map(|(nodes, count)| (nodes.to_string(), *count)).collect();
    assert_eq!(nics, [("0".to_owned(), 1), ("1".to_owned(), 2)]);
}

#[test]
fn an_older_kubelet_does_not_know_what_it_may_hand_out() {
    let dir = Dir::new();
    Kubelet::of(Vec::new()).listen(dir.settings().podresources);
    let told = ask(&dir.settings().podresources).unwrap();
    assert_eq!(told.listed, []);
    assert!(told.offered.unwrap_err().contains("unknown method"));
}

/// Megabytes take seconds on a busy machine; how long is no question here.
const PATIENT: Duration = Duration::from_mins(5);

#[test]
fn an_answer_that_is_too_long_is_refused() {
    let name = "x".repeat(17 << 20);
    let dir = Dir::new();
    Kubelet::of(vec![pod(&name, Vec::new())]).listen(dir.settings().podresources);
    let error = ask_within(&dir.settings().podresources, PATIENT).unwrap_err();
    assert!(matches!(error, PodResourcesError::Refused { method: "List", .. }), "{error}");

    let one = ContainerResources { name: "c".into(), cpu_ids: vec![1], ..ContainerResources::default() };
    let dir = Dir::new();
    Kubelet::of(vec![pod("web", vec![one; state::MOST_CLAIMS + 1])]).listen(dir.settings().podresources);
    let error = ask_within(&dir.settings().podresources, PATIENT).unwrap_err();
    assert!(matches!(error, PodResourcesError::TooMany { .. }), "{error}");

    // No claims, but much memory.
    let many = ContainerResources { cpu_ids: vec![1; 1 << 21], ..ContainerResources::default() };
    for pods in [vec![pod("", Vec::new()); state::MOST_CLAIMS + 1], vec![pod("", vec![many])]] {
        let dir = Dir::new();
        Kubelet::of(pods).listen(dir.settings().podresources);
        let error = ask_within(&dir.settings().podresources, PATIENT).unwrap_err();
        assert!(matches!(error, PodResourcesError::TooMany { .. }), "{error}");
    }
}

#[test]
fn silent_or_foreign_server_is_given_up_in_time() {
    let dir = Dir::new();
    let silent = UnixListener::bind(dir.path().join("silent")).unwrap();
    let begun = Instant::now();
    let error = ask(&dir.path().join("silent")).unwrap_err();
    assert!(matches!(error, PodResourcesError::Silent { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(silent);
    let gone = ask(&dir.path().join("silent")).unwrap_err();
    assert!(matches!(gone, PodResourcesError::Absent { .. }), "{gone}");

    let other = UnixListener::bind(dir.path().join("other")).unwrap();
    thread::spawn(move || {
        for stream in other.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = ask(&dir.path().join("other")).unwrap_err();
    assert!(error.to_string().len() < 1000, "{error}");
}

#[test]
fn a_socket_that_comes_and_a_file_that_changes_are_seen_by_themselves() {
    let dir = Dir::new();
    dir.write(CPU_STATE, NONE);
    let watch = watch::KubeletWatch::first(&dir.settings());
    assert_eq!(sources(&watch.latest()), ["kubelet:podresources"]);
    thread::spawn(watch.keep_up(dir.settings()).unwrap());
    let one = ContainerResources { name: "c".into(), cpu_ids: vec![1], ..ContainerResources::default() };
    Kubelet::of(vec![pod("web", vec![one])]).listen(dir.settings().podresources);
    let temporary = dir.path().join("new");
    fs::write(&temporary, STATIC).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&temporary, dir.path().join(CPU_STATE)).unwrap();
    let begun = Instant::now();
    loop {
        let seen = watch.latest();
        if seen.kubelet.is_static() && seen.degraded.is_empty() {
            assert_eq!(seen.counts(), (2, 0, 0));
            return;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{seen:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

proptest! {
    #[test]
    fn any_text_is_a_state_or_an_error(text in ".{0,200}") {
        let _ = cpu_state::parse(&text);
        let _ = memory_state::parse(&text);
        let _ = device_state::parse(&text);
    }

    /// The file of a real node with a few bytes changed: it is refused, or says the same.
    #[test]
    fn a_few_changed_bytes_are_noticed(at in 0usize..STATIC.len(), byte in 0x20u8..0x7f) {
        let mut changed = STATIC.as_bytes().to_vec();
        changed[at] = byte;
        let Ok(changed) = String::from_utf8(changed) else { return Ok(()) };
        if let Ok(state) = cpu_state::parse(&changed) {
            // An unknown key is told, and blanks are skipped; a checksum of 0 is not one of these.
            let known = cpu_state::parse(STATIC).unwrap();
            let unknown_fields = state.unknown_fields.clone();
            prop_assert_eq!(state, CpuAssignments { unknown_fields, ..known });
        }
    }

    #[test]
    fn any_bytes_of_an_answer_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = ListPodResourcesResponse::decode(bytes.as_slice());
        let _ = AllocatableResourcesResponse::decode(bytes.as_slice()).map(|answer| podresources::offered(&answer));
    }
}
