//! The table: the first row that fits a workload names its owner.
//!
//! | row | fits | owner |
//! |---|---|---|
//! | 1 | the kubelet gave the container exclusive CPUs | its CPU manager |
//! | 2 | the kubelet gave it memory nodes | its memory manager |
//! | 3 | its pod carries the mark of another controller | that controller |
//! | 4 | a virtual machine of libvirt | libvirt |
//! | 5 | not of a pod, in a cgroup that a [controller of jobs or instances](super::controlled) made | it |
//! | 6 | the files of its unit, or of the service that its container is in, name CPUs or nodes | systemd |
//! | 7 | a pod, and the kubelet's state cannot be used | unknown |
//! | 8 | the daemon's own container, or one of its pod | the daemon itself, which does not write it |
//! | 9 | the daemon placed it at creation | this daemon |
//! | 10 | a pod under a static CPU manager | its shared pool |
//! | 11 | the configuration declares it | this daemon |
//! | 12 | everything else | none |

use super::{Claim, KnownContainer, Kubelet, Owner, Ownership, OwnershipFacts, controlled::controller_of};
use crate::workload::{Origin, Workload, printable_within};
use numa_topology::set::CpuSet;

/// Maximum length of evidence in characters: the authors of pods choose names and annotations.
const EVIDENCE_LIMIT: usize = 300;

/// Workload that the table is applied to.
pub(crate) struct OwnershipSubject<'a> {
    pub(crate) workload: &'a Workload,
    /// CPUs in its cpuset now.
    pub(crate) cpus: Option<&'a CpuSet>,
    /// Did the daemon place it at creation?
    pub(crate) placed: bool,
    /// Does a rule of the configuration select it for correction?
    pub(crate) declared: bool,
}

/// The first matching row of the table.
pub(crate) fn owner_of(subject: &OwnershipSubject<'_>, facts: &OwnershipFacts) -> Ownership {
    let OwnershipSubject { workload, cpus, placed, declared } = subject;
    let found = match &workload.origin {
        Origin::Pod { pod_uid, container_id, .. } => {
            let known = container_id.as_ref().and_then(|id| facts.containers.get(id));
            of_pod(facts, pod_uid, known, *cpus, *placed)
        }
        Origin::VirtualMachine { domain } => {
            Some(Ownership::of(Owner::Libvirt, format!("virtual machine {domain} in {}", workload.cgroup)))
        }
        _ => controller_of(&workload.cgroup, facts.lxc.as_ref()).or_else(|| {
            let setting = facts.unit(workload.settled_by_unit()?)?;
            Some(Ownership::of(Owner::Systemd, format!("{}: {}", setting.file, setting.line)))
        }),
    };
    let mut ownership = found.unwrap_or_else(|| {
        if facts.is_daemons(workload) {
            // In a private cgroup namespace the daemon cannot write its own root cgroup (`nsdelegate`).
            Ownership::of(Owner::DaemonItself, "the daemon runs in this container or in its pod")
        } else if *placed {
            Ownership::of(Owner::NumaEnforcer, "placed when it was created")
        } else if *declared {
            Ownership::of(Owner::NumaEnforcer, "declared in the configuration")
        } else {
            Ownership::of(Owner::Unowned, "")
        }
    });
    ownership.evidence = printable_within(&ownership.evidence, EVIDENCE_LIMIT);
    ownership
}

fn of_pod(
    facts: &OwnershipFacts,
    pod_uid: &str,
    known: Option<&KnownContainer>,
    cpus: Option<&CpuSet>,
    placed: bool,
) -> Option<Ownership> {
    let kubelet = &facts.kubelet;
    let given = match known {
        Some(known) => of_claims(kubelet.of_container(known)),
        // The runtime reported the pod's containers and this is none of them: it is the sandbox.
        None if facts.containers.values().any(|known| known.pod_uid == pod_uid) => None,
        None => of_nameless(kubelet, pod_uid, cpus),
    };
    if given.is_some() {
        return given;
    }
    if let Some(marked) = known.and_then(|known| facts.marked(known)) {
        return Some(marked);
    }
    if let Some(reason) = &kubelet.unread {
        return Some(Ownership::of(Owner::Unknown, reason.clone()));
    }
    if placed || !kubelet.is_static() {
        return None;
    }
    let shared =
        kubelet.shared_cpus.as_ref().map_or_else(String::new, |cpus| format!(", shared CPUs {cpus}"));
    Some(Ownership::of(Owner::KubeletSharedPool, format!("policy of the CPU manager: static{shared}")))
}

/// Owner by the first claim that has CPUs; memory nodes come from the first claim that has memory.
fn of_claims<'a>(claims: impl Iterator<Item = &'a Claim>) -> Option<Ownership> {
    let mut first: (Option<&Claim>, Option<&Claim>) = (None, None);
    for claim in claims {
        first.0 = first.0.or(Some(claim).filter(|claim| !claim.cpus.is_empty()));
        first.1 = first.1.or(Some(claim).filter(|claim| !claim.memory.is_empty()));
    }
    let cpus = first.0.map(|claim| claim.cpus.clone());
    let mems = first.1.map(Claim::mems);
    let (owner, claim, what) = match (first, &cpus, &mems) {
        ((Some(claim), _), Some(cpus), _) => (Owner::KubeletCpuManager, claim, format!("CPUs {cpus}")),
        ((None, Some(claim)), _, Some(mems)) => {
            (Owner::KubeletMemoryManager, claim, format!("memory nodes {mems}"))
        }
        _ => return None,
    };
    let target =
        claim.container.as_ref().map_or_else(|| "its pod".to_owned(), |name| format!("container {name}"));
    let evidence = format!("{}: {what} for {target}", claim.source);
    Some(Ownership { owner, evidence, cpus, mems })
}

/// Owner of a container that the runtime has not reported by name: the claim of its pod with the same CPUs,
/// else any claim of its pod.
fn of_nameless(kubelet: &Kubelet, pod_uid: &str, cpus: Option<&CpuSet>) -> Option<Ownership> {
    let mut claims = kubelet.of_pod(pod_uid).peekable();
    claims.peek()?;
    let same = kubelet.of_pod(pod_uid).find(|claim| Some(&claim.cpus) == cpus);
    if let Some(same) = same {
        let name = same.container.as_ref();
        return of_claims(kubelet.of_pod(pod_uid).filter(|claim| claim.container.as_ref() == name));
    }
    let one = of_claims(claims)?;
    let evidence = format!("{}; which container of its pod this is, is not known", one.evidence);
    Some(Ownership::of(one.owner, evidence))
}

/// Owner of a container that is about to be created, if it is another controller. `asked` are the CPUs in the
/// creation request, `whole` the number of exclusive CPUs that its resource request amounts to.
///
/// A kubelet with a static CPU manager sends CPUs with every container, also those of the shared pool. A
/// container has exclusive CPUs if it requests whole CPUs and comes with exactly as many. The request
/// decides, because the last read of the kubelet's state is older than the container.
///
/// If that state cannot be used, the owner is unknown, and CPUs that look exclusive count as the container's
/// own.
pub fn given_at_creation(
    facts: &OwnershipFacts,
    known: &KnownContainer,
    asked: Option<&CpuSet>,
    whole: Option<u64>,
) -> Option<Ownership> {
    let kubelet = &facts.kubelet;
    let listed = of_claims(kubelet.of_container(known));
    let exclusive = asked.filter(|cpus| whole == Some(cpus.len() as u64));
    let in_request = || {
        let cpus = exclusive.filter(|_| kubelet.is_static())?;
        let evidence = format!("CPUs {cpus} came with the container");
        Some(Ownership { cpus: Some(cpus.clone()), ..Ownership::of(Owner::KubeletCpuManager, evidence) })
    };
    let unknown = || {
        let reason = kubelet.unread.clone()?;
        Some(Ownership { cpus: exclusive.cloned(), ..Ownership::of(Owner::Unknown, reason) })
    };
    let found = listed.or_else(in_request).or_else(|| facts.marked(known)).or_else(unknown)?;
    Some(Ownership { evidence: printable_within(&found.evidence, EVIDENCE_LIMIT), ..found })
}
