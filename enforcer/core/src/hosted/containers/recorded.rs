//! Serialized form of the containers and their holders, for recordings of whole turns.
//!
//! Decisions of a turn need the holder of each cgroup and the expected containers. The request of each pod is
//! left out, because only runtime calls place a pod again. So deserialized containers must only be used for
//! decisions of turns, never for runtime calls.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    BTreeMap, CgroupPath, Containers, Documents, ExpectedContainers, Holder, KnownPod, Member, PodRequest,
    QosClass,
};

#[derive(Serialize)]
struct ContainerEntry<'a> {
    id: &'a str,
    holder: &'a Holder,
    cgroup: Option<&'a CgroupPath>,
}

#[derive(Deserialize)]
struct OwnedContainerEntry {
    id: String,
    holder: Holder,
    cgroup: Option<CgroupPath>,
}

/// All containers, one by one.
struct ContainerEntries<'a>(&'a Containers);

impl<'a> Serialize for ContainerEntries<'a> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let line = |(id, holder): (&'a String, &'a Holder)| ContainerEntry {
            id,
            holder,
            cgroup: self.0.cgroup_of(holder),
        };
        serializer.collect_seq(self.0.holders.iter().map(line))
    }
}

#[derive(Serialize)]
struct SerializedContainers<'a> {
    containers: ContainerEntries<'a>,
    expected: &'a ExpectedContainers,
}

#[derive(Deserialize)]
struct OwnedSerializedContainers {
    containers: Vec<OwnedContainerEntry>,
    expected: ExpectedContainers,
}

impl Serialize for Containers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SerializedContainers { containers: ContainerEntries(self), expected: &self.expected }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Containers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let OwnedSerializedContainers { containers: lines, expected } =
            OwnedSerializedContainers::deserialize(deserializer)?;
        let mut containers = Self { expected, ..Self::default() };
        for OwnedContainerEntry { id, holder, cgroup } in lines {
            let pod = containers.pods.entry(holder.pod().clone()).or_insert_with(|| KnownPod {
                request: PodRequest {
                    name: holder.pod().clone(),
                    qos: QosClass::BestEffort,
                    labels: BTreeMap::new(),
                    annotations: BTreeMap::new(),
                    documents: Documents::default(),
                    containers: Vec::new(),
                    previous: BTreeMap::new(),
                    undescribed: None,
                },
                members: BTreeMap::new(),
            });
            pod.members.insert(holder.name().to_owned(), Member { id: id.clone(), cgroup });
            containers.holders.insert(id, holder);
        }
        Ok(containers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numa_placement::PodName;

    #[test]
    fn holders_and_cgroups_survive_serde() {
        let text = r#"{"containers":[
            {"id":"1","holder":{"pod":{"namespace":"n","name":"p"},"container":"a"},"cgroup":"/p/1"},
            {"id":"2","holder":{"pod":{"namespace":"n","name":"p"},"container":"b"},"cgroup":null}
        ],"expected":{}}"#;
        let containers: Containers = serde_json::from_str(text).unwrap();
        let holder = Holder::new(PodName::new("n", "p"), "a".into());
        let cgroup = CgroupPath::new("/p/1");
        assert_eq!(containers.cgroups().collect::<Vec<_>>(), [(&cgroup, &holder)]);
        assert_eq!(containers.holder("2").unwrap().name(), "b");
        assert!(!containers.expects(&cgroup));
        let again = serde_json::to_string(&containers).unwrap();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&again).unwrap(),
            serde_json::from_str::<serde_json::Value>(text).unwrap()
        );
    }
}
