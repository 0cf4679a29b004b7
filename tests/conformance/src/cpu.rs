//! Vectors of CPUs: expected hints and expected assignments.

use std::fmt;

use numa_placement::hints::{
    NodeIndex, Offer,
    cpu::{CpuError, CpuOptions, CpuPick, CpuStock, assign, offer},
    kubelet::assign_near,
};
use numa_topology::set::{CpuSet, NodeSet};
use serde::Deserialize;

use crate::{
    machine::{Shown, VectorCpu, VectorHint, VectorNodes, known, layout},
    vector::same,
};

#[derive(Debug, Deserialize)]
pub(crate) struct Assignment {
    cpus: Vec<VectorCpu>,
    available: CpuSet,
    count: usize,
    options: Options,
    expect: Assigned,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Affinity {
    cpus: Vec<VectorCpu>,
    available: CpuSet,
    reserved: CpuSet,
    reusable: CpuSet,
    #[serde(rename = "affinity")]
    near: Option<VectorNodes>,
    count: usize,
    options: Options,
    expect: Assigned,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Hints {
    cpus: Vec<VectorCpu>,
    available: CpuSet,
    reusable: CpuSet,
    allocated: Option<CpuSet>,
    request: usize,
    options: Options,
    expect: Hinted,
}

/// Options that a vector may switch on.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "they are the vectors' switches")]
struct Options {
    full_pcpus_only: bool,
    distribute_across_numa: bool,
    distribute_across_cores: bool,
    align_by_socket: bool,
    align_by_uncore_cache: bool,
}

impl From<Options> for CpuOptions {
    fn from(options: Options) -> Self {
        Self {
            full_pcpus_only: options.full_pcpus_only,
            distribute_across_numa: options.distribute_across_numa,
            distribute_across_cores: options.distribute_across_cores,
            align_by_socket: options.align_by_socket,
            align_by_uncore_cache: options.align_by_uncore_cache,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hinted {
    hints: Option<Vec<VectorHint>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Assigned {
    Cpus(CpuSet),
    Error(String),
}

/// Outcome of an assignment; of an error only its class.
#[derive(Debug, PartialEq, Eq)]
enum AssignmentOutcome {
    Cpus(CpuSet),
    NotEnough,
    SmtAlignment,
    Other(String),
}

impl fmt::Display for AssignmentOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus(cpus) => write!(f, "CPUs `{cpus}`"),
            Self::NotEnough => f.write_str("not enough CPUs"),
            Self::SmtAlignment => f.write_str("SMTAlignmentError"),
            Self::Other(error) => f.write_str(error),
        }
    }
}

impl Assigned {
    fn outcome(&self) -> Result<AssignmentOutcome, String> {
        match self {
            Self::Cpus(cpus) => Ok(AssignmentOutcome::Cpus(cpus.clone())),
            Self::Error(text) if text == "SMTAlignmentError" => Ok(AssignmentOutcome::SmtAlignment),
            Self::Error(text) if text.starts_with("not enough cpus available") => {
                Ok(AssignmentOutcome::NotEnough)
            }
            Self::Error(text) => Err(format!("unknown class of error: {text}")),
        }
    }
}

fn ours(assigned: Result<CpuSet, CpuError>) -> AssignmentOutcome {
    match assigned {
        Ok(cpus) => AssignmentOutcome::Cpus(cpus),
        Err(CpuError::NotEnough { .. }) => AssignmentOutcome::NotEnough,
        Err(CpuError::NotWholeCores { .. } | CpuError::TooFewWholeCores { .. }) => {
            AssignmentOutcome::SmtAlignment
        }
        Err(other) => AssignmentOutcome::Other(other.to_string()),
    }
}

/// CPUs without an affinity.
pub(crate) fn check_assignment(vector: &Assignment) -> Result<(), String> {
    let layout = layout(&vector.cpus);
    let available = known(&vector.available, &layout)?;
    let assigned = assign(&layout, &available, vector.count, vector.options.into());
    same(&vector.expect.outcome()?, &ours(assigned))
}

/// CPUs near an affinity.
pub(crate) fn check_affinity(vector: &Affinity) -> Result<(), String> {
    let layout = layout(&vector.cpus);
    let affinity = vector.near.as_ref().map(VectorNodes::set);
    let pick = CpuPick {
        available: &known(&vector.available, &layout)?,
        reserved: &known(&vector.reserved, &layout)?,
        reusable: &known(&vector.reusable, &layout)?,
        affinity: affinity.as_ref(),
        count: vector.count,
    };
    let assigned = assign_near(&layout, &pick, vector.options.into());
    same(&vector.expect.outcome()?, &ours(assigned))
}

/// The hints for a request.
pub(crate) fn check_hints(vector: &Hints) -> Result<(), String> {
    let layout = layout(&vector.cpus);
    let nodes: NodeSet = layout.nodes.iter().map(|(id, _)| *id).collect();
    let index = NodeIndex::new(&nodes).with_lists();
    let stock = CpuStock {
        available: &known(&vector.available, &layout)?,
        reusable: &known(&vector.reusable, &layout)?,
        allocated: vector.allocated.as_ref(),
        usable: None,
    };
    let actual = match offer(&layout, &index, &stock, vector.request, vector.options.into()) {
        Offer::NoPreference => None,
        Offer::Listed(hints) => {
            Some(hints.iter().map(|hint| Shown::ours(&index, hint.mask, hint.preferred)).collect())
        }
        Offer::Threshold(_) => return Err(format!("{} nodes: the hints are not listed", index.len())),
    };
    let expected = vector.expect.hints.as_ref().map(|hints| hints.iter().map(Shown::from).collect());
    same(&listed(expected), &listed(actual))
}

/// Hints in one order: only the set of them counts.
fn listed(hints: Option<Vec<Shown>>) -> String {
    let Some(mut hints) = hints else { return "no preference".to_owned() };
    hints.sort();
    let hints: Vec<String> = hints.iter().map(Shown::to_string).collect();
    format!("[{}]", hints.join(" "))
}
