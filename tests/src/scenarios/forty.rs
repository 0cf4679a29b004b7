//! Of forty workloads, are those found that are misaligned, and no others?
//!
//! Thirteen are misaligned, each kind in its own way: their memory, their CPUs, both, some threads only, a
//! child only. The others are near misses of the same shapes: pinned, with a cpuset, with a little memory
//! away, with several threads or a child, all at home. An audit *finds* a workload when its verdict is
//! partial or misaligned.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::{
    cgroup::Cgroup,
    check::Checks,
    product,
    touch::{Plan, Touching},
};

/// Audits, each of which judges all of them.
const RUNS: usize = 5;

/// Least share of what is found that is misaligned, and of what is misaligned that is found.
const BOUND: f64 = 0.99;

/// MiB of a workload: above what is too little to be judged.
const MEBIBYTES: usize = 20;

/// Nodes of the guest, with two CPUs each.
const NODES: usize = 4;

/// How a workload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Threads pinned to one node, memory on another.
    MemoryAway,
    /// Memory where its cpuset says, CPUs of another node.
    CpusAway,
    /// CPUs of two nodes, memory on the two others.
    BothAway,
    /// One thread of two is on another node than the memory.
    ThreadAway,
    /// So is its child.
    ChildAway,
    /// Pinned to the node of its memory.
    Pinned,
    /// With a cpuset of one node.
    Cpuset,
    /// A tenth of its memory is away.
    NearlyAll,
    /// Two threads on the node of the memory.
    Threads,
    /// With a child there.
    Child,
}

/// Kinds and how many there are of each; the first five are misaligned.
const KINDS: [(Kind, usize); 10] = [
    (Kind::MemoryAway, 3),
    (Kind::CpusAway, 3),
    (Kind::BothAway, 3),
    (Kind::ThreadAway, 2),
    (Kind::ChildAway, 2),
    (Kind::Pinned, 9),
    (Kind::Cpuset, 6),
    (Kind::NearlyAll, 4),
    (Kind::Threads, 4),
    (Kind::Child, 4),
];

impl Kind {
    fn is_misaligned(self) -> bool {
        use Kind::{BothAway, ChildAway, CpusAway, MemoryAway, ThreadAway};
        matches!(self, MemoryAway | CpusAway | BothAway | ThreadAway | ChildAway)
    }

    /// Threads of the process, and of its child if it has one, around a node.
    fn plans(self, node: usize) -> (Vec<Plan>, Vec<Plan>) {
        let (home, next) = (first_cpu(node), first_cpu(node + 1));
        let (after, last) = (first_cpu(node + 2), first_cpu(node + 3));
        let stays = |cpu: u32, at: u32, size: usize| Plan::staying(cpu, &[(at, size)]);
        let half = MEBIBYTES / 2;
        match self {
            Self::MemoryAway | Self::CpusAway => (vec![stays(home, next, MEBIBYTES)], vec![]),
            Self::BothAway => (vec![stays(home, after, half), stays(next, last, half)], vec![]),
            Self::ThreadAway => (vec![stays(home, home, half), stays(next, home, half)], vec![]),
            Self::ChildAway => (vec![stays(home, home, half)], vec![stays(next, home, half)]),
            Self::Pinned | Self::Cpuset => (vec![stays(home, home, MEBIBYTES)], vec![]),
            Self::NearlyAll => {
                let tenth = MEBIBYTES / 10;
                (vec![Plan::staying(home, &[(home, MEBIBYTES - tenth), (next, tenth)])], vec![])
            }
            Self::Threads => (vec![stays(home, home, half), stays(home, home, half)], vec![]),
            Self::Child => (vec![stays(home, home, half)], vec![stays(home, home, half)]),
        }
    }

    /// Nodes of its CPUs and of its memory, where a cpuset says so.
    fn cpuset(self, node: usize) -> Option<(usize, usize)> {
        match self {
            Self::CpusAway => Some((node % NODES, (node + 1) % NODES)),
            Self::Cpuset => Some((node % NODES, node % NODES)),
            _ => None,
        }
    }
}

/// The first CPU of a node, counted round.
fn first_cpu(node: usize) -> u32 {
    u32::try_from(node % NODES * 2).unwrap_or_default()
}

/// One of the forty.
struct Workload {
    kind: Kind,
    cgroup: Cgroup,
    program: Touching,
}

impl Workload {
    fn start(kind: Kind, number: usize) -> Result<Self> {
        let path = format!("/work/{number:02}-{kind:?}");
        let cgroup = Cgroup::create(&path)?;
        let (threads, child) = kind.plans(number);
        let program = Touching::with_child(&cgroup, &threads, &child)?;
        if let Some((cpus, mems)) = kind.cpuset(number) {
            cgroup.write("cpuset.mems", &mems.to_string())?;
            cgroup.write("cpuset.cpus", &format!("{}-{}", 2 * cpus, 2 * cpus + 1))?;
        }
        Ok(Self { kind, cgroup, program })
    }
}

/// What audits found, of all that they judged.
#[derive(Debug, Default)]
struct Score {
    found_rightly: usize,
    found_wrongly: usize,
    missed: usize,
}

impl Score {
    #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
    fn share(&self, others: usize) -> Option<f64> {
        let all = self.found_rightly + others;
        (all > 0).then(|| self.found_rightly as f64 / all as f64)
    }
}

/// Audits forty workloads several times.
pub(super) fn misaligned(checks: &mut Checks) -> Result<()> {
    let kinds = KINDS.iter().flat_map(|(kind, count)| std::iter::repeat_n(*kind, *count));
    let start = |(number, kind)| Workload::start(kind, number);
    let mut workloads = kinds.enumerate().map(start).collect::<Result<Vec<_>>>()?;
    for workload in &mut workloads {
        workload.program.counts()?;
    }
    let misaligned = workloads.iter().filter(|workload| workload.kind.is_misaligned()).count();
    checks.equal("workloads, and misaligned ones", (40, 13), (workloads.len(), misaligned));

    let mut score = Score::default();
    for run in 1..=RUNS {
        let (report, _) = product::audit(&["--sample", "10s"])?;
        let mut wrong = BTreeSet::new();
        for workload in &workloads {
            let judged = report.workload(&workload.cgroup)?;
            let verdict = judged["verdict"].as_str().unwrap_or_default().to_owned();
            let found = matches!(&*verdict, "misaligned" | "partial");
            match (workload.kind.is_misaligned(), found) {
                (true, true) => score.found_rightly += 1,
                (true, false) => score.missed += 1,
                (false, true) => score.found_wrongly += 1,
                (false, false) => {}
            }
            if workload.kind.is_misaligned() != found {
                wrong.insert((workload.cgroup.path(), verdict, judged["traffic"].to_string()));
            }
        }
        println!("run {run}: wrong about {wrong:?}");
    }
    checks.above("precision", BOUND, score.share(score.found_wrongly));
    checks.above("recall", BOUND, score.share(score.missed));
    Ok(())
}
