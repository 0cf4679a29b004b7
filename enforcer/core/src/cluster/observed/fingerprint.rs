//! Hashes of a published state: of its content, and of the names of its pods.
//!
//! All are xxh64, which is stable across versions and machines. The fingerprint of names is that of
//! `NodeResourceTopology` (k8stopologyawareschedwg/podfingerprint, version `v001`), so that readers of both
//! objects can compare them.

use serde::Serialize;
use twox_hash::XxHash64;

/// Prefix of a fingerprint: the kind and the version of its method.
const PREFIX: &str = "pfp0v001";

/// Hash of a value by its JSON, as 16 hexadecimal digits.
pub(super) fn of_json(value: &impl Serialize) -> String {
    // A state has no map with other keys than text and no value that JSON lacks.
    let json = serde_json::to_vec(value).unwrap_or_default();
    format!("{:016x}", XxHash64::oneshot(0, &json))
}

/// Fingerprint of pods by namespace and name, in any order.
pub(in crate::cluster) fn of_pods<'a>(pods: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let hash = |(namespace, name): (&str, &str)| {
        XxHash64::oneshot(XxHash64::oneshot(0, namespace.as_bytes()), name.as_bytes())
    };
    let mut hashes: Vec<u64> = pods.into_iter().map(hash).collect();
    hashes.sort_unstable();
    let bytes: Vec<u8> = hashes.into_iter().flat_map(u64::to_le_bytes).collect();
    format!("{PREFIX}{:016x}", XxHash64::oneshot(0, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_the_published_one() {
        // Vectors of podfingerprint.
        let five = [("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")];
        for (pods, expected) in [
            (&five[..], "pfp0v001b92008c14168b3a6"),
            (&[], "pfp0v001ef46db3751d8e999"),
            (&[("default", "nginx")], "pfp0v0016a5a78cfbc52d821"),
            (&[("ns1", "n1")], "pfp0v001bb89419dce9a8948"),
        ] {
            assert_eq!(of_pods(pods.iter().copied()), expected, "{pods:?}");
            assert_eq!(of_pods(pods.iter().rev().copied()), expected, "in another order");
        }
    }
}
