//! Claims of an earlier driver: what is held and said, on a placement of its own.

use std::{fs, sync::Arc};

use enforcer_core::dra::cdi::WrittenClaim;

use super::*;
use crate::engine::SharedLedger;
use numa_placement::Inventory;
use numa_topology::synth::Machine;

/// A state file with a claim of CPUs 2-3 of this boot, and the placement of its machine.
fn earlier() -> (tempfile::TempDir, Policy, SharedLedger) {
    let dir = tempfile::tempdir().unwrap();
    let mut policy = Policy { state_dir: dir.path().to_owned(), ..Policy::default() };
    policy.nri.place = true;
    let machine = Machine::new().sockets(2).cores(4).threads(1).build();
    let inventory = Inventory::new(machine, Vec::new(), &policy.placement).unwrap();
    let placed = SharedLedger::default();
    placed.apply_policy(Some(Arc::new(inventory)), &policy, true);
    let mut ledger = ClaimLedger::new("n1", "boot");
    let uid = ClaimUid::parse("a").unwrap();
    ledger.recover(
        uid,
        &WrittenClaim { cpus: "2-3".parse().unwrap(), ..WrittenClaim::default() },
        &ClaimPlaces::supply(&placed).unwrap(),
    );
    fs::write(dir.path().join(STATE_FILE), ledger.to_text()).unwrap();
    (dir, policy, placed)
}

fn taken(placed: &SharedLedger) -> String {
    placed.exclusive_of_others().to_string()
}

#[test]
fn cpus_of_earlier_claims_are_held_without_a_driver() {
    let (dir, policy, placed) = earlier();
    let said = held(&policy, ("n1", "boot"), &placed).unwrap().unwrap();
    assert!(said.ends_with("dra.json: 1 claims are prepared, and this daemon has no driver"), "{said}");
    assert_eq!(taken(&placed), "2-3");
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, [STATE_FILE], "nothing is written");
}

#[test]
fn claims_of_an_earlier_boot_are_not_held_and_damage_is_said() {
    let (dir, policy, placed) = earlier();
    assert_eq!(held(&policy, ("n1", "later"), &placed), Ok(None));
    fs::write(dir.path().join(STATE_FILE), "{\"version\": 1").unwrap();
    let said = held(&policy, ("n1", "boot"), &placed).unwrap_err();
    assert!(said.contains("dra.json: first line: "), "{said}");
    assert_eq!(taken(&placed), "");
    fs::remove_file(dir.path().join(STATE_FILE)).unwrap();
    assert_eq!(held(&policy, ("n1", "boot"), &placed), Ok(None), "there never was a driver");
}
