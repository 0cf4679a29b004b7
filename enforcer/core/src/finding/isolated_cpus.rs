//! Which workloads run on isolated CPUs, and how many of their threads take turns on one.
//!
//! The kernel balances no load between isolated CPUs: a thread stays where it was put, also beside another
//! one that is busy, while the next CPU idles. Busy threads that share such a CPU, of one workload or of
//! several, are a warning; a workload that has a CPU for each of its busy threads is a note, because isolated
//! CPUs are for those that were put there on purpose.

use super::{
    Evidence, Finding, Rule, Severity,
    subject::{Subject, Words},
};
use crate::{
    id::CpuId,
    model::{ThreadsOnCpu, isolated_cpus},
    sample::TaskSample,
    set::CpuSet,
    words::count,
    workload::Workload,
};

/// Threads and workloads that are named; the rest is counted.
const NAMED: usize = 3;

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let own = &subject.figures.on_isolated_cpus;
    let on: CpuSet = own.keys().copied().collect();
    let (_, first) = own.first_key_value()?;
    let threads = own.values().fold(0, |sum, here| sum + here.threads);
    let crowded = crowded(subject);
    let runs = format!("{} on isolated {}", verb(threads, "thread", "runs", "run"), cpus(&on));
    let (severity, words) = match crowded {
        None => {
            let quiet = if own.values().all(|here| here.busy == 0) {
                ", none of which is busy"
            } else if first.threads > 1 || own.values().any(|here| here.threads > 1) {
                ", of which at most one on each CPU is busy"
            } else {
                ", each on a CPU of its own"
            };
            let quiet = if threads == 1 { "" } else { quiet };
            let words = Words {
                summary: format!("{runs}{quiet}"),
                impact: "the kernel balances no load on isolated CPUs: a thread stays on its CPU, and a second busy one \
                         beside it would wait"
                    .to_owned(),
                remedy: Err("nothing has to be done while each busy thread has a CPU".to_owned()),
            };
            (Severity::Info, words)
        }
        Some((cpu, busy)) => {
            let beside = workloads_beside(subject, cpu);
            let with = if beside.is_empty() { String::new() } else { format!(" with {}", beside.join(", ")) };
            let words = Words {
                summary: format!("{runs}, and {busy} busy threads share CPU {cpu}{with}"),
                impact: format!(
                    "the kernel balances no load on isolated CPUs: these threads take turns on CPU {cpu}{}",
                    match idle(subject) {
                        idle if idle.is_empty() => String::new(),
                        idle => format!(" while {} idle", verb_cpus(&idle)),
                    }
                ),
                remedy: remedy(subject, cpu, busy),
            };
            (Severity::Warning, words)
        }
    };
    Some(subject.finding(Rule::IsolatedCpus, severity, words, evidence(subject, crowded.map(|(cpu, _)| cpu))))
}

/// The CPU on which most busy threads are, where these are several, and how many. Of equally crowded CPUs the
/// lowest.
fn crowded(subject: &Subject<'_>) -> Option<(CpuId, u64)> {
    let own = subject.figures.on_isolated_cpus.iter();
    own.filter(|(_, here)| here.busy > 0)
        .map(|(cpu, here)| (*cpu, here.busy + busy_beside(subject, *cpu)))
        .filter(|(_, busy)| *busy > 1)
        .max_by_key(|(cpu, busy)| (*busy, std::cmp::Reverse(*cpu)))
}

/// CPUs that the remedy sends threads to.
pub(super) fn sent_to(subject: &Subject<'_>) -> CpuSet {
    let moves = crowded(subject).map(|(cpu, busy)| moves(subject, cpu, busy));
    moves.into_iter().flatten().map(|(_, to)| to).collect()
}

/// Busy threads of other workloads on a CPU.
fn busy_beside(subject: &Subject<'_>, cpu: CpuId) -> u64 {
    others(subject, cpu).fold(0, |sum, (_, here)| sum + here.busy)
}

fn workloads_beside(subject: &Subject<'_>, cpu: CpuId) -> Vec<String> {
    let busy: Vec<&Workload> =
        others(subject, cpu).filter(|(_, here)| here.busy > 0).map(|(workload, _)| workload).collect();
    let named = busy.iter().take(NAMED).map(|workload| workload.object().clone());
    let more = busy.len().saturating_sub(NAMED);
    named.chain((more > 0).then(|| count(more, "other"))).collect()
}

/// Workloads other than this one that have threads on a CPU.
fn others<'a>(subject: &'a Subject<'_>, cpu: CpuId) -> impl Iterator<Item = (&'a Workload, ThreadsOnCpu)> {
    let all = subject.inputs.workloads.iter().filter(|other| *other != subject.workload);
    all.filter_map(move |other| Some((other, *subject.inputs.model.of(other)?.on_isolated_cpus.get(&cpu)?)))
}

/// Isolated CPUs that it may use.
fn isolated(subject: &Subject<'_>) -> CpuSet {
    let isolated = isolated_cpus(&subject.inventory.machine, subject.sample);
    subject.figures.cpus.as_ref().map_or_else(CpuSet::new, |cpus| cpus.intersection(&isolated))
}

/// Those of them on which no workload is busy, and which no earlier remedy takes.
fn idle(subject: &Subject<'_>) -> CpuSet {
    let may = isolated(subject);
    let has_busy = |cpu: CpuId| {
        let own = subject.figures.on_isolated_cpus.get(&cpu).is_some_and(|here| here.busy > 0);
        own || busy_beside(subject, cpu) > 0
    };
    may.difference(subject.earlier.isolated()).iter().filter(|cpu| !has_busy(*cpu)).collect()
}

/// Threads of this workload on a CPU, those with most CPU time first.
fn threads_on<'a>(subject: &Subject<'a>, cpu: CpuId) -> Vec<&'a TaskSample> {
    let mut on: Vec<&TaskSample> = subject.threads.of(subject.workload);
    on.retain(|task| task.cpu == Some(cpu));
    on.sort_by_key(|task| (std::cmp::Reverse(task.cpu_time_ns), task.tid));
    on
}

/// Busy threads of a CPU, each with an idle isolated one that the workload may use.
fn moves<'a>(subject: &Subject<'a>, cpu: CpuId, busy: u64) -> Vec<(&'a TaskSample, CpuId)> {
    let on = threads_on(subject, cpu);
    let own = subject.figures.on_isolated_cpus.get(&cpu).map_or(0, |here| here.busy);
    // One stays, where no other workload has the CPU.
    let leave = usize::try_from(if busy == own { own - 1 } else { own }).unwrap_or(usize::MAX);
    let moves = on.iter().rev().skip(on.len().saturating_sub(usize::try_from(own).unwrap_or(usize::MAX)));
    moves.take(leave).copied().zip(idle(subject).iter()).collect()
}

/// Spreads the busy threads of a CPU over idle isolated ones that the workload may use.
fn remedy(subject: &Subject<'_>, cpu: CpuId, busy: u64) -> Result<String, String> {
    let moves = moves(subject, cpu, busy).into_iter();
    let commands: Vec<String> = moves.map(|(task, to)| format!("taskset -pc {to} {}", task.tid)).collect();
    if commands.is_empty() {
        let may = isolated(subject);
        return Err(format!(
            "no other isolated CPU that it may use is idle: of these it may use {}; give it more of them or CPUs \
             that are not isolated, or run fewer busy threads",
            cpus(&may)
        ));
    }
    Ok(commands.join(" && "))
}

fn evidence(subject: &Subject<'_>, crowded: Option<CpuId>) -> Vec<Evidence> {
    let counted = subject.figures.on_isolated_cpus.iter().map(|(cpu, here)| Evidence {
        source: format!("threads last seen on isolated CPU {cpu}"),
        value: format!("{}, {} busy", here.threads, here.busy),
    });
    let named =
        crowded.into_iter().flat_map(|cpu| threads_on(subject, cpu)).take(NAMED).map(|task| Evidence {
            source: format!("/proc/{}/task/{}/status Cpus_allowed_list", task.pid, task.tid),
            value: task.cpus_allowed.as_ref().map_or_else(|| "not known".to_owned(), ToString::to_string),
        });
    counted.take(CPUS_NAMED).chain(named).chain(subject.cpuset_evidence()).collect()
}

/// Isolated CPUs of which the threads are in the evidence.
const CPUS_NAMED: usize = 8;

fn cpus(cpus: &CpuSet) -> String {
    format!("{} {cpus}", if cpus.len() == 1 { "CPU" } else { "CPUs" })
}

fn verb_cpus(idle: &CpuSet) -> String {
    format!("{} {}", cpus(idle), if idle.len() == 1 { "is" } else { "are" })
}

fn verb(number: u64, one: &str, single: &str, several: &str) -> String {
    let words = count(usize::try_from(number).unwrap_or(usize::MAX), one);
    format!("{words} {}", if number == 1 { single } else { several })
}

#[cfg(test)]
mod tests {
    use crate::{
        finding::{Finding, Rule, Severity},
        partition::{Partition, PartitionState},
        scene::Scene,
        topology::synth::Machine,
    };

    /// CPUs 0-3 on node 0, 4-7 on node 1.
    fn host(isolated: &str) -> Scene {
        Scene::new(Machine::new().sockets(2).threads(1).isolated(isolated).build())
    }

    fn found(scene: &Scene) -> Vec<Finding> {
        scene.findings().into_iter().filter(|one| one.rule == Rule::IsolatedCpus).collect()
    }

    #[test]
    fn busy_threads_that_share_an_isolated_cpu_are_a_warning() {
        let scene = host("2-5")
            .workload("/dpdk", "2-5", "0")
            .thread("/dpdk", 11, "2-5", 2, (0, 9000))
            .thread("/dpdk", 12, "2-5", 2, (0, 5000))
            .thread("/dpdk", 13, "2-5", 2, (0, 1));
        let one = &found(&scene)[..];
        let [one] = one else { panic!("{one:?}") };
        assert_eq!(one.severity, Severity::Warning);
        assert_eq!(one.summary, "3 threads run on isolated CPU 2, and 2 busy threads share CPU 2");
        assert!(one.impact.ends_with("take turns on CPU 2 while CPUs 3-5 are idle"), "{}", one.impact);
        assert_eq!(one.remedy.as_deref(), Some("taskset -pc 3 12"));
        assert_eq!(one.evidence[0].value, "3, 2 busy");
    }

    #[test]
    fn threads_of_two_workloads_on_one_isolated_cpu_name_each_other() {
        let scene = host("6-7")
            .workload("/a", "6", "1")
            .workload("/b", "6-7", "1")
            .thread("/a", 11, "6", 6, (0, 4000))
            .thread("/b", 12, "6", 6, (0, 4000));
        let all = found(&scene);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].summary.ends_with("2 busy threads share CPU 6 with /b"), "{}", all[0].summary);
        let obstacle = all[0].obstacle.as_ref().unwrap();
        assert!(obstacle.contains("of these it may use CPU 6; give it more of them or"), "{obstacle}");
        assert_eq!(all[1].remedy.as_deref(), Some("taskset -pc 7 12"));
    }

    #[test]
    fn obstacle_names_no_cpu_that_is_not_isolated_and_idle_threads_are_no_busy_ones() {
        let sleeping = host("1").workload("/a", "0-1", "0").thread("/a", 11, "1", 1, (0, 0)).thread(
            "/a",
            12,
            "1",
            1,
            (0, 0),
        );
        let all = found(&sleeping);
        assert_eq!(all[0].summary, "2 threads run on isolated CPU 1, none of which is busy");
        let busy = host("1").workload("/a", "0-1", "0").thread("/a", 11, "1", 1, (0, 4000)).thread(
            "/a",
            12,
            "1",
            1,
            (0, 4000),
        );
        let obstacle = found(&busy)[0].obstacle.clone().unwrap();
        assert!(obstacle.contains("it may use CPU 1; give it"), "{obstacle}");
    }

    #[test]
    fn threads_of_two_workloads_are_not_sent_to_one_idle_cpu() {
        let scene = host("6-7")
            .workload("/a", "6-7", "1")
            .workload("/b", "6-7", "1")
            .thread("/a", 11, "6", 6, (0, 4000))
            .thread("/b", 12, "6", 6, (0, 4000));
        let all = found(&scene);
        assert_eq!(all[0].remedy.as_deref(), Some("taskset -pc 7 11"));
        assert_eq!(all[1].remedy, None, "{:?}", all[1]);
    }

    #[test]
    fn workload_with_a_cpu_for_each_busy_thread_is_a_note_and_others_are_none() {
        let scene = host("2-5")
            .workload("/poll", "2-3", "0")
            .workload("/web", "0-1", "0")
            .thread("/poll", 11, "2", 2, (0, 9000))
            .thread("/poll", 12, "3", 3, (0, 9000))
            .thread("/poll", 13, "2-3", 3, (0, 10))
            .thread("/web", 21, "0-1", 0, (0, 9000))
            .thread("/web", 22, "0-1", 0, (0, 9000));
        let all = found(&scene);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0].severity, Severity::Info);
        let says = "3 threads run on isolated CPUs 2-3, of which at most one on each CPU is busy";
        assert_eq!(all[0].summary, says);
        assert!(found(&host("")).is_empty());
    }

    #[test]
    fn cpus_of_an_isolated_partition_and_machines_of_one_node_count_too() {
        let mut scene = host("")
            .workload("/part", "4-5", "1")
            .thread("/part", 11, "4-5", 4, (0, 9000))
            .thread("/part", 12, "4-5", 4, (0, 9000));
        scene.now_mut("/part").partition = Some(PartitionState { kind: Partition::Root, invalid: None });
        assert!(found(&scene).is_empty(), "a root partition is balanced");
        scene.now_mut("/part").partition = Some(PartitionState { kind: Partition::Isolated, invalid: None });
        assert_eq!(found(&scene).len(), 1);
        let one = Scene::new(Machine::new().isolated("1").threads(1).build())
            .workload("/rt", "1", "0")
            .thread("/rt", 11, "1", 1, (0, 9000))
            .thread("/rt", 12, "1", 1, (0, 9000));
        assert_eq!(one.findings().len(), 1);
        assert_eq!(found(&one)[0].severity, Severity::Warning);
    }
}
