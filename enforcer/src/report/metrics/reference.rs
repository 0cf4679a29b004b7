//! `docs/metrics.md` is written from the same families that the registry is made of, and this test holds it to
//! them: `UPDATE_METRICS=1 cargo test -p enforcer --lib metrics` writes it anew.

use std::{env, fmt::Write as _, fs, path::Path};

use enforcer_core::call_times::BOUNDS;

use super::{
    MAX_WORKLOADS, PREFIX,
    family::{Family, Kind},
    label, sections, workloads,
};

const HEAD: &str = "\
# Metrics

`numa-enforcer run` serves these at `/metrics`, in the text format of Prometheus. Everything is as of the latest turn: a
scrape reads nothing from the host, and what is gone leaves no series behind. What is not known has no series; it is never 0.

This page is generated from the program (`UPDATE_METRICS=1 cargo test -p enforcer --lib metrics`), and a test holds it to that.

## Where else they are

`numa-enforcer audit -o prometheus --write FILE` writes what a single look tells (the machine, workloads, findings) for the
textfile collector of node_exporter. Alerts, recording rules and dashboards are in deploy/prometheus and deploy/grafana.

## What is called otherwise elsewhere

| a name that one may look for | here |
|---|---|
| `..._container_*` with namespace, pod and container on every series | `workload_*` by `workload`, because most workloads have no pod; join `workload_info` for the names, the cgroup, the owner and the policy |
| one remote ratio | two, which are never mixed: `workload_remote_residency_ratio`, where pages are, and `workload_remote_traffic_ratio`, what is accessed |
| access samples by pair of nodes | `memory_accesses_total` by node of the CPU, local or remote: the counters of a CPU do not tell which remote node it was |
| `..._aligned` by dimension | `workload_aligned`, of CPUs and memory alone; what is wrong with it is in the findings of `/report.json` |
| migrated bytes by pair of nodes | `page_moves_total` and `other_page_moves_total` by cause, in pages, which the kernel counts whoever moves them |
| rebalance decisions and reverts | `rebalance_moves_total` by `outcome` |
| errors of enforcement by operation | `actions_total` by `action` and `result` |
| success and duration of collectors | `degraded` by `feature`, and `tick_duration_seconds` of all of them together |
| entries and capacity of eBPF maps, lost events | `kernel_side_*_watched` and `_room`; `kernel_side_lost_total` |
| turns, as everything else calls them | `ticks_total`, `tick_errors_total`, `tick_duration_seconds`: named before, and kept because alerts and dashboards read them |
| time of the last publication of a NodeResourceTopology | not there: nothing is published |

## Labels
";

/// Labels, what their values are, and how many there are at most, by the letter of the tables below.
const LABELS: [(&str, &str, &str, &str); 32] = [
    (
        "workload",
        "name of the workload; of several with the same name each has `~` and a hash of its cgroup's path behind it",
        "W",
        "the worst 1,000",
    ),
    ("cgroup", "path of its cgroup", "1", "1"),
    ("namespace", "namespace of its pod, empty of all others", "1", "1"),
    ("pod", "name of its pod, likewise", "1", "1"),
    ("container", "its name in the pod, likewise", "1", "1"),
    ("qos", "`guaranteed`, `burstable`, `best-effort`; of pods", "1", "1"),
    (
        "policy",
        "policy by which it has its place, as in the configuration; empty where it has none",
        "1",
        "1",
    ),
    ("numa_node", "NUMA node; `node` is a machine in Kubernetes", "N", "NUMA nodes of the host"),
    ("src_numa", "NUMA node where something comes from", "N", "NUMA nodes of the host"),
    ("dst_numa", "NUMA node where something goes to", "N", "NUMA nodes of the host"),
    ("memory", "`local` or `remote` to the CPU", "2", "2"),
    ("source", "`placement`, `hint-faults`, `hardware`; one at a time for a workload", "1", "1"),
    ("kind", "kind of an allocation or of a sign of pressure, as listed", "6", "6"),
    ("result", "what became of it, as listed", "7", "7"),
    ("reason", "why something is in no counter, or why no memory node was added", "4", "4"),
    ("stage", "`widen`: in time, or `emergency`: late", "2", "2"),
    ("quantile", "`0.5` or `0.99`", "2", "2"),
    (
        "cause",
        "why pages moved (`syscall`, `mempolicy`, `balancing`, `demotion`, `damon`, `compaction`, `other`), what is not scanned, why somebody was killed, or whose pages made room",
        "7",
        "7",
    ),
    (
        "by",
        "`own`: this daemon; `elsewhere`: the kernel's threads, and cgroups that are no workloads",
        "2",
        "2",
    ),
    ("file", "`cpus` or `mems` of a cpuset, or `other`", "3", "3"),
    ("scope", "a memory policy of a `task` or of a `range` of addresses", "2", "2"),
    ("mode", "of a memory policy, as `bind`", "8", "8"),
    ("step", "`moved`, `swapped` for another task, or `stuck`: could not be moved", "3", "3"),
    ("program", "eBPF program, by its name", "P", "programs that are loaded, about 20"),
    ("severity", "`info`, `warning`, `critical`", "3", "3"),
    (
        "owner",
        "`numa-enforcer`, `kubelet-cpu-manager`, `kubelet-memory-manager`, `kubelet-shared-pool`, `koordlet`, `katalyst`, \
         `dra-driver`, `systemd`, `libvirt`, `unknown`, `nobody`",
        "11",
        "11",
    ),
    ("call", "`synchronize`, `create`, `update`, `stop`, `started`, `removed`, `pod-removed`", "7", "7"),
    ("action", "`set-cpus`, `set-mems`, `set-exclusive`, `set-partition`, `move-pages`", "5", "5"),
    ("direction", "`down` to slower memory, or `up`", "2", "2"),
    ("source", "who saw which pages are cold or touched: `damon`, `smaps`, `lru-gen`, `kernel`", "4", "4"),
    ("backend", "who moves cold pages down: `move-pages`, `damos`, `reclaim`", "3", "3"),
    ("outcome", "`begun`, `held`, `reverted`, `stays`, `given-up`", "5", "5"),
];

/// Labels with values of the program's own making, of which there are few.
const OWN_LABELS: [(&str, &str, &str); 2] = [
    ("feature", "source that is missing, without its object: `cgroup` of `cgroup:/a`", "F"),
    ("version", "version of the program", "1"),
];

fn bound(name: &str) -> &'static str {
    let known = LABELS.iter().map(|(name, _, bound, _)| (*name, *bound));
    let own = OWN_LABELS.iter().map(|(name, _, bound)| (*name, *bound));
    known.chain(own).find(|(label, _)| *label == name).unwrap_or_else(|| panic!("{name} is not described")).1
}

fn series_at_most(family: &Family) -> String {
    if family.kind == Kind::Histogram {
        // Each bound, all calls, their number and their sum.
        return (BOUNDS.len() + 3).to_string();
    }
    // Of what only describes there is one for each that is described.
    let counts = |name: &&str| !family.name.ends_with("_info") || *name == "workload";
    let factors = family.labels.iter().copied().filter(counts).map(bound);
    let factors: Vec<_> = factors.filter(|factor| !matches!(*factor, "" | "1")).collect();
    if factors.is_empty() { "1".into() } else { factors.join(" x ") }
}

fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    let of = [
        ("_bytes", "bytes"),
        ("_seconds", "seconds"),
        ("_ratio", "0 to 1"),
        ("_pages", "pages"),
        ("_page_allocations", "pages"),
        ("_page_moves", "pages"),
        ("_distance", "SLIT, 10 is local"),
        ("_instructions", "instructions"),
        ("_accesses", "accesses"),
        ("_aligned", "0 or 1"),
        ("_successful", "0 or 1"),
        ("enforcing", "0 or 1"),
        ("paused", "0 or 1"),
        ("nri_up", "0 or 1"),
        ("_info", "1"),
    ];
    of.into_iter().find(|(suffix, _)| name.ends_with(suffix)).map_or("count", |(_, unit)| unit)
}

fn page() -> String {
    let mut page = String::from(HEAD);
    let _ = writeln!(page, "\n| label | values | at most |\n|---|---|---|");
    for (name, values, letter, most) in LABELS {
        let most = match (letter, most) {
            (letter, most) if letter == most => most.to_owned(),
            (letter, most) => format!("{letter}: {most}"),
        };
        let _ = writeln!(page, "| `{name}` | {values} | {most} |");
    }
    for (name, values, letter) in OWN_LABELS {
        let most = if letter == "F" { "F: one of each source, about 30" } else { letter };
        let _ = writeln!(page, "| `{name}` | {values} | {most} |");
    }
    let _ = write!(
        page,
        "\nNames of workloads and cgroups are chosen by others: they are escaped, cut to {} bytes (the last 17 of a longer one \
         are `~` and a hash\nof all of it), and of more than {MAX_WORKLOADS} workloads the worst have series; \
         `{PREFIX}_workloads_omitted` says how many have none. Counters of\nsingle workloads are told where the configuration \
         has `metrics.workload_counters`, {} series of them, those of the worst workloads first. No label is a\nprocess id. Pairs of nodes have series where \
         something moved between them: of all the kernel side has room for 16 for each workload, on average.\n",
        label::LONGEST,
        workloads::MAX_COUNTERS
    );
    for section in sections::sections() {
        let _ = writeln!(page, "\n## {}\n\nSource: {}\n", section.title, section.source);
        let _ = writeln!(
            page,
            "| metric | type | labels | unit | meaning | series at most |\n|---|---|---|---|---|---|"
        );
        for family in section.families {
            let kind = match family.kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
                Kind::Histogram => "histogram",
            };
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(
                page,
                "| `{PREFIX}_{}` | {kind} | {} | {} | {} | {} |",
                family.name,
                if labels.is_empty() { "-".to_owned() } else { labels.join(", ") },
                unit(family.name),
                family.help,
                series_at_most(family),
            );
        }
    }
    page
}

#[test]
fn the_reference_is_that_of_the_registry() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let page = page();
    if env::var_os("UPDATE_METRICS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let published = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == page,
        "docs/metrics.md is not that of the metrics; write it anew with\n    \
         UPDATE_METRICS=1 cargo test -p enforcer --lib metrics"
    );
}

#[test]
fn names_follow_the_conventions() {
    for family in sections::all() {
        let counter = family.kind == Kind::Counter;
        assert_eq!(family.name.ends_with("_total"), counter, "{}", family.name);
        assert!(family.help.ends_with('.') && !family.help.contains('|'), "{}", family.name);
        // A source may be added to, but nothing is there twice.
        let same = sections::all().filter(|other| other.name == family.name).count();
        assert_eq!(same, 1, "{}", family.name);
    }
}
