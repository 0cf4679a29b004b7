//! Metadata of the devices of a claim: files in containers by which a workload learns what it has (KEP-5304,
//! `metadata.resource.k8s.io/v1alpha1`).
//!
//! Idea: one file for each request, with the NUMA node and the exclusive CPUs of its devices. A container
//! finds it at a path that is made of names which its author knows: that of the claim, or of the pod's own
//! name for a claim of a template. Invariant: a file that changes has a higher generation.
//!
//! The shell writes [`files`] and has the CDI file mount them ([`super::cdi::file_with`]).

use serde_json::{Map, Value, json};

use super::{DRIVER, PreparedClaim};

/// Where containers find all of these files.
const FOLDER: &str = "/var/run/kubernetes.io/dra-device-attributes";
/// Longest file that is read back.
pub const MAX_BYTES: u64 = 1 << 20;

/// A file of metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataFile {
    /// Name of the file on the node.
    pub name: String,
    /// Path of the file in containers.
    pub path: String,
    content: Map<String, Value>,
}

/// The files of a claim, one for each request that is not for administration.
pub fn files(claim: &PreparedClaim, node: &str) -> Vec<MetadataFile> {
    let mut files = Vec::<MetadataFile>::new();
    let results = claim.results.iter().filter(|own| !own.result.is_admin);
    for prepared in results.filter(|own| !own.result.request.is_empty()) {
        let (result, request) = (&prepared.result, prepared.result.base_request());
        let mut attributes = json!({
            "resource.kubernetes.io/numaNode": {"int": prepared.node.0},
        });
        if !prepared.cpus.is_empty() {
            attributes[format!("{DRIVER}/cpus")] = json!({"string": prepared.cpus.to_string()});
        }
        let mut device = json!({
            "driver": DRIVER,
            "pool": node,
            "name": result.device.to_string(),
            "attributes": attributes,
        });
        if let Some(share) = &result.share_id {
            device["shareID"] = json!(share);
        }
        let name = file_name(claim, request);
        match files.iter_mut().find(|file| file.name == name) {
            Some(file) => {
                if let Some(Value::Array(requests)) = file.content.get_mut("requests")
                    && let Some(Value::Array(devices)) =
                        requests.first_mut().and_then(|one| one.get_mut("devices"))
                {
                    devices.push(device);
                }
            }
            None => files.push(MetadataFile {
                name,
                path: path(claim, request),
                content: content(claim, json!([{"name": result.request, "devices": [device]}])),
            }),
        }
    }
    files
}

/// Whether this is the name of a file of a claim with this uid.
pub fn is_of(name: &str, uid: &str) -> bool {
    name.split_once('_').is_some_and(|(of, _)| of == uid)
}

impl MetadataFile {
    /// The file in its first generation, or in the one after that of the file that is there. `None` if that
    /// says the same.
    pub fn text(&self, present: Option<&str>) -> Option<String> {
        let present = present.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let generation = present.as_ref().and_then(|file| file.pointer("/metadata/generation")?.as_u64());
        let of = |generation: u64| {
            let mut content = Value::Object(self.content.clone());
            content["metadata"]["generation"] = generation.into();
            content
        };
        match generation {
            Some(known) if present == Some(of(known)) => None,
            known => Some(of(known.map_or(1, |known| known.saturating_add(1))).to_string()),
        }
    }
}

fn content(claim: &PreparedClaim, requests: Value) -> Map<String, Value> {
    let mut content = Map::new();
    content.insert("kind".into(), json!("DeviceMetadata"));
    content.insert("apiVersion".into(), json!("metadata.resource.k8s.io/v1alpha1"));
    let PreparedClaim { name, namespace, uid, .. } = claim;
    let metadata = json!({"name": name, "namespace": namespace, "uid": uid.as_str()});
    content.insert("metadata".into(), metadata);
    if let Some(pod_claim) = &claim.pod_claim {
        content.insert("podClaimName".into(), json!(pod_claim));
    }
    content.insert("requests".into(), requests);
    content
}

fn file_name(claim: &PreparedClaim, request: &str) -> String {
    format!("{}_{}.json", claim.uid, plain(request))
}

fn path(claim: &PreparedClaim, request: &str) -> String {
    let (kind, name) = match &claim.pod_claim {
        Some(name) => ("resourceclaimtemplates", name),
        None => ("resourceclaims", &claim.name),
    };
    format!("{FOLDER}/{kind}/{}/{}/{DRIVER}-metadata.json", plain(name), plain(request))
}

/// A name as one part of a path. Names of the API have these characters alone.
fn plain(name: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '.');
    let name: String = name.chars().map(|one| if is_plain(one) { one } else { '-' }).collect();
    if name.chars().all(|one| one == '.') { name.replace('.', "-") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dra::ledger::samples::prepared;

    #[test]
    fn each_request_has_a_file_with_its_devices() {
        let mut claim = prepared("0-1,4", "0");
        let mut second = claim.results[0].clone();
        second.result.request = "place/two".into();
        claim.results[0].result.share_id = Some("s".into());
        let mut admin = claim.results[0].clone();
        (admin.result.request, admin.result.is_admin) = ("look".into(), true);
        claim.results.extend([second, admin]);
        let [file] = &files(&claim, "n1")[..] else { panic!("{:?}", files(&claim, "n1")) };
        assert_eq!(file.name, "c1_place.json");
        let folder = "/var/run/kubernetes.io/dra-device-attributes";
        assert_eq!(file.path, format!("{folder}/resourceclaims/c1/place/numa-enforcer.io-metadata.json"));
        let text = file.text(None).unwrap();
        let attributes = json!({
            "resource.kubernetes.io/numaNode": {"int": 0}, "numa-enforcer.io/cpus": {"string": "0-1,4"},
        });
        let device = |share: bool| {
            let mut device = json!({
                "driver": "numa-enforcer.io", "pool": "n1", "name": "ne-numa0", "attributes": attributes,
            });
            if share {
                device["shareID"] = json!("s");
            }
            device
        };
        let expected = json!({
            "kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/v1alpha1",
            "metadata": {"name": "c1", "namespace": "shop", "uid": "c1", "generation": 1},
            "requests": [{"name": "place", "devices": [device(true), device(false)]}],
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }

    #[test]
    fn claim_of_a_template_is_found_by_its_name_in_the_pod() {
        let mut claim = prepared("0", "0");
        claim.pod_claim = Some("../place".into());
        let files = files(&claim, "n1");
        assert!(files[0].path.contains("/resourceclaimtemplates/..-place/place/"), "{}", files[0].path);
        assert!(files[0].text(None).unwrap().contains(r#""podClaimName":"../place""#));
        assert_eq!((plain(".."), plain("a/b")), ("--".into(), "a-b".into()));
    }

    #[test]
    fn generation_rises_with_each_change() {
        let first = files(&prepared("0-1", "0"), "n1").remove(0);
        let text = first.text(None).unwrap();
        assert_eq!(first.text(Some(&text)), None);
        let second = files(&prepared("2-3", "0"), "n1").remove(0);
        let changed = second.text(Some(&text)).unwrap();
        assert!(changed.contains(r#""generation":2"#), "{changed}");
        assert_eq!(second.text(Some(&changed)), None);
        assert!(second.text(Some("no json")).unwrap().contains(r#""generation":1"#));
        assert!(is_of("c1_place.json", "c1") && !is_of("c10_place.json", "c1") && !is_of("c1", "c1"));
    }
}
