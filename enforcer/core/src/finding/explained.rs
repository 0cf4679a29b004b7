//! Meaning of each rule, for a reader with only its code: what it checks, why it matters, what to do.
//!
//! General on purpose: the figures, the files and the command of one case are in its finding. The same words
//! are shown by `audit --explain`, beside the findings of the page, and as the rules of a SARIF log.

use std::str::FromStr;

use strum::VariantArray;
use thiserror::Error;

use super::Rule;
use crate::named::Named as _;

/// Words for a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleWords {
    /// Title in a few words.
    pub title: &'static str,
    /// Condition of the rule, with its severity.
    pub when: &'static str,
    /// Cost of the fault.
    pub why: &'static str,
    /// General remedy.
    pub remedy: &'static str,
}

/// A code without a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no rule has the code `{0}`; there are {1}")]
pub struct UnknownRule(String, String);

impl Rule {
    /// Every rule, in order.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Code of the rule, as in the ids of findings: `remote-residency`.
    pub fn code(self) -> &'static str {
        self.name()
    }

    /// Words for the rule.
    pub const fn words(self) -> RuleWords {
        match self {
            Self::CpusetMismatch => RuleWords {
                title: "CPUs and memory nodes of a cpuset differ",
                when: "The NUMA nodes of cpuset.cpus and those of cpuset.mems are compared. With none in common, or \
                       with memory of GPUs alone, it is critical; with CPUs on a node with memory that may not be used it is a warning; when a pinned \
                       workload may also allocate where it has no CPU, a note. CPUs of a node without memory have the \
                       nearest that may be had.",
                why: "Pages that are allocated on another node than the CPU that uses them cost a trip over the \
                      interconnect with each access that misses the caches.",
                remedy: "Set cpuset.mems to the nodes of cpuset.cpus, or the CPUs to the nodes of the memory.",
            },
            Self::RemoteResidency => RuleWords {
                title: "Memory is on nodes without CPUs of the workload",
                when: "The share of anonymous memory and page cache that is on nodes where the workload has no CPUs is at \
                       least remote_residency_warning (a warning) or remote_residency_critical (critical), of at least \
                       min_memory.",
                why: "Residency says where pages are, not how often they are used: what it costs depends on the traffic, \
                      which --sample shows.",
                remedy: "Move the pages to the CPUs (migratepages, or a write of cpuset.mems on cgroup v2), or the CPUs to \
                         the pages; look for a memory policy of the program itself first.",
            },
            Self::RemoteTraffic => RuleWords {
                title: "Memory accesses go to another node",
                when: "The share of remote accesses between two looks is at least remote_traffic_warning or \
                       remote_traffic_critical, from at least min_samples observations. An estimate from placement of a \
                       workload that may run on several nodes is never critical.",
                why: "Remote accesses have more latency and share the interconnect with those of other workloads.",
                remedy: "Keep the workload on the node that holds its memory; `plan --rebalance` says where that is worth \
                         its cost.",
            },
            Self::SpansNodes => RuleWords {
                title: "CPUs span nodes for nothing",
                when: "A workload is pinned to CPUs of several nodes although one node would hold all of them: a warning.",
                why: "Its threads share memory across the interconnect, and lines of their caches travel with it.",
                remedy: "Give it as many CPUs of a single node.",
            },
            Self::Drift => RuleWords {
                title: "A declared workload is not in its place",
                when: "What the configuration declares for a workload and what its cgroup shows differ: a warning. That it \
                       cannot be placed, or that its cpuset has another owner, is a note.",
                why: "What was declared for it does not hold until it is corrected.",
                remedy: "Run the daemon in enforce mode, or find the program that writes the cpuset.",
            },
            Self::ThreadAffinity => RuleWords {
                title: "A thread keeps itself away from its memory",
                when: "A thread's own affinity leaves it outside the node that holds at least 80 % of the memory of its \
                       workload, and its hinting faults do not show that it keeps to memory where it runs: a note.",
                why: "All of its accesses to that memory are remote, whatever the cpuset says.",
                remedy: "Change the affinity with taskset, or in the program that sets it.",
            },
            Self::OwnerMismatch => RuleWords {
                title: "A cpuset is not what its owner gave",
                when: "Another program than this daemon owns the cpuset (the kubelet's static managers, koordlet, a DRA \
                       driver), and the cgroup shows another one than the owner's record: a warning.",
                why: "The workload does not get what it was promised, and the owner does not notice by itself.",
                remedy: "Have the owner write it again, mostly by starting the container again; find the program that wrote it.",
            },
            Self::ExclusiveCpuInterrupts => RuleWords {
                title: "Interrupts on exclusive CPUs",
                when: "Interrupts of devices that the workload does not use are handled on CPUs that it alone has: by a grant, \
                       by another controller, or by a [[workload]] entry. From 1 per second between two looks (--sample) a \
                       warning, else a note.",
                why: "Each interrupt stops the thread on that CPU and evicts part of its caches: the tail of its latencies \
                      grows.",
                remedy: "Set interrupts.mode to enforce, or write other CPUs to smp_affinity_list; with irqbalance, ban \
                         the CPUs there.",
            },
            Self::RemoteInterrupts => RuleWords {
                title: "Interrupts of a workload's devices on other nodes",
                when: "Interrupts of devices that an entry declares for the workload, or that are in its network namespace, \
                       are handled on CPUs of other nodes. From 1 per second between two looks (--sample) a warning, else a \
                       note.",
                why: "What the device delivers is touched on another node first, and crosses the interconnect to the \
                      workload.",
                remedy: "Set interrupts.mode to enforce, or write CPUs of the workload's nodes to smp_affinity_list.",
            },
            Self::IsolatedCpus => RuleWords {
                title: "Threads on isolated CPUs",
                when: "A workload runs on isolated CPUs (isolcpus=, or a partition of the kind isolated). Busy threads that \
                       share one of them are a warning; a CPU for each busy thread is a note. Busy is a thread that used \
                       1 % of the time between two looks (--sample), without that one with a second of CPU time.",
                why: "The kernel balances no load on isolated CPUs: threads take turns on one while the next one idles.",
                remedy: "Pin each busy thread to an isolated CPU of its own with taskset, or give the workload CPUs that \
                         are not isolated.",
            },
            Self::ShortNodes => RuleWords {
                title: "The memory nodes of a workload are nearly full, and others are not",
                when: "Each ordinary node that the workload may use has less available memory than \
                       memory.widening.widen_percent, and a node that it may not use has at least \
                       rebalance.enough_above: a warning; critical once tasks have to reclaim there themselves.",
                why: "Memory outside of its nodes does not help a workload: the kernel reclaims and swaps on the full ones, and \
                      then its OOM killer acts.",
                remedy: "Move a neighbour that may run elsewhere, or let the workload use another node: the daemon does so by \
                         itself for declared workloads (memory.widening).",
            },
        }
    }
}

impl FromStr for Rule {
    type Err = UnknownRule;

    /// Parses a code, or the id of a finding, which begins with one.
    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        let code = text.split_once(':').map_or(text, |(code, _)| code);
        Self::ALL.iter().copied().find(|rule| rule.code() == code).ok_or_else(|| {
            let codes: Vec<&str> = Self::ALL.iter().map(|rule| rule.code()).collect();
            UnknownRule(code.to_owned(), codes.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_found_by_its_code_and_by_an_id() {
        for &rule in Rule::ALL {
            assert_eq!(rule.code().parse(), Ok(rule));
            assert_eq!(format!("{rule}:/a:b").parse(), Ok(rule));
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.code(), "the code is the one of JSON");
            let RuleWords { title, when, why, remedy } = rule.words();
            assert!(!title.ends_with('.') && [when, why, remedy].iter().all(|text| text.ends_with('.')));
        }
        let error = "remote".parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains("`remote`") && error.contains("remote-residency, remote-traffic"), "{error}");
    }
}
