use std::collections::BTreeMap;

use super::*;
use crate::{
    policy::Policy,
    workload::{CgroupPath, identify},
};

fn policy(text: &str) -> Policy {
    let policy: Policy = toml::from_str(text).unwrap();
    policy.validate().unwrap();
    policy
}

/// The name of the entry that selects a cgroup with these processes.
fn entry(policy: &Policy, path: &str, commands: &[&str]) -> String {
    let identity = identify(&CgroupPath::new(path));
    let standing = WorkloadKind::from(&identity.origin);
    let subject = RuleSubject { cgroup: Some(&identity.cgroup), standing, pod: None, commands };
    policy.rule(&subject).map(|(_, rule)| rule.name.clone()).unwrap_or_default()
}

fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

const ID: &str = "3f4a5b6c7d8e9f00112233445566778899aabbccddeeff00112233445566aabb";

#[test]
fn the_first_entry_of_which_all_matchers_hold_counts() {
    let policy = policy(
        "[[workload]]\nname = 'one'\ncgroup = '/a/b'\ncpus = 1\n\
         [[workload]]\nname = 'called'\ncgroup = '/a/*'\ncommand = 'db*'\ncpus = 2\n\
         [[workload]]\nname = 'all'\ncgroup = '/a/*'\ncpus = 2\n",
    );
    for (path, commands, name) in [
        ("/a/b", vec!["db"], "one"),
        ("/a/c", vec!["sh", "dbd"], "called"),
        ("/a/c", vec!["sh"], "all"),
        ("/a/c", vec![], "all"),
        ("/b", vec!["db"], ""),
    ] {
        assert_eq!(entry(&policy, path, &commands), name, "{path} {commands:?}");
    }
}

#[test]
fn a_unit_is_one_of_the_systems_own_manager() {
    let policy = policy("[[workload]]\nname = 'redis'\nunit = 'redis*.service'\ncpus = 1\n");
    for (path, is) in [
        ("/system.slice/redis.service", true),
        ("/system.slice/redis-cache.service", true),
        ("/system.slice/redis.service/worker", true),
        ("/_redis.service", true),
        ("/system.slice/my-redis.service", false),
        // Units of a user's service manager, of a manager in a container, and a directory with the name of a
        // unit.
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/redis.service", false),
        ("/lxc.payload.web/system.slice/redis.service", false),
        (&format!("/system.slice/docker-{ID}.scope/system.slice/redis.service"), false),
        ("/jobs/redis.service", false),
        ("/system.slice", false),
        ("/", false),
        ("/kubepods.slice/kubepods-podab.slice/redis.service", false),
    ] {
        assert_eq!(!entry(&policy, path, &[]).is_empty(), is, "{path}");
    }
}

#[test]
fn a_container_cannot_match_by_what_it_calls_its_processes() {
    let bare = policy("[[workload]]\nname = 'db'\ncommand = 'postgres'\ncpus = 1\n");
    let named = policy("[[workload]]\nname = 'db'\ncgroup = '/**'\ncommand = 'postgres'\ncpus = 1\n");
    let docker = format!("/docker/{ID}");
    for (path, by_command, by_both) in [
        ("/jobs/a", true, true),
        ("/system.slice/postgresql.service", true, true),
        (docker.as_str(), false, true),
        ("/kubepods/podab/id", false, false),
    ] {
        let commands = ["postgres"];
        assert_eq!(!entry(&bare, path, &commands).is_empty(), by_command, "{path}");
        assert_eq!(!entry(&named, path, &commands).is_empty(), by_both, "{path}");
    }
}

#[test]
fn containers_of_pods_match_by_what_the_runtime_tells() {
    let policy = policy(
        "[[workload]]\nname = 'gold'\nnamespace = 'db-*'\nlabels = { tier = 'gold' }\n\
         [[workload]]\nname = 'sidecar'\ncontainer = 'proxy'\nenforce = false\n\
         [[workload]]\nname = 'pg'\npod = 'pg-?'\ncgroup = '/kubepods/**'\ncpus = 2\n",
    );
    let gold = labels(&[("tier", "gold"), ("app", "pg")]);
    let none = labels(&[]);
    for (namespace, pod, container, labels, name) in [
        ("db-1", "x", "main", &gold, "gold"),
        ("db-1", "x", "main", &none, ""),
        ("web", "x", "proxy", &gold, "sidecar"),
        ("web", "pg-0", "main", &none, "pg"),
        ("web", "pg-10", "main", &none, ""),
        ("db-\u{1b}[2J", "x", "main", &gold, "gold"),
        (&format!("db-{}", "x".repeat(4096)), "x", "main", &gold, ""),
    ] {
        let pod = Some(PodNames { namespace, pod, container, labels });
        let path = CgroupPath::new("/kubepods/podab/id");
        let subject = RuleSubject { cgroup: Some(&path), standing: WorkloadKind::Pod, pod, commands: &[] };
        let found = policy.rule(&subject).map(|(_, rule)| rule.name.as_str());
        assert_eq!(found.unwrap_or_default(), name, "{namespace} {container}");
        let untold = RuleSubject { pod: None, ..subject };
        assert!(policy.rule(&untold).is_none(), "only the runtime's report makes a container one of a pod");
    }
}

#[test]
fn what_can_never_hold_or_never_be_granted_is_refused() {
    let base = "[[workload]]\nname = 'a'\n";
    let long = "x".repeat(64);
    for (keys, key, said) in [
        ("cpus = 1", "workload[0]", "say what it is about"),
        ("cgroup = '/a'", "workload[0]", "cpus is missing"),
        ("unit = 'redis'\ncpus = 1", "workload[0].unit", "redis.service"),
        ("unit = 'system.slice'\ncpus = 1", "workload[0].unit", "slice"),
        ("unit = 'a.service'\npod = 'a'", "workload[0].unit", "no container of a pod is a unit"),
        ("command = 'a'\nnamespace = 'a'", "workload[0].command", "pods are not known by commands"),
        ("command = 'postgres_exporter'\ncpus = 1", "workload[0].command", "15 bytes"),
        (&format!("labels = {{ a = '{long}' }}"), "workload[0].labels", "no label"),
        ("labels = { '' = 'a' }", "workload[0].labels", "no label"),
        ("pod = 'a'\ndevices = ['']", "workload[0].devices[0]", "no device"),
        ("pod = 'a'\ndevices = ['eth0', 'eth0']", "workload[0].devices[1]", "twice"),
        ("pod = 'a'\nmemory_types = ['pmem']", "workload[0].memory_types", "engine = \"pools\""),
        ("pod = 'a'\nclass = 'reserved'", "workload[0].class", "engine = \"pools\""),
        ("pod = 'a'\nengine = 'pools'\npolicy = 'none'", "workload[0].policy", "no policies"),
        (
            "pod = 'a'\nengine = 'pools'\noptions = ['full-pcpus-only']",
            "workload[0].options",
            "no such options",
        ),
        (
            "pod = 'a'\nclass = 'shared'\noptions = ['full-pcpus-only']",
            "workload[0].options",
            "exclusive CPUs",
        ),
        (
            "pod = 'a'\noptions = ['full-pcpus-only', 'distribute-cpus-across-cores']",
            "workload[0].options",
            "cannot be used",
        ),
        (
            "unit = 'a.service'\ncpus = 2\noptions = ['align-by-socket']",
            "workload[0].options",
            "not always one",
        ),
        ("pod = 'a'\n[[workload]]\nname = 'b'\npod = 'a'\ncpus = 3", "workload[1]", "same matchers"),
    ] {
        let parsed: Policy = toml::from_str(&format!("{base}{keys}")).unwrap();
        let error = parsed.validate().expect_err(keys);
        assert!(error.key == key && error.to_string().contains(said), "{keys}: {error}");
    }
    for keys in [
        "options = ['nonsense']",
        "memory_types = []",
        "memory_types = ['tape']",
        "class = 'mixed'",
        "colour = 1",
        "unit = ''",
    ] {
        assert!(toml::from_str::<Policy>(&format!("{base}{keys}")).is_err(), "{keys}");
    }
    let socket = "[placement.hints]\nalign_by_socket = true\n[[workload]]\nname = 'a'\npod = 'a'\npolicy = 'single-numa-node'";
    let parsed: Policy = toml::from_str(socket).unwrap();
    assert_eq!(parsed.validate().unwrap_err().key, "workload[0].policy");
}

#[test]
fn every_key_is_written_back_the_same() {
    let text = "[[workload]]\nname = 'a'\ncgroup = '/a/**'\nnamespace = 'n'\npod = 'p'\ncontainer = 'c'\n\
         labels = { a = 'b' }\ncpus = 2\nmemory = '1GiB'\nnuma_nodes = '0-1'\ndevices = ['eth0']\n\
         memory_types = ['dram', 'hbm']\nengine = 'pools'\nclass = 'isolated'\n\
         [[workload]]\nname = 'b'\nunit = 'a.service'\ncommand = 'x'\ncpus = 1\npolicy = 'restricted'\nclass = 'shared'\n\
         [[workload]]\nname = 'c'\nunit = 'c.service'\ncpus = 2\noptions = ['full-pcpus-only', 'align-by-socket=false']\n";
    let read = policy(text);
    assert_eq!(read.workloads[0].memory_types, Some(MemoryTypes { dram: true, pmem: false, hbm: true }));
    assert_eq!(policy(&toml::to_string(&read).unwrap()), read);
}

#[test]
fn of_a_new_cgroup_only_the_path_speaks() {
    let mut policy = policy(
        "[[workload]]\nname = 'unit'\nunit = 'db.service'\ncpus = 1\n\
         [[workload]]\nname = 'left'\ncgroup = '/left/**'\nenforce = false\n\
         [[workload]]\nname = 'called'\ncgroup = '/jobs/**'\ncommand = 'batch'\ncpus = 1\n\
         [[workload]]\nname = 'pods'\nnamespace = 'x'\ncpus = 1\n",
    );
    for (path, may) in [
        ("/system.slice/db.service", true),
        ("/system.slice/web.service", false),
        ("/jobs/a", true),
        ("/left/a", false),
        ("/kubepods/podab/id", true),
    ] {
        assert_eq!(policy.may_place(&CgroupPath::new(path)), may, "{path}");
    }
    policy.nri.place = true;
    assert!(!policy.may_place(&CgroupPath::new("/kubepods/podab/id")), "it has its place already");
}
