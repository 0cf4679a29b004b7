//! Workloads on isolated CPUs, and busy threads that share such a CPU.
//!
//! The kernel balances no load between isolated CPUs: a thread stays where it was put, even on a CPU with
//! another busy thread, while the next CPU idles. Busy threads that share such a CPU, of one workload or of
//! several, are a warning. A workload with a CPU for each of its busy threads is a note, because isolated
//! CPUs are for threads that were put there on purpose.

use std::cmp::Reverse;

use super::{
    Evidence, Finding, Rule, Severity,
    subject::{FindingWords, Subject},
};
use crate::{
    model::{ThreadsOnCpu, isolated_cpus},
    sample::TaskSample,
    words::count,
    workload::Workload,
};
use numa_topology::{id::CpuId, set::CpuSet};

/// Limit of named threads and workloads; the rest is counted.
const NAMED: usize = 3;

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let own = &subject.figures.on_isolated_cpus;
    let on: CpuSet = own.keys().copied().collect();
    own.first_key_value()?;
    let threads = own.values().fold(0, |sum, here| sum + here.threads);
    let crowded = crowded(subject);
    let busy = own.values().fold(0, |sum, here| sum + here.busy);
    let runs = format!("{} on isolated {}", verb(threads, "thread", "runs", "run"), cpus(&on));
    let words = match crowded.first() {
        None => {
            let quiet = match busy {
                _ if threads == 1 => "",
                0 => ", none of which is busy",
                _ if own.values().all(|here| here.threads == 1) => ", each on a CPU of its own",
                _ => ", of which at most one on each CPU is busy",
            };
            let words = FindingWords {
                summary: format!("{runs}{quiet}"),
                impact:
                    "nothing has to be done while each busy thread has a CPU; the kernel balances no load on \
                         isolated CPUs, so that a second busy thread beside another would wait"
                        .to_owned(),
                remedy: Err(String::new()),
            };
            // There is no obstacle, because there is nothing to do.
            let note = subject.finding(Rule::IsolatedCpus, Severity::Info, words, evidence(subject, None));
            return Some(Finding { obstacle: None, ..note });
        }
        Some(&(cpu, busy)) => {
            let beside = workloads_beside(subject, cpu);
            let remedy = remedy(subject, &crowded);
            let with = if beside.is_empty() { String::new() } else { format!(" with {}", beside.join(", ")) };
            FindingWords {
                summary: format!("{runs}, and {busy} busy threads share CPU {cpu}{with}"),
                impact: format!(
                    "the kernel balances no load on isolated CPUs: these threads take turns on CPU {cpu}{}{}",
                    match idle(subject) {
                        idle if idle.is_empty() => String::new(),
                        idle => format!(" while {} idle", verb_cpus(&idle)),
                    },
                    if remedy.is_ok() {
                        "; the remedy replaces the CPUs that a thread has set itself"
                    } else {
                        ""
                    }
                ),
                remedy,
            }
        }
    };
    let evidence = evidence(subject, crowded.first().map(|(cpu, _)| *cpu));
    Some(subject.finding(Rule::IsolatedCpus, Severity::Warning, words, evidence))
}

/// CPUs with several busy threads, at least one of this workload, and their numbers: the most crowded first,
/// of equally crowded ones the lowest.
fn crowded(subject: &Subject<'_>) -> Vec<(CpuId, u64)> {
    let own = subject.figures.on_isolated_cpus.iter().filter(|(_, here)| here.busy > 0);
    let busy = own.map(|(cpu, here)| (*cpu, here.busy + busy_beside(subject, *cpu)));
    let mut crowded: Vec<_> = busy.filter(|(_, busy)| *busy > 1).collect();
    crowded.sort_by_key(|(cpu, busy)| (Reverse(*busy), *cpu));
    crowded
}

/// CPUs that the remedy sends threads to.
pub(super) fn sent_to(subject: &Subject<'_>) -> CpuSet {
    moves(subject, &crowded(subject)).into_iter().map(|(_, to)| to).collect()
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

/// Isolated CPUs that the workload may use and that are idle: no busy thread of its own, no thread of another
/// workload, not taken by an earlier remedy, and not pinned by a cgroup that shares none of the CPUs of its
/// threads.
fn idle(subject: &Subject<'_>) -> CpuSet {
    let is_used = |cpu: CpuId| {
        let own = subject.figures.on_isolated_cpus.get(&cpu).is_some_and(|here| here.busy > 0);
        own || others(subject, cpu).next().is_some()
    };
    let (may, _) = may_use(subject);
    let pins = subject.earlier.pins_beside(&subject.workload.cgroup, &CpuSet::new());
    let on: CpuSet = subject.figures.on_isolated_cpus.keys().copied().collect();
    let apart = pins.values().filter(|pin| pin.cpus.is_disjoint(&on));
    let pinned = apart.fold(CpuSet::new(), |all, pin| all.union(&pin.cpus));
    let free = may.difference(subject.earlier.isolated()).difference(&pinned);
    free.iter().filter(|cpu| !is_used(*cpu)).collect()
}

/// The isolated CPUs that it may use, and the others.
fn may_use(subject: &Subject<'_>) -> (CpuSet, CpuSet) {
    let isolated = isolated_cpus(&subject.inventory.machine, subject.sample);
    let may = subject.figures.cpus.clone().unwrap_or_default();
    (may.intersection(&isolated), may.difference(&isolated))
}

/// Threads of this workload on a CPU, those with the most busy time first.
fn threads_on<'a>(subject: &Subject<'a>, cpu: CpuId) -> Vec<&'a TaskSample> {
    let mut on: Vec<&TaskSample> = subject.threads.of(subject.workload);
    on.retain(|task| task.cpu == Some(cpu));
    let busy = &subject.figures.busy_on_isolated_cpus;
    on.sort_by_key(|task| (Reverse(busy.get(&task.tid).copied()), task.tid));
    on
}

/// Busy threads of crowded CPUs that must leave, those with the least busy time first.
fn leaving<'a>(subject: &Subject<'a>, crowded: &[(CpuId, u64)]) -> Vec<&'a TaskSample> {
    let of_cpu = |(cpu, busy): &(CpuId, u64)| {
        let mut own = threads_on(subject, *cpu);
        own.retain(|task| subject.figures.busy_on_isolated_cpus.contains_key(&task.tid));
        // One stays, if no other workload is busy there.
        let stays = usize::from(u64::try_from(own.len()).is_ok_and(|own| own == *busy));
        own.into_iter().skip(stays).rev()
    };
    crowded.iter().flat_map(of_cpu).collect()
}

/// These threads, each with an idle isolated CPU that the workload may use, on the thread's node: on another
/// node the kernel would leave it there for good, away from its memory.
fn moves<'a>(subject: &Subject<'a>, crowded: &[(CpuId, u64)]) -> Vec<(&'a TaskSample, CpuId)> {
    let machine = &subject.inventory.machine;
    let mut idle = idle(subject);
    let to_idle = |task: &'a TaskSample| {
        let beside = machine.cpus_of(&machine.nodes_of(&CpuSet::from_iter([task.cpu?])));
        let to = idle.intersection(&beside).first()?;
        idle.remove(to);
        Some((task, to))
    };
    leaving(subject, crowded).into_iter().filter_map(to_idle).collect()
}

/// Spreads the busy threads of crowded CPUs over idle isolated ones that the workload may use.
fn remedy(subject: &Subject<'_>, crowded: &[(CpuId, u64)]) -> Result<String, String> {
    let moves = moves(subject, crowded).into_iter();
    let commands: Vec<String> = moves.map(|(task, to)| format!("taskset -pc {to} {}", task.tid)).collect();
    if !commands.is_empty() {
        return Ok(commands.join(" && "));
    }
    let (isolated, others) = may_use(subject);
    let far = match idle(subject) {
        idle if idle.is_empty() => String::new(),
        idle => format!(" on the node of these threads ({} on another)", verb_cpus(&idle)),
    };
    let few = format!(
        "no other isolated CPU that it may use is idle{far}: of these it may use {}; give it more of them or CPUs \
         that are not isolated, or run fewer busy threads",
        cpus(&isolated)
    );
    let leaving = leaving(subject, crowded);
    let Some(first) = leaving.first().filter(|_| !others.is_empty()) else { return Err(few) };
    let command = format!("taskset -pc {others} {}", first.tid);
    Err(format!("{few}; a thread that needs no isolated CPU may run on {}: {command}", cpus(&others)))
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

/// Isolated CPUs with threads in the evidence.
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
    };
    use numa_topology::synth::Machine;

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
        let turns = "take turns on CPU 2 while CPUs 3-5 are idle; the remedy replaces the CPUs that a thread has set itself";
        assert!(one.impact.ends_with(turns), "{}", one.impact);
        assert_eq!(one.remedy.as_deref(), Some("taskset -pc 3 12"));
        assert_eq!(one.evidence[0].value, "3, 2 busy");
    }

    #[test]
    fn threads_are_sent_to_no_other_node_and_to_no_cpu_of_another_workload() {
        // CPU 5 is idle beside the threads, CPU 2 is on the other node.
        let crowded = |scene: Scene| {
            scene.workload("/dpdk", "0-7", "1").thread("/dpdk", 11, "6", 6, (0, 9000)).thread(
                "/dpdk",
                12,
                "6",
                6,
                (0, 5000),
            )
        };
        let remedy = |scene: &Scene| {
            let all = found(scene);
            let one = all.iter().find(|one| one.object.as_str() == "/dpdk").cloned();
            let one = one.unwrap();
            one.remedy.ok_or_else(|| one.obstacle.unwrap())
        };
        assert_eq!(remedy(&crowded(host("2,5-6"))).as_deref(), Ok("taskset -pc 5 12"));
        let far = remedy(&crowded(host("2,6"))).unwrap_err();
        let words = "no other isolated CPU that it may use is idle on the node of these threads (CPU 2 is on another)";
        assert!(far.starts_with(words), "{far}");
        // CPU 5 is that of a workload that sleeps, CPU 7 that of a thread that sleeps.
        let taken = crowded(host("5-7")).workload("/other", "5", "1").workload("/rest", "4-7", "1").thread(
            "/rest",
            21,
            "7",
            7,
            (0, 0),
        );
        assert!(remedy(&taken).unwrap_err().starts_with("no other isolated CPU that it may use is idle: "));
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
        let few = "no other isolated CPU that it may use is idle: of these it may use CPU 6; give it more of them or CPUs \
                   that are not isolated, or run fewer busy threads";
        assert_eq!(all[0].obstacle.as_deref(), Some(few));
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
    fn threads_that_are_busy_now_are_sent_and_not_those_that_were_once() {
        // Two old threads that idle now, and two new ones that are busy; the same on another CPU.
        let scene = host("2-7")
            .workload("/dpdk", "2-7", "0-1")
            .thread("/dpdk", 11, "2-7", 2, (7_200_000, 7_200_000))
            .thread("/dpdk", 12, "2-7", 2, (3_600_000, 3_600_010))
            .thread("/dpdk", 13, "2-7", 2, (0, 9000))
            .thread("/dpdk", 14, "2-7", 2, (0, 800))
            .thread("/dpdk", 21, "2-7", 4, (900_000, 900_000))
            .thread("/dpdk", 22, "2-7", 4, (10, 5000))
            .thread("/dpdk", 23, "2-7", 4, (10, 6000));
        let all = found(&scene);
        assert_eq!(all[0].remedy.as_deref(), Some("taskset -pc 3 14 && taskset -pc 5 22"));
        assert!(all[0].evidence.iter().any(|one| one.source.starts_with("/proc/13/")), "{:?}", all[0]);
    }

    #[test]
    fn an_obstacle_names_isolated_cpus_and_the_way_to_others() {
        // One node, CPU 1 of 0-1 is isolated: its threads have pinned themselves to it.
        let host = |threads: &[(u32, u64)]| {
            let mut scene = Scene::new(Machine::new().cores(2).isolated("1").threads(1).build());
            scene = scene.workload("/rt", "0-1", "0");
            for (tid, ms) in threads {
                scene = scene.thread("/rt", *tid, "1", 1, (0, *ms));
            }
            found(&scene).swap_remove(0)
        };
        let busy = host(&[(11, 9000), (12, 4000)]);
        assert_eq!((busy.severity, &busy.remedy), (Severity::Warning, &None));
        let way = "; a thread that needs no isolated CPU may run on CPU 0: taskset -pc 0 12";
        assert!(busy.obstacle.as_ref().unwrap().ends_with(way), "{busy:?}");
        let idle = host(&[(11, 0), (12, 0)]);
        assert_eq!(idle.summary, "2 threads run on isolated CPU 1, none of which is busy");
        assert_eq!((idle.severity, &idle.remedy, &idle.obstacle), (Severity::Info, &None, &None));
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
        assert_eq!((&all[0].remedy, &all[0].obstacle), (&None, &None), "nothing has to be done");
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
