//! Keys of the counter maps.
//!
//! A cgroup is named by the id of its kernfs node, which is the inode number of its directory; which
//! hierarchy that is, is [`crate::settings::CGROUP_AXIS`].

/// One cgroup on one NUMA node.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeKey {
    /// Inode number of the cgroup's directory.
    pub cgroup: u64,
    /// NUMA node of the CPU.
    pub node: u32,
    /// Always 0: hash maps compare every byte of a key.
    pub zero: u32,
}

/// One cgroup whose tasks were put from a CPU of one NUMA node on one of another.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementKey {
    /// Inode number of the cgroup's directory.
    pub cgroup: u64,
    /// Node of the CPU it came from; of the parent's CPU for a new task.
    pub src: u32,
    /// Node of the CPU it was put on.
    pub dst: u32,
}
