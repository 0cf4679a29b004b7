//! Whether what claims may take fits what the node has for pods, by the settings of the kubelet.
//!
//! The node's allocatable amounts are those that the kubelet derives from its settings: of CPUs and memory
//! what `kubeReserved` and `systemReserved` leave (`reservedSystemCPUs` instead of the CPUs of both), of
//! memory also without the threshold of the hard eviction and without huge pages.

use std::collections::BTreeMap;

use enforcer_core::{
    dra::{AccountingFinding, AccountingMode, ClaimCapacity, ClaimSupply, NodeTotals, accounting_findings},
    owner::Kubelet,
    policy::{DraSettings, Policy},
};
use enforcer_host::HostRoot;
use enforcer_report::{checks::Check, units};
use enforcer_runtime::kubelet::settings::{self, KubeletReservations};
use numa_placement::{Inventory, MemoryResource};
use numa_topology::{quantity, set::CpuSet, sysfs::read_topology};

const NAME: &str = "dra-accounting";

/// Advice where nothing can be compared.
const COMPARE: &str = "docs/dra.md, \"How CPUs are kept apart\", has what to compare";

pub(super) fn check(host: &HostRoot, policy: &Policy) -> Check {
    let kubelet = match settings::find(host, &policy.kubelet) {
        Ok(kubelet) => kubelet,
        Err(none) => return Check::absent(NAME, none.to_string(), COMPARE),
    };
    let machine = match read_topology(host) {
        Ok((machine, _)) => machine,
        Err(error) => return Check::missing(NAME, error.to_string(), COMPARE),
    };
    let files = settings::read_files(host, &kubelet);
    let settings = settings::effective(Ok(&kubelet), Some(&files), None, None);
    if !files.is_complete() {
        let reasons = settings.inexact.iter().map(|one| format!("{}: {}", one.source, one.reason));
        let reasons: Vec<String> = reasons.collect();
        let detail = format!("the settings of the kubelet are not all known: {}", reasons.join("; "));
        return Check::degraded(NAME, detail, COMPARE);
    }
    let (inventory, _unfit) = Inventory::or_whole(machine, &policy.placement);
    let is_static = settings.profile.cpu_policy == Kubelet::STATIC_CPUS;
    compared(&policy.dra, &inventory, &settings.reservations, is_static)
}

/// Compares the budgets of claims with what a kubelet keeps back, whose CPU manager may be static.
fn compared(
    dra: &DraSettings,
    inventory: &Inventory,
    kept_back: &KubeletReservations,
    is_static: bool,
) -> Check {
    let supply = ClaimSupply::new(inventory, &dra.budgets(), &CpuSet::new());
    let amounts = match NodeAmounts::new(inventory, kept_back) {
        Ok(amounts) => amounts,
        Err(unread) => return Check::degraded(NAME, unread, COMPARE),
    };
    let node = NodeTotals { capacity: &amounts.capacity, allocatable: &amounts.allocatable };
    let findings = accounting_findings(dra.accounting, &supply, &node);
    let mut lines: Vec<String> = findings.iter().map(line).collect();
    lines.extend(not_kept_back(dra, kept_back));
    if is_static && dra.accounting == AccountingMode::Mirrored {
        lines.push(
            "the CPU manager of the kubelet is static: it gives pods that repeat their claims CPUs of its own, and \
             those of the claims stay unused"
                .to_owned(),
        );
    }
    if lines.is_empty() {
        let cpus: u64 = supply.nodes().iter().map(|budget| budget.capacity.cpus).sum();
        return Check::ok(NAME, format!("claims may take {} at most", units::count(cpus, "CPU")));
    }
    let advice = if is_static && dra.accounting == AccountingMode::Mirrored {
        "with a static CPU manager, set dra.accounting to dedicated (docs/dra.md)"
    } else if dra.accounting == AccountingMode::Dedicated {
        "--reserved-cpus of the kubelet has to name all of dra.dedicated_cpus, beside those of the system; \
         dra.reserve_memory leaves memory to others"
    } else {
        "lower dra.exclusive_percent, raise dra.reserve_memory, or have the kubelet keep back less"
    };
    Check::degraded(NAME, lines.join("; "), advice)
}

fn line(finding: &AccountingFinding) -> String {
    let AccountingFinding { resource, published, room, effect } = finding;
    let shown = |amount: u64| match (resource.as_str(), amount % 1000) {
        ("cpu", 0) => (amount / 1000).to_string(),
        ("cpu", _) => format!("{amount}m"),
        _ => units::bytes(amount),
    };
    format!("{resource}: {} for claims, {} for them on the node: {effect}", shown(*published), shown(*room))
}

/// Dedicated CPUs that a static CPU manager may give to pods.
fn not_kept_back(dra: &DraSettings, kept_back: &KubeletReservations) -> Option<String> {
    let dedicated = dra.dedicated_cpus.as_ref().filter(|_| dra.accounting == AccountingMode::Dedicated)?;
    let open = dedicated.difference(kept_back.cpus.as_ref()?);
    (!open.is_empty())
        .then(|| format!("CPUs {open} of dra.dedicated_cpus are not among the kubelet's reserved ones"))
}

/// Amounts of the node by resource: thousandths of a CPU, bytes.
struct NodeAmounts {
    capacity: BTreeMap<String, u64>,
    allocatable: BTreeMap<String, u64>,
}

impl NodeAmounts {
    /// # Errors
    /// A setting of the kubelet that cannot be read.
    fn new(inventory: &Inventory, kept_back: &KubeletReservations) -> Result<Self, String> {
        let mut capacity = BTreeMap::from([("cpu".to_owned(), thousandths(&inventory.layout.all()))]);
        let mut hugepages = 0_u64;
        for (resource, bytes) in inventory.nodes.iter().flat_map(|node| &node.total) {
            let name = match resource {
                MemoryResource::Memory => ClaimCapacity::Memory,
                MemoryResource::Hugepages(size) => {
                    hugepages = hugepages.saturating_add(*bytes);
                    ClaimCapacity::Hugepages(*size)
                }
            };
            let sum = capacity.entry(name.node_resource().unwrap_or_default()).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        let memory = capacity.get("memory").copied().unwrap_or(0);
        let mut allocatable = capacity.clone();
        let mut leave = |resource: &str, taken: u64| {
            if let Some(amount) = allocatable.get_mut(resource) {
                *amount = amount.saturating_sub(taken);
            }
        };
        let cpus = match &kept_back.cpus {
            Some(cpus) => thousandths(cpus),
            None => reserved(kept_back, "cpu", quantity::milli_cpus)?,
        };
        leave("cpu", cpus);
        let eviction = kept_back.eviction_memory.as_deref().map_or(Ok(0), |text| threshold(text, memory))?;
        let taken = reserved(kept_back, "memory", quantity::whole)?.saturating_add(eviction);
        leave("memory", taken.saturating_add(hugepages));
        Ok(Self { capacity, allocatable })
    }
}

fn thousandths(cpus: &CpuSet) -> u64 {
    u64::try_from(cpus.len()).unwrap_or(u64::MAX).saturating_mul(1000)
}

/// What `kubeReserved` and `systemReserved` keep back together.
fn reserved(
    kept_back: &KubeletReservations,
    resource: &str,
    read: impl Fn(&str) -> Option<u64>,
) -> Result<u64, String> {
    let mut sum = 0_u64;
    for (setting, amounts) in [("kubeReserved", &kept_back.kube), ("systemReserved", &kept_back.system)] {
        let Some(text) = amounts.get(resource) else { continue };
        let amount = read(text).ok_or_else(|| unread(&format!("{setting}.{resource}"), text))?;
        sum = sum.saturating_add(amount);
    }
    Ok(sum)
}

/// The threshold of the hard eviction: an amount, or whole percent of the memory.
fn threshold(text: &str, memory: u64) -> Result<u64, String> {
    let amount = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<u64>().ok().map(|percent| (memory / 100).saturating_mul(percent)),
        None => quantity::whole(text),
    };
    amount.ok_or_else(|| unread("evictionHard.memory.available", text))
}

fn unread(setting: &str, text: &str) -> String {
    format!("{setting} of the kubelet cannot be read: {}", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use enforcer_report::checks::Status;
    use numa_placement::settings::PlacementSettings;
    use numa_topology::synth::Machine;

    use super::*;

    fn inventory() -> Inventory {
        let machine = "sockets:2 cores:8 threads:2 memory:16GiB".parse::<Machine>().unwrap();
        Inventory::or_whole(machine.build(), &PlacementSettings::default()).0
    }

    fn amounts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn said(dra: &DraSettings, kept_back: &KubeletReservations) -> (Status, String) {
        let check = compared(dra, &inventory(), kept_back, false);
        (check.status, check.detail)
    }

    #[test]
    fn static_cpu_manager_beside_mirrored_claims_is_told() {
        let nothing = KubeletReservations::default();
        let status = |accounting| {
            let dra = DraSettings { accounting, ..DraSettings::default() };
            compared(&dra, &inventory(), &nothing, true).status
        };
        assert_eq!(status(AccountingMode::Mirrored), Status::Degraded);
        assert_eq!(status(AccountingMode::Mapped), Status::Ok);
    }

    #[test]
    fn claims_that_fit_are_counted() {
        let nothing = KubeletReservations::default();
        let (status, detail) = said(&DraSettings::default(), &nothing);
        assert_eq!((status, detail.as_str()), (Status::Ok, "claims may take 24 CPUs at most"));
    }

    #[test]
    fn more_than_pods_may_request_is_told_with_both_amounts() {
        let kept_back = KubeletReservations {
            kube: amounts(&[("cpu", "8500m"), ("memory", "1Gi")]),
            system: amounts(&[("cpu", "1")]),
            eviction_memory: Some("1%".into()),
            ..KubeletReservations::default()
        };
        let (status, detail) = said(&DraSettings::default(), &kept_back);
        assert_eq!(status, Status::Degraded);
        assert!(detail.contains("cpu: 24 for claims, 22500m for them on the node"), "{detail}");
        assert!(detail.contains("memory: 32 GiB for claims, 30.7 GiB for them on the node"), "{detail}");
        let left = DraSettings {
            reserve_memory: "1GiB".parse().unwrap(),
            exclusive_percent: 50,
            ..DraSettings::default()
        };
        assert_eq!(said(&left, &kept_back).0, Status::Ok);
    }

    #[test]
    fn dedicated_cpus_are_those_that_the_kubelet_keeps_back() {
        let of = |cpus: &str| Some(cpus.parse::<CpuSet>().unwrap());
        let kept_back = |cpus: &str| KubeletReservations { cpus: of(cpus), ..KubeletReservations::default() };
        let accounting = AccountingMode::Dedicated;
        let dra = DraSettings { accounting, dedicated_cpus: of("4-7"), ..DraSettings::default() };
        assert_eq!(said(&dra, &kept_back("0,4-7")).0, Status::Ok);
        let (status, detail) = said(&dra, &kept_back("0,4-5"));
        assert_eq!(status, Status::Degraded);
        assert!(detail.contains("cpu: 4 for claims, 3 for them on the node"), "{detail}");
        assert!(detail.contains("CPUs 6-7 of dra.dedicated_cpus are not among"), "{detail}");
    }

    #[test]
    fn amounts_that_cannot_be_read_are_named() {
        let kube =
            KubeletReservations { kube: amounts(&[("cpu", "much")]), ..KubeletReservations::default() };
        let percent =
            KubeletReservations { eviction_memory: Some("x%".into()), ..KubeletReservations::default() };
        for (kept_back, setting) in [(kube, "kubeReserved.cpu"), (percent, "evictionHard.memory.available")] {
            let (status, detail) = said(&DraSettings::default(), &kept_back);
            assert_eq!(status, Status::Degraded);
            assert!(detail.starts_with(setting), "{detail}");
        }
    }
}
