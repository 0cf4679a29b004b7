//! Adds memory nodes to workloads that run short: state shared by the turns and the thread that widens.
//!
//! Problem: a turn may wait for the kernel, and a node that fills up does not wait. Idea: a thread of its own
//! ([`guardian`]) reads the nodes, decides (`enforcer_core::widening`) and has cpusets written. The turns
//! hand in the workloads to guard, with their originals in the journal. The thread reports the nodes it has
//! added. The turns keep these in each goal and take them back when there is room again. Both hold the lock
//! for a copy, never during a read or a write.
//!
//! Invariant: a workload is guarded only while its original is in the journal and the daemon may write.

mod brake;
mod exposure;
mod guard_event;
mod guardian;
mod relief;
mod relief_move;
mod shared;

use std::io;

use self::{brake::BrakeHandle, guardian::Guardian, relief::ReliefWorker};
pub use self::{brake::BrakeParts, guardian::Sensors, relief::ReliefSensors, shared::Widening};
use super::{Demotion, Gate};
use crate::threads::{self, Role};
use enforcer_act::cpuset::CpusetTree;
use enforcer_kernel::linux::Linux;

/// Starts the threads, without guarded workloads.
pub fn start(
    senses: Sensors,
    relief: ReliefSensors,
    brake: BrakeParts,
    tree: CpusetTree,
    gate: Gate,
    demotion: Demotion,
) -> io::Result<Widening> {
    let widening = Widening::new()?;
    senses.tap.listen(widening.waker.clone());
    let relief = ReliefWorker::new(Linux, widening.clone(), relief, tree.clone(), gate.clone(), demotion);
    threads::spawn(Role::Relief, move || relief.run())?;
    let lever = BrakeHandle::start(widening.clone(), brake)?;
    let guardian = Guardian::new(widening.clone(), senses, lever, tree, gate);
    threads::spawn(Role::Widening, move || guardian.run())?;
    Ok(widening)
}
