//! `docs/metrics.md` is written from the same families that the registry is made of, and this test holds it
//! to them: `UPDATE_METRICS=1 cargo test -p enforcer-report --lib metrics` writes it anew.

use std::{collections::BTreeSet, env, fmt::Write as _, fs, path::Path};

use enforcer_core::call_times::BOUNDS;

use super::{
    MAX_WORKLOADS, PREFIX,
    family::{Family, FamilyKind},
    label, sections, workloads,
};

const HEAD: &str = "\
# Metrics

`numa-enforcer run` serves these at `/metrics`, in the text format of Prometheus. Everything is as of the latest turn: a
scrape reads nothing from the host, and what is gone leaves no series behind. What is not known has no series; it is never 0.
`numa-enforcer scheduler serve` has [its own](#the-scheduler).

This page is generated from the program (`UPDATE_METRICS=1 cargo test -p enforcer-report --lib metrics`), and a test holds it to that.

## Where else they are

`numa-enforcer audit -o prometheus --write FILE` writes what a single look tells (the machine, workloads, findings) for the
textfile collector of node_exporter. Alerts, recording rules and dashboards are in deploy/prometheus and deploy/grafana.

## What is called otherwise elsewhere

| a name that one may look for | here |
|---|---|
| `..._container_*` with namespace, pod and container on every series | `workload_*` by `workload`, because most workloads have no pod; join `workload_info` for the names, the cgroup, the owner and the policy |
| one remote ratio | two, which are never mixed: `workload_remote_residency_ratio`, where pages are, and `workload_remote_traffic_ratio`, what is accessed |
| access samples by pair of nodes | `memory_accesses_total` by node of the CPU, local or remote: the counters of a CPU do not tell which remote node it was |
| `..._aligned` by dimension | `workload_aligned`, the verdict on it; what is wrong with it is in the findings of `/report.json`, under `audit` |
| migrated bytes by pair of nodes | `page_moves_total` and `other_page_moves_total` by cause, in pages, which the kernel counts whatever moves them |
| rebalance decisions and reverts | `rebalance_moves_total` by `outcome` |
| errors of enforcement by operation | `actions_total` by `action` and `result` |
| success and duration of collectors | `degraded` by `feature`, and `tick_duration_seconds` of all of them together |
| entries and capacity of eBPF maps, lost events | `kernel_side_*_watched` and `_room`; `kernel_side_lost_total` |
| turns, as everything else calls them | `ticks_total`, `tick_errors_total`, `tick_duration_seconds`: named before, and kept because alerts and dashboards read them |
| time of the last publication of a NodeResourceTopology, and an alert that it is stale (`NrtPublishStale`) | not there: this daemon publishes no NodeResourceTopology objects, so there is nothing that could become stale |

## Labels
";

/// Labels that others choose the values of: what they are, and how many there are at most, by the letter of
/// the tables below.
const LABELS: [(&str, &str, &str, &str); 10] = [
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
    (
        "policy",
        "policy by which it has its place, as in the configuration; empty where it has none",
        "1",
        "1",
    ),
    ("numa_node", "NUMA node; `node` is a machine in Kubernetes", "N", "NUMA nodes of the host"),
    ("src_numa", "NUMA node where something comes from", "N", "NUMA nodes of the host"),
    ("dst_numa", "NUMA node where something goes to", "N", "NUMA nodes of the host"),
    ("program", "eBPF program, by its name", "P", "programs that are loaded, about 20"),
];

/// Labels with values of the program's own making, of which there are few.
const OWN_LABELS: [(&str, &str, &str); 3] = [
    (
        "feature",
        "source that is missing, without its object: `cgroup` of `cgroup:/a`; [the runbook](runbook.md#numaenforcerdegraded) has all",
        "F",
    ),
    ("version", "version of the program", "1"),
    ("commit", "first digits of the commit of a release; empty in other builds", "1"),
];

/// Labels with listed values, and their meaning.
const LISTED: [(&str, &str); 25] = [
    ("qos", "of pods"),
    ("memory", "as the CPU sees it"),
    ("source", "what it is known from"),
    ("kind", "what was allocated, or which sign of pressure it was"),
    ("result", "what became of it"),
    ("reason", "why it is in no counter, or why no memory node was added"),
    ("stage", "in time, or late"),
    ("quantile", "of all that was measured"),
    (
        "cause",
        "why pages moved, what is not scanned, why a process was killed, which kind of pages made room, or why a call has no answer",
    ),
    ("by", "this daemon, or the kernel's threads and cgroups that are no workloads"),
    ("file", "of a cpuset"),
    ("scope", "a memory policy of a task, or of a range of addresses"),
    ("mode", "of a memory policy"),
    ("step", "of a task: moved, swapped for another one, or not to be moved"),
    ("severity", "of a finding"),
    ("owner", "the controller that owns a cpuset; empty where no owner was looked for"),
    ("call", "of the container runtime"),
    ("action", "a step of a plan"),
    ("direction", "to slower memory, or back"),
    ("backend", "what moves cold pages down"),
    ("outcome", "what became of a move or a prediction, or what a node answers"),
    ("verb", "of the protocol between kube-scheduler and its extenders"),
    ("end", "of a bind call, or of a change of a gated pod"),
    ("state", "what a published state is worth, or the stage of a gated pod"),
    ("collection", "of the API server"),
];

/// Every list of values that a label has in some family, once.
fn lists(label: &str) -> Vec<&'static [&'static str]> {
    let mut lists: Vec<_> = sections::every().filter_map(|family| family.values_of(label)).collect();
    lists.sort_unstable();
    lists.dedup();
    lists
}

fn quoted(values: &[&str]) -> String {
    values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
}

fn bound(family: &Family, name: &str) -> String {
    if let Some(values) = family.values_of(name) {
        // Of a workload one at a time is alive.
        return if family.name.contains("traffic") { "1".into() } else { values.len().to_string() };
    }
    let known = LABELS.iter().map(|(name, _, bound, _)| (*name, *bound));
    let own = OWN_LABELS.iter().map(|(name, _, bound)| (*name, *bound));
    let found = known.chain(own).find(|(label, _)| *label == name);
    found.unwrap_or_else(|| panic!("{name} is not described")).1.to_owned()
}

fn series_at_most(family: &Family) -> String {
    if family.kind == FamilyKind::Histogram {
        // Each bound, all calls, their number and their sum.
        let each = (BOUNDS.len() + 3).to_string();
        let factors = family.labels.iter().map(|label| bound(family, label));
        return factors.chain([each]).collect::<Vec<_>>().join(" x ");
    }
    // Of what only describes there is one for each that is described.
    let counts = |name: &&str| !family.name.ends_with("_info") || *name == "workload";
    let factors = family.labels.iter().copied().filter(counts).map(|label| bound(family, label));
    let factors: Vec<_> = factors.filter(|factor| !matches!(factor.as_str(), "" | "1")).collect();
    if factors.is_empty() { "1".into() } else { factors.join(" x ") }
}

/// Meaning of a family, with the values of labels that have other values elsewhere.
fn meaning(family: &Family) -> String {
    let elsewhere = family.values.iter().filter(|(label, _)| lists(label).len() > 1);
    elsewhere.fold(family.help.to_owned(), |text, (label, values)| {
        format!("{text} `{label}`: {}.", quoted(values))
    })
}

fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    let of = [
        ("_bytes", "bytes"),
        ("_seconds", "seconds"),
        ("_ratio", "0 to 1"),
        ("_pages", "pages"),
        ("_page_allocations", "pages"),
        ("page_moves", "pages"),
        ("_distance", "SLIT, 10 is local"),
        ("_instructions", "instructions"),
        ("_accesses", "accesses"),
        ("_aligned", "0 or 1"),
        ("_successful", "0 or 1"),
        ("enforcing", "0 or 1"),
        ("paused", "0 or 1"),
        ("nri_up", "0 or 1"),
        ("scheduler_ready", "0 or 1"),
        ("scheduler_leads", "0 or 1"),
        ("scheduler_degraded", "0 or 1"),
        ("gate_active", "0 or 1"),
        ("certificates_unusable", "0 or 1"),
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
    for (name, words) in LISTED {
        let lists = lists(name);
        let values = match lists.as_slice() {
            [] => panic!("{name} is of no metric"),
            [values] => quoted(values),
            _ => "as listed with each metric".to_owned(),
        };
        let most = lists.iter().map(|values| values.len()).max().unwrap_or_default();
        let _ = writeln!(page, "| `{name}` | {values}: {words} | {most} |");
    }
    for (name, values, letter) in OWN_LABELS {
        let most = if letter == "F" { "F: one of each source, about 50" } else { letter };
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
    for section in sections::sections().into_iter().chain([sections::of_scheduler()]) {
        let _ = writeln!(page, "\n## {}\n\nSource: {}\n", section.title, section.source);
        let _ = writeln!(
            page,
            "| metric | type | labels | unit | meaning | series at most |\n|---|---|---|---|---|---|"
        );
        for family in section.families {
            let kind = match family.kind {
                FamilyKind::Gauge => "gauge",
                FamilyKind::Counter => "counter",
                FamilyKind::Histogram => "histogram",
            };
            let _ = writeln!(
                page,
                "| `{PREFIX}_{}` | {kind} | {} | {} | {} | {} |",
                family.name,
                if family.labels.is_empty() { "-".to_owned() } else { quoted(&family.labels) },
                unit(family.name),
                meaning(family),
                series_at_most(family),
            );
        }
    }
    page
}

#[test]
fn the_reference_is_that_of_the_registry() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = page();
    if env::var_os("UPDATE_METRICS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let published = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == page,
        "docs/metrics.md is not that of the metrics; write it anew with\n    \
         UPDATE_METRICS=1 cargo test -p enforcer-report --lib metrics"
    );
}

#[test]
fn every_label_is_described_once() {
    let described = LABELS.iter().map(|(name, ..)| *name).chain(OWN_LABELS.iter().map(|(name, ..)| *name));
    let mut described: Vec<_> = described.chain(LISTED.iter().map(|(name, _)| *name)).collect();
    described.sort_unstable();
    let used: BTreeSet<_> = sections::every().flat_map(|family| family.labels.iter().copied()).collect();
    assert_eq!(described, used.into_iter().collect::<Vec<_>>());
}

#[test]
fn names_follow_the_conventions() {
    for family in sections::every() {
        let counter = family.kind == FamilyKind::Counter;
        assert_eq!(family.name.ends_with("_total"), counter, "{}", family.name);
        assert!(family.help.ends_with('.') && !family.help.contains('|'), "{}", family.name);
        // A source may be added to, but nothing is there twice.
        let same = sections::every().filter(|other| other.name == family.name).count();
        assert_eq!(same, 1, "{}", family.name);
    }
}
