//! Samples of trees that the tests write, and of this host.

use std::fs;

use enforcer_core::{
    policy::RunTimeSource,
    workload::{Origin, identify},
};
use numa_topology::id::CpuId;
use tempfile::TempDir;

use super::*;
use enforcer_host::cgroup_tree::walk;

const WITHOUT_BPF: SamplerOptions = SamplerOptions {
    bpf: false,
    counters: false,
    bpf_log: false,
    run_time: RunTimeSource::Clock,
    numa_maps: 0,
};

struct Tree(TempDir);

impl Tree {
    fn v2() -> Self {
        Self(TempDir::new().unwrap())
            .file("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n")
            .file("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n")
            .file("sys/fs/cgroup/cpuset.mems.effective", "0-1\n")
            .file("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 8 kB\n")
            .file("proc/sys/kernel/numa_balancing", "1\n")
    }
    fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }
    fn cgroup(self, path: &str, pid: u32) -> Self {
        let dir = format!("sys/fs/cgroup{path}");
        self.file(&format!("{dir}/cgroup.procs"), &format!("{pid}\n"))
            .file(&format!("{dir}/cgroup.threads"), &format!("{pid}\n"))
            .process(pid)
    }
    fn process(self, pid: u32) -> Self {
        let zeros = "0 ".repeat(23);
        let stat = format!("{pid} (work er) S 1 1 1 0 -1 4194304 0 0 0 0 1 2 {zeros}2 0\n");
        let dir = format!("proc/{pid}");
        self.file(&format!("{dir}/stat"), &stat)
            .file(&format!("{dir}/task/{pid}/stat"), &stat)
            .file(&format!("{dir}/task/{pid}/status"), &format!("Tgid:\t{pid}\nCpus_allowed_list:\t0-1\n"))
            .file(&format!("{dir}/numa_maps"), "1000 default anon=3 N0=2 N1=1 kernelpagesize_kB=4\n")
    }
    fn host(&self) -> HostRoot {
        HostRoot::captured(self.0.path())
    }
    fn sample_of(&self, workloads: &[Workload], options: SamplerOptions) -> Sample {
        let layout = CgroupLayout::read(&self.host()).unwrap();
        let topology = Topology::default();
        let mut sampler = Sampler::new(&self.host(), layout, &topology, options);
        sampler.nodes = vec![NodeId(0)];
        sampler.sample(workloads, 5)
    }
}

fn workload(path: &str) -> Workload {
    let identity = identify(&CgroupPath::new(path));
    Workload { cgroup: identity.cgroup, cgroup_id: None, name: identity.name, origin: identity.origin }
}

#[test]
fn merges_all_file_sources() {
    let tree = Tree::v2()
        .cgroup("/a.slice/a.service", 10)
        .file("sys/fs/cgroup/a.slice/cpuset.cpus.effective", "2-3\n")
        .file("sys/fs/cgroup/a.slice/a.service/memory.current", "4096\n")
        .file("sys/fs/cgroup/a.slice/a.service/memory.numa_stat", "anon N0=0 N1=4096\n");
    let service = Workload { cgroup_id: Some(77), ..workload("/a.slice/a.service") };
    let sample = tree.sample_of(&[service], WITHOUT_BPF);
    assert_eq!((sample.schema_version, sample.monotonic_ns), (SAMPLE_SCHEMA_VERSION, 5));
    assert_eq!(sample.settings.numa_balancing, Some(1));
    assert_eq!(sample.nodes[&NodeId(0)].mem_total_bytes, Some(8192));
    let cgroup = &sample.cgroups[&CgroupPath::new("/a.slice/a.service")];
    assert_eq!(cgroup.cpus_effective.as_ref().unwrap().to_string(), "2-3");
    assert_eq!(cgroup.memory_by_node.as_ref().unwrap()[&NodeId(1)].anon, 4096);
    assert_eq!((cgroup.id, cgroup.tasks, cgroup.run_time.as_ref()), (Some(77), Some(1), None));
    let task = &sample.tasks[0];
    assert_eq!((task.tid, task.command.as_str(), task.cpu), (10, "work er", Some(CpuId(2))));
    assert_eq!(task.cpu_time_ns, Some(30_000_000));
    assert_eq!(sample.sources["tasks"], "procfs");
    assert_eq!(sample.degraded, []);
}

#[test]
fn huge_pages_are_memory_of_their_cgroup_or_said_to_be_missing() {
    let huge = |tree: Tree| {
        let places = ["kernel/mm", "devices/system/node/node0", "devices/system/node/node1"];
        let pools = places.into_iter().zip([("8\n", "5\n"), ("4\n", "4\n"), ("4\n", "1\n")]);
        let tree = pools.fold(tree, |tree, (place, (all, free))| {
            let dir = format!("sys/{place}/hugepages/hugepages-2048kB");
            tree.file(&format!("{dir}/nr_hugepages"), all).file(&format!("{dir}/free_hugepages"), free)
        });
        tree.file("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "0\n")
    };
    let tree = || {
        Tree::v2()
            .cgroup("/vm", 10)
            .file("sys/fs/cgroup/vm/memory.numa_stat", "anon N0=4096 N1=0\n")
            .file("sys/fs/cgroup/vm/hugetlb.1GB.numa_stat", "total=1073741824 N0=1073741824\n")
    };
    let told =
        |tree: Tree| tree.file("sys/fs/cgroup/vm/hugetlb.2MB.numa_stat", "total=6291456 N0=0 N1=6291456\n");
    for (tree, on_node_1, missing) in
        [(told(huge(tree())), 6 << 20, false), (told(tree()), 0, false), (huge(tree()), 0, true)]
    {
        let sample = tree.sample_of(&[workload("/vm")], WITHOUT_BPF);
        let by_node = sample.cgroups[&CgroupPath::new("/vm")].memory_by_node.as_ref().unwrap();
        assert_eq!((by_node[&NodeId(0)].anon, by_node[&NodeId(1)].anon), (4096, on_node_1));
        let said: Vec<_> = sample.degraded.iter().map(|entry| entry.source.as_str()).collect();
        assert_eq!(said, if missing { vec!["hugetlb"] } else { vec![] });
    }
}

#[test]
fn huge_pages_that_are_reserved_are_told_of_the_host_and_of_each_cgroup() {
    let tree = Tree::v2()
        .cgroup("/vm", 10)
        .file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n")
        .file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8\n")
        .file("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "3\n")
        .file("sys/fs/cgroup/vm/memory.numa_stat", "anon N0=4096 N1=0\n")
        .file("sys/fs/cgroup/vm/hugetlb.2MB.numa_stat", "total=0 N0=0 N1=0\n")
        .file("sys/fs/cgroup/vm/hugetlb.2MB.rsvd.current", "4194304\n");
    let sample = tree.sample_of(&[workload("/vm")], WITHOUT_BPF);
    assert_eq!(sample.hugepages_reserved, [(2 << 20, 6 << 20)].into());
    let file = "hugetlb.2MB.numa_stat".to_owned();
    assert_eq!(sample.cgroups[&CgroupPath::new("/vm")].hugetlb_reserved, [(file, 4 << 20)].into());
}

#[test]
fn huge_pages_of_a_cgroup_are_told_without_its_other_memory_and_on_v1() {
    let on_host = |tree: Tree| {
        tree.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n")
            .file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "7\n")
            .file("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "3\n")
    };
    let v2 = || on_host(Tree::v2().cgroup("/vm", 10));
    let at_v2 = "sys/fs/cgroup/vm/hugetlb.2MB";
    let v1 = || {
        let top = on_host(Tree(TempDir::new().unwrap()));
        top.file("sys/fs/cgroup/cpuset/vm/cpuset.cpus", "0-3\n").file("sys/fs/cgroup/cpuset/vm/tasks", "10\n")
    };
    let at_v1 = "sys/fs/cgroup/hugetlb/vm/hugetlb.2MB";
    let used = "total=2097152 N0=0 N1=2097152\n";
    let of_v1 = format!("{used}hierarchical_total=4194304 N0=2097152 N1=2097152\n");
    for (case, tree, told) in [
        (
            "the memory controller is off",
            v2().file(&format!("{at_v2}.numa_stat"), used)
                .file(&format!("{at_v2}.rsvd.current"), "6291456\n"),
            true,
        ),
        (
            "before Linux 5.17",
            v2().file(&format!("{at_v2}.current"), "2097152\n")
                .file(&format!("{at_v2}.rsvd.current"), "6291456\n"),
            false,
        ),
        (
            "v1",
            v1().file(&format!("{at_v1}.numa_stat"), &of_v1)
                .file(&format!("{at_v1}.rsvd.usage_in_bytes"), "8388608\n")
                .file(&format!("{at_v1}.usage_in_bytes"), "4194304\n"),
            true,
        ),
        (
            "v1 before Linux 5.17",
            v1().file(&format!("{at_v1}.usage_in_bytes"), "2097152\n")
                .file(&format!("{at_v1}.rsvd.usage_in_bytes"), "6291456\n"),
            false,
        ),
    ] {
        let sample = tree.sample_of(&[workload("/vm")], WITHOUT_BPF);
        let file = || "hugetlb.2MB.numa_stat".to_owned();
        let vm = &sample.cgroups[&CgroupPath::new("/vm")];
        assert_eq!(vm.hugetlb_reserved, [(file(), 4 << 20)].into(), "{case}");
        let by_node = [(NodeId(0), 0), (NodeId(1), 2 << 20)].into();
        let by_file: BTreeMap<_, _> = told.then(|| (file(), by_node)).into_iter().collect();
        assert_eq!(vm.hugetlb_by_file, by_file, "{case}");
    }
}

#[test]
fn a_file_that_is_of_no_use_is_not_said_to_be_missing_as_well() {
    let tree = Tree::v2()
        .cgroup("/vm", 10)
        .file("sys/fs/cgroup/vm/memory.numa_stat", "anon N0=\n")
        .cgroup("/other", 11);
    let sample = tree.sample_of(&[workload("/vm")], WITHOUT_BPF);
    let said: Vec<_> = sample.degraded.iter().map(|entry| entry.source.as_str()).collect();
    assert_eq!(said, ["cgroup:/vm"], "{:?}", sample.degraded);
    let sample = tree.sample_of(&[workload("/vm"), workload("/other")], WITHOUT_BPF);
    let missing = sample.degraded.iter().find(|entry| entry.source == "memory.numa_stat").unwrap();
    assert!(
        missing.reason.contains("in 1 of the cgroups") && missing.reason.ends_with("/other"),
        "{missing:?}"
    );
}

#[test]
fn cgroups_above_the_workloads_have_their_cpusets_and_nothing_else() {
    let tree = Tree::v2()
        .cgroup("/a.slice/b.slice/w.service", 10)
        .cgroup("/a.slice/other.service", 11)
        .file("sys/fs/cgroup/a.slice/cpuset.cpus.effective", "2-3\n")
        .file("sys/fs/cgroup/a.slice/cpuset.mems.effective", "1\n")
        .file("sys/fs/cgroup/a.slice/memory.current", "4096\n");
    let workloads = ["/a.slice/b.slice/w.service", "/a.slice/other.service"].map(workload);
    let sample = tree.sample_of(&workloads, WITHOUT_BPF);
    let above: BTreeMap<&str, &CgroupSample> = sample
        .cgroups
        .iter()
        .filter(|(path, _)| workloads.iter().all(|workload| workload.cgroup != **path))
        .map(|(path, cgroup)| (path.as_str(), cgroup))
        .collect();
    // `/a.slice/b.slice` has no files of its own and passes its parent's on.
    assert_eq!(above.keys().copied().collect::<Vec<_>>(), ["/", "/a.slice"]);
    let cpuset = |cpus: &str, mems: &str| CgroupSample {
        cpus_effective: cpus.parse().ok(),
        mems_effective: mems.parse().ok(),
        ..CgroupSample::default()
    };
    assert_eq!(above["/a.slice"], &cpuset("2-3", "1"));
    assert_eq!(above["/"], &cpuset("0-3", "0-1"));
    assert!(
        sample.degraded.iter().all(|entry| !entry.reason.contains("a.slice is")),
        "{:?}",
        sample.degraded
    );
    assert!(sample.degraded[0].reason.contains(" 2 of the cgroups"), "{:?}", sample.degraded);
}

#[test]
fn a_cgroup_that_vanished_since_discovery_is_gone_without_a_word() {
    let tree = Tree::v2().cgroup("/a", 10);
    let sample = tree.sample_of(&[workload("/gone"), workload("/gone/below")], WITHOUT_BPF);
    assert_eq!((sample.cgroups.len(), sample.tasks.len()), (0, 0));
    assert_eq!(sample.degraded, []);
}

#[test]
fn a_thousand_cgroups_without_memory_are_one_entry() {
    let paths: Vec<String> = (0..1_000).map(|n| format!("/w{n}")).collect();
    let tree = paths
        .iter()
        .fold(Tree::v2(), |tree, path| tree.file(&format!("sys/fs/cgroup{path}/cgroup.threads"), ""));
    let workloads: Vec<Workload> = paths.iter().map(|path| workload(path)).collect();
    let sample = tree.sample_of(&workloads, WITHOUT_BPF);
    assert_eq!(sample.cgroups.len(), 1_001, "with the root");
    assert_eq!(sample.degraded.len(), 1, "{:?}", sample.degraded);
    assert!(sample.degraded[0].reason.contains(" 1000 of the cgroups"), "{:?}", sample.degraded);
}

#[test]
fn a_thousand_cgroups_with_nonsense_are_a_few_entries() {
    let paths: Vec<String> = (0..1_000).map(|n| format!("/w{n}")).collect();
    let tree = paths.iter().fold(Tree::v2(), |tree, path| {
        tree.file(&format!("sys/fs/cgroup{path}/memory.numa_stat"), "anon N0=1\n")
            .file(&format!("sys/fs/cgroup{path}/cpuset.cpus"), "0-999999999\n")
    });
    let workloads: Vec<Workload> = paths.iter().map(|path| workload(path)).collect();
    let sample = tree.sample_of(&workloads, WITHOUT_BPF);
    assert!(sample.degraded.len() < 10, "{:?}", sample.degraded.len());
    assert!(sample.degraded[0].reason.contains("0-999999999"), "{:?}", sample.degraded[0]);
}

#[test]
fn processes_tell_what_cgroups_do_not_when_asked() {
    let tree = Tree::v2().cgroup("/a", 10).cgroup("", 20);
    let workloads = [
        workload("/a"),
        Workload { origin: Origin::Process { pid: 20, command: "x".into() }, ..workload("/") },
    ];
    let asked = SamplerOptions { numa_maps: 10, ..WITHOUT_BPF };
    let sample = tree.sample_of(&workloads, asked.clone());
    let memory = sample.cgroups[&CgroupPath::new("/a")].memory_by_node.as_ref().unwrap();
    assert_eq!((memory[&NodeId(0)].anon, memory[&NodeId(1)].anon), (8192, 4096));
    assert_eq!(sample.memory_by_process[&20][&NodeId(1)].anon, 4096);
    assert_eq!(sample.degraded, []);

    let bounded = tree.sample_of(&workloads, SamplerOptions { numa_maps: 1, ..asked });
    assert!(bounded.memory_by_process.is_empty());
    assert_eq!(bounded.degraded[0].source, "numa_maps");

    let unasked = tree.sample_of(&workloads, WITHOUT_BPF);
    assert_eq!(unasked.cgroups[&CgroupPath::new("/a")].memory_by_node, None);
    assert_eq!(unasked.degraded[0].source, "memory.numa_stat");
}

#[test]
fn this_host_can_be_sampled() {
    let host = HostRoot::live();
    let layout = CgroupLayout::read(&host).unwrap();
    let memory = layout.memory.as_ref().unwrap_or(&layout.cpuset);
    let mut workloads: Vec<Workload> =
        walk(memory, &CgroupPath::root(), true).cgroups.iter().map(|c| workload(c.path.as_str())).collect();
    let pid = std::process::id();
    workloads.push(Workload { origin: Origin::Process { pid, command: "me".into() }, ..workload("/") });
    let mut sampler = Sampler::new(&host, layout, &Topology::default(), WITHOUT_BPF);
    let sample = sampler.sample(&workloads, 1);
    assert!(!sample.cgroups.is_empty());
    assert!(!sample.tasks.is_empty());
    assert!(sample.cgroups.values().all(|cgroup| cgroup.cpus_effective.is_some()));
    assert!(sample.tasks.windows(2).all(|pair| pair[0].tid < pair[1].tid));
}

#[test]
#[cfg(feature = "bpf")]
fn both_sources_of_threads_agree_on_this_process() {
    // Without the privilege to load programs both samples come from procfs, and the sample says so.
    let host = HostRoot::live();
    let layout = CgroupLayout::read(&host).unwrap();
    let pid = std::process::id();
    let workloads = [Workload { origin: Origin::Process { pid, command: "me".into() }, ..workload("/") }];
    let sample = |bpf| {
        let options = SamplerOptions { bpf, ..WITHOUT_BPF };
        Sampler::new(&host, layout.clone(), &Topology::default(), options).sample(&workloads, 1)
    };
    let (with, without) = (sample(true), sample(false));
    let own = |sample: &Sample| sample.tasks.iter().find(|task| task.tid == pid).cloned().unwrap();
    assert_eq!(own(&with).cpus_allowed, own(&without).cpus_allowed);
    assert_eq!(own(&with).cgroup, Some(CgroupPath::root()));
    let iterator = with.sources["tasks"].starts_with("bpf");
    assert_eq!(
        iterator,
        with.degraded.iter().all(|entry| entry.source != "task-iterator"),
        "{:?}",
        with.degraded
    );
}

#[test]
#[cfg(not(feature = "bpf"))]
fn a_build_without_the_kernel_side_says_so() {
    let host = HostRoot::live();
    let layout = CgroupLayout::read(&host).unwrap();
    let mut sampler = Sampler::new(&host, layout, &Topology::default(), SamplerOptions::default());
    let degraded = sampler.sample(&[], 1).degraded;
    assert!(degraded.iter().any(|entry| entry.source == "bpf" && entry.reason == "not built in"));
}

#[test]
fn a_copy_has_no_kernel_to_count_in() {
    let sample = Tree::v2().sample_of(&[], SamplerOptions::default());
    assert_eq!(sample.degraded.iter().map(|entry| entry.source.as_str()).collect::<Vec<_>>(), ["bpf"]);
}

#[test]
fn an_empty_tree_is_an_empty_sample() {
    let tree = Tree::v2();
    let sample = tree.sample_of(&[], WITHOUT_BPF);
    assert!(sample.cgroups.is_empty() && sample.tasks.is_empty());
    assert!(tree.host().cgroup.is_dir());
}
