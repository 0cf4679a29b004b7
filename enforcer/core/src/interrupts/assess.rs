//! What was handled where between two readings, and the findings about it.
//!
//! Counts are compared only of the same interrupt: the number of one that is gone is given again.

use std::collections::BTreeMap;

use numa_topology::{
    id::{CpuId, NodeId},
    set::CpuSet,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Interrupt, InterruptChange, InterruptClient, InterruptHistory, InterruptInputs, InterruptTable,
    decide_interrupts,
};
use crate::{
    finding::{Evidence, Finding, Rule, Severity},
    words::count,
    workload::{CgroupPath, printable},
};

/// Interrupts that are named of one workload, and in a remedy.
const NAMED: usize = 8;
/// Rate per second from which interrupts on exclusive CPUs, or on another node, are a warning.
const WARNING_RATE: f64 = 1.0;

/// Interrupts handled on the exclusive CPUs of one workload, or away from the user of their device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterruptsOfWorkload {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Seconds between the two readings; `None` if the counts are since boot.
    pub seconds: Option<f64>,
    /// On its exclusive CPUs, of devices of others: one line each, the most frequent first.
    pub on_exclusive: Vec<String>,
    /// Of its own devices, on CPUs of other nodes.
    pub remote: Vec<String>,
    /// Of its own devices, on CPUs of its nodes.
    pub local: Vec<String>,
}

/// Where interrupts were handled.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InterruptAssessment {
    /// Findings, in the order of workloads.
    pub findings: Vec<Finding>,
    /// Interrupts of devices between the two readings, by node of the CPU.
    pub by_node: BTreeMap<NodeId, u64>,
    /// Of these, those on exclusive CPUs of a workload that does not use the device.
    pub on_exclusive: BTreeMap<NodeId, u64>,
    /// By workload; without those that no interrupt concerns.
    pub workloads: Vec<InterruptsOfWorkload>,
}

/// Counts of one interrupt on some CPUs.
struct Hit<'a> {
    interrupt: &'a Interrupt,
    cpus: CpuSet,
    count: u64,
}

/// Compares the table of `inputs` with the one `before`. `irqbalance` is its process, if it runs.
pub fn assess_interrupts(
    inputs: &InterruptInputs<'_>,
    before: Option<&InterruptTable>,
    history: &InterruptHistory,
    irqbalance: Option<u32>,
) -> InterruptAssessment {
    let counts = new_counts(inputs.table, before);
    let node_of = inputs.machine.node_of_cpu();
    let seconds = before.map(|before| seconds_between(before, inputs.table));
    let changes = decide_interrupts(inputs);
    let mut found = InterruptAssessment::default();
    if before.is_some() {
        for (interrupt, counts) in &counts {
            let foreign = foreign_cpus(interrupt, inputs.clients);
            for (cpu, count) in counts {
                let Some(node) = node_of.get(cpu) else { continue };
                *found.by_node.entry(*node).or_default() += count;
                if foreign.contains(*cpu) {
                    *found.on_exclusive.entry(*node).or_default() += count;
                }
            }
        }
    }
    for client in inputs.clients {
        let is_own =
            |one: &Interrupt| one.device.as_ref().is_some_and(|device| client.devices.contains(device));
        let own_cpus = inputs.machine.cpus_of(&client.nodes);
        let (mut foreign, mut remote, mut local) = (Vec::new(), Vec::new(), Vec::new());
        for (interrupt, counts) in &counts {
            if is_own(interrupt) {
                remote.extend(hit(interrupt, counts, |cpu| !own_cpus.contains(cpu)));
                local.extend(hit(interrupt, counts, |cpu| own_cpus.contains(cpu)));
            } else if !interrupt.may_be_of(client) {
                foreign.extend(hit(interrupt, counts, |cpu| client.exclusive.contains(cpu)));
            }
        }
        // Since boot: what may still come there is left.
        if before.is_none() {
            foreign.retain(|hit| may_be_on(hit.interrupt, &client.exclusive));
            remote.retain(|hit| !is_within(hit.interrupt, &own_cpus));
        }
        let Some(cgroup) = &client.cgroup else { continue };
        for hits in [&mut foreign, &mut remote, &mut local] {
            hits.sort_by(|a, b| b.count.cmp(&a.count).then(a.interrupt.number.cmp(&b.interrupt.number)));
        }
        let words = Words { seconds, changes: &changes, history, irqbalance, client, cgroup };
        found.findings.extend(words.exclusive(&foreign));
        if !client.nodes.is_empty() {
            found.findings.extend(words.remote(&remote));
        }
        if foreign.is_empty() && remote.is_empty() && local.is_empty() {
            continue;
        }
        let lines = |hits: &[Hit<'_>]| hits.iter().take(NAMED).map(|hit| words.line(hit)).collect();
        found.workloads.push(InterruptsOfWorkload {
            cgroup: cgroup.clone(),
            seconds,
            on_exclusive: lines(&foreign),
            remote: lines(&remote),
            local: lines(&local),
        });
    }
    found
}

type CountsByInterrupt<'a> = Vec<(&'a Interrupt, Vec<(CpuId, u64)>)>;

/// Counts since the reading before; since boot without one. Interrupts of each CPU are left out.
fn new_counts<'a>(now: &'a InterruptTable, before: Option<&InterruptTable>) -> CountsByInterrupt<'a> {
    let earlier: BTreeMap<u32, &Interrupt> =
        before.into_iter().flat_map(|table| &table.interrupts).map(|one| (one.number, one)).collect();
    let since = |one: &'a Interrupt| {
        let was = earlier.get(&one.number).filter(|was| was.identity == one.identity);
        let was: BTreeMap<CpuId, u64> = was.iter().flat_map(|was| was.counts.iter().copied()).collect();
        // The counts of a CPU that was offline are those since boot: the file had no column of it.
        let counted = before.and_then(|table| table.cpus.as_ref());
        let known = one.counts.iter().filter(|(cpu, _)| counted.is_none_or(|cpus| cpus.contains(*cpu)));
        let counts = known.map(|(cpu, count)| {
            let was = was.get(cpu).copied().unwrap_or(0);
            // A driver that is loaded again counts from 0.
            (*cpu, if *count < was { *count } else { count - was })
        });
        (one, counts.filter(|(_, count)| *count > 0).collect())
    };
    now.interrupts.iter().filter(|one| !one.is_of_each_cpu()).map(since).collect()
}

fn seconds_between(before: &InterruptTable, now: &InterruptTable) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "seconds between two turns")]
    let ns = now.read_ns.saturating_sub(before.read_ns).max(1) as f64;
    ns / 1e9
}

fn hit<'a>(one: &'a Interrupt, counts: &[(CpuId, u64)], is_there: impl Fn(CpuId) -> bool) -> Option<Hit<'a>> {
    let there = || counts.iter().filter(|(cpu, _)| is_there(*cpu));
    let count = there().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    let cpus = there().map(|(cpu, _)| *cpu).collect();
    (count > 0).then_some(Hit { interrupt: one, cpus, count })
}

/// Exclusive CPUs of workloads that do not use the device; several may share exclusive ones.
fn foreign_cpus(interrupt: &Interrupt, clients: &[InterruptClient]) -> CpuSet {
    let (mut own, mut others) = (CpuSet::new(), CpuSet::new());
    for client in clients {
        if interrupt.may_be_of(client) { &mut own } else { &mut others }.extend(&client.exclusive);
    }
    others.difference(&own)
}

/// CPUs that it is sent to, as far as they are known.
fn sent_to(interrupt: &Interrupt) -> Option<&CpuSet> {
    interrupt.effective.as_ref().filter(|cpus| !cpus.is_empty()).or(interrupt.affinity.as_ref())
}

fn may_be_on(interrupt: &Interrupt, cpus: &CpuSet) -> bool {
    sent_to(interrupt).is_none_or(|sent| !sent.is_disjoint(cpus))
}

fn is_within(interrupt: &Interrupt, cpus: &CpuSet) -> bool {
    sent_to(interrupt).is_some_and(|sent| sent.is_subset(cpus))
}

/// What the findings about one workload are written from.
struct Words<'a> {
    seconds: Option<f64>,
    changes: &'a [InterruptChange],
    history: &'a InterruptHistory,
    irqbalance: Option<u32>,
    client: &'a InterruptClient,
    cgroup: &'a CgroupPath,
}

impl Words<'_> {
    fn exclusive(&self, hits: &[Hit<'_>]) -> Option<Finding> {
        let summary = format!("{} handled on its exclusive CPUs {}", verb(hits.len()), self.client.exclusive);
        let impact = "each interrupt stops the thread on that CPU, for some microseconds with the work that follows it, and \
                      takes part of its caches";
        self.finding(Rule::ExclusiveCpuInterrupts, hits, &summary, impact)
    }

    fn remote(&self, hits: &[Hit<'_>]) -> Option<Finding> {
        let summary = format!("{} of its devices handled on other nodes than its own", verb(hits.len()));
        let impact = "what the device delivers is in caches and memory of another node first, and crosses the interconnect \
                      on its way to the workload";
        self.finding(Rule::RemoteInterrupts, hits, &summary, impact)
    }

    fn finding(&self, rule: Rule, hits: &[Hit<'_>], summary: &str, impact: &str) -> Option<Finding> {
        if hits.is_empty() {
            return None;
        }
        let total = hits.iter().fold(0u64, |sum, hit| sum.saturating_add(hit.count));
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = self.seconds.map(|seconds| total as f64 / seconds);
        let rate_words = rate.map_or_else(String::new, |rate| format!(", {rate:.0} per second"));
        let severity = match rate {
            Some(rate) if rate >= WARNING_RATE => Severity::Warning,
            _ => Severity::Info,
        };
        let (remedy, obstacle) = match self.remedy(hits) {
            Ok(remedy) => (Some(remedy), None),
            Err(obstacle) => (None, Some(obstacle)),
        };
        let evidence = hits.iter().take(NAMED).flat_map(|hit| self.evidence(hit)).collect();
        Some(Finding {
            id: format!("{rule}:{}", self.cgroup),
            rule,
            severity,
            object: self.cgroup.clone(),
            summary: format!("{summary}{rate_words}"),
            evidence,
            impact: impact.to_owned(),
            remedy,
            obstacle,
        })
    }

    /// `24 (eth0-TxRx-0): 700 on CPU 2 in 10 s`.
    fn line(&self, hit: &Hit<'_>) -> String {
        let Hit { interrupt, cpus, count } = hit;
        let name = printable(&interrupt.name);
        let since =
            self.seconds.map_or_else(|| "since boot".to_owned(), |seconds| format!("in {seconds:.0} s"));
        format!("interrupt {} ({name}): {count} on CPU {cpus} {since}", interrupt.number)
    }

    fn evidence(&self, hit: &Hit<'_>) -> Vec<Evidence> {
        let number = hit.interrupt.number;
        let counted = Evidence { source: format!("/proc/interrupts {number}"), value: self.line(hit) };
        let affinity = hit.interrupt.affinity.as_ref().map(|cpus| Evidence {
            source: format!("/proc/irq/{number}/smp_affinity_list"),
            value: cpus.to_string(),
        });
        std::iter::once(counted).chain(affinity).collect()
    }

    /// Commands that move the interrupts, or why none does.
    fn remedy(&self, hits: &[Hit<'_>]) -> Result<String, String> {
        if let Some(pid) = self.irqbalance {
            return Err(format!(
                "irqbalance (process {pid}) distributes interrupts and would undo it: ban the CPUs there \
                 (IRQBALANCE_BANNED_CPULIST={} in its environment), or stop it",
                self.client.exclusive
            ));
        }
        let change = |hit: &Hit<'_>| self.changes.iter().find(|one| one.number == hit.interrupt.number);
        let kept = hits.iter().find_map(|hit| self.history.refusal(hit.interrupt.number));
        let writable = hits.iter().filter(|hit| self.history.refusal(hit.interrupt.number).is_none());
        let commands: Vec<String> = writable
            .filter_map(change)
            .take(NAMED)
            .map(|change| format!("echo {} > /proc/irq/{}/smp_affinity_list", change.to, change.number))
            .collect();
        if !commands.is_empty() {
            return Ok(commands.join(" && "));
        }
        Err(match kept {
            Some(kept) if kept.is_managed => format!(
                "the kernel manages the CPUs of interrupt {} ({}) and takes no others: isolcpus=managed_irq keeps such ones \
                 off, or fewer queues of its device",
                kept.number, kept.name
            ),
            Some(kept) if kept.is_fixed => format!(
                "the chip or the driver of interrupt {} ({}) lets no program choose its CPUs",
                kept.number, kept.name
            ),
            Some(kept) => format!("interrupt {} ({}): {}", kept.number, kept.name, kept.cause),
            None => {
                "they have other CPUs by now, or no CPU is left for them that no workload has exclusively"
                    .to_owned()
            }
        })
    }
}

fn verb(number: usize) -> String {
    format!("{} {}", count(number, "interrupt"), if number == 1 { "is" } else { "are" })
}
