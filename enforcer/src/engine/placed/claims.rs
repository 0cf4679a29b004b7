//! Prepared resource claims, and the containers that name them.
//!
//! Problem: the DRA driver decides which CPUs a claim has, and a container that is being made has to get them
//! without a wait for the driver. Idea: the driver hands over its whole ledger with each change, and it
//! counts from that moment for every placement. A container keeps the names of its claims, so that a change
//! of these changes the container.
//!
//! Invariants: CPUs of a claim are exclusive to it before the kubelet is told that it is prepared, and no
//! container without the claim has them exclusively. What a container names is a hint; the ledger decides
//! ([`binding`](enforcer_core::dra::binding)).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use enforcer_core::{
    dra::{
        ClaimLedger, ClaimSupply, ClaimUid, PreparedClaim,
        binding::{ContainerHints, ContainerPlace, bind},
    },
    hosted::{Announced, Containers, cpus_of_claims, hold_resource_claims},
    owner::{KnownContainer, Owner},
    workload::printable_within,
};
use numa_placement::{Allocations, Grant, Holder, Inventory};
use numa_topology::set::CpuSet;
use tokio::sync::watch;

use super::{Ledger, SharedLedger, claim_limits::RuntimeLimits};
use crate::dra::ClaimPlaces;
use enforcer_report::{
    claims::{ClaimCallTotals, ClaimedNodeReport, ClaimsReport},
    runtime::RuntimeLink,
};

/// Longest list of names of claims that is shown, in characters.
const LONGEST_NAMES: usize = 300;

/// Prepared claims, and which container has which.
#[derive(Debug, Default)]
pub(in crate::engine) struct HeldClaims {
    /// Claims and what they may have; `None` without a driver.
    held: Option<(ClaimLedger, ClaimSupply)>,
    /// Containers that name claims, by id.
    naming: BTreeMap<String, NamingContainer>,
    /// Shares of remote memory accesses of the containers of claims, by the latest turn.
    pub(super) remote_accesses: BTreeMap<ClaimUid, f64>,
    /// What turns have corrected of the containers of claims since it was told, the latest for each.
    pub(super) corrections: BTreeMap<ClaimUid, String>,
    /// Number of names that were no prepared claim of the container's pod.
    pub(in crate::engine) spoofed: u64,
    /// The machine, exclusive CPUs of others and the link to the runtime when a change was reported last.
    reported: Option<(u64, CpuSet, bool)>,
    /// Number of changes of the supply.
    changes: watch::Sender<u64>,
}

/// A container that names claims.
#[derive(Debug)]
struct NamingContainer {
    pod_uid: String,
    named: BTreeSet<ClaimUid>,
    /// Those of them that are its own.
    claims: Vec<ClaimUid>,
    /// Those that are prepared for other pods; its own may have been added since.
    unconfirmed: Vec<ClaimUid>,
    /// What it has of them.
    place: Option<ContainerPlace>,
    /// What its runtime has for it.
    limits: RuntimeLimits,
}

/// What the claims give a container.
#[derive(Default)]
struct ClaimedContainer {
    claims: Vec<ClaimUid>,
    place: Option<ContainerPlace>,
    /// The same for the placement.
    grant: Option<Grant>,
    /// Claims that are prepared for other pods; its own may have been added since.
    unconfirmed: Vec<ClaimUid>,
}

impl HeldClaims {
    /// What the claims of a container give it.
    pub(in crate::engine) fn place(&self, id: &str) -> Option<&ContainerPlace> {
        self.naming.get(id)?.place.as_ref()
    }

    /// Containers with claims, and these.
    pub(super) fn claiming(&self) -> impl Iterator<Item = (&str, &[ClaimUid])> {
        let naming = self.naming.iter().filter(|(_, naming)| naming.place.is_some());
        naming.map(|(id, naming)| (id.as_str(), naming.claims.as_slice()))
    }

    /// What containers have of their claims, and the limits that their runtimes have for them.
    pub(super) fn limits(&self) -> impl Iterator<Item = (&str, &ContainerPlace, &RuntimeLimits)> {
        let naming = self.naming.iter();
        naming.filter_map(|(id, naming)| Some((id.as_str(), naming.place.as_ref()?, &naming.limits)))
    }

    /// The limits that the runtime has for a container that names claims.
    pub(super) fn limits_mut(&mut self, id: &str) -> Option<&mut RuntimeLimits> {
        Some(&mut self.naming.get_mut(id)?.limits)
    }

    /// Forgets containers that are not among these; returns whether there was one.
    pub(super) fn keep(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let before = self.naming.len();
        self.naming.retain(|id, _| is_there(id));
        self.naming.len() < before
    }

    /// Whether the containers of these cgroups may have CPUs that this holder has: those of a claim that one
    /// of them names.
    pub(super) fn share(&self, own: &BTreeSet<&str>, other: &Holder, containers: &Containers) -> bool {
        let named = |id: &str| self.naming.get(id).map(|naming| &naming.named);
        let of_own = || own.iter().filter_map(|id| named(id)).flatten();
        if other.is_resource_claim() {
            return of_own().any(|claim| *other == Holder::resource_claim(claim.as_str()));
        }
        let theirs = || self.naming.keys().find(|id| containers.holder(id) == Some(other));
        let theirs = other.is_claiming().then(theirs).flatten().and_then(|id| named(id));
        theirs.is_some_and(|theirs| of_own().any(|claim| theirs.contains(claim)))
    }

    /// Notes a container and finds what its claims give it.
    fn note(&mut self, id: &str, pod_uid: &str, named: &BTreeSet<ClaimUid>) -> Option<Grant> {
        if named.is_empty() {
            self.naming.remove(id);
            return None;
        }
        let ClaimedContainer { claims, place, grant, unconfirmed } = self.look_up(id, pod_uid, named);
        if grant.is_none() {
            self.spoofed += 1;
        }
        if !unconfirmed.is_empty() {
            self.count_change();
        }
        let limits = self.naming.remove(id).map(|naming| naming.limits).unwrap_or_default();
        let (pod_uid, named) = (pod_uid.to_owned(), named.clone());
        let naming = NamingContainer { pod_uid, named, claims, unconfirmed, place, limits };
        self.naming.insert(id.to_owned(), naming);
        grant
    }

    /// Whether the driver of this daemon wrote the variable that is the mark of a container, for a claim that
    /// the container may not have, or not yet.
    pub(super) fn has_written_mark(&self, one: &Announced, known: &KnownContainer) -> bool {
        let is_variable = known.claim.as_ref().is_some_and(|mark| mark.owner == Owner::DraDriver);
        let is_held =
            |uid: &ClaimUid| self.held.as_ref().is_some_and(|(ledger, _)| ledger.claim(uid).is_some());
        is_variable && one.named_claims.iter().any(is_held)
    }

    fn count_change(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn look_up(&self, id: &str, pod_uid: &str, named: &BTreeSet<ClaimUid>) -> ClaimedContainer {
        let mut found = ClaimedContainer::default();
        let Some((ledger, supply)) = &self.held else { return found };
        let bound = bind(&ContainerHints { pod_uid, named }, ledger, supply);
        found.unconfirmed = bound.unconfirmed;
        let Some(mut place) = bound.place else { return found };
        // A promise that containers share counts once.
        let counts_elsewhere = |claim: &ClaimUid| {
            let mut others = self.naming.iter().filter(|(other, _)| other.as_str() != id);
            others.any(|(_, other)| {
                other.named.contains(claim) && other.place.as_ref().is_some_and(|one| !one.memory.is_empty())
            })
        };
        if bound.claims.iter().any(counts_elsewhere) {
            let own: BTreeSet<ClaimUid> =
                bound.claims.iter().filter(|claim| !counts_elsewhere(claim)).cloned().collect();
            let hints = ContainerHints { pod_uid, named: &own };
            place.memory = bind(&hints, ledger, supply).place.map(|own| own.memory).unwrap_or_default();
        }
        let names = bound.claims.iter().filter_map(|uid| ledger.claim(uid)).map(PreparedClaim::full_name);
        let names = printable_within(&names.collect::<Vec<_>>().join(", "), LONGEST_NAMES);
        found.grant = Some(place.grant(&names));
        found.place = Some(place);
        found.claims = bound.claims;
        found
    }
}

impl Ledger {
    /// Finds what the claims of a container give it. A container that the kubelet's static managers gave
    /// something stays theirs.
    pub(super) fn bind_claims(&mut self, one: &mut Announced) {
        one.claimed = self.claims.note(&one.id, &one.pod.name.uid, &one.named_claims);
    }

    /// Why the mark of another controller does not keep the daemon from a container, where claims are served.
    /// A container that is left alone and has no CPUs of its own runs on all, those of claims too.
    pub(super) fn why_mark_is_void(&self, known: &KnownContainer) -> Option<String> {
        let mark = known.claim.as_ref().filter(|_| self.claims.held.is_some())?;
        let evidence = &mark.evidence;
        let Some(cpus) = &mark.cpus else { return Some(format!("{evidence} names no CPUs")) };
        if self.roster.facts.excess(known).is_some() {
            return Some(format!("{evidence} names more CPUs than it requests"));
        }
        let reserved = self.terms.inventory.as_ref().map(|inventory| inventory.reserved_cpus.clone());
        let taken = cpus_of_claims(&self.held.allocations).union(&reserved.unwrap_or_default());
        let taken = taken.intersection(cpus);
        (!taken.is_empty()).then(|| format!("{evidence} names the CPUs {taken}, which it may not have"))
    }

    /// The allocations with each exclusive CPU once: what claims have is not repeated by their containers.
    pub(in crate::engine) fn allocations_without_repeats(&self) -> Allocations {
        let mut allocations = self.held.allocations.clone();
        let claiming = self.held.allocations.iter().filter(|(holder, _)| holder.is_claiming());
        for (holder, grant) in claiming {
            allocations.give(holder.clone(), Grant { exclusive: CpuSet::new(), ..grant.clone() });
        }
        allocations
    }

    /// CPUs that containers without claims have exclusively.
    fn exclusive_without_claims(&self) -> CpuSet {
        let others = self.held.allocations.iter();
        let others = others.filter(|(holder, _)| !holder.is_resource_claim() && !holder.is_claiming());
        others.fold(CpuSet::new(), |cpus, (_, grant)| cpus.union(&grant.exclusive))
    }

    /// These containers and their CPUs, by name.
    fn holders_without_claims(&self) -> BTreeMap<String, CpuSet> {
        let names = self.roster.names.iter();
        let names: BTreeMap<&Holder, &str> =
            names.filter_map(|(id, name)| Some((self.held.containers.holder(id)?, name.as_str()))).collect();
        let has_cpus = |(holder, grant): &(&Holder, &Grant)| {
            !holder.is_resource_claim() && !holder.is_claiming() && !grant.exclusive.is_empty()
        };
        let holders = self.held.allocations.iter().filter(has_cpus);
        let named = holders.map(|(holder, grant)| {
            let name = names.get(holder).map_or_else(|| holder.to_string(), |name| (*name).to_owned());
            (name, grant.exclusive.clone())
        });
        named.collect()
    }

    fn has_runtime(&self) -> bool {
        matches!(self.trace.report.link, RuntimeLink::Up { .. })
    }

    fn hold_claims(&mut self, ledger: &ClaimLedger, supply: &ClaimSupply) {
        self.claims.corrections.retain(|uid, _| ledger.claim(uid).is_some());
        self.claims.held = Some((ledger.clone(), supply.clone()));
        self.rebind();
        if let Some(inventory) = &self.terms.inventory {
            hold_resource_claims(inventory, &mut self.held.allocations, ledger.exclusive_grants());
            self.held.mark_changed();
        }
        // Others leave the CPUs, or get them back.
        self.requests.early_turn.request();
    }

    /// Gives each container what its claims have now.
    pub(super) fn rebind(&mut self) {
        let ids: Vec<String> = self.claims.naming.keys().cloned().collect();
        for id in ids {
            let Some(naming) = self.claims.naming.get(&id) else { continue };
            let ClaimedContainer { claims, place, grant, unconfirmed } =
                self.claims.look_up(&id, &naming.pod_uid, &naming.named);
            let is_same = place == naming.place;
            let is_in_doubt = unconfirmed.iter().any(|uid| !naming.unconfirmed.contains(uid));
            if is_in_doubt {
                self.claims.count_change();
            }
            let Some(naming) = self.claims.naming.get_mut(&id) else { continue };
            (naming.claims, naming.unconfirmed) = (claims, unconfirmed);
            if is_same {
                continue;
            }
            let had = std::mem::replace(&mut naming.place, place);
            let Some(holder) = self.held.containers.holder(&id).cloned() else { continue };
            if holder.is_given() {
                continue;
            }
            let grant = grant.unwrap_or_else(|| self.without_claim(had));
            self.run_placement("claims", |known, node| {
                known.hold_claimed(node, &id, holder.name(), None, &grant)
            });
        }
    }

    /// What a running container has after its claims were given up: shared CPUs.
    fn without_claim(&self, had: Option<ContainerPlace>) -> Grant {
        let cpus = self.terms.inventory.as_ref().map(|inventory| inventory.shareable_cpus());
        let place = ContainerPlace { cpus, mems: had.and_then(|had| had.mems), ..ContainerPlace::default() };
        place.grant("given up while it runs")
    }
}

impl SharedLedger {
    /// What claims have, beside these counts of calls.
    pub(in crate::engine) fn claims_report(&self, calls: ClaimCallTotals) -> ClaimsReport {
        let state = self.lock();
        let claims = &state.claims;
        let mut report = ClaimsReport { calls, spoofed: claims.spoofed, ..ClaimsReport::default() };
        let has_place = |(id, naming): &(&String, &NamingContainer)| {
            naming.place.is_some() && !state.held.containers.holder(id).is_some_and(Holder::is_given)
        };
        report.containers = claims.naming.iter().filter(has_place).count();
        let Some((ledger, supply)) = &claims.held else { return report };
        report.claims = ledger.claims().count();
        let taken = state.held.allocations.exclusive_cpus();
        let exclusive = ledger.exclusive_cpus();
        report.nodes = supply
            .nodes()
            .iter()
            .map(|budget| {
                let has = ClaimedNodeReport {
                    exclusive_capacity: budget.capacity.cpus,
                    exclusive_cpus: budget.cpus.intersection(&exclusive).len() as u64,
                    shared_cpus: budget.cpus.difference(&taken).len() as u64,
                    memory_capacity: budget.capacity.memory_bytes,
                    memory_promised: ledger.promised(budget.node).memory_bytes,
                };
                (budget.node, has)
            })
            .collect();
        report
    }

    /// Tells the driver if claims may have other CPUs than it was told, or the link to the runtime has
    /// changed.
    pub(in crate::engine) fn report_supply(&self) {
        let mut state = self.lock();
        if state.terms.inventory.is_none() {
            return;
        }
        let now = Some((state.terms.applied, state.exclusive_without_claims(), state.has_runtime()));
        if state.claims.reported != now {
            state.claims.reported = now;
            state.claims.count_change();
        }
    }
}

impl ClaimPlaces for SharedLedger {
    fn inventory(&self) -> Option<Arc<Inventory>> {
        self.lock().terms.inventory.clone()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.lock().claims.changes.subscribe()
    }

    fn has_runtime(&self) -> bool {
        self.lock().has_runtime()
    }

    fn unconfirmed(&self) -> BTreeSet<ClaimUid> {
        let state = self.lock();
        state.claims.naming.values().flat_map(|naming| naming.unconfirmed.iter().cloned()).collect()
    }

    fn take_corrections(&self) -> BTreeMap<ClaimUid, String> {
        std::mem::take(&mut self.lock().claims.corrections)
    }

    fn unused(&self) -> BTreeMap<ClaimUid, String> {
        let state = self.lock();
        let mut unused = BTreeMap::new();
        for (id, naming) in &state.claims.naming {
            let has_cpus = naming.place.as_ref().is_some_and(|place| !place.exclusive_cpus.is_empty());
            let Some(holder) =
                state.held.containers.holder(id).filter(|holder| holder.is_given() && has_cpus)
            else {
                continue;
            };
            let why = state.held.allocations.get(holder).map_or("", |grant| grant.reason.as_str());
            let note = format!("{} is not on the CPUs of the claim: {why}", state.roster.name_of(id));
            unused.extend(naming.claims.iter().map(|uid| (uid.clone(), note.clone())));
        }
        unused
    }

    fn remote_accesses(&self) -> BTreeMap<ClaimUid, f64> {
        self.lock().claims.remote_accesses.clone()
    }

    fn named(&self) -> BTreeSet<ClaimUid> {
        self.lock().claims.naming.values().flat_map(|naming| naming.named.iter().cloned()).collect()
    }

    fn supply(&self) -> Option<ClaimSupply> {
        let state = self.lock();
        let inventory = state.terms.inventory.as_ref()?;
        let supply = ClaimSupply::new(inventory, &state.terms.budgets, &state.exclusive_without_claims());
        Some(supply.with_holders(state.holders_without_claims()))
    }

    fn hold(&self, ledger: &ClaimLedger, supply: &ClaimSupply) -> Result<(), CpuSet> {
        let mut state = self.lock();
        let had = state.claims.held.as_ref().map(|(ledger, _)| ledger.exclusive_cpus()).unwrap_or_default();
        let taken = ledger.exclusive_cpus().difference(&had).intersection(&state.exclusive_without_claims());
        if !taken.is_empty() {
            return Err(taken);
        }
        state.hold_claims(ledger, supply);
        Ok(())
    }

    fn hold_all(&self, ledger: &ClaimLedger, supply: &ClaimSupply) {
        self.lock().hold_claims(ledger, supply);
    }
}
