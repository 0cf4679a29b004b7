//! The pods of a burst, made so that the optimum is known.
//!
//! The free CPUs of each NUMA node are cut into containers, so every pod has a place by construction and an
//! exact packer places them all. A burst takes a part of them, in an order that is drawn.

use numa_placement::{ContainerRequest, PodName, PodRequest};
use serde_json::{Value, json};

use crate::draw::Draw;

/// Namespace of all pods.
pub const NAMESPACE: &str = "burst";
/// CPUs of containers; large ones are what fragmentation refuses.
const SIZES: [u64; 7] = [2, 4, 6, 8, 10, 12, 16];
/// Memory of a container for each of its CPUs, in GiB.
pub const GIB_PER_CPU: u64 = 1;
/// One of so many pods has two containers.
const DOUBLE: u64 = 10;

/// What a pod asks for: CPUs by container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodShape {
    /// CPUs of each container, whole ones.
    pub containers: Vec<u64>,
}

impl PodShape {
    /// CPUs of all containers.
    pub fn cpus(&self) -> u64 {
        self.containers.iter().sum()
    }

    /// The request of a pod of this shape; the name is the uid, too.
    pub fn request(&self, name: &str) -> PodRequest {
        let containers = self.containers.iter().enumerate().map(|(at, cpus)| {
            ContainerRequest::guaranteed(format!("c{at}"), cpus * 1_000, (cpus * GIB_PER_CPU) << 30)
        });
        PodRequest::new(PodName::new(NAMESPACE, name).with_uid(name), containers.collect())
    }

    /// The pod as the API has it.
    pub fn object(&self, name: &str) -> Value {
        let containers = self.containers.iter().enumerate().map(|(at, cpus)| {
            let memory = format!("{}Gi", cpus * GIB_PER_CPU);
            let amounts = json!({"cpu": cpus.to_string(), "memory": memory});
            json!({
                "name": format!("c{at}"), "image": "registry.invalid/app:1",
                "resources": {"requests": amounts, "limits": amounts},
            })
        });
        json!({
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
            "spec": {"schedulerName": "numa-scheduler", "containers": containers.collect::<Vec<_>>()},
            "status": {"phase": "Pending", "qosClass": "Guaranteed"},
        })
    }
}

/// Pods that take `percent` of the CPUs of so many nodes with these free CPUs by NUMA node.
pub fn planted(nodes: usize, free: &[u64], percent: u64, draw: &mut Draw) -> Vec<PodShape> {
    let mut pods: Vec<PodShape> = Vec::new();
    for _ in 0..nodes {
        let first = pods.len();
        for zone in free {
            let mut left = *zone;
            while left > 0 {
                let size = SIZES[draw.below(SIZES.len())].min(left);
                left -= size;
                let is_second = pods.len() > first && draw.between(1, DOUBLE) == 1;
                match pods.last_mut().filter(|pod| is_second && pod.containers.len() == 1) {
                    Some(pod) => pod.containers.push(size),
                    None => pods.push(PodShape { containers: vec![size] }),
                }
            }
        }
    }
    draw.shuffle(&mut pods);
    let all = nodes as u64 * free.iter().sum::<u64>();
    let mut taken = 0;
    pods.retain(|pod| {
        let fits = (taken + pod.cpus()) * 100 <= all * percent;
        if fits {
            taken += pod.cpus();
        }
        fits
    });
    pods
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_take_the_part_that_is_asked_for_and_whole_nodes_at_most() {
        let sum = |pods: &[PodShape]| pods.iter().map(PodShape::cpus).sum::<u64>();
        let all = planted(10, &[14, 16], 100, &mut Draw::new(1));
        assert_eq!(sum(&all), 300);
        assert!(all.iter().flat_map(|pod| &pod.containers).all(|cpus| *cpus <= 16));
        assert!(all.iter().any(|pod| pod.containers.len() == 2));
        let half = sum(&planted(10, &[14, 16], 50, &mut Draw::new(1)));
        assert!((140..=150).contains(&half), "{half}");
    }

    #[test]
    fn object_and_request_say_the_same() {
        let shape = PodShape { containers: vec![4, 2] };
        let (object, request) = (shape.object("p"), shape.request("p"));
        assert_eq!(
            object["spec"]["containers"][0]["resources"]["limits"],
            json!({"cpu": "4", "memory": "4Gi"})
        );
        assert_eq!(request.containers.len(), 2);
        assert_eq!(request.name.uid, "p");
        assert_eq!(shape.cpus(), 6);
    }
}
