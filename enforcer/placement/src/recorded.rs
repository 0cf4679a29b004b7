//! Serialized form of allocations, for recordings of whole turns.
//!
//! A [`Grant`] has one serial form, here and in the daemon's `GrantRecord`: all of it, because
//! replaying must give the same decisions. Allocations are a list, in order of holder, because a holder
//! cannot be a JSON key.
//!
//! Invariant: recordings are untrusted, so input is validated: names of engines and policies must be those in
//! the code (`engine_name`), and sums of amounts must not overflow.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Allocations, Grant, Holder};

/// Limit of the sum of all amounts of each kind: they are added in 64 bits.
const SUM_LIMIT: u64 = 1 << 60;

#[derive(Serialize)]
struct GrantEntry<'a> {
    holder: &'a Holder,
    turn: u64,
    grant: &'a Grant,
}

#[derive(Deserialize)]
struct OwnedGrantEntry {
    holder: Holder,
    turn: u64,
    grant: Grant,
}

impl Serialize for Allocations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.with_arrival_seqs().map(|(holder, turn, grant)| GrantEntry {
            holder,
            turn,
            grant,
        }))
    }
}

impl<'de> Deserialize<'de> for Allocations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let lines = Vec::<OwnedGrantEntry>::deserialize(deserializer)?;
        let (mut bytes, mut milli_cpus) = (0u64, 0u64);
        for OwnedGrantEntry { grant, .. } in &lines {
            for claim in &grant.memory {
                let of_nodes = claim.by_node.values().fold(0u64, |sum, one| sum.saturating_add(*one));
                bytes = bytes.saturating_add(claim.bytes.max(of_nodes));
            }
            let shared = grant.shared.as_ref().map_or(0, |shared| shared.milli_cpus);
            milli_cpus = milli_cpus.saturating_add(shared).saturating_add(grant.cpu_shares.unwrap_or(0));
        }
        if bytes.max(milli_cpus) > SUM_LIMIT {
            return Err(de::Error::custom("more is given away than any machine has"));
        }
        Ok(Self::from_arrival_seqs(lines.into_iter().map(|line| (line.holder, line.turn, line.grant))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        ColdStart, CpuClass, MemoryClaim, MemoryResource, PodName, QosClass, SharedCpus,
        engine_name::{FixedName, HINTS, OTHERS, POOLS, POOLS_POLICY, UNPLACED},
        hints::Hint,
        settings::TopologyPolicy,
    };

    fn holder(pod: &str) -> Holder {
        Holder::new(PodName::new("shop", pod).with_uid("u"), "c".into())
    }

    fn whole(engine: FixedName, policy: FixedName) -> Grant {
        let claim = |resource, bytes| MemoryClaim {
            resource,
            zone: "0-1".parse().unwrap(),
            bytes,
            by_node: BTreeMap::from([(numa_topology::id::NodeId(0), bytes)]),
        };
        Grant {
            engine,
            policy,
            class: CpuClass::Mixed,
            exclusive: "2-3".parse().unwrap(),
            shared: Some(SharedCpus::new("4-7".parse().unwrap(), 500)),
            mems: "1".parse().unwrap(),
            memory: vec![
                claim(MemoryResource::Memory, 7),
                claim(MemoryResource::Hugepages(2 << 20), 2 << 20),
            ],
            cold_start: Some(ColdStart {
                after: std::time::Duration::from_millis(1500),
                mems: "0".parse().unwrap(),
                began_ns: Some(5),
            }),
            devices: BTreeMap::from([("nic".into(), vec!["a".into()])]),
            hint: Some(Hint { nodes: "1".parse().ok(), preferred: true }),
            one_thread_of: vec!["2-3".parse().unwrap()],
            labels: BTreeMap::from([("app".into(), "db".into())]),
            qos: Some(QosClass::Burstable),
            reason: "so".into(),
            ..Grant::default()
        }
    }

    #[test]
    fn allocations_survive_serde_with_their_turns() {
        let mut allocations = Allocations::default();
        for (pod, engine, policy) in [
            ("z", HINTS, TopologyPolicy::SingleNumaNode.as_str()),
            ("a", POOLS, POOLS_POLICY),
            ("m", OTHERS, OTHERS),
            ("k", UNPLACED, UNPLACED),
        ] {
            allocations.give(holder(pod), whole(engine, policy));
        }
        let text = serde_json::to_string(&allocations).unwrap();
        let mut again: Allocations = serde_json::from_str(&text).unwrap();
        assert_eq!(again, allocations);
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
        again.give(holder("b"), Grant::default());
        assert!(
            again.arrival_seq(&holder("b")) > again.arrival_seq(&holder("k")),
            "the order of arrival is kept"
        );
    }

    #[test]
    fn unknown_names_and_impossible_amounts_are_refused() {
        let mut allocations = Allocations::default();
        allocations.give(holder("a"), whole(POOLS, POOLS_POLICY));
        let text = serde_json::to_string(&allocations).unwrap();
        for (from, to, said) in [
            ("\"engine\":\"pools\"", "\"engine\":\"magic\"", "no engine"),
            ("\"bytes\":7", "\"bytes\":18446744073709551615", "more is given away"),
            ("\"milli_cpus\":500", "\"milli_cpus\":18446744073709551615", "more is given away"),
        ] {
            assert!(text.contains(from), "{text}");
            let error = serde_json::from_str::<Allocations>(&text.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
