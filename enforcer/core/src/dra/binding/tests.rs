use numa_topology::{MemoryKind, id::NodeId, synth::Machine};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::dra::{
    BudgetOptions, ClaimAllocation, LedgerLimits, PrepareDecision, cdi,
    ledger::samples::{claim, cpus, result, supply},
};

const LINE: &str = "sockets:2 cores:8 threads:2 memory:64GiB hugepages-2Mi:64";

struct Node {
    supply: ClaimSupply,
    ledger: ClaimLedger,
}

impl Node {
    fn new() -> Self {
        Self { supply: supply(LINE, &BudgetOptions::default(), ""), ledger: ClaimLedger::new("n1", "boot") }
    }

    fn prepare(&mut self, claim: &ClaimAllocation) {
        let none = CpuSet::new();
        let limits = LedgerLimits { now: 0, share_exclusive: true, interrupt_cpus: &none };
        let decision = self.ledger.prepare(claim, &self.supply, &limits);
        assert_eq!(decision, Ok(PrepareDecision::Prepared));
    }

    fn with(claims: &[ClaimAllocation]) -> Self {
        let mut node = Self::new();
        for claim in claims {
            node.prepare(claim);
        }
        node
    }

    /// What a container of the pod `pod-a` gets by these variables.
    fn bind(&self, variables: &[&str]) -> Bound {
        self.hinted(&[], variables)
    }

    fn hinted(&self, devices: &[&str], variables: &[&str]) -> Bound {
        let named = named_claims(devices.iter().copied(), variables.iter().copied());
        let hints = ContainerHints { pod_uid: "pod-a", named: &named };
        bind(&hints, &self.ledger, &self.supply)
    }

    fn place(&self) -> ContainerPlace {
        self.bind(&["PATH=/bin", "NUMA_ENFORCER_CLAIM_a=0-31;0-1"]).place.unwrap()
    }
}

fn ordinary(place: &ContainerPlace) -> u64 {
    let claims = place.memory.iter().filter(|claim| claim.resource == MemoryResource::Memory);
    claims.map(|claim| claim.bytes).sum()
}

fn one(amounts: PlaceAmounts, options: &serde_json::Value) -> ClaimAllocation {
    claim("a", vec![result("ne-numa1", amounts, options)])
}

fn text(cpus: Option<&CpuSet>) -> String {
    cpus.map_or_else(|| "unchanged".to_owned(), ToString::to_string)
}

#[test]
fn value_of_the_variable_says_nothing() {
    let node = Node::with(&[one(cpus(4), &json!({}))]);
    let place = node.place();
    assert_eq!(text(place.cpus.as_ref()), "8-9,24-25");
    assert_eq!(place.exclusive_cpus.to_string(), "8-9,24-25");
    assert_eq!((place.mems, place.preferred_nodes.to_string()), (None, "1".into()));
    let file = cdi::file(node.ledger.claims().next().unwrap(), false);
    assert!(file.text.contains("NUMA_ENFORCER_CLAIM_a=8-9,24-25;1"), "{}", file.text);
}

#[test]
fn hints_that_are_not_proven_give_nothing() {
    let mut node = Node::with(&[one(cpus(4), &json!({}))]);
    node.prepare(&claim("b", vec![result("ne-numa0", cpus(2), &json!({}))]));
    let forged = node.bind(&["NUMA_ENFORCER_CLAIM_b=0-31;0-1", "NUMA_ENFORCER_CLAIM_gone=1;0"]);
    assert_eq!((forged.place, forged.claims.len(), forged.spoofed), (None, 0, 1));
    assert_eq!(forged.unconfirmed, [ClaimUid::parse("b").unwrap()]);
    let mut group = claim("g", vec![result("ne-numa0", cpus(2), &json!({}))]);
    group.consumers = vec![ClaimConsumer::Other { resource: "podgroups".into(), uid: "x".into() }];
    node.prepare(&group);
    let of_group = node.bind(&["NUMA_ENFORCER_CLAIM_g=;"]);
    assert_eq!((of_group.place, of_group.unconfirmed.len()), (None, 1), "its pods are not known by uid");
    let by_device = node.hinted(&["vendor.com/gpu=0"], &["NUMA_ENFORCER_CLAIM_a=1;1"]);
    assert_eq!(by_device, Bound::default(), "a runtime that names devices needs no variable");
    let named = node.hinted(&["numa-enforcer.io/place=claim-a"], &[]);
    assert_eq!(named.claims.len(), 1);
    let foreign = node.hinted(&["numa-enforcer.io/place=claim-b"], &[]);
    assert_eq!((foreign.place, foreign.unconfirmed.len()), (None, 1), "annotations of pods can set devices");
    assert_eq!(node.bind(&[]), Bound::default());
}

#[test]
fn shared_and_mixed_claims_run_on_the_shared_cpus_of_the_node() {
    let amounts = PlaceAmounts { milli_cpus: 500, ..PlaceAmounts::default() };
    let shared = Node::with(&[one(amounts.clone(), &json!({}))]);
    assert_eq!(text(shared.place().cpus.as_ref()), "8-15,24-31");
    let mixed = Node::with(&[one(PlaceAmounts { cpus: 4, ..amounts }, &json!({"quota": "remove"}))]);
    let place = mixed.place();
    assert_eq!(
        (text(place.cpus.as_ref()), place.exclusive_cpus.to_string()),
        ("8-15,24-31".into(), "8-9,24-25".into())
    );
    assert!(!place.lifts_quota, "some of its CPUs are shared");
    let mut local = Node::with(&[one(PlaceAmounts::default(), &json!({}))]);
    assert_eq!(text(local.place().cpus.as_ref()), "8-15,24-31");
    local.prepare(&claim("b", vec![result("ne-numa1", cpus(8), &json!({}))]));
    assert_eq!(text(local.place().cpus.as_ref()), "12-15,28-31");
}

#[test]
fn memory_is_where_the_option_says() {
    let amounts = PlaceAmounts {
        memory_bytes: 8 << 30,
        hugepages: [(2 << 20, 4 << 20)].into(),
        ..PlaceAmounts::default()
    };
    let of = |options: serde_json::Value| {
        let place = Node::with(&[one(amounts.clone(), &options)]).place();
        (place.mems.map(|mems| mems.to_string()), place.preferred_nodes.to_string())
    };
    assert_eq!(of(json!({})), (Some("1".into()), "1".into()));
    assert_eq!(of(json!({"memory": "preferred"})), (Some("1".into()), "1".into()));
    assert_eq!(of(json!({"memory": "free"})), (None, String::new()));
    let place = Node::with(&[one(amounts.clone(), &json!({}))]).place();
    assert_eq!((ordinary(&place), place.hugepages), (8 << 30, [(2 << 20, 4 << 20)].into()));
    let both = claim(
        "a",
        vec![result("ne-numa0", amounts.clone(), &json!({})), result("ne-numa1", amounts, &json!({}))],
    );
    let place = Node::with(&[both]).place();
    assert_eq!(place.mems.as_ref().unwrap().to_string(), "0-1");
    assert_eq!((ordinary(&place), place.hugepages[&(2 << 20)]), (16 << 30, 8 << 20));
}

#[test]
fn quota_is_lifted_where_every_cpu_is_exclusive_and_every_option_says_so() {
    let of = |options: serde_json::Value| Node::with(&[one(cpus(4), &options)]).place().lifts_quota;
    assert!(of(json!({"quota": "remove"})));
    assert!(!of(json!({"quota": "keep"})) && !of(json!({})));
    let odd = claim(
        "a",
        vec![
            result("ne-numa0", cpus(2), &json!({"quota": "remove"})),
            result("ne-numa1", cpus(2), &json!({})),
        ],
    );
    assert!(!Node::with(&[odd]).place().lifts_quota);
}

#[test]
fn several_claims_are_joined_and_widening_is_an_option() {
    let mut second = claim("b", vec![result("ne-numa0", cpus(2), &json!({"widen": "idle"}))]);
    second.consumers = one(cpus(0), &json!({})).consumers;
    let node = Node::with(&[one(cpus(2), &json!({})), second]);
    let bound = node.bind(&["NUMA_ENFORCER_CLAIM_a=", "NUMA_ENFORCER_CLAIM_b=", "DRA_CPUSET_b=1"]);
    let place = bound.place.unwrap();
    assert_eq!((bound.claims.len(), place.exclusive_cpus.to_string()), (2, "0,8,16,24".into()));
    assert!(place.may_widen && !node.place().may_widen);
}

#[test]
fn administrators_get_no_place_of_their_own() {
    let mut admin = one(PlaceAmounts::default(), &json!({}));
    admin.results[0].is_admin = true;
    let place = Node::with(&[admin]).place();
    assert_eq!(place, ContainerPlace::default());
}

#[test]
fn memory_that_is_preferred_is_bound_only_where_more_nodes_may_come() {
    let amounts = PlaceAmounts { memory_bytes: 8 << 30, ..PlaceAmounts::default() };
    let preferring = one(amounts, &json!({"memory": "preferred"}));
    let mut node = Node::with(std::slice::from_ref(&preferring));
    let place = node.place();
    assert_eq!((place.mems.as_ref().map(ToString::to_string), place.is_strict), (Some("1".into()), false));
    let grant = place.grant("shop/a");
    assert_eq!((grant.pin_mems, grant.memory_priority), (true, MemoryPriority::Guaranteed));
    // By default, without an amount, it only begins there.
    let default = Node::with(&[one(cpus(2), &json!({}))]).place();
    assert_eq!((default.mems, default.preferred_nodes.to_string()), (None, "1".into()));
    let strict = Node::with(&[one(cpus(2), &json!({"memory": "strict"}))]).place();
    assert_eq!((strict.is_strict, strict.grant("shop/a").memory_priority), (true, MemoryPriority::Strict));
    let options = BudgetOptions { widens_memory: false, ..BudgetOptions::default() };
    node.supply = supply(LINE, &options, "");
    let place = node.place();
    assert_eq!((place.mems, place.preferred_nodes.to_string()), (None, "1".into()));
}

#[test]
fn memory_only_node_has_the_cpus_that_are_near() {
    let mut machine =
        Machine::new().sockets(2).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build();
    machine.nodes[2].normal_memory = Some(false);
    let settings = numa_placement::settings::PlacementSettings::default();
    let inventory = numa_placement::Inventory::new(machine, Vec::new(), &settings).unwrap();
    let mut node = Node::new();
    node.supply = ClaimSupply::new(&inventory, &BudgetOptions::default(), &CpuSet::new());
    let amounts = PlaceAmounts { memory_bytes: 1 << 30, ..PlaceAmounts::default() };
    node.prepare(&claim("a", vec![result("ne-numa2", amounts, &json!({}))]));
    let place = node.place();
    assert_eq!(text(place.cpus.as_ref()), "4-7,12-15");
    assert_eq!(place.mems.unwrap().to_string(), "1-2", "the kernel needs memory too");
    assert_eq!(place.preferred_nodes.to_string(), "2");
}

#[test]
fn lost_cpus_are_never_an_empty_set() {
    let mut node = Node::with(&[one(cpus(4), &json!({"quota": "remove"}))]);
    node.supply = supply(LINE, &BudgetOptions::default(), "8-15,24-31");
    node.ledger.settle(&node.supply);
    let place = node.place();
    assert_eq!(text(place.cpus.as_ref()), "0-7,16-23");
    assert_eq!((place.missing_cpus, place.lifts_quota), (4, false));
}

proptest! {
    #[test]
    fn no_container_gets_cpus_of_a_claim_that_is_not_its_own(
        counts in prop::collection::vec((0u8..2, 0u64..5), 1..6),
        variables in prop::collection::vec("(NUMA_ENFORCER_CLAIM_|DRA_CPUSET_|X_)[a-g]{0,2}=?[0-9,;-]{0,6}", 0..8),
    ) {
        let mut node = Node::new();
        for (uid, (device, count)) in ["a", "b", "c", "d", "e", "f"].iter().zip(counts) {
            let device = format!("ne-numa{device}");
            let claim = claim(uid, vec![result(&device, cpus(count), &json!({}))]);
            let none = CpuSet::new();
            let limits = LedgerLimits { now: 0, share_exclusive: false, interrupt_cpus: &none };
            node.ledger.prepare(&claim, &node.supply, &limits).unwrap();
        }
        let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
        let bound = node.bind(&variables);
        let own = ClaimUid::parse("a").unwrap();
        prop_assert!(bound.claims.iter().all(|claim| *claim == own));
        let others = node.ledger.claims().filter(|claim| claim.uid != own);
        let others = others.fold(CpuSet::new(), |all, claim| all.union(&claim.cpus()));
        if let Some(place) = bound.place {
            let cpus = place.cpus.unwrap();
            prop_assert!(!cpus.is_empty() && cpus.is_disjoint(&others));
        }
    }
}
