//! Claims of an earlier driver, in a daemon that runs without one.
//!
//! Problem: the driver is turned off at a restart, another process has the lock of the claims, or one turn
//! alone is run, while containers of prepared claims go on. Idea: the state file is read and its CPUs are
//! held as they are.
//!
//! Invariants: nothing is locked, written or moved aside, so a driver that runs beside it is not disturbed.
//! Claims that the kubelet asked for last in an earlier boot are left out: no container of them runs, and
//! without a driver none starts.

use std::io;

use enforcer_core::{
    dra::{ClaimLedger, ClaimUid},
    policy::Policy,
};
use enforcer_host::{HostRoot, read_bytes};
use numa_topology::degraded::Degraded;

use super::{places::ClaimPlaces, store::STATE_FILE};
use enforcer_act::actuator::read_boot_id;

/// Largest state file that is read, in bytes.
const MOST_STATE: u64 = 64 << 20;
/// Effect of claims that are held without a driver.
const HELD: &str = "their CPUs stay withheld until the driver runs again or the machine restarts";
/// Effect of a state file that cannot be used.
const UNREAD: &str = "CPUs of claims that an earlier driver has prepared may be given to other containers";

/// Has `places` hold the claims that an earlier driver of this node has prepared; says so, if there are any.
pub(crate) fn hold_earlier_claims(
    host: &HostRoot,
    policy: &Policy,
    node: &str,
    places: &dyn ClaimPlaces,
) -> Option<Degraded> {
    let boot_id = read_boot_id(host).unwrap_or_default();
    held(policy, (node, &boot_id), places).transpose().map(|held| match held {
        Ok(reason) => Degraded::new("dra:state", reason, HELD),
        Err(reason) => Degraded::new("dra:state", reason, UNREAD),
    })
}

/// Holds the claims; returns what there is to say, if anything.
fn held(
    policy: &Policy,
    (node, boot_id): (&str, &str),
    places: &dyn ClaimPlaces,
) -> Result<Option<String>, String> {
    let path = policy.state_dir.join(STATE_FILE);
    let said = |problem: String| format!("{}: {problem}", path.display());
    let bytes = match read_bytes(&path, MOST_STATE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(said(error.to_string())),
    };
    let read = ClaimLedger::from_text(&String::from_utf8_lossy(&bytes), node, boot_id);
    let mut ledger = read.map_err(|damage| said(damage.to_string()))?;
    let earlier = ledger.claims().filter(|claim| claim.boot_id != boot_id);
    let earlier: Vec<ClaimUid> = earlier.map(|claim| claim.uid.clone()).collect();
    for uid in earlier {
        ledger.unprepare(&uid);
    }
    let claims = ledger.claims().count();
    if claims == 0 {
        return Ok(None);
    }
    let supply = places.supply().ok_or_else(|| said("the machine is not known".to_owned()))?;
    places.hold_all(&ledger, &supply);
    Ok(Some(said(format!("{claims} claims are prepared, and this daemon has no driver"))))
}

#[cfg(test)]
#[path = "tests/earlier.rs"]
mod tests;
