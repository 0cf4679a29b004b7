//! The CDI file of a claim: how a container runtime hands the claim to containers.
//!
//! Idea: one file and one device for each claim. The device sets one variable, from which [`super::binding`]
//! learns of the claim where the runtime does not name CDI devices. The variable is a hint: the ledger alone
//! says what a container gets. Its value is what a daemon needs to take the claim up again without a ledger:
//! CPUs, memory nodes, namespace and name. Annotations would need version 0.6.0, which not every containerd
//! 1.7 reads, and one file that it cannot read takes all devices away. Invariant: a name is
//! never used for another claim, because runtimes keep what they have read of it.
//!
//! The shell writes [`file`] to a temporary file of the same directory and renames it, after the state file;
//! at start it removes files of [`uid_of_file`] that the ledger does not know, and writes those that lack.

use numa_topology::set::CpuSet;
use serde_json::{Value, json};

use super::{ClaimUid, PreparedClaim, binding::mems_of};

/// Kind of the device: vendor and class.
pub const KIND: &str = "numa-enforcer.io/place";
/// Beginning of the name of each file.
const FILE_PREFIX: &str = "numa-enforcer.io-place_";
/// Beginning of the name of each device.
const DEVICE_PREFIX: &str = "claim-";
/// Beginning of the variable, before the uid.
pub(super) const VARIABLE: &str = "NUMA_ENFORCER_CLAIM_";
/// Beginning of the variable that other drivers and their readers use.
const COMPATIBLE_VARIABLE: &str = "DRA_CPUSET_";
/// Lowest version of the specification that has what is used here.
const VERSION: &str = "0.5.0";

/// Longest name of an object.
const MAX_NAME: usize = 253;

/// What the file of a claim says of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenClaim {
    /// Its exclusive CPUs.
    pub cpus: CpuSet,
    /// Its namespace; empty in files of versions that did not write it.
    pub namespace: String,
    /// Its name, or empty.
    pub name: String,
}

/// A CDI file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdiFile {
    /// Its name in the directory.
    pub name: String,
    /// What it contains.
    pub text: String,
}

/// The file of a claim. With `compatible` it also has the variable that `KubeVirt` reads.
pub fn file(claim: &PreparedClaim, compatible: bool) -> CdiFile {
    file_with(claim, compatible, &[])
}

/// The same, with files of the node that containers find at other paths, to read.
pub fn file_with(claim: &PreparedClaim, compatible: bool, mounts: &[(String, String)]) -> CdiFile {
    let (uid, cpus) = (&claim.uid, claim.cpus());
    let mut variables =
        vec![format!("{VARIABLE}{uid}={cpus};{};{}/{}", mems_of(claim), claim.namespace, claim.name)];
    if compatible && !cpus.is_empty() {
        variables.push(format!("{COMPATIBLE_VARIABLE}{uid}={cpus}"));
    }
    let name = format!("{DEVICE_PREFIX}{uid}");
    let mut device = json!({"name": name, "containerEdits": {"env": variables}});
    if !mounts.is_empty() {
        let mounts = mounts.iter().map(|(host, container)| {
            json!({"hostPath": host, "containerPath": container, "options": ["ro", "bind"]})
        });
        device["containerEdits"]["mounts"] = mounts.collect();
    }
    let text = json!({"cdiVersion": VERSION, "kind": KIND, "devices": [device]}).to_string();
    CdiFile { name: file_name(uid), text }
}

/// Name of the file of a claim.
pub fn file_name(uid: &ClaimUid) -> String {
    format!("{FILE_PREFIX}{DEVICE_PREFIX}{uid}.json")
}

/// The claim of a file of this driver; none for other files.
pub fn uid_of_file(name: &str) -> Option<ClaimUid> {
    let uid = name.strip_prefix(FILE_PREFIX)?.strip_prefix(DEVICE_PREFIX)?.strip_suffix(".json")?;
    ClaimUid::parse(uid)
}

/// What a file of this driver says of its claim; none if it is not one.
pub fn written_claim(text: &str) -> Option<WrittenClaim> {
    let file: Value = serde_json::from_slice(text.as_bytes()).ok()?;
    let variables = file.pointer("/devices/0/containerEdits/env")?.as_array()?;
    let mut own = variables.iter().filter_map(|variable| variable.as_str()?.strip_prefix(VARIABLE));
    let mut parts = own.next()?.split_once('=')?.1.splitn(3, ';');
    let cpus = parts.next()?.parse().ok()?;
    // The second part is there in each version.
    parts.next()?;
    let is_name = |text: &str| {
        let is_of_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_of_name)
    };
    let full_name = parts.next().and_then(|full_name| full_name.split_once('/'));
    let (namespace, name) =
        full_name.filter(|(namespace, name)| is_name(namespace) && is_name(name)).unwrap_or_default();
    Some(WrittenClaim { cpus, namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Id of the device of a claim, for the answer to the kubelet.
pub fn device_id(uid: &ClaimUid) -> String {
    format!("{KIND}={DEVICE_PREFIX}{uid}")
}

/// The claim of a device id of this driver; none for other devices.
pub fn uid_of_device(id: &str) -> Option<ClaimUid> {
    let name = id.strip_prefix(KIND)?.strip_prefix('=')?;
    ClaimUid::parse(name.strip_prefix(DEVICE_PREFIX)?)
}

/// The claim of a variable of this driver; none for other variables.
pub fn uid_of_variable(variable: &str) -> Option<ClaimUid> {
    let (name, _) = variable.split_once('=')?;
    ClaimUid::parse(name.strip_prefix(VARIABLE).or_else(|| name.strip_prefix(COMPATIBLE_VARIABLE))?)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::dra::ledger::samples::prepared;

    #[test]
    fn file_has_the_name_and_the_variable_of_the_claim() {
        let claim = prepared("0-1,4", "0");
        let file = file(&claim, true);
        assert_eq!(file.name, "numa-enforcer.io-place_claim-c1.json");
        let text: Value = serde_json::from_str(&file.text).unwrap();
        assert_eq!(
            text,
            json!({"cdiVersion": "0.5.0", "kind": "numa-enforcer.io/place", "devices": [{
                "name": "claim-c1",
                "containerEdits": {"env": ["NUMA_ENFORCER_CLAIM_c1=0-1,4;0;shop/c1", "DRA_CPUSET_c1=0-1,4"]},
            }]})
        );
        let variables = |compatible| super::file(&claim, compatible).text.matches("_c1=").count();
        assert_eq!((variables(true), variables(false)), (2, 1));
        assert!(!super::file(&prepared("", "0"), true).text.contains("DRA_CPUSET"));
    }

    #[test]
    fn file_says_what_a_lost_ledger_has_to_know() {
        let text = file(&prepared("0-1,4", "0"), true).text;
        let written = |name: (&str, &str)| WrittenClaim {
            cpus: "0-1,4".parse().unwrap(),
            namespace: name.0.into(),
            name: name.1.into(),
        };
        assert_eq!(written_claim(&text), Some(written(("shop", "c1"))));
        let long = "x".repeat(254);
        for (part, name) in [
            ("", ("", "")),
            (";", ("", "")),
            (";/c1", ("", "")),
            (";shop/", ("", "")),
            (";shop/../x", ("", "")),
            (";shop/C", ("", "")),
            (&format!(";shop/{long}"), ("", "")),
            (";a.b/c-1", ("a.b", "c-1")),
        ] {
            let text = text.replace(";shop/c1", part);
            assert_eq!(written_claim(&text), Some(written(name)), "{part}");
        }
        for text in ["", "{}", &text.replace("0-1,4;", "x;"), &text.replace(";0;shop/c1", "")] {
            assert_eq!(written_claim(text), None, "{text}");
        }
    }

    #[test]
    fn names_lead_back_to_the_claim() {
        let uid = ClaimUid::parse("3c0f6b5e-1d2a").unwrap();
        assert_eq!(uid_of_file(&file_name(&uid)), Some(uid.clone()));
        assert_eq!(uid_of_device(&device_id(&uid)), Some(uid.clone()));
        assert_eq!(uid_of_variable("NUMA_ENFORCER_CLAIM_3c0f6b5e-1d2a=x"), Some(uid.clone()));
        assert_eq!(uid_of_variable("DRA_CPUSET_3c0f6b5e-1d2a="), Some(uid));
        for name in
            ["", "numa-enforcer.io-place_claim-.json", "numa-enforcer.io-place_claim-../x.json", "x.json"]
        {
            assert_eq!(uid_of_file(name), None, "{name}");
        }
        for id in ["", "numa-enforcer.io/place", "numa-enforcer.io/place=c1", "other.io/place=claim-c1"] {
            assert_eq!(uid_of_device(id), None, "{id}");
        }
        for variable in ["NUMA_ENFORCER_CLAIM_c1", "numa_enforcer_claim_c1=1", "NUMA_ENFORCER_CLAIM_a/b=1"] {
            assert_eq!(uid_of_variable(variable), None, "{variable}");
        }
    }
}
