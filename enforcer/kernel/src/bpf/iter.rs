//! Lists every thread of the machine in one pass, through a BPF iterator.
//!
//! About 1 us per thread, where `/proc/PID/task/TID/{stat,status}` takes 20 us and more, and with
//! fields that `/proc` does not have. The program is attached once and read as often as wanted.

use std::{fs, io, os::unix::fs::MetadataExt as _};

use libbpf_rs::{ErrorExt as _, Iter, IterOpts, Link, ObjectBuilder, OpenObject};
use numa_topology::set::{CpuSet, NodeSet};
use thiserror::Error;

use super::{
    axis::CgroupAxis,
    log,
    record::{self, IteratedTask, LONGEST},
    stream,
};

/// The iterator of `enforcer-ebpf/bpf/task.bpf.c`, as `build.rs` built it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/task.o"));

/// Inode of the first pid namespace (`PROC_PID_INIT_INO` in `include/linux/proc_ns.h`).
const HOST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

const _: () = assert!(LONGEST <= stream::BUFFER / 2, "a record and a read fit");
/// `PID_MAX_LIMIT` of 64-bit kernels: no machine has more threads.
const MAX_TASKS: usize = 4 * 1024 * 1024;

/// Why the tasks cannot be listed through BPF.
#[derive(Debug, Error)]
pub enum IteratorError {
    /// The kernel lists the threads of the reader's pid namespace (`init_seq_pidns` in
    /// `kernel/bpf/task_iter.c`), but a record has the ids of the host's, which are others there.
    #[error(
        "this is not the host's pid namespace, so thread ids would not match (a container needs hostPID)"
    )]
    PidNamespace,
    /// The object is not one that libbpf understands.
    #[error("opening the task iterator: {0:#}")]
    Open(libbpf_rs::Error),
    /// The kernel does not take the program: no BTF, no permission, or a field is missing.
    #[error("loading the task iterator: {0:#}")]
    Load(libbpf_rs::Error),
    /// The object has no such program.
    #[error("the object has no program {0}")]
    NoProgram(&'static str),
    /// The object has no constants to set.
    #[error("the object of the task iterator has no .rodata")]
    NoConstants,
    /// The kernel does not start it.
    #[error("starting the task iterator: {0:#}")]
    Start(libbpf_rs::Error),
    /// The stream broke off.
    #[error("reading the task iterator")]
    Read(#[source] io::Error),
    /// The stream is not one of records.
    #[error("the task iterator gave a record of more nodes than a machine can have")]
    Malformed,
    /// The stream does not end.
    #[error("the task iterator gave more than {MAX_TASKS} tasks")]
    Endless,
}

/// An attached task iterator.
pub struct TaskIterator {
    link: Link,
    possible: CpuSet,
}

impl TaskIterator {
    /// Name in reports.
    pub const SOURCE: &str = "task-iterator";
    /// What is lost without it.
    pub const EFFECT: &str = "threads are listed from /proc, which takes longer";

    /// Loads the iterator. Its records have the cgroup of `axis`.
    ///
    /// `possible` is the set of CPUs that the machine can have (`/sys/devices/system/cpu/possible`); the
    /// greatest of `nodes`, those that it can have, says how long the kernel's arrays of nodes are.
    pub fn open(axis: CgroupAxis, possible: CpuSet, nodes: &NodeSet) -> Result<Self, IteratorError> {
        if !in_host_pid_namespace() {
            return Err(IteratorError::PidNamespace);
        }
        log::libbpf_to_tracing();
        let wanted = match axis {
            CgroupAxis::Unified => "tasks_unified",
            CgroupAxis::Cpuset => "tasks_cpuset",
        };
        let mut object = ObjectBuilder::default().open_memory(OBJECT).map_err(IteratorError::Open)?;
        let node_ids = nodes.iter().last().map_or(0, |node| node.0.saturating_add(1));
        set_node_ids(&mut object, node_ids)?;
        for mut program in object.progs_mut() {
            let other = program.name() != wanted;
            program.set_autoload(!other);
        }
        let object = object.load().map_err(IteratorError::Load)?;
        let program = object
            .progs_mut()
            .find(|program| program.name() == wanted)
            .ok_or(IteratorError::NoProgram(wanted))?;
        let link = program.attach_iter_with_opts(IterOpts::None).map_err(IteratorError::Start)?;
        Ok(Self { link, possible })
    }

    /// Every thread, in ascending order of tid.
    pub fn read(&self) -> Result<Vec<IteratedTask>, IteratorError> {
        let stream = Iter::new(&self.link).context("creating the stream").map_err(IteratorError::Start)?;
        let mut records = Vec::new();
        stream::read_to_end(stream, IteratorError::Read, |bytes| {
            let taken = record::decode(bytes, &self.possible, &mut records)
                .map_err(|record::MalformedRecord| IteratorError::Malformed)?;
            if records.len() > MAX_TASKS { Err(IteratorError::Endless) } else { Ok(taken) }
        })?;
        Ok(records)
    }
}

/// Sets the one constant of `task.bpf.c`: `NODE_IDS`.
fn set_node_ids(object: &mut OpenObject, node_ids: u32) -> Result<(), IteratorError> {
    let mut constants = object
        .maps_mut()
        .find(|map| map.name().as_encoded_bytes().ends_with(b".rodata"))
        .ok_or(IteratorError::NoConstants)?;
    constants.set_initial_value(&node_ids.to_ne_bytes()).map_err(IteratorError::Open)
}

/// Also where `/proc` does not tell.
pub(super) fn in_host_pid_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").map_or(true, |namespace| namespace.ino() == HOST_PID_NAMESPACE)
}
