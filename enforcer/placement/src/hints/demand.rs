//! Demand of a container, or of a whole pod, for every resource.
//!
//! A pod's demand is the [peak](PodRequest::peak) of its stages.

use super::memory::{WantedMemory, wanted};
use crate::{ContainerRequest, DeviceCounts, PodRequest, QosClass, Resources};

/// Amounts by resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Exclusive CPUs.
    pub(super) exclusive: usize,
    /// CPU time on shared CPUs in thousandths; `None` without shared CPUs.
    pub(super) shared: Option<u64>,
    /// Memory to promise.
    pub(super) memory: WantedMemory,
    /// Devices by resource, none with a count of zero.
    pub(super) devices: DeviceCounts,
}

impl Demand {
    /// Demand of one container.
    pub(super) fn of(container: &ContainerRequest, qos: QosClass, align_all_qos: bool) -> Self {
        let exclusive = exclusive_cpus(container, qos);
        let devices = container.devices.iter().filter(|(_, count)| **count > 0);
        Self {
            exclusive,
            shared: (exclusive == 0).then(|| container.requests.milli_cpus.unwrap_or(0)),
            memory: wanted(&container.requests, qos, align_all_qos),
            devices: devices.map(|(resource, count)| (resource.clone(), *count)).collect(),
        }
    }

    /// Demand of all containers together.
    pub(super) fn of_pod(pod: &PodRequest, align_all_qos: bool) -> Self {
        let containers = &pod.containers;
        let peak = |amount: &dyn Fn(&ContainerRequest) -> u64| pod.peak(amount);
        let of_requests =
            |amount: &dyn Fn(&Resources) -> Option<u64>| peak(&|c| amount(&c.requests).unwrap_or(0));
        let is_shared = |container: &ContainerRequest| exclusive_cpus(container, pod.qos) == 0;
        let exclusive = peak(&|c| u64::try_from(exclusive_cpus(c, pod.qos)).unwrap_or(u64::MAX));
        let shared = peak(&|c| if is_shared(c) { c.requests.milli_cpus.unwrap_or(0) } else { 0 });
        let sizes = containers.iter().flat_map(|container| container.requests.hugepages.keys());
        let requests = Resources {
            milli_cpus: None,
            memory_bytes: Some(of_requests(&|requests| requests.memory_bytes)),
            hugepages: sizes
                .map(|size| (*size, of_requests(&|requests| requests.hugepages.get(size).copied())))
                .collect(),
        };
        let resources = containers.iter().flat_map(|container| container.devices.keys());
        let devices = resources
            .map(|resource| (resource.clone(), peak(&|c| c.devices.get(resource).copied().unwrap_or(0))))
            .filter(|(_, count)| *count > 0);
        Self {
            exclusive: usize::try_from(exclusive).unwrap_or(usize::MAX),
            shared: containers.iter().any(is_shared).then_some(shared),
            memory: wanted(&requests, pod.qos, align_all_qos),
            devices: devices.collect(),
        }
    }
}

/// Number of exclusive CPUs of a container: only whole ones, and unless declared otherwise only in a
/// Guaranteed pod.
pub(super) fn exclusive_cpus(container: &ContainerRequest, qos: QosClass) -> usize {
    let alone = container.wishes.alone().unwrap_or(qos == QosClass::Guaranteed);
    let whole = container.whole_cpus().filter(|_| alone).unwrap_or(0);
    usize::try_from(whole).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContainerKind, samples};

    fn container(kind: ContainerKind, amount: u64) -> ContainerRequest {
        let mut request =
            samples::container("c", amount * 1000, amount << 30).kind(kind).device("vendor.com/gpu", amount);
        request.requests.hugepages.insert(2 << 20, amount << 21);
        request
    }

    #[test]
    fn a_pod_asks_for_the_peak_of_its_stages() {
        use ContainerKind::{App, Init, Sidecar};
        for (containers, peak) in [
            (vec![(App, 1), (App, 2), (Init, 1), (Init, 4)], 4),
            (vec![(Init, 1), (Init, 3), (App, 2), (App, 3)], 5),
            (vec![(Sidecar, 2), (Init, 4), (App, 1), (App, 2)], 6),
            (vec![(Sidecar, 2), (Init, 4), (App, 2), (App, 3)], 7),
            (vec![(Sidecar, 1), (App, 1)], 2),
            (vec![(Init, 5), (Sidecar, 1), (Sidecar, 2), (Sidecar, 3), (App, 1)], 7),
            (vec![(Init, 5), (Sidecar, 1), (Sidecar, 2), (Init, 5), (Sidecar, 3), (App, 1)], 8),
            (vec![(Sidecar, 10), (Init, 200), (App, 100)], 210),
        ] {
            let containers = containers.into_iter().map(|(kind, amount)| container(kind, amount));
            let mut pod = samples::pod("p", containers.collect());
            let demand = Demand::of_pod(&pod, true);
            assert_eq!(demand.exclusive as u64, peak, "{pod:?}");
            assert_eq!(demand.shared, None);
            assert_eq!(
                demand.memory.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(),
                [peak << 30, peak << 21]
            );
            assert_eq!(demand.devices["vendor.com/gpu"], peak);
            pod.qos = QosClass::Burstable;
            let demand = Demand::of_pod(&pod, false);
            assert_eq!((demand.exclusive, demand.shared), (0, Some(peak * 1000)));
            assert!(demand.memory.is_empty());
        }
    }

    #[test]
    fn only_whole_cpus_of_guaranteed_pods_are_exclusive() {
        let mut request = container(ContainerKind::App, 2);
        assert_eq!(exclusive_cpus(&request, QosClass::Guaranteed), 2);
        assert_eq!(exclusive_cpus(&request, QosClass::Burstable), 0);
        request.requests.milli_cpus = Some(2500);
        assert_eq!(exclusive_cpus(&request, QosClass::Guaranteed), 0);
    }
}
