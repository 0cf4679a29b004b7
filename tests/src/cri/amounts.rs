//! What a container asks for, and what a kubelet makes of it.
//!
//! Pure: numbers in, numbers out. Millicores become shares and a quota, the class of a pod follows from what
//! its containers ask for, and the kernel's choice of a victim follows from the class (Kubernetes'
//! `pkg/kubelet/cm/helpers_linux.go` and `pkg/kubelet/qos/policy.go`).

use super::messages::LinuxContainerResources;

/// Length of a period of the CPU controller in microseconds.
const PERIOD: i64 = 100_000;

/// Fewest shares: those of a container without a request.
const LEAST_SHARES: i64 = 2;

/// Requests and limits of one container; what is 0 was not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a CPU that it is to have.
    pub cpu_request: i64,
    /// Most thousandths of a CPU.
    pub cpu_limit: i64,
    /// MiB that it is to have.
    pub memory_request: i64,
    /// Most MiB.
    pub memory_limit: i64,
    /// CPUs that a kubelet with a CPU manager would have chosen.
    pub cpus: &'static str,
    /// Nodes that a kubelet with a memory manager would have chosen.
    pub mems: &'static str,
}

/// Class of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// Every container has limits for both, and requests that equal them.
    Guaranteed,
    /// Some container asks for something.
    Burstable,
    /// No container has a request or a limit.
    BestEffort,
}

impl Amounts {
    /// Whole CPUs and MiB that are requested and limited alike.
    pub fn guaranteed(cpus: i64, mebibytes: i64) -> Self {
        let (cpu, memory) = (cpus * 1000, mebibytes);
        Self {
            cpu_request: cpu,
            cpu_limit: cpu,
            memory_request: memory,
            memory_limit: memory,
            ..Self::default()
        }
    }

    /// Thousandths of a CPU and MiB that are requested, with a limit for neither.
    pub fn burstable(cpu_request: i64, memory_request: i64) -> Self {
        Self { cpu_request, memory_request, ..Self::default() }
    }

    /// The CPU controller's shares.
    pub fn shares(&self) -> i64 {
        (self.cpu_request * 1024 / 1000).max(LEAST_SHARES)
    }

    /// Microseconds of each period; `None` without a limit.
    pub fn quota(&self) -> Option<i64> {
        (self.cpu_limit > 0).then(|| (self.cpu_limit * PERIOD / 1000).max(1000))
    }

    /// Limit of memory in bytes; `None` without one.
    pub fn memory_bytes(&self) -> Option<i64> {
        (self.memory_limit > 0).then_some(self.memory_limit << 20)
    }

    /// How much rather than others it is killed, on a machine with so many MiB.
    pub fn oom_score_adj(&self, qos: Qos, capacity: i64) -> i64 {
        match qos {
            Qos::Guaranteed => -997,
            Qos::BestEffort => 1000,
            Qos::Burstable => (1000 - 1000 * self.memory_request / capacity.max(1)).clamp(3, 999),
        }
    }

    /// What the runtime is told.
    pub(super) fn resources(&self, oom_score_adj: i64) -> LinuxContainerResources {
        LinuxContainerResources {
            cpu_period: self.quota().map_or(0, |_| PERIOD),
            cpu_quota: self.quota().unwrap_or(0),
            cpu_shares: self.shares(),
            memory_limit_in_bytes: self.memory_bytes().unwrap_or(0),
            oom_score_adj,
            cpuset_cpus: self.cpus.to_owned(),
            cpuset_mems: self.mems.to_owned(),
        }
    }
}

impl Qos {
    /// Class of a pod with these containers.
    pub fn of(containers: &[Amounts]) -> Self {
        let is_empty =
            |one: &Amounts| [one.cpu_request, one.cpu_limit, one.memory_request, one.memory_limit] == [0; 4];
        let is_fixed = |one: &Amounts| {
            one.cpu_limit > 0
                && one.memory_limit > 0
                && one.cpu_request == one.cpu_limit
                && one.memory_request == one.memory_limit
        };
        if containers.iter().all(is_empty) {
            Self::BestEffort
        } else if containers.iter().all(is_fixed) {
            Self::Guaranteed
        } else {
            Self::Burstable
        }
    }

    /// Slice of a pod with this uid, as a kubelet names it that has systemd make cgroups, and its cgroup.
    pub fn slice(self, uid: &str) -> (String, String) {
        let class = match self {
            Self::Guaranteed => "",
            Self::Burstable => "-burstable",
            Self::BestEffort => "-besteffort",
        };
        let slice = format!("kubepods{class}-pod{}.slice", uid.replace('-', "_"));
        let above = if class.is_empty() { String::new() } else { format!("/kubepods{class}.slice") };
        let cgroup = format!("/kubepods.slice{above}/{slice}");
        (slice, cgroup)
    }

    /// Folder above its pods, from the root of the hierarchy.
    pub const fn parent(self) -> &'static str {
        match self {
            Self::Guaranteed => "/kubepods",
            Self::Burstable => "/kubepods/burstable",
            Self::BestEffort => "/kubepods/besteffort",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_follows_from_all_containers() {
        let (fixed, some, none) =
            (Amounts::guaranteed(1, 16), Amounts::burstable(500, 16), Amounts::default());
        for (containers, wanted) in [
            (&[fixed.clone()][..], Qos::Guaranteed),
            (&[fixed.clone(), fixed.clone()], Qos::Guaranteed),
            (&[fixed.clone(), none.clone()], Qos::Burstable),
            (&[some], Qos::Burstable),
            (&[none], Qos::BestEffort),
            (&[Amounts { memory_request: 8, ..fixed }], Qos::Burstable),
        ] {
            assert_eq!(Qos::of(containers), wanted, "{containers:?}");
        }
    }

    #[test]
    fn amounts_become_what_the_kernel_takes() {
        let two = Amounts::guaranteed(2, 64);
        assert_eq!((two.shares(), two.quota(), two.memory_bytes()), (2048, Some(200_000), Some(64 << 20)));
        assert_eq!(two.oom_score_adj(Qos::Guaranteed, 1024), -997);
        let some = Amounts::burstable(500, 256);
        assert_eq!((some.shares(), some.quota(), some.memory_bytes()), (512, None, None));
        assert_eq!(some.oom_score_adj(Qos::Burstable, 1024), 750);
        let none = Amounts::default();
        assert_eq!((none.shares(), none.oom_score_adj(Qos::BestEffort, 1024)), (2, 1000));
        assert_eq!(Amounts::burstable(0, 4096).oom_score_adj(Qos::Burstable, 1024), 3);
    }
}
