use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use enforcer_core::cluster::state::ConfigurationSource;
use enforcer_host::HostRoot;
use proptest::prelude::*;
use serde_json::json;

use super::{command_line::CommandLine, *};

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// Files of a kubelet that starts after they are written.
struct KubeletFiles {
    dir: tempfile::TempDir,
    words: Vec<String>,
}

impl KubeletFiles {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("conf.d")).unwrap();
        mode(&dir.path().join("conf.d"), 0o755);
        Self { dir, words: vec!["kubelet".into()] }
    }

    /// With these files in order: `config` is the file, others are drop-ins. And with these flags.
    fn with(files: &[(&str, &str)], flags: &[&str]) -> Self {
        let mut kubelet = Self::new();
        for (name, text) in files {
            let path = match *name {
                "config" => kubelet.path("config"),
                name => kubelet.path("conf.d").join(name),
            };
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("{HEAD}{text}")).unwrap();
            // The bits that the umask of a developer may leave.
            mode(&path, 0o644);
            mode(path.parent().unwrap(), 0o755);
        }
        if kubelet.path("config").exists() {
            kubelet.words.push(format!("--config={}", kubelet.path("config").display()));
        }
        kubelet.words.push(format!("--config-dir={}", kubelet.path("conf.d").display()));
        kubelet.words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        kubelet
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn process(&self) -> RunningKubelet {
        RunningKubelet {
            pid: 77,
            start_ticks: 1,
            started_at: Some(i64::MAX),
            earliest_start: Some(i64::MAX),
            flags: CommandLine::parse(&self.words.join("\0")),
            working_dir: Some(self.dir.path().to_owned()),
            elsewhere: None,
        }
    }

    fn read(&self) -> ReadConfiguration {
        read_files(&HostRoot::live(), &self.process())
    }

    fn effective(&self) -> EffectiveKubelet {
        effective(Ok(&self.process()), Some(&self.read()), None, Some("v1.36.2"))
    }

    /// The reason why they cannot be used.
    fn reason(&self) -> String {
        let effective = self.effective();
        let [one] = &effective.inexact[..] else { panic!("{:?}", effective.inexact) };
        assert_eq!(effective.profile.cpu_policy, "", "nothing is known of the policy");
        one.reason.clone()
    }
}

fn map<V: Clone>(entries: &[(&str, V)]) -> BTreeMap<String, V> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

#[test]
fn a_kubelet_without_files_has_the_defaults() {
    let kubelet = KubeletFiles::new();
    let effective = kubelet.effective();
    assert_eq!(effective.inexact, []);
    let profile = &effective.profile;
    assert_eq!(
        [&profile.cpu_policy, &profile.memory_policy, &profile.topology_policy, &profile.topology_scope],
        ["none", "None", "none", "container"]
    );
    assert_eq!(
        (profile.version.as_str(), profile.config_from),
        ("v1.36.2", Some(ConfigurationSource::Files))
    );
    assert_eq!((profile.started_at, effective.reservations.max_pods), (Some(i64::MAX), Some(110)));
}

/// A fact of the order, files and flags that show it, and a setting with its effective value.
type OrderRow =
    (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str], [&'static str; 2]);

/// File, drop-ins, defaults, flags.
const ORDER: [OrderRow; 16] = [
    ("the file", &[("config", "cpuManagerPolicy: static\n")], &[], ["cpu", "static"]),
    (
        "a drop-in wins over the file",
        &[("config", "cpuManagerPolicy: static\n"), ("1.conf", "cpuManagerPolicy: none\n")],
        &[],
        ["cpu", "none"],
    ),
    (
        "a later drop-in wins",
        &[("1.conf", "cpuManagerPolicy: none\n"), ("2.conf", "cpuManagerPolicy: static\n")],
        &[],
        ["cpu", "static"],
    ),
    (
        "names are compared as bytes",
        &[("9.conf", "cpuManagerPolicy: static\n"), ("10.conf", "cpuManagerPolicy: none\n")],
        &[],
        ["cpu", "static"],
    ),
    (
        "a directory is read at the place of its name",
        &[("a/z.conf", "cpuManagerPolicy: none\n"), ("a-b.conf", "cpuManagerPolicy: static\n")],
        &[],
        ["cpu", "static"],
    ),
    (
        "only .conf is read",
        &[("1.conf", "cpuManagerPolicy: static\n"), ("2.yaml", "cpuManagerPolicy: none\n")],
        &[],
        ["cpu", "static"],
    ),
    (
        "null resets to the default",
        &[("config", "cpuManagerPolicy: static\n"), ("1.conf", "cpuManagerPolicy: null\n")],
        &[],
        ["cpu", "none"],
    ),
    (
        "an empty text is the default",
        &[("config", "topologyManagerScope: ''\n")],
        &[],
        ["scope", "container"],
    ),
    (
        "a flag wins over all",
        &[("config", "cpuManagerPolicy: none\n"), ("1.conf", "cpuManagerPolicy: none\n")],
        &["--cpu-manager-policy=static"],
        ["cpu", "static"],
    ),
    (
        "maps are merged",
        &[
            ("config", "cpuManagerPolicyOptions: {a: '1', b: '1'}\n"),
            ("1.conf", "cpuManagerPolicyOptions: {b: '2'}\n"),
        ],
        &[],
        ["options", "a=1,b=2"],
    ),
    (
        "null removes one key",
        &[
            ("config", "cpuManagerPolicyOptions: {a: '1', b: '1'}\n"),
            ("1.conf", "cpuManagerPolicyOptions: {b: null}\n"),
        ],
        &[],
        ["options", "a=1"],
    ),
    (
        "a flag replaces a map, and adds to it",
        &[("config", "cpuManagerPolicyOptions: {a: '1'}\n")],
        &["--cpu-manager-policy-options=b=1", "--cpu-manager-policy-options=c=2"],
        ["options", "b=1,c=2"],
    ),
    (
        "lists are replaced",
        &[
            ("config", "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n"),
            ("1.conf", "reservedMemory: [{numaNode: 1, limits: {memory: 1Mi}}]\n"),
        ],
        &[],
        ["memory", "1:memory=1048576"],
    ),
    (
        "a gate of a flag wins, the others stay",
        &[
            ("config", "featureGates: {MemoryManager: false, CPUManager: false}\n"),
            ("1.conf", "featureGates: {TopologyManager: true}\n"),
        ],
        &["--feature-gates=CPUManager=true,Other=true"],
        ["gates", "CPUManager=true,MemoryManager=false,TopologyManager=true"],
    ),
    (
        "a drop-in with one signal keeps the default of the others",
        &[("config", "maxPods: 3\n"), ("1.conf", "evictionHard: {nodefs.available: 5%}\n")],
        &[],
        ["eviction", "100Mi"],
    ),
    (
        "a file with one signal does not",
        &[("config", "evictionHard: {nodefs.available: 5%}\n")],
        &[],
        ["eviction", ""],
    ),
];

#[test]
fn the_order_of_sources_is_that_of_the_kubelet() {
    for (fact, files, flags, [what, expected]) in ORDER {
        let effective = KubeletFiles::with(files, flags).effective();
        assert_eq!(effective.inexact, [], "{fact}");
        let profile = effective.profile;
        let pairs = |map: &BTreeMap<String, String>| {
            map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
        };
        let found = match what {
            "cpu" => profile.cpu_policy,
            "scope" => profile.topology_scope,
            "options" => pairs(&profile.cpu_options),
            "gates" => {
                pairs(&profile.gates.iter().map(|(gate, on)| (gate.clone(), on.to_string())).collect())
            }
            "eviction" => effective.reservations.eviction_memory.unwrap_or_default(),
            "memory" => {
                let [one] = &effective.reservations.memory[..] else { panic!("{fact}") };
                let limits = one.limits.iter().map(|(name, bytes)| (name.clone(), bytes.to_string()));
                format!("{}:{}", one.node, pairs(&limits.collect()))
            }
            other => panic!("{other}"),
        };
        assert_eq!(found, expected, "{fact}");
    }
}

#[test]
fn every_flag_of_the_configuration_is_applied() {
    let words = [
        "kubelet",
        "--memory-manager-policy=Static",
        "--reserved-memory=0:memory=1Gi,hugepages-1Gi=2Gi",
        "--reserved-memory",
        "1:memory=2Gi;2:memory=1",
        "--topology-manager-policy=single-numa-node",
        "--topology-manager-scope=pod",
        "--topology-manager-policy-options=prefer-closest-numa-nodes=true",
        "--reserved-cpus=0-1",
        "--kube-reserved=cpu=1,memory=1Gi",
        "--system-reserved=cpu=500m",
        "--eviction-hard=memory.available<5%,nodefs.available<10%",
        "--max-pods=20",
    ];
    let effective =
        KubeletFiles { words: words.map(str::to_owned).into(), ..KubeletFiles::new() }.effective();
    assert_eq!(effective.inexact, []);
    let (profile, reservations) = (effective.profile, effective.reservations);
    assert_eq!(
        (profile.memory_policy.as_str(), profile.topology_policy.as_str()),
        ("Static", "single-numa-node")
    );
    assert_eq!(profile.topology_scope, "pod");
    assert_eq!(profile.topology_options, map(&[("prefer-closest-numa-nodes", "true".to_owned())]));
    let node = |node, limits: &[(&str, u64)]| ReservedNodeMemory { node, limits: map(limits) };
    assert_eq!(
        reservations.memory,
        [
            node(0, &[("hugepages-1Gi", 2 << 30), ("memory", 1 << 30)]),
            node(1, &[("memory", 2 << 30)]),
            node(2, &[("memory", 1)]),
        ]
    );
    assert_eq!(reservations.cpus, "0-1".parse().ok());
    assert_eq!(reservations.kube, map(&[("cpu", "1".to_owned()), ("memory", "1Gi".to_owned())]));
    assert_eq!(reservations.system, map(&[("cpu", "500m".to_owned())]));
    assert_eq!((reservations.eviction_memory.as_deref(), reservations.max_pods), (Some("5%"), Some(20)));
}

#[test]
fn flags_in_another_form_are_named() {
    for flag in [
        "--feature-gates=CPUManager=perhaps",
        "--feature-gates=CPUManager",
        "--kube-reserved=cpu",
        "--reserved-memory=0",
        "--reserved-memory=0:memory",
        "--reserved-memory=x:memory=1Gi",
        "--reserved-memory=0:memory=much",
        "--max-pods=many",
        "--reserved-cpus=0-",
        "--cpu-manager-policy-options=full-pcpus-only",
    ] {
        let effective = KubeletFiles::with(&[], &[flag]).effective();
        assert_eq!(effective.inexact.len(), 1, "{flag}: {:?}", effective.inexact);
    }
}

type FileDamage = fn(&KubeletFiles);

#[test]
fn unfit_files_are_named_and_no_field_is_taken() {
    let fit = [("config", "cpuManagerPolicy: static\n"), ("1.conf", "maxPods: 3\n")];
    assert!(KubeletFiles::with(&fit, &[]).read().is_complete());
    let rows: [(&str, FileDamage); 11] = [
        ("config: No such file", |kubelet| fs::remove_file(kubelet.path("config")).unwrap()),
        ("conf.d: No such file", |kubelet| fs::remove_dir_all(kubelet.path("conf.d")).unwrap()),
        ("not UTF-8", |kubelet| fs::write(kubelet.path("conf.d/1.conf"), b"kind: \xff").unwrap()),
        ("kind is", |kubelet| {
            fs::write(kubelet.path("conf.d/1.conf"), HEAD.replace("Configuration\n", "\n")).unwrap();
        }),
        ("longer than", |kubelet| fs::write(kubelet.path("conf.d/1.conf"), vec![b'#'; 10 << 20]).unwrap()),
        ("others may write", |kubelet| mode(&kubelet.path("config"), 0o666)),
        ("others may write", |kubelet| mode(&kubelet.path("conf.d"), 0o777)),
        ("not a regular file", |kubelet| {
            fs::remove_file(kubelet.path("config")).unwrap();
            symlink("/dev/null", kubelet.path("config")).unwrap();
        }),
        ("symbolic link", |kubelet| {
            fs::rename(kubelet.path("conf.d"), kubelet.path("real")).unwrap();
            symlink(kubelet.path("real"), kubelet.path("conf.d")).unwrap();
        }),
        ("cpuManagerPolicy: not a text", |kubelet| {
            fs::write(kubelet.path("conf.d/2.conf"), format!("{HEAD}cpuManagerPolicy: 1\n")).unwrap();
        }),
        ("levels than any", |kubelet| {
            let deep: PathBuf = std::iter::repeat_n("d", 20).collect();
            fs::create_dir_all(kubelet.path("conf.d").join(deep)).unwrap();
        }),
    ];
    for (expected, damage) in rows {
        let kubelet = KubeletFiles::with(&fit, &[]);
        damage(&kubelet);
        let reason = kubelet.reason();
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_flag_is_known_beside_an_unfit_file() {
    let kubelet = KubeletFiles::with(&[("config", "a: [\n")], &["--cpu-manager-policy=static"]);
    let effective = kubelet.effective();
    assert_eq!(effective.inexact.len(), 1);
    assert_eq!(
        (effective.profile.cpu_policy.as_str(), effective.profile.memory_policy.as_str()),
        ("static", "")
    );
}

#[test]
fn files_that_are_newer_than_the_kubelet_are_not_its_configuration() {
    let kubelet = KubeletFiles::with(&[("config", "cpuManagerPolicy: static\n")], &[]);
    let mut process = kubelet.process();
    let read = |process: &RunningKubelet| read_files(&HostRoot::live(), process);
    process.earliest_start = Some(1_000);
    assert!(read(&process).unread[0].reason.contains("changed after the kubelet started"));
    process.earliest_start = None;
    assert!(read(&process).unread[0].reason.contains("start of the kubelet is not known"));
    process.elsewhere = Some("the kubelet has the root directory /chroot".into());
    assert!(read(&process).unread[0].reason.contains("/chroot"));
}

/// The kernel derives the time of the start from the clock; the times of files are those of the clock, too.
#[test]
fn files_that_change_after_the_clock_was_set_back_are_newer_than_the_kubelet() {
    let kubelet = KubeletFiles::with(&[("config", "cpuManagerPolicy: static\n")], &[]);
    let changed_at = fs::metadata(kubelet.path("config")).unwrap().ctime();
    let started_at =
        |at: i64| RunningKubelet { started_at: Some(at), earliest_start: Some(at), ..kubelet.process() };
    let first = started_at(changed_at + 100);
    let is_read = |process: &RunningKubelet| read_files(&HostRoot::live(), process).is_complete();
    assert!(is_read(&first));
    let set_back = started_at(changed_at - 3_600).as_before(&first);
    assert_eq!(set_back.started_at, first.started_at, "what is published stays");
    assert!(!is_read(&set_back), "an edit of now has the time of the file");
    let set_forward_again = first.as_before(&set_back);
    assert!(!is_read(&set_forward_again), "the edit was before that");
}

#[test]
fn links_to_files_and_relative_paths_are_followed() {
    let mut kubelet = KubeletFiles::new();
    fs::write(kubelet.path("real"), format!("{HEAD}cpuManagerPolicy: static\n")).unwrap();
    symlink(kubelet.path("real"), kubelet.path("conf.d/1.conf")).unwrap();
    kubelet.words.push("--config-dir=conf.d".into());
    assert_eq!(kubelet.effective().profile.cpu_policy, "static");
    let process = RunningKubelet { working_dir: None, ..kubelet.process() };
    assert!(read_files(&HostRoot::live(), &process).unread[0].reason.contains("relative path"));
}

/// The files are older than the kubelet, and a link to them is not.
#[test]
fn a_link_that_is_newer_than_the_kubelet_is_not_followed() {
    let mut kubelet = KubeletFiles::new();
    let real = kubelet.path("conf.d/real");
    fs::write(&real, format!("{HEAD}cpuManagerPolicy: static\n")).unwrap();
    mode(&real, 0o644);
    let started_at = fs::metadata(&real).unwrap().ctime();
    // Times are whole seconds, and one more is allowed for.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    symlink("conf.d/real", kubelet.path("link")).unwrap();
    symlink("./conf.d/../conf.d", kubelet.path("..data")).unwrap();
    for (path, link) in [("conf.d/real", None), ("link", Some("link")), ("..data/real", Some("..data"))] {
        kubelet.words = vec!["kubelet".into(), format!("--config={}", kubelet.path(path).display())];
        assert!(kubelet.read().is_complete(), "{path}: {:?}", kubelet.read().unread);
        let process = RunningKubelet { earliest_start: Some(started_at), ..kubelet.process() };
        let unread = read_files(&HostRoot::live(), &process).unread;
        let reasons: Vec<String> = unread.into_iter().map(|one| one.reason).collect();
        let expected = link.map(|link| {
            let changed = "changed after the kubelet started, which reads it at its start";
            format!("{}: {changed}", kubelet.path(link).display())
        });
        assert_eq!(reasons, Vec::from_iter(expected), "{path}");
    }
    for at in 0..9 {
        let target = if at == 0 { "conf.d/real".to_owned() } else { format!("l{}", at - 1) };
        symlink(target, kubelet.path(&format!("l{at}"))).unwrap();
    }
    kubelet.words[1] = format!("--config={}", kubelet.path("l8").display());
    assert!(kubelet.read().unread[0].reason.contains("links or levels than any"));
}

#[test]
fn a_number_of_0_is_the_default() {
    let read = KubeletFiles::with(&[("config", "maxPods: 0\nport: 0\n")], &[]).read();
    assert_eq!((read.configuration.max_pods, read.port()), (Some(110), Some(10_250)));
}

proptest! {
    #[test]
    fn any_command_line_gives_bounded_settings(
        flags in prop::collection::vec(
            (prop::sample::select(FLAGS.to_vec()), "([a-z0-9]|[=<:;, .-]|\u{e9}){0,40}"), 0..8,
        ),
    ) {
        let words = flags.iter().map(|(flag, value)| format!("--{flag}={value}"));
        let line = std::iter::once("kubelet".to_owned()).chain(words).collect::<Vec<_>>().join("\0");
        let mut kubelet = KubeletFiles::new();
        kubelet.words = line.split('\0').map(str::to_owned).collect();
        let effective = kubelet.effective();
        let profile = &effective.profile;
        prop_assert!(profile.cpu_policy.chars().count() <= 32);
        prop_assert!(profile.cpu_options.len() <= 16 && profile.gates.len() <= 32);
        prop_assert!(effective.inexact.len() <= 16);
        prop_assert!(effective.inexact.iter().all(|one| one.source.chars().count() <= 128));
    }
}

/// Flags whose values are read; those that name files are not among them.
const FLAGS: [&str; 9] = [
    "cpu-manager-policy",
    "cpu-manager-policy-options",
    "eviction-hard",
    "feature-gates",
    "kube-reserved",
    "max-pods",
    "reserved-cpus",
    "reserved-memory",
    "topology-manager-policy",
];

#[test]
fn gates_that_place_are_kept() {
    let gates = "featureGates: {KubeletTracing: true, PodLevelResourceManagers: false, AllAlpha: false}\n";
    let effective = KubeletFiles::with(&[("config", gates)], &[]).effective();
    assert_eq!(effective.inexact, []);
    assert_eq!(effective.profile.gates, map(&[("AllAlpha", false), ("PodLevelResourceManagers", false)]));
}

#[test]
fn values_beyond_the_published_bounds_are_named() {
    let long = format!("cpuManagerPolicy: {}\n", "x".repeat(100));
    let effective = KubeletFiles::with(&[("config", &long)], &[]).effective();
    assert_eq!(effective.inexact[0].source, "kubelet:cpuManagerPolicy");
    assert!(effective.profile.cpu_policy.chars().count() <= 32);
    let many: Vec<String> = (0..20).map(|index| format!("o{index}: 'true'")).collect();
    let many = format!("topologyManagerPolicyOptions: {{{}}}\n", many.join(", "));
    let effective = KubeletFiles::with(&[("config", &many)], &[]).effective();
    assert_eq!((effective.inexact.len(), effective.profile.topology_options.len()), (1, 16));
}

/// An answer of `/configz` with the fields that every kubelet sets.
fn configz(extra: &serde_json::Value) -> Vec<u8> {
    let mut fields = json!({
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "maxPods": 110,
        "port": 10250,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
        "featureGates": {"CPUManager": true, "KubeletTracing": true},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    });
    fields.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::to_vec(&json!({ "kubeletconfig": fields })).unwrap()
}

#[test]
fn configz_and_files_give_equal_settings() {
    let text = "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true'}\n\
        memoryManagerPolicy: Static\ntopologyManagerPolicy: restricted\n\
        reservedMemory: [{limits: {memory: 1024Mi}, numaNode: 0}]\n";
    let kubelet = KubeletFiles::with(
        &[("config", text)],
        &["--topology-manager-scope=pod", "--feature-gates=CPUManager=t"],
    );
    let files = kubelet.effective();
    let answer = parse_configz(&configz(&json!({}))).unwrap();
    let process = kubelet.process();
    let asked = effective(Ok(&process), Some(&kubelet.read()), Some(&answer), Some("v1.36.2"));
    assert_eq!(asked.profile.config_from, Some(ConfigurationSource::Configz));
    assert_eq!(asked.profile.config_hash, files.profile.config_hash);
    assert_eq!(asked.reservations, files.reservations);
    let profile = |mut effective: EffectiveKubelet| {
        effective.profile.config_from = None;
        effective.profile
    };
    assert_eq!(profile(asked), profile(files));
}

#[test]
fn the_answer_of_the_kubelet_wins_over_its_files() {
    let kubelet = KubeletFiles::with(&[("config", "cpuManagerPolicy: none\n")], &[]);
    fs::write(kubelet.path("config"), "garbage: [").unwrap();
    let answer = parse_configz(&configz(&json!({}))).unwrap();
    let process = kubelet.process();
    let files = kubelet.read();
    assert!(!files.is_complete());
    let asked = effective(Ok(&process), Some(&files), Some(&answer), Some("v1.36.2"));
    assert_eq!((asked.profile.cpu_policy.as_str(), &asked.inexact[..]), ("static", &[][..]));
}

#[test]
fn every_change_of_a_setting_changes_the_hash() {
    let hash = |extra: &serde_json::Value| {
        let answer = parse_configz(&configz(extra)).unwrap();
        effective(Err(NoKubelet::Absent), None, Some(&answer), None).profile.config_hash
    };
    let changes = [
        json!({}),
        json!({"cpuManagerPolicy": "none"}),
        json!({"cpuManagerPolicyOptions": {}}),
        json!({"memoryManagerPolicy": "None"}),
        json!({"topologyManagerPolicy": "none"}),
        json!({"topologyManagerScope": "container"}),
        json!({"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "10"}}),
        json!({"featureGates": {}}),
        json!({"reservedMemory": []}),
        json!({"reservedSystemCPUs": "0"}),
        json!({"kubeReserved": {"cpu": "1"}}),
        json!({"systemReserved": {"cpu": "1"}}),
        json!({"evictionHard": {}}),
        json!({"maxPods": 1}),
    ];
    let hashes: std::collections::BTreeSet<String> = changes.iter().map(hash).collect();
    assert_eq!(hashes.len(), changes.len());
    let same = [json!({"featureGates": {"CPUManager": true}}), json!({"readOnlyPort": 1})];
    assert!(same.iter().all(|change| hash(change) == hash(&json!({}))));
    // A published hash changes with the settings, and not with the version of this program.
    assert_eq!(hash(&json!({})), "e8baee44351aa1d3");
}

#[test]
fn other_answers_are_refused() {
    for (body, expected) in [
        (&b"404 page not found"[..], "not a document"),
        (b"{}", "no map"),
        (b"[]", "no map"),
        (b"{\"kubeletconfig\": []}", "no map"),
        (b"{\"kubeletconfig\": {}}", "cpuManagerPolicy is missing"),
        (b"\xff", "not UTF-8"),
        (b"{\"kubeletconfig\": {\"cpuManagerPolicy\": 1}}", "cpuManagerPolicy is missing"),
    ] {
        let fault = parse_configz(body).unwrap_err().to_string();
        assert!(fault.contains(expected), "{fault}");
    }
    let fault = parse_configz(&configz(&json!({"maxPods": "many"}))).unwrap_err();
    assert_eq!(fault.to_string(), "maxPods: not a number in range");
    assert!(parse_configz("[".repeat(10_000).as_bytes()).is_err());
    assert!(parse_configz(&vec![b' '; 2 << 20]).is_err());
}

#[test]
fn without_a_kubelet_nothing_is_known() {
    let none = effective(Err(NoKubelet::Absent), None, None, Some("v1.36.2"));
    assert_eq!(none.inexact.len(), 1);
    assert_eq!(none.profile, enforcer_core::cluster::state::KubeletProfile::default());
    let answer = parse_configz(&configz(&json!({}))).unwrap();
    let unseen = effective(Err(NoKubelet::Several(2)), None, Some(&answer), Some("v1.36.2"));
    assert_eq!(unseen.inexact[0].source, "kubelet:process");
    assert_eq!(unseen.profile.cpu_policy, "static");
}
