//! Advice knows where the kernel brings pages: a write of `cpuset.mems` sends all pages of a node to one
//! other node by its position, and asks neither whether there is room nor whether another allowed node
//! has it.
//!
//! A workload has its CPUs on a node that is nearly full, slow memory with much room beside them, and its
//! pages on the other socket. The control is its twin, to which the kernel's own choice happens.

use std::time::Duration;

use anyhow::Result;

use super::remedies::{Findings, available_mebibytes, carry_out, hog};
use crate::{cgroup::Cgroup, check::Checks, hog::Hog, memory, process::Running, wait};

/// Two nodes of two CPUs, and a slow one beside each: node 3 is beside CPUs 2-3.
pub(super) const TOPOLOGY: &str = "hmat";

/// Memory of the workload, and what the node of its CPUs can still give.
const MEBIBYTES: usize = 96;
const LEFT: u64 = 40;

/// Longest time for what the kernel does after a write: a bound on a hang.
const LIMIT: Duration = Duration::from_mins(3);

pub(super) fn is_of_the_node_that_pages_go_to(checks: &mut Checks) -> Result<()> {
    // CPUs beside its memory are those of another workload.
    let _neighbour = Running::hog(&Cgroup::with_cpuset("/work/neighbour", "0-1", "0")?, 8)?;
    let filling = Cgroup::with_cpuset("/work/filler", "3", "1")?;
    let mebibytes = usize::try_from(available_mebibytes(1)?.saturating_sub(LEFT))?;
    let _filler = Running::hog_of(&Hog { pause_ms: 500, ..hog(&filling, mebibytes) })?;

    // The control: the set of nodes beside its CPUs has room for it, and its pages stay behind.
    let twin = Cgroup::with_cpuset("/work/twin", "2", "0")?;
    let twin_process = Running::hog(&twin, MEBIBYTES)?;
    twin.write("cpuset.mems", "1,3")?;
    // The kernel is through with the move when the write returns.
    let share = |node| memory::share_on(twin_process.pid(), node);
    let shares = [share(0)?, share(1)?, share(3)?];
    checks.note("shares of the twin's pages on nodes 0, 1 and 3", &shares);
    checks.above("share of the twin's pages that stay on node 0", 0.2, Some(shares[0]));
    checks.below("share of the twin's pages on node 3", 0.1, Some(shares[2]));
    twin_process.kill()?;
    wait::until("node 1 can give again what the twin had there", LIMIT, || {
        Ok((available_mebibytes(1)? > LEFT / 2).then_some(()))
    })?;

    let db = Cgroup::with_cpuset("/work/db", "2", "0")?;
    let process = Running::hog(&db, MEBIBYTES)?;
    let finding = Findings::read()?.worst(&db)?;
    let remedy = finding.remedy.clone().unwrap_or_default();
    checks.holds("each process is told to go to node 3", remedy.contains("migratepages {} 0 3"), &finding);
    carry_out(checks, &remedy)?;
    checks.comes_to_hold(format!("{} is gone", finding.id), LIMIT, || {
        let after = Findings::read()?;
        let found: Vec<_> = after.of(&db).into_iter().cloned().collect();
        Ok((found.is_empty(), found))
    })?;
    checks.above("share of its pages on node 3", 0.9, Some(memory::share_on(process.pid(), 3)?));
    Ok(())
}
