//! A step of a plan and what became of it, in words.

use enforcer_core::{
    named::Named as _,
    plan::{Action, Outcome, OutcomeResult},
};

use crate::units;

/// A step, what became of it, and why it was planned.
pub(crate) fn step(outcome: &Outcome) -> String {
    let Outcome { step, result } = outcome;
    let between = match result {
        OutcomeResult::Applied { .. } | OutcomeResult::Differs { .. } | OutcomeResult::Unfinished { .. } => {
            ", "
        }
        _ => ": ",
    };
    let became = detail(result).map_or_else(String::new, |detail| format!("{between}{detail}"));
    format!(
        "{} {}: {}{became}; planned because {}",
        step.action.name(),
        target(&step.action),
        result.name(),
        step.reason
    )
}

/// The step in one line, where it did not end as planned.
pub(crate) fn complaint(outcome: &Outcome) -> Option<String> {
    let Outcome { step, result } = outcome;
    let detail = detail(result).filter(|_| !matches!(result, OutcomeResult::Applied { .. }))?;
    let (cgroup, action) = (step.action.cgroup(), step.action.name());
    Some(format!("{cgroup}: {action} {}: {detail}", result.name()))
}

/// What an action sets or moves.
fn target(action: &Action) -> String {
    match action {
        Action::SetMems { mems, .. } => mems.to_string(),
        Action::SetExclusive { cpus, .. } => units::ids_or_none(cpus),
        Action::SetCpus { cpus, .. } => cpus.to_string(),
        Action::SetPartition { kind, .. } => kind.to_string(),
        Action::MovePages { from, to, most_bytes, .. } => {
            let most = most_bytes.map_or_else(String::new, |most| format!("{} at most ", units::bytes(most)));
            format!("{most}from nodes {from} to node {to}")
        }
    }
}

/// Beside the name of a result: what was read back, or why.
fn detail(result: &OutcomeResult) -> Option<String> {
    Some(match result {
        OutcomeResult::DryRun | OutcomeResult::Gone => return None,
        OutcomeResult::Applied { read_back } => format!("is {read_back}"),
        OutcomeResult::Differs { wanted, read_back } => format!("wanted {wanted}, is {read_back}"),
        OutcomeResult::Unfinished { read_back } => read_back.clone(),
        OutcomeResult::Failed { error } => error.clone(),
        OutcomeResult::RolledBack { because, error: Some(error) } => {
            format!("{because}; taking it back failed: {error}")
        }
        OutcomeResult::RolledBack { because, error: None } | OutcomeResult::Skipped { because } => {
            because.clone()
        }
    })
}
